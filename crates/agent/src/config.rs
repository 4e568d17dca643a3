//! The configuration file: every key has a default, an unknown key is an error.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use barograph_source::{BudgetConfig, PolicySpec, SourcesConfig};
use barograph_stream::RunDir;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{AgentError, ApplicationsConfig, ArchiveConfig, ExportConfig, ForecastConfig};
use barograph_intake::SCOPES_DIR;
use barograph_model::ConfigError;
use barograph_recorder::seconds;
use barograph_statement::StatementHead;
use tracing::warn;

/// In the state directory: what `baro probe` measured.
const PROBES_FILE: &str = "probes.toml";
/// In the state directory: history.
const ARCHIVE_DIR: &str = "archive";

/// Everything that can be configured. Command-line options of `baro up` win over the file.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Name of this node; empty: the host name up to the first dot.
    pub node: String,
    /// Loopback address and port of HTTP; `off` for unix sockets only.
    pub http: String,
    /// Where segment, sockets and documents lie; empty: `/dev/shm/barograph-<uid>`.
    pub run_dir: PathBuf,
    /// Where what must survive a restart lies; empty: `/var/lib/barograph` for root, else
    /// `$XDG_STATE_HOME/barograph` or `~/.local/state/barograph`.
    pub state_dir: PathBuf,
    /// Insights made at start, each a `CREATE INSIGHT` statement.
    pub insights: Vec<String>,
    /// Bounds of the segment.
    pub streams: StreamsConfig,
    /// History: what is written to disk, and how much of it is kept.
    pub archive: ArchiveConfig,
    /// Bounds of SQL that the agent runs for others.
    pub query: QueryConfig,
    /// Who is sent this node's samples.
    pub export: ExportConfig,
    /// What running programs publish.
    pub applications: ApplicationsConfig,
    /// What is said of the near future.
    pub forecast: ForecastConfig,
    /// Streams that may be looked at seldom, and how wrong what is said of them between looks may be: `[[policy]]`, one for each.
    pub policy: Vec<PolicySpec>,
    /// What reading sources that policies decide about may take.
    pub budget: BudgetConfig,
    /// What is observed, and how often.
    pub sources: SourcesConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            node: String::new(),
            http: "127.0.0.1:7070".into(),
            run_dir: PathBuf::new(),
            state_dir: PathBuf::new(),
            insights: Vec::new(),
            streams: StreamsConfig::default(),
            archive: ArchiveConfig::default(),
            query: QueryConfig::default(),
            export: ExportConfig::default(),
            applications: ApplicationsConfig::default(),
            forecast: ForecastConfig::default(),
            policy: Vec::new(),
            budget: BudgetConfig::default(),
            sources: SourcesConfig::default(),
        }
    }
}

/// Bounds of the segment.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StreamsConfig {
    /// Most streams at once, 1 to 1048576; further ones are refused and counted.
    pub max: u32,
    /// Samples that a ring holds unless its source says otherwise, 2 to 1048576.
    pub depth: u32,
    /// Most memory for rings, in bytes.
    pub ring_bytes_max: u64,
    /// A value that holds is appended again when its newest sample is this old, in seconds, 1 to 86400: a
    /// longer silence is the source's.
    pub repeat_seconds: f64,
}

impl Default for StreamsConfig {
    fn default() -> Self {
        Self {
            max: barograph_stream::STREAMS_DEFAULT,
            depth: barograph_stream::DEPTH_DEFAULT,
            ring_bytes_max: 1 << 30,
            repeat_seconds: 240.0,
        }
    }
}

/// Bounds of SQL that the agent runs for others; what a client runs in its own process is its own.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct QueryConfig {
    /// Threads, at low priority.
    pub threads: usize,
    /// Questions that may wait for a thread.
    pub waiting_max: usize,
    /// Most seconds a question may take.
    pub seconds_max: f64,
    /// Most rows in an answer.
    pub rows_max: usize,
    /// Most bytes in an encoded answer.
    pub bytes_max: usize,
    /// Most memory of all questions together, in bytes: a quarter for SQLite, a quarter for what
    /// its threads read, half for answers, what PromQL and history read, and the bodies of
    /// requests.
    pub memory_bytes_max: usize,
}

impl Default for QueryConfig {
    fn default() -> Self {
        Self {
            threads: 2,
            waiting_max: 16,
            seconds_max: 10.0,
            rows_max: 1_000_000,
            bytes_max: 256 << 20,
            memory_bytes_max: 192 << 20,
        }
    }
}

impl Config {
    /// Reads a file; a missing one is an error, since it was named.
    pub fn read(path: &Path) -> Result<Self, AgentError> {
        let text = fs::read_to_string(path).map_err(|source| AgentError::ConfigFile {
            path: path.into(),
            source,
        })?;
        toml::from_str(&text).map_err(|source| AgentError::ConfigText {
            path: path.into(),
            source: Box::new(source),
        })
    }

    /// Checks ranges and fills in what depends on user and host.
    pub fn resolve(mut self) -> Result<Self, AgentError> {
        let refuse = |key, value: &dyn ToString, reason: &str| {
            Err(AgentError::from(ConfigError {
                key,
                value: value.to_string(),
                reason: reason.into(),
            }))
        };
        if !(1..=barograph_stream::STREAMS_MAX).contains(&self.streams.max) {
            return refuse("streams.max", &self.streams.max, "it must be 1 to 1048576");
        }
        if !(2..=barograph_stream::DEPTH_MAX).contains(&self.streams.depth) {
            return refuse(
                "streams.depth",
                &self.streams.depth,
                "it must be 2 to 1048576",
            );
        }
        self.repeat_ns()?;
        if !(1..=64).contains(&self.query.threads) {
            return refuse("query.threads", &self.query.threads, "it must be 1 to 64");
        }
        if !(self.query.seconds_max > 0.0 && self.query.seconds_max <= 86_400.0) {
            return refuse(
                "query.seconds_max",
                &self.query.seconds_max,
                "it must be more than 0, at most 86400",
            );
        }
        if !self.sources.sys_root.is_dir() {
            return Err(AgentError::SysRoot {
                path: self.sources.sys_root,
            });
        }
        self.sources.validate()?;
        self.applications.check()?;
        self.forecast.check()?;
        crate::policies::check(&self.policy)?;
        self.budget.check()?;
        if self.node.is_empty() {
            self.node = host_name();
        }
        if self.node.len() > barograph_stream::NODE_BYTES_MAX
            || self.node.contains(char::is_control)
        {
            return refuse(
                "node",
                &self.node,
                "it must be at most 63 bytes without control characters",
            );
        }
        if self.run_dir.as_os_str().is_empty() {
            self.run_dir = RunDir::default_path();
        }
        if self.state_dir.as_os_str().is_empty() {
            self.state_dir = default_state_dir();
        }
        self.place_archive()?;
        // What was measured on this machine says nothing of a recorded one.
        let probes = &mut self.sources.disk.probes;
        if probes.as_os_str().is_empty() && self.sources.sys_root == Path::new("/") {
            *probes = self.state_dir.join(PROBES_FILE);
        }
        Ok(self)
    }

    /// The configured insights, by name. A statement that names none is left out with a warning.
    pub(crate) fn insights_by_name(&self) -> BTreeMap<String, String> {
        let by_name = self
            .insights
            .iter()
            .filter_map(|sql| match StatementHead::read(sql) {
                Ok(head) => Some((head.name, sql.clone())),
                Err(error) => {
                    warn!(%error, sql, "an insight is left out");
                    None
                }
            });
        by_name.collect()
    }

    /// The names of the tables and keys in which another configuration differs, apart from those that
    /// a reload changes.
    pub(crate) fn differs_in(&self, other: &Self) -> Vec<String> {
        let table = |config: &Self| match toml::Table::try_from(config) {
            Ok(table) => table,
            Err(error) => {
                warn!(%error, "configurations cannot be compared");
                toml::Table::new()
            }
        };
        let (before, now) = (table(self), table(other));
        let names = before.keys().chain(now.keys()).cloned();
        let names: BTreeSet<String> = names.collect();
        let differs = |name: &String| before.get(name) != now.get(name);
        let reloaded = |name: &String| ["insights", "policy"].contains(&name.as_str());
        let names = names.into_iter();
        names.filter(|n| differs(n) && !reloaded(n)).collect()
    }

    /// When a value that holds is appended again, in ns.
    pub(crate) fn repeat_ns(&self) -> Result<i64, ConfigError> {
        seconds(
            "streams.repeat_seconds",
            self.streams.repeat_seconds,
            1.0,
            86_400.0,
        )
    }

    /// The archive of an agent without other words, for those who look at it without an agent.
    pub fn default_archive_dir() -> PathBuf {
        default_state_dir().join(ARCHIVE_DIR)
    }

    /// Where the scopes of applications keep theirs, of the same agent.
    pub fn default_scopes_dir() -> PathBuf {
        default_state_dir().join(SCOPES_DIR)
    }

    /// Fills in where history lies, as an absolute path: readers stand elsewhere.
    fn place_archive(&mut self) -> Result<(), AgentError> {
        if self.archive.dir.as_os_str().is_empty() {
            self.archive.dir = self.state_dir.join(ARCHIVE_DIR);
        }
        self.archive.dir =
            std::path::absolute(&self.archive.dir).map_err(|source| AgentError::State {
                what: "find",
                path: self.archive.dir.clone(),
                source,
            })?;
        self.archive.target()?;
        self.archive.writer(&self.node)?;
        Ok(())
    }
}

fn host_name() -> String {
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let short = name.split('.').next().unwrap_or_default();
    if short.is_empty() {
        "localhost".into()
    } else {
        short.into()
    }
}

fn default_state_dir() -> PathBuf {
    if rustix::process::getuid().is_root() {
        return "/var/lib/barograph".into();
    }
    let from = |key: &str| {
        std::env::var_os(key)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    match from("XDG_STATE_HOME").or_else(|| from("HOME").map(|home| home.join(".local/state"))) {
        Some(state) => state.join("barograph"),
        None => RunDir::default_path().join("state"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_keys_and_bad_values_are_refused() {
        let check = |text: &str, expect: &str| {
            let error = match toml::from_str::<Config>(text) {
                Err(error) => error.to_string(),
                Ok(config) => config.resolve().unwrap_err().to_string(),
            };
            assert!(error.contains(expect), "{text}: {error}");
        };
        check("nodes = 'a'", "unknown field `nodes`");
        check("[streams]\nmax = 0", "streams.max = 0 is refused");
        check("[streams]\ndepth = 1", "streams.depth = 1 is refused");
        check(
            "[streams]\nrepeat_seconds = 0",
            "streams.repeat_seconds = 0 is refused: it must be 1 to 86400",
        );
        check(
            "[archive]\nbytes_max = 5",
            "archive.bytes_max = 5 is refused",
        );
        check("[archive]\nfile = 5", "unknown field `file`");
        check(
            "[archive]\ntarget = 'ftp://x/y'",
            "archive.target = ftp://x/y is refused",
        );
        check("[query]\nthreads = 0", "query.threads = 0 is refused");
        check(
            "[query]\nseconds_max = -1",
            "query.seconds_max = -1 is refused",
        );
        check(
            "[[policy]]\nname = 'a'\nstreams = ['b']",
            "policy = a is refused: error: is missing",
        );
        check("[budget]\ncpu_share = 2", "budget.cpu_share: is 2");
        let one = "[[policy]]\nname = 'a'\nstreams = ['b']\nkind = 'fixed'\n";
        check(&one.repeat(2), "policy = a is refused: there are two");
        check("node = '''a\nb'''", "control characters");
        check(
            "[sources]\nsys_root = '/no/such'",
            "--sys-root /no/such is not a directory",
        );
    }

    #[test]
    fn the_default_resolves() {
        let config = Config::default().resolve().unwrap();
        assert!(!config.node.is_empty());
        assert!(config.run_dir.is_absolute() && config.state_dir.is_absolute());
        assert_eq!(
            config.sources.disk.probes,
            config.state_dir.join(PROBES_FILE)
        );
        assert_eq!(config.archive.dir, config.state_dir.join(ARCHIVE_DIR));
        let mut recorded = Config::default();
        recorded.sources.sys_root = std::env::temp_dir();
        let recorded = recorded.resolve().unwrap();
        assert_eq!(recorded.sources.disk.probes, PathBuf::new());
    }
}

//! The configuration file. Every key has a default, and an unknown key is an error.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use barograph_source::{BudgetConfig, PolicySpec, SourcesConfig};
use barograph_stream::{RunDir, SCOPES_DIR};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ActionConfig, AgentError, ApplicationsConfig, ArchiveConfig, BandwidthConfig, ClusterConfig,
    ControlConfig, EventConfig, ExportConfig, ForecastConfig, ScheduleConfig, StagingConfig,
};
use barograph_model::ConfigError;
use barograph_recorder::seconds;
use barograph_statement::StatementHead;
use tracing::warn;

/// The file in the state directory with the results of `baro probe`.
const PROBES_FILE: &str = "probes.toml";
/// The directory of the archive, in the state directory.
const ARCHIVE_DIR: &str = "archive";

/// Everything that can be configured. Command-line options of `baro up` override the file.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Name of this node. Empty: the host name up to the first dot.
    pub node: String,
    /// Loopback address and port of HTTP. `off`: unix sockets only.
    pub http: String,
    /// Directory of the segment, the sockets and the documents. Empty: `/dev/shm/barograph-<uid>`.
    pub run_dir: PathBuf,
    /// Directory of everything that must survive a restart. Empty: `/var/lib/barograph` for root,
    /// otherwise `$XDG_STATE_HOME/barograph` or `~/.local/state/barograph`.
    pub state_dir: PathBuf,
    /// Insights that are made at the start, each a `CREATE INSIGHT` statement.
    pub insights: Vec<String>,
    /// Rules that are made at the start, each a `CREATE RULE` statement. A rule of the same name
    /// that was made by a statement takes precedence.
    pub rules: Vec<String>,
    /// Bounds of the segment.
    pub streams: StreamsConfig,
    /// The archive: which history is written to disk, and how much of it is kept.
    pub archive: ArchiveConfig,
    /// Bounds of the SQL that the agent runs for other processes.
    pub query: QueryConfig,
    /// Receivers to which this node's samples are sent.
    pub export: ExportConfig,
    /// Applications: the values that running programs publish.
    pub applications: ApplicationsConfig,
    /// The cluster of nodes that this one takes part in.
    pub cluster: ClusterConfig,
    /// File events: the trees whose events are recorded.
    pub event: EventConfig,
    /// Actions of rules on file events and on schedules.
    pub action: ActionConfig,
    /// Controllers: how much readers of arrays are told to read, and with which I/O weight.
    pub control: ControlConfig,
    /// I/O scheduling: whose turn it is to do I/O, of the programs that ask.
    pub schedule: ScheduleConfig,
    /// A server of staging beside the agent.
    pub staging: StagingConfig,
    /// Forecasts of the near future of streams.
    pub forecast: ForecastConfig,
    /// The forecast of the bandwidth that a reader gets from a device to which others write.
    pub interference: BandwidthConfig,
    /// Policies: streams that may be looked at seldom, and the error that is allowed between two
    /// looks. Each is a `[[policy]]`.
    pub policy: Vec<PolicySpec>,
    /// Budget for reading the sources whose intervals policies decide.
    pub budget: BudgetConfig,
    /// Sources: what is observed, and how often.
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
            rules: Vec::new(),
            streams: StreamsConfig::default(),
            archive: ArchiveConfig::default(),
            query: QueryConfig::default(),
            export: ExportConfig::default(),
            applications: ApplicationsConfig::default(),
            cluster: ClusterConfig::default(),
            event: EventConfig::default(),
            action: ActionConfig::default(),
            control: ControlConfig::default(),
            schedule: ScheduleConfig::default(),
            staging: StagingConfig::default(),
            forecast: ForecastConfig::default(),
            interference: BandwidthConfig::default(),
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
    /// Most streams at once, 1 to 1048576. Further streams are refused and counted.
    pub max: u32,
    /// Samples that a ring holds if its source sets no other depth, 2 to 1048576.
    pub depth: u32,
    /// Most memory of all rings together, in bytes.
    pub ring_bytes_max: u64,
    /// Age of the newest sample, in seconds, at which an unchanged value is appended again, 1 to
    /// 86400. A longer silence means that the source was silent.
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

/// Bounds of the SQL that the agent runs for other processes. They do not apply to SQL that a
/// client runs in its own process.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct QueryConfig {
    /// Threads that run queries, at low priority.
    pub threads: usize,
    /// Queries that may wait for a thread.
    pub waiting_max: usize,
    /// Most seconds that a query may take.
    pub seconds_max: f64,
    /// Most rows of an answer.
    pub rows_max: usize,
    /// Most bytes of an encoded answer.
    pub bytes_max: usize,
    /// Most memory of all queries together, in bytes: a quarter for SQLite, a quarter for what its
    /// threads read, and half for answers, for what PromQL and history read, and for the bodies of
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
    /// Reads a file. A missing file is an error, since the user named it.
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

    /// Checks ranges and fills in the values that depend on the user and the host.
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
        self.interference.check()?;
        self.event.check()?;
        self.action.check_values()?;
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
        self.cluster.check(&self.node)?;
        self.control.check()?;
        self.schedule.check()?;
        self.staging.check()?;
        self.check_shared_volumes()?;
        if self.run_dir.as_os_str().is_empty() {
            self.run_dir = RunDir::default_path();
        }
        if self.state_dir.as_os_str().is_empty() {
            self.state_dir = default_state_dir();
        }
        self.place_archive()?;
        // Measurements of this machine do not apply to a recorded one.
        let probes = &mut self.sources.disk.probes;
        if probes.as_os_str().is_empty() && self.sources.sys_root == Path::new("/") {
            *probes = self.state_dir.join(PROBES_FILE);
        }
        Ok(self)
    }

    /// Fails if a volume is shared and no node may lead those that share it.
    fn check_shared_volumes(&self) -> Result<(), ConfigError> {
        let mut volumes = self.schedule.volumes.iter();
        match volumes.find(|(_, volume)| volume.shared) {
            Some((name, _)) if self.cluster.controllers.is_empty() => Err(ConfigError {
                key: "schedule.volumes",
                value: format!("{name}: shared"),
                reason: "a leader gives the turns on it: name the nodes that may lead in \
                         cluster.controllers"
                    .into(),
            }),
            _ => Ok(()),
        }
    }

    /// Returns the configured insights by name. A statement without a name is left out with a
    /// warning.
    pub(crate) fn insights_by_name(&self) -> BTreeMap<String, String> {
        by_name(&self.insights)
    }

    /// Returns the configured rules by name. A statement without a name is left out with a warning.
    pub(crate) fn rules_by_name(&self) -> BTreeMap<String, String> {
        by_name(&self.rules)
    }

    /// Returns the names of the tables and keys in which another configuration differs, apart from
    /// those that a reload changes.
    pub(crate) fn differs_in(&self, other: &Self) -> Vec<String> {
        let table = |config: &Self| match toml::Table::try_from(config) {
            Ok(table) => table,
            Err(error) => {
                warn!(%error, "configurations cannot be compared");
                toml::Table::new()
            }
        };
        let (before, now) = (table(self), table(other));
        let names: BTreeSet<String> = before.keys().chain(now.keys()).cloned().collect();
        let differs = |name: &String| before.get(name) != now.get(name);
        let reloaded = |name: &String| ["insights", "policy"].contains(&name.as_str());
        let names = names.into_iter();
        names.filter(|n| differs(n) && !reloaded(n)).collect()
    }

    /// Returns the age of the newest sample at which an unchanged value is appended again, in ns.
    pub(crate) fn repeat_ns(&self) -> Result<i64, ConfigError> {
        seconds(
            "streams.repeat_seconds",
            self.streams.repeat_seconds,
            1.0,
            86_400.0,
        )
    }

    /// Returns the archive directory of an agent with the default configuration, for readers that
    /// have no agent.
    pub fn default_archive_dir() -> PathBuf {
        default_state_dir().join(ARCHIVE_DIR)
    }

    /// Returns the directory of the archives of applications' scopes, of an agent with the default
    /// configuration.
    pub fn default_scopes_dir() -> PathBuf {
        default_state_dir().join(SCOPES_DIR)
    }

    /// Fills in the archive directory, as an absolute path, since readers have other working
    /// directories.
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

fn by_name(statements: &[String]) -> BTreeMap<String, String> {
    let by_name = statements
        .iter()
        .filter_map(|sql| match StatementHead::read(sql) {
            Ok(head) => Some((head.name, sql.clone())),
            Err(error) => {
                warn!(%error, sql, "a configured statement is left out");
                None
            }
        });
    by_name.collect()
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
        check(
            "[control]\nlease_seconds = 0",
            "control.lease_seconds = 0 is refused",
        );
        check(
            "[control.thresholds.sda]\nlow = 2\nhigh = 1",
            "control.thresholds = sda: 2, 1 is refused",
        );
        check("[control]\nmode = 'x'", "unknown variant `x`");
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

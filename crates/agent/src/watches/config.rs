//! `[event]` of the configuration: what is watched for file events.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use barograph_event::SCAN_THREADS_MAX;
use barograph_event::changelog::ChangelogUser;
use barograph_model::ConfigError;
use barograph_statement::WatchText;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most bytes of the name of a source: it is a label.
const NAME_BYTES_MAX: usize = 128;
/// The collectors of trees.
const COLLECTORS: [&str; 3] = ["inotify", "fanotify", "scan"];

/// File events: the trees and the logs of file systems of which the agent records what happens to
/// files.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EventConfig {
    /// The watched trees. Each is an `[[event.watch]]`.
    pub watch: Vec<WatchConfig>,
    /// Lustre file systems whose ChangeLogs are read. Each is an `[[event.changelog]]`.
    pub changelog: Vec<ChangelogConfig>,
}

/// A watched tree.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WatchConfig {
    /// The directory that is watched with everything below it.
    pub path: PathBuf,
    /// Name of the source in the table `events`. Empty: the path.
    #[serde(default)]
    pub name: String,
    /// The users who may read the events: `owner` (the agent's user) or `all`. Paths tell much, so
    /// `owner` is the default.
    #[serde(default = "owner")]
    pub readers: String,
    /// How the tree is watched: `inotify`; `fanotify`, which needs no watch for each directory, but
    /// the rights of root or a privileged helper that may open it (otherwise `inotify` is used);
    /// or `scan`, which compares two walks and works on file systems that tell nothing, such as
    /// network file systems.
    #[serde(default = "inotify")]
    pub collector: String,
    /// Time between two walks, in seconds, 1 to 86400, if walks are compared.
    #[serde(default = "scan_seconds")]
    pub scan_seconds: f64,
    /// Threads of a walk with `scan`, 1 to 64: more pay where each answer of the file system takes
    /// long.
    #[serde(default = "scan_threads")]
    pub scan_threads: usize,
    /// Most directories of the tree, 1 to 100 million; the events of further ones are not seen,
    /// which is said.
    #[serde(default = "directories_max")]
    pub directories_max: usize,
}

/// A Lustre file system whose ChangeLogs are read. The agent needs the rights of root for it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangelogConfig {
    /// Where the file system is mounted on this node: the beginning of all paths.
    pub mount: PathBuf,
    /// The metadata targets, each with the user that was registered for it, such as
    /// `lustre-MDT0000 = "cl1"` (`lctl --device lustre-MDT0000 changelog_register`). Records are
    /// cleared for that user when their events are on disk here; with an empty user nothing is.
    /// Each target is a source of its own.
    pub targets: BTreeMap<String, String>,
    /// The users who may read the events: `owner` (the agent's user) or `all`.
    #[serde(default = "owner")]
    pub readers: String,
    /// Most directories whose places are kept, 1 to 100 million, at some 40 bytes each. The places
    /// of others are asked for.
    #[serde(default = "directories_max")]
    pub directories_max: usize,
}

fn owner() -> String {
    "owner".into()
}

fn inotify() -> String {
    "inotify".into()
}

fn scan_seconds() -> f64 {
    300.0
}

fn scan_threads() -> usize {
    1
}

fn directories_max() -> usize {
    1 << 20
}

impl EventConfig {
    /// The names of all configured sources.
    pub(crate) fn sources(&self) -> impl Iterator<Item = String> {
        let trees = self.watch.iter().map(WatchConfig::source);
        let targets = self.changelog.iter();
        trees.chain(targets.flat_map(|one| one.targets.keys().cloned()))
    }

    /// Fails if a value is out of range, or two sources have one name.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.watch.iter().try_for_each(WatchConfig::check)?;
        self.changelog.iter().try_for_each(ChangelogConfig::check)?;
        let mut names = BTreeSet::new();
        for name in self.sources() {
            if !names.insert(name.clone()) {
                return Err(refused("event", name, "two sources have this name"));
            }
        }
        Ok(())
    }
}

impl ChangelogConfig {
    fn check(&self) -> Result<(), ConfigError> {
        if !self.mount.is_absolute() {
            let (key, mount) = ("event.changelog.mount", self.mount.display());
            return Err(refused(key, mount, "it must begin with /"));
        }
        let is_target = |name: &str| {
            let is_of_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(is_of_name)
        };
        let key = "event.changelog.targets";
        for (target, user) in &self.targets {
            if !is_target(target) {
                let reason = "it must be the name of a metadata target, like lustre-MDT0000";
                return Err(refused(key, target, reason));
            }
            if !user.is_empty() && ChangelogUser::parse(user).is_none() {
                let reason = "it must be a registered user, like cl1, or empty";
                return Err(refused(key, user, reason));
            }
        }
        check_readers("event.changelog.readers", &self.readers)?;
        check_directories("event.changelog.directories_max", self.directories_max)
    }
}

impl WatchConfig {
    /// The watch of a statement, not checked yet.
    pub(crate) fn of(text: &WatchText) -> Self {
        Self {
            path: text.path.clone().into(),
            name: text.name.clone(),
            readers: text.readers.clone().unwrap_or_else(owner),
            collector: text.collector.clone().unwrap_or_else(inotify),
            scan_seconds: text
                .every_ns
                .map_or_else(scan_seconds, |ns| ns as f64 / 1e9),
            scan_threads: text.threads.map_or_else(scan_threads, |n| n as usize),
            directories_max: text
                .directories
                .map_or_else(directories_max, |n| n as usize),
        }
    }

    /// The name of the source.
    pub(crate) fn source(&self) -> String {
        match self.name.is_empty() {
            true => self.path.to_string_lossy().into_owned(),
            false => self.name.clone(),
        }
    }

    /// Fails if a value is out of range.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if !self.path.is_absolute() {
            let path = self.path.display();
            return Err(refused("event.watch.path", path, "it must begin with /"));
        }
        let source = self.source();
        if source.len() > NAME_BYTES_MAX || source.chars().any(char::is_control) {
            let reason = "it must be at most 128 bytes without control characters: set `name`";
            return Err(refused("event.watch.name", source, reason));
        }
        if !COLLECTORS.contains(&&*self.collector) {
            let reason = "it must be inotify, fanotify or scan";
            return Err(refused("event.watch.collector", &self.collector, reason));
        }
        if !(1.0..=86_400.0).contains(&self.scan_seconds) {
            let (key, seconds) = ("event.watch.scan_seconds", self.scan_seconds);
            return Err(refused(key, seconds, "it must be 1 to 86400"));
        }
        if !(1..=SCAN_THREADS_MAX).contains(&self.scan_threads) {
            let (key, threads) = ("event.watch.scan_threads", self.scan_threads);
            return Err(refused(key, threads, "it must be 1 to 64"));
        }
        check_readers("event.watch.readers", &self.readers)?;
        check_directories("event.watch.directories_max", self.directories_max)
    }
}

fn check_readers(key: &'static str, readers: &str) -> Result<(), ConfigError> {
    match ["owner", "all"].contains(&readers) {
        true => Ok(()),
        false => Err(refused(key, readers, "it must be owner or all")),
    }
}

fn check_directories(key: &'static str, directories_max: usize) -> Result<(), ConfigError> {
    match (1..=100_000_000).contains(&directories_max) {
        true => Ok(()),
        false => Err(refused(key, directories_max, "it must be 1 to 100000000")),
    }
}

fn refused(key: &'static str, value: impl ToString, reason: &str) -> ConfigError {
    ConfigError {
        key,
        value: value.to_string(),
        reason: reason.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_refused() {
        let check = |toml: &str, expect: &str| {
            let config: EventConfig = toml::from_str(toml).unwrap();
            let refused = config.check().err();
            let refused = refused.map_or_else(String::new, |error| error.to_string());
            assert!(refused.contains(expect), "{toml}: {refused}");
            assert_eq!(refused.is_empty(), expect.is_empty(), "{toml}: {refused}");
        };
        let watch = |more: &str| format!("[[watch]]\npath = \"/data\"\n{more}\n");
        let log = |more: &str| format!("[[changelog]]\nmount = \"/lustre\"\n{more}\n");
        check(&watch(""), "");
        check(&watch("readers = \"me\""), "owner or all");
        check(&watch("collector = \"magic\""), "inotify, fanotify or scan");
        check(&watch("scan_seconds = 0.5"), "1 to 86400");
        check(&watch("directories_max = 0"), "1 to 100000000");
        check(&watch("name = \"a\\nb\""), "control characters");
        check("[[watch]]\npath = \"data\"", "it must begin with /");
        check(
            &[watch(""), watch("")].concat(),
            "two sources have this name",
        );
        check(
            &log("targets = { l-MDT0000 = \"cl1\", l-MDT0001 = \"\" }"),
            "",
        );
        check(&log("targets = { l-MDT0000 = \"1\" }"), "registered user");
        check(&log("targets = { \"../x\" = \"\" }"), "metadata target");
    }
}

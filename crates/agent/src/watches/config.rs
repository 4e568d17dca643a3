//! `[event]` of the configuration: what is watched for file events.

use std::collections::BTreeSet;
use std::path::PathBuf;

use barograph_model::ConfigError;
use barograph_statement::WatchText;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most bytes of the name of a watch: it is a label.
const NAME_BYTES_MAX: usize = 128;

/// File events: the trees of which the agent records what happens to their files.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EventConfig {
    /// The watched trees. Each is an `[[event.watch]]`.
    pub watch: Vec<WatchConfig>,
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
    /// How the tree is watched: `inotify`, or `scan`, which compares two walks and works on file
    /// systems that tell nothing, such as network file systems.
    #[serde(default = "inotify")]
    pub collector: String,
    /// Time between two walks, in seconds, 1 to 86400, if walks are compared.
    #[serde(default = "scan_seconds")]
    pub scan_seconds: f64,
    /// Most directories of the tree, 1 to 100 million; the events of further ones are not seen,
    /// which is said.
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

fn directories_max() -> usize {
    1 << 20
}

impl EventConfig {
    /// Fails if a value is out of range, or two watches have one name.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let mut names = BTreeSet::new();
        for watch in &self.watch {
            watch.check()?;
            if !names.insert(watch.source()) {
                return Err(refused(
                    "event.watch.name",
                    watch.source(),
                    "two watches have it",
                ));
            }
        }
        Ok(())
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
        if !["owner", "all"].contains(&&*self.readers) {
            return Err(refused(
                "event.watch.readers",
                &self.readers,
                "it must be owner or all",
            ));
        }
        if !["inotify", "scan"].contains(&&*self.collector) {
            let reason = "it must be inotify or scan";
            return Err(refused("event.watch.collector", &self.collector, reason));
        }
        if !(1.0..=86_400.0).contains(&self.scan_seconds) {
            let reason = "it must be 1 to 86400";
            return Err(refused(
                "event.watch.scan_seconds",
                self.scan_seconds,
                reason,
            ));
        }
        if !(1..=100_000_000).contains(&self.directories_max) {
            let reason = "it must be 1 to 100000000";
            return Err(refused(
                "event.watch.directories_max",
                self.directories_max,
                reason,
            ));
        }
        Ok(())
    }
}

fn refused(key: &'static str, value: impl ToString, reason: &str) -> ConfigError {
    ConfigError {
        key,
        value: value.to_string(),
        reason: reason.into(),
    }
}

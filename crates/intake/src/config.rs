//! `[applications]` of the configuration: which users may publish, and how much.

use std::path::PathBuf;

use barograph_recorder::{ArchiveConfig, ForecastConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use barograph_model::ConfigError;

/// The publications of running programs: whose programs may publish, and within which bounds.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ApplicationsConfig {
    /// Whether publications are taken in at all.
    pub enabled: bool,
    /// Users whose processes may publish: `self` (the agent's user), `all`, or `auto`: all if the
    /// agent is a node's own (it runs as root or a system user), else `self`.
    pub users: String,
    /// Most processes that publish at a time, 1 to 65536, and at most half of the files that the
    /// agent may have open; values of further processes wait in their rings.
    pub processes_max: usize,
    /// Most processes of one user, 1 to 65536, if other users may publish, and at most as many as
    /// are left for the others; values of further processes wait in their rings.
    pub processes_per_user_max: usize,
    /// Most publications and most values of one process, 1 to 65536; further ones are refused and
    /// counted.
    pub values_max: usize,
    /// Most streams of one scope at a time, 16 to 1048576.
    pub streams_max: u32,
    /// Most streams of one user in a scope that several users share (a group's, or that of all), 16
    /// to 1048576, if other users may publish; further streams are refused and counted.
    pub streams_per_user_max: u32,
    /// Most memory for the rings of all scopes, in bytes, 1 MiB to 1 TiB. If other users may
    /// publish, each user may have at most as much as is left for the others; further streams are
    /// refused and counted.
    pub ring_bytes_max: u64,
    /// Most memory for data about processes and their declarations, in bytes, 1 MiB to 64 GiB;
    /// users share it as they do `ring_bytes_max`. Further declarations are refused and counted;
    /// values of further processes wait in their rings.
    pub memory_bytes_max: u64,
    /// Most records per second of one user: values, frames, answers, and one for every 16 bytes of
    /// a longer value; records beyond it wait in the rings.
    pub rate_max: f64,
    /// Most series of one user at a time that come by OTLP or line protocol, 1 to 65536; further
    /// ones are refused and counted.
    pub bridged_max: usize,
    /// Whether OTLP and line protocol are also accepted over TCP, from users that the kernel
    /// identifies; they are always accepted over `read.sock`.
    pub http_ingest: bool,
    /// Time between two looks at processes that publish, in milliseconds, 0.1 to 1000; a sleeping
    /// process wakes the agent when it publishes.
    pub round_ms: f64,
}

impl Default for ApplicationsConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            users: "auto".into(),
            processes_max: 4_096,
            processes_per_user_max: 2_048,
            values_max: 4_096,
            streams_max: 16_384,
            streams_per_user_max: 8_192,
            ring_bytes_max: 1 << 30,
            memory_bytes_max: 128 << 20,
            rate_max: 4e6,
            bridged_max: 1_024,
            http_ingest: false,
            round_ms: 1.0,
        }
    }
}

impl ApplicationsConfig {
    /// User ids below this number are system users.
    const SYSTEM_UIDS: u32 = 1_000;

    /// Whether other users than the agent's may publish.
    pub fn is_open_to_all(&self) -> bool {
        match self.users.as_str() {
            "all" => true,
            "auto" => rustix::process::getuid().as_raw() < Self::SYSTEM_UIDS,
            _ => false,
        }
    }

    /// Most processes of one user; if only the agent's user may publish, `processes_max`.
    pub fn processes_of_user_max(&self) -> usize {
        if self.is_open_to_all() {
            self.processes_per_user_max
        } else {
            self.processes_max
        }
    }

    /// Most streams of one user in a shared scope; if only the agent's user may publish,
    /// `streams_max`.
    pub fn streams_of_user_max(&self) -> u32 {
        if self.is_open_to_all() {
            self.streams_per_user_max
        } else {
            self.streams_max
        }
    }

    /// Fails if a value is out of range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let refused = |key, value: &dyn ToString, reason: &str| {
            Err(ConfigError {
                key,
                value: value.to_string(),
                reason: reason.into(),
            })
        };
        if !["self", "all", "auto"].contains(&self.users.as_str()) {
            return refused(
                "applications.users",
                &self.users,
                "it must be self, all or auto",
            );
        }
        for (key, value) in [
            ("applications.processes_max", self.processes_max),
            (
                "applications.processes_per_user_max",
                self.processes_per_user_max,
            ),
            ("applications.values_max", self.values_max),
            ("applications.bridged_max", self.bridged_max),
        ] {
            if !(1..=65_536).contains(&value) {
                return refused(key, &value, "it must be 1 to 65536");
            }
        }
        for (key, value) in [
            ("applications.streams_max", self.streams_max),
            (
                "applications.streams_per_user_max",
                self.streams_per_user_max,
            ),
        ] {
            if !(16..=1 << 20).contains(&value) {
                return refused(key, &value, "it must be 16 to 1048576");
            }
        }
        for (key, value, bytes_max) in [
            ("applications.ring_bytes_max", self.ring_bytes_max, 1 << 40),
            (
                "applications.memory_bytes_max",
                self.memory_bytes_max,
                64 << 30,
            ),
        ] {
            if !(1 << 20..=bytes_max).contains(&value) {
                let reason = format!("it must be {} to {bytes_max} bytes", 1 << 20);
                return refused(key, &value, &reason);
            }
        }
        if !(1.0..=1e12).contains(&self.rate_max) {
            let reason = "it must be 1 to 1e12 records per second";
            return refused("applications.rate_max", &self.rate_max, reason);
        }
        if !(0.1..=1_000.0).contains(&self.round_ms) {
            return refused(
                "applications.round_ms",
                &self.round_ms,
                "it must be 0.1 to 1000",
            );
        }
        Ok(())
    }
}

/// The configuration with which the intake is started.
#[derive(Clone, Debug, Default)]
pub struct IntakeConfig {
    /// The name of the node.
    pub node: String,
    /// The agent's state directory; scopes keep theirs below [`barograph_stream::SCOPES_DIR`] in
    /// it.
    pub state_dir: PathBuf,
    /// The publications of programs.
    pub applications: ApplicationsConfig,
    /// The node's archive configuration; the archives of scopes are derived from it.
    pub archive: ArchiveConfig,
    /// The forecasts of values of programs.
    pub forecast: ForecastConfig,
}

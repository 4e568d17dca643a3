//! The configuration of I/O scheduling.

use std::collections::BTreeMap;
use std::path::PathBuf;

use barograph_control::{
    AdaptiveConfig, MemberBounds, SchedulePolicy, SchedulerConfig, VolumeScheduler,
};
use barograph_model::{ConfigError, Labels};
use barograph_recorder::seconds;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Longest lease, in seconds.
const LEASE_SECONDS_MAX: f64 = 3_600.0;
/// Longest turn, in seconds.
const TURN_SECONDS_MAX: f64 = 3_600.0;
/// Most volumes that are scheduled.
const VOLUMES_MAX: usize = 64;
/// Most bytes of the name of a volume.
const NAME_BYTES_MAX: usize = 64;
/// The time in seconds after which a waiting phase counts as half as long.
const AGEING_S: f64 = 100.0;

/// I/O scheduling: whose turn it is to do I/O, of the programs that ask.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ScheduleConfig {
    /// Time in seconds after which a phase of I/O of which nothing was heard is not waited for any
    /// more, 1 to 3600. The end of its process ends it at once.
    pub lease_seconds: f64,
    /// Most phases of applications in a volume at a time, 1 to 10000. Further ones are not
    /// scheduled, and counted.
    pub phases_max: usize,
    /// The same for each user.
    pub phases_per_user_max: usize,
    /// Most phases of processes in a volume at a time, 1 to 65536.
    pub processes_max: usize,
    /// The same for each user.
    pub processes_per_user_max: usize,
    /// Greatest priority of phases of other users than root and the agent's own, 1 to 10: theirs
    /// may ask for less, and more is brought down to it.
    pub priority_max: u8,
    /// The volumes: `[schedule.volumes.scratch]`. I/O on others is not scheduled.
    pub volumes: BTreeMap<String, VolumeConfig>,
}

/// A volume whose I/O is scheduled.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct VolumeConfig {
    /// The directory where it is mounted. Phases on files below it belong to the volume.
    pub path: PathBuf,
    /// Bytes/s when one application alone uses it.
    pub bandwidth: f64,
    /// Which phase is next.
    pub policy: PolicyName,
    /// Seconds of a turn, for policies that have turns, 0.01 to 3600.
    pub turn_seconds: f64,
    /// Most applications (`fair`) or sets of applications (`set-10`) at a time, 1 to 1000.
    pub at_once: usize,
    /// Whether other nodes use it as well: then the leader of `cluster.controllers` gives the
    /// programs of all nodes their turns.
    pub shared: bool,
}

/// A policy of I/O scheduling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyName {
    /// First come, first served, one at a time.
    Fcfs,
    /// One at a time, each for a turn.
    RoundRobin,
    /// Some at a time, with shares by their priorities.
    Fair,
    /// The one that takes least time alone.
    ShortestFirst,
    /// The one that has least left; who waits counts as shorter.
    LeastLeft,
    /// The most important one.
    Priority,
    /// The one that was slowed down most, for a turn.
    WorstSlowdown,
    /// One at a time of each set of applications with periods of one order of magnitude.
    #[serde(rename = "set-10")]
    Set10,
    /// The same, and in each set the one that has least left.
    #[serde(rename = "set-10-least-left")]
    Set10LeastLeft,
    /// What fits what is known: `set-10-least-left`, `worst-slowdown` in overload, `fair` while
    /// periods are not known.
    #[default]
    Adaptive,
}

impl Default for ScheduleConfig {
    fn default() -> Self {
        Self {
            lease_seconds: 60.0,
            phases_max: 4_096,
            phases_per_user_max: 1_024,
            processes_max: 4_096,
            processes_per_user_max: 1_024,
            priority_max: 5,
            volumes: BTreeMap::new(),
        }
    }
}

impl Default for VolumeConfig {
    fn default() -> Self {
        Self {
            path: PathBuf::new(),
            bandwidth: 0.0,
            policy: PolicyName::default(),
            turn_seconds: 1.0,
            at_once: 2,
            shared: false,
        }
    }
}

impl ScheduleConfig {
    /// Checks the values.
    ///
    /// # Errors
    ///
    /// The key that is out of range.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let refused = |key, value: String, reason: &str| {
            Err(ConfigError {
                key,
                value,
                reason: reason.into(),
            })
        };
        self.lease_ns()?;
        for (key, value, most) in [
            ("schedule.phases_max", self.phases_max, 10_000),
            (
                "schedule.phases_per_user_max",
                self.phases_per_user_max,
                10_000,
            ),
            ("schedule.processes_max", self.processes_max, 65_536),
            (
                "schedule.processes_per_user_max",
                self.processes_per_user_max,
                65_536,
            ),
        ] {
            if !(1..=most).contains(&value) {
                return refused(key, value.to_string(), &format!("it must be 1 to {most}"));
            }
        }
        if !(1..=10).contains(&self.priority_max) {
            let priority = self.priority_max.to_string();
            return refused("schedule.priority_max", priority, "it must be 1 to 10");
        }
        if self.volumes.len() > VOLUMES_MAX {
            let count = self.volumes.len().to_string();
            return refused("schedule.volumes", count, "there may be 64 volumes at most");
        }
        for (name, volume) in &self.volumes {
            let is_label = Labels::new([("volume", &**name)]).is_ok();
            let is_short = (1..=NAME_BYTES_MAX).contains(&name.len());
            if !is_label || !is_short || name.starts_with('/') {
                let reason =
                    "the name of a volume has 1 to 64 bytes, can be a label, and is no path";
                return refused("schedule.volumes", name.clone(), reason);
            }
            volume.check(name)?;
        }
        Ok(())
    }

    /// The paths of the volumes.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        let volumes = self.volumes.values();
        volumes.map(|volume| volume.path.clone()).collect()
    }

    /// The time of a lease.
    pub(super) fn lease_ns(&self) -> Result<i64, ConfigError> {
        let longest = LEASE_SECONDS_MAX;
        seconds("schedule.lease_seconds", self.lease_seconds, 1.0, longest)
    }

    /// The scheduler of a volume.
    pub(super) fn scheduler(&self, volume: &VolumeConfig) -> VolumeScheduler {
        let config = SchedulerConfig {
            lease_ns: self.lease_ns().unwrap_or(i64::MAX),
            phases_max: self.phases_max,
            phases_of_user_max: self.phases_per_user_max,
            ..SchedulerConfig::new(volume.policy(), volume.bandwidth)
        };
        VolumeScheduler::new(config, self.bounds())
    }

    /// The bounds on processes in a volume.
    pub(super) fn bounds(&self) -> MemberBounds {
        MemberBounds {
            most: self.processes_max,
            of_user_most: self.processes_per_user_max,
        }
    }
}

impl VolumeConfig {
    fn check(&self, name: &str) -> Result<(), ConfigError> {
        let refused = |value: &dyn ToString, reason: &str| {
            Err(ConfigError {
                key: "schedule.volumes",
                value: format!("{name}: {}", value.to_string()),
                reason: reason.into(),
            })
        };
        if !self.path.is_absolute() {
            return refused(&self.path.display(), "path must be an absolute path");
        }
        if !(1.0..=1e15).contains(&self.bandwidth) {
            let reason = "bandwidth must be 1 to 1e15 bytes/s (`baro probe` measures it)";
            return refused(&self.bandwidth, reason);
        }
        if !(0.01..=TURN_SECONDS_MAX).contains(&self.turn_seconds) {
            return refused(&self.turn_seconds, "turn_seconds must be 0.01 to 3600");
        }
        if !(1..=1_000).contains(&self.at_once) {
            return refused(&self.at_once, "at_once must be 1 to 1000");
        }
        Ok(())
    }

    fn policy(&self) -> SchedulePolicy {
        let (turn_s, most) = (self.turn_seconds, self.at_once);
        match self.policy {
            PolicyName::Fcfs => SchedulePolicy::Fcfs,
            PolicyName::RoundRobin => SchedulePolicy::RoundRobin { turn_s },
            PolicyName::Fair => SchedulePolicy::Fair { most },
            PolicyName::ShortestFirst => SchedulePolicy::ShortestFirst,
            PolicyName::LeastLeft => SchedulePolicy::LeastLeft { ageing_s: AGEING_S },
            PolicyName::Priority => SchedulePolicy::Priority,
            PolicyName::WorstSlowdown => SchedulePolicy::WorstSlowdown { turn_s },
            PolicyName::Set10 | PolicyName::Set10LeastLeft => SchedulePolicy::Set10 {
                most,
                by_left: self.policy == PolicyName::Set10LeastLeft,
            },
            PolicyName::Adaptive => SchedulePolicy::Adaptive(AdaptiveConfig {
                turn_s,
                fair_most: most,
                ..AdaptiveConfig::default()
            }),
        }
    }
}

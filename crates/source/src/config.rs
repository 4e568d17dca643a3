//! The `[sources]` part of the configuration. Every field has a default that is documented here;
//! the reference page is generated from them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use barograph_model::{NS_PER_S, Pattern};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::SourceError;
use crate::policy::{Aimd, INTERVAL_NS_MAX, INTERVAL_NS_MIN, IntervalPolicy};
use crate::sources::TABLE;
use crate::sources::block_trace::BlockTraceConfig;
use crate::sources::file_trace::FileTraceConfig;
use crate::sources::health::HealthConfig;
use crate::sources::job::JobConfig;
use crate::sources::lustre::LustreConfig;
use crate::sources::lustre_jobs::LustreJobsConfig;
use crate::sources::peer::PeerConfig;
use crate::sources::process::ProcessConfig;
use crate::util::helper::HelperConfig;

const NS_PER_MS: i64 = 1_000_000;
/// The longest interval of an adaptive policy, unless it is configured.
const ADAPTIVE_MAX_MS: u64 = 25_000;

/// Which sources are read, how often, and with which settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SourcesConfig {
    /// The directory that stands for `/`: every path of `/proc`, `/sys` and of mounts is taken
    /// below it.
    pub sys_root: PathBuf,
    /// Whether and how often each source is read, by its name; a source that is not named here is
    /// read as is usual for it.
    #[serde(deserialize_with = "known_sources")]
    pub poll: BTreeMap<String, SourceConfig>,
    /// Assignment of file systems and disks to tiers (classes of storage).
    pub tiers: TierConfig,
    /// Settings of the source of disks.
    pub disk: DiskConfig,
    /// Settings of the source of file systems.
    pub filesystem: FilesystemConfig,
    /// Settings of the source of network interfaces.
    pub network: NetworkConfig,
    /// Settings of the source of control groups.
    pub cgroup: CgroupConfig,
    /// How the privileged helper is reached.
    pub helper: HelperConfig,
    /// Settings of the source of disk health.
    pub health: HealthConfig,
    /// Peers whose round-trip time is measured.
    pub peer: PeerConfig,
    /// Settings of the source of Lustre.
    pub lustre: LustreConfig,
    /// Settings of the source of jobs on Lustre.
    pub lustre_jobs: LustreJobsConfig,
    /// Settings of the source of jobs of a batch system.
    pub job: JobConfig,
    /// Settings of the source of processes.
    pub process: ProcessConfig,
    /// Settings of the source of single disk requests.
    pub block_trace: BlockTraceConfig,
    /// Settings of the source of the positions of processes in their files.
    pub file_trace: FileTraceConfig,
}

impl Default for SourcesConfig {
    fn default() -> Self {
        Self {
            sys_root: PathBuf::from("/"),
            poll: BTreeMap::new(),
            tiers: TierConfig::default(),
            disk: DiskConfig::default(),
            filesystem: FilesystemConfig::default(),
            network: NetworkConfig::default(),
            cgroup: CgroupConfig::default(),
            helper: HelperConfig::default(),
            health: HealthConfig::default(),
            peer: PeerConfig::default(),
            lustre: LustreConfig::default(),
            lustre_jobs: LustreJobsConfig::default(),
            job: JobConfig::default(),
            process: ProcessConfig::default(),
            block_trace: BlockTraceConfig::default(),
            file_trace: FileTraceConfig::default(),
        }
    }
}

impl SourcesConfig {
    /// Refuses values that no poller could follow; the error names the key and the reason.
    pub fn validate(&self) -> Result<(), SourceError> {
        for (name, poll) in &self.poll {
            poll.validate(name)?;
        }
        let fault = |key: &str, reason: &str| {
            Err(SourceError::Config {
                key: key.to_owned(),
                reason: reason.to_owned(),
            })
        };
        if self.tiers.rules.iter().any(|r| r.tier.is_empty()) {
            return fault("tiers.rules.tier", "is empty, name a tier such as nvme");
        }
        if self.tiers.rules.iter().any(TierRule::matches_all) {
            return fault(
                "tiers.rules",
                "a rule needs a mount, device or fstype pattern",
            );
        }
        if self.filesystem.timeout_ms == 0 {
            return fault("filesystem.timeout_ms", "is 0, give it at least 1");
        }
        self.peer.validate()?;
        Ok(())
    }

    /// How the source of this name is polled: by its configuration, else by its entry in the table.
    pub fn poll_of(&self, name: &str) -> SourceConfig {
        let entry = TABLE.iter().find(|e| e.name == name);
        let mut poll = self.poll.get(name).cloned().unwrap_or_default();
        poll.interval_ms
            .get_or_insert(entry.map_or(1000, |e| e.interval_ms));
        poll.enabled.get_or_insert(entry.is_none_or(|e| e.usual));
        poll
    }
}

fn known_sources<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<BTreeMap<String, SourceConfig>, D::Error> {
    let poll = BTreeMap::<String, SourceConfig>::deserialize(from)?;
    let known = |name: &str| TABLE.iter().any(|e| e.name == name);
    match poll.keys().find(|name| !known(name)) {
        None => Ok(poll),
        Some(name) => {
            let names: Vec<_> = TABLE.iter().map(|e| e.name).collect();
            let names = names.join(", ");
            Err(serde::de::Error::custom(format!(
                "no source is named {name:?}, they are {names}"
            )))
        }
    }
}

/// The interval policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PolicyKind {
    /// Always `interval_ms`.
    #[default]
    Fixed,
    /// Longer while each value is close to the previous one, shorter when it is not.
    AimdSimple,
    /// Longer while each change is close to the average change, shorter when it is not.
    AimdComplex,
}

/// Whether and how often one source is read. Under an adaptive policy every stream asks for an
/// interval of its own, and the source is read at the shortest of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SourceConfig {
    /// Whether the source is read at all. Unset: as is usual for the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// `fixed`, `aimd_simple` or `aimd_complex`.
    pub policy: PolicyKind,
    /// Milliseconds between reads; an adaptive policy starts with it. Unset: as is usual for the
    /// source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_ms: Option<u64>,
    /// The shortest interval that an adaptive policy or a `[[policy]]` for its streams may choose,
    /// in milliseconds; a shorter `interval_ms` takes its place.
    pub interval_min_ms: u64,
    /// The longest such interval, in milliseconds. Unset: 25000 for an adaptive policy, and the
    /// limit of the `[[policy]]` itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_max_ms: Option<u64>,
    /// The milliseconds that an adaptive policy adds to the interval when little changed.
    pub add_ms: u64,
    /// The factor, between 0 and 1, by which it multiplies the interval when much changed.
    pub multiply: f64,
    /// The greatest change that counts as little. `aimd_simple`: this share of the last value (0.1
    /// if unset). `aimd_complex`: this multiple of the average change (1.1 if unset).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f64>,
}

impl Default for SourceConfig {
    fn default() -> Self {
        Self {
            enabled: None,
            policy: PolicyKind::Fixed,
            interval_ms: None,
            interval_min_ms: 1000,
            interval_max_ms: None,
            add_ms: 1000,
            multiply: 0.75,
            threshold: None,
        }
    }
}

/// The shortest and longest interval at which a source may be read under a `[[policy]]`, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// The configured interval, which holds without a policy, in ns.
    pub interval_ns: i64,
    /// The shortest interval, in ns.
    pub min_ns: i64,
    /// The longest interval, in ns.
    pub max_ns: i64,
}

impl Caps {
    /// The caps of a source that is usually read every `interval_ns` and whose interval policies
    /// may choose freely.
    pub fn none(interval_ns: i64) -> Self {
        Self {
            interval_ns,
            min_ns: INTERVAL_NS_MIN,
            max_ns: INTERVAL_NS_MAX,
        }
    }
}

impl SourceConfig {
    /// Whether the source is read; it is if nothing is configured.
    pub fn is_enabled(&self) -> bool {
        self.enabled.unwrap_or(true)
    }

    /// The interval policy of these settings; values that are out of range are clamped.
    pub fn interval_policy(&self) -> IntervalPolicy {
        let start_ns = ns(self.interval_ms.unwrap_or(1000));
        let aimd = |threshold: f64| Aimd {
            start_ns,
            min_ns: ns(self.interval_min_ms),
            max_ns: ns(self.interval_max_ms.unwrap_or(ADAPTIVE_MAX_MS)),
            add_ns: ns(self.add_ms),
            multiply: self.multiply,
            threshold: self.threshold.unwrap_or(threshold),
        };
        match self.policy {
            PolicyKind::Fixed => IntervalPolicy::Fixed {
                interval_ns: start_ns,
            },
            PolicyKind::AimdSimple => IntervalPolicy::AimdSimple(aimd(0.1)),
            PolicyKind::AimdComplex => IntervalPolicy::AimdComplex(aimd(1.1)),
        }
    }

    /// The interval of these settings, and the range in which a `[[policy]]` may choose another.
    pub fn caps(&self) -> Caps {
        let interval_ns = self.interval_policy().start().interval_ns;
        let min_ns = ns(self.interval_min_ms).clamp(INTERVAL_NS_MIN, INTERVAL_NS_MAX);
        let max_ns = self.interval_max_ms.map_or(INTERVAL_NS_MAX, ns);
        let min_ns = min_ns.min(interval_ns);
        Caps {
            interval_ns,
            min_ns,
            max_ns: max_ns.clamp(min_ns, INTERVAL_NS_MAX),
        }
    }

    fn validate(&self, name: &str) -> Result<(), SourceError> {
        let fault = |field: &str, reason: String| {
            Err(SourceError::Config {
                key: format!("poll.{name}.{field}"),
                reason,
            })
        };
        let (min_ms, max_ms) = (INTERVAL_NS_MIN / NS_PER_MS, INTERVAL_NS_MAX / NS_PER_MS);
        let fits = |ms: u64| (min_ms as u64..=max_ms as u64).contains(&ms);
        let bounds = format!("is not between {min_ms} and {max_ms} milliseconds");
        if self.interval_ms.is_some_and(|ms| !fits(ms)) {
            return fault("interval_ms", bounds);
        }
        if !fits(self.interval_min_ms) {
            return fault("interval_min_ms", bounds);
        }
        let max_ms = self.interval_max_ms.unwrap_or(ADAPTIVE_MAX_MS);
        let adapts = self.policy != PolicyKind::Fixed;
        let counts = adapts || self.interval_max_ms.is_some();
        if counts && (!fits(max_ms) || max_ms < self.interval_min_ms) {
            return fault(
                "interval_max_ms",
                format!("{bounds}, or below interval_min_ms"),
            );
        }
        if !(self.multiply > 0.0 && self.multiply < 1.0) {
            return fault("multiply", "is not between 0 and 1, try 0.75".into());
        }
        if self.threshold.is_some_and(|t| !(t >= 0.0 && t.is_finite())) {
            return fault("threshold", "is not a number of at least 0".into());
        }
        Ok(())
    }
}

fn ns(ms: u64) -> i64 {
    i64::try_from(ms)
        .unwrap_or(i64::MAX)
        .saturating_mul(NS_PER_MS)
}

/// Rules that assign tiers; the first that matches decides. Without a matching rule, memory file
/// systems are `memory`, parallel and network ones `pfs`, and disks `nvme`, `ssd` or `hdd` by their
/// kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TierConfig {
    /// The rules, in order.
    pub rules: Vec<TierRule>,
}

/// One rule: all patterns that it has must match (`*` any run of characters, `?` one).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TierRule {
    /// Pattern over the mount point, like `/scratch*`. A rule with it never matches a bare disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount: Option<String>,
    /// Pattern over the device, like `nvme*`; for a file system, the device that it is mounted
    /// from, without `/dev/`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Pattern over the type of file system, like `lustre`. A rule with it never matches a bare
    /// disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fstype: Option<String>,
    /// The tier to assign, such as `nvme`.
    pub tier: String,
}

impl TierRule {
    fn matches_all(&self) -> bool {
        self.mount.is_none() && self.device.is_none() && self.fstype.is_none()
    }
}

/// Settings of the source of disks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DiskConfig {
    /// Patterns over the names of disks that are left out; by default the devices that are stacked
    /// on others, so that sums over all disks count each transfer once.
    pub skip: Vec<String>,
    /// The greatest rate of transfer of a disk, in bytes per second, by pattern over its name; the
    /// longest pattern that matches decides. Without one, it is the rate that `baro probe`
    /// measured, else the usual rate of the disk's link, else the highest rate that was seen.
    pub bandwidth_max: BTreeMap<String, u64>,
    /// The file in which `baro probe` stores its measurements; empty: `probes.toml` in the agent's
    /// state directory, and no file below a root other than `/`.
    pub probes: PathBuf,
    /// Milliseconds between reads of attributes: size, scheduler, queue depth.
    pub attributes_interval_ms: u64,
}

impl Default for DiskConfig {
    fn default() -> Self {
        Self {
            skip: ["dm-*", "md*", "bcache*", "loop*"]
                .map(str::to_owned)
                .to_vec(),
            bandwidth_max: BTreeMap::new(),
            probes: PathBuf::new(),
            attributes_interval_ms: ATTRIBUTES_INTERVAL_MS,
        }
    }
}

impl DiskConfig {
    pub(crate) fn attributes_interval_ns(&self) -> i64 {
        ns(self.attributes_interval_ms)
    }
}

/// Usual time between reads of attributes that hardly ever change, in milliseconds.
const ATTRIBUTES_INTERVAL_MS: u64 = 30_000;

/// Settings of the source of file systems.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FilesystemConfig {
    /// Patterns over types of file systems without user data that are left out, in addition to
    /// those that are always left out.
    pub skip_fstypes: Vec<String>,
    /// Patterns over mount points that are left out.
    pub skip_mounts: Vec<String>,
    /// Milliseconds after which a mount that does not answer is reported as not responding.
    pub timeout_ms: u64,
    /// Milliseconds between reads of attributes: compression, RAID level, number of disks.
    pub attributes_interval_ms: u64,
}

impl Default for FilesystemConfig {
    fn default() -> Self {
        let text = |list: &[&str]| list.iter().map(|t| (*t).to_owned()).collect();
        Self {
            skip_fstypes: text(&["squashfs", "erofs", "iso9660", "udf"]),
            skip_mounts: text(&[
                "/proc/*",
                "/sys/*",
                "/dev",
                "/run/credentials/*",
                "/run/user/*",
            ]),
            timeout_ms: 2000,
            attributes_interval_ms: ATTRIBUTES_INTERVAL_MS,
        }
    }
}

impl FilesystemConfig {
    pub(crate) fn attributes_interval_ns(&self) -> i64 {
        ns(self.attributes_interval_ms)
    }

    pub(crate) fn timeout(&self) -> std::time::Duration {
        std::time::Duration::from_nanos(ns(self.timeout_ms.max(1)).min(60 * NS_PER_S) as u64)
    }
}

/// Settings of the source of network interfaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NetworkConfig {
    /// Patterns over the names of interfaces that are left out.
    pub skip: Vec<String>,
    /// Milliseconds between reads of attributes: speed, frame size.
    pub attributes_interval_ms: u64,
}

impl Default for NetworkConfig {
    fn default() -> Self {
        Self {
            skip: vec!["lo".to_owned()],
            attributes_interval_ms: ATTRIBUTES_INTERVAL_MS,
        }
    }
}

impl NetworkConfig {
    pub(crate) fn attributes_interval_ns(&self) -> i64 {
        ns(self.attributes_interval_ms)
    }
}

/// Settings of the source of control groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CgroupConfig {
    /// Most groups that are followed, counted from the root downwards; each takes up to three file
    /// descriptors.
    pub groups_max: usize,
    /// Most devices that have streams of the bytes that a group moved on them, counted over all
    /// groups, and again over all jobs; at most 8 of one group or job.
    pub devices_max: usize,
    /// Depth below the root down to which groups are followed.
    pub depth_max: usize,
    /// Depth down to which groups have streams even before their first I/O.
    pub depth_always: usize,
    /// Milliseconds between searches for new groups.
    pub scan_interval_ms: u64,
}

impl Default for CgroupConfig {
    fn default() -> Self {
        Self {
            groups_max: 128,
            devices_max: 128,
            depth_max: 4,
            depth_always: 1,
            scan_interval_ms: 10_000,
        }
    }
}

impl CgroupConfig {
    pub(crate) fn scan_interval_ns(&self) -> i64 {
        ns(self.scan_interval_ms)
    }
}

/// A list of patterns, of which one must match.
#[derive(Clone, Debug)]
pub(crate) struct Globs(Vec<Pattern>);

impl Globs {
    pub(crate) fn new<S: AsRef<str>>(patterns: &[S]) -> Self {
        Self(patterns.iter().map(|p| Pattern::new(p.as_ref())).collect())
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        self.0.iter().any(|p| p.matches(text))
    }
}

//! The `[sources]` part of the configuration. Every field has a default that is documented here or
//! at the source; the reference page is generated from them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::TABLE;
use super::block_trace::BlockTraceConfig;
use super::cgroup::CgroupConfig;
use super::disk::DiskConfig;
use super::file_trace::FileTraceConfig;
use super::filesystem::FilesystemConfig;
use super::health::HealthConfig;
use super::job::JobConfig;
use super::lustre::LustreConfig;
use super::lustre_jobs::LustreJobsConfig;
use super::network::NetworkConfig;
use super::peer::PeerConfig;
use super::process::ProcessConfig;
use crate::tier::{TierConfig, TierRule};
use crate::util::helper::HelperConfig;
use crate::util::millis::ns;
use crate::{SourceConfig, SourceError};

/// The sources that are read, their intervals and their settings.
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
    /// The way to the privileged helper.
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

    /// The way in which the source of this name is polled: by its configuration, else by its entry
    /// in the table.
    pub fn poll_of(&self, name: &str) -> SourceConfig {
        let entry = TABLE.iter().find(|e| e.name == name);
        let mut poll = self.poll.get(name).cloned().unwrap_or_default();
        poll.interval_ms
            .get_or_insert(entry.map_or(1000, |e| e.interval_ms));
        poll.enabled.get_or_insert(entry.is_none_or(|e| e.usual));
        poll
    }

    /// The interval of the source of this name without a policy, in ns.
    pub(super) fn interval_ns(&self, name: &str) -> i64 {
        ns(self.poll_of(name).interval_ms.unwrap_or(1000))
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

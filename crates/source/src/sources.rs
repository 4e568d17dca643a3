//! The sources, one file per kernel interface, and the table that lists them all.

pub mod beegfs;
pub mod block_trace;
pub mod bmc;
pub mod btrfs;
pub mod cgroup;
pub mod clock;
mod config;
pub mod cpu;
pub mod device;
pub mod disk;
pub mod file_trace;
pub mod filesystem;
pub mod gpfs;
pub mod health;
pub mod job;
pub mod lustre;
pub mod lustre_jobs;
pub mod memory;
pub mod network;
pub mod nfs;
pub mod peer;
pub mod power;
pub mod pressure;
pub mod process;
pub mod raid;
pub mod vm;
pub mod zfs;

use crate::fact::FactTable;
use crate::{FactSpec, MissingPart, Source, SourceError};

pub use config::SourcesConfig;

/// An entry of the table of sources.
pub(crate) struct SourceEntry {
    /// The source's name in configuration, reports and labels.
    pub(crate) name: &'static str,
    /// The default interval between polls, in milliseconds.
    pub(crate) interval_ms: u64,
    /// Whether the source is enabled unless the configuration says otherwise.
    pub(crate) usual: bool,
    /// The facts that the source can give: one table for each kind of thing that it reads.
    pub(crate) facts: &'static [&'static [FactSpec]],
    /// Creates the source.
    pub(crate) make: fn(&SourcesConfig) -> Box<dyn Source>,
}

/// The table of all sources. To add a source, write its file and add its line here.
#[rustfmt::skip]
pub(crate) const TABLE: &[SourceEntry] = &[
    SourceEntry { name: "disk", interval_ms: 1000, usual: true, facts: &[disk::Fact::SPECS], make: |c| Box::new(disk::Disks::new(&c.sys_root, &c.tiers, &c.disk)) },
    SourceEntry { name: "device", interval_ms: 30_000, usual: true, facts: &[device::Fact::SPECS, device::DiskRelation::SPECS], make: |c| Box::new(device::Devices::new(&c.sys_root, &c.tiers, c.interval_ns("device"))) },
    SourceEntry { name: "health", interval_ms: 60_000, usual: true, facts: &[health::Fact::SPECS], make: |c| Box::new(health::Health::new(&c.sys_root, &c.helper, &c.health)) },
    SourceEntry { name: "raid", interval_ms: 5000, usual: true, facts: &[raid::Fact::SPECS, raid::MemberFact::SPECS], make: |c| Box::new(raid::Raid::new(&c.sys_root)) },
    SourceEntry { name: "filesystem", interval_ms: 10_000, usual: true, facts: &[filesystem::Fact::SPECS], make: |c| Box::new(filesystem::Filesystems::new(&c.sys_root, &c.tiers, &c.filesystem)) },
    SourceEntry { name: "btrfs", interval_ms: 10_000, usual: true, facts: &[btrfs::Fact::SPECS, btrfs::DeviceFact::SPECS], make: |c| Box::new(btrfs::Btrfs::new(&c.sys_root)) },
    SourceEntry { name: "zfs", interval_ms: 10_000, usual: true, facts: &[zfs::Fact::SPECS, zfs::PoolFact::SPECS, zfs::DatasetFact::SPECS], make: |c| Box::new(zfs::Zfs::new(&c.sys_root)) },
    SourceEntry { name: "nfs", interval_ms: 1000, usual: true, facts: &[nfs::Fact::SPECS], make: |c| Box::new(nfs::Nfs::new(&c.sys_root, &c.filesystem.skip_mounts)) },
    SourceEntry { name: "lustre", interval_ms: 1000, usual: true, facts: &[lustre::NodeFact::SPECS, lustre::ClientFact::SPECS, lustre::OscFact::SPECS, lustre::MdcFact::SPECS, lustre::ImportFact::SPECS, lustre::OstFact::SPECS, lustre::MdtFact::SPECS, lustre::TargetFact::SPECS], make: |c| Box::new(lustre::Lustre::new(&c.sys_root, &c.lustre)) },
    SourceEntry { name: "lustre_jobs", interval_ms: 10_000, usual: true, facts: &[lustre_jobs::Job::SPECS, lustre_jobs::Jobs::SPECS], make: |c| Box::new(lustre_jobs::LustreJobs::new(&c.sys_root, &c.lustre_jobs)) },
    SourceEntry { name: "gpfs", interval_ms: 10_000, usual: true, facts: &[gpfs::Fact::SPECS], make: |c| Box::new(gpfs::Gpfs::new(&c.sys_root, &c.helper)) },
    SourceEntry { name: "beegfs", interval_ms: 10_000, usual: false, facts: &[beegfs::Fact::SPECS], make: |c| Box::new(beegfs::Beegfs::new(&c.sys_root)) },
    SourceEntry { name: "memory", interval_ms: 1000, usual: true, facts: &[memory::Fact::SPECS], make: |c| Box::new(memory::Memory::new(&c.sys_root)) },
    SourceEntry { name: "vm", interval_ms: 1000, usual: true, facts: &[vm::Fact::SPECS], make: |c| Box::new(vm::Vm::new(&c.sys_root)) },
    SourceEntry { name: "cpu", interval_ms: 1000, usual: true, facts: &[cpu::Fact::SPECS], make: |c| Box::new(cpu::Cpu::new(&c.sys_root)) },
    SourceEntry { name: "pressure", interval_ms: 1000, usual: true, facts: &[pressure::Fact::SPECS], make: |c| Box::new(pressure::Pressure::new(&c.sys_root)) },
    SourceEntry { name: "network", interval_ms: 1000, usual: true, facts: &[network::Fact::SPECS], make: |c| Box::new(network::Network::new(&c.sys_root, &c.network)) },
    SourceEntry { name: "cgroup", interval_ms: 2000, usual: true, facts: &[cgroup::Fact::SPECS, cgroup::DeviceFact::SPECS], make: |c| Box::new(cgroup::Cgroups::new(&c.sys_root, &c.cgroup)) },
    SourceEntry { name: "job", interval_ms: 5000, usual: true, facts: &[job::Fact::SPECS, job::DeviceFact::SPECS, job::NodeFact::SPECS], make: |c| Box::new(job::Jobs::new(&c.sys_root, &c.job, c.cgroup.devices_max, c.interval_ns("job"))) },
    SourceEntry { name: "process", interval_ms: 5000, usual: true, facts: &[process::Fact::SPECS, process::NodeFact::SPECS], make: |c| Box::new(process::Processes::new(&c.sys_root, &c.process, c.interval_ns("process"))) },
    SourceEntry { name: "power", interval_ms: 1000, usual: true, facts: &[power::Fact::SPECS, power::NodeFact::SPECS], make: |c| Box::new(power::Power::new(&c.sys_root)) },
    SourceEntry { name: "bmc", interval_ms: 30_000, usual: false, facts: &[bmc::Fact::SPECS], make: |c| Box::new(bmc::Bmc::new(&c.sys_root, &c.helper)) },
    SourceEntry { name: "clock", interval_ms: 10_000, usual: true, facts: &[clock::Fact::SPECS], make: |c| Box::new(clock::Clock::new(&c.sys_root)) },
    SourceEntry { name: "peer", interval_ms: 5000, usual: true, facts: &[peer::Fact::SPECS], make: |c| Box::new(peer::Peers::new(&c.sys_root, &c.peer)) },
    SourceEntry { name: "block_trace", interval_ms: 1000, usual: false, facts: &[block_trace::Fact::SPECS, block_trace::HotFact::SPECS, block_trace::IssuerFact::SPECS, block_trace::TraceFact::SPECS], make: |c| Box::new(block_trace::BlockTrace::new(&c.sys_root, &c.block_trace)) },
    SourceEntry { name: "file_trace", interval_ms: 5000, usual: false, facts: &[file_trace::Fact::SPECS, file_trace::HotFact::SPECS], make: |c| Box::new(file_trace::FileTrace::new(&c.sys_root, &c.file_trace)) },
];

/// Creates every source that the configuration enables.
pub fn all_sources(config: &SourcesConfig) -> Vec<Box<dyn Source>> {
    let enabled = TABLE
        .iter()
        .filter(|entry| config.poll_of(entry.name).is_enabled());
    enabled.map(|entry| (entry.make)(config)).collect()
}

/// The names of all sources, in the order of the table.
pub fn source_names() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|entry| entry.name)
}

/// Handles the result of reading a file that is a source's whole interface: returns false if the
/// file is merely absent, and remembers that in `absent` for the report; any other fault is an
/// error.
fn absent_or_fault(
    result: Result<(), SourceError>,
    absent: &mut Option<String>,
) -> Result<bool, SourceError> {
    match result {
        Ok(()) => {
            *absent = None;
            Ok(true)
        }
        Err(fault) if fault.is_absent() => {
            if absent.is_none() {
                *absent = Some(fault.to_string());
            }
            Ok(false)
        }
        Err(fault) => Err(fault),
    }
}

/// The entry of the report for an absent file of `/proc`.
fn missing_proc(what: &str, why: &Option<String>) -> Option<MissingPart> {
    let why = why.as_ref()?;
    Some(MissingPart::new(
        what,
        why.as_str(),
        "mount /proc, or let the agent see the host's",
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use barograph_model::{HELP_BYTES_MAX, Kind, Name, Unit, ValueType};

    use crate::all_facts;

    #[test]
    fn every_fact_can_be_declared_and_is_named_after_its_unit() {
        let mut seen = BTreeSet::new();
        for spec in all_facts() {
            let name = spec.name;
            assert!(seen.insert(name), "{name} is there twice");
            Name::new(name).unwrap();
            Unit::new(spec.unit).unwrap();
            assert!(
                spec.help.len() <= HELP_BYTES_MAX && spec.help.ends_with('.'),
                "{name}"
            );
            let last = name.rsplit('.').next().unwrap();
            let expect = match last {
                "bytes" | "ops" | "requests" | "seconds" | "pages" | "tasks" | "packets"
                | "count" | "ratio" | "flag" | "name" | "blocks" | "joules" | "watts"
                | "celsius" => last,
                "bytes_per_second" => "bytes/s",
                "ops_per_second" => "ops/s",
                "depth" => "requests",
                other => panic!("{name} ends in {other}"),
            };
            assert_eq!(spec.unit, expect, "{name}");
            let expect = match last {
                "bytes" | "ops" | "requests" | "pages" | "packets" | "count" | "blocks" => {
                    ValueType::Int
                }
                "tasks" if !name.contains("load") => ValueType::Int,
                "flag" => ValueType::Bool,
                "name" => ValueType::Text,
                _ => ValueType::Float,
            };
            assert_eq!(spec.value_type, expect, "{name}");
            if matches!(last, "ratio" | "bytes_per_second" | "ops_per_second") {
                assert_ne!(spec.kind, Kind::Counter, "{name}");
            }
        }
    }
}

//! `source.read`: the processor time of reading every source, beside the floor and the procfs
//! crate.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use barograph_model::Clock as _;
use barograph_source::{SourceBatch, SourcesConfig, all_sources};
use barograph_stream::SystemClock;
use procfs::{Current as _, CurrentSI as _};

use crate::measure::{cpu_ns, keep};
use crate::report::{Fault, Report};

const ROUNDS: usize = 2_000;

/// Measures all sources that read on the loop's thread.
pub(super) fn run(report: &mut Report) -> Result<(), Fault> {
    let clock = SystemClock::new();
    let config = SourcesConfig::default();
    for mut source in all_sources(&config) {
        let mut batch = SourceBatch::new();
        let mut read = || {
            batch.begin(clock.monotonic_ns());
            let _ = source.read(clock.now_ns(), &mut batch);
        };
        (0..10).for_each(|_| read());
        let ours = cpu_ns(ROUNDS, read);
        let peers = peers(source.name());
        let peers: Vec<(&str, f64)> = peers.iter().map(|(n, v)| (n.as_str(), *v / 1e3)).collect();
        report.row(
            "source.read",
            &format!("{}, {} facts", source.name(), batch.facts()),
            ours / 1e3,
            "us",
            &peers,
        );
    }
    Ok(())
}

fn peers(source: &str) -> Vec<(String, f64)> {
    let floor = |path: &str| {
        let file = File::open(path).ok()?;
        let mut buffer = vec![0; 1 << 16];
        let read = cpu_ns(ROUNDS, || {
            let mut at = 0;
            while let Ok(bytes @ 1..) = file.read_at(&mut buffer, at) {
                at += bytes as u64;
            }
        });
        Some((format!("bare pread {path}"), read))
    };
    let crate_of = |read: &dyn Fn()| ("procfs crate".to_owned(), cpu_ns(ROUNDS, read));
    match source {
        "disk" => floor("/proc/diskstats")
            .into_iter()
            .chain([crate_of(&|| keep(procfs::diskstats().is_ok()))])
            .collect(),
        "memory" => floor("/proc/meminfo")
            .into_iter()
            .chain([crate_of(&|| keep(procfs::Meminfo::current().is_ok()))])
            .collect(),
        "cpu" => floor("/proc/stat")
            .into_iter()
            .chain([crate_of(&|| keep(procfs::KernelStats::current().is_ok()))])
            .collect(),
        "vm" => floor("/proc/vmstat")
            .into_iter()
            .chain([crate_of(&|| keep(procfs::vmstat().is_ok()))])
            .collect(),
        "network" => floor("/proc/net/dev")
            .into_iter()
            .chain([crate_of(&|| keep(procfs::net::dev_status().is_ok()))])
            .collect(),
        "pressure" => [crate_of(&|| {
            keep(procfs::CpuPressure::current().is_ok());
            keep(procfs::IoPressure::current().is_ok());
            keep(procfs::MemoryPressure::current().is_ok());
        })]
        .into(),
        // The peer reads only the table of mounts, without the space on them.
        "filesystem" => floor("/proc/self/mountinfo")
            .into_iter()
            .chain([crate_of(&|| {
                let mounts = procfs::process::Process::myself().and_then(|me| me.mountinfo());
                keep(mounts.is_ok());
            })])
            .collect(),
        "nfs" => floor("/proc/self/mountstats").into_iter().collect(),
        _ => Vec::new(),
    }
}

//! `source.machine`: every source on the machines of the tests; `source.devices`: a node with 4,096
//! disks.
//!
//! The trees are in memory, so the cost of a read is that of `open`, `pread` and parsing, without
//! the kernel's own work behind a file of `/proc`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::BufReader;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use barograph_model::Clock as _;
use barograph_source::{
    Source, SourceBatch, SourceConfig, SourcesConfig, all_sources, source_names,
};
use barograph_stream::SystemClock;
use procfs::FromBufRead as _;
use procfs::process::MountStats;

use super::Scratch;
use crate::measure::{cpu_ns, keep};
use crate::report::{Fault, Report};

const ROUNDS: usize = 300;
/// Rounds of sources that read thousands of disks.
const ROUNDS_MANY: usize = 20;
const DEVICES: usize = 4096;
const FIXTURES: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../crates/source/tests/fixtures"
);

/// Measures each source on the machine where it has the most facts.
pub(super) fn run(report: &mut Report) -> Result<(), Fault> {
    let mut best: BTreeMap<&'static str, (usize, f64, String, PathBuf)> = BTreeMap::new();
    let scratch = Scratch::new("machines")?;
    let mut machines: Vec<_> = std::fs::read_dir(FIXTURES)?.collect::<Result<_, _>>()?;
    machines.sort_by_key(std::fs::DirEntry::file_name);
    for machine in machines {
        let name = machine.file_name().to_string_lossy().into_owned();
        let tree = scratch.0.join(&name);
        copy(&machine.path().join("first"), &tree)?;
        for mut source in sources(&tree) {
            let (facts, ours) = cost(source.as_mut(), ROUNDS);
            let known = best.get(source.name()).map_or(0, |(facts, ..)| *facts);
            if facts > known {
                best.insert(source.name(), (facts, ours, name.clone(), tree.clone()));
            }
        }
    }
    for (source, (facts, ours, machine, tree)) in best {
        let peers = peers(source, &tree);
        let peers: Vec<(&str, f64)> = peers.iter().map(|(n, v)| (n.as_str(), *v / 1e3)).collect();
        report.row(
            "source.machine",
            &format!("{source} on {machine}, {facts} facts, processor"),
            ours / 1e3,
            "us",
            &peers,
        );
    }
    Ok(())
}

/// Measures the sources that read disks, on 4,096 of them.
pub(super) fn devices(report: &mut Report) -> Result<(), Fault> {
    let scratch = Scratch::new("devices")?;
    many_disks(&scratch.0)?;
    for mut source in sources(&scratch.0) {
        if !matches!(source.name(), "disk" | "device") {
            continue;
        }
        let (facts, ours) = cost(source.as_mut(), ROUNDS_MANY);
        let peers = match source.name() {
            "disk" => peers("disk", &scratch.0),
            _ => Vec::new(),
        };
        let peers: Vec<(&str, f64)> = peers.iter().map(|(n, v)| (n.as_str(), *v / 1e3)).collect();
        report.row(
            "source.devices",
            &format!(
                "{}, {DEVICES} disks, {facts} facts, processor",
                source.name()
            ),
            ours / 1e3,
            "us",
            &peers,
        );
    }
    Ok(())
}

fn sources(root: &Path) -> Vec<Box<dyn Source>> {
    let on = |name: &str| {
        let enabled = Some(true);
        let config = SourceConfig {
            enabled,
            ..SourceConfig::default()
        };
        (name.to_owned(), config)
    };
    all_sources(&SourcesConfig {
        sys_root: root.to_owned(),
        poll: source_names().map(on).collect(),
        ..SourcesConfig::default()
    })
}

/// Returns the number of facts, and the processor nanoseconds of one read after the first few.
fn cost(source: &mut dyn Source, rounds: usize) -> (usize, f64) {
    let clock = SystemClock::new();
    let mut batch = SourceBatch::new();
    let mut read = || {
        batch.begin(clock.monotonic_ns());
        let _ = source.read(clock.now_ns(), &mut batch);
    };
    (0..5).for_each(|_| read());
    let ours = cpu_ns(rounds, read);
    (batch.facts(), ours)
}

/// Returns the cost of the peers for the same bytes.
fn peers(source: &str, tree: &Path) -> Vec<(String, f64)> {
    let floor = |path: &str| {
        let file = File::open(tree.join(path)).ok()?;
        let mut buffer = vec![0; 1 << 20];
        let read = cpu_ns(ROUNDS, || {
            let mut at = 0;
            while let Ok(bytes @ 1..) = file.read_at(&mut buffer, at) {
                at += bytes as u64;
            }
        });
        Some(("bare pread".to_owned(), read))
    };
    let procfs_crate = |read: &dyn Fn() -> bool| {
        read().then(|| ("procfs crate".to_owned(), cpu_ns(ROUNDS, || keep(read()))))
    };
    match source {
        "disk" => {
            let path = "proc/diskstats";
            let theirs = || {
                let text = std::fs::read_to_string(tree.join(path));
                text.is_ok_and(|text| {
                    text.lines()
                        .all(|line| keep_ok(procfs::DiskStat::from_line(line)))
                })
            };
            floor(path)
                .into_iter()
                .chain(procfs_crate(&theirs))
                .collect()
        }
        "nfs" => {
            let path = "proc/self/mountstats";
            let theirs = || {
                File::open(tree.join(path))
                    .is_ok_and(|file| MountStats::from_buf_read(BufReader::new(file)).is_ok())
            };
            floor(path)
                .into_iter()
                .chain(procfs_crate(&theirs))
                .collect()
        }
        "raid" => floor("proc/mdstat").into_iter().collect(),
        _ => Vec::new(),
    }
}

fn keep_ok<T, E>(result: Result<T, E>) -> bool {
    result.is_ok_and(|value| {
        keep(value);
        true
    })
}

fn copy(from: &Path, to: &Path) -> Result<(), Fault> {
    std::fs::create_dir_all(to)?;
    let Ok(entries) = std::fs::read_dir(from) else {
        return Ok(());
    };
    for entry in entries {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()? {
            kind if kind.is_dir() => copy(&entry.path(), &target)?,
            kind if kind.is_symlink() => {
                std::os::unix::fs::symlink(std::fs::read_link(entry.path())?, target)?;
            }
            _ => std::fs::write(target, std::fs::read(entry.path())?)?,
        }
    }
    Ok(())
}

fn many_disks(root: &Path) -> Result<(), Fault> {
    let mut list = String::new();
    for at in 0..DEVICES {
        let name = format!("sd{at}x");
        let (major, minor) = (8 + at / 256, at % 256);
        writeln!(
            list,
            "{major:4} {minor:7} {name} 1000 10 80000 4000 500 5 40000 9000 0 2500 13000 0 0 0 0 7 30"
        )?;
        let block = root.join("sys/block").join(&name);
        std::fs::create_dir_all(block.join("queue"))?;
        std::fs::create_dir_all(block.join("device"))?;
        for (file, text) in [
            ("dev", format!("{major}:{minor}\n")),
            ("size", "7814037168\n".to_owned()),
            ("queue/rotational", "1\n".to_owned()),
            ("queue/nr_requests", "256\n".to_owned()),
            ("device/model", "EXAMPLE DISK\n".to_owned()),
        ] {
            std::fs::write(block.join(file), text)?;
        }
    }
    std::fs::create_dir_all(root.join("proc"))?;
    std::fs::write(root.join("proc/diskstats"), list)?;
    Ok(())
}

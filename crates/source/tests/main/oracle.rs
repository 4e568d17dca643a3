//! Compares the sources with the parsers of the `procfs` crate, on the machine that runs the tests.

use barograph_source::SourcesConfig;
use barograph_source::sources::filesystem::Filesystems;
use procfs::{Current, CurrentSI};

use crate::support::{Reader, source};

fn read(name: &str) -> Reader {
    let mut reader = Reader::new(source(&SourcesConfig::default(), name));
    reader.read().unwrap();
    reader
}

/// Checks a counter that grows: `before` and `after` were read with `procfs`, seconds apart at
/// most.
fn close(what: &str, ours: Option<f64>, before: f64, after: f64) {
    let ours = ours.unwrap_or_else(|| panic!("{what} is there"));
    assert!(
        before <= ours && ours <= after,
        "{what}: {before} <= {ours} <= {after}"
    );
}

#[test]
fn disks() {
    let before = procfs::diskstats().unwrap();
    let reader = read("disk");
    let after = procfs::diskstats().unwrap();
    let mut checked = 0;
    for (b, a) in before.iter().zip(&after) {
        let name = &b.name;
        // Stacked devices are left out by configuration, used or not.
        let stacked = ["loop", "dm-", "md", "bcache"];
        let whole = std::path::Path::new("/sys/block")
            .join(name.replace('/', "!"))
            .is_dir()
            && !stacked.iter().any(|prefix| name.starts_with(prefix));
        let ours = reader.number(&format!("disk.read.ops{{device={name}}}"));
        if !whole || ours.is_none() {
            let untouched = b.reads == 0 && b.writes == 0;
            assert!(!whole || untouched, "{name} was used and has no streams");
            continue;
        }
        checked += 1;
        let get = |fact: &str| reader.number(&format!("disk.{fact}{{device={name}}}"));
        close(name, ours, b.reads as f64, a.reads as f64);
        let bytes = |sectors: u64| sectors as f64 * 512.0;
        close(
            name,
            get("read.bytes"),
            bytes(b.sectors_read),
            bytes(a.sectors_read),
        );
        close(
            name,
            get("write.bytes"),
            bytes(b.sectors_written),
            bytes(a.sectors_written),
        );
        let s = |ms: u64| ms as f64 / 1e3;
        close(
            name,
            get("busy.seconds"),
            s(b.time_in_progress),
            s(a.time_in_progress),
        );
    }
    let used = before.iter().filter(|d| d.reads > 0).count();
    assert!(checked > 0 || used == 0);
}

#[test]
fn memory() {
    let reader = read("memory");
    let oracle = procfs::Meminfo::current().unwrap();
    assert_eq!(
        reader.number("memory.total.bytes"),
        Some(oracle.mem_total as f64)
    );
    assert_eq!(
        reader.number("memory.swap.total.bytes"),
        Some(oracle.swap_total as f64)
    );
    assert!(reader.number("memory.available.bytes").unwrap() <= oracle.mem_total as f64);
}

#[test]
fn processors() {
    let before = procfs::KernelStats::current().unwrap();
    let reader = read("cpu");
    let after = procfs::KernelStats::current().unwrap();
    let ticks = procfs::ticks_per_second() as f64;
    let s = |t: u64| t as f64 / ticks;
    close(
        "user",
        reader.number("cpu.user.seconds"),
        s(before.total.user),
        s(after.total.user),
    );
    close(
        "system",
        reader.number("cpu.system.seconds"),
        s(before.total.system),
        s(after.total.system),
    );
    close(
        "switches",
        reader.number("cpu.switches.count"),
        before.ctxt as f64,
        after.ctxt as f64,
    );
    assert_eq!(
        reader.number("cpu.online.count"),
        Some(before.cpu_time.len() as f64)
    );
}

#[test]
fn paging() {
    let before = procfs::vmstat().unwrap();
    let reader = read("vm");
    let after = procfs::vmstat().unwrap();
    let of = |map: &std::collections::HashMap<String, i64>, key: &str| map[key] as f64;
    for (ours, key, worth) in [
        ("vm.pagein.bytes", "pgpgin", 1024.0),
        ("vm.faults.count", "pgfault", 1.0),
        ("vm.major_faults.count", "pgmajfault", 1.0),
    ] {
        // The kernel adds up the counters of processors from time to time, one after another.
        let slack = 1e6;
        let (low, high) = (
            of(&before, key) * worth - slack,
            of(&after, key) * worth + slack,
        );
        close(ours, reader.number(ours), low, high);
    }
}

#[test]
fn interfaces() {
    let before = procfs::net::dev_status().unwrap();
    let reader = read("network");
    let after = procfs::net::dev_status().unwrap();
    for (name, b) in before.iter().filter(|(name, _)| *name != "lo") {
        let Some(a) = after.get(name) else { continue };
        let get = |fact: &str| reader.number(&format!("network.{fact}{{device={name}}}"));
        close(
            name,
            get("receive.bytes"),
            b.recv_bytes as f64,
            a.recv_bytes as f64,
        );
        close(
            name,
            get("transmit.packets"),
            b.sent_packets as f64,
            a.sent_packets as f64,
        );
    }
}

#[test]
fn root_file_system() {
    let config = SourcesConfig::default();
    let filesystems = Filesystems::new(&config.sys_root, &config.tiers, &config.filesystem);
    let mut reader = Reader::new(Box::new(filesystems));
    // Some mount of a test machine may refuse or hang; that is data.
    reader.read().unwrap();
    let stat = rustix::fs::statvfs("/").unwrap();
    let total = (stat.f_blocks * stat.f_frsize) as f64;
    let root = reader.streams("filesystem.total.bytes{");
    let root: Vec<_> = root.iter().filter(|s| s.contains("mount=/,")).collect();
    assert_eq!(root.len(), 1, "{root:?}");
    assert_eq!(reader.number(root[0]), Some(total));
}

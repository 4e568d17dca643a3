//! Tests of control groups: counters of version 1 that work and that only seem to, and traffic by
//! device.

use barograph_source::{CgroupConfig, SourceCoverage};

use crate::jobs::missing;
use crate::support::{Reader, Tree, source};

const V1: &str = "sys/fs/cgroup/blkio";
const V2: &str = "sys/fs/cgroup";
const NOTHING: &str = "Total 0\n";

/// Writes disks by number, name and bytes moved.
fn disks(tree: &Tree, disks: &[(&str, &str, u64)]) {
    let line = |(number, name, bytes): &(&str, &str, u64)| {
        tree.write(&format!("sys/block/{name}/dev"), format!("{number}\n"));
        let number = number.replace(':', " ");
        format!("{number} {name} 0 0 0 0 9 0 {} 9 0 9 9\n", bytes / 512)
    };
    tree.write("proc/diskstats", disks.iter().map(line).collect::<String>());
}

/// Writes the files of one group of version 1; `files` selects those that count, by device.
fn blkio(tree: &Tree, group: &str, files: &str, text: &str) {
    for counts in ["service_bytes", "serviced"] {
        let file = format!("blkio.{files}.io_{counts}_recursive");
        tree.write(&format!("{V1}{group}/{file}"), text);
    }
}

fn wrote(device: &str, bytes: u64) -> String {
    format!("{device} Read 0\n{device} Write {bytes}\n{device} Total {bytes}\nTotal {bytes}\n")
}

fn cgroups(tree: &Tree, cgroup: CgroupConfig) -> Reader {
    let mut config = tree.config();
    config.cgroup = cgroup;
    Reader::new(source(&config, "cgroup"))
}

/// A reader that scans for groups and working counters at every poll.
fn often(tree: &Tree) -> Reader {
    let scan_interval_ms = 1;
    cgroups(
        tree,
        CgroupConfig {
            scan_interval_ms,
            ..Default::default()
        },
    )
}

fn says(report: &SourceCoverage, part: &str) -> bool {
    let mut missing = report.missing.iter();
    missing.any(|m| m.what.contains(part) && !m.why.is_empty() && !m.remedy.is_empty())
}

/// Linux 6.10 and later: while no limit is set, all files exist and are zero.
#[test]
fn version_1_without_limits_counts_nothing() {
    let tree = Tree::of("empty");
    disks(&tree, &[("254:0", "vda", 1 << 30), ("7:0", "loop0", 0)]);
    for group in ["", "/a", "/a/b"] {
        blkio(&tree, group, "throttle", NOTHING);
        blkio(&tree, group, "bfq", NOTHING);
        tree.write(
            &format!("sys/fs/cgroup/memory{group}/memory.usage_in_bytes"),
            "4096\n",
        );
    }
    let mut reader = often(&tree);
    reader.read().unwrap();
    assert!(reader.streams("cgroup.io").is_empty() && reader.streams("cgroup.device").is_empty());
    assert_eq!(
        reader.number("cgroup.memory.bytes{cgroup=/a}"),
        Some(4096.0)
    );
    let report = reader.source.report();
    assert!(says(&report, "I/O on vda by control group"), "{report:?}");
    // With a limit anywhere, all traffic on that disk is counted from then on.
    disks(&tree, &[("254:0", "vda", 2 << 30), ("7:0", "loop0", 0)]);
    blkio(&tree, "", "throttle", &wrote("254:0", 1 << 20));
    blkio(&tree, "/a", "throttle", &wrote("254:0", 1 << 20));
    blkio(&tree, "/a/b", "throttle", &wrote("254:0", 0));
    reader.read().unwrap();
    let written = |group: &str| format!("cgroup.io.write.bytes{{cgroup={group}}}");
    assert_eq!(reader.number(&written("/a")), Some((1 << 20) as f64));
    // The group has moved nothing since then, and was not counted before: a zero would be wrong.
    assert_eq!(reader.number(&written("/a/b")), None);
    assert!(says(&reader.source.report(), "some of the I/O on vda"));
    // Its bytes are reported as soon as it moves some.
    blkio(&tree, "/a/b", "throttle", &wrote("254:0", 512));
    reader.read().unwrap();
    assert_eq!(reader.number(&written("/a/b")), Some(512.0));
    // The scheduler that counted is gone, and the streams with it.
    for group in ["", "/a", "/a/b"] {
        blkio(&tree, group, "throttle", NOTHING);
    }
    reader.read().unwrap();
    assert!(reader.streams("cgroup.io").is_empty() && reader.streams("cgroup.device").is_empty());
}

/// From 5.16 to 6.4 the files name the device, and count only groups with a limit.
#[test]
fn zeros_of_a_disk_that_moves_are_no_counts() {
    let tree = Tree::of("empty");
    disks(&tree, &[("8:0", "sda", 1 << 30)]);
    for group in ["", "/a"] {
        blkio(&tree, group, "throttle", &wrote("8:0", 0));
    }
    let mut reader = often(&tree);
    reader.read().unwrap();
    assert!(reader.streams("cgroup.io").is_empty());
    assert!(says(&reader.source.report(), "I/O on sda by control group"));
}

/// Up to 5.15 and from 6.5 to 6.9 all traffic is counted: a zero is a real count.
#[test]
fn where_all_is_counted_a_zero_is_told() {
    let tree = Tree::of("empty");
    disks(&tree, &[("8:0", "sda", 1 << 30), ("8:16", "sdb", 0)]);
    blkio(&tree, "", "throttle", &wrote("8:0", 1 << 30));
    blkio(&tree, "/a", "throttle", NOTHING);
    let mut reader = often(&tree);
    reader.read().unwrap();
    assert_eq!(reader.number("cgroup.io.write.bytes{cgroup=/a}"), Some(0.0));
    assert!(!says(&reader.source.report(), "I/O on"));
    // Write-back for other groups counts at the root in version 1, which the report mentions.
    assert!(says(&reader.source.report(), "page cache"));
}

/// A limit on one device does not make the counters of another work: a group's zero there would be
/// wrong.
#[test]
fn another_device_that_is_counted_makes_no_zeros() {
    let tree = Tree::of("empty");
    disks(&tree, &[("254:0", "vda", 1 << 30), ("7:0", "loop0", 4096)]);
    blkio(&tree, "", "throttle", &wrote("7:0", 4096));
    blkio(&tree, "/a", "throttle", &wrote("7:0", 4096));
    blkio(&tree, "/b", "throttle", NOTHING);
    let mut reader = often(&tree);
    reader.read().unwrap();
    assert!(reader.streams("cgroup.io").is_empty());
    let on_loop = "cgroup.device.write.bytes{cgroup=/a,device=loop0}";
    assert_eq!(reader.number(on_loop), Some(4096.0));
    assert!(says(&reader.source.report(), "I/O on vda by control group"));
}

/// The traffic of a disk with the scheduler bfq is counted in bfq's files.
#[test]
fn the_files_that_count_are_read() {
    let tree = Tree::of("empty");
    disks(&tree, &[("8:0", "sda", 4096)]);
    for group in ["", "/a"] {
        blkio(&tree, group, "throttle", NOTHING);
        blkio(&tree, group, "bfq", &wrote("8:0", 4096));
    }
    let mut reader = often(&tree);
    reader.read().unwrap();
    assert_eq!(
        reader.number("cgroup.io.write.bytes{cgroup=/a}"),
        Some(4096.0)
    );
    assert_eq!(
        reader.number("cgroup.device.write.bytes{cgroup=/a,device=sda}"),
        Some(4096.0)
    );
}

#[test]
fn a_job_of_version_1_has_what_is_counted() {
    let tree = Tree::of("empty");
    disks(&tree, &[("254:0", "vda", 1 << 30)]);
    let job = "/slurm/uid_1000/job_7";
    for group in ["", job] {
        blkio(&tree, group, "throttle", NOTHING);
    }
    let mut reader = Reader::new(tree.source("job"));
    reader.read().unwrap();
    assert!(reader.streams("job.local").is_empty());
    assert_eq!(missing(&*reader.source, "I/O on vda").len(), 1);
    for group in ["", job] {
        blkio(&tree, group, "throttle", &wrote("254:0", 1 << 30));
    }
    reader.read().unwrap();
    let bytes = Some((1u64 << 30) as f64);
    assert_eq!(reader.number("job.local.write.bytes{job=7}"), bytes);
    assert_eq!(
        reader.number("job.local.device.write.bytes{device=vda,job=7}"),
        bytes
    );
    assert!(missing(&*reader.source, "I/O on vda").is_empty());
}

/// Loops and mapped devices have streams of their own and are in no sum: their traffic is counted
/// again on the devices below, unless these are no block devices.
#[test]
fn traffic_by_device() {
    let tree = Tree::of("empty");
    let all = [
        ("254:0", "vda", 1),
        ("253:0", "dm-0", 1),
        ("7:0", "loop0", 1),
    ];
    disks(&tree, &all);
    tree.write(&format!("{V2}/cgroup.controllers"), "io\n");
    tree.write(
        &format!("{V2}/io.stat"),
        "254:0 rbytes=9 wbytes=9 rios=1 wios=1\n",
    );
    let stat = |loop_bytes: u64| {
        let text =
            "254:0 rbytes=100 wbytes=20 rios=1 wios=1\n253:0 rbytes=100 wbytes=20 rios=1 wios=1\n";
        tree.write(
            &format!("{V2}/a/io.stat"),
            format!(
                "{text}7:0 rbytes=0 wbytes={loop_bytes} rios=0 wios=1\n259:5 rbytes=0 wbytes=0\n"
            ),
        );
    };
    stat(1000);
    let mut reader = often(&tree);
    reader.read().unwrap();
    stat(1700);
    reader.read().unwrap();
    assert_eq!(
        reader.number("cgroup.io.write.bytes{cgroup=/a}"),
        Some(20.0)
    );
    let on = |measure: &str, device: &str| {
        reader.number(&format!(
            "cgroup.device.{measure}{{cgroup=/a,device={device}}}"
        ))
    };
    assert_eq!(on("read.bytes", "vda"), Some(100.0));
    assert_eq!(on("write.bytes", "dm-0"), Some(20.0));
    assert_eq!(on("write.bytes_per_second", "loop0"), Some(700.0));
    // The root's traffic is that of the disks; devices without traffic have no streams.
    assert_eq!(reader.streams("cgroup.device.read.bytes{").len(), 3);
    // The streams of a device end with the device, or with the group.
    tree.write(
        &format!("{V2}/a/io.stat"),
        "254:0 rbytes=100 wbytes=20 rios=1 wios=1\n",
    );
    reader.read().unwrap();
    assert_eq!(reader.streams("cgroup.device.read.bytes{").len(), 1);
    std::fs::remove_dir_all(tree.path().join(V2).join("a")).unwrap();
    reader.read().unwrap();
    assert!(reader.streams("cgroup=/a").is_empty());
}

#[test]
fn devices_of_groups_are_bounded_each_and_in_all() {
    let tree = Tree::of("empty");
    tree.write(&format!("{V2}/cgroup.controllers"), "io\n");
    let text: String = (0..12)
        .map(|n| format!("8:{n} rbytes=1 wbytes=2\n"))
        .collect();
    for group in ["a", "b", "c"] {
        tree.write(&format!("{V2}/{group}/io.stat"), &text);
    }
    let devices_max = 18;
    let mut reader = cgroups(
        &tree,
        CgroupConfig {
            devices_max,
            ..Default::default()
        },
    );
    for _ in 0..3 {
        reader.read().unwrap();
        let of = |group: &str| {
            let part = format!("cgroup.device.read.bytes{{cgroup=/{group},");
            reader.streams(&part).len()
        };
        assert_eq!([of("a"), of("b"), of("c")], [8, 8, 2]);
        // The sum includes all of them.
        assert_eq!(
            reader.number("cgroup.io.write.bytes{cgroup=/c}"),
            Some(24.0)
        );
        assert_eq!(
            missing(&*reader.source, "18 devices of control groups").len(),
            1
        );
    }
}

#[test]
fn a_controller_for_the_root_alone_is_said() {
    let tree = Tree::of("empty");
    tree.write(&format!("{V2}/cgroup.controllers"), "io memory\n");
    tree.write(
        &format!("{V2}/io.stat"),
        "8:0 rbytes=9 wbytes=9 rios=1 wios=1\n",
    );
    tree.write(&format!("{V2}/a/memory.current"), "4096\n");
    let mut reader = often(&tree);
    reader.read().unwrap();
    assert_eq!(missing(&*reader.source, "on for the root alone").len(), 1);
    tree.write(&format!("{V2}/a/io.stat"), "");
    let mut reader = often(&tree);
    reader.read().unwrap();
    assert!(missing(&*reader.source, "on for the root alone").is_empty());
    assert_eq!(reader.number("cgroup.io.read.bytes{cgroup=/a}"), Some(0.0));
}

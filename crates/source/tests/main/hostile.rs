//! Hostile files: cut anywhere, garbage, huge numbers, names that are not text. There is never a
//! panic, and never a value that the whole file does not have.

use std::collections::BTreeMap;

use barograph_model::Sample;

use crate::support::{Reader, Tree, source_names};

/// Each file that a source reads, with the machine.
const FILES: &[(&str, &str, &str)] = &[
    ("nvme-v2", "disk", "proc/diskstats"),
    ("nvme-v2", "disk", "sys/block/nvme0n1/size"),
    ("nvme-v2", "disk", "sys/block/nvme0n1/queue/scheduler"),
    ("container", "disk", "sys/block/vda/stat"),
    ("nvme-v2", "memory", "proc/meminfo"),
    ("nvme-v2", "vm", "proc/vmstat"),
    ("nvme-v2", "cpu", "proc/stat"),
    ("nvme-v2", "cpu", "proc/loadavg"),
    ("nvme-v2", "pressure", "proc/pressure/io"),
    ("nvme-v2", "network", "proc/net/dev"),
    ("nvme-v2", "network", "sys/class/net/eth0/operstate"),
    ("nvme-v2", "network", "sys/class/net/eth0/speed"),
    ("nvme-v2", "filesystem", "proc/self/mountinfo"),
    ("nvme-v2", "nfs", "proc/self/mountstats"),
    ("nvme-v2", "cgroup", "sys/fs/cgroup/io.stat"),
    (
        "nvme-v2",
        "cgroup",
        "sys/fs/cgroup/system.slice/memory.current",
    ),
    (
        "nvme-v2",
        "cgroup",
        "sys/fs/cgroup/system.slice/io.pressure",
    ),
    (
        "hdd-v1",
        "cgroup",
        "sys/fs/cgroup/blkio/slurm/blkio.throttle.io_service_bytes",
    ),
    ("hdd-raid", "raid", "proc/mdstat"),
    ("hdd-raid", "raid", "sys/block/md0/md/array_state"),
    ("hdd-raid", "raid", "sys/block/md0/md/raid_disks"),
    ("hdd-raid", "raid", "sys/block/md0/md/degraded"),
    ("hdd-raid", "raid", "sys/block/md0/md/sync_completed"),
    ("hdd-raid", "raid", "sys/block/md0/md/sync_speed"),
    ("hdd-raid", "raid", "sys/block/md0/md/dev-sdb/state"),
    ("hdd-raid", "raid", "sys/block/md0/md/dev-sdb/errors"),
    ("hdd-raid", "btrfs", BTRFS_SPACE),
    ("hdd-raid", "btrfs", BTRFS_COMMITS),
    ("hdd-raid", "btrfs", BTRFS_ERRORS),
    ("hdd-raid", "zfs", "proc/spl/kstat/zfs/arcstats"),
    ("hdd-raid", "zfs", "proc/spl/kstat/zfs/tank/state"),
    ("hdd-raid", "zfs", "proc/spl/kstat/zfs/tank/objset-0x183"),
    ("hdd-raid", "filesystem", "proc/self/mountinfo"),
    (
        "nvme-four",
        "power",
        "sys/class/powercap/intel-rapl:0/energy_uj",
    ),
    (
        "nvme-four",
        "power",
        "sys/class/powercap/intel-rapl:0:1/energy_uj",
    ),
    ("hdd-raid", "power", "sys/class/hwmon/hwmon5/power1_average"),
    ("lustre-server", "bmc", "commands/ipmitool-dcmi-power"),
    ("lustre-server", "clock", "commands/chronyc-tracking"),
    ("nvme-four", "clock", "commands/adjtimex"),
    ("lustre-client", "lustre", "sys/kernel/debug/lnet/stats"),
    (
        "lustre-client",
        "lustre",
        "sys/kernel/debug/lustre/osc/scratch-OST0000-osc-ffff9a0c12345000/stats",
    ),
    (
        "lustre-client",
        "lustre",
        "sys/kernel/debug/lustre/osc/scratch-OST0000-osc-ffff9a0c12345000/import",
    ),
    (
        "lustre-server",
        "lustre",
        "proc/fs/lustre/obdfilter/scratch-OST0000/stats",
    ),
    (
        "lustre-client",
        "job",
        "sys/fs/cgroup/system.slice/slurmstepd.scope/job_4711/cpu.stat",
    ),
    (
        "lustre-client",
        "job",
        "sys/fs/cgroup/system.slice/slurmstepd.scope/job_4711/memory.current",
    ),
    ("lustre-client", "job", "run/barograph-jobs/4711"),
    ("lustre-client", "process", "proc/2101/io"),
    ("lustre-client", "process", "proc/2190/stat"),
];

/// Parts of the paths of attributes, in addition to those in the test below.
const ATTRIBUTES: [&str; 3] = ["/md/", "/bytes_used", "tank/state"];

const BTRFS_SPACE: &str =
    "sys/fs/btrfs/0abb23a9-579b-43e6-ad30-227ef47fcb9d/allocation/data/bytes_used";
const BTRFS_COMMITS: &str = "sys/fs/btrfs/0abb23a9-579b-43e6-ad30-227ef47fcb9d/commit_stats";
const BTRFS_ERRORS: &str =
    "sys/fs/btrfs/0abb23a9-579b-43e6-ad30-227ef47fcb9d/devinfo/2/error_stats";

fn samples(reader: &Reader) -> BTreeMap<String, Sample> {
    let named =
        |(id, sample): &(_, Sample)| Some((reader.names.get(id)?.to_string(), sample.clone()));
    reader.batch.samples().iter().filter_map(named).collect()
}

/// The values from a cut file are among those from the whole one. The exceptions are sums over
/// lines, which are smaller with fewer lines.
#[test]
fn files_cut_at_every_byte() {
    for &(machine, name, path) in FILES {
        let tree = Tree::of(machine);
        let whole = tree.read(path);
        let mut reader = Reader::new(tree.source(name));
        reader.read().unwrap();
        let expect = samples(&reader);
        for end in 0..whole.len() {
            tree.write(path, &whole[..end]);
            let mut reader = Reader::new(tree.source(name));
            let result = reader.read();
            for (stream, sample) in samples(&reader) {
                let sum = stream.starts_with("cpu.online") || stream.starts_with("cgroup.io");
                // A tier that cannot be derived, or a size of zero, only removes a stream.
                let known = expect.get(&stream);
                assert!(
                    sum || known == Some(&sample) || known.is_none(),
                    "{path} cut at {end}: {stream} is {sample:?}, not {known:?}"
                );
            }
            // A list that is cut within a line is a fault; an attribute counts as absent.
            let inside = end > 0 && whole[end - 1] != b'\n';
            let list =
                !path.contains("queue/") && !path.contains("/size") && !path.contains("class");
            let list = list && ATTRIBUTES.iter().all(|part| !path.contains(part));
            assert!(
                !inside || !list || result.is_err(),
                "{path} cut at {end} went unnoticed"
            );
        }
    }
}

#[test]
fn garbage_in_every_file() {
    let garbage: [&[u8]; 9] = [
        b"",
        b"\n",
        b"\n\n\n",
        b"\0\0\0\n",
        b"\xff\xfe\xfd\n\xff",
        b": : : :\n= = =\n- - -\n",
        b"99999999999999999999999999 99999999999999999999 99999999999999999999\n",
        b"cpu -1 -2 -3 nan inf 1e400\n",
        &[b' '; 4096],
    ];
    for &(machine, name, path) in FILES {
        let tree = Tree::of(machine);
        let whole = tree.read(path);
        let mut reader = Reader::new(tree.source(name));
        for bad in garbage {
            tree.write(path, bad);
            let _ = reader.read();
            let _ = reader.source.report();
        }
        tree.write(path, &whole);
        assert!(reader.read().is_ok(), "{path}: the source recovers");
    }
}

#[test]
fn every_number_made_huge() {
    let huge = [
        "9223372036854775807",
        "18446744073709551615",
        "99999999999999999999999",
    ];
    for &(machine, name, path) in FILES {
        let tree = Tree::of(machine);
        let whole = String::from_utf8(tree.read(path)).unwrap();
        let mut reader = Reader::new(tree.source(name));
        reader.read().unwrap();
        let words: Vec<_> = whole.split_inclusive([' ', '\n', '=', ':']).collect();
        for at in 0..words.len() {
            if !words[at].starts_with(|c: char| c.is_ascii_digit()) {
                continue;
            }
            for huge in huge {
                let end = words[at]
                    .trim_end_matches(|c: char| !c.is_ascii_digit())
                    .len();
                let mut changed: Vec<String> = words.iter().map(|w| w.to_string()).collect();
                changed[at] = format!("{huge}{}", &words[at][end..]);
                tree.write(path, changed.concat());
                let _ = reader.read();
                let numbers = reader
                    .batch
                    .samples()
                    .iter()
                    .filter_map(|(_, s)| s.value.as_f64());
                for value in numbers {
                    assert!(
                        value.is_finite() && value >= 0.0,
                        "{path} word {at}: {value}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_bad_line_is_counted_and_the_rest_is_read() {
    let tree = Tree::of("nvme-v2");
    let mut list = tree.read("proc/diskstats");
    list.extend_from_slice(b" 8 0 sdz one two\n");
    tree.write("proc/diskstats", list);
    let mut reader = Reader::new(tree.source("disk"));
    let fault = reader.read().unwrap_err().to_string();
    assert!(
        fault.contains("left out: 1,") && fault.contains("sdz one two"),
        "{fault}"
    );
    assert!(reader.get("disk.read.bytes{device=nvme0n1}").is_some());
}

#[test]
fn names_that_are_no_text_are_escaped() {
    let tree = Tree::of("container");
    tree.write("proc/diskstats", b"8 0 s\xffa 1 0 8 1 1 0 8 1 0 1 1\n");
    std::fs::remove_dir_all(tree.path().join("sys/block")).unwrap();
    let mut disks = Reader::new(tree.source("disk"));
    disks.read().unwrap();
    assert!(
        disks.get("disk.read.ops{device=s\\xffa}").is_some(),
        "{:?}",
        disks.streams("")
    );

    let mut mounts = b"1 2 8:1 / /da\xffta rw - xfs /dev/sda1 rw\n".to_vec();
    mounts.extend_from_slice(b"3 2 8:2 / /\\303\\050 rw - xfs /dev/sda2 rw\n");
    tree.write("proc/self/mountinfo", mounts);
    let mut mounts = Reader::new(tree.source("filesystem"));
    mounts.read().unwrap();
    let streams = mounts.streams("free.bytes");
    assert!(
        streams.iter().any(|s| s.contains("mount=/da\\xffta")),
        "{streams:?}"
    );
    assert!(
        streams.iter().any(|s| s.contains("mount=/\\xc3(")),
        "{streams:?}"
    );
}

#[test]
fn names_too_long_for_a_label_are_reported() {
    let tree = Tree::of("nvme-v2");
    let long = "x".repeat(300);
    tree.write(
        "proc/self/mountinfo",
        format!("1 2 8:1 / /{long} rw - xfs /dev/sda1 rw\n"),
    );
    tree.write(
        &format!("sys/fs/cgroup/{}/{}/io.stat", &long[..200], &long[..200]),
        "",
    );
    for name in ["filesystem", "cgroup"] {
        let mut reader = Reader::new(tree.source(name));
        reader.read().unwrap();
        let missing = reader.source.report().missing;
        let remedy = |m: &barograph_source::MissingPart| m.remedy.contains("shorter");
        assert!(missing.iter().any(remedy), "{name}: {missing:?}");
    }
}

#[test]
fn no_source_is_disturbed_by_an_empty_machine() {
    for name in source_names() {
        let tree = Tree::of("empty");
        let mut reader = Reader::new(tree.source(&name));
        reader.read().unwrap();
        assert!(reader.names.is_empty());
        assert!(
            !reader.source.report().missing.is_empty(),
            "{name} says why it sees nothing"
        );
    }
}

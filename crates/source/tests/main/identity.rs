//! Tests of the kinds of devices and the disks below them, quantiles of latency, and the greatest
//! bandwidth and its measurement; expected values are computed by hand.

use std::fs;
use std::os::unix::fs::symlink;

use barograph_model::{NS_PER_S, Value};
use barograph_source::probe::{ProbeError, ProbeLimits, ProbeRecord, probe, store};

use crate::support::{Reader, START_NS, Tree, source};

fn text(reader: &Reader, stream: &str) -> Option<String> {
    match &reader.get(stream)?.value {
        Value::Text(text) => Some(text.to_string()),
        _ => None,
    }
}

fn devices(tree: &Tree) -> Reader {
    let mut reader = Reader::new(tree.source("device"));
    reader.read().unwrap();
    reader
}

/// The disks below a device, by `device.on.flag`.
fn disks(reader: &Reader, device: &str) -> Vec<String> {
    let on = reader.streams(&format!("device.on.flag{{device={device},"));
    let disk = |s: &String| {
        s.split("disk=")
            .nth(1)?
            .strip_suffix('}')
            .map(str::to_owned)
    };
    on.iter().filter_map(disk).collect()
}

#[test]
fn four_drives_and_a_volume_over_two() {
    let reader = devices(&Tree::of("nvme-four"));
    let check = |stream: &str, expect: &str| {
        assert_eq!(text(&reader, stream).as_deref(), Some(expect), "{stream}");
    };
    check("device.kind.name{device=nvme0n1}", "disk");
    check("device.kind.name{device=nvme0n1p2}", "partition");
    check("device.kind.name{device=dm-0}", "lvm");
    check("device.model.name{device=nvme3n1}", "ACME Fast 3.84TB");
    check("device.serial.name{device=nvme3n1}", "SN0000000004");
    check("device.firmware.name{device=nvme3n1}", "FW1.0.1");
    check("device.transport.name{device=nvme3n1}", "pcie");
    check("device.mapper.name{device=dm-0}", "vg-scratch");
    check("device.tier.name{device=dm-0}", "nvme");
    check(
        "device.tier.reason.name{device=dm-0}",
        "as the slowest below it, nvme2n1p1: its name begins with nvme",
    );
    check(
        "device.tier.reason.name{device=nvme0n1p2}",
        "as nvme0n1: its name begins with nvme",
    );
    for name in ["dm-0", "mapper/vg-scratch"] {
        assert_eq!(disks(&reader, name), ["nvme2n1", "nvme3n1"], "{name}");
    }
    for name in ["nvme0n1", "nvme0n1p1", "nvme0n1p2"] {
        assert_eq!(disks(&reader, name), ["nvme0n1"], "{name}");
    }
    let number = |stream: &str| reader.number(stream);
    assert_eq!(number("device.disks.count{device=dm-0}"), Some(2.0));
    assert_eq!(number("device.disks.count{device=nvme0n1p1}"), Some(1.0));
    assert_eq!(
        number("device.start.bytes{device=nvme0n1p2}"),
        Some(1_050_624.0 * 512.0)
    );
    // Four lanes of 8 GT/s (16 are possible), with 128 of 130 bits for data.
    let lanes = |transfers: f64| transfers * 4.0 * 128.0 / 130.0 / 8.0;
    let close = |stream: &str, expect: f64| {
        let got = number(stream).unwrap();
        assert!(
            (got / expect - 1.0).abs() < 1e-9,
            "{stream}: {got}, not {expect}"
        );
    };
    close("device.link.bytes_per_second{device=nvme3n1}", lanes(8e9));
    close(
        "device.link.max.bytes_per_second{device=nvme3n1}",
        lanes(16e9),
    );
    assert_eq!(reader.source.report().missing, []);
}

/// The device of a file system is the one in `device.on.flag`, whatever its name.
#[test]
fn file_systems_join_disks_by_device() {
    let tree = Tree::of("nvme-four");
    let mut mounts = String::from_utf8(tree.read("proc/self/mountinfo")).unwrap();
    mounts += "50 27 259:4 / /again rw - ext4 /dev/disk/by-label/a\\040b rw\n";
    mounts += "51 27 0:60 / /net rw - nfs4 /dev/null rw\n";
    tree.write("proc/self/mountinfo", mounts);
    let devices = devices(&tree);
    let mut filesystems = Reader::new(tree.source("filesystem"));
    filesystems.read().unwrap();
    let mut joined = 0;
    for stream in filesystems.streams("filesystem.total.bytes") {
        let device = stream
            .split("device=")
            .nth(1)
            .and_then(|s| s.split(',').next());
        let device = device.unwrap();
        if device != "tmpfs" && device != "null" {
            assert!(!disks(&devices, device).is_empty(), "{device}");
            joined += 1;
        }
    }
    assert_eq!(joined, 4, "/, /boot, /data, /scratch");
    assert_eq!(disks(&devices, "disk/by-label/a b"), ["nvme1n1"]);
    assert!(disks(&devices, "null").is_empty());
}

/// A tree with a device of each kind, with links in `slaves` as the kernel makes them.
fn stacked() -> Tree {
    let tree = Tree::of("empty");
    let block = |name: &str, number: &str| {
        tree.write(&format!("sys/block/{name}/dev"), format!("{number}\n"));
        tree.write(&format!("sys/block/{name}/size"), "2048\n");
        tree.write(&format!("sys/block/{name}/queue/rotational"), "1\n");
    };
    let below = |name: &str, slaves: &[&str]| {
        let dir = tree.path().join("sys/block").join(name).join("slaves");
        fs::create_dir_all(&dir).unwrap();
        for slave in slaves {
            let disk = slave.trim_end_matches(|c: char| c.is_ascii_digit());
            let to = match disk.starts_with("sd") && disk != *slave {
                true => format!("../../{disk}/{slave}"),
                false => format!("../../{slave}"),
            };
            symlink(to, dir.join(slave)).unwrap();
        }
    };
    for (i, disk) in ["sda", "sdb", "sdc", "sdd", "sdaa"].iter().enumerate() {
        block(disk, &format!("8:{}", i * 16));
        tree.write(&format!("sys/block/{disk}/device/model"), "ACME\n");
        tree.write(&format!("sys/block/{disk}/{disk}1/partition"), "1\n");
        tree.write(
            &format!("sys/block/{disk}/{disk}1/dev"),
            format!("8:{}\n", i * 16 + 1),
        );
        tree.write(&format!("sys/block/{disk}/{disk}1/size"), "1024\n");
    }
    block("md127", "9:127");
    tree.write("sys/block/md127/md/level", "raid1\n");
    below("md127", &["sda1", "sdb1"]);
    let mapper = |name: &str, number: &str, alias: &str, uuid: &str, slaves: &[&str]| {
        block(name, number);
        tree.write(&format!("sys/block/{name}/dm/name"), format!("{alias}\n"));
        tree.write(&format!("sys/block/{name}/dm/uuid"), format!("{uuid}\n"));
        below(name, slaves);
    };
    mapper(
        "dm-0",
        "253:0",
        "secret",
        "CRYPT-LUKS2-00-secret",
        &["md127"],
    );
    mapper("dm-1", "253:1", "vg-root", "LVM-0000", &["dm-0"]);
    mapper(
        "dm-2",
        "253:2",
        "mpatha",
        "mpath-3600",
        &["sdaa", "sdc", "sdd"],
    );
    mapper("dm-3", "253:3", "mpatha1", "part1-mpath-3600", &["dm-2"]);
    mapper("dm-4", "253:4", "empty", "", &[]);
    block("loop3", "7:3");
    tree.write("sys/block/loop3/stat", "1 0 8 1 0 0 0 0 0 1 1\n");
    block("loop4", "7:4");
    tree.write("sys/block/loop4/stat", "0 0 0 0 0 0 0 0 0 0 0\n");
    block("nvme0c0n1", "259:1");
    tree.write("sys/block/nvme0c0n1/hidden", "1\n");
    block("sr0", "11:0");
    tree.write("sys/block/sr0/size", "0\n");
    tree.write(
        "proc/self/mountinfo",
        "1 2 9:127 / / rw - xfs /dev/md/root rw\n3 1 253:1 / /a rw - xfs /dev/root rw\n",
    );
    tree
}

#[test]
fn stacks_of_every_kind() {
    let tree = stacked();
    let reader = devices(&tree);
    let check = |device: &str, kind: &str, expect: &[&str]| {
        let stream = format!("device.kind.name{{device={device}}}");
        assert_eq!(text(&reader, &stream).as_deref(), Some(kind), "{device}");
        assert_eq!(disks(&reader, device), expect, "{device}");
        let count = reader.number(&format!("device.disks.count{{device={device}}}"));
        assert_eq!(count.unwrap_or(0.0), expect.len() as f64, "{device}");
    };
    check("md127", "raid", &["sda", "sdb"]);
    check("dm-0", "crypt", &["sda", "sdb"]);
    check("dm-1", "lvm", &["sda", "sdb"]);
    // Three paths are one disk, named after the first path: sdc sorts before sdaa.
    check("dm-2", "multipath", &["sdc"]);
    check("dm-3", "partition", &["sdc"]);
    check("sdaa1", "partition", &["sdc"]);
    check("sdd", "disk", &["sdc"]);
    check("dm-4", "dm", &[]);
    check("loop3", "loop", &[]);
    for (alias, expect) in [
        ("md/root", &["sda", "sdb"][..]),
        ("root", &["sda", "sdb"]),
        ("mapper/vg-root", &["sda", "sdb"]),
        ("mapper/mpatha1", &["sdc"]),
    ] {
        assert_eq!(disks(&reader, alias), expect, "{alias}");
    }
    for gone in ["loop4", "nvme0c0n1", "sr0"] {
        assert!(
            reader.streams(&format!("device={gone}")).is_empty(),
            "{gone}"
        );
    }
    let report = reader.source.report();
    assert!(report.sees.contains("never used: loop4") && report.sees.contains("empty: sr0"));
}

#[test]
fn devices_that_stand_on_themselves_come_to_an_end() {
    let tree = stacked();
    let slaves = tree.path().join("sys/block/md127/slaves");
    symlink("../../dm-1", slaves.join("dm-1")).unwrap();
    symlink("../../absent", slaves.join("absent")).unwrap();
    let reader = devices(&tree);
    assert_eq!(disks(&reader, "dm-1"), ["sda", "sdb"]);
}

#[test]
fn devices_come_and_go() {
    let tree = stacked();
    let mut reader = devices(&tree);
    let all = reader.names.len();
    fs::remove_dir_all(tree.path().join("sys/block/dm-1")).unwrap();
    tree.write("sys/block/sda/device/model", "OTHER\n");
    reader.read().unwrap();
    assert!(reader.streams("device=dm-1").is_empty() && reader.streams("vg-root").is_empty());
    assert!(reader.names.len() < all);
    let model = text(&reader, "device.model.name{device=sda}");
    assert_eq!(model.as_deref(), Some("OTHER"));
    fs::remove_file(tree.path().join("sys/block/sda/device/model")).unwrap();
    reader.read().unwrap();
    assert!(reader.streams("device.model.name{device=sda}").is_empty());
    fs::remove_dir_all(tree.path().join("sys/block")).unwrap();
    reader.read().unwrap();
    assert!(reader.names.is_empty() && !reader.source.report().missing.is_empty());
}

#[test]
fn what_is_not_counted_is_said() {
    let tree = Tree::of("nvme-four");
    tree.write("sys/block/nvme1n1/queue/iostats", "0\n");
    let missing = devices(&tree).source.report().missing;
    assert_eq!(missing.len(), 1);
    assert_eq!(missing[0].what, "counters of nvme1n1");
}

/// Every file of one drive, its partition and the volume is cut at each byte, damaged, or has huge
/// numbers.
#[test]
fn hostile_files() {
    let huge = [
        "9223372036854775807\n",
        "18446744073709551615\n",
        "-1\n",
        "1,5\n",
        "\0\0\n",
    ];
    let tree = Tree::of("nvme-four");
    let mut files = Vec::new();
    for dir in ["sys/block/nvme3n1", "sys/block/dm-0"] {
        collect(&tree.path().join(dir), &mut files);
    }
    files.push(tree.path().join("proc/self/mountinfo"));
    assert!(files.len() > 80);
    let expect = devices(&tree);
    let values = |reader: &Reader| {
        let named = |(id, s): &(_, barograph_model::Sample)| {
            Some((reader.names.get(id)?.to_string(), s.value.clone()))
        };
        let samples = reader.batch.samples().iter().filter_map(named);
        samples.collect::<std::collections::BTreeMap<_, _>>()
    };
    let expect = values(&expect);
    let mut reader = Reader::new(tree.source("device"));
    for path in files {
        let whole = fs::read(&path).unwrap();
        for end in 0..whole.len() {
            fs::write(&path, &whole[..end]).unwrap();
            reader.read().unwrap();
            for (stream, value) in values(&reader) {
                let known = expect.get(&stream);
                let path = path.display();
                // With less data, a kind, a count or a reason may be different.
                let guessed = ["kind", "tier", "disks"]
                    .iter()
                    .any(|part| stream.contains(part));
                assert!(
                    known.is_none() || guessed || known == Some(&value),
                    "{path} cut at {end}: {stream} is {value}, not {known:?}"
                );
            }
        }
        for bad in huge
            .iter()
            .map(|b| b.as_bytes())
            .chain([&b"\xff\xfe\n"[..], &[b'x'; 9000]])
        {
            fs::write(&path, bad).unwrap();
            reader.read().unwrap();
            let numbers = values(&reader).into_values().filter_map(|v| v.as_f64());
            assert!(numbers.into_iter().all(|n| n.is_finite() && n >= 0.0));
            let _ = reader.source.report();
        }
        fs::write(&path, &whole).unwrap();
    }
    reader.read().unwrap();
    assert_eq!(values(&reader), expect, "it recovers");
}

fn collect(dir: &std::path::Path, files: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => collect(&entry.path(), files),
            false => files.push(entry.path()),
        }
    }
}

/// The greatest number of devices: the duration of a scan, and the bound.
#[test]
fn thousands_of_devices() {
    let tree = Tree::of("empty");
    for i in 0..2100 {
        let dir = format!("sys/block/sd{i:04x}z");
        tree.write(&format!("{dir}/size"), "2048\n");
        tree.write(&format!("{dir}/dev"), format!("8:{i}\n"));
        tree.write(&format!("{dir}/queue/rotational"), "1\n");
        tree.write(&format!("{dir}/queue/nr_requests"), "64\n");
        tree.write(&format!("{dir}/sd{i:04x}z1/partition"), "1\n");
        tree.write(&format!("{dir}/sd{i:04x}z1/size"), "1\n");
    }
    let mut reader = Reader::new(tree.source("device"));
    assert!(reader.source.is_slow());
    let fault = reader.read().unwrap_err().to_string();
    // Partitions of disks that were left out are not searched.
    assert!(
        fault.contains("52 block devices were left out: the limit is 4096"),
        "{fault}"
    );
    assert_eq!(reader.streams("device.kind.name").len(), 4096);
}

#[test]
fn quantiles_of_the_last_minute() {
    let tree = Tree::of("nvme-four");
    let mut reader = Reader::new(tree.source("disk"));
    reader.read().unwrap();
    assert!(reader.streams("latency.mean.p").is_empty());
    tree.advance();
    reader.read().unwrap();
    let quantile = |reader: &Reader, way: &str, q: &str, disk: &str| {
        reader.number(&format!(
            "disk.{way}.latency.mean.{q}.seconds{{device={disk}}}"
        ))
    };
    for q in ["p50", "p90", "p99"] {
        // 1000 reads took 100 ms, 500 writes 25 ms, and so on.
        assert_eq!(quantile(&reader, "read", q, "nvme0n1"), Some(0.0001));
        assert_eq!(quantile(&reader, "write", q, "nvme0n1"), Some(0.00005));
        assert_eq!(quantile(&reader, "read", q, "nvme1n1"), Some(0.0002));
        assert_eq!(quantile(&reader, "write", q, "nvme1n1"), None);
        assert_eq!(quantile(&reader, "write", q, "nvme3n1"), Some(0.002));
    }
    // After a minute without requests there are no quantiles.
    for _ in 0..60 {
        reader.read().unwrap();
    }
    assert!(reader.streams("latency.mean.p").is_empty());
    assert_eq!(
        reader.number("disk.read.latency.seconds{device=nvme0n1}"),
        Some(0.0)
    );
}

#[test]
fn the_greatest_bandwidth_and_how_it_is_known() {
    let tree = Tree::of("nvme-four");
    let max = "disk.bandwidth.max.bytes_per_second{device=nvme3n1}";
    let from = "disk.bandwidth.source.name{device=nvme3n1}";
    let known = |reader: &Reader| (reader.number(max), text(reader, from).unwrap());
    let mut reader = Reader::new(tree.source("disk"));
    reader.read().unwrap();
    // 90 % of four lanes of 8 GT/s.
    let link = 8e9 * 128.0 / 130.0 / 8.0 * 4.0 * 0.9;
    let (rate, origin) = known(&reader);
    assert!((rate.unwrap() / link - 1.0).abs() < 1e-9 && origin == "table");

    let mut config = tree.config();
    config.disk.probes = tree.path().join("probes.toml");
    let record = |serial: &str| ProbeRecord {
        bytes_per_second: 3.3e9,
        latency_p50_seconds: Some(0.0001),
        latency_p99_seconds: Some(0.0002),
        size_bytes: 7_501_476_528 * 512,
        serial: Some(serial.into()),
        at_seconds: 1_800_000_000,
    };
    store(&config.disk.probes, "nvme3n1", record("SN0000000004")).unwrap();
    store(&config.disk.probes, "nvme2n1", record("another")).unwrap();
    let mut reader = Reader::new(source(&config, "disk"));
    // The file is read on a thread.
    barograph_testing::wait_until("the record", || {
        reader.read().unwrap();
        known(&reader).1 == "probed"
    });
    assert_eq!(known(&reader), (Some(3.3e9), "probed".to_owned()));
    let other = text(&reader, "disk.bandwidth.source.name{device=nvme2n1}");
    assert_eq!(other.as_deref(), Some("table"), "that was another disk");

    config.disk.bandwidth_max.insert("nvme3*".into(), 1_000_000);
    let mut reader = Reader::new(source(&config, "disk"));
    reader.read().unwrap();
    assert_eq!(known(&reader), (Some(1e6), "configured".to_owned()));
}

#[test]
fn what_was_done_says_nothing_where_no_table_has_the_disk() {
    let tree = Tree::of("hdd-v1");
    let mut reader = Reader::new(tree.source("disk"));
    reader.read().unwrap();
    let max = "disk.bandwidth.max.bytes_per_second{device=sda}";
    assert_eq!(reader.number(max), None, "nothing was seen yet");
    assert!(
        reader
            .source
            .report()
            .sees
            .contains("baro probe measures it")
    );
    let list = String::from_utf8(tree.read("proc/diskstats")).unwrap();
    let line = list.lines().find(|l| l.contains(" sda ")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    let sectors: u64 = words[5].parse().unwrap();
    let more = line.replace(
        &format!(" {} {} {} ", words[3], words[4], sectors),
        &format!(" {} {} {} ", words[3], words[4], sectors + 200_000),
    );
    assert_ne!(line, more);
    tree.write("proc/diskstats", list.replace(line, &more));
    reader.read().unwrap();
    assert_eq!(reader.number(max), None, "it may be able to do far more");
}

#[test]
fn devices_of_this_machine() {
    let config = barograph_source::SourcesConfig::default();
    let mut reader = Reader::new(source(&config, "device"));
    reader.read().unwrap();
    reader.read().unwrap();
    for block in fs::read_dir("/sys/block").unwrap().map(Result::unwrap) {
        let name = block.file_name().into_string().unwrap();
        let read = |file: &str| fs::read_to_string(block.path().join(file)).unwrap_or_default();
        let size: u64 = read("size").trim().parse().unwrap();
        if !name.starts_with("vd") || size == 0 {
            continue;
        }
        let bytes = reader.number(&format!("device.size.bytes{{device={name}}}"));
        assert_eq!(bytes, Some(size as f64 * 512.0));
        assert_eq!(disks(&reader, &name), std::slice::from_ref(&name));
        let serial = text(&reader, &format!("device.serial.name{{device={name}}}"));
        assert_eq!(serial.unwrap_or_default(), read("serial").trim());
        let transport = text(&reader, &format!("device.transport.name{{device={name}}}"));
        assert_eq!(transport.as_deref(), Some("virtio"));
    }
}

/// A clock that follows real time.
struct Passing(std::time::Instant);

impl barograph_model::Clock for Passing {
    fn now_ns(&self) -> i64 {
        START_NS + self.monotonic_ns()
    }

    fn monotonic_ns(&self) -> i64 {
        i64::try_from(self.0.elapsed().as_nanos()).unwrap()
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "reads of a real device take real time"
)]
fn passing() -> Passing {
    Passing(std::time::Instant::now())
}

#[test]
fn what_cannot_be_measured_is_refused_with_a_reason() {
    let limits = ProbeLimits::default();
    let check = |device: &str, limits: &ProbeLimits, expect: &str| {
        let error = probe(device, limits, &passing()).unwrap_err().to_string();
        assert!(error.contains(expect), "{device}: {error}");
    };
    check("no-such-disk", &limits, "there is no /dev/no-such-disk");
    check("/dev/null", &limits, "is no block device");
    check("/etc/hostname", &limits, "is no block device");
    let little = ProbeLimits {
        bytes_max: 1000,
        ..limits
    };
    check("null", &little, "at least 2 MiB");
    let short = ProbeLimits {
        time_ns_max: 1,
        ..limits
    };
    check("null", &short, "at least 0.1 seconds");
}

/// The first disk of the machine that runs the tests, if one may be read.
#[test]
fn a_disk_of_this_machine_is_measured_within_its_limits() {
    let limits = ProbeLimits {
        time_ns_max: NS_PER_S / 2,
        bytes_max: 16 << 20,
        force: true,
    };
    for disk in ["vda", "nvme0n1", "sda"] {
        match probe(disk, &limits, &passing()) {
            Ok(probe) => {
                assert_eq!(probe.device, disk);
                assert!(
                    probe.bytes_per_second > 0.0 && probe.seconds < 10.0,
                    "{probe:?}"
                );
                assert!(probe.sequential_bytes <= limits.bytes_max);
                assert!(probe.latency_p50_seconds <= probe.latency_p99_seconds);
                assert!(
                    probe
                        .record()
                        .is_of(Some(probe.size_bytes), probe.serial.as_deref())
                );
                return;
            }
            Err(
                refusal @ (ProbeError::Absent { .. }
                | ProbeError::Denied { .. }
                | ProbeError::Forbidden { .. }),
            ) => eprintln!("not measured: {refusal}"),
            Err(other) => panic!("{disk}: {other}"),
        }
    }
}

//! Tests of the health of disks on trees with recordings of smartctl: expected values are computed
//! by hand; missing data and reasons; answers that are cut, in another language, or nonsense.

use std::collections::BTreeMap;

use barograph_model::Sample;
use barograph_source::{MissingPart, SourceError};

use crate::support::{Reader, Tree};

/// Adds the kernel's files of the four NVMe drives or the disks of the RAID to this source's part
/// of the fixtures.
fn machine(name: &str, disks: &[(&str, u64)]) -> Tree {
    let tree = Tree::of(name);
    for (disk, blocks) in disks {
        tree.write(&format!("sys/block/{disk}/size"), format!("{blocks}\n"));
    }
    tree
}

fn nvme_four() -> Tree {
    let disks = ["nvme0n1", "nvme1n1", "nvme2n1", "nvme3n1"];
    machine("nvme-four", &disks.map(|disk| (disk, 7_501_476_528)))
}

fn hdd_raid() -> Tree {
    let disks = ["sda", "sdb", "sdc", "sdd", "sde", "sdf"].map(|disk| (disk, 7_814_037_168));
    let more = [
        ("sdg", 937_703_088),
        ("sdh", 7_814_037_168),
        ("sdi", 7_814_037_168),
    ];
    machine("hdd-raid", &[&disks[..], &more].concat())
}

/// Reduces a machine to one disk, so that thousands of polls are quick.
fn alone(tree: Tree, disk: &str) -> Tree {
    for name in std::fs::read_dir(tree.path().join("sys/block")).unwrap() {
        let name = name.unwrap();
        if name.file_name() != disk {
            std::fs::remove_dir_all(name.path()).unwrap();
        }
    }
    tree
}

fn read(tree: &Tree) -> Reader {
    let mut reader = Reader::new(tree.source("health"));
    reader.read().unwrap();
    reader
}

fn check(reader: &Reader, disk: &str, expect: &[(&str, Option<f64>)]) {
    for (name, value) in expect {
        let got = reader.number(&format!("health.{name}{{device={disk}}}"));
        assert_eq!(got, *value, "{name} of {disk}");
    }
}

fn missing(reader: &Reader, what: &str) -> MissingPart {
    let missing = reader.source.report().missing;
    let (kind, disk) = what.rsplit_once(' ').unwrap();
    let is = |m: &&MissingPart| {
        let disks = m
            .what
            .strip_prefix(kind)
            .map(|disks| disks.trim().split(", "));
        disks.is_some_and(|mut disks| disks.any(|d| d == disk))
    };
    let found = missing.iter().find(is);
    found
        .unwrap_or_else(|| panic!("no {what} in {missing:?}"))
        .clone()
}

#[test]
fn nvme_drives() {
    let tree = nvme_four();
    let reader = read(&tree);
    check(
        &reader,
        "nvme0n1",
        &[
            ("ok.flag", Some(1.0)),
            ("temperature.celsius", Some(34.0)),
            ("wear.ratio", Some(0.03)),
            ("spare.ratio", Some(1.0)),
            // A data unit is 1000 blocks of 512 bytes.
            ("read.blocks", Some(62_679_808_000.0)),
            ("write.blocks", Some(639_454_618_000.0)),
            ("power_on.seconds", Some(4369.0 * 3600.0)),
            ("power_cycles.count", Some(4.0)),
            ("media.errors.count", Some(0.0)),
            ("unsafe_shutdowns.count", Some(1.0)),
            ("critical.count", Some(0.0)),
            ("total.blocks", Some(7_501_476_528.0)),
            // A counter that no NVMe drive has is not invented.
            ("bad.blocks", None),
        ],
    );
    // A worn drive: more than the rated endurance, hardly any spare, two warnings (bits 0 and 2).
    check(
        &reader,
        "nvme1n1",
        &[
            ("ok.flag", Some(0.0)),
            ("wear.ratio", Some(1.12)),
            ("spare.ratio", Some(0.04)),
            ("critical.count", Some(2.0)),
        ],
    );
    check(
        &reader,
        "nvme2n1",
        &[
            ("ok.flag", Some(1.0)),
            ("media.errors.count", Some(17.0)),
            ("logged.errors.count", Some(29.0)),
        ],
    );
    let sees = reader.source.report().sees;
    assert!(
        sees.starts_with("the health of 4 of 4 disks: nvme0n1 (SMART, 34 °C)"),
        "{sees}"
    );
    assert!(
        missing(&reader, "bad blocks of nvme0n1")
            .why
            .contains("counts none")
    );
    assert_eq!(
        reader.source.report().missing.len(),
        1,
        "one entry for all of them"
    );
}

#[test]
fn disks_of_a_raid() {
    let tree = hdd_raid();
    let reader = read(&tree);
    check(
        &reader,
        "sda",
        &[
            ("bad.blocks", Some(0.0)),
            ("total.blocks", Some(7_814_037_168.0)),
            // From the statistics log, in sectors of 512 bytes.
            ("read.blocks", Some(220_918_004_736.0)),
            ("write.blocks", Some(178_112_004_096.0)),
            ("temperature.celsius", Some(31.0)),
            ("wear.ratio", None),
            ("unsafe_shutdowns.count", None),
        ],
    );
    // 24 reallocated and 8 pending; the 5 uncorrectable offline ones are among the pending.
    check(
        &reader,
        "sdd",
        &[
            ("bad.blocks", Some(32.0)),
            ("media.errors.count", Some(11.0)),
            ("ok.flag", Some(1.0)),
        ],
    );
    // A disk without a statistics log.
    check(
        &reader,
        "sde",
        &[
            ("bad.blocks", Some(0.0)),
            ("read.blocks", None),
            ("write.blocks", None),
        ],
    );
    check(
        &reader,
        "sdg",
        &[
            ("wear.ratio", Some(0.17)),
            ("read.blocks", Some(20_344.0 * 2_097_152.0)),
            ("write.blocks", Some(52_110.0 * 2_097_152.0)),
            ("unsafe_shutdowns.count", Some(19.0)),
            ("media.errors.count", Some(0.0)),
        ],
    );
    // The disk sleeps: neither smartctl nor the sensor may wake it, but the array's list of bad
    // blocks can be read.
    let told = ["bad.blocks", "source.name", "total.blocks"];
    assert_eq!(
        reader.streams("device=sdf"),
        told.map(|fact| format!("health.{fact}{{device=sdf}}"))
    );
    assert!(missing(&reader, "SMART of sdf").why.contains("sleeps"));
    // No program asks these disks, so that it is unknown whether they sleep; the sensor of the one
    // that has one is not read.
    assert_eq!(reader.streams("device=sdh"), [""; 0]);
    assert_eq!(reader.streams("device=sdi"), [""; 0]);
    let nobody = missing(&reader, "SMART of sdh");
    assert_eq!(nobody.what, "SMART of sdh, sdi, sdj, sdk");
    assert!(
        nobody.remedy.contains("barograph-helper.socket"),
        "{nobody:?}"
    );
}

/// A sensor that may keep a spinning disk awake is read only if the disk was just found awake.
#[test]
fn the_sensor_of_a_disk_that_turns() {
    let known = r#"{"json_format_version":[1,0],"smart_status":{"passed":true}}"#;
    let of = |tree: &Tree, skip: &[&str]| {
        let mut config = tree.config();
        config.health.skip = skip.iter().map(|p| (*p).to_owned()).collect();
        let mut reader = Reader::new(crate::support::source(&config, "health"));
        reader.read().unwrap();
        reader.number("health.temperature.celsius{device=sdh}")
    };
    let tree = alone(hdd_raid(), "sdh");
    assert_eq!(of(&tree, &[]), None, "not asked");
    tree.write("commands/smartctl.sdh", known);
    assert_eq!(of(&tree, &[]), Some(27.0), "awake");
    assert_eq!(of(&tree, &["sdh"]), None, "left out");
    tree.write("sys/block/sdh/queue/rotational", "0\n");
    assert_eq!(of(&tree, &["sdh"]), Some(27.0), "one that does not turn");
}

/// The streams of a sleeping disk stay; those of a removed one end.
#[test]
fn sleep_and_removal() {
    let tree = hdd_raid();
    let mut reader = read(&tree);
    let streams = reader.streams("device=sdb").len();
    let asleep = tree.read("commands/smartctl.sdf");
    tree.write("commands/smartctl.sdb", asleep);
    reader.read().unwrap();
    assert_eq!(reader.streams("device=sdb").len(), streams);
    assert_eq!(
        reader.number("health.temperature.celsius{device=sdb}"),
        None
    );
    std::fs::remove_dir_all(tree.path().join("sys/block/sdb")).unwrap();
    reader.read().unwrap();
    assert_eq!(reader.streams("device=sdb"), [""; 0]);
}

/// Values from a disk end after three failed questions of any kind; values from the kernel do not.
#[test]
fn what_a_disk_said_does_not_outlive_its_silence() {
    let nothing = r#"{"json_format_version":[1,0],"smartctl":{"exit_status":2}}"#;
    // A disk without any values is asked at every tenth poll.
    for (answer, reads) in [(Some("garbage"), 3), (Some(nothing), 21), (None, 3)] {
        let tree = alone(nvme_four(), "nvme0n1");
        let path = "commands/smartctl.nvme0n1";
        let whole = tree.read(path);
        let mut reader = read(&tree);
        match answer {
            Some(answer) => tree.write(path, answer),
            None => std::fs::remove_file(tree.path().join(path)).unwrap(),
        }
        let before = reader.streams("device=nvme0n1");
        for _ in 1..reads {
            let _ = reader.read();
        }
        assert_eq!(reader.streams("device=nvme0n1"), before, "{answer:?}");
        let _ = reader.read();
        let kernels = ["source.name", "temperature.celsius", "total.blocks"];
        assert_eq!(
            reader.streams("device=nvme0n1"),
            kernels.map(|fact| format!("health.{fact}{{device=nvme0n1}}")),
            "{answer:?}"
        );
        let sees = reader.source.report().sees;
        assert!(sees.contains("nvme0n1 (the kernel"), "{sees}");
        std::fs::remove_file(
            tree.path()
                .join("sys/block/nvme0n1/device/hwmon1/temp1_input"),
        )
        .unwrap();
        let _ = reader.read();
        assert_eq!(reader.streams("device=nvme0n1"), [""; 0], "{answer:?}");
        tree.write(path, whole);
        for _ in 0..10 {
            let _ = reader.read();
        }
        check(&reader, "nvme0n1", &[("ok.flag", Some(1.0))]);
    }
}

#[test]
fn without_smart_what_the_kernel_has() {
    let tree = Tree::of("empty");
    let write = |path: &str, text: &str| tree.write(&format!("sys/block/{path}"), text);
    for disk in [
        "nvme0n1", "nvme1n1", "pmem0", "sda", "vda", "vdb", "sdq", "nvme9n1",
    ] {
        write(&format!("{disk}/size"), "1000000\n");
    }
    // Sensors of a drive with one controller, of one with two, and of a kernel before 5.15.
    write("nvme0n1/device/hwmon3/temp1_input", "34850\n");
    write("nvme1n1/device/nvme1/hwmon4/temp1_input", "-1500\n");
    write("nvme9n1/device/device/hwmon/hwmon5/temp1_input", "40000\n");
    write("sda/device/hwmon/hwmon2/temp1_input", "garbage\n");
    write("pmem0/badblocks", "4096 8\n8192 16\n");
    // Members of an array: a partition and a whole disk.
    write("sda/sda2/partition", "2\n");
    write("md0/md/dev-sda2/bad_blocks", "100 3\n");
    write("md0/md/dev-nvme0n1/bad_blocks", "");
    write("sdq/device/vendor", "QEMU    \n");
    // These are no disks: a stacked device, a drive without a medium, a path below a multipath
    // drive.
    write("dm-0/size", "1000000\n");
    write("sdz/size", "0\n");
    write("nvme0c0n1/size", "1000000\n");
    write("nvme0c0n1/hidden", "1\n");
    let reader = read(&tree);
    check(
        &reader,
        "nvme0n1",
        &[
            ("temperature.celsius", Some(34.85)),
            ("bad.blocks", Some(0.0)),
            ("ok.flag", None),
        ],
    );
    check(
        &reader,
        "nvme1n1",
        &[("temperature.celsius", Some(-1.5)), ("bad.blocks", None)],
    );
    check(&reader, "nvme9n1", &[("temperature.celsius", Some(40.0))]);
    check(
        &reader,
        "pmem0",
        &[
            ("bad.blocks", Some(24.0)),
            ("total.blocks", Some(1_000_000.0)),
        ],
    );
    check(
        &reader,
        "sda",
        &[("bad.blocks", Some(3.0)), ("temperature.celsius", None)],
    );
    assert_eq!(reader.streams("device=vd"), [""; 0]);
    for disk in ["vda", "vdb", "sdq"] {
        assert!(
            missing(&reader, &format!("SMART of {disk}"))
                .why
                .contains("virtual")
        );
    }
    for none in ["dm-0", "md0", "sdz", "nvme0c0n1"] {
        let report = format!("{:?}", reader.source.report());
        assert!(!report.contains(none), "{none}: {report}");
    }
}

/// A list of bad blocks that fills a page may be incomplete.
#[test]
fn a_full_list_is_called_one() {
    let tree = Tree::of("empty");
    tree.write("sys/block/pmem0/size", "1000000\n");
    let list = "12345678 8\n".repeat(400);
    tree.write("sys/block/pmem0/badblocks", &list[..4095]);
    let reader = read(&tree);
    // 4095 bytes are 372 whole lines of 11.
    check(&reader, "pmem0", &[("bad.blocks", Some(372.0 * 8.0))]);
    assert!(
        missing(&reader, "bad blocks of pmem0")
            .why
            .contains("one page")
    );
}

#[test]
fn disks_can_be_left_out() {
    let tree = nvme_four();
    let mut config = tree.config();
    config.health.skip = vec!["nvme[01]*".to_owned(), "nvme0*".to_owned()];
    let mut reader = Reader::new(crate::support::source(&config, "health"));
    reader.read().unwrap();
    assert!(
        missing(&reader, "SMART of nvme0n1")
            .remedy
            .contains("sources.health.skip")
    );
    check(
        &reader,
        "nvme0n1",
        &[("temperature.celsius", Some(34.85)), ("ok.flag", None)],
    );
    check(&reader, "nvme2n1", &[("ok.flag", Some(1.0))]);
}

/// A disk without any values is not asked every minute, but is asked again later.
#[test]
fn what_was_vain_is_tried_again_later() {
    let tree = nvme_four();
    let whole = tree.read("commands/smartctl.nvme0n1");
    tree.write(
        "commands/smartctl.nvme0n1",
        r#"{"json_format_version":[1,0],"smartctl":{"messages":[{"string":"/dev/nvme0n1: Unable to detect device type","severity":"error"}],"exit_status":1}}"#,
    );
    let mut reader = read(&tree);
    let why = missing(&reader, "SMART of nvme0n1").why;
    assert_eq!(why, "/dev/nvme0n1: Unable to detect device type");
    tree.write("commands/smartctl.nvme0n1", whole);
    for _ in 0..9 {
        reader.read().unwrap();
        check(&reader, "nvme0n1", &[("ok.flag", None)]);
    }
    reader.read().unwrap();
    check(&reader, "nvme0n1", &[("ok.flag", Some(1.0))]);
}

fn samples(reader: &Reader) -> BTreeMap<String, Sample> {
    let named =
        |(id, sample): &(_, Sample)| Some((reader.names.get(id)?.to_string(), sample.clone()));
    reader.batch.samples().iter().filter_map(named).collect()
}

/// Cut JSON is invalid: no value of it is used, and the fault names the disk. (The other recordings
/// are cut at every byte in the parser's own tests.)
#[test]
fn answers_cut_at_every_byte() {
    let tree = alone(nvme_four(), "nvme1n1");
    let path = "commands/smartctl.nvme1n1";
    let whole = tree.read(path);
    let mut reader = read(&tree);
    for end in 0..whole.len() - 1 {
        tree.write(path, &whole[..end]);
        let fault = reader.read().unwrap_err();
        let is_named = matches!(
            &fault,
            SourceError::Format { what, .. } if what == "smartctl of nvme1n1"
        );
        assert!(is_named, "cut at {end}: {fault}");
        let got = samples(&reader);
        assert!(
            !got.keys().any(|name| name.contains("wear")),
            "cut at {end}"
        );
    }
    tree.write(path, &whole);
    reader.read().unwrap();
}

/// Every number is replaced by others: there is no panic, no value outside a stream's range, and
/// only the streams of that number change.
#[test]
fn answers_with_other_numbers() {
    let others = [
        "-1",
        "1.5",
        "1,5",
        "1e300",
        "9223372036854775808",
        "99999999999999999999999",
        "null",
        "\"7\"",
        "[]",
        "{}",
    ];
    for (tree, disk) in [(nvme_four(), "nvme2n1"), (hdd_raid(), "sdd")] {
        let tree = alone(tree, disk);
        let path = format!("commands/smartctl.{disk}");
        let whole = String::from_utf8(tree.read(&path)).unwrap();
        let mut reader = read(&tree);
        let bytes = whole.as_bytes();
        let starts = (1..bytes.len()).filter(|at| {
            bytes[*at].is_ascii_digit() && matches!(bytes[at - 1], b':' | b',' | b'[')
        });
        for start in starts {
            let digits = bytes[start..]
                .iter()
                .take_while(|b| b.is_ascii_digit())
                .count();
            for other in others {
                let text = format!("{}{other}{}", &whole[..start], &whole[start + digits..]);
                tree.write(&path, text);
                let _ = reader.read();
                let _ = reader.source.report();
                for (name, sample) in samples(&reader) {
                    let value = sample.value.as_f64().unwrap_or(0.0);
                    let is_sane = value.is_finite() && (value >= 0.0 || name.contains("celsius"));
                    assert!(is_sane, "{name} is {value} for {other} at byte {start}");
                }
            }
        }
    }
}

#[test]
fn garbage_for_an_answer() {
    let tree = nvme_four();
    let path = "commands/smartctl.nvme0n1";
    let whole = tree.read(path);
    let mut reader = read(&tree);
    let garbage: [&[u8]; 8] = [
        b"",
        b"\0\0\0",
        b"\xff\xfe",
        b"smartctl 7.4 2023-08-01 r5530 [x86_64-linux] (local build)\nSMART overall-health: PASSED\n",
        b"{\"json_format_version\":[2,0]}",
        b"{\"json_format_version\":\"1\"}",
        b"[1,2,3]",
        &[b'['; 100_000],
    ];
    for bad in garbage {
        tree.write(path, bad);
        let fault = reader.read().unwrap_err().to_string();
        assert!(fault.contains("smartctl of nvme0n1"), "{fault}");
        // The temperature comes from the sensor instead.
        check(
            &reader,
            "nvme0n1",
            &[("temperature.celsius", Some(34.85)), ("ok.flag", None)],
        );
        check(&reader, "nvme3n1", &[("ok.flag", Some(1.0))]);
    }
    tree.write(path, whole);
    reader.read().unwrap();
    check(&reader, "nvme0n1", &[("temperature.celsius", Some(34.0))]);
}

/// Sensors and lists that are cut or nonsense give no value; for lists a fault is reported.
#[test]
fn kernel_files_cut_at_every_byte() {
    let tree = Tree::of("empty");
    tree.write("sys/block/pmem0/size", "1000000\n");
    tree.write("sys/block/pmem0/device/hwmon1/temp1_input", "34850\n");
    let list = "4096 8\n8192 16\n";
    tree.write("sys/block/pmem0/badblocks", list);
    let mut reader = read(&tree);
    let whole = samples(&reader);
    for end in 0..list.len() {
        tree.write("sys/block/pmem0/badblocks", &list[..end]);
        let result = reader.read();
        let got = samples(&reader)
            .get("health.bad.blocks{device=pmem0}")
            .cloned();
        match end {
            0 => assert_eq!(got.unwrap().value.as_f64(), Some(0.0)),
            7 => assert_eq!(got.unwrap().value.as_f64(), Some(8.0)),
            _ => assert!(got.is_none() && result.is_err(), "cut at {end}"),
        }
    }
    tree.write("sys/block/pmem0/badblocks", list);
    for end in 0..6 {
        tree.write(
            "sys/block/pmem0/device/hwmon1/temp1_input",
            &"34850\n"[..end],
        );
        reader.read().unwrap();
        assert_eq!(
            reader.number("health.temperature.celsius{device=pmem0}"),
            None
        );
    }
    assert!(whole.contains_key("health.temperature.celsius{device=pmem0}"));
}

#[test]
fn too_many_disks_are_counted() {
    let tree = Tree::of("empty");
    for disk in 0..260 {
        tree.write(&format!("sys/block/pmem{disk}/size"), "8\n");
    }
    let mut reader = Reader::new(tree.source("health"));
    let fault = reader.read().unwrap_err().to_string();
    assert_eq!(fault, "4 disks were left out: the limit is 256");
}

/// On the machine that runs the tests, missing data has reasons.
#[test]
fn the_real_machine() {
    let mut config = barograph_source::SourcesConfig::default();
    config.helper.socket = "/nonexistent/helper.sock".into();
    let mut reader = Reader::new(crate::support::source(&config, "health"));
    reader.read().unwrap();
    let report = reader.source.report();
    assert!(report.sees.contains("disk"), "{report:?}");
    for missing in report.missing {
        assert!(
            !missing.why.is_empty() && !missing.remedy.is_empty(),
            "{missing:?}"
        );
    }
}

//! Tests of devices, mounts and groups that come and go between polls.

use barograph_model::NS_PER_S;

use crate::support::{Reader, Tree};

const DISK_LINE: &str = "   8       0 sda 1 0 8 1 1 0 8 1 0 1 1\n";

#[test]
fn a_disk_comes_and_goes() {
    let tree = Tree::of("nvme-v2");
    let list = tree.read("proc/diskstats");
    let mut reader = Reader::new(tree.source("disk"));
    reader.read().unwrap();
    assert!(reader.streams("device=sda").is_empty());
    let with: Vec<u8> = [&list[..], DISK_LINE.as_bytes()].concat();
    tree.write("sys/block/sda/size", "100\n");
    tree.write("proc/diskstats", &with);
    reader.read().unwrap();
    let streams = reader.streams("device=sda");
    assert!(
        streams.contains(&"disk.read.bytes{device=sda}".to_owned()),
        "{streams:?}"
    );
    // A cut list does not contain the disk, but the disk may still exist.
    tree.write("proc/diskstats", &with[..with.len() - 10]);
    assert!(reader.read().is_err());
    assert_eq!(reader.streams("device=sda"), streams);
    tree.write("proc/diskstats", &list);
    reader.read().unwrap();
    assert!(reader.streams("device=sda").is_empty());
    assert!(!reader.streams("device=nvme0n1").is_empty());
    tree.write("proc/diskstats", &with);
    reader.read().unwrap();
    assert!(!reader.streams("device=sda").is_empty());
}

#[test]
fn a_loop_device_has_streams_from_its_first_use() {
    let tree = Tree::of("nvme-v2");
    let list = String::from_utf8(tree.read("proc/diskstats")).unwrap();
    let mut config = tree.config();
    config.disk.skip.clear();
    let mut reader = Reader::new(crate::support::source(&config, "disk"));
    reader.read().unwrap();
    assert!(
        !reader.streams("device=dm-0").is_empty(),
        "nothing is left out now"
    );
    assert!(reader.streams("device=loop0").is_empty());
    assert!(reader.source.report().sees.contains("never used: loop0"));
    tree.write("sys/block/loop0/size", "100\n");
    tree.write("proc/diskstats", list.replace("loop0 0 0 0", "loop0 1 0 8"));
    reader.read().unwrap();
    assert!(!reader.streams("device=loop0").is_empty());
}

#[test]
fn a_counter_that_goes_back_gives_no_rate_for_its_step() {
    let tree = Tree::of("hdd-v1");
    let rate = "disk.read.bytes_per_second{device=sdb}";
    let mut reader = Reader::new(tree.source("disk"));
    reader.read().unwrap();
    reader.read().unwrap();
    assert_eq!(reader.number(rate), Some(0.0));
    tree.advance();
    reader.read().unwrap();
    assert_eq!(reader.number(rate), None);
    assert_eq!(
        reader.number("disk.read.bytes{device=sdb}"),
        Some(80.0 * 512.0)
    );
    reader.read().unwrap();
    assert_eq!(reader.number(rate), Some(0.0));
}

#[test]
fn a_mount_and_an_interface_come_and_go() {
    let tree = Tree::of("nvme-v2");
    let mut mounts = Reader::new(tree.source("filesystem"));
    mounts.read().unwrap();
    assert!(!mounts.streams("mount=/home").is_empty() && mounts.streams("/media").is_empty());
    tree.advance();
    mounts.read().unwrap();
    assert!(mounts.streams("mount=/home").is_empty() && !mounts.streams("/media").is_empty());

    let list = String::from_utf8(tree.read("proc/net/dev")).unwrap();
    let mut network = Reader::new(tree.source("network"));
    network.read().unwrap();
    assert!(!network.streams("device=ib0").is_empty());
    let without: Vec<&str> = list.lines().filter(|l| !l.contains("ib0")).collect();
    tree.write("proc/net/dev", without.join("\n") + "\n");
    network.read().unwrap();
    assert!(network.streams("device=ib0").is_empty());
}

#[test]
fn groups_come_and_go() {
    let tree = Tree::of("nvme-v2");
    let mut reader = Reader::new(tree.source("cgroup"));
    let step_ns = 10 * NS_PER_S;
    reader.read_after(step_ns).unwrap();
    assert!(
        reader
            .streams("cgroup=/system.slice/idle.service")
            .is_empty()
    );
    assert!(!reader.streams("cgroup=/system.slice/db.service").is_empty());
    let base = tree.path().join("sys/fs/cgroup");
    std::fs::remove_dir_all(base.join("system.slice/db.service")).unwrap();
    tree.write(
        "sys/fs/cgroup/system.slice/idle.service/io.stat",
        "259:0 rbytes=1 rios=1\n",
    );
    tree.write(
        "sys/fs/cgroup/system.slice/new/io.stat",
        "259:0 rbytes=1 rios=1\n",
    );
    reader.read_after(step_ns).unwrap();
    assert!(reader.streams("cgroup=/system.slice/db.service").is_empty());
    assert!(
        !reader
            .streams("cgroup=/system.slice/idle.service")
            .is_empty()
    );
    assert!(!reader.streams("cgroup=/system.slice/new").is_empty());
}

#[test]
fn too_many_groups_are_cut_and_said() {
    let tree = Tree::of("nvme-v2");
    for i in 0..20 {
        tree.write(&format!("sys/fs/cgroup/g{i}/io.stat"), "259:0 rbytes=1\n");
    }
    let mut config = tree.config();
    config.cgroup.groups_max = 10;
    let mut reader = Reader::new(crate::support::source(&config, "cgroup"));
    reader.read().unwrap();
    assert!(
        !reader.streams("io.read.bytes{cgroup=/}").is_empty(),
        "nearest the root first"
    );
    assert_eq!(reader.streams("cgroup.io.read.bytes{").len(), 10);
    let missing = reader.source.report().missing;
    assert!(
        missing.iter().any(|m| m.remedy.contains("groups_max")),
        "{missing:?}"
    );
}

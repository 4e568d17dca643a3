//! Tests of arrays, btrfs, zfs and the devices below file systems: values computed by hand, and
//! wrong files.

use crate::support::{Reader, Tree};

const BTRFS: &str = "0abb23a9-579b-43e6-ad30-227ef47fcb9d";
const MD0: &str = "sys/block/md0/md";

fn text(reader: &Reader, stream: &str) -> Option<String> {
    reader.get(stream).map(|sample| sample.value.to_string())
}

#[track_caller]
fn texts(reader: &Reader, expect: &[(&str, &str)]) {
    for (stream, value) in expect {
        assert_eq!(text(reader, stream).as_deref(), Some(*value), "{stream}");
    }
}

#[track_caller]
fn numbers(reader: &Reader, expect: &[(&str, f64)]) {
    for (stream, value) in expect {
        assert_eq!(reader.number(stream), Some(*value), "{stream}");
    }
}

fn after_a_second(name: &str) -> (Tree, Reader) {
    let tree = Tree::of("hdd-raid");
    let mut reader = Reader::new(tree.source(name));
    reader.read().unwrap();
    tree.advance();
    reader.read().unwrap();
    (tree, reader)
}

#[test]
fn a_raid_6_in_recovery() {
    let (_tree, reader) = after_a_second("raid");
    texts(
        &reader,
        &[
            ("raid.level.name{device=md0}", "raid6"),
            ("raid.state.name{device=md0}", "active"),
            ("raid.sync.action.name{device=md0}", "recover"),
            ("raid.member.state.name{device=md0,member=sdc}", "faulty"),
            ("raid.member.state.name{device=md0,member=sdf}", "spare"),
        ],
    );
    numbers(
        &reader,
        &[
            ("raid.devices.count{device=md0}", 5.0),
            ("raid.active.count{device=md0}", 4.0),
            ("raid.failed.count{device=md0}", 1.0),
            ("raid.spare.count{device=md0}", 0.0),
            ("raid.degraded.count{device=md0}", 1.0),
            // Three failures lose data of a whole RAID 6; one has happened.
            ("raid.replication.count{device=md0}", 2.0),
            // An eighth and 122880 KiB of 11718750208 KiB.
            (
                "raid.sync.ratio{device=md0}",
                0.125 + 122_880.0 / 11_718_750_208.0,
            ),
            (
                "raid.sync.bytes_per_second{device=md0}",
                120.0 * 1024.0 * 1024.0,
            ),
            ("raid.member.bad.blocks{device=md0,member=sdb}", 16.0),
            ("raid.member.bad.blocks{device=md0,member=sdc}", 24.0),
            ("raid.member.bad.blocks{device=md0,member=sda}", 0.0),
            ("raid.member.errors.count{device=md0,member=sdb}", 4.0),
        ],
    );
    let sees = reader.source.report().sees;
    assert_eq!(sees, "1 array: md0 (raid6, 4 of 5 in sync, recover)");
}

#[test]
fn without_sys_the_list_tells_the_rest() {
    let tree = Tree::of("hdd-raid");
    std::fs::remove_dir_all(tree.path().join("sys")).unwrap();
    let mut reader = Reader::new(tree.source("raid"));
    reader.read().unwrap();
    texts(
        &reader,
        &[
            ("raid.level.name{device=md0}", "raid6"),
            ("raid.state.name{device=md0}", "active"),
            ("raid.sync.action.name{device=md0}", "recover"),
        ],
    );
    numbers(
        &reader,
        &[
            ("raid.devices.count{device=md0}", 5.0),
            ("raid.active.count{device=md0}", 4.0),
            ("raid.failed.count{device=md0}", 1.0),
            ("raid.replication.count{device=md0}", 2.0),
            ("raid.sync.ratio{device=md0}", 0.125),
            ("raid.sync.bytes_per_second{device=md0}", 125_829_120.0),
        ],
    );
    assert!(reader.streams("raid.member").is_empty());
    let missing = reader.source.report().missing;
    assert_eq!(missing.len(), 1, "{missing:?}");
    assert!(missing[0].what.contains("bad blocks") && missing[0].remedy.contains("/sys"));
}

#[test]
fn arrays_come_go_rest_and_stop() {
    let tree = Tree::of("hdd-raid");
    let mut reader = Reader::new(tree.source("raid"));
    reader.read().unwrap();
    // The rebuild is done: no action is in progress, so it has no progress.
    tree.write(&format!("{MD0}/sync_action"), "idle\n");
    tree.write(&format!("{MD0}/sync_completed"), "none\n");
    tree.write(&format!("{MD0}/sync_speed"), "none\n");
    tree.write(&format!("{MD0}/degraded"), "0\n");
    reader.read().unwrap();
    numbers(&reader, &[("raid.replication.count{device=md0}", 3.0)]);
    texts(&reader, &[("raid.sync.action.name{device=md0}", "idle")]);
    assert!(reader.streams("sync.ratio").is_empty() && reader.streams("sync.bytes").is_empty());
    // The array is broken.
    tree.write(&format!("{MD0}/array_state"), "broken\n");
    reader.read().unwrap();
    numbers(&reader, &[("raid.replication.count{device=md0}", 0.0)]);
    // A member is removed, and a second array is stopped.
    let list = "Personalities : [raid6] \n\
        md0 : active raid6 sdf[5] sde[4] sdd[3] sdb[1] sda[0]\n      1 blocks [5/5] [UUUUU]\n\n\
        md7 : inactive sdx[0](S)\n      9 blocks super 1.2\n\nunused devices: <none>\n";
    tree.write("proc/mdstat", list);
    reader.read().unwrap();
    assert!(reader.streams("member=sdc").is_empty());
    texts(&reader, &[("raid.state.name{device=md7}", "inactive")]);
    assert_eq!(
        reader.streams("{device=md7}").len(),
        3,
        "{:?}",
        reader.streams("md7")
    );
    // A list that breaks off proves nothing about arrays that it does not name.
    tree.write("proc/mdstat", "Personalities : [raid6] \n");
    assert!(reader.read().is_err());
    assert!(!reader.streams("{device=md0}").is_empty());
    tree.write("proc/mdstat", "Personalities : \nunused devices: <none>\n");
    reader.read().unwrap();
    assert!(reader.names.is_empty());
    assert_eq!(reader.source.report().sees, "no software RAID");
}

#[test]
fn bad_blocks_that_the_kernel_cut() {
    let tree = Tree::of("hdd-raid");
    let path = format!("{MD0}/dev-sda/bad_blocks");
    let stream = "raid.member.bad.blocks{device=md0,member=sda}";
    let full: String = (0..1000)
        .map(|i| format!("{} 8\n", 1_000_000 + 16 * i))
        .collect();
    tree.write(&path, &full[..4095]);
    let mut reader = Reader::new(tree.source("raid"));
    reader.read().unwrap();
    let whole_lines = full[..4095].matches('\n').count();
    numbers(&reader, &[(stream, 8.0 * whole_lines as f64)]);
    let missing = reader.source.report().missing;
    assert!(
        missing[0].what.contains("bad blocks of sda in md0"),
        "{missing:?}"
    );
    // A list that is cut elsewhere is refused.
    for end in 1..24 {
        tree.write(&path, &full[..end]);
        let mut reader = Reader::new(tree.source("raid"));
        reader.read().unwrap();
        let whole = full[..end].ends_with('\n');
        let lines = full[..end].matches('\n').count() as f64;
        assert_eq!(reader.number(stream), whole.then_some(8.0 * lines), "{end}");
    }
    // Metadata without a list of bad blocks.
    tree.write(&format!("{MD0}/metadata_version"), "0.90\n");
    let mut reader = Reader::new(tree.source("raid"));
    reader.read().unwrap();
    assert!(reader.streams("bad.blocks").is_empty());
}

#[test]
fn too_many_arrays_are_counted() {
    let tree = Tree::of("empty");
    let arrays: String = (0..300)
        .map(|i| format!("md{i} : active raid0 sda[0]\n"))
        .collect();
    tree.write("proc/mdstat", format!("{arrays}unused devices: <none>\n"));
    let mut reader = Reader::new(tree.source("raid"));
    let fault = reader.read().unwrap_err().to_string();
    assert!(fault.contains("44 RAID arrays"), "{fault}");
}

#[test]
fn a_btrfs_mirror() {
    let (tree, reader) = after_a_second("btrfs");
    let of = |fact: &str| format!("btrfs.{fact}{{filesystem={BTRFS}}}");
    let gib = f64::from(1 << 30);
    let expect = [
        ("devices.count", 2.0),
        ("missing.count", 0.0),
        ("data.total.bytes", 2000.0 * gib),
        ("data.used.bytes", 1500.0 * gib + 10_485_760.0),
        ("metadata.total.bytes", 8.0 * gib),
        ("metadata.used.bytes", 3.0 * gib + 16_384.0),
        ("system.used.bytes", 327_680.0),
        ("replication.count", 2.0),
        ("errors.count", 8.0),
        ("commits.count", 81_201.0),
        ("commit.last.seconds", 0.5),
        ("commit.max.seconds", 4.0),
        ("commit.seconds", 9000.5),
    ];
    for (fact, value) in expect {
        assert_eq!(reader.number(&of(fact)), Some(value), "{fact}");
    }
    texts(
        &reader,
        &[
            (&of("label.name"), "archive"),
            (&of("profile.name"), "raid1"),
            (&of("exclusive.name"), "none"),
        ],
    );
    let member = format!("btrfs.member.corruption_errors.count{{filesystem={BTRFS},member=2}}");
    numbers(&reader, &[(&member, 6.0)]);

    // A device is missing; the errors of the other are not read yet.
    let mut reader = reader;
    let dir = format!("sys/fs/btrfs/{BTRFS}/devinfo");
    tree.write(&format!("{dir}/2/missing"), "1\n");
    tree.write(&format!("{dir}/1/error_stats"), "invalid\n");
    reader.read().unwrap();
    numbers(
        &reader,
        &[(&of("missing.count"), 1.0), (&of("replication.count"), 1.0)],
    );
    assert_eq!(reader.number(&of("errors.count")), None);
    assert!(
        reader.source.report().missing[0]
            .what
            .contains("1 device of archive")
    );

    // The file system is unmounted: it is gone at the next scan, which the failed read causes.
    std::fs::remove_dir_all(tree.path().join(format!("sys/fs/btrfs/{BTRFS}"))).unwrap();
    reader = Reader::new(tree.source("btrfs"));
    reader.read().unwrap();
    assert!(reader.names.is_empty());
    assert_eq!(reader.source.report().sees, "no mounted btrfs");
}

#[test]
fn profiles_in_conversion_count_as_the_weakest() {
    let tree = Tree::of("hdd-raid");
    tree.write(
        &format!("sys/fs/btrfs/{BTRFS}/allocation/data/single/total_bytes"),
        "1\n",
    );
    let mut reader = Reader::new(tree.source("btrfs"));
    reader.read().unwrap();
    texts(
        &reader,
        &[(
            &format!("btrfs.profile.name{{filesystem={BTRFS}}}"),
            "single+raid1",
        )],
    );
    numbers(
        &reader,
        &[(
            &format!("btrfs.replication.count{{filesystem={BTRFS}}}"),
            1.0,
        )],
    );
}

#[test]
fn a_zfs_pool() {
    let (tree, mut reader) = after_a_second("zfs");
    texts(
        &reader,
        &[
            ("zfs.state.name{pool=tank}", "ONLINE"),
            ("zfs.healthy.flag{pool=tank}", "true"),
        ],
    );
    numbers(
        &reader,
        &[
            ("zfs.arc.size.bytes", 17_001_048_576.0),
            ("zfs.arc.target.bytes", 17_179_869_184.0),
            ("zfs.arc.hits.count", 50_000_900.0),
            ("zfs.arc.misses.count", 1_000_100.0),
            (
                "zfs.dataset.read.bytes{dataset=tank/home,pool=tank}",
                70_013_107_200.0,
            ),
            (
                "zfs.dataset.read.ops{dataset=tank/home,pool=tank}",
                900_100.0,
            ),
            (
                "zfs.dataset.unlinked.count{dataset=tank/home,pool=tank}",
                1201.0,
            ),
        ],
    );
    assert!(
        reader.streams("zfs.read.bytes").is_empty(),
        "only an old zfs tells"
    );

    // The pool is degraded, a dataset is renamed, and there is the kstat of an old zfs.
    let top = "proc/spl/kstat/zfs/tank";
    tree.write(&format!("{top}/state"), "DEGRADED\n");
    let renamed = String::from_utf8(tree.read(&format!("{top}/objset-0x183"))).unwrap();
    tree.write(
        &format!("{top}/objset-0x183"),
        renamed.replace("tank/home", "tank/my data"),
    );
    tree.write(
        &format!("{top}/io"),
        "11 3 0x00 1 80 1 2\nnread    nwritten reads    writes   wtime\n1000  2000  30 40 5\n",
    );
    reader.read().unwrap();
    texts(
        &reader,
        &[
            ("zfs.state.name{pool=tank}", "DEGRADED"),
            ("zfs.healthy.flag{pool=tank}", "false"),
        ],
    );
    numbers(
        &reader,
        &[
            ("zfs.read.bytes{pool=tank}", 1000.0),
            ("zfs.write.bytes{pool=tank}", 2000.0),
            ("zfs.read.ops{pool=tank}", 30.0),
            ("zfs.write.ops{pool=tank}", 40.0),
            (
                "zfs.dataset.read.ops{dataset=tank/my data,pool=tank}",
                900_100.0,
            ),
        ],
    );
    assert!(reader.streams("tank/home").is_empty());

    // The module is unloaded.
    std::fs::remove_dir_all(tree.path().join("proc/spl")).unwrap();
    let mut reader = Reader::new(tree.source("zfs"));
    reader.read().unwrap();
    assert!(reader.names.is_empty());
}

#[test]
fn what_file_systems_stand_on() {
    let (tree, mut reader) = after_a_second("filesystem");
    let of = |fact: &str, mount: &str, device: &str, fstype: &str, tier: &str| {
        format!("filesystem.{fact}{{device={device},fstype={fstype},mount={mount},tier={tier}}}")
    };
    drop(reader);
    reader = Reader::new(tree.source("filesystem"));
    reader.read().unwrap();
    let export = |fact: &str| of(fact, "/export", "md0", "xfs", "hdd");
    texts(
        &reader,
        &[
            (&export("raid.name"), "raid6"),
            (&export("compression.name"), "none"),
        ],
    );
    numbers(
        &reader,
        &[
            (&export("devices.count"), 6.0),
            (&export("block.bytes"), 4096.0),
        ],
    );
    let archive = |fact: &str| of(fact, "/archive", "sdh", "btrfs", "hdd");
    texts(
        &reader,
        &[
            (&archive("raid.name"), "raid1"),
            (&archive("compression.name"), "zstd:3"),
        ],
    );
    numbers(&reader, &[(&archive("devices.count"), 2.0)]);
    let root = |fact: &str| of(fact, "/", "sdg2", "ext4", "ssd");
    texts(
        &reader,
        &[
            (&root("raid.name"), "none"),
            (&root("compression.name"), "none"),
        ],
    );
    numbers(&reader, &[(&root("devices.count"), 1.0)]);
    for fact in ["raid.name", "compression.name", "devices.count"] {
        assert!(
            reader
                .streams(&format!("filesystem.{fact}"))
                .iter()
                .all(|s| !s.contains("tank"))
        );
    }
    let missing = reader.source.report().missing;
    assert!(
        missing
            .iter()
            .any(|m| m.what.contains("/tank") && m.remedy.contains("zpool")),
        "{missing:?}"
    );

    // The file system is remounted with another algorithm: the streams continue.
    let mounts = String::from_utf8(tree.read("proc/self/mountinfo")).unwrap();
    tree.write(
        "proc/self/mountinfo",
        mounts.replace("compress=zstd:3", "compress=lzo"),
    );
    reader.read().unwrap();
    assert!(reader.batch.retired().is_empty());
    texts(&reader, &[(&archive("compression.name"), "lzo")]);
}

/// On the machine that runs the tests, with any of these or none.
#[test]
fn the_real_machine_is_read_without_fault() {
    for name in ["raid", "btrfs", "zfs", "filesystem"] {
        let config = barograph_source::SourcesConfig::default();
        let mut reader = Reader::new(crate::support::source(&config, name));
        for _ in 0..3 {
            let result = reader.read();
            let rendered = reader.render(result, std::path::Path::new("/nowhere"));
            assert!(!rendered.contains("fault:"), "{rendered}");
        }
    }
}

/// Every file of the three sources is cut at every byte: all values are those of the whole files,
/// except sums of lists of bad blocks, where an absent line is not noticed.
#[test]
fn each_attribute_cut_at_every_byte() {
    let places = [
        ("raid", MD0.to_owned()),
        ("btrfs", format!("sys/fs/btrfs/{BTRFS}")),
        ("zfs", "proc/spl/kstat/zfs/tank".to_owned()),
    ];
    for (name, top) in places {
        let tree = Tree::of("hdd-raid");
        let mut reader = Reader::new(tree.source(name));
        reader.read().unwrap();
        let said = |reader: &Reader| {
            let result = Ok(());
            let text = reader.render(result, tree.path());
            text.lines()
                .map(str::to_owned)
                .collect::<std::collections::BTreeSet<_>>()
        };
        let whole = said(&reader);
        let mut files = Vec::new();
        files_below(&tree.path().join(&top), &mut files);
        assert!(files.len() > 3, "{top}");
        for file in files.iter().filter(|file| !file.ends_with("bad_blocks")) {
            let bytes = std::fs::read(file).unwrap();
            for end in 0..bytes.len() {
                std::fs::write(file, &bytes[..end]).unwrap();
                let mut reader = Reader::new(tree.source(name));
                let _ = reader.read();
                let more: Vec<_> = said(&reader).difference(&whole).cloned().collect();
                let is_value = |line: &&String| line.contains(" = ");
                assert_eq!(
                    more.iter().find(is_value),
                    None,
                    "{} cut at {end}",
                    file.display()
                );
            }
            std::fs::write(file, &bytes).unwrap();
        }
    }
}

fn files_below(dir: &std::path::Path, files: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => files_below(&entry.path(), files),
            false => files.push(entry.path()),
        }
    }
}

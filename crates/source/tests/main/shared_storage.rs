//! Tests of NFS, Storage Scale and BeeGFS: values computed by hand, cuts at every line, and a
//! comparison with the `procfs` crate.

use std::io::BufRead as _;

use procfs::FromBufRead as _;

use crate::support::{Reader, Tree};

const MACHINE: &str = "nvme-v2";

fn twice(source: &str) -> Reader {
    let tree = Tree::of(MACHINE);
    let mut reader = Reader::new(tree.source(source));
    reader.read().unwrap();
    tree.advance();
    reader.read().unwrap();
    reader
}

fn check(reader: &Reader, labels: &str, expect: &[(&str, f64)]) {
    for (name, value) in expect {
        let stream = format!("{name}{{{labels}}}");
        assert_eq!(reader.number(&stream), Some(*value), "{stream}");
    }
}

#[test]
fn nfs_by_hand() {
    let reader = twice("nfs");
    let home = "device=filer:/export/home,mount=/home";
    check(
        &reader,
        home,
        &[
            ("nfs.read.bytes", 140_000_000.0),
            // 60,000,000 through the cache and 2,000,000 with direct I/O.
            ("nfs.write.bytes", 62_000_000.0),
            ("nfs.application.read.bytes", 146_000_000.0),
            ("nfs.application.write.bytes", 62_000_000.0),
            ("nfs.read.bytes_per_second", 40_000_000.0),
            ("nfs.write.bytes_per_second", 10_000_000.0),
            ("nfs.read.ops", 1100.0),
            // NULL 1, GETATTR 310, LOOKUP 100
            ("nfs.other.ops", 411.0),
            // 300 ms for 100 READs, 100 ms for 20 WRITEs, 10 ms for 10 others
            ("nfs.read.latency.seconds", 0.003),
            ("nfs.write.latency.seconds", 0.005),
            ("nfs.other.latency.seconds", 0.001),
            // 50 ms for 100, 20 ms for 20
            ("nfs.read.wait.seconds", 0.000_5),
            ("nfs.write.wait.seconds", 0.001),
            ("nfs.retransmits.count", 2.0),
            ("nfs.timeouts.count", 1.0),
            // WRITE 1, GETATTR 3, LOOKUP 40
            ("nfs.errors.count", 44.0),
            // two transports
            ("nfs.connects.count", 3.0),
        ],
    );
    let data = "device=filer:/export/my data,mount=/mnt/my data";
    check(
        &reader,
        data,
        &[("nfs.read.bytes", 4096.0), ("nfs.other.ops", 4.0)],
    );
    // UDP has no connections, version 1.0 has no errors, and there was no request in that second.
    for absent in ["connects.count", "errors.count", "read.latency.seconds"] {
        assert!(
            reader.get(&format!("nfs.{absent}{{{data}}}")).is_none(),
            "{absent}"
        );
    }
}

#[test]
fn nfs_as_the_procfs_crate_reads_it() {
    let tree = Tree::of(MACHINE);
    let mut reader = Reader::new(tree.source("nfs"));
    reader.read().unwrap();
    let text = tree.read("proc/self/mountstats");
    let theirs = procfs::process::MountStats::from_buf_read(&text[..]).unwrap();
    let mut compared = 0;
    for mount in theirs.0 {
        let Some(statistics) = mount.statistics else {
            continue;
        };
        let place = mount.mount_point.to_str().unwrap().replace("\\040", " ");
        let device = mount.device.unwrap().replace("\\040", " ");
        let labels = format!("device={device},mount={place}");
        let operation = |name: &str| statistics.per_op_stats[name].operations as f64;
        check(
            &reader,
            &labels,
            &[
                ("nfs.read.bytes", statistics.bytes.server_read as f64),
                ("nfs.write.bytes", statistics.bytes.server_write as f64),
                ("nfs.read.ops", operation("READ")),
                ("nfs.write.ops", operation("WRITE")),
            ],
        );
        compared += 1;
    }
    assert_eq!(compared, 2);
}

/// A mount whose block is cut gives no values, and the others give those of the whole file.
#[test]
fn nfs_cut_at_every_byte() {
    let tree = Tree::of(MACHINE);
    let path = "proc/self/mountstats";
    let whole = tree.read(path);
    let mut reader = Reader::new(tree.source("nfs"));
    reader.read().unwrap();
    let expect: Vec<_> = reader
        .streams("")
        .into_iter()
        .map(|s| (reader.number(&s), s))
        .collect();
    for end in 0..whole.len() {
        tree.write(path, &whole[..end]);
        let mut reader = Reader::new(tree.source("nfs"));
        let result = reader.read();
        for stream in reader.streams("") {
            let value = reader.number(&stream);
            assert!(
                expect.contains(&(value, stream.clone())),
                "cut at {end}: {stream} {value:?}"
            );
        }
        let inside = end > 0 && whole[end - 1] != b'\n';
        assert!(!inside || result.is_err(), "cut at {end} went unnoticed");
    }
}

/// A broken file ends no stream, and values read before stay.
#[test]
fn nfs_of_a_broken_file_keeps_its_streams() {
    let tree = Tree::of(MACHINE);
    let path = "proc/self/mountstats";
    let whole = tree.read(path);
    let mut reader = Reader::new(tree.source("nfs"));
    reader.read().unwrap();
    let streams = reader.streams("");
    tree.write(path, &whole[..whole.len() / 2]);
    reader.read().unwrap_err();
    assert_eq!(reader.streams(""), streams);
    tree.write(path, "device proc mounted on /proc with fstype proc\n");
    reader.read().unwrap();
    assert!(reader.streams("").is_empty());
    assert!(
        reader.source.report().missing[0]
            .why
            .contains("no NFS file system")
    );
}

#[test]
fn gpfs_by_hand() {
    let reader = twice("gpfs");
    check(
        &reader,
        "filesystem=gpfs1",
        &[
            ("gpfs.read.bytes", 8_388_608.0),
            ("gpfs.read.bytes_per_second", 2_097_152.0),
            ("gpfs.write.bytes_per_second", 10_000_000.0),
            ("gpfs.read.ops", 151.0),
            ("gpfs.write.ops", 400.0),
            ("gpfs.open.ops", 10.0),
            ("gpfs.close.ops", 9.0),
            ("gpfs.readdir.ops", 7.0),
            ("gpfs.inode.update.ops", 2.0),
        ],
    );
    assert_eq!(reader.streams("gpfs.read.ops").len(), 2);
}

#[test]
fn beegfs_by_hand() {
    let reader = twice("beegfs");
    check(
        &reader,
        "role=storage,server=oss01",
        &[
            ("beegfs.write.bytes_per_second", 4_194_304.0),
            ("beegfs.read.bytes_per_second", 524_288.0),
            ("beegfs.receive.bytes_per_second", 4_296_704.0),
            ("beegfs.send.bytes_per_second", 626_688.0),
            ("beegfs.requests.ops_per_second", 500.0),
            ("beegfs.queued.requests", 9.0),
            ("beegfs.busy.count", 12.0),
        ],
    );
    check(
        &reader,
        "role=meta,server=mds01",
        &[("beegfs.queued.requests", 5.0)],
    );
}

/// Recordings that are cut, in another language, with other columns, or no answers at all.
#[test]
fn programs_that_say_something_else() {
    let cases: [(&str, &str, &[&str]); 2] = [
        (
            "gpfs",
            "mmpmon-fs_io_s",
            &[
                "_fs_io_s_ _n_ 10.0.0.7 _nn_ n _rc_ 0 _fs_ a _br_ 1,5 _bw_ 2\n",
                "_fs_io_s_ _n_ 10.0.0.7 _nn_ n _rc_ 0 _fs_ a _br_ 1\n",
                "mmpmon: la commande a echoue\n",
                "_fs_io_s_ _rc_\n",
                "\u{fffd}\0\n",
            ],
        ),
        (
            "beegfs",
            "beegfs-ctl-serverstats-storage",
            &[
                "Knoten write_KiB read_KiB\n",
                "nodeID write_KiB name\n 1 2,5 a\n",
                "nodeID write_KiB name\n 1 a\n",
                "nodeID write_KiB reqs\n 1 2 3\n",
                "nodeID write_KiB name\n 1 -7 a\n",
            ],
        ),
    ];
    for (source, recording, wrong) in cases {
        let tree = Tree::of(MACHINE);
        let path = format!("commands/{recording}");
        let whole = tree.read(&path);
        let mut reader = Reader::new(tree.source(source));
        reader.read().unwrap();
        // The second poll gives the rates.
        reader.read().unwrap();
        let streams = reader.streams("");
        for text in wrong {
            tree.write(&path, text);
            assert!(reader.read().is_err(), "{source}: {text:?} went unnoticed");
            assert_eq!(reader.streams(""), streams, "{source}: {text:?}");
        }
        let mut at = 0;
        for line in whole.lines() {
            at += line.unwrap().len() + 1;
            tree.write(&path, &whole[..at - 1]);
            let mut reader = Reader::new(tree.source(source));
            let _ = reader.read();
            tree.write(&path, &whole[..at]);
            let _ = reader.read();
            assert!(reader.streams("").iter().all(|s| streams.contains(s)));
        }
        tree.write(&path, &whole);
        reader.read().unwrap();
    }
}

/// No mounted file system is no fault, and ends the streams.
#[test]
fn gpfs_without_a_mount() {
    let tree = Tree::of(MACHINE);
    let mut reader = Reader::new(tree.source("gpfs"));
    reader.read().unwrap();
    tree.write(
        "commands/mmpmon-fs_io_s",
        "_fs_io_s_ _n_ 10.0.0.7 _nn_ node7 _rc_ 1 _t_ 1700000000 _tu_ 407431 _cl_ - _fs_ -\n",
    );
    reader.read().unwrap();
    assert!(reader.streams("").is_empty());
    assert!(reader.source.report().missing[0].why.contains("names none"));
}

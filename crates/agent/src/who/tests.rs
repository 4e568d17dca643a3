//! Tests of the sentence about the originators of bytes.

use barograph_model::{Labels, Name, Unit, ValueType};

use super::*;

const MB: f64 = 1e6;

#[derive(Default)]
struct Bench {
    who: IoShares,
    next: u32,
}

impl Bench {
    fn stream(&mut self, name: &str, labels: &[(&str, &str)]) -> StreamKey {
        let descriptor = Descriptor {
            labels: Labels::new(labels.to_vec()).unwrap(),
            ..Descriptor::gauge(
                Name::new(name).unwrap(),
                ValueType::Float,
                Unit::new("").unwrap(),
            )
        };
        self.next += 1;
        self.who.stream_added(StreamKey(self.next), &descriptor);
        StreamKey(self.next)
    }

    fn put(&mut self, key: StreamKey, s: i64, value: f64) {
        self.who.sample(key, &Sample::measured(s * NS_PER_S, value));
    }

    fn rate(&mut self, name: &str, labels: &[(&str, &str)], value: f64) -> StreamKey {
        let key = self.stream(name, labels);
        self.put(key, 1, value);
        key
    }

    fn check(&self, s: i64, expect: &str) {
        let got = self.who.sentence(s * NS_PER_S);
        assert_eq!(got, expect);
        assert!(got.len() <= TEXT_BYTES_MAX);
    }
}

const DISK: &str = "disk.write.bytes_per_second";
const PROCESS: &str = "process.write.bytes_per_second";
const GROUP: &str = "cgroup.io.write.bytes_per_second";
const ON_DEVICE: &str = "cgroup.device.write.bytes_per_second";

#[test]
fn never_nobody_while_a_disk_moves() {
    let mut b = Bench::default();
    b.check(1, "not known: no disk has told its rates yet");
    let vda = b.rate(DISK, &[("device", "vda")], 0.0);
    b.check(1, "no disk moves anything");
    assert_eq!(b.who.behind("vda", NS_PER_S), "");
    b.put(vda, 2, 412.3 * MB);
    b.check(
        2,
        "not counted here: whose the 410 MB/s are; baro doctor says why",
    );
    assert_eq!(
        b.who.behind("vda", NS_PER_S),
        ", by whom is not counted here"
    );
    // A group without counts is no originator.
    let group = b.rate(GROUP, &[("cgroup", "/a")], 0.0);
    b.rate(GROUP, &[("cgroup", "/")], 412.0 * MB);
    b.check(
        2,
        "not counted here: whose the 410 MB/s are; baro doctor says why",
    );
    b.put(group, 3, 12.0 * MB);
    b.check(
        3,
        "/a writes 12 MB/s; whose the rest of 410 MB/s is, is not counted here",
    );
    b.put(group, 4, 400.0 * MB);
    b.check(4, "/a writes 400 MB/s");
}

#[test]
fn the_best_evidence_comes_first() {
    let mut b = Bench::default();
    b.rate(DISK, &[("device", "vda")], 500.0 * MB);
    b.rate(GROUP, &[("cgroup", "/slurm")], 500.0 * MB);
    b.rate(GROUP, &[("cgroup", "/slurm/job_7")], 500.0 * MB);
    // Of nested groups, the innermost is named.
    b.check(1, "/slurm/job_7 writes 500 MB/s");
    b.rate(
        ON_DEVICE,
        &[("cgroup", "/slurm/job_7"), ("device", "vda")],
        500.0 * MB,
    );
    b.rate(
        ON_DEVICE,
        &[("cgroup", "/slurm/job_7"), ("device", "dm-0")],
        500.0 * MB,
    );
    b.check(1, "/slurm/job_7 writes 500 MB/s on vda");
    b.rate(
        "job.local.write.bytes_per_second",
        &[("job", "7")],
        499.0 * MB,
    );
    b.check(1, "job 7 writes 500 MB/s");
    let labels = [("pid", "4711"), ("command", "sh")];
    let read = b.rate("process.read.bytes_per_second", &labels, 2000.0);
    let write = b.rate(PROCESS, &labels, 450.0 * MB);
    b.check(1, "sh (4711) reads 2 kB/s, writes 450 MB/s");
    assert_eq!(b.who.behind("vda", NS_PER_S), ", by sh (4711)");
    let name = b.stream("process.command.name", &labels);
    b.who
        .sample(name, &Sample::measured(NS_PER_S, Value::text("fio")));
    b.check(1, "fio (4711) reads 2 kB/s, writes 450 MB/s");
    // A process that hardly moves anything explains nothing.
    b.put(read, 1, 0.0);
    b.put(write, 1, 4096.0);
    b.check(1, "job 7 writes 500 MB/s");
    assert_eq!(b.who.behind("vda", NS_PER_S), ", by job 7");
    b.put(write, 1, 450.0 * MB);
    // The device of a process is not known: if several disks move, groups and jobs are used.
    b.rate(DISK, &[("device", "vdb")], 1.0 * MB);
    assert_eq!(b.who.behind("vda", NS_PER_S), ", by /slurm/job_7");
    assert_eq!(
        b.who.behind("vdb", NS_PER_S),
        ", by whom is not counted here"
    );
    for key in [read, write, name] {
        b.who.stream_removed(key);
    }
    b.check(120, "job 7 writes 500 MB/s");
    assert!(b.who.commands.is_empty());
}

/// Without other counts, the requests of a disk name the originator; threads that write back do not
/// count.
#[test]
fn requests_have_a_process_and_a_disk() {
    const ISSUER: &str = "block_trace.process.write.bytes_per_second";
    let mut b = Bench::default();
    b.rate(DISK, &[("device", "sda")], 100.0 * MB);
    b.rate(DISK, &[("device", "sdb")], 50.0 * MB);
    let kworker = [
        ("device", "sda"),
        ("pid", "77"),
        ("command", "kworker/0:1H"),
    ];
    b.rate(ISSUER, &kworker, 100.0 * MB);
    b.check(
        1,
        "not counted here: whose the 150 MB/s are; baro doctor says why",
    );
    let on = |device| [("device", device), ("pid", "7"), ("command", "fio")];
    let streams = ["sda", "sdb"].map(|device| b.rate(ISSUER, &on(device), 50.0 * MB));
    b.check(
        1,
        "fio (7) writes 50 MB/s on sda; fio (7) writes 50 MB/s on sdb",
    );
    assert_eq!(b.who.behind("sda", NS_PER_S), ", by fio (7)");
    // A counted process is better evidence, and keeps its name when its requests end.
    let process = b.rate(PROCESS, &[("pid", "7"), ("command", "fio")], 100.0 * MB);
    b.check(1, "fio (7) writes 100 MB/s");
    for key in streams {
        b.who.stream_removed(key);
    }
    b.check(1, "fio (7) writes 100 MB/s");
    b.who.stream_removed(process);
    assert!(b.who.commands.is_empty());
}

/// Dirty pages are written back by the kernel, when their process may be long gone.
#[test]
fn what_is_written_back_has_its_writer() {
    let mut b = Bench::default();
    b.rate(DISK, &[("device", "vda")], 100.0 * MB);
    let labels = [("pid", "7"), ("command", "cp")];
    let cp = b.rate(PROCESS, &labels, 2000.0 * MB);
    b.check(1, "cp (7) writes 2 GB/s");
    b.put(cp, 6, 0.0);
    b.check(12, "cp (7) wrote 2 GB/s 10 s ago, now 100 MB/s move");
    assert_eq!(b.who.behind("vda", 12 * NS_PER_S), ", written by cp (7)");
    b.put(cp, 13, 1.0 * MB);
    b.check(
        13,
        "cp (7) writes 1 MB/s; the kernel writes back more: 100 MB/s in all",
    );
    b.who.stream_removed(cp);
    b.check(33, "cp (7) wrote 2 GB/s 30 s ago, now 100 MB/s move");
    b.check(
        61,
        "not counted here: whose the 100 MB/s are; baro doctor says why",
    );
}

/// A loop device over a file in memory: no disk moves, and no sum includes it.
#[test]
fn what_stands_on_others_is_told_where_nothing_else_moves() {
    let mut b = Bench::default();
    b.rate(DISK, &[("device", "vda")], 0.0);
    b.rate(GROUP, &[("cgroup", "/a")], 0.0);
    b.rate(
        ON_DEVICE,
        &[("cgroup", "/a"), ("device", "loop0")],
        7.0 * MB,
    );
    b.check(1, "/a writes 7 MB/s on loop0");
}

#[test]
fn many_small_originators_explain_what_moves() {
    let mut b = Bench::default();
    b.rate(DISK, &[("device", "vda")], 400.0 * MB);
    for pid in 1..=100 {
        b.rate(
            PROCESS,
            &[("pid", &pid.to_string()), ("command", "w")],
            4.0 * MB,
        );
    }
    b.check(
        1,
        "w (1) writes 4 MB/s; w (10) writes 4 MB/s; w (100) writes 4 MB/s",
    );
}

#[test]
fn long_names_and_many_originators_fit() {
    let mut b = Bench::default();
    b.rate(DISK, &[("device", "vda")], 5000.0 * MB);
    for n in 0..9 {
        let group = format!("/system.slice/{}{n}.service", "a-long-name-".repeat(9));
        b.rate(GROUP, &[("cgroup", &group)], 100.0 * MB + f64::from(n));
    }
    let text = b.who.sentence(NS_PER_S);
    assert!(text.len() <= TEXT_BYTES_MAX, "{text}");
    assert!(
        text.starts_with("…") && text.contains("name-8.service writes 100 MB/s; whose the rest"),
        "{text}"
    );
}

#[test]
fn rates_have_two_digits() {
    let check = |bytes: f64, expect: &str| assert_eq!(rate(bytes), expect);
    check(0.0, "0 B/s");
    check(1.04, "1 B/s");
    check(94.0, "94 B/s");
    check(999.0, "1 kB/s");
    check(1500.0, "1.5 kB/s");
    check(412.3e6, "410 MB/s");
    check(9.96e8, "1 GB/s");
    check(2.34e12, "2.3 TB/s");
    check(5e15, "5000 TB/s");
}

//! Tests of processes: the choice of the greatest, how long they keep their streams, the report
//! about processes that are not seen, and a writer on the machine that runs the tests.

use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};
use std::time::Duration;

use barograph_source::{ProcessConfig, SourcesConfig};

use crate::jobs::missing;
use crate::support::{Reader, Tree, source};

/// Adds a process with its bytes moved, and its start in ticks since boot.
fn process(tree: &Tree, pid: u32, command: &str, start: u64, read: u64, write: u64) {
    child(tree, (pid, 1), command, start, read, write);
}

/// Like [`process`], with the number of the parent.
fn child(tree: &Tree, of: (u32, u32), command: &str, start: u64, read: u64, write: u64) {
    let (pid, parent) = of;
    let stat =
        format!("{pid} ({command}) S {parent} 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start} 9 9\n");
    let io = format!("read_bytes: {read}\nwrite_bytes: {write}\ncancelled_write_bytes: 0\n");
    tree.write(&format!("proc/{pid}/stat"), stat);
    tree.write(&format!("proc/{pid}/io"), io);
}

fn processes(tree: &Tree, process: ProcessConfig) -> Reader {
    let mut config = tree.config();
    config.process = process;
    Reader::new(source(&config, "process"))
}

const READ_RATE: &str = "process.read.bytes_per_second";

#[test]
fn the_greatest_have_streams_and_keep_them_for_a_while() {
    let tree = Tree::of("empty");
    for pid in 1..=8 {
        process(&tree, pid, "p", 1, 0, 0);
    }
    let mut reader = processes(
        &tree,
        ProcessConfig {
            top: 2,
            ..ProcessConfig::default()
        },
    );
    reader.read().unwrap();
    assert!(reader.streams("pid").is_empty());
    for pid in 1..=8 {
        process(&tree, pid, "p", 1, u64::from(pid) * 100, 0);
    }
    reader.read().unwrap();
    let chosen = |reader: &Reader| reader.streams(READ_RATE);
    assert_eq!(
        chosen(&reader),
        [7, 8].map(|p| format!("{READ_RATE}{{command=p,pid={p}}}"))
    );
    assert_eq!(
        reader.number("process.read.bytes_per_second{command=p,pid=8}"),
        Some(800.0)
    );
    // Two other processes overtake them: now four have streams, the idle two for some more scans.
    process(&tree, 1, "p", 1, 1_000_000, 0);
    process(&tree, 2, "p", 1, 200, 5);
    for scan in 0..=16 {
        reader.read().unwrap();
        let expect = if scan < 15 { 4 } else { 0 };
        if scan != 15 {
            assert_eq!(chosen(&reader).len(), expect, "{scan}");
        }
        if scan == 1 {
            assert_eq!(
                reader.number("process.read.bytes_per_second{command=p,pid=1}"),
                Some(0.0)
            );
        }
    }
    // Even if many processes take turns, at most four times `top` have streams.
    for turn in 0..6 {
        for pid in 1..=8 {
            let read = 2_000_000 + turn * 10 * u64::from(pid == turn as u32 + 1);
            process(&tree, pid, "p", 1, read, 0);
        }
        reader.read().unwrap();
        assert!(chosen(&reader).len() <= 8);
    }
}

#[test]
fn a_number_that_is_used_again_is_another_process() {
    let tree = Tree::of("empty");
    process(&tree, 1, "init", 1, 0, 0);
    process(&tree, 7, "a", 100, 1000, 0);
    let mut reader = processes(&tree, ProcessConfig::default());
    reader.read().unwrap();
    process(&tree, 7, "a", 100, 2000, 0);
    reader.read().unwrap();
    assert_eq!(
        reader.number("process.read.bytes_per_second{command=a,pid=7}"),
        Some(1000.0)
    );
    // The counters are greater than those of the process before, but belong to the new one.
    process(&tree, 7, "a", 900, 2500, 0);
    reader.read().unwrap();
    assert_eq!(
        reader.number("process.read.bytes_per_second{command=a,pid=7}"),
        Some(2500.0)
    );
    std::fs::remove_dir_all(tree.path().join("proc/7")).unwrap();
    // A process that began since the last scan counts from its beginning.
    process(&tree, 8, "c", 950, 300, 0);
    reader.read().unwrap();
    assert!(reader.streams("pid=7").is_empty());
    assert_eq!(
        reader.number("process.read.bytes_per_second{command=c,pid=8}"),
        Some(300.0)
    );
    // Counters that went back give no rate.
    process(&tree, 8, "c", 950, 200, 0);
    reader.read().unwrap();
    assert_eq!(
        reader.number("process.read.bytes{command=c,pid=8}"),
        Some(200.0)
    );
    assert_eq!(
        reader.number("process.read.bytes_per_second{command=c,pid=8}"),
        None
    );
}

#[test]
fn bytes_of_a_child_that_has_ended_are_counted_once() {
    let tree = Tree::of("empty");
    let shell = |read, write| process(&tree, 10, "sh", 50, read, write);
    process(&tree, 1, "init", 1, 0, 0);
    shell(7, 0);
    let mut reader = processes(&tree, ProcessConfig::default());
    reader.read().unwrap();
    child(&tree, (20, 10), "make", 100, 0, 1000);
    child(&tree, (21, 20), "cc", 110, 64, 2000);
    reader.read().unwrap();
    let end = |pid: u32| std::fs::remove_dir_all(tree.path().join(format!("proc/{pid}"))).unwrap();
    let own = |reader: &Reader, fact: &str| {
        reader.number(&format!("process.{fact}{{command=sh,pid=10}}"))
    };
    // Both end. The kernel adds what they moved, and what they moved since, to the shell's.
    end(20);
    end(21);
    shell(7 + 64, 1000 + 2000 + 30);
    reader.read().unwrap();
    assert_eq!(own(&reader, "write.bytes_per_second"), Some(30.0));
    assert_eq!(own(&reader, "write.bytes"), Some(30.0));
    assert_eq!(own(&reader, "read.bytes"), Some(7.0));
    // Children that no scan saw count for the shell, as its own bytes do.
    shell(7 + 64, 1000 + 2000 + 30 + 5000);
    reader.read().unwrap();
    assert_eq!(own(&reader, "write.bytes_per_second"), Some(5000.0));
    assert_eq!(own(&reader, "write.bytes"), Some(5030.0));
    // The bytes of a child that nobody waits for are lost; those of the shell are not.
    child(&tree, (22, 10), "dd", 120, 0, 900);
    reader.read().unwrap();
    end(22);
    shell(7 + 64, 1000 + 2000 + 30 + 5000 + 400);
    reader.read().unwrap();
    assert_eq!(own(&reader, "write.bytes"), Some(5430.0));
}

#[test]
fn a_process_that_takes_another_name_is_counted_once() {
    let tree = Tree::of("empty");
    process(&tree, 1, "init", 1, 0, 0);
    process(&tree, 9, "kworker/u8:2-events", 50, 0, 0);
    process(&tree, 10, "sh", 60, 0, 0);
    let mut reader = processes(&tree, ProcessConfig::default());
    reader.read().unwrap();
    let queues = ["-flush-254:0", "+events", "-ext4-rsv-conversion", ""];
    for (at, queue) in (1u64..).zip(queues.iter().cycle().take(12)) {
        process(&tree, 9, &format!("kworker/u8:2{queue}"), 50, 0, at * 4096);
        let command = if at > 1 { "fio" } else { "sh" };
        process(&tree, 10, command, 60, at * 512, 0);
        reader.read().unwrap();
        // Each process has one stream, whatever its name, and the sum is right.
        assert_eq!(
            reader.streams("process.write.bytes{"),
            [
                "process.write.bytes{command=kworker/u8:2,pid=9}",
                "process.write.bytes{command=sh,pid=10}"
            ]
        );
        let write = "process.write.bytes{command=kworker/u8:2,pid=9}";
        assert_eq!(reader.number(write), Some(at as f64 * 4096.0));
        let now = |stream: &str| reader.get(stream).unwrap().value.to_string();
        let worker = now("process.command.name{command=kworker/u8:2,pid=9}");
        assert_eq!(worker, format!("kworker/u8:2{queue}"));
        let name = now("process.command.name{command=sh,pid=10}");
        assert_eq!(name, command);
    }
}

#[test]
fn what_is_not_seen_of_processes_is_said() {
    let tree = Tree::of("empty");
    for pid in 10..20 {
        process(&tree, pid, "p", 1, 0, 0);
    }
    let mut reader = processes(
        &tree,
        ProcessConfig {
            processes_max: 4,
            ..ProcessConfig::default()
        },
    );
    reader.read().unwrap();
    assert_eq!(reader.number("process.all.count"), Some(10.0));
    assert_eq!(missing(&*reader.source, "only 4 are read").len(), 1);
    assert_eq!(missing(&*reader.source, "hidepid").len(), 1);

    let tree = Tree::of("empty");
    tree.write("proc/1/stat", "1 (init) S\n");
    let mut reader = processes(&tree, ProcessConfig::default());
    reader.read().unwrap();
    assert_eq!(
        missing(&*reader.source, "no process has a file io").len(),
        1
    );
    assert_eq!(reader.number("process.all.count"), Some(1.0));
}

#[test]
fn files_of_a_process_cut_anywhere() {
    let tree = Tree::of("lustre-client");
    for path in [
        "proc/2101/io",
        "proc/2190/stat",
        "proc/2190/io",
        "proc/sys/fs/file-nr",
    ] {
        let whole = tree.read(path);
        for end in 0..whole.len() {
            tree.write(path, &whole[..end]);
            let mut reader = Reader::new(tree.source("process"));
            assert!(reader.read().is_err(), "{path} cut at {end}");
            assert!(reader.streams("pid").is_empty());
        }
        tree.write(path, &whole);
    }
}

#[test]
fn rings_are_counted_when_asked_for() {
    let tree = Tree::of("empty");
    process(&tree, 1, "init", 1, 0, 0);
    let fd = tree.path().join("proc/1/fd");
    std::fs::create_dir(&fd).unwrap();
    symlink("anon_inode:[io_uring]", fd.join("5")).unwrap();
    symlink("anon_inode:[io_uring]", fd.join("6")).unwrap();
    symlink("/dev/null", fd.join("7")).unwrap();
    tree.write(
        "proc/1/fdinfo/5",
        "pos:\t0\nSqMask:\t0x7\nSqHead:\t4\nSqTail:\t6\nCqMask:\t0xf\nCqHead:\t1\nCqTail:\t4\n",
    );
    // The kernel omits these lines while the ring is locked.
    tree.write("proc/1/fdinfo/6", "pos:\t0\n");
    let mut reader = processes(
        &tree,
        ProcessConfig {
            io_uring: true,
            ..ProcessConfig::default()
        },
    );
    reader.read().unwrap();
    reader.read().unwrap();
    assert_eq!(reader.number("process.io_uring.rings.count"), Some(2.0));
    assert_eq!(reader.number("process.io_uring.queued.requests"), Some(2.0));
    assert_eq!(
        reader.number("process.io_uring.completed.requests"),
        Some(3.0)
    );
    let mut reader = processes(&tree, ProcessConfig::default());
    reader.read().unwrap();
    reader.read().unwrap();
    assert!(reader.streams("io_uring").is_empty());
}

/// A child writes a known number of bytes to a real file; `procfs` reads its counters before and
/// after the source.
#[test]
fn a_writer_on_this_machine() {
    const BYTES: usize = 4 << 20;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = format!("of={}", dir.path().join("f").display());
    // The child waits for the rest of its input, until the test closes it.
    let mut child = Command::new("dd")
        .args([
            &file,
            "bs=65536",
            "count=1000",
            "iflag=fullblock",
            "oflag=dsync",
        ])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = child.id();
    let mut config = SourcesConfig::default();
    config.process.top = 100;
    let mut reader = Reader::new(source(&config, "process"));
    reader.read().unwrap();
    child
        .stdin
        .as_mut()
        .unwrap()
        .write_all(&vec![1; BYTES])
        .unwrap();
    let process = procfs::process::Process::new(pid as i32).unwrap();
    let mut written = 0;
    for _ in 0..600 {
        written = process.io().unwrap().write_bytes;
        if written >= BYTES as u64 {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let before = process.io().unwrap();
    reader.read().unwrap();
    let after = process.io().unwrap();
    let get = |fact: &str| reader.number(&format!("process.{fact}{{command=dd,pid={pid}}}"));
    // In memory file systems nothing is written to storage.
    if written > 0 {
        let (ours, low, high) = (
            get("write.bytes").unwrap(),
            before.write_bytes,
            after.write_bytes,
        );
        assert!(
            low as f64 <= ours && ours <= high as f64,
            "{low} {ours} {high}"
        );
        assert!(
            (BYTES as f64..1.25 * BYTES as f64).contains(&ours),
            "{ours}"
        );
        // The rate counts from the first poll; the child may have created its file before.
        let rate = get("write.bytes_per_second").unwrap();
        assert!((BYTES as f64..=ours).contains(&rate), "{rate} of {ours}");
        assert_eq!(get("cancelled.bytes"), Some(0.0));
    }
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    reader.read().unwrap();
    assert!(reader.streams(&format!("pid={pid}")).is_empty());
}

#[test]
fn all_processes_of_this_machine() {
    let count = || procfs::process::all_processes().unwrap().count() as f64;
    let mut reader = Reader::new(source(&SourcesConfig::default(), "process"));
    let before = count();
    reader.read().unwrap();
    let after = count();
    let ours = reader.number("process.all.count").unwrap();
    // Other processes come and go in the meantime.
    let slack = 50.0;
    assert!(before.min(after) - slack <= ours && ours <= before.max(after) + slack);
    let unreadable = reader.number("process.unreadable.count").unwrap();
    let said = missing(&*reader.source, "may trace").len();
    assert_eq!(said, usize::from(unreadable > 0.0));
    if rustix::process::geteuid().is_root() {
        return;
    }
    assert!(unreadable > 0.0, "processes of root are there");
}

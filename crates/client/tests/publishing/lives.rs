//! Processes that fork, end, come too early or too often, and rings that are full.

use std::io::{BufRead as _, BufReader};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::time::Duration;

use barograph_client::publish::{PublicationConfig, PublishConfig, Publisher};
use barograph_client::{RunDir, SystemClock};
use barograph_model::{Clock as _, Kind, ValueType};
use barograph_stream::{Segment, SegmentConfig};

use super::reader::{self, Content, floats, frames};
use super::roles::{command, finish, run};

#[test]
fn a_child_has_a_file_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    run("forks", dir.path());
    let mut files = reader::files(dir.path());
    assert_eq!(files.len(), 3);
    let mut puts = files.iter_mut().map(reader::Follower::read);
    let (parent, child, grandchild) = (
        puts.next().unwrap(),
        puts.next().unwrap(),
        puts.next().unwrap(),
    );
    drop(puts);
    assert_eq!(floats(&parent, "forks.x"), [1.0, 2.0, 3.0]);
    assert_eq!(frames(&parent, "forks"), [1, 2]);
    assert_eq!(floats(&child, "forks.x"), [10.0]);
    assert_eq!(floats(&child, "forks.y"), [11.0, 12.0]);
    assert_eq!(frames(&child, "forks"), [10, 11]);
    assert_eq!(floats(&grandchild, "forks.y"), [20.0]);
    let pids: Vec<u32> = files.iter().map(|f| f.file.pid()).collect();
    assert!(pids[0] != pids[1] && pids[1] != pids[2]);
    // The grandchild ended without closing its file; a reader sees that it is gone.
    let closed: Vec<bool> = files.iter().map(|f| f.file.is_closed()).collect();
    assert_eq!(closed, [true, true, false]);
    assert!(
        files
            .iter()
            .all(|f| f.file.is_orphan() && f.file.dropped() == 0)
    );
}

#[test]
fn forks_in_the_middle_of_other_threads_puts_harm_nobody() {
    let dir = tempfile::tempdir().unwrap();
    run("fork_storm", dir.path());
    let mut files = reader::files(dir.path());
    assert_eq!(files.len(), 21);
    let parent = files[0].read();
    assert_eq!(frames(&parent, "storm").len(), 20 * 4 * 200);
    assert!(floats(&parent, "storm.x").iter().all(|v| *v < 1_000.0));
    for (number, file) in (0_u32..).zip(&mut files[1..]) {
        let child = file.read();
        assert_eq!(floats(&child, "storm.x"), [f64::from(1_000 + number)]);
    }
    assert!(files.iter().all(|f| (f.missed, f.damaged) == (0, 0)));
}

#[test]
fn without_an_agent_lives_do_not_leave_files_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    run("many_lives", dir.path());
    let mut files = reader::files(dir.path());
    // The newest files of dead processes, and that of the last process, which has removed the
    // others.
    assert_eq!(files.len(), 65);
    let numbers = files.iter_mut().map(|f| frames(&f.read(), "short")[0]);
    let numbers: Vec<u64> = numbers.collect();
    // Files of one tick of the file system's clock have the same age.
    assert!(numbers[0] > 100 && numbers[64] == 199, "{numbers:?}");
}

#[test]
fn short_lives_leave_nothing_that_cannot_be_drained() {
    let dir = tempfile::tempdir().unwrap();
    run("short_lives", dir.path());
    let files = reader::files(dir.path());
    assert_eq!(files.len(), 60);
    for (number, mut file) in (0_u32..).zip(files) {
        let puts = file.take();
        assert_eq!(frames(&puts, "short"), [u64::from(number)]);
        // Puts after the last frame are published only if the process ends in good order.
        let values = floats(&puts, "short.x").len();
        assert_eq!(values, if number % 2 == 0 { 1 } else { 2 });
        assert!(file.file.is_drained() && file.file.is_orphan());
        file.file.remove().unwrap();
    }
    assert!(reader::files(dir.path()).is_empty());
}

#[test]
fn a_knock_that_was_not_heard_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = RunDir::new(dir.path()).ingest_socket();
    let door = UnixDatagram::bind(&path).unwrap();
    // As many as the queue holds; further ones fail.
    let other = UnixDatagram::unbound().unwrap();
    other.set_nonblocking(true).unwrap();
    while other.send_to(b"another", &path).is_ok() {}
    let mut child = command("knocks", dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().contains("first")));
    let mut knock = [0; 64];
    door.set_nonblocking(true).unwrap();
    while door
        .recv(&mut knock)
        .is_ok_and(|length| length == b"another".len())
    {}
    door.set_nonblocking(false).unwrap();
    door.set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    assert_eq!(door.recv(&mut knock).unwrap(), 16);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn no_child_waits_for_a_lock_of_a_thread_that_it_does_not_have() {
    let dir = tempfile::tempdir().unwrap();
    let _segment = living(&RunDir::new(dir.path()));
    run("labels_and_forks", dir.path());
    assert_eq!(reader::files(dir.path()).len(), 201);
}

#[test]
fn switched_off_nothing_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let output = finish(command("off", dir.path()).env("BAROGRAPH", "off"));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("BAROGRAPH=off"), "{text}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn where_no_directory_can_be_made_it_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let output = run("off", &file.join("run"));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("file/run"), "{text}");
}

#[test]
fn an_agent_that_comes_late_finds_what_the_ring_holds() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = dir.path().join("later");
    std::fs::create_dir(&run_dir).unwrap();
    run("plain", &run_dir);
    // The agent starts; the directory that it finds is its own.
    let _lock = RunDir::new(&run_dir).occupy().unwrap();
    assert_eq!(
        floats(&reader::only(&run_dir).read(), "plain.x").len(),
        1_001
    );
}

#[test]
fn the_oldest_give_way_and_the_reader_knows_how_many() {
    let dir = tempfile::tempdir().unwrap();
    run("laps", dir.path());
    let mut file = reader::only(dir.path());
    let puts = file.read();
    assert_eq!(puts.len() as u64 + file.missed, 20_000);
    assert!(puts.len() >= 200);
    assert_eq!(puts.last().unwrap().value, Content::Frame(9_999));
    assert_eq!(file.damaged, 0);
}

#[test]
fn a_blocking_put_loses_nothing_while_an_agent_lives_and_reads() {
    let dir = tempfile::tempdir().unwrap();
    let segment = living(&RunDir::new(dir.path()));
    let mut child = command("blocks", dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut puts = Vec::new();
    let mut file = None;
    while child.try_wait().unwrap().is_none() {
        segment.heartbeat(SystemClock::new().now_ns());
        match &mut file {
            // The first look may come before the file is complete.
            None => file = reader::ready(dir.path()),
            Some(file) => puts.extend(file.take()),
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.into_raw(), 0);
    let mut file = file.unwrap();
    puts.extend(file.take());
    let expect: Vec<f64> = (0..20_000).map(f64::from).collect();
    assert_eq!(floats(&puts, "blocks.x"), expect);
    assert_eq!((file.missed, file.file.dropped()), (0, 0));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("lost 0"), "{text}");
}

#[test]
fn a_blocking_put_that_waits_in_vain_is_counted() {
    for has_agent in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let segment = has_agent.then(|| living(&RunDir::new(dir.path())));
        let output = run("blocks_alone", dir.path());
        drop(segment);
        // 256 of 356 values fit, and the frame does not.
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("lost 101"), "{text}");
        let mut file = reader::only(dir.path());
        let values = floats(&file.read(), "blocks.x");
        assert_eq!(values, (0..256).map(f64::from).collect::<Vec<_>>());
        assert_eq!((file.missed, file.file.dropped()), (0, 101));
    }
}

/// A segment with a fresh heartbeat.
fn living(run_dir: &RunDir) -> Segment {
    let clock = SystemClock::new();
    let config = SegmentConfig::new("n1");
    let segment = Segment::create(&run_dir.segment(), config, clock.now_ns()).unwrap();
    segment.heartbeat(clock.now_ns());
    segment
}

#[test]
fn handles_of_a_closed_file_do_not_reach_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    run("reopens", dir.path());
    let mut files = reader::files(dir.path());
    assert_eq!(files.len(), 3);
    for (round, file) in (0_u32..).zip(&mut files) {
        let mut values = floats(&file.read(), &format!("reopens.x{round}"));
        values.sort_by(f64::total_cmp);
        assert_eq!(values, [f64::from(round), f64::from(round) + 10.0]);
        assert!(file.file.is_closed());
    }
}

/// The only test that publishes in this process.
#[test]
fn a_sleeping_agent_is_told_once() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = RunDir::new(dir.path());
    let door = UnixDatagram::bind(run_dir.ingest_socket()).unwrap();
    door.set_nonblocking(true).unwrap();
    let knocks = || {
        let mut bytes = [0; 64];
        let mut knocks = Vec::new();
        while let Ok(length) = door.recv(&mut bytes) {
            knocks.push(bytes[..length].to_vec());
        }
        knocks
    };
    let publisher = Publisher::open(PublishConfig {
        run_dir: Some(run_dir),
        ..super::roles::config()
    });
    let of = publisher.publication("told", PublicationConfig::default());
    let of = of.unwrap();
    let x = of
        .value("x", ValueType::Float, "", Kind::Gauge, "")
        .unwrap();
    x.put_f64(1.0);
    assert!(knocks().is_empty(), "nothing is committed");
    of.frame(1);
    of.frame(2);
    let once = [publisher.incarnation().unwrap().0.to_vec()];
    assert_eq!(knocks(), once);
    let mut file = reader::only(dir.path());
    file.file.set_asleep(true).unwrap();
    assert!(file.read().len() == 3 && knocks().is_empty());
    x.put_f64(2.0);
    publisher.commit();
    x.put_f64(3.0);
    of.frame(3);
    assert_eq!(knocks(), once);
    file.file.set_asleep(true).unwrap();
    std::thread::spawn(move || x.put_f64(4.0)).join().unwrap();
    assert_eq!(knocks(), once, "a thread that ends publishes");
}

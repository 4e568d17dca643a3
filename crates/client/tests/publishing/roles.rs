//! The applications: this test binary again, with its role in the environment, because a process
//! has one file.
#![expect(unsafe_code, reason = "forks, as applications do them")]

use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use barograph_client::publish::{
    OverflowPolicy, Publication, PublicationConfig, PublishConfig, Publisher, ValueHandle,
};
use barograph_model::{Kind, ValueType};

const ROLE: &str = "BAROGRAPH_TEST_PUBLISHER";

/// The command that plays an application in a run directory.
pub(super) fn command(role: &str, run_dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "publishing::roles::plays_its_role",
            "--exact",
            "--nocapture",
        ])
        .env_clear()
        .env(ROLE, role)
        .env("BAROGRAPH_RUN_DIR", run_dir);
    command
}

/// Runs an application to its end.
pub(super) fn run(role: &str, run_dir: &Path) -> Output {
    finish(&mut command(role, run_dir))
}

pub(super) fn finish(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    output
}

#[test]
fn plays_its_role() {
    let Some(role) = std::env::var_os(ROLE) else {
        return;
    };
    match role.to_str().unwrap() {
        "plain" => plain(),
        "kinds" => kinds(),
        "threads" => threads(),
        "crowd" => crowd(),
        "generations" => generations(),
        "forks" => forks(),
        "fork_storm" => fork_storm(),
        "short_lives" => short_lives(60),
        "many_lives" => short_lives(200),
        "knocks" => knocks(),
        "labels_and_forks" => labels_and_forks(),
        "laps" => laps(),
        "blocks" => blocks(),
        "blocks_alone" => blocks_alone(),
        "reopens" => reopens(),
        "shares" => shares(),
        "off" => off(),
        other => super::callees::play(other),
    }
}

pub(super) fn config() -> PublishConfig {
    PublishConfig {
        ring_records: 1 << 12,
        ..PublishConfig::of("tested")
    }
}

pub(super) fn open(config: PublishConfig) -> Publisher {
    let publisher = Publisher::open(config);
    assert!(publisher.error().is_none(), "{:?}", publisher.error());
    publisher
}

fn float(publication: &Publication, name: &str) -> ValueHandle {
    let declared = publication.value(name, ValueType::Float, "1", Kind::Gauge, "a test's");
    declared.unwrap()
}

pub(super) fn publication(publisher: &Publisher, name: &str) -> Publication {
    let declared = publisher.publication(name, PublicationConfig::default());
    declared.unwrap()
}

/// Frames of ten values; the puts after the last frame are published by the end of the thread.
fn plain() {
    let publisher = open(config());
    let of = publication(&publisher, "plain");
    let x = float(&of, "x");
    for frame in 0..100_u32 {
        for value in 0..10_u32 {
            x.put_f64((frame * 10 + value).into());
        }
        of.frame(frame.into());
    }
    x.put_f64(1_000.0);
    assert_eq!(publisher.lost(), 0);
}

fn kinds() {
    let publisher = open(config());
    let of = publication(&publisher, "kinds");
    let declare =
        |name: &str, value_type| of.value(name, value_type, "1", Kind::State, "").unwrap();
    let (int, float) = (declare("i", ValueType::Int), declare("f", ValueType::Float));
    let (bool, text) = (declare("b", ValueType::Bool), declare("t", ValueType::Text));
    int.put_i64(i64::MIN);
    for value in [f64::NAN, 1e-30, 1e300, -0.0] {
        float.put_f64(value);
    }
    bool.put_bool(true);
    text.put_text("é");
    text.put_text("");
    text.put_bytes(&[0, 255, 0]);
    text.put_json("{\"a\": 1}");
    text.put_floats(&[1.5, f64::INFINITY, -2.5]);
    of.frame(u64::MAX);
    assert_eq!(publisher.lost(), 0);
    // Of another type, and too long: refused and counted.
    int.put_f64(1.0);
    text.put_i64(1);
    float.put_text("1");
    text.put_bytes(&vec![0; 1 << 20]);
    assert_eq!(publisher.lost(), 4);
    let other = of.value("i", ValueType::Float, "1", Kind::State, "");
    assert!(other.unwrap_err().to_string().contains("app.kinds.i"));
    assert_eq!(declare("i", ValueType::Int), int);
    assert!(
        of.value("No", ValueType::Int, "1", Kind::State, "")
            .is_err()
    );
    assert!(
        of.value("frame", ValueType::Int, "1", Kind::State, "")
            .is_err()
    );
    assert!(
        publisher
            .publication("No", PublicationConfig::default())
            .is_err()
    );
    assert!(
        publisher
            .publication("process", PublicationConfig::default())
            .is_err()
    );
    let dotted = publication(&publisher, "kinds.i");
    assert!(
        dotted
            .value("x", ValueType::Int, "", Kind::Gauge, "")
            .is_ok()
    );
    assert!(
        of.value("i.x", ValueType::Int, "", Kind::Gauge, "")
            .is_err()
    );
    assert!(
        of.value("i.frame", ValueType::Int, "", Kind::Gauge, "")
            .is_err()
    );
    ValueHandle::default().put_f64(1.0);
    assert_eq!(publisher.lost(), 4);
}

/// A hundred threads at once, each with a ring.
fn threads() {
    let publisher = open(PublishConfig {
        rings_max: 128,
        ..config()
    });
    put_from_threads(&publisher, 100);
    assert_eq!(publisher.lost(), 0);
}

/// More threads at once than there are rings.
fn crowd() {
    let publisher = open(PublishConfig {
        rings_max: 8,
        ..config()
    });
    put_from_threads(&publisher, 20);
    assert_eq!(publisher.lost(), 12 * 1_010);
}

fn put_from_threads(publisher: &Publisher, count: u32) {
    let of = publication(publisher, "threads");
    let barrier = Arc::new(Barrier::new(count as usize));
    let started = (0..count).map(|number| {
        let (of, barrier) = (of.clone(), Arc::clone(&barrier));
        let x = float(&of, "x");
        thread::spawn(move || {
            for value in 0..1_000 {
                x.put_f64((number * 1_000 + value).into());
                if value % 100 == 99 {
                    of.frame(u64::from(number) * 10 + u64::from(value) / 100);
                }
            }
            barrier.wait();
        })
    });
    let started: Vec<_> = started.collect();
    started.into_iter().for_each(|t| t.join().unwrap());
}

/// Threads one after the other, more than there are rings; nobody reads meanwhile.
fn generations() {
    let publisher = open(PublishConfig {
        rings_max: 4,
        ..config()
    });
    let of = publication(&publisher, "threads");
    let x = float(&of, "x");
    for number in 0..100_u32 {
        thread::spawn(move || x.put_f64(number.into()))
            .join()
            .unwrap();
    }
    assert_eq!(publisher.lost(), 0);
}

pub(super) fn fork() -> i32 {
    // SAFETY: the child only publishes and ends, without locks that other threads of the parent may
    // hold.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    child
}

/// Ends a child without the parent's test harness.
pub(super) fn end() -> ! {
    // SAFETY: `_exit` only ends the process.
    unsafe { libc::_exit(0) }
}

pub(super) fn wait(child: i32) {
    let mut status = 0;
    // SAFETY: `status` is a local variable.
    let waited = unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!((waited, status), (child, 0));
}

fn forks() {
    let publisher = open(config());
    let of = publication(&publisher, "forks");
    let x = float(&of, "x");
    let ours = publisher.path().unwrap();
    x.put_f64(1.0);
    of.frame(1);
    x.put_f64(2.0);
    let before = std::fs::read(&ours).unwrap();
    let child = fork();
    if child == 0 {
        assert_eq!((publisher.path(), publisher.lost()), (None, 0));
        x.put_f64(10.0);
        let y = float(&of, "y");
        y.put_f64(11.0);
        of.frame(10);
        if publisher.path() == Some(ours.clone()) || publisher.lost() > 0 {
            std::process::abort();
        }
        let grandchild = fork();
        if grandchild == 0 {
            y.put_f64(20.0);
            of.frame(20);
            end();
        }
        wait(grandchild);
        y.put_f64(12.0);
        of.frame(11);
        drop((publisher, of));
        end();
    }
    wait(child);
    assert!(std::fs::read(&ours).unwrap() == before, "not a byte");
    x.put_f64(3.0);
    of.frame(2);
    assert_eq!(publisher.path(), Some(ours));
    // A child that publishes nothing makes no file.
    let child = fork();
    if child == 0 {
        end();
    }
    wait(child);
}

/// Threads start, put and end while the process forks.
fn fork_storm() {
    let publisher = open(config());
    let of = publication(&publisher, "storm");
    let x = float(&of, "x");
    let put_and_end = || {
        let of = of.clone();
        thread::spawn(move || {
            for value in 0..200_u32 {
                x.put_f64(value.into());
                of.frame(value.into());
            }
        })
    };
    for number in 0..20_u32 {
        let threads: Vec<_> = (0..4).map(|_| put_and_end()).collect();
        let child = fork();
        if child == 0 {
            x.put_f64((1_000 + number).into());
            of.frame(number.into());
            end();
        }
        threads.into_iter().for_each(|t| t.join().unwrap());
        wait(child);
    }
}

/// Processes with few puts; some end without committing the last ones.
fn short_lives(count: u32) {
    for number in 0..count {
        let child = fork();
        if child == 0 {
            let publisher = Publisher::open(PublishConfig {
                ring_records: 256,
                ..config()
            });
            let of = publication(&publisher, "short");
            let x = float(&of, "x");
            x.put_f64(number.into());
            of.frame(number.into());
            x.put_f64(-1.0);
            if number % 2 == 0 {
                end();
            }
            drop((publisher, of));
            end();
        }
        wait(child);
    }
}

/// Ends a frame each millisecond until nobody listens; prints a line when the first has ended.
fn knocks() {
    let publisher = open(config());
    let of = publication(&publisher, "knocks");
    of.frame(0);
    println!("first");
    let (done, is_done) = std::sync::mpsc::sync_channel::<()>(1);
    thread::spawn(move || {
        let _ = std::io::stdin().read_line(&mut String::new());
        drop(done);
    });
    let mut number = 1;
    while is_done.recv_timeout(Duration::from_millis(1))
        == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
    {
        of.frame(number);
        number += 1;
    }
}

fn any() -> barograph_model::Selector {
    barograph_model::Selector::parse("*").unwrap()
}

/// Threads change labels and look at streams while the process forks: no child may wait for a lock
/// of theirs.
fn labels_and_forks() {
    let publisher = open(config());
    let is_over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let busy = |work: Box<dyn Fn() + Send>| {
        let is_over = Arc::clone(&is_over);
        thread::spawn(move || {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                work();
            }
        })
    };
    let run_dir = publisher.run_dir().unwrap();
    let clock = Arc::new(barograph_client::SystemClock::new());
    let node = barograph_client::Observer::open(run_dir, clock).unwrap();
    let (labels, streams) = (publisher.clone(), node.clone());
    let busy = [
        busy(Box::new(move || labels.label("phase", "busy").unwrap())),
        busy(Box::new(move || drop(streams.streams(&any())))),
    ];
    for number in 0..200_u32 {
        let child = fork();
        if child == 0 {
            publisher.label("phase", "child").unwrap();
            let of = publication(&publisher, &format!("child{number}"));
            of.frame(number.into());
            let _ = node.streams(&any());
            end();
        }
        wait(child);
    }
    is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    busy.into_iter().for_each(|t| t.join().unwrap());
}

fn laps() {
    let publisher = open(PublishConfig {
        ring_records: 256,
        ..config()
    });
    let of = publication(&publisher, "laps");
    let x = float(&of, "x");
    for value in 0..10_000_u32 {
        x.put_f64(value.into());
        of.frame(value.into());
    }
    assert_eq!(publisher.lost(), 0);
}

/// Waits for the reader, and prints how many values were lost.
fn blocks() {
    let publisher = open(PublishConfig {
        ring_records: 256,
        overflow: OverflowPolicy::Block,
        block_time_max: Duration::from_secs(20),
        ..config()
    });
    let of = publication(&publisher, "blocks");
    let x = float(&of, "x");
    for value in 0..20_000_u32 {
        x.put_f64(value.into());
        of.frame(value.into());
    }
    println!("lost {}", publisher.lost());
}

/// Nobody reads: values beyond the ring are dropped and counted.
fn blocks_alone() {
    let publisher = open(PublishConfig {
        ring_records: 256,
        overflow: OverflowPolicy::Block,
        block_time_max: Duration::from_millis(2),
        ..config()
    });
    let of = publication(&publisher, "blocks");
    let x = float(&of, "x");
    for value in 0..356_u32 {
        x.put_f64(value.into());
    }
    of.frame(0);
    println!("lost {}", publisher.lost());
}

/// Closes and opens the publisher again while a thread stays.
fn reopens() {
    let (give, take) = std::sync::mpsc::sync_channel::<(ValueHandle, Publication, f64)>(0);
    let (done, is_done) = std::sync::mpsc::sync_channel(0);
    let other = thread::spawn(move || {
        for (x, of, value) in take {
            x.put_f64(value);
            of.frame(0);
            drop(of);
            done.send(()).unwrap();
        }
    });
    let mut stale = ValueHandle::default();
    for round in 0..3_u32 {
        let publisher = open(config());
        let of = publication(&publisher, "reopens");
        let x = float(&of, &format!("x{round}"));
        stale.put_f64(-1.0);
        let lost = publisher.lost();
        assert_eq!(lost, u64::from(round), "what is stale is counted");
        x.put_f64(round.into());
        give.send((x, of, f64::from(round) + 10.0)).unwrap();
        is_done.recv().unwrap();
        stale = x;
    }
    drop(give);
    other.join().unwrap();
}

/// Two independent parts of a program publish.
fn shares() {
    let one = open(PublishConfig {
        labels: vec![("version".into(), "1".into())],
        ..config()
    });
    let x = float(&publication(&one, "one"), "x");
    let two = open(PublishConfig {
        application: "library".into(),
        ..config()
    });
    two.label("phase", "solve").unwrap();
    assert!(two.label("no good", "1").is_err());
    let of = publication(&two, "two");
    let y = float(&of, "y");
    x.put_f64(1.0);
    drop(one);
    y.put_f64(2.0);
    of.frame(0);
    let elsewhere = Publisher::open(PublishConfig {
        run_dir: Some(barograph_client::RunDir::new("/elsewhere")),
        ..config()
    });
    let text = elsewhere.error().unwrap().to_string();
    assert!(text.contains("publishes in"), "{text}");
}

/// Disabled: everything is checked, and does nothing.
fn off() {
    let publisher = Publisher::open(config());
    println!("because {}", publisher.error().unwrap());
    assert!(!publisher.is_enabled());
    let of = publication(&publisher, "off");
    let x = float(&of, "x");
    assert!(!x.is_enabled());
    x.put_f64(1.0);
    x.put_text("");
    of.frame(1);
    publisher.commit();
    assert!(
        publisher
            .publication("No", PublicationConfig::default())
            .is_err()
    );
    assert_eq!((publisher.lost(), publisher.path()), (0, None));
}

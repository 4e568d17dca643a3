//! Child processes for tests: this binary again, with its role in the environment.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use barograph_model::{Clock as _, ValueType};
use barograph_stream::{RunDir, Segment, SegmentConfig, SegmentReader, SystemClock, WaitOutcome};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::pattern::{TYPES, descriptor, sample};

const ROLE: &str = "BAROGRAPH_TEST_ROLE";
const PATH: &str = "BAROGRAPH_TEST_PATH";
/// The line that a child prints when it has done the part for which its parent waits.
const READY: &str = "ready";
/// Depth of an agent's rings: small, so that readers are lapped.
pub(crate) const DEPTH: u32 = 64;

/// Returns the command that becomes a child.
pub(crate) fn command(role: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["child::plays_its_role", "--exact", "--nocapture"])
        .env(ROLE, role)
        .env(PATH, path)
        .stdout(Stdio::piped());
    command
}

/// Starts a child and waits until it is ready.
pub(crate) fn start(role: &str, path: &Path) -> Child {
    let mut child = command(role, path).spawn().unwrap();
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    let ready = lines.map_while(Result::ok).any(|l| l.ends_with(READY));
    assert!(ready, "{role} ended before it was ready");
    child
}

/// The entry point of children. Without a role in the environment there is nothing to do, which is
/// what a plain run checks.
#[test]
fn plays_its_role() {
    let Some(role) = std::env::var_os(ROLE) else {
        assert!(std::env::var_os(PATH).is_none());
        return;
    };
    // So that the child does not outlive a parent that was killed.
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let path = std::path::PathBuf::from(std::env::var_os(PATH).unwrap());
    match role.to_str().unwrap() {
        "agent" => agent(&path),
        "waiter" => waiter(&path),
        "reader" => crate::hammer::read_for_a_while(&path),
        "putters" => crate::ingest_hammer::write_all(&path),
        "endless_putters" => crate::ingest_hammer::write(&path, u64::MAX),
        "caller" => crate::calls::fire_at_full_speed(&path),
        "settler" => crate::full::settle(&path),
        other => panic!("no role {other}"),
    }
}

/// Serves a run directory at full speed until it is killed, while streams come and go.
fn agent(path: &Path) {
    let clock = SystemClock::new();
    let run_dir = RunDir::new(path);
    let _lock = run_dir.occupy().unwrap();
    let config = SegmentConfig {
        streams_max: 8,
        depth_default: DEPTH,
        ..SegmentConfig::new("n1")
    };
    let mut segment = Segment::create(&run_dir.segment(), config, clock.now_ns()).unwrap();
    let mut writers = Vec::new();
    for value_type in TYPES {
        let stream = descriptor(&format!("steady.{}", value_type.as_str()), value_type);
        let mut writer = segment.register(&stream, None, 1).unwrap();
        writer.append(&sample(value_type, 1)).unwrap();
        writers.push((value_type, writer));
    }
    println!("{READY}");
    let mut passing = None;
    for n in 2u64.. {
        for (value_type, writer) in &mut writers {
            writer.append(&sample(*value_type, n)).unwrap();
        }
        if n % 64 == 0 {
            segment.wake(u32::MAX);
            segment.heartbeat(clock.now_ns());
            match passing.take() {
                Some(writer) => segment.retire(writer),
                None => {
                    let stream = descriptor("passing.string", ValueType::Text);
                    let mut writer = segment.register(&stream, None, 1).unwrap();
                    writer.append(&sample(ValueType::Text, 1)).unwrap();
                    passing = Some(writer);
                }
            }
        }
    }
}

/// Waits for the first sample of the first stream.
fn waiter(path: &Path) {
    let reader = SegmentReader::open(path).unwrap();
    let handle = reader.stream(&reader.directory().entries[0]);
    println!("{READY}");
    assert_eq!(handle.wait(0, Duration::from_secs(120)), WaitOutcome::News);
}

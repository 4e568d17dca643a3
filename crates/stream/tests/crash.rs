//! Agents that are killed at any moment: their samples stay whole, and another agent takes over.

use std::time::Duration;

use barograph_stream::{
    LatestSample, RunDir, SegmentReader, SegmentState, StreamError, StreamReader, WaitOutcome,
};

use crate::child;
use crate::pattern::{TYPES, check, mix, rounds};

#[test]
fn an_agent_killed_at_any_moment_leaves_whole_samples_and_a_free_place() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = RunDir::new(dir.path().join("run"));
    let mut before: Option<SegmentReader> = None;
    for round in 0..rounds(40, 600) {
        let mut agent = child::start("agent", run_dir.path());
        let reader = SegmentReader::open(&run_dir.segment()).unwrap();
        if let Some(before) = &mut before {
            assert_eq!(before.state(), SegmentState::Closed);
            assert!(before.reopen_if_replaced().unwrap());
            assert_eq!(before.incarnation(), reader.incarnation());
        }
        assert_eq!(reader.state(), SegmentState::Live);
        assert_eq!(reader.pid(), u64::from(agent.id()));
        match run_dir.occupy() {
            Err(StreamError::Occupied { pid, .. }) => assert_eq!(pid, agent.id().to_string()),
            other => panic!("the living agent holds the lock: {other:?}"),
        }
        // This does not wait for anything; it only kills at a different moment each time.
        std::thread::sleep(Duration::from_micros(mix(round) % 4_000));
        agent.kill().unwrap();
        agent.wait().unwrap();
        check_remains(&reader);
        before = Some(reader);
    }
    run_dir.occupy().expect("the dead agent's lock is free");
}

fn check_remains(reader: &SegmentReader) {
    assert_eq!(
        reader.state(),
        SegmentState::Live,
        "nobody has said goodbye"
    );
    let directory = reader.directory();
    let steady = directory.entries.iter().filter(|e| {
        let name = e.descriptor.name.as_str();
        name.starts_with("steady.")
    });
    assert_eq!(steady.count(), TYPES.len());
    for entry in &directory.entries {
        assert_eq!(entry.series, entry.descriptor.series_id());
        let handle = reader.stream(entry);
        if entry.descriptor.name.as_str() == "passing.string" && handle.count() != Some(1) {
            continue; // Killed between registering and appending, or while retiring.
        }
        check_stream(&handle);
    }
}

/// Checks the newest sample and the whole ring, now that nobody writes.
fn check_stream(handle: &StreamReader) {
    let LatestSample::Sample {
        sample: newest,
        count,
        ..
    } = handle.latest()
    else {
        panic!("there was a sample: {handle:?}");
    };
    check(&newest);
    assert_eq!(newest.ts, count as i64);
    let mut samples = Vec::new();
    let scan = handle.scan(0, &mut samples).unwrap();
    assert_eq!(samples.len() as u64, count.min(handle.depth() - 1));
    assert_eq!(scan.lost + samples.len() as u64, count);
    for (found, number) in samples.iter().zip(scan.lost + 1..) {
        check(found);
        assert_eq!(found.ts, number as i64);
    }
    assert_eq!(samples.last(), Some(&newest));
}

#[test]
fn a_waiter_learns_from_the_successor_that_its_agent_was_killed() {
    let dir = tempfile::tempdir().unwrap();
    let mut agent = child::start("agent", dir.path());
    let reader = SegmentReader::open(&RunDir::new(dir.path()).segment()).unwrap();
    let handle = reader.stream(&reader.directory().entries[0]);
    let waiter = std::thread::spawn(move || handle.wait(u64::MAX, Duration::from_secs(120)));
    agent.kill().unwrap();
    agent.wait().unwrap();
    let mut successor = child::start("agent", dir.path());
    assert_eq!(waiter.join().unwrap(), WaitOutcome::Closed);
    successor.kill().unwrap();
    successor.wait().unwrap();
}

//! Recorded phases of I/O are replayed as they were.

use barograph_control::SchedulePolicy;
use barograph_lab::io_record::{IoRecord, PhaseFrame};
use barograph_lab::storage::replay;

const S: i64 = 1_000_000_000;
const MB: i64 = 1_000_000;

fn frame(
    at_s: i64,
    application: &str,
    rank: &str,
    phase: i64,
    stage: i64,
    done_mb: i64,
) -> PhaseFrame {
    PhaseFrame {
        ts: at_s * S,
        application: application.into(),
        process: rank.into(),
        phase,
        stage,
        declared: (stage == 1).then_some(10 * MB),
        done: done_mb * MB,
        priority: None,
    }
}

/// Two applications write 10 MB each at 1 MB/s at the same time, one after the other.
fn in_turns() -> Vec<PhaseFrame> {
    vec![
        frame(100, "a", "0", 1, 1, 0),
        frame(100, "a", "0", 1, 2, 0),
        frame(100, "b", "0", 1, 1, 0),
        frame(110, "a", "0", 1, 0, 10),
        frame(110, "b", "0", 1, 2, 0),
        frame(120, "b", "0", 1, 0, 10),
        // Neither ends nor began in the record.
        frame(121, "c", "0", 4, 0, 10),
        frame(121, "c", "0", 5, 1, 0),
    ]
}

#[test]
fn a_record_knows_whose_applications_are() {
    let mut frames = Vec::new();
    for (at_s, application) in [
        (0, "ada\0climate\0"),
        (20, "bob\0solver\0"),
        (40, "ada\0dump\0"),
    ] {
        frames.push(frame(at_s, application, "0", 1, 2, 0));
        frames.push(frame(at_s + 10, application, "0", 1, 0, 10));
    }
    let replayed = IoRecord::of(&frames).to_replay();
    let users: Vec<u32> = replayed.iter().map(|phases| phases[0].user).collect();
    assert_eq!(users, [0, 0, 1]);
}

#[test]
fn a_record_has_what_applications_did_and_not_what_they_waited() {
    let record = IoRecord::of(&in_turns());
    assert_eq!((record.applications(), record.len()), (2, 2));
    assert_eq!(record.bandwidth(), Some(1e6));
    let phases = record.to_replay();
    let sizes: Vec<_> = phases
        .iter()
        .flatten()
        .map(|it| (it.compute_s, it.bytes))
        .collect();
    assert_eq!(sizes, [(0.0, 1e7), (0.0, 1e7)]);
    let quality = record.quality(1e6);
    assert_eq!(quality.slowdown_worst, 2.0);
    assert!((quality.slowdown - 2.0_f64.sqrt()).abs() < 1e-9);
}

#[test]
fn the_policy_that_was_recorded_gives_what_was_recorded_and_others_give_more() {
    let record = IoRecord::of(&in_turns());
    let phases = record.to_replay();
    let fcfs = replay(&SchedulePolicy::Fcfs, 1e6, 0.0, &phases);
    let recorded = record.quality(1e6);
    assert!((fcfs.slowdown - recorded.slowdown).abs() < 1e-6, "{fcfs:?}");
    assert!((fcfs.slowdown_worst - 2.0).abs() < 1e-6 && fcfs.starved == 0);
    // Both at a time take twice as long.
    let both = replay(&SchedulePolicy::Fair { most: 9 }, 1e6, 0.0, &phases);
    assert!((both.slowdown - 2.0).abs() < 1e-6, "{both:?}");
    // And more, if they cost each other.
    let both = replay(&SchedulePolicy::Fair { most: 9 }, 1e6, 0.5, &phases);
    assert!((both.slowdown - 3.0).abs() < 1e-6, "{both:?}");
}

#[test]
fn processes_of_an_application_are_one() {
    let frames = [
        frame(0, "a", "0", 1, 1, 0),
        frame(1, "a", "1", 1, 1, 0),
        frame(1, "a", "0", 1, 2, 0),
        frame(1, "a", "1", 1, 2, 0),
        frame(5, "a", "0", 1, 0, 4),
        frame(9, "a", "1", 1, 0, 4),
        frame(20, "a", "0", 2, 3, 0),
        frame(22, "a", "0", 2, 0, 2),
    ];
    let record = IoRecord::of(&frames);
    let phases = record.to_replay();
    let [phases] = &phases[..] else {
        panic!("one application");
    };
    let of: Vec<_> = phases
        .iter()
        .map(|it| (it.compute_s, it.bytes, it.declared))
        .collect();
    assert_eq!(of, [(0.0, 8e6, Some(20_000_000)), (11.0, 2e6, None)]);
    assert_eq!(record.bandwidth(), Some(1e6));
    assert!(IoRecord::of(&[]).is_empty() && IoRecord::of(&[]).bandwidth().is_none());
}

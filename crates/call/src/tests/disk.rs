//! Tests of slow and failing disks: only the threads that make calls wait for them.

use std::fs::{self, OpenOptions};
use std::sync::Arc;

use barograph_model::{Clock as _, ManualClock};
use barograph_stream::calls::AckStatus;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value as Json, json};

use super::{OURS, S, World, all, member, who};
use crate::desk::{RETRY_NS, hold};
use crate::{Board, CallError};

/// All uses that the intake makes of the board.
fn do_as_the_intake_does(world: &World) {
    world.board.join(member(2, OURS));
    world.board.answer(OURS, who(1), 1, AckStatus::Done);
    world.board.leave(OURS, who(2));
    world.board.beat();
    world.board.documents(|_| true);
    world.board.public_document();
    world.board.events();
}

#[test]
fn a_call_that_waits_for_its_disk_holds_up_no_intake_and_is_in_no_slot() {
    let world = World::new();
    world.join(member(1, OURS));
    let first = world.fire(json!({"name": "checkpoint"})).unwrap();
    let audit = world.dir.path().join("state/u1000/calls.jsonl");
    let lines = || fs::read_to_string(&audit).unwrap().lines().count();
    let before = lines();
    let desk = world.board.desk(OURS).unwrap();
    // Holds the desk as a thread that waits for the disk does.
    let held = hold(&desk);
    let fired = std::thread::scope(|scope| {
        let fires: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| world.fire(json!({"name": "checkpoint"})).unwrap()))
            .collect();
        do_as_the_intake_does(&world);
        assert_eq!(world.state(&first), "acknowledged");
        // The call is on disk before it is in memory.
        assert_eq!((lines(), world.reader().written()), (before, 1));
        assert!(fires.iter().all(|fire| !fire.is_finished()));
        drop(held);
        let mut ids: Vec<u64> = fires
            .into_iter()
            .map(|fire| fire.join().unwrap().calls[0].1)
            .collect();
        ids.sort_unstable();
        ids
    });
    assert_eq!(fired, (2..=9).collect::<Vec<u64>>());
    assert_eq!(all(&world.reader()).len(), 9);
}

#[test]
fn an_audit_that_cannot_be_read_yet_holds_up_no_intake() {
    let world = World::new();
    // A pipe in place of the older file: reading it waits until something is written.
    let older = world.dir.path().join("state/u1000/calls.1.jsonl");
    mknodat(CWD, &older, FileType::Fifo, Mode::RWXU, 0).unwrap();
    world.board.join(member(1, OURS));
    // The call is an earlier agent's, and is answered before the audit is known.
    do_as_the_intake_does(&world);
    std::thread::scope(|scope| {
        let fire = scope.spawn(|| world.fire(json!({"name": "checkpoint"})).unwrap());
        let mut pipe = OpenOptions::new().write(true).open(&older).unwrap();
        let line = json!({
            "event": "fired", "id": 1, "ts": 100 * S, "expires_ts": 200 * S, "kind": 1, "name": "checkpoint",
            "target": [], "incarnation": null, "payload": {"type": 0, "hex": ""}, "version": 1,
            "by": {"via": "test"}, "waiting": [who(1).to_string()], "answers": [1, 0, 0, 0, 0, 0],
        });
        std::io::Write::write_all(&mut pipe, format!("{line}\n").as_bytes()).unwrap();
        drop(pipe);
        assert_eq!(fire.join().unwrap().calls, [(OURS, 2)]);
    });
    let rows = world.rows();
    let states: Vec<_> = rows.iter().map(|row| row["state"].as_str()).collect();
    assert_eq!(states, [Some("fired"), Some("acknowledged")]);
}

#[test]
fn what_cannot_be_written_is_not_made_and_the_next_is() {
    let world = World::new();
    world.join(member(1, OURS));
    let payload = "x".repeat(3_000);
    let fire = || world.fire(json!({"name": "checkpoint", "payload": payload}));
    let answer = |id| {
        world.board.answer(OURS, who(1), id, AckStatus::Done);
    };
    // A directory with a file in it, which cannot be removed, has the name of the next file.
    let in_the_way = world.dir.path().join("state/u1000/calls.new");
    fs::create_dir(&in_the_way).unwrap();
    fs::write(in_the_way.join("file"), "").unwrap();
    let (mut last, mut error) = (0, None);
    for _ in 0..5_000 {
        match fire() {
            Ok(fired) => last = fired.calls[0].1,
            Err(failed) => {
                error = Some(failed);
                break;
            }
        }
        answer(last);
    }
    let error = error.expect("the file is full at some time");
    assert!(
        matches!(&error, CallError::Internal(m) if m.contains("nothing was fired")),
        "{error}"
    );
    assert_eq!(world.reader().written(), last);
    fs::remove_dir_all(&in_the_way).unwrap();
    assert_eq!(fire().unwrap().calls, [(OURS, last + 1)]);
}

#[test]
fn an_audit_that_cannot_be_opened_is_tried_again_after_a_rest() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(100 * S));
    let (run_dir, state_dir) = World::dirs(dir.path());
    let board = Board::without_thread(run_dir, state_dir, Arc::clone(&clock) as _);
    assert_eq!(board.step(i64::MAX), i64::MAX, "nothing waits");
    let in_the_way = dir.path().join("state/u1000/calls.jsonl");
    fs::create_dir(&in_the_way).unwrap();
    board.join(member(1, OURS));
    let next_ns = clock.monotonic_ns() + RETRY_NS;
    assert_eq!(board.step(i64::MAX), next_ns);
    fs::remove_dir(&in_the_way).unwrap();
    let is_open = || !board.documents(|_| true).is_empty();
    for (wait_ns, expect) in [(RETRY_NS - 1, (next_ns, false)), (1, (i64::MAX, true))] {
        clock.advance(wait_ns);
        assert_eq!((board.step(next_ns), is_open()), expect);
    }
}

#[test]
fn answers_are_written_down_without_a_call_and_when_the_agent_ends() {
    let mut world = World::new();
    world.join(member(1, OURS));
    let fired = world.fire(json!({"name": "checkpoint"})).unwrap();
    world.board.answer(OURS, who(1), 1, AckStatus::Failed);
    // Unlike with real agents, another board is made before this one ends: its audit is read when a
    // process joins.
    world.restart();
    world.join(member(1, OURS));
    assert_eq!(world.state(&fired), "failed");
    assert_eq!(Arc::strong_count(&world.board), 1);
}

#[test]
fn the_processes_of_a_call_are_written_in_one_order() {
    let world = World::new();
    for n in (1..=16).rev() {
        world.join(member(n, OURS));
    }
    world.fire(json!({"name": "checkpoint"})).unwrap();
    let audit = fs::read_to_string(world.dir.path().join("state/u1000/calls.jsonl")).unwrap();
    let line: Json = serde_json::from_str(audit.lines().next_back().unwrap()).unwrap();
    let sorted: Vec<String> = (1..=16).map(|n| who(n).to_string()).collect();
    assert_eq!(line["waiting"], json!(sorted));
}

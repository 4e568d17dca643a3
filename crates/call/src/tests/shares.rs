//! Tests of what one user can do to others: fill slots, declare the same names differently, wait.

use std::time::Duration;

use barograph_model::{RequestSender, ValueType};
use barograph_stream::calls::{AckStatus, CallPayload, SLOTS};
use serde_json::json;

use super::{OTHERS, OURS, World, all, member, who};
use crate::guests::GUEST_WAITS_MAX;
use crate::{CallError, CallRequest};

fn guest(uid: u32) -> RequestSender {
    RequestSender {
        uid: Some(uid),
        ..RequestSender::default()
    }
}

#[test]
fn a_user_whose_calls_wait_keeps_no_other_from_being_called() {
    let world = World::new();
    world.join(member(1, OURS));
    world.join(member(2, OTHERS));
    let own = json!({"name": "checkpoint", "expires_s": 86_400});
    for _ in 0..SLOTS {
        world.fire_as(&own, &guest(OTHERS)).unwrap();
    }
    let alone = world.fire_as(&own, &guest(OTHERS)).unwrap_err();
    assert!(matches!(alone, CallError::Busy(_)), "{alone}");
    let fired = world.fire(json!({"name": "checkpoint"})).unwrap();
    assert_eq!(fired.calls, [(OURS, 1)]);
    world.board.answer(OURS, who(1), 1, AckStatus::Done);
    let outcome = world.board.outcome(&fired);
    assert_eq!(
        (outcome.matched, outcome.acknowledged, outcome.busy),
        (2, 1, 1)
    );
    let told = fired.json(outcome);
    assert_eq!(told["state"], "busy");
    assert_eq!(told["left_out"][0]["processes"], 1);
    let reason = told["left_out"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("calls wait"), "{reason}");
}

#[test]
fn a_user_who_declares_a_name_otherwise_keeps_no_others_knob_from_being_set() {
    let world = World::new();
    world.join(member(1, OURS));
    let mut theirs = member(2, OTHERS);
    let bounds = theirs.offers[1].bounds.as_mut().unwrap();
    (bounds.value_type, bounds.max) = (ValueType::Bool, 1.0);
    world.join(theirs);
    let set = |value: serde_json::Value| {
        world.fire(json!({"name": "solver.dt", "knob": true, "payload": value}))
    };
    let fired = set(json!(0.5)).unwrap();
    assert_eq!(fired.calls, [(OURS, 1)]);
    let outcome = world.board.outcome(&fired);
    assert_eq!((outcome.matched, outcome.refused), (2, 1));
    // A value that both knobs admit is written for each in its own type.
    assert_eq!(set(json!(1)).unwrap().calls, [(OURS, 2), (OTHERS, 1)]);
    assert_eq!(all(&world.reader())[1].payload, CallPayload::Float(1.0));
    let nobody = set(json!("x")).unwrap_err();
    assert!(matches!(nobody, CallError::Request(_)), "{nobody}");
}

#[test]
fn a_knob_is_set_at_a_frame_where_all_can() {
    let world = World::new();
    world.join(member(1, OURS));
    let mut old = member(2, OURS);
    old.offers[1].takes_frames = false;
    let set = |at_frame: serde_json::Value| {
        let body = json!({"name": "solver.dt", "knob": true, "payload": 0.5, "at_frame": at_frame});
        world.fire(body)
    };
    let fired = set(json!(60)).unwrap();
    let call = all(&world.reader()).pop().unwrap();
    assert_eq!((call.id, call.at_frame), (1, Some(60)));
    world.board.answer(OURS, who(1), 1, AckStatus::Late);
    let outcome = world.board.outcome(&fired);
    assert_eq!((outcome.late, outcome.state()), (1, "late"));
    assert_eq!(world.rows()[0]["at_frame"], 60);
    world.join(old);
    let refused = set(json!(70)).unwrap_err();
    assert!(refused.to_string().contains("library"), "{refused}");
    for at_frame in [json!(-1), json!("x"), json!(1.5)] {
        let refused = set(at_frame).unwrap_err();
        assert!(matches!(refused, CallError::Request(_)), "{refused}");
    }
    let trigger = world.fire(json!({"name": "checkpoint", "at_frame": 1}));
    assert!(matches!(trigger, Err(CallError::Request(_))));
}

#[test]
fn one_user_waits_for_a_few_calls_at_a_time() {
    let world = World::new();
    world.join(member(1, OURS));
    world.join(member(2, OTHERS));
    let request = |uid| {
        let body = json!({"name": "checkpoint"});
        CallRequest::parse(&body, &guest(uid)).unwrap().0
    };
    let (ours, theirs) = (request(OURS), request(OTHERS));
    std::thread::scope(|scope| {
        let wait = |request| {
            let board = &world.board;
            scope.spawn(move || board.fire_and_wait(request, Duration::from_secs(60)))
        };
        let waits: Vec<_> = (0..GUEST_WAITS_MAX).map(|_| wait(&theirs)).collect();
        // A wait begins before its call is made: once the last call exists, all waits have begun.
        let last = super::CallsMade {
            calls: vec![(OTHERS, GUEST_WAITS_MAX as u64)],
            ..super::CallsMade::default()
        };
        while world.board.outcome(&last).matched < 1 {
            std::thread::yield_now();
        }
        let fifth = world.board.fire_and_wait(&theirs, Duration::from_secs(60));
        let refused = fifth.unwrap_err();
        assert!(matches!(refused, CallError::Busy(_)), "{refused}");
        // Calls without waiting, and other users, are not affected.
        let call = world.board.fire_and_wait(&theirs, Duration::ZERO).unwrap();
        assert_eq!(call.1.state(), "fired");
        let other = wait(&ours);
        while world.reader().written() < 1 {
            std::thread::yield_now();
        }
        world.board.answer(OURS, who(1), 1, AckStatus::Done);
        assert_eq!(other.join().unwrap().unwrap().1.state(), "acknowledged");
        world.board.leave(OTHERS, who(2));
        for wait in waits {
            assert_eq!(wait.join().unwrap().unwrap().1.state(), "gone");
        }
    });
    // Waits that have ended no longer count: this call is refused for another reason.
    let nobody = world.board.fire_and_wait(&theirs, Duration::from_secs(60));
    assert!(matches!(nobody, Err(CallError::Nobody(_))));
}

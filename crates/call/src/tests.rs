//! Tests of the board: matching processes, outcomes, and a new agent that continues.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use barograph_model::{ManualClock, RequestSender, ValueType};
use barograph_stream::calls::{
    AckStatus, Call, CallKind, CallPayload, CallSubject, CallsReader, NextCall, SLOTS,
};
use barograph_stream::{Incarnation, RunDir, user_name};
use serde_json::{Value as Json, json};

use crate::{Board, CallError, CallMember, CallRequest, CallsMade, KnobBounds, Offer};

mod disk;
mod foreign;
mod shares;

const S: i64 = 1_000_000_000;
const OURS: u32 = 1_000;
const OTHERS: u32 = 1_001;

struct World {
    dir: tempfile::TempDir,
    clock: Arc<ManualClock>,
    board: Arc<Board>,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(100 * S));
        let board = Self::board(dir.path(), &clock);
        Self { dir, clock, board }
    }

    fn board(dir: &Path, clock: &Arc<ManualClock>) -> Arc<Board> {
        let (run_dir, state_dir) = Self::dirs(dir);
        Arc::new(Board::new(run_dir, state_dir, Arc::clone(clock) as _))
    }

    /// Makes the directories of run and state.
    fn dirs(dir: &Path) -> (RunDir, PathBuf) {
        let (run_dir, state_dir) = (RunDir::new(dir.join("run")), dir.join("state"));
        for uid in [OURS, OTHERS] {
            let scope = format!("u{uid}");
            fs::create_dir_all(run_dir.scope(&scope).path()).unwrap();
            fs::create_dir_all(state_dir.join(&scope)).unwrap();
        }
        (run_dir, state_dir)
    }

    /// Replaces the agent by a new one.
    fn restart(&mut self) {
        self.board = Self::board(self.dir.path(), &self.clock);
    }

    /// Adds a process; its user's audit is open when this returns.
    fn join(&self, member: CallMember) {
        self.board.join(member);
        self.board.write_now();
    }

    fn calls_file(&self) -> std::path::PathBuf {
        self.dir.path().join("run/applications/u1000/calls")
    }

    fn reader(&self) -> CallsReader {
        CallsReader::open(&self.calls_file()).unwrap()
    }

    fn fire(&self, body: Json) -> Result<CallsMade, CallError> {
        self.fire_as(
            &body,
            &RequestSender {
                uid: Some(0),
                pid: Some(1),
                via: "control.sock".into(),
                may_control: true,
            },
        )
    }

    fn fire_as(&self, body: &Json, asker: &RequestSender) -> Result<CallsMade, CallError> {
        let (request, _) = CallRequest::parse(body, asker)?;
        self.board.fire(&request)
    }

    fn state(&self, fired: &CallsMade) -> &'static str {
        self.board.outcome(fired).state()
    }

    fn rows(&self) -> Vec<Json> {
        let documents = self.board.documents(|_| true);
        let ours = documents.into_iter().find(|(uid, _)| *uid == OURS);
        ours.unwrap().1.as_array().unwrap().clone()
    }
}

fn who(n: u8) -> Incarnation {
    Incarnation([n; 16])
}

/// Process `n` of a user, with a handler and a knob; its rank is its number.
fn member(n: u8, uid: u32) -> CallMember {
    let labels = [("rank".to_owned(), n.to_string())];
    let subject = CallSubject::new(who(n), "solver", u32::from(n), "eve", &[&labels]);
    // Everyone may read about the knob.
    let offer = |kind, name: &str, bounds: Option<KnobBounds>| Offer {
        takes_frames: true,
        kind,
        name: name.into(),
        publication: Some("solver".into()),
        is_public: bounds.is_some(),
        subject: subject.clone(),
        bounds,
    };
    let bounds = KnobBounds {
        value_type: ValueType::Float,
        min: 0.0,
        max: 1.0,
    };
    CallMember {
        incarnation: who(n),
        uid,
        offers: vec![
            offer(CallKind::Trigger, "checkpoint", None),
            offer(CallKind::Knob, "solver.dt", Some(bounds)),
        ],
    }
}

fn all(reader: &CallsReader) -> Vec<Call> {
    let mut cursor = reader.oldest();
    std::iter::from_fn(|| match reader.next(&mut cursor) {
        NextCall::Call(call) => Some(call),
        NextCall::Nothing => None,
        NextCall::Missed(n) => panic!("{n} missed"),
    })
    .collect()
}

#[test]
fn those_who_are_meant_are_called_and_their_answers_counted() {
    let world = World::new();
    for n in 1..=3 {
        world.join(member(n, OURS));
    }
    world.join(member(4, OTHERS));
    let body =
        json!({"name": "checkpoint", "payload": {"level": 2}, "target": {"application": "solver"}});
    let fired = world.fire(body).unwrap();
    assert_eq!(
        (fired.matched, &fired.calls),
        (4, &vec![(OURS, 1), (OTHERS, 1)])
    );
    let calls = all(&world.reader());
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].payload, CallPayload::Json("{\"level\":2}".into()));
    assert_eq!(
        (calls[0].issued_ns, calls[0].expires_ns),
        (100 * S, 160 * S)
    );
    assert_eq!(world.state(&fired), "fired");
    for n in 1..=3 {
        for _ in 0..2 {
            world.board.answer(OURS, who(n), 1, AckStatus::Done);
        }
    }
    // No answer counts of a process that does not match, to a call that does not exist, or from
    // another user's process.
    world.board.answer(OURS, who(9), 1, AckStatus::Failed);
    world.board.answer(OURS, who(1), 2, AckStatus::Failed);
    world.board.answer(OURS, who(4), 1, AckStatus::Failed);
    assert_eq!(world.state(&fired), "fired");
    world.board.answer(OTHERS, who(4), 1, AckStatus::Done);
    let outcome = world.board.outcome(&fired);
    assert_eq!((outcome.acknowledged, outcome.failed), (4, 0));
    assert_eq!(outcome.state(), "acknowledged");
    let rows = world.rows();
    assert_eq!(rows[0]["state"], "acknowledged");
    assert_eq!(rows[0]["by_pid"], 1);
    assert!(
        world.board.documents(|_| true).is_empty(),
        "nothing has changed"
    );
    let (events, lost) = world.board.events();
    assert_eq!((events.len(), lost), (6, 0));
}

#[test]
fn one_process_by_its_labels_or_its_life() {
    let world = World::new();
    for n in 1..=3 {
        world.join(member(n, OURS));
    }
    for target in [
        json!({"target": {"rank": 2}}),
        json!({"target": {"pid": "2"}}),
        json!({"incarnation": who(2).to_string()}),
    ] {
        let mut body = target.clone();
        body["name"] = json!("checkpoint");
        assert_eq!(world.fire(body).unwrap().matched, 1, "{target}");
    }
    for (body, hint) in [
        (
            json!({"name": "checkpoint", "target": {"rank": 4}}),
            "the one that is meant",
        ),
        (json!({"name": "chekpoint"}), "there is checkpoint"),
        (
            json!({"name": "checkpoint", "knob": true}),
            "there is solver.dt",
        ),
    ] {
        let error = world.fire(body).unwrap_err();
        assert!(
            matches!(&error, CallError::Nobody(m) if m.contains(hint)),
            "{error}"
        );
    }
    assert_eq!(world.reader().written(), 3, "nothing is written for nobody");
}

#[test]
fn on_the_read_side_ones_own_processes_alone() {
    let world = World::new();
    world.join(member(1, OURS));
    world.join(member(2, OTHERS));
    let body = json!({"name": "checkpoint"});
    let asker = |uid| RequestSender {
        uid,
        ..RequestSender::default()
    };
    let fired = world.fire_as(&body, &asker(Some(OURS))).unwrap();
    assert_eq!(fired.calls, [(OURS, 1)]);
    let nobody = world.fire_as(&body, &asker(Some(7))).unwrap_err();
    // The error does not name handlers of other users either.
    assert!(!nobody.to_string().contains("checkpoint"), "{nobody}");
    assert!(matches!(nobody, CallError::Nobody(_)));
    let unknown = world.fire_as(&body, &asker(None)).unwrap_err();
    assert!(matches!(unknown, CallError::Forbidden(_)));
}

/// Some columns of the rows.
fn columns(rows: &Json) -> Json {
    let names = [
        "id",
        "kind",
        "user",
        "payload",
        "payload_bytes",
        "publications",
        "by_user",
        "by_pid",
        "via",
    ];
    let rows = rows.as_array().unwrap().iter();
    rows.map(|row| names.map(|name| row[name].clone()).into_iter().collect())
        .collect::<Vec<Json>>()
        .into()
}

#[test]
fn everyone_may_read_of_calls_of_what_everyone_may_read() {
    let mut world = World::new();
    world.join(member(1, OURS));
    let mut theirs = member(2, OTHERS);
    theirs.offers[0].is_public = true;
    world.join(theirs);
    assert_eq!(world.board.public_document(), None);
    // Everyone may read about calls to one user's processes, but not about those to the other's.
    let fire = |world: &World, payload: &str| {
        let body = json!({"name": "checkpoint", "payload": payload});
        world.fire(body).unwrap()
    };
    fire(&world, "secret");
    world.clock.advance(S);
    let body = json!({"name": "solver.dt", "knob": true, "payload": 0.5, "target": {"rank": 1}});
    world.fire(body).unwrap();
    let row = |id: u64, kind: &str, uid, payload: Json, bytes: u64| {
        let (user, of) = (user_name(uid), json!(["solver"]));
        json!([id, kind, user, payload, bytes, of, null, null, null])
    };
    let expect = json!([
        row(2, "knob", OURS, json!("0.5"), 8),
        row(1, "trigger", OTHERS, Json::Null, 6)
    ]);
    let check = |world: &World, states: [&str; 2]| {
        let rows = world.board.public_document().unwrap();
        assert_eq!(columns(&rows), expect);
        assert_eq!([0, 1].map(|at| rows[at]["state"].clone()), states);
    };
    check(&world, ["fired", "fired"]);
    assert_eq!(world.board.public_document(), None, "nothing has changed");
    world.board.answer(OURS, who(1), 1, AckStatus::Done);
    assert_eq!(world.board.public_document(), None, "it is its user's");
    world.board.answer(OURS, who(1), 2, AckStatus::Done);
    check(&world, ["acknowledged", "fired"]);
    let (events, _) = world.board.events();
    // Events are in order for each user; which of two users' disks is done first is undetermined.
    let public_of = |uid| -> Vec<bool> {
        let of_user = events.iter().filter(|event| event.uid == uid);
        of_user.map(|event| event.is_public).collect()
    };
    assert_eq!(public_of(OURS), [false, true, false, true]);
    assert_eq!(public_of(OTHERS), [true]);
    // The next agent knows which calls were public.
    world.restart();
    for (n, uid) in [(1, OURS), (2, OTHERS)] {
        world.join(member(n, uid));
    }
    check(&world, ["acknowledged", "fired"]);
    world.board.leave(OTHERS, who(2));
    check(&world, ["acknowledged", "gone"]);
    assert_eq!(world.rows().len(), 2);
}

#[test]
fn guests_have_a_rate() {
    let world = World::new();
    world.join(member(1, OURS));
    let asker = RequestSender {
        uid: Some(OURS),
        ..RequestSender::default()
    };
    let fire = || {
        world
            .fire_as(&json!({"name": "nothing"}), &asker)
            .unwrap_err()
    };
    let allowed = |count: usize| {
        let found = (0..).find(|_| matches!(fire(), CallError::Busy(_)));
        assert_eq!(found, Some(count));
    };
    allowed(1_000);
    world.clock.advance(S / 10);
    allowed(20);
    assert!(
        world.fire(json!({"name": "checkpoint"})).is_ok(),
        "who may control"
    );
}

#[test]
fn knobs_are_held_to_their_bounds_before_anything_is_written() {
    let world = World::new();
    world.join(member(1, OURS));
    let set =
        |value: Json| world.fire(json!({"name": "solver.dt", "knob": true, "payload": value}));
    for (n, value) in [json!(0), json!(0.25), json!(1.0)].into_iter().enumerate() {
        assert_eq!(set(value).unwrap().calls, [(OURS, n as u64 + 1)]);
    }
    for value in [json!(1.5), json!("0.5"), json!(null), json!(true)] {
        let error = set(value.clone()).unwrap_err();
        assert!(matches!(error, CallError::Request(_)), "{value}: {error}");
    }
    let calls = all(&world.reader());
    let expect = [0.0, 0.25, 1.0].map(CallPayload::Float);
    assert_eq!(
        calls.iter().map(|c| c.payload.clone()).collect::<Vec<_>>(),
        expect
    );
    assert!(calls.is_sorted_by(|a, b| a.version < b.version));
}

#[test]
fn what_is_asked_wrongly_says_so() {
    let world = World::new();
    world.join(member(1, OURS));
    for body in [
        json!("checkpoint"),
        json!({}),
        json!({"name": "checkpoint", "paylod": 1}),
        json!({"name": "checkpoint", "target": {"rank": [1]}}),
        json!({"name": "checkpoint", "incarnation": "0"}),
        json!({"name": "checkpoint", "incarnation": "0".repeat(32)}),
        json!({"name": "checkpoint", "expires_s": 0.5}),
        json!({"name": "checkpoint", "expires_s": -1}),
        json!({"name": "checkpoint", "expires_s": 1e300}),
        json!({"name": "checkpoint", "wait_s": 31}),
        json!({"name": "checkpoint", "payload": "x".repeat(3_073)}),
    ] {
        let error = world.fire(body.clone()).unwrap_err();
        assert!(matches!(error, CallError::Request(_)), "{body}: {error}");
    }
}

#[test]
fn a_slot_is_not_given_away_while_somebody_is_to_have_it() {
    let world = World::new();
    world.join(member(1, OURS));
    let fire = || world.fire(json!({"name": "checkpoint", "expires_s": 60}));
    let first = fire().unwrap();
    for _ in 1..SLOTS {
        fire().unwrap();
    }
    let busy = fire().unwrap_err();
    assert!(
        matches!(&busy, CallError::Busy(m) if m.contains("checkpoint")),
        "{busy}"
    );
    world.board.answer(OURS, who(1), 1, AckStatus::Done);
    assert_eq!(fire().unwrap().calls, [(OURS, SLOTS + 1)]);
    assert_eq!(world.state(&first), "acknowledged");
    assert!(fire().is_err(), "the second is still to be had");
    world.clock.advance(61 * S);
    world.board.beat();
    assert_eq!(fire().unwrap().calls, [(OURS, SLOTS + 2)]);
    let second = CallsMade {
        calls: vec![(OURS, 2)],
        matched: 1,
        ..CallsMade::default()
    };
    assert_eq!(world.state(&second), "expired");
    // The end of a process frees the slots that wait for it.
    for _ in 0..SLOTS - 1 {
        fire().unwrap();
    }
    assert!(fire().is_err());
    world.board.leave(OURS, who(1));
    world.join(member(2, OURS));
    assert!(fire().is_ok());
    assert_eq!(
        world
            .rows()
            .iter()
            .filter(|row| row["state"] == "gone")
            .count(),
        SLOTS as usize
    );
}

#[test]
fn states_tell_what_became_of_it() {
    let world = World::new();
    let check = |statuses: [Option<AckStatus>; 2], expect: &str| {
        for n in [1, 2] {
            world.join(member(n, OURS));
        }
        let fired = world.fire(json!({"name": "checkpoint"})).unwrap();
        for (n, status) in (1..).zip(statuses) {
            match status {
                Some(status) => world.board.answer(OURS, who(n), fired.calls[0].1, status),
                None => world.board.leave(OURS, who(n)),
            }
        }
        assert_eq!(world.state(&fired), expect, "{statuses:?}");
    };
    use AckStatus::{Done, Expired, Failed, Refused};
    check([Some(Done), Some(Done)], "acknowledged");
    check([Some(Failed), Some(Done)], "failed");
    check([Some(Refused), Some(Done)], "refused");
    check([Some(Done), Some(Expired)], "expired");
    check([Some(Done), None], "gone");
    check([None, None], "gone");
}

#[test]
fn who_waits_is_told_of_the_last_answer() {
    let world = World::new();
    world.join(member(1, OURS));
    let fired = world.fire(json!({"name": "checkpoint"})).unwrap();
    assert_eq!(world.board.wait(&fired, Duration::ZERO).state(), "fired");
    let board = Arc::clone(&world.board);
    let waiter = std::thread::spawn(move || board.wait(&fired, Duration::from_secs(20)));
    world.board.answer(OURS, who(1), 1, AckStatus::Failed);
    assert_eq!(waiter.join().unwrap().state(), "failed");
}

#[test]
fn who_waits_is_told_of_the_end_of_time() {
    let world = World::new();
    world.join(member(1, OURS));
    let fired = world.fire(json!({"name": "checkpoint"})).unwrap();
    let board = Arc::clone(&world.board);
    let waiter = std::thread::spawn(move || board.wait(&fired, Duration::MAX));
    world.clock.advance(86_400 * S);
    world.board.beat();
    assert_eq!(waiter.join().unwrap().state(), "expired");
}

#[test]
fn a_new_agent_knows_what_was_promised() {
    let mut world = World::new();
    for n in [1, 2] {
        world.join(member(n, OURS));
    }
    let body = json!({"name": "checkpoint", "payload": "é", "target": {"user": "eve"}});
    let first = world.fire(body.clone()).unwrap();
    let second = world.fire(body).unwrap();
    world.board.answer(OURS, who(1), 1, AckStatus::Done);
    world.board.answer(OURS, who(2), 1, AckStatus::Failed);
    world.board.answer(OURS, who(1), 2, AckStatus::Done);
    let (outcomes, before) = (
        [&first, &second].map(|f| world.board.outcome(f)),
        all(&world.reader()),
    );
    world.restart();
    world.join(member(2, OURS));
    assert_eq!([&first, &second].map(|f| world.board.outcome(f)), outcomes);
    assert_eq!(all(&world.reader()), before);
    world.board.answer(OURS, who(2), 2, AckStatus::Done);
    assert_eq!(world.state(&second), "acknowledged");
    let third = world.fire(json!({"name": "checkpoint"})).unwrap();
    assert_eq!(third.calls, [(OURS, 3)]);
    assert_eq!(world.rows().len(), 3);
}

#[test]
fn calls_that_wait_are_written_again_where_their_file_is_gone() {
    let mut world = World::new();
    for n in [1, 2] {
        world.join(member(n, OURS));
    }
    for id in 1..=4 {
        world
            .fire(json!({"name": "checkpoint", "payload": id}))
            .unwrap();
    }
    for n in [1, 2] {
        world.board.answer(OURS, who(n), 1, AckStatus::Done);
        world.board.answer(OURS, who(n), 3, AckStatus::Done);
    }
    let before = all(&world.reader());
    fs::remove_file(world.calls_file()).unwrap();
    world.restart();
    world.join(member(1, OURS));
    assert_eq!(all(&world.reader()), before[1..]);
    let next = world.fire(json!({"name": "checkpoint"})).unwrap();
    assert_eq!(next.calls, [(OURS, 5)]);
}

#[test]
fn a_call_that_is_on_disk_and_in_no_slot_is_made() {
    let mut world = World::new();
    world.join(member(1, OURS));
    world.fire(json!({"name": "checkpoint"})).unwrap();
    // As if the agent had been killed between the audit and the slot.
    let path = world.dir.path().join("state/u1000/calls.jsonl");
    let line = fs::read_to_string(&path).unwrap();
    let lost = line.replace("\"id\":1", "\"id\":2");
    fs::write(&path, format!("{line}{lost}{{\"event\":\"torn")).unwrap();
    world.restart();
    world.join(member(1, OURS));
    let ids: Vec<u64> = all(&world.reader()).iter().map(|call| call.id).collect();
    assert_eq!(ids, [1, 2]);
    let next = world.fire(json!({"name": "checkpoint"})).unwrap();
    assert_eq!(next.calls, [(OURS, 3)]);
}

#[test]
fn a_full_audit_forgets_nobody_who_waits() {
    let mut world = World::new();
    world.join(member(1, OURS));
    let payload = "x".repeat(3_000);
    let fire = |world: &World| {
        let body = json!({"name": "checkpoint", "payload": payload, "expires_s": 3_600});
        world.fire(body).unwrap()
    };
    let answer = |world: &World, fired: &CallsMade| {
        world
            .board
            .answer(OURS, who(1), fired.calls[0].1, AckStatus::Done);
    };
    let older = world.dir.path().join("state/u1000/calls.1.jsonl");
    let mut waits = fire(&world);
    let mut last = waits.clone();
    for n in 1.. {
        if older.exists() {
            break;
        }
        assert!(n < 5_000, "it is never put aside");
        last = fire(&world);
        answer(&world, &last);
        if n % 200 == 0 {
            answer(&world, &waits);
            waits = fire(&world);
            last = waits.clone();
        }
    }
    let before = world.rows();
    world.restart();
    world.join(member(1, OURS));
    assert_eq!(world.state(&waits), "fired");
    assert_eq!(world.rows().len(), before.len());
    assert_eq!(fire(&world).calls[0].1, last.calls[0].1 + 1);
}

//! Bounds of the queue, and what is known of what was refused, forgotten or came too late.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use barograph_action::{
    ActionFilter, ActionQueue, ActionRequest, ActionState, Changed, Delivery, Enqueued,
    EventCursor, QueueConfig, RepeatWish, RuleStart, Settled,
};
use barograph_model::{Clock, ManualClock};

use crate::support::{SECOND, failure, key, open, request, start};

struct Fixture {
    folder: tempfile::TempDir,
    config: QueueConfig,
    clock: Arc<ManualClock>,
}

impl Fixture {
    fn new(config: QueueConfig) -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            config,
            clock: Arc::new(ManualClock::at(1_000 * SECOND)),
        }
    }

    fn open(&self) -> ActionQueue {
        open(&self.folder.path().join("queue"), &self.config, &self.clock)
    }
}

fn do_all(queue: &ActionQueue, rule: &str) -> usize {
    let claimed = queue.claim("w", &[start(rule)], 1_000, SECOND).unwrap();
    for action in &claimed {
        assert_eq!(queue.done(action.lease, Vec::new()).unwrap(), Settled::Done);
    }
    claimed.len()
}

fn states(queue: &ActionQueue) -> Vec<ActionState> {
    let list = queue.list(&ActionFilter::default()).unwrap();
    list.iter().rev().map(|info| info.state).collect()
}

#[test]
fn cursors_are_kept_over_restarts_until_they_are_forgotten() {
    let fixture = Fixture::new(QueueConfig::default());
    let cursor = |source: &str, index, ts| EventCursor {
        source: source.into(),
        index,
        ts,
    };
    let queue = fixture.open();
    let long = cursor(&"x".repeat(1_000), 1, 1);
    queue
        .set_cursors(&[cursor("b", 1, 5), cursor("a", u64::MAX, -3), long])
        .unwrap();
    queue
        .enqueue_up_to(&[request("r", 7)], &cursor("b", 7, 9))
        .unwrap();
    drop(queue);
    let queue = fixture.open();
    let expect = [cursor("a", u64::MAX, -3), cursor("b", 7, 9)];
    assert_eq!(queue.cursors().unwrap(), expect);
    assert_eq!(states(&queue), [ActionState::Waiting]);
    queue.forget_cursors().unwrap();
    assert_eq!(queue.cursors().unwrap(), []);
}

#[test]
fn what_is_refused_is_counted_with_its_rule_and_over_restarts() {
    let config = QueueConfig {
        actions_max: 5,
        actions_per_rule_max: 3,
        body_bytes_max: 100,
        ..QueueConfig::default()
    };
    let fixture = Fixture::new(config);
    let queue = fixture.open();
    let batch = |rule: &str| (0..4).map(|index| request(rule, index)).collect::<Vec<_>>();
    let a = queue.enqueue(&batch("a")).unwrap();
    assert_eq!((a.accepted, a.refused_rule), (3, 1));
    let b = queue.enqueue(&batch("b")).unwrap();
    assert_eq!((b.accepted, b.refused_full), (2, 2));
    let long = ActionRequest {
        body: vec![0; 101],
        ..request("a", 9)
    };
    let nameless = request("", 1);
    let mut wide = request("a", 10);
    wide.key.source = "s".repeat(257);
    let bad = queue.enqueue(&[long, nameless, wide]).unwrap();
    assert_eq!(
        bad,
        Enqueued {
            refused_size: 3,
            ..Enqueued::default()
        }
    );
    assert_eq!(queue.enqueue(&batch("b")[..1]).unwrap().duplicates, 1);
    assert_eq!((queue.status().accepted, queue.status().refused), (5, 6));
    drop(queue);
    let queue = fixture.open();
    let rules = queue.rules();
    let counts: Vec<_> = rules
        .iter()
        .map(|it| (it.rule.as_str(), it.waiting, it.refused, it.duplicates))
        .collect();
    assert_eq!(counts, [("a", 3, 3, 0), ("b", 2, 2, 1)]);
}

#[test]
fn a_file_that_is_large_enough_takes_no_more_and_can_be_emptied() {
    let fixture = Fixture::new(QueueConfig {
        file_bytes_max: 200_000,
        done_max: 0,
        ..QueueConfig::default()
    });
    let queue = fixture.open();
    let mut accepted = 0;
    for index in 0..1_000 {
        let body = vec![0; 2_000];
        let outcome = queue
            .enqueue(&[ActionRequest {
                body,
                ..request("r", index)
            }])
            .unwrap();
        accepted += outcome.accepted;
        assert_eq!(outcome.accepted + outcome.refused_full, 1);
    }
    assert!((30..=100).contains(&accepted), "{accepted}");
    assert_eq!(do_all(&queue, "r"), accepted as usize);
    assert_eq!(queue.enqueue(&[request("r", 2_000)]).unwrap().accepted, 1);
}

#[test]
fn a_request_that_comes_again_is_known_when_its_action_is_forgotten() {
    let fixture = Fixture::new(QueueConfig {
        done_max: 1,
        ..QueueConfig::default()
    });
    let queue = fixture.open();
    let batch: Vec<_> = (0..5).map(|index| request("r", index)).collect();
    queue.enqueue(&batch).unwrap();
    assert_eq!(do_all(&queue, "r"), 5);
    assert_eq!((queue.status().done_kept, queue.status().forgotten), (1, 4));
    drop(queue);
    let queue = fixture.open();
    assert_eq!(queue.enqueue(&batch).unwrap().duplicates, 5);
    // Another version of the rule, or another source, is another action.
    let mut other = request("r", 0);
    other.key.rule_version = 2;
    let elsewhere = ActionRequest {
        key: key("r", "other", 0),
        ..request("r", 0)
    };
    assert_eq!(queue.enqueue(&[other, elsewhere]).unwrap().accepted, 2);
    let greatest = request("r", u64::MAX);
    assert_eq!(
        queue
            .enqueue(&[greatest.clone(), greatest])
            .unwrap()
            .accepted,
        1
    );
}

#[test]
fn finished_actions_are_kept_so_long() {
    let fixture = Fixture::new(QueueConfig {
        done_ns_max: 10 * SECOND,
        dead_ns_max: 20 * SECOND,
        ..QueueConfig::default()
    });
    let queue = fixture.open();
    queue.enqueue(&[request("r", 0), request("r", 1)]).unwrap();
    let claimed = queue.claim("w", &[start("r")], 2, SECOND).unwrap();
    queue.done(claimed[0].lease, Vec::new()).unwrap();
    queue
        .failed(claimed[1].lease, failure(RepeatWish::Never), 0.0)
        .unwrap();
    let kept = |after_s: i64| {
        fixture.clock.advance(after_s * SECOND);
        queue.claim("w", &[], 0, SECOND).unwrap();
        (queue.status().done_kept, queue.status().dead_kept)
    };
    assert_eq!(
        (kept(10), kept(1), kept(9), kept(1)),
        ((1, 1), (0, 1), (0, 1), (0, 0))
    );
    assert_eq!(
        (queue.status().forgotten, queue.status().forgotten_dead),
        (2, 1)
    );
}

#[test]
fn rules_and_origins_without_actions_make_room() {
    let fixture = Fixture::new(QueueConfig {
        rules_max: 2,
        origins_max: 3,
        done_max: 0,
        ..QueueConfig::default()
    });
    let queue = fixture.open();
    let from = |rule: &str, source: &str| ActionRequest {
        key: key(rule, source, 0),
        ..request(rule, 0)
    };
    assert_eq!(
        queue
            .enqueue(&[from("a", "1"), from("b", "1")])
            .unwrap()
            .accepted,
        2
    );
    let third = queue.enqueue(&[from("c", "1")]).unwrap();
    assert_eq!((third.accepted, third.refused_full), (0, 1));
    assert_eq!(do_all(&queue, "a"), 1);
    assert_eq!(queue.enqueue(&[from("c", "1")]).unwrap().accepted, 1);
    let names: Vec<_> = queue.rules().into_iter().map(|it| it.rule).collect();
    assert_eq!(names, ["b", "c"]);
    let more = queue
        .enqueue(&[from("b", "2"), from("b", "3"), from("b", "4")])
        .unwrap();
    assert_eq!((more.accepted, more.refused_full), (1, 2));
    assert_eq!(do_all(&queue, "b"), 2);
    assert_eq!(
        queue
            .enqueue(&[from("b", "4"), from("b", "5")])
            .unwrap()
            .accepted,
        2
    );
    drop(queue);
    assert_eq!(fixture.open().status().waiting, 3);
}

#[test]
fn a_claim_is_shared_among_rules() {
    let fixture = Fixture::new(QueueConfig::default());
    let queue = fixture.open();
    let of = |rule: &str, count| {
        (0..count)
            .map(|index| request(rule, index))
            .collect::<Vec<_>>()
    };
    queue.enqueue(&of("busy", 100)).unwrap();
    queue.enqueue(&of("quiet", 3)).unwrap();
    let claim = |rules: &[RuleStart], count| {
        let claimed = queue.claim("w", rules, count, SECOND).unwrap();
        let of = |rule: &str| claimed.iter().filter(|it| it.key.rule == rule).count();
        (of("busy"), of("quiet"))
    };
    let both = [start("busy"), start("quiet")];
    assert_eq!(claim(&both, 4), (2, 2));
    assert_eq!(claim(&both, 10), (9, 1));
    let few = RuleStart {
        start_max: 3,
        ..start("busy")
    };
    assert_eq!(claim(&[few], 10), (3, 0));
    let running = RuleStart {
        running_max: 15,
        ..start("busy")
    };
    assert_eq!(claim(&[running, start("unknown")], 10), (1, 0));
    assert_eq!(claim(&[], 10), (0, 0));
}

#[test]
fn a_lease_of_before_changes_nothing() {
    let fixture = Fixture::new(QueueConfig::default());
    let queue = fixture.open();
    let once = ActionRequest {
        delivery: Delivery::AtMostOnce,
        ..request("r", 1)
    };
    queue.enqueue(&[request("r", 0), once]).unwrap();
    let first = queue.claim("first", &[start("r")], 2, SECOND).unwrap();
    drop(queue);
    // Leases go on when the queue is opened again.
    let queue = fixture.open();
    assert_eq!(queue.claim("second", &[start("r")], 2, SECOND).unwrap(), []);
    fixture.clock.advance(SECOND);
    let second = queue.claim("second", &[start("r")], 2, SECOND).unwrap();
    assert_eq!((second.len(), second[0].attempt), (1, 2));
    assert_eq!(states(&queue), [ActionState::Running, ActionState::Dead]);
    for action in &first {
        assert_eq!(
            queue.done(action.lease, Vec::new()).unwrap(),
            Settled::Stale
        );
        let failed = queue
            .failed(action.lease, failure(RepeatWish::Later), 0.0)
            .unwrap();
        assert_eq!(failed, Settled::Stale);
        assert_eq!(queue.extend(&[action.lease], SECOND).unwrap(), [false]);
    }
    assert_eq!(queue.status().stale, 6);
    assert_eq!(
        queue.done(second[0].lease, Vec::new()).unwrap(),
        Settled::Done
    );
    assert_eq!(
        queue.done(second[0].lease, Vec::new()).unwrap(),
        Settled::Stale
    );
    // What must not repeat is repeated only by hand.
    assert_eq!(queue.retry(2).unwrap(), Changed::From(ActionState::Dead));
    assert_eq!(
        queue
            .claim("third", &[start("r")], 2, SECOND)
            .unwrap()
            .len(),
        1
    );
}

/// A clock whose wall time can be set.
struct SetClock {
    monotonic_ns: AtomicI64,
    offset_ns: AtomicI64,
}

impl Clock for SetClock {
    fn now_ns(&self) -> i64 {
        self.monotonic_ns() + self.offset_ns.load(Ordering::SeqCst)
    }

    fn monotonic_ns(&self) -> i64 {
        self.monotonic_ns.load(Ordering::SeqCst)
    }
}

#[test]
fn setting_the_system_clock_ends_no_lease_and_delays_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(SetClock {
        monotonic_ns: AtomicI64::new(SECOND),
        offset_ns: AtomicI64::new(1_000_000 * SECOND),
    });
    let path = folder.path().join("queue");
    let open = || ActionQueue::open(&path, QueueConfig::default(), clock.clone()).unwrap();
    let queue = open();
    queue
        .enqueue(&[request("r", 0), request("r", 1), request("r", 2)])
        .unwrap();
    let claim = |queue: &ActionQueue, count| {
        let claimed = queue.claim("w", &[start("r")], count, 10 * SECOND).unwrap();
        claimed.iter().map(|it| it.key.index).collect::<Vec<_>>()
    };
    assert_eq!(claim(&queue, 1), [0]);
    // An hour on: the lease goes on.
    clock.offset_ns.fetch_add(3_600 * SECOND, Ordering::SeqCst);
    assert_eq!(claim(&queue, 1), [1]);
    // A day back: what waits is due at once, also in a queue that is opened later.
    clock.offset_ns.fetch_sub(86_400 * SECOND, Ordering::SeqCst);
    assert_eq!(claim(&queue, 1), [2]);
    queue.enqueue(&[request("r", 3)]).unwrap();
    drop(queue);
    clock.offset_ns.fetch_sub(86_400 * SECOND, Ordering::SeqCst);
    let queue = open();
    assert_eq!(claim(&queue, 1), [3]);
    // Leases are bounded by the longest one, and end.
    clock
        .monotonic_ns
        .fetch_add(QueueConfig::default().lease_ns_max, Ordering::SeqCst);
    let mut again = claim(&queue, 4);
    again.sort_unstable();
    assert_eq!(again, [0, 1, 2, 3]);
}

#[test]
fn lists_and_details() {
    let fixture = Fixture::new(QueueConfig {
        output_bytes_max: 4,
        ..QueueConfig::default()
    });
    let queue = fixture.open();
    queue
        .enqueue(&[request("a", 0), request("b", 1), request("b", 2)])
        .unwrap();
    let claimed = queue.claim("w", &[start("b")], 1, SECOND).unwrap();
    queue
        .failed(claimed[0].lease, failure(RepeatWish::Never), 0.0)
        .unwrap();
    let ids = |filter: ActionFilter| {
        let list = queue.list(&filter).unwrap();
        list.iter().map(|info| info.id).collect::<Vec<_>>()
    };
    let all = ActionFilter::default;
    assert_eq!(ids(all()), [3, 2, 1]);
    assert_eq!(
        ids(ActionFilter {
            rule: Some("b".into()),
            ..all()
        }),
        [3, 2]
    );
    assert_eq!(
        ids(ActionFilter {
            state: Some(ActionState::Dead),
            ..all()
        }),
        [2]
    );
    assert_eq!(
        ids(ActionFilter {
            uid: Some(6),
            ..all()
        }),
        [0_u64; 0]
    );
    assert_eq!(
        ids(ActionFilter {
            before: Some(3),
            count_max: 1,
            ..all()
        }),
        [2]
    );
    assert_eq!(
        ids(ActionFilter {
            before: Some(u64::MAX),
            uid: Some(7),
            ..all()
        }),
        [3, 2, 1]
    );
    let detail = queue.show(2).unwrap().unwrap();
    assert_eq!(detail.info.reason.as_deref(), Some("it failed"));
    assert_eq!(detail.info.worker.as_deref(), Some("w"));
    assert_eq!(
        (&detail.output[..], &detail.body[..]),
        (&b"tput"[..], &b"body of b 1"[..])
    );
    assert_eq!(queue.show(4).unwrap(), None);
    assert_eq!(queue.show(u64::MAX).unwrap(), None);
    assert_eq!(queue.drop(2).unwrap(), Changed::From(ActionState::Dead));
    assert_eq!(
        queue.drop(2).unwrap(),
        Changed::Refused(ActionState::Dropped)
    );
    assert_eq!(queue.retry(9).unwrap(), Changed::Absent);
}

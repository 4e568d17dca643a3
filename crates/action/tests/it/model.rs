//! The queue does what a simple model in memory does, whatever is asked of it and however often it
//! is opened again.

use std::collections::BTreeMap;
use std::sync::Arc;

use barograph_action::{
    ActionFilter, ActionLease, ActionOutcome, ActionQueue, ActionState, AttemptReach, Changed,
    Delivery, QueueConfig, RepeatWish, RuleStart, Settled,
};
use barograph_model::{Clock, ManualClock};
use proptest::prelude::*;

use crate::support::{SECOND, failure, open, request};

const RULES: [&str; 3] = ["a", "b", "c"];
const LEASE: i64 = 5 * SECOND;
const ACTIONS_MAX: u64 = 12;
const PER_RULE_MAX: u64 = 6;
const DONE_MAX: u64 = 4;
const DEAD_MAX: u64 = 3;
const RUNNING_MAX: u64 = 2;

#[derive(Clone, Debug)]
enum Step {
    /// Rule, and the distance of each number from the next new one, back into the past.
    Enqueue(usize, Vec<u64>, bool),
    Claim(usize),
    Done(usize),
    Fail(usize, RepeatWish, AttemptReach),
    Release(usize),
    /// Settles with a lease that was replaced, or never given.
    Stale(usize),
    Extend(usize),
    Retry(u64),
    Drop(u64),
    Advance(i64),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let repeat = prop_oneof![
        Just(RepeatWish::Later),
        Just(RepeatWish::Never),
        (0..20 * SECOND).prop_map(RepeatWish::NotBefore),
    ];
    let reach = prop_oneof![Just(AttemptReach::Begun), Just(AttemptReach::NotBegun)];
    prop_oneof![
        4 => (0..3usize, prop::collection::vec(0..4u64, 1..6), any::<bool>())
            .prop_map(|(rule, back, once)| Step::Enqueue(rule, back, once)),
        4 => (1..6usize).prop_map(Step::Claim),
        4 => (0..8usize).prop_map(Step::Done),
        4 => (0..8usize, repeat, reach).prop_map(|(at, repeat, reach)| Step::Fail(at, repeat, reach)),
        1 => (0..8usize).prop_map(Step::Release),
        1 => (0..8usize).prop_map(Step::Stale),
        1 => (0..8usize).prop_map(Step::Extend),
        1 => (1..40u64).prop_map(Step::Retry),
        1 => (1..40u64).prop_map(Step::Drop),
        3 => (1..8 * SECOND).prop_map(Step::Advance),
        1 => Just(Step::Reopen),
    ]
}

#[derive(Clone, Debug)]
struct Row {
    rule: usize,
    index: u64,
    once: bool,
    state: ActionState,
    at_ns: i64,
    attempts: u32,
    lease: u64,
    /// Order of finishing.
    finished: u64,
}

struct Model {
    rows: BTreeMap<u64, Row>,
    next_id: u64,
    next_index: [u64; 3],
    forgotten: [Option<u64>; 3],
    finished: u64,
}

impl Model {
    fn new() -> Self {
        Self {
            rows: BTreeMap::new(),
            next_id: 1,
            next_index: [0; 3],
            forgotten: [None; 3],
            finished: 0,
        }
    }

    fn active(&self, rule: Option<usize>) -> u64 {
        let is_active = |row: &&Row| {
            matches!(row.state, ActionState::Waiting | ActionState::Running)
                && rule.is_none_or(|rule| row.rule == rule)
        };
        self.rows.values().filter(is_active).count() as u64
    }

    fn set(&mut self, id: u64, state: ActionState, at_ns: i64) {
        self.finished += 1;
        let row = self.rows.get_mut(&id).unwrap();
        (row.state, row.at_ns, row.finished) = (state, at_ns, self.finished);
    }

    /// Which of the finished ones are forgotten is the queue's choice among equally old ones, so it
    /// is taken from the queue; how many and how old is checked.
    fn forget(&mut self, queue: &ActionQueue) {
        let kept = queue.list(&ActionFilter::default()).unwrap();
        let kept: Vec<u64> = kept.iter().map(|info| info.id).collect();
        let gone: Vec<u64> = self
            .rows
            .keys()
            .copied()
            .filter(|id| !kept.contains(id))
            .collect();
        let gone: Vec<Row> = gone
            .iter()
            .map(|id| self.rows.remove(id).unwrap())
            .collect();
        for row in gone {
            assert!(
                !matches!(row.state, ActionState::Waiting | ActionState::Running),
                "an action was lost: {row:?}"
            );
            let dead = |row: &Row| row.state == ActionState::Dead;
            let mut same = self.rows.values().filter(|other| other.state == row.state);
            assert!(
                same.all(|other| other.at_ns >= row.at_ns),
                "not the oldest: {row:?}"
            );
            let of_kind = self.rows.values().filter(|other| {
                let is_active = matches!(other.state, ActionState::Waiting | ActionState::Running);
                !is_active && dead(other) == dead(&row)
            });
            let max = if dead(&row) { DEAD_MAX } else { DONE_MAX };
            assert!(
                of_kind.count() as u64 >= max,
                "forgotten too early: {row:?}"
            );
            let forgotten = &mut self.forgotten[row.rule];
            *forgotten = Some(forgotten.map_or(row.index, |last| last.max(row.index)));
        }
        let count = |is_dead: bool| {
            let finished = |row: &&Row| match row.state {
                ActionState::Dead => is_dead,
                ActionState::Done | ActionState::Dropped => !is_dead,
                _ => false,
            };
            self.rows.values().filter(finished).count() as u64
        };
        assert!(count(true) <= DEAD_MAX && count(false) <= DONE_MAX);
    }
}

struct Run {
    model: Model,
    queue: Option<ActionQueue>,
    clock: Arc<ManualClock>,
    config: QueueConfig,
    folder: tempfile::TempDir,
    leases: Vec<ActionLease>,
}

impl Run {
    fn new() -> Self {
        let config = QueueConfig {
            actions_max: ACTIONS_MAX,
            actions_per_rule_max: PER_RULE_MAX,
            done_max: DONE_MAX,
            dead_max: DEAD_MAX,
            ..QueueConfig::default()
        };
        let clock = Arc::new(ManualClock::at(1_000 * SECOND));
        let folder = tempfile::tempdir().unwrap();
        let queue = Some(open(&folder.path().join("queue"), &config, &clock));
        Self {
            model: Model::new(),
            queue,
            clock,
            config,
            folder,
            leases: Vec::new(),
        }
    }

    fn queue(&self) -> &ActionQueue {
        self.queue.as_ref().unwrap()
    }

    fn lease(&self, at: usize) -> Option<ActionLease> {
        (!self.leases.is_empty()).then(|| self.leases[at % self.leases.len()])
    }

    /// Whether the model says that this lease is the present one.
    fn is_present(&self, lease: ActionLease) -> bool {
        self.model
            .rows
            .get(&lease.id)
            .is_some_and(|row| row.state == ActionState::Running && row.lease == lease.number)
    }

    fn step(&mut self, step: &Step) {
        let now_ns = self.clock.now_ns();
        match step {
            Step::Enqueue(rule, back, once) => self.enqueue(*rule, back, *once),
            Step::Claim(count) => self.claim(*count),
            Step::Done(at) => {
                let outcome = ActionOutcome::Done { output: vec![1] };
                self.settle(*at, &outcome, |_| (ActionState::Done, 0));
            }
            Step::Release(at) => {
                self.settle(*at, &ActionOutcome::Released, |row| {
                    row.attempts -= 1;
                    (ActionState::Waiting, 0)
                });
            }
            Step::Fail(at, repeat, reach) => self.fail(*at, *repeat, *reach),
            Step::Stale(at) => {
                let Some(lease) = self.lease(*at) else { return };
                let other = ActionLease {
                    number: lease.number + 1_000,
                    ..lease
                };
                assert_eq!(
                    self.queue().done(other, Vec::new()).unwrap(),
                    Settled::Stale
                );
            }
            Step::Extend(at) => {
                let Some(lease) = self.lease(*at) else { return };
                let is_present = self.is_present(lease);
                assert_eq!(self.queue().extend(&[lease], LEASE).unwrap(), [is_present]);
                if is_present {
                    self.model.rows.get_mut(&lease.id).unwrap().at_ns = now_ns + LEASE;
                }
            }
            Step::Retry(id) => self.retry(*id),
            Step::Drop(id) => self.drop_action(*id),
            Step::Advance(by_ns) => self.clock.advance(*by_ns),
            Step::Reopen => {
                self.queue = None;
                let path = self.folder.path().join("queue");
                self.queue = Some(open(&path, &self.config, &self.clock));
            }
        }
        self.compare();
    }

    fn enqueue(&mut self, rule: usize, back: &[u64], once: bool) {
        let mut batch = Vec::new();
        let (mut accepted, mut duplicates, mut refused) = (0, 0, 0);
        for back in back {
            let next = self.model.next_index[rule];
            let index = next.saturating_sub(*back);
            let mut one = request(RULES[rule], index);
            if once {
                one.delivery = Delivery::AtMostOnce;
            }
            batch.push(one);
            let mut rows = self.model.rows.values();
            if self.model.forgotten[rule].is_some_and(|last| index <= last)
                || rows.any(|row| row.rule == rule && row.index == index)
            {
                duplicates += 1;
            } else if self.model.active(None) >= ACTIONS_MAX
                || self.model.active(Some(rule)) >= PER_RULE_MAX
            {
                refused += 1;
            } else {
                accepted += 1;
                self.model.next_index[rule] = next.max(index + 1);
                let row = Row {
                    rule,
                    index,
                    once,
                    state: ActionState::Waiting,
                    at_ns: self.clock.now_ns(),
                    attempts: 0,
                    lease: 0,
                    finished: 0,
                };
                self.model.rows.insert(self.model.next_id, row);
                self.model.next_id += 1;
            }
        }
        let outcome = self.queue().enqueue(&batch).unwrap();
        assert_eq!(
            (outcome.accepted, outcome.duplicates, outcome.refused()),
            (accepted, duplicates, refused)
        );
    }

    fn claim(&mut self, count: usize) {
        let now_ns = self.clock.now_ns();
        let rules = RULES.map(|rule| RuleStart {
            rule: rule.into(),
            running_max: RUNNING_MAX,
            start_max: u64::MAX,
        });
        let claimed = self.queue().claim("w", &rules, count, LEASE).unwrap();
        let expired: Vec<u64> = self
            .model
            .rows
            .iter()
            .filter(|(_, row)| row.state == ActionState::Running && row.at_ns <= now_ns)
            .map(|(id, _)| *id)
            .collect();
        for id in expired {
            let row = &self.model.rows[&id];
            let state = match row.once || row.attempts >= 3 {
                true => ActionState::Dead,
                false => ActionState::Waiting,
            };
            self.model.set(id, state, now_ns);
        }
        // Each claimed one was due, and none of its rule was due earlier.
        for action in &claimed {
            let row = self.model.rows.get_mut(&action.lease.id).unwrap();
            assert_eq!(row.state, ActionState::Waiting);
            assert!(row.at_ns <= now_ns);
            let (rule, at_ns) = (row.rule, row.at_ns);
            assert_eq!(
                (action.key.rule.as_str(), action.key.index),
                (RULES[rule], row.index)
            );
            row.attempts += 1;
            row.lease += 1;
            assert_eq!(
                (action.attempt, action.lease.number),
                (row.attempts, row.lease)
            );
            (row.state, row.at_ns) = (ActionState::Running, now_ns + LEASE);
            let chosen = |id: &u64| claimed.iter().any(|other| other.lease.id == *id);
            let mut passed = self.model.rows.iter().filter(|(id, _)| !chosen(id));
            assert!(!passed.any(|(_, other)| {
                other.rule == rule && other.state == ActionState::Waiting && other.at_ns < at_ns
            }));
            self.leases.push(action.lease);
        }
        // What could have been claimed was.
        for (rule, name) in RULES.iter().enumerate() {
            let of = |state| {
                let same = move |row: &&Row| row.rule == rule && row.state == state;
                self.model.rows.values().filter(same)
            };
            let running = of(ActionState::Running).count() as u64;
            assert!(running <= RUNNING_MAX, "{name}");
            let is_due = of(ActionState::Waiting).any(|row| row.at_ns <= now_ns);
            assert!(
                !is_due || running == RUNNING_MAX || claimed.len() == count,
                "{name}"
            );
        }
    }

    fn settle(
        &mut self,
        at: usize,
        outcome: &ActionOutcome,
        expect: impl FnOnce(&mut Row) -> (ActionState, i64),
    ) {
        let Some(lease) = self.lease(at) else { return };
        let is_present = self.is_present(lease);
        let now_ns = self.clock.now_ns();
        let settled = self
            .queue()
            .settle(&[(lease, outcome.clone())], 1.0)
            .unwrap();
        if !is_present {
            assert_eq!(settled, [Settled::Stale]);
            return;
        }
        let (state, wait_ns) = expect(self.model.rows.get_mut(&lease.id).unwrap());
        let settled_as = match state {
            ActionState::Done => Settled::Done,
            ActionState::Dead => Settled::Dead,
            _ => Settled::Waiting(now_ns + wait_ns),
        };
        assert_eq!(settled, [settled_as]);
        self.model.set(lease.id, state, now_ns + wait_ns);
    }

    fn fail(&mut self, at: usize, repeat: RepeatWish, reach: AttemptReach) {
        let failure = barograph_action::ActionFailure {
            reach,
            ..failure(repeat)
        };
        self.settle(at, &ActionOutcome::Failed(failure), |row| {
            let asked_ns = match repeat {
                RepeatWish::NotBefore(asked_ns) => asked_ns,
                _ => 0,
            };
            let may_repeat = !row.once || reach == AttemptReach::NotBegun;
            match may_repeat && repeat != RepeatWish::Never && row.attempts < 3 {
                true => {
                    let wait_ns = SECOND << (row.attempts - 1);
                    (ActionState::Waiting, wait_ns.max(asked_ns))
                }
                false => (ActionState::Dead, 0),
            }
        });
    }

    fn retry(&mut self, id: u64) {
        let changed = self.queue().retry(id).unwrap();
        let now_ns = self.clock.now_ns();
        let active = self.model.active(None);
        let expect = match self.model.rows.get(&id).map(|row| row.state) {
            None => Changed::Absent,
            Some(ActionState::Dead) if active >= ACTIONS_MAX => Changed::Full,
            Some(state @ (ActionState::Dead | ActionState::Waiting)) => {
                self.model.set(id, ActionState::Waiting, now_ns);
                self.model.rows.get_mut(&id).unwrap().attempts = 0;
                Changed::From(state)
            }
            Some(state) => Changed::Refused(state),
        };
        assert_eq!(changed, expect);
    }

    fn drop_action(&mut self, id: u64) {
        let changed = self.queue().drop(id).unwrap();
        let now_ns = self.clock.now_ns();
        let expect = match self.model.rows.get(&id).map(|row| row.state) {
            None => Changed::Absent,
            Some(state @ (ActionState::Dead | ActionState::Waiting)) => {
                self.model.set(id, ActionState::Dropped, now_ns);
                Changed::From(state)
            }
            Some(state) => Changed::Refused(state),
        };
        assert_eq!(changed, expect);
    }

    fn compare(&mut self) {
        let queue = self.queue.as_ref().unwrap();
        self.model.forget(queue);
        let list = queue.list(&ActionFilter::default()).unwrap();
        let real: Vec<_> = list
            .iter()
            .rev()
            .map(|info| {
                (
                    info.id,
                    info.state,
                    info.at_ns,
                    info.attempts,
                    info.key.index,
                )
            })
            .collect();
        let expect: Vec<_> = self
            .model
            .rows
            .iter()
            .map(|(id, row)| (*id, row.state, row.at_ns, row.attempts, row.index))
            .collect();
        assert_eq!(real, expect);
        let status = queue.status();
        let count = |state| list.iter().filter(|info| info.state == state).count() as u64;
        assert_eq!(status.waiting, count(ActionState::Waiting));
        assert_eq!(status.running, count(ActionState::Running));
        assert_eq!(status.dead_kept, count(ActionState::Dead));
        assert_eq!(
            status.done_kept,
            count(ActionState::Done) + count(ActionState::Dropped)
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_queue_does_what_the_model_does(steps in prop::collection::vec(step(), 1..120)) {
        let mut run = Run::new();
        for step in &steps {
            run.step(step);
        }
    }
}

//! Writing fails at each of many places, since the file may not grow: what was refused is refused
//! as a whole, what was accepted stays, and everything works again when there is room.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use barograph_action::{
    ActionFilter, ActionOutcome, ActionQueue, ActionRequest, ActionState, EventCursor, QueueConfig,
    QueueFault,
};
use barograph_model::ManualClock;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::support::{SECOND, open, request, start};

const ROLE: &str = "BAROGRAPH_TEST_FULL";
const ROUNDS: u64 = 40;
const BATCH: u64 = 4;

fn passes<T>(result: Result<T, QueueFault>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(QueueFault::Sqlite { .. }) => None,
        Err(fault) => panic!("{fault:?}"),
    }
}

/// Lets files grow as far as they may.
fn lift() {
    let maximum = getrlimit(Resource::Fsize).maximum;
    let current = maximum;
    setrlimit(Resource::Fsize, Rlimit { current, maximum }).unwrap();
}

#[derive(Default)]
struct Expected {
    accepted: BTreeSet<u64>,
    done: BTreeSet<u64>,
    faults: u64,
}

impl Expected {
    /// Counts in memory and rows in the file are as expected.
    fn compare(&self, queue: &ActionQueue) {
        let list = queue.list(&ActionFilter::default()).unwrap();
        let indexes: BTreeSet<u64> = list.iter().map(|info| info.key.index).collect();
        assert_eq!(indexes, self.accepted);
        let of = |state| list.iter().filter(move |info| info.state == state);
        let settled: BTreeSet<u64> = of(ActionState::Done).map(|info| info.key.index).collect();
        assert_eq!(settled, self.done);
        // The cursor moves with the requests.
        let cursors = queue.cursors().unwrap();
        let last = cursors.first().map(|cursor| cursor.index);
        assert_eq!(last, self.accepted.last().copied());
        let status = queue.status();
        assert_eq!(status.waiting, of(ActionState::Waiting).count() as u64);
        assert_eq!(status.running, of(ActionState::Running).count() as u64);
        assert_eq!(status.done_kept, settled.len() as u64);
    }

    fn fault(&mut self, queue: &ActionQueue) {
        self.faults += 1;
        self.compare(queue);
    }

    fn round(&mut self, queue: &ActionQueue, round: u64) {
        let of_round = (0..BATCH).map(|at| request("r", round * BATCH + at));
        let batch: Vec<_> = of_round
            .map(|request| ActionRequest {
                body: vec![b'x'; 1_500],
                ..request
            })
            .collect();
        let cursor = EventCursor {
            source: "src".into(),
            index: (round + 1) * BATCH - 1,
            ts: round as i64,
        };
        for _ in 0..3 {
            let Some(outcome) = passes(queue.enqueue_up_to(&batch, &cursor)) else {
                self.fault(queue);
                continue;
            };
            assert_eq!(outcome.refused(), 0);
            self.accepted
                .extend(batch.iter().map(|request| request.key.index));
            break;
        }
        let Some(claimed) = passes(queue.claim("w", &[start("r")], 3, SECOND)) else {
            self.fault(queue);
            lift();
            return;
        };
        let outcome = ActionOutcome::Done {
            output: vec![1; 500],
        };
        let ended: Vec<_> = claimed
            .iter()
            .map(|action| (action.lease, outcome.clone()))
            .collect();
        if passes(queue.settle(&ended, 0.5)).is_none() {
            self.fault(queue);
            lift();
            queue.settle(&ended, 0.5).unwrap();
        }
        self.done
            .extend(claimed.iter().map(|action| action.key.index));
        self.compare(queue);
    }
}

#[test]
fn plays_its_role() {
    let Some(folder) = std::env::var_os(ROLE).map(PathBuf::from) else {
        return;
    };
    let path = folder.join("queue");
    let clock = Arc::new(ManualClock::at(SECOND));
    let mut expected = Expected::default();
    let first = ActionQueue::open(&path, QueueConfig::default(), clock.clone());
    let queue = passes(first).unwrap_or_else(|| {
        expected.faults += 1;
        lift();
        open(&path, &QueueConfig::default(), &clock)
    });
    for round in 0..ROUNDS {
        expected.round(&queue, round);
    }
    drop(queue);
    let queue = open(&path, &QueueConfig::default(), &clock);
    assert_eq!(queue.status().set_aside, None);
    expected.compare(&queue);
    std::fs::write(folder.join("report"), format!("{}", expected.faults)).unwrap();
}

#[test]
fn each_place_at_which_the_file_may_not_grow() {
    let mut faulty = 0;
    for blocks in (1..60).chain((60..460).step_by(20)) {
        let folder = tempfile::tempdir().unwrap();
        // A shell, since it alone can have the signal ignored that comes with the limit.
        let script = "trap '' XFSZ; ulimit -S -f \"$1\"; shift; exec \"$@\"";
        let output = Command::new("/bin/sh")
            .args(["-c", script, "sh", &blocks.to_string()])
            .arg(std::env::current_exe().unwrap())
            .args(["full::plays_its_role", "--exact", "--nocapture"])
            .env(ROLE, folder.path())
            .output()
            .unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{blocks} blocks: {text}");
        let faults = std::fs::read_to_string(folder.path().join("report")).unwrap();
        faulty += u64::from(faults != "0");
    }
    assert!(faulty >= 40, "{faulty} runs had a fault");
}

//! What several tests need.

use std::path::Path;
use std::sync::Arc;

use barograph_action::{
    ActionFailure, ActionKey, ActionOwner, ActionQueue, ActionRequest, AttemptReach, Delivery,
    QueueConfig, RepeatWish, RetryPolicy, RuleStart,
};
use barograph_model::{ManualClock, NS_PER_S};

pub(crate) const SECOND: i64 = NS_PER_S;

pub(crate) fn open(path: &Path, config: &QueueConfig, clock: &Arc<ManualClock>) -> ActionQueue {
    let clock = Arc::clone(clock);
    ActionQueue::open(path, config.clone(), clock).unwrap()
}

pub(crate) fn key(rule: &str, source: &str, index: u64) -> ActionKey {
    ActionKey {
        rule: rule.into(),
        rule_version: 1,
        source: source.into(),
        index,
    }
}

pub(crate) fn request(rule: &str, index: u64) -> ActionRequest {
    ActionRequest {
        key: key(rule, "src", index),
        owner: ActionOwner { uid: 7, gid: 8 },
        delivery: Delivery::AtLeastOnce,
        retry: RetryPolicy {
            attempts_max: 3,
            wait_ns_min: SECOND,
            wait_ns_max: 10 * SECOND,
        },
        body: format!("body of {rule} {index}").into_bytes(),
    }
}

pub(crate) fn start(rule: &str) -> RuleStart {
    RuleStart {
        rule: rule.into(),
        running_max: u64::MAX,
        start_max: u64::MAX,
    }
}

pub(crate) fn failure(repeat: RepeatWish) -> ActionFailure {
    ActionFailure {
        reason: "it failed".into(),
        output: b"some output".to_vec(),
        repeat,
        reach: AttemptReach::Begun,
    }
}

pub(crate) fn words(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// Waits until something holds.
pub(crate) fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..3_000 {
        if holds() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{what}: not within 30 s");
}

/// The clock of the machine.
pub(crate) struct RealClock(std::time::Instant);

impl RealClock {
    pub(crate) fn new() -> Self {
        Self(std::time::Instant::now())
    }
}

impl barograph_model::Clock for RealClock {
    fn now_ns(&self) -> i64 {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.unwrap().as_nanos() as i64
    }

    fn monotonic_ns(&self) -> i64 {
        self.0.elapsed().as_nanos() as i64
    }
}

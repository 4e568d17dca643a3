//! Measures how many actions per second the queue takes in, gives out and settles.
//!
//! `cargo run --release -p barograph-action --example queue_rate [folder]`; the folder, `.` if it
//! is not given, decides which disk is measured.
#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use barograph_action::{
    ActionKey, ActionLease, ActionOutcome, ActionOwner, ActionQueue, ActionRequest, Delivery,
    Durability, QueueConfig, RetryPolicy, RuleStart,
};
use barograph_model::Clock;

/// Bytes of the body of each request.
const BODY_BYTES: usize = 300;

struct RealClock(Instant);

impl Clock for RealClock {
    fn now_ns(&self) -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.map_or(0, |time| time.as_nanos() as i64)
    }

    fn monotonic_ns(&self) -> i64 {
        self.0.elapsed().as_nanos() as i64
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let load = std::fs::read_to_string("/proc/loadavg")?;
    println!("load before: {}", load.trim());
    println!("durability batch  enqueue/s    claim/s   settle/s  all three/s");
    for durability in [Durability::Full, Durability::Normal] {
        for (batch, count) in [(1, 1_000), (100, 50_000)] {
            measure(Path::new(&folder), durability, batch, count)?;
        }
    }
    let load = std::fs::read_to_string("/proc/loadavg")?;
    println!("load after: {}", load.trim());
    Ok(())
}

fn measure(
    folder: &Path,
    durability: Durability,
    batch: usize,
    count: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir_in(folder)?;
    let config = QueueConfig {
        durability,
        actions_per_rule_max: 100_000,
        ..QueueConfig::default()
    };
    let clock = Arc::new(RealClock(Instant::now()));
    let queue = ActionQueue::open(&folder.path().join("queue"), config, clock)?;
    let requests: Vec<ActionRequest> = (0..count).map(request).collect();
    let rules = [RuleStart {
        rule: "measured".into(),
        running_max: u64::MAX,
        start_max: u64::MAX,
    }];
    let began = Instant::now();
    for requests in requests.chunks(batch) {
        queue.enqueue(requests)?;
    }
    let enqueued = began.elapsed();
    let mut leases: Vec<ActionLease> = Vec::new();
    while leases.len() < count {
        let claimed = queue.claim("worker", &rules, batch, 3_600_000_000_000)?;
        leases.extend(claimed.iter().map(|action| action.lease));
    }
    let claimed = began.elapsed();
    for leases in leases.chunks(batch) {
        let done = |lease: &ActionLease| (*lease, ActionOutcome::Done { output: Vec::new() });
        queue.settle(&leases.iter().map(done).collect::<Vec<_>>(), 0.0)?;
    }
    let settled = began.elapsed();
    let rate = |seconds: f64| count as f64 / seconds;
    println!(
        "{:>10} {batch:>5} {:>10.0} {:>10.0} {:>10.0} {:>12.0}",
        format!("{durability:?}"),
        rate(enqueued.as_secs_f64()),
        rate((claimed - enqueued).as_secs_f64()),
        rate((settled - claimed).as_secs_f64()),
        rate(settled.as_secs_f64()),
    );
    Ok(())
}

fn request(index: usize) -> ActionRequest {
    ActionRequest {
        key: ActionKey {
            rule: "measured".into(),
            rule_version: 1,
            source: "source".into(),
            index: index as u64,
        },
        owner: ActionOwner { uid: 0, gid: 0 },
        delivery: Delivery::AtLeastOnce,
        retry: RetryPolicy::default(),
        body: vec![b'x'; BODY_BYTES],
    }
}

//! The one ingest file of this process, with all that a slow put needs beside it.

use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

use barograph_model::Clock as _;
use barograph_stream::ingest::{Declaration, Producer, ThreadRing, TimeSource};
use barograph_stream::{RunDir, SystemClock};

use super::agent::{Agent, Knock};
use super::{PublishConfig, PublishError};

/// Sleeps of a put that waits for room begin with this…
const NAP_MIN: Duration = Duration::from_micros(20);
/// …and grow up to this.
const NAP_MAX: Duration = Duration::from_millis(1);

/// Rest after a knock that did not get there.
const KNOCK_REST_NS: i64 = 1_000_000;

/// A file of this process, in this life of it.
#[derive(Debug)]
pub(super) struct Process {
    pub producer: Producer,
    pub clock: SystemClock,
    pub run_dir: RunDir,
    /// Which opening of the publisher this is; handles of others are not taken.
    pub generation: u32,
    agent: Agent,
    block_time_max: Duration,
    /// Monotonic; before this nobody knocks.
    knock_due_ns: AtomicI64,
}

impl Process {
    /// Makes the file and says in it what was declared.
    pub fn make(
        run_dir: &RunDir,
        config: &PublishConfig,
        generation: u32,
        declared: &[Declaration],
    ) -> Result<Self, PublishError> {
        let clock = SystemClock::new();
        let producer = Producer::create(&run_dir.ingest_dir(), config.producer(), &clock)?;
        declared.iter().for_each(|declaration| {
            producer.declare(declaration);
        });
        Ok(Self {
            producer,
            clock,
            run_dir: run_dir.clone(),
            generation,
            agent: Agent::of(run_dir),
            block_time_max: config.block_time_max,
            knock_due_ns: AtomicI64::new(i64::MIN),
        })
    }

    /// Wakes the agent if it wants to be. After a commit. False when there is no agent.
    pub fn tell_agent(&self) -> bool {
        if !self.producer.is_agent_asleep() || !self.producer.is_ours() {
            return true;
        }
        let now_ns = self.clock.monotonic_ns();
        if now_ns < self.knock_due_ns.load(Ordering::Relaxed) {
            return true;
        }
        // Before: an agent that is woken and sleeps again at once wants to be told again.
        self.producer.agent_was_told();
        let knock = self.agent.knock(&self.producer.incarnation().0);
        if knock == Knock::Unheard {
            self.producer.ask_to_be_told();
            let due_ns = now_ns.saturating_add(KNOCK_REST_NS);
            self.knock_due_ns.store(due_ns, Ordering::Relaxed);
        }
        knock != Knock::Nobody
    }

    /// What a record created now says about it.
    pub fn now(&self) -> u64 {
        let source: TimeSource = self.producer.time_source();
        source.now(&self.clock)
    }

    /// Waits until a full ring has room again, as long as an agent lives that could make some.
    pub fn wait_for_room(&self, ring: &mut ThreadRing, records: u64) -> bool {
        let started_ns = self.clock.monotonic_ns();
        let mut nap = NAP_MIN;
        loop {
            ring.commit();
            self.tell_agent();
            let is_in_vain = ring.is_starved() || ring.is_retired();
            if is_in_vain || !self.agent.is_alive(&self.clock) {
                return false;
            }
            let waited_ns = self.clock.monotonic_ns() - started_ns;
            let waited = Duration::from_nanos(waited_ns.unsigned_abs());
            let Some(left) = self.block_time_max.checked_sub(waited) else {
                return false;
            };
            thread::sleep(nap.min(left));
            nap = (nap * 2).min(NAP_MAX);
            if ring.reserve(records) {
                return true;
            }
        }
    }
}

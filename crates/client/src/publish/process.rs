//! The one ingest file of this process, and the state that only a slow put needs.

use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

use barograph_model::Clock as _;
use barograph_stream::ingest::{IngestDeclaration, Producer, ThreadRing, TimeSource};
use barograph_stream::{RunDir, SystemClock};

use super::agent::{Agent, Knock};
use super::{PublishConfig, PublishError};

/// First sleep of a put that waits for room.
const NAP_MIN: Duration = Duration::from_micros(20);
/// Longest sleep of such a put.
const NAP_MAX: Duration = Duration::from_millis(1);

/// Pause after a knock that was not delivered, in ns.
const KNOCK_REST_NS: i64 = 1_000_000;

/// The ingest file of this process in one life.
#[derive(Debug)]
pub(super) struct Process {
    pub producer: Producer,
    pub clock: SystemClock,
    pub run_dir: RunDir,
    /// Number of the opening of the publisher; handles of other openings are not accepted.
    pub generation: u32,
    agent: Agent,
    block_time_max: Duration,
    /// Time before which nobody knocks, on the monotonic clock.
    knock_due_ns: AtomicI64,
}

impl Process {
    /// Makes the file and repeats all declarations in it.
    pub(super) fn make(
        run_dir: &RunDir,
        config: &PublishConfig,
        generation: u32,
        declared: &[IngestDeclaration],
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

    /// Wakes the agent if it asks for it, after a commit. Returns false if there is no agent.
    pub(super) fn tell_agent(&self) -> bool {
        if !self.producer.is_agent_asleep() || !self.producer.is_ours() {
            return true;
        }
        let now_ns = self.clock.monotonic_ns();
        if now_ns < self.knock_due_ns.load(Ordering::Relaxed) {
            return true;
        }
        // Before the knock: an agent that wakes and sleeps again at once asks to be woken again.
        self.producer.agent_was_told();
        let knock = self.agent.knock(&self.producer.incarnation().0);
        if knock == Knock::Unheard {
            self.producer.ask_to_be_told();
            let due_ns = now_ns.saturating_add(KNOCK_REST_NS);
            self.knock_due_ns.store(due_ns, Ordering::Relaxed);
        }
        knock != Knock::Nobody
    }

    /// Tells the agent that a phase of I/O waits for it. Returns false if there is no agent.
    pub(super) fn ask_for_phase(&self) -> bool {
        match self.agent.knock_for_phase(&self.producer.incarnation().0) {
            Knock::Heard => true,
            // Then it is news like any other.
            Knock::Unheard => self.tell_agent(),
            Knock::Nobody => false,
        }
    }

    /// The time stamp of a record that is created now.
    pub(super) fn now(&self) -> u64 {
        let source: TimeSource = self.producer.time_source();
        source.now(&self.clock)
    }

    /// Waits until a full ring has room again, as long as an agent lives that can make room.
    #[expect(
        clippy::disallowed_methods,
        reason = "an application's thread waits until its values were taken in"
    )]
    pub(super) fn wait_for_room(&self, ring: &mut ThreadRing, records: u64) -> bool {
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

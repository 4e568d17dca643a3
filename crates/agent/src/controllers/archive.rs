//! Decisions on their way to the archive: each is a sample of its controller's stream
//! (`control.decision`), in the scope of its user, as soon as it is made and again when it has
//! changed. So they have the rings, the history and the rights of all that a user has.
//!
//! It is a thread of its own because handing over may wait for the intake, and leases of weights
//! must not wait for that.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use barograph_intake::{EventDoor, EventSource};
use barograph_model::{Descriptor, Kind, Labels, ModelError, Name, Sample, Unit, Value, ValueType};
use barograph_stream::{DECISION_STREAM, ScopeReader, user_name};

use super::ControlShared;
use crate::decisions::{KeptDecision, ROW_BYTES_MAX, archived};

/// Time between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// Most rows that wait for the intake; of more, the oldest are lost and counted.
const WAITING_MAX: usize = 2_048;
/// Most streams that refuse rows in one look: the others are tried in the next one.
const FAILURES_MAX: usize = 4;
/// Most streams that are known here; beyond them, all are opened again as they are needed.
const SOURCES_MAX: usize = 1_024;

/// What became of decisions on their way.
#[derive(Debug, Default)]
pub(super) struct ArchiveCounts {
    pub lost: AtomicU64,
    /// Why they wait at present; empty if they do not.
    trouble: Mutex<String>,
}

impl ArchiveCounts {
    pub(super) fn trouble(&self) -> String {
        let trouble = self.trouble.lock();
        trouble.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_trouble(&self, trouble: String) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }
}

/// The way of decisions to the streams of their users.
pub(super) struct DecisionArchive {
    door: Arc<EventDoor>,
    our_uid: u32,
    sources: BTreeMap<(u32, String), Arc<EventSource>>,
    waiting: VecDeque<(Arc<EventSource>, Sample)>,
    last_ts: i64,
}

impl DecisionArchive {
    pub(super) fn new(door: Arc<EventDoor>, our_uid: u32) -> Self {
        Self {
            door,
            our_uid,
            sources: BTreeMap::new(),
            waiting: VecDeque::new(),
            last_ts: i64::MIN,
        }
    }

    /// Hands over what has changed, and what waited.
    fn step(&mut self, news: Vec<KeptDecision>, now_ns: i64, counts: &ArchiveCounts) {
        for kept in news {
            // Newer states of a decision are later ones, also if the clock was set back.
            self.last_ts = now_ns.max(self.last_ts.saturating_add(1));
            let Ok(source) = self.source(&kept) else {
                counts.lost.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            let user = kept.uid.map_or("", |_| &*source.user);
            let text = archived(kept.row(user));
            let sample = Sample::derived(self.last_ts, Value::Json(text.into()));
            self.waiting.push_back((source, sample));
        }
        while self.waiting.len() > WAITING_MAX {
            self.waiting.pop_front();
            counts.lost.fetch_add(1, Ordering::Relaxed);
        }
        let mut trouble = String::new();
        let mut waiting = std::mem::take(&mut self.waiting);
        let mut failures = 0;
        while let Some((source, _)) = waiting.front().filter(|_| failures < FAILURES_MAX) {
            let source = Arc::clone(source);
            let is_of = |it: &&(Arc<EventSource>, Sample)| Arc::ptr_eq(&it.0, &source);
            let batch = waiting.iter().take_while(is_of);
            let batch: Vec<Sample> = batch.map(|(_, sample)| sample.clone()).collect();
            let of_batch = waiting.drain(..batch.len()).collect::<Vec<_>>();
            if let Err(error) = self.door.record(&source, batch) {
                // The streams of others may have room.
                trouble = error.to_string();
                failures += 1;
                self.waiting.extend(of_batch);
            }
        }
        waiting.append(&mut self.waiting);
        self.waiting = waiting;
        counts.set_trouble(trouble);
    }

    /// The stream of a user's decisions of one controller. Those of nobody who is known are the
    /// agent's user's.
    fn source(&mut self, kept: &KeptDecision) -> Result<Arc<EventSource>, ModelError> {
        let uid = kept.uid.unwrap_or(self.our_uid);
        let key = (uid, kept.decision.controller.clone());
        if let Some(source) = self.sources.get(&key) {
            return Ok(Arc::clone(source));
        }
        if self.sources.len() >= SOURCES_MAX {
            self.sources.clear();
        }
        let descriptor = Descriptor {
            name: Name::new(DECISION_STREAM)?,
            labels: Labels::new([("controller", &*kept.decision.controller)])?,
            value_type: ValueType::Json,
            unit: Unit::new("")?,
            kind: Kind::State,
            help: "Decisions of a controller, as they are made and when they change: the table decisions has their parts.".into(),
        };
        let source = Arc::new(EventSource {
            descriptor,
            value_bytes_max: ROW_BYTES_MAX as u32,
            reader: ScopeReader::User(uid),
            user: user_name(uid),
        });
        self.sources.insert(key, Arc::clone(&source));
        Ok(source)
    }
}

/// The shell of the thread. It ends when the sender is gone, after a last look.
#[expect(
    clippy::disallowed_methods,
    reason = "the thread of archived decisions waits for the next look"
)]
pub(super) fn run(shared: &ControlShared, mut archive: DecisionArchive, stopped: &Receiver<()>) {
    loop {
        let is_over = stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Disconnected);
        let news = shared.take_changed();
        archive.step(news, shared.clock.now_ns(), &shared.archive);
        if is_over {
            return;
        }
    }
}

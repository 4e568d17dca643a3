//! The flusher writes the log: it takes waiting batches, commits them, closes segments, and hands
//! these to the sealer.
//!
//! The flusher is stepped, and [`run`] is the body of its thread, which waits between the steps.
//! The thread waits by real time and never by the clock of the archive: a clock that is set, or
//! stands still, delays nothing.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};

use barograph_model::{Clock, NS_PER_MS, NS_PER_S};
use barograph_stream::SystemClock;

use crate::journal::{FlushUrgency, SharedJournal};
use crate::log::{JournalBatch, LogWriter, is_empty};
use crate::order::{SealerMessage, SealingRequest};
use crate::seal::SealStatus;
use crate::{ArchiveConfig, ArchiveError};

/// Shortest wait after a failure in ns; it doubles up to `BACKOFF_NS_MAX`.
const BACKOFF_NS: i64 = 20 * NS_PER_MS;
/// Longest wait after a failure in ns: only people can make space on a full disk.
const BACKOFF_NS_MAX: i64 = 5 * NS_PER_S;
/// Most attempts to write the last batch when the writer is to finish.
const LAST_ATTEMPTS: u32 = 5;
/// Time in ns after which a request is offered again that the sealer had no room for.
const OFFER_NS: i64 = 50 * NS_PER_MS;

/// A user's request to seal everything, and to merge it if `merge` is set.
#[derive(Debug)]
pub(crate) struct SealAllRequest {
    pub merge: bool,
    pub reply: SyncSender<Result<usize, ArchiveError>>,
}

#[derive(Debug, Default)]
pub(crate) struct LogProgress {
    /// Number of samples written since the start.
    pub samples: AtomicU64,
    /// Bytes of the segments that are not sealed.
    pub log_bytes: AtomicU64,
    /// Time of the oldest sample in these segments; `i64::MAX` as bits if there is none.
    pub oldest_ts: AtomicU64,
    /// Time of the last flush, by the monotonic clock.
    pub flushed_ns: AtomicU64,
}

impl LogProgress {
    /// Returns the progress of a log that nothing was written to since the start.
    pub(crate) fn begin(now_ns: i64) -> Self {
        Self {
            flushed_ns: AtomicU64::new(now_ns as u64),
            oldest_ts: AtomicU64::new(i64::MAX as u64),
            ..Self::default()
        }
    }
}

/// The writer of the log.
pub(crate) struct Flusher {
    config: ArchiveConfig,
    clock: Arc<dyn Clock>,
    pub(crate) shared: Arc<SharedJournal>,
    progress: Arc<LogProgress>,
    writer: LogWriter,
    /// The queue of users' requests.
    requests: Receiver<SealAllRequest>,
    /// Requests that also cover the batch in hand.
    asked: Vec<SealAllRequest>,
    /// Requests for which the sealer had no room yet: at most one for each waiting user, and one
    /// more.
    offers: VecDeque<SealingRequest>,
    /// The last segment that was offered to the sealer.
    offered: u64,
    /// Whether marks are still to be copied into a new segment.
    is_owing: bool,
    sealer: SyncSender<SealerMessage>,
    /// Status of the sealer.
    sealed: Arc<Mutex<SealStatus>>,
    /// The last segment that is not written any more, for the sealer.
    closed: Arc<AtomicU64>,
    /// The batch in hand: it is empty unless its commit failed.
    batch: JournalBatch,
    /// Number of attempts at this batch that failed.
    attempts: u32,
    /// The wait after the last of these attempts, in ns.
    backoff_ns: i64,
    wait: Wait,
    is_ended: bool,
}

/// The state of the flusher's wait between two commits.
#[derive(Default)]
struct Wait {
    /// Time at which the wait began; `None` until the first step after a commit, so that the time
    /// that a commit takes is no part of the wait.
    since_ns: Option<i64>,
    /// Time at which the first durable sample of the pending batch was seen.
    durable_ns: Option<i64>,
    /// The urgency and the stop that the last step saw: any other ends the wait.
    seen: (FlushUrgency, bool),
    /// Whether the flusher was to stop at the last attempt.
    was_stopping: bool,
}

/// The parts of the flusher: the state that it shares with others, and the log that it writes.
pub(crate) struct FlusherParts {
    pub config: ArchiveConfig,
    pub clock: Arc<dyn Clock>,
    pub shared: Arc<SharedJournal>,
    pub progress: Arc<LogProgress>,
    pub writer: LogWriter,
    pub requests: Receiver<SealAllRequest>,
    pub sealer: SyncSender<SealerMessage>,
    pub sealed: Arc<Mutex<SealStatus>>,
    pub closed: Arc<AtomicU64>,
}

/// The body of the flusher's thread: it waits until the next step is due or an input comes.
pub(crate) fn run(mut flusher: Flusher) {
    let _ended = FlusherEnd(Arc::clone(&flusher.shared));
    let clock = SystemClock::new();
    while !flusher.is_ended {
        let due_ns = flusher.step(clock.monotonic_ns());
        let wait_ns = due_ns.saturating_sub(clock.monotonic_ns());
        flusher.shared.wait(wait_ns, flusher.wait.seen);
    }
}

impl Flusher {
    pub(crate) fn new(parts: FlusherParts) -> Self {
        Self {
            config: parts.config,
            clock: parts.clock,
            shared: parts.shared,
            progress: parts.progress,
            writer: parts.writer,
            requests: parts.requests,
            asked: Vec::new(),
            offers: VecDeque::new(),
            offered: 0,
            is_owing: false,
            sealer: parts.sealer,
            sealed: parts.sealed,
            closed: parts.closed,
            batch: JournalBatch::default(),
            attempts: 0,
            backoff_ns: 0,
            wait: Wait::default(),
            is_ended: false,
        }
    }

    /// Whether the flusher has finished: then no step does anything any more.
    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Commits what waits if that is due, and returns the time of the next step, which is now after
    /// a commit. A batch, a request or a stop in the meantime may make a step due earlier. When the
    /// flusher is to stop, the last batch is written, or counted as lost.
    pub(crate) fn step(&mut self, now_ns: i64) -> i64 {
        let due_ns = self.due(now_ns);
        if self.is_ended || now_ns < due_ns {
            return due_ns;
        }
        let stop = self.take();
        let mut batch = std::mem::take(&mut self.batch);
        // What waits at the end is written in any case.
        let room = match stop || batch.is_empty() {
            true => Ok(()),
            false => self.check_room(),
        };
        let committed = room.and_then(|()| self.commit(&mut batch));
        self.batch = batch;
        match committed {
            Ok(()) => {
                (self.backoff_ns, self.attempts) = (0, 0);
                self.seal();
                self.is_ended = stop && self.shared.lock().pending.is_empty();
            }
            Err(error) => {
                self.backoff_ns = (self.backoff_ns * 2).clamp(BACKOFF_NS, BACKOFF_NS_MAX);
                self.attempts += 1;
                self.fail(&error, self.attempts == 1);
                self.is_ended = stop && self.attempts >= LAST_ATTEMPTS;
            }
        }
        if self.is_ended {
            self.finish();
        }
        now_ns
    }

    /// Returns when the next commit is due.
    fn due(&mut self, now_ns: i64) -> i64 {
        if self.is_ended {
            return i64::MAX;
        }
        let (call, stop) = self.shared.urgency();
        let wait = &mut self.wait;
        wait.seen = (call, stop);
        let since_ns = *wait.since_ns.get_or_insert(now_ns);
        if !self.batch.is_empty() {
            return match (stop, wait.was_stopping) {
                (true, false) => now_ns,
                (true, true) => since_ns + BACKOFF_NS,
                (false, _) => since_ns + self.backoff_ns,
            };
        }
        match call {
            _ if stop => now_ns,
            FlushUrgency::Now => now_ns,
            FlushUrgency::Commit => {
                let durable_ns = *wait.durable_ns.get_or_insert(now_ns);
                durable_ns.saturating_add(self.config.commit_ns)
            }
            FlushUrgency::Flush if self.offers.is_empty() => {
                since_ns.saturating_add(self.config.flush_ns)
            }
            FlushUrgency::Flush => since_ns + OFFER_NS,
        }
    }

    /// Takes the waiting batch unless one is already in hand. Returns whether to finish.
    fn take(&mut self) -> bool {
        let mut state = self.shared.lock();
        if self.batch.is_empty() {
            // The requests are taken first, under the lock: their senders submitted their samples
            // before.
            self.asked.extend(self.requests.try_iter());
            state.take(&mut self.batch);
        }
        self.wait = Wait {
            was_stopping: state.stop,
            ..Wait::default()
        };
        state.stop
    }

    /// Refuses to write while the sealer is so late that the archive is far beyond its bound. Only
    /// files that the sealer can delete count: when it has deleted them, there is room.
    fn check_room(&mut self) -> Result<(), ArchiveError> {
        self.report();
        let closed = self.writer.closed();
        let (through, mut bytes) = {
            let sealed = self.sealed.lock();
            let sealed = sealed.unwrap_or_else(PoisonError::into_inner);
            (sealed.through, sealed.bytes)
        };
        let logs = self.writer.unsealed(through);
        for log in logs.take_while(|log| log.sequence <= closed) {
            bytes = bytes.saturating_add(log.bytes);
        }
        let late_bytes_max = self.config.late_bytes_max();
        match bytes > self.config.bytes_max.saturating_add(late_bytes_max) {
            true => Err(ArchiveError::Late { bytes }),
            false => Ok(()),
        }
    }

    fn commit(&mut self, batch: &mut JournalBatch) -> Result<(), ArchiveError> {
        if !batch.is_empty() {
            let committed = self.writer.commit(batch);
            self.report();
            committed?;
            let written = batch.records.len() as u64;
            self.progress.samples.fetch_add(written, Ordering::Relaxed);
        }
        let mut state = self.shared.lock();
        state.written = state.written.max(batch.end);
        state.free.append(&mut batch.retires);
        state.writing_bytes = 0;
        if !state.trouble.is_empty() {
            tracing::info!("the log is written again");
            state.trouble.clear();
        }
        let told = state.waiting > 0;
        drop(state);
        batch.clear();
        if told {
            self.shared.done.notify_all();
        }
        let now = self.clock.monotonic_ns();
        self.progress
            .flushed_ns
            .store(now as u64, Ordering::Relaxed);
        Ok(())
    }

    fn fail(&mut self, error: &ArchiveError, first: bool) {
        let trouble = match error {
            ArchiveError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                format!("{error}: free some space; samples wait in memory, and then are lost")
            }
            _ => format!(
                "{error}: samples wait in memory until it can be written, and then are lost"
            ),
        };
        if first {
            tracing::error!("{trouble}");
        }
        if first || matches!(error, ArchiveError::Late { .. }) {
            // The sealer may delete old history, and so make room. After a failure of its own it
            // waits for its next attempt, unless somebody calls it.
            let _ = self.sealer.try_send(SealerMessage::Seal(SealingRequest {
                through: self.writer.closed(),
                merge: false,
                reply: None,
            }));
        }
        self.shared.lock().trouble = trouble;
        for request in self.asked.drain(..).chain(self.requests.try_iter()) {
            let _ = request.reply.try_send(Err(again(error)));
        }
    }

    /// Closes the open segment if it is due or requested, and offers it to the sealer, without
    /// waiting.
    fn seal(&mut self) {
        let due = self
            .writer
            .is_due(self.config.segment_bytes_max, self.config.segment_ns_max);
        if due || !self.asked.is_empty() {
            self.writer.roll();
            self.carry();
        } else if self.is_owing {
            self.carry();
        }
        self.report();
        let through = self.writer.closed();
        for request in self.asked.drain(..) {
            self.offered = through;
            self.offers.push_back(SealingRequest {
                through,
                merge: request.merge,
                reply: Some(request.reply),
            });
        }
        if self.offered < through {
            self.offered = through;
            self.offers.retain(|offer| offer.reply.is_some());
            self.offers.push_back(SealingRequest {
                through,
                merge: false,
                reply: None,
            });
        }
        while let Some(offer) = self.offers.pop_front() {
            if let Err(TrySendError::Full(SealerMessage::Seal(offer))) =
                self.sealer.try_send(SealerMessage::Seal(offer))
            {
                self.offers.push_front(offer);
                break;
            }
        }
    }

    /// Copies marks into the new segment: the segment that has them is not sealed before.
    fn carry(&mut self) {
        let carried = self.writer.carry();
        if let Err(error) = &carried {
            if !self.is_owing {
                tracing::error!("{error}: the newest log segment is sealed when it can be written");
            }
            for request in self.asked.drain(..) {
                let _ = request.reply.try_send(Err(again(error)));
            }
        }
        self.is_owing = carried.is_err();
    }

    fn report(&mut self) {
        let sealed = self.sealed.lock();
        let sealed = sealed.unwrap_or_else(PoisonError::into_inner).through;
        let (mut bytes, mut oldest) = (0, i64::MAX);
        for kept in self.writer.unsealed(sealed) {
            bytes += kept.bytes;
            if !is_empty(kept.span) {
                oldest = oldest.min(kept.span.from);
            }
        }
        self.closed.store(self.writer.closed(), Ordering::Release);
        self.progress.log_bytes.store(bytes, Ordering::Relaxed);
        self.progress
            .oldest_ts
            .store(oldest as u64, Ordering::Relaxed);
    }

    fn finish(&mut self) {
        self.writer.roll();
        let (batch, mut state) = (&self.batch, self.shared.lock());
        let lost = batch.records.len() - batch.written + state.pending.records.len();
        if lost > 0 {
            state.lost.failed_samples += lost as u64;
            tracing::error!(lost, "samples could not be written before the end");
        }
    }
}

/// A guard that marks the writer as ended, however the thread ends, so that nobody waits for it.
pub(crate) struct FlusherEnd(pub(crate) Arc<SharedJournal>);

impl Drop for FlusherEnd {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.ended = true;
        if std::thread::panicking() {
            state.trouble = "the archive's thread has failed: restart the agent".to_owned();
        }
        drop(state);
        self.0.done.notify_all();
    }
}

/// Returns a copy of an error, for another request.
fn again(error: &ArchiveError) -> ArchiveError {
    match error {
        ArchiveError::Io { what, path, source } => ArchiveError::Io {
            what,
            path: path.clone(),
            source: io::Error::new(source.kind(), source.to_string()),
        },
        ArchiveError::Late { bytes } => ArchiveError::Late { bytes: *bytes },
        _ => ArchiveError::Cancelled,
    }
}

//! The thread that writes the log: it takes waiting batches, commits them, closes segments, and
//! hands these to the sealer.
//!
//! The thread sleeps by real time and never by the clock: a clock that is set, or stands still,
//! delays nothing.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use barograph_model::Clock;

use crate::journal::{Call, Shared, State};
use crate::log::{Batch, LogWriter, is_empty};
use crate::order::{Order, Sealing};
use crate::seal::SealStatus;
use crate::{ArchiveConfig, ArchiveError};

/// Shortest wait after a failure; it doubles up to `BACKOFF_MAX`.
const BACKOFF: Duration = Duration::from_millis(20);
/// Longest wait after a failure: only people can make space on a full disk.
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// How often the last batch is tried when the writer is to finish.
const LAST_ATTEMPTS: u32 = 5;
/// Time after which a request is offered again that the sealer had no room for.
const OFFER: Duration = Duration::from_millis(50);

/// A user's request to seal everything, and to merge it if `merge` is set.
#[derive(Debug)]
pub(crate) struct Request {
    pub merge: bool,
    pub reply: SyncSender<Result<usize, ArchiveError>>,
}

/// Progress of the log.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Number of samples written since the start.
    pub samples: AtomicU64,
    /// Bytes of the segments that are not sealed.
    pub log_bytes: AtomicU64,
    /// Time of the oldest sample in these segments; `i64::MAX` as bits if there is none.
    pub oldest_ts: AtomicU64,
    /// Time of the last flush, by the monotonic clock.
    pub flushed_ns: AtomicU64,
}

/// State of the thread.
pub(crate) struct Flusher {
    pub config: ArchiveConfig,
    pub clock: Arc<dyn Clock>,
    pub shared: Arc<Shared>,
    pub progress: Arc<Progress>,
    pub writer: LogWriter,
    /// The queue of users' requests.
    pub requests: Receiver<Request>,
    /// Requests that also cover the batch in hand.
    pub asked: Vec<Request>,
    /// Requests for which the sealer had no room yet: at most one for each waiting user, and one
    /// more.
    pub offers: VecDeque<Sealing>,
    /// The last segment that was offered to the sealer.
    pub offered: u64,
    /// Whether marks are still to be copied into a new segment.
    pub is_owing: bool,
    pub sealer: SyncSender<Order>,
    /// Status of the sealer.
    pub sealed: Arc<Mutex<SealStatus>>,
}

impl Flusher {
    /// Runs until the writer is to stop; then the waiting batch is written, or counted as lost.
    pub(crate) fn run(mut self) {
        let _ended = Ended(Arc::clone(&self.shared));
        let mut batch = Batch::default();
        let mut backoff = Duration::ZERO;
        let mut attempts = 0;
        loop {
            let stop = self.wait(&mut batch, backoff);
            match self.commit(&mut batch) {
                Ok(()) => {
                    (backoff, attempts) = (Duration::ZERO, 0);
                    self.seal();
                    if stop && self.shared.lock().pending.is_empty() {
                        break;
                    }
                }
                Err(error) => {
                    backoff = (backoff * 2).clamp(BACKOFF, BACKOFF_MAX);
                    attempts += 1;
                    self.fail(&error, attempts == 1);
                    if stop && attempts >= LAST_ATTEMPTS {
                        break;
                    }
                }
            }
        }
        self.finish(&batch);
    }

    /// Sleeps until there is a reason to write, then takes the waiting batch unless one is already
    /// in hand. Returns whether to finish.
    fn wait(&mut self, batch: &mut Batch, backoff: Duration) -> bool {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        state.asleep = true;
        if !batch.is_empty() {
            let stop = state.stop;
            let pause = if stop { BACKOFF } else { backoff };
            state = sleep(&shared.wake, state, pause, |s| s.stop == stop);
        } else {
            let flush = if self.offers.is_empty() {
                duration(self.config.flush_ns)
            } else {
                OFFER
            };
            state = sleep(&shared.wake, state, flush, |s| {
                !s.stop && s.call == Call::Flush
            });
            let commit = duration(self.config.commit_ns);
            state = sleep(&shared.wake, state, commit, |s| {
                !s.stop && s.call == Call::Commit
            });
            // The requests are taken first, under the lock: their senders submitted their samples
            // before.
            self.asked.extend(self.requests.try_iter());
            state.take(batch);
        }
        state.asleep = false;
        state.stop
    }

    fn commit(&mut self, batch: &mut Batch) -> Result<(), ArchiveError> {
        if !batch.is_empty() {
            let committed = self.writer.commit(batch);
            self.report();
            committed?;
            let written = batch.records.len() as u64;
            self.progress.samples.fetch_add(written, Ordering::Relaxed);
        }
        let mut state = self.shared.lock();
        state.synced = state.synced.max(batch.end);
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
            // The sealer may delete old history, and so make room.
            let _ = self.sealer.try_send(Order::Seal(Sealing {
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
            self.offers.push_back(Sealing {
                through,
                merge: request.merge,
                reply: Some(request.reply),
            });
        }
        if self.offered < through {
            self.offered = through;
            self.offers.retain(|offer| offer.reply.is_some());
            self.offers.push_back(Sealing {
                through,
                merge: false,
                reply: None,
            });
        }
        while let Some(offer) = self.offers.pop_front() {
            if let Err(TrySendError::Full(Order::Seal(offer))) =
                self.sealer.try_send(Order::Seal(offer))
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
        self.progress.log_bytes.store(bytes, Ordering::Relaxed);
        self.progress
            .oldest_ts
            .store(oldest as u64, Ordering::Relaxed);
    }

    fn finish(&mut self, batch: &Batch) {
        self.writer.roll();
        let mut state = self.shared.lock();
        let lost = batch.records.len() - batch.written + state.pending.records.len();
        if lost > 0 {
            state.lost.failed_samples += lost as u64;
            tracing::error!(lost, "samples could not be written before the end");
        }
    }
}

/// A guard that marks the writer as ended, however the thread ends, so that nobody waits for it.
struct Ended(Arc<Shared>);

impl Drop for Ended {
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

fn sleep<'a>(
    on: &Condvar,
    state: MutexGuard<'a, State>,
    at_most: Duration,
    while_: impl Fn(&State) -> bool,
) -> MutexGuard<'a, State> {
    let slept = on.wait_timeout_while(state, at_most, |state| while_(state));
    slept.unwrap_or_else(PoisonError::into_inner).0
}

fn duration(ns: i64) -> Duration {
    Duration::from_nanos(u64::try_from(ns).unwrap_or(0))
}

/// Returns a copy of an error, for another request.
fn again(error: &ArchiveError) -> ArchiveError {
    match error {
        ArchiveError::Io { what, path, source } => ArchiveError::Io {
            what,
            path: path.clone(),
            source: io::Error::new(source.kind(), source.to_string()),
        },
        _ => ArchiveError::Cancelled,
    }
}

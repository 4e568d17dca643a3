//! The sealer turns log segments into Parquet, merges files and deletes old ones, one thing at a
//! time and on a thread of low priority, so that the writer of the log waits for none of it. It
//! decides what is to be copied; the copier does it.
//!
//! The sealer is stepped, and [`run`] is the body of its thread, which waits between the steps.
//!
//! Every change of what counts is one commit of the manifest: files are written and synced before
//! it, and the files that they replace are unlinked after it. So a crash at any point leaves one or
//! the other.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use barograph_model::{Clock, NS_PER_S};
use barograph_stream::SystemClock;

use crate::believe::BelievedTime;
use crate::compose::{self, ComposeFailure, ComposedFiles, OutputPlace};
use crate::context::SealerContext;
use crate::copier::CopyQueue;
use crate::freed::FreedBytes;
use crate::log::LogPart;
use crate::manifest::Manifest;
use crate::neighbours::NeighbourPlace;
use crate::order::{SealerMessage, SealingRequest};
use crate::part::{NewFile, PartKey};
use crate::sweep::{LogFile, bad};
use crate::unit::{NewestSamples, SampleSource};
use crate::{ArchiveError, ArchiveLosses, sweep};

/// Longest wait for an order in ns, before the sealer looks for other work.
const TURN_NS: i64 = 5 * NS_PER_S;
/// Wait after the first failure in ns; it doubles after each further one.
const BACKOFF_NS: i64 = 5 * NS_PER_S;
/// Longest wait after a failure in ns.
const BACKOFF_NS_MAX: i64 = 600 * NS_PER_S;
/// Status of the sealer; the writer's status contains it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SealStatus {
    /// Segments up to this one are sealed or gone.
    pub(crate) through: u64,
    /// Bytes of the Parquet files.
    pub(crate) bytes: u64,
    /// Number of Parquet files.
    pub(crate) files: u64,
    /// Time of the oldest sample in these files, in ns since the epoch; 0 if there is none.
    pub(crate) oldest_ts: i64,
    /// The losses in the manifest at the start, and what the sealer itself lost since: without the
    /// losses taken over from log segments, which the writer has counted.
    pub(crate) losses: ArchiveLosses,
    /// Number of files that wait to be copied to the object store.
    pub(crate) waiting_copies: u64,
    /// Number of copies that wait to be deleted from it.
    pub(crate) stale_copies: u64,
    /// The reason why nothing is sealed at present; empty if all is well.
    pub(crate) trouble: String,
    /// The reason why nothing is copied to the object store at present; empty if all is well.
    pub(crate) copy_trouble: String,
}

/// The body of the sealer's thread: it waits for an order or the next step until the writer is
/// gone.
#[expect(clippy::disallowed_methods, reason = "the shell of the sealer")]
pub(crate) fn run(mut sealer: Sealer, orders: &Receiver<SealerMessage>) {
    barograph_stream::give_way();
    let clock = SystemClock::new();
    let mut due_ns = 0;
    loop {
        let wait_ns = u64::try_from(due_ns - clock.monotonic_ns()).unwrap_or(0);
        match orders.recv_timeout(Duration::from_nanos(wait_ns)) {
            Ok(order) => sealer.apply(order),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return sealer.end_copies(),
        }
        due_ns = sealer.step(clock.monotonic_ns());
    }
}

/// The sealer: only it changes the manifest.
pub(crate) struct Sealer {
    pub(crate) context: SealerContext,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) manifest: Manifest,
    /// Losses in log segments that were sealed since the start.
    pub(crate) taken: ArchiveLosses,
    shared: Arc<Mutex<SealStatus>>,
    /// The queue to the copier; `None` if nothing is copied.
    pub(crate) errands: Option<Arc<CopyQueue>>,
    /// Copies that are made but not in the manifest yet.
    pub(crate) copied: BTreeSet<PartKey>,
    /// Copies that are deleted but still in the manifest.
    pub(crate) removed: BTreeSet<PartKey>,
    /// The file whose copy failed last.
    pub(crate) copy_tried: Option<PartKey>,
    /// The copy whose removal failed last.
    pub(crate) removal_tried: Option<PartKey>,
    /// The last log segment that may be sealed.
    pub(crate) due: u64,
    /// Log segments up to this one do not exist any more, sealed or removed by other hands.
    gone: u64,
    /// Whether the manifest on disk may differ from ours, after a failed commit.
    pub(crate) unsure: bool,
    /// Whether there may be files that the manifest does not list.
    pub(crate) sweep_due: bool,
    /// The newest samples of the previous sealing.
    newest: NewestSamples,
    /// The time by which history is deleted.
    pub(crate) belief: BelievedTime,
    /// Bytes that were deleted and are not free yet.
    pub(crate) freed: FreedBytes,
    /// This archive's place among those that are written beside it.
    pub(crate) place: NeighbourPlace,
    work: Backoff,
    pub(crate) copying: Backoff,
    pub(crate) removing: Backoff,
    /// Whether a turn is due at once: after an order, and while there is more work.
    is_called: bool,
    /// Time at which the wait for the next turn began; `None` until the first step after a turn, so
    /// that the time that a turn takes is no part of the wait.
    waits_since_ns: Option<i64>,
}

impl Sealer {
    pub(crate) fn new(
        context: SealerContext,
        clock: Arc<dyn Clock>,
        manifest: Manifest,
        shared: Arc<Mutex<SealStatus>>,
        errands: Option<Arc<CopyQueue>>,
    ) -> Self {
        let due = manifest.sealed_through;
        let config = &context.config;
        let place = config.neighbours.join(config.rank, &config.root);
        let sealer = Self {
            place,
            context,
            clock,
            manifest,
            taken: ArchiveLosses::default(),
            shared,
            errands,
            copied: BTreeSet::new(),
            removed: BTreeSet::new(),
            copy_tried: None,
            removal_tried: None,
            due,
            gone: due,
            unsure: false,
            sweep_due: true,
            newest: NewestSamples::default(),
            belief: BelievedTime::default(),
            freed: FreedBytes::default(),
            work: Backoff::default(),
            copying: Backoff::default(),
            removing: Backoff::default(),
            is_called: true,
            waits_since_ns: None,
        };
        sealer.tell();
        sealer
    }

    /// Serves an order; a turn is due after it.
    pub(crate) fn apply(&mut self, order: SealerMessage) {
        if let SealerMessage::Seal(sealing) = order {
            self.order(sealing);
        }
        self.is_called = true;
    }

    /// Does one piece of work if it is due, and returns the time of the next step, which is now
    /// after a piece of work. An order makes a step due earlier.
    pub(crate) fn step(&mut self, now_ns: i64) -> i64 {
        let since_ns = *self.waits_since_ns.get_or_insert(now_ns);
        let due_ns = since_ns.saturating_add(TURN_NS);
        if !self.is_called && now_ns < due_ns {
            return due_ns;
        }
        self.is_called = self.turn();
        self.waits_since_ns = None;
        now_ns
    }

    /// Serves a request and sends the result.
    fn order(&mut self, order: SealingRequest) {
        self.due = self.due.max(order.through);
        let result = self.serve(order.merge);
        let now = self.clock.monotonic_ns();
        self.work.note(now, &result);
        self.tell();
        if let Some(reply) = order.reply {
            // The requester may have stopped waiting.
            let _ = reply.try_send(result);
        }
    }

    fn serve(&mut self, merge: bool) -> Result<usize, ArchiveError> {
        self.seal_due()?;
        let replaced = if merge { self.merge_all()? } else { 0 };
        self.retain(0)?;
        Ok(replaced)
    }

    /// Does one piece of other work; returns whether there is more.
    fn turn(&mut self) -> bool {
        let now = self.clock.monotonic_ns();
        let mut more = false;
        if !self.stopped() && self.work.is_due(now) {
            let result = self.chores();
            more = matches!(result, Ok(n) if n > 0);
            self.work.note(now, &result);
        }
        if !self.stopped() {
            self.tend_copies();
        }
        self.tell();
        more && !self.stopped()
    }

    fn chores(&mut self) -> Result<usize, ArchiveError> {
        match self.settle() {
            // If there is no room for a manifest, the only thing to do is to make some.
            Err(error) if error.is_full() => {
                self.retain(0)?;
                self.settle()?;
            }
            settled => settled?,
        }
        self.seal_due()?;
        self.retain(0)?;
        self.merge_next()
    }

    /// Seals the segments that are due. If the disk is full, old history is deleted once; if the
    /// archive is far beyond its bound, it is deleted before each sealing.
    fn seal_due(&mut self) -> Result<usize, ArchiveError> {
        loop {
            self.settle()?;
            self.relieve()?;
            let logs = self.logs(self.due)?;
            let Some(batch) = self.batch(&logs) else {
                self.gone = self.due;
                return Ok(0);
            };
            match self.seal(batch) {
                // Parquet files are smaller than the log that they are made of.
                Err(error) if error.is_full() && self.retain(bytes(batch))? > 0 => {
                    self.seal(batch)?;
                }
                result => result?,
            }
            self.tell();
        }
    }

    /// Returns as many of the logs as are sealed together: reading all of them several times must
    /// stay cheap.
    fn batch<'a>(&self, logs: &'a [LogFile]) -> Option<&'a [LogFile]> {
        let mut sum = 0;
        let fits = |log: &&LogFile| {
            sum += log.bytes;
            sum <= self.context.config.segment_bytes_max
        };
        let count = logs.iter().take_while(fits).count().max(1);
        logs.get(..count)
    }

    fn seal(&mut self, batch: &[LogFile]) -> Result<(), ArchiveError> {
        // Segments that were just deleted to make room, perhaps with later ones, are not sealed.
        let through = self.manifest.sealed_through;
        let done = batch.partition_point(|file| file.sequence <= through);
        let batch = &batch[done..];
        let (Some(first), Some(last)) = (batch.first(), batch.last()) else {
            return Ok(());
        };
        let mut next = self.manifest.clone();
        let mut logs = Vec::new();
        for file in batch {
            match LogPart::of_sequence(&file.path, file.sequence) {
                Ok(log) => logs.push(log),
                Err(error) => self.set_aside(&file.path, error, &mut next)?,
            }
        }
        let composed = self.compose_all(&mut logs, (first.sequence, last.sequence), &mut next)?;
        let mut taken = self.taken.clone();
        for log in &logs {
            next.losses.add(log.losses());
            taken.add(log.losses());
            next.add_log(log);
        }
        next.sealed_through = last.sequence.max(through);
        self.put(next, &composed.made)?;
        self.taken = taken;
        self.newest = composed.newest;
        drop(logs);
        self.unlink(batch.iter().map(|file| file.path.clone()));
        Ok(())
    }

    /// Makes the Parquet files of the sources; a source that proves damaged is set aside, and the
    /// others are read again.
    pub(crate) fn compose_all<S: SampleSource>(
        &mut self,
        sources: &mut Vec<S>,
        range: (u64, u64),
        next: &mut Manifest,
    ) -> Result<ComposedFiles, ArchiveError> {
        loop {
            let composed = compose::compose(
                &self.context,
                sources,
                range,
                OutputPlace::Hours,
                &self.newest,
            );
            match composed {
                Ok(composed) => return Ok(composed),
                Err(ComposeFailure {
                    error,
                    source: Some(at),
                }) => {
                    let damaged = sources.remove(at);
                    self.set_aside(damaged.path(), error, next)?;
                }
                Err(ComposeFailure { error, .. }) => return Err(error),
            }
        }
    }

    /// Renames a damaged file, so that it is not read again and can be examined; any other error is
    /// returned.
    pub(crate) fn set_aside(
        &self,
        path: &Path,
        error: ArchiveError,
        next: &mut Manifest,
    ) -> Result<(), ArchiveError> {
        if error.is_gone() {
            return Ok(());
        }
        if !matches!(error, ArchiveError::Corrupt { .. }) {
            return Err(error);
        }
        tracing::error!("{error}: set aside as {}", bad(path).display());
        self.context
            .storage
            .rename(path, &bad(path))
            .map_err(ArchiveError::io("set aside", path))?;
        next.losses.corrupt_files += 1;
        Ok(())
    }

    /// Renames new files into place and commits; if that certainly failed, the new files are
    /// deleted.
    pub(crate) fn put(&mut self, mut next: Manifest, made: &[NewFile]) -> Result<(), ArchiveError> {
        let mut sound = Ok(());
        for file in made {
            if next.parts.insert(file.key, file.part).is_some() {
                sound = Err(format!("{:?} is there already", file.key));
            }
        }
        // The check comes before any rename, which could replace another file.
        if let Err(reason) = sound.and_then(|()| next.check_parts()) {
            self.unlink(made.iter().map(|file| file.tmp.clone()));
            return Err(self.unsound(reason));
        }
        let placed = self.place(made).and_then(|()| self.commit(next));
        if placed.is_err() && !self.unsure {
            let paths = made.iter();
            let paths = paths.flat_map(|file| [&file.tmp, &file.path]).cloned();
            self.unlink(paths);
        }
        placed
    }

    fn place(&self, made: &[NewFile]) -> Result<(), ArchiveError> {
        let storage = &*self.context.storage;
        let mut dirs = BTreeSet::new();
        for file in made {
            let dir = file.path.parent().unwrap_or(Path::new("."));
            // A new directory is an entry of its parent, and so on up to the root.
            let root = self.context.layout.root();
            dirs.extend(dir.ancestors().take_while(|dir| dir.starts_with(root)));
            storage
                .make_dir(dir)
                .and_then(|()| storage.rename(&file.tmp, &file.path))
                .map_err(ArchiveError::io("rename into", &file.path))?;
        }
        for dir in dirs {
            storage
                .sync_dir(dir)
                .map_err(ArchiveError::io("sync", dir))?;
        }
        Ok(())
    }

    /// Puts `next` in force as the manifest.
    pub(crate) fn commit(&mut self, next: Manifest) -> Result<(), ArchiveError> {
        next.check_parts().map_err(|reason| self.unsound(reason))?;
        let (layout, storage) = (&self.context.layout, &*self.context.storage);
        next.prepare(layout, storage)?;
        if let Err(error) = Manifest::publish(layout, storage) {
            self.unsure = true;
            return Err(error);
        }
        self.manifest = next;
        Ok(())
    }

    /// Returns the error for a manifest that no reader would accept: it must not come into force.
    fn unsound(&self, reason: String) -> ArchiveError {
        let reason = format!("a change was refused, since afterwards {reason}");
        ArchiveError::corrupt(&self.context.layout.manifest(), reason, 0)
    }

    /// After a commit whose result is unknown, puts our manifest in force again before anything is
    /// built on it. Then deletes files that do not belong to it.
    pub(crate) fn settle(&mut self) -> Result<(), ArchiveError> {
        if self.unsure {
            self.commit(self.manifest.clone())?;
            self.unsure = false;
            self.sweep_due = true;
        }
        if self.sweep_due {
            let mut next = self.manifest.clone();
            if sweep::sweep(&self.context, &mut next)? {
                self.commit(next)?;
            }
            self.sweep_due = false;
        }
        Ok(())
    }

    /// Unlinks files that do not count any more. What cannot be unlinked now is swept later.
    pub(crate) fn unlink(&mut self, paths: impl IntoIterator<Item = PathBuf>) {
        for path in paths {
            if self.context.storage.unlink(&path).is_err() {
                self.sweep_due = true;
            }
        }
    }

    /// Returns the log segments up to `through` that are not sealed.
    pub(crate) fn logs(&self, through: u64) -> Result<Vec<LogFile>, ArchiveError> {
        let mut logs = sweep::logs(&self.context.layout, &*self.context.storage)?;
        logs.retain(|log| (self.manifest.sealed_through + 1..=through).contains(&log.sequence));
        Ok(logs)
    }

    pub(crate) fn stopped(&self) -> bool {
        self.context.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn tell(&self) {
        let (waiting_copies, stale_copies) = self.waiting_copies();
        let mut status = SealStatus {
            waiting_copies,
            stale_copies,
            trouble: self.work.trouble.clone(),
            copy_trouble: self.copying.trouble.clone(),
            ..status(&self.manifest, &self.taken)
        };
        status.through = status.through.max(self.gone);
        *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }
}

fn status(manifest: &Manifest, taken: &ArchiveLosses) -> SealStatus {
    let parts = &manifest.parts;
    let all = &manifest.losses;
    SealStatus {
        through: manifest.sealed_through,
        bytes: manifest.bytes(),
        files: parts.len() as u64,
        oldest_ts: parts.values().map(|p| p.span.from).min().unwrap_or(0),
        losses: ArchiveLosses {
            overflow_samples: all.overflow_samples.saturating_sub(taken.overflow_samples),
            failed_samples: all.failed_samples.saturating_sub(taken.failed_samples),
            torn_bytes: all.torn_bytes.saturating_sub(taken.torn_bytes),
            shed_samples: all.shed_samples.saturating_sub(taken.shed_samples),
            corrupt_files: all.corrupt_files.saturating_sub(taken.corrupt_files),
        },
        ..SealStatus::default()
    }
}

/// Returns the bytes of all the files together.
fn bytes(logs: &[LogFile]) -> u64 {
    logs.iter().map(|log| log.bytes).sum()
}

/// The time at which a failed task is tried again, and the error until then.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
    not_before_ns: i64,
    trouble: String,
}

impl Backoff {
    pub(crate) fn is_due(&self, now_ns: i64) -> bool {
        self.failures == 0 || now_ns >= self.not_before_ns
    }

    pub(crate) fn note(&mut self, now_ns: i64, result: &Result<usize, ArchiveError>) {
        match result {
            Ok(_) => *self = Self::default(),
            Err(ArchiveError::Cancelled) => {}
            Err(error) => {
                // Any program may free space on a full disk at any time, and deleting history makes
                // some.
                let doubled = if error.is_full() {
                    0
                } else {
                    self.failures.min(16)
                };
                let wait = BACKOFF_NS.saturating_mul(1 << doubled);
                self.not_before_ns = now_ns.saturating_add(wait.min(BACKOFF_NS_MAX));
                self.failures = self.failures.saturating_add(1);
                let trouble = error.to_string();
                if trouble != self.trouble {
                    tracing::error!("{trouble}");
                    self.trouble = trouble;
                }
            }
        }
    }
}

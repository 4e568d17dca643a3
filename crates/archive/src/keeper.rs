//! The writer of an archive: its threads and its status.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use barograph_model::Clock;
use barograph_stream::FileLock;

use crate::context::SealerContext;
use crate::copier::{self, Copier, CopyQueue};
use crate::flusher::{self, Flusher, FlusherEnd, FlusherParts, LogProgress, SealAllRequest};
use crate::log::{LogWriter, RingMark};
use crate::order::SealerMessage;
use crate::seal::{self, SealStatus, Sealer};
use crate::{
    ArchiveConfig, ArchiveError, ArchiveLayout, ArchiveLosses, CopyTarget, Journal, KeeperLoops,
    Storage, recover, sweep,
};

/// Most requests of users that wait for the writer; the sender of another one blocks.
const REQUESTS_MAX: usize = 16;
/// Most requests that wait for the sealer; a segment that finds no room is offered again.
const SEALINGS_MAX: usize = 4;

/// The status of the writer; the agent makes streams of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ArchiveStatus {
    /// Number of samples written to the log since the start.
    pub samples: u64,
    /// Bytes of all files of this node.
    pub bytes: u64,
    /// Bytes of the log segments.
    pub log_bytes: u64,
    /// Number of Parquet files.
    pub files: u64,
    /// Bytes that wait for the writer.
    pub waiting_bytes: u64,
    /// Time of the oldest sample kept at any tier, in ns since the epoch; 0 if there is none.
    pub oldest_ts: i64,
    /// Age of the last sync or flush, in ns.
    pub flushed_age_ns: i64,
    /// Losses since the archive began.
    pub losses: ArchiveLosses,
    /// Number of files that wait to be copied to the target; 0 if there is no target.
    pub waiting_copies: u64,
    /// Number of copies in the target that wait to be deleted, since their rows are in other copies
    /// by now.
    pub stale_copies: u64,
    /// The reason why nothing is written at present, with the remedy; empty if all is well.
    pub trouble: String,
    /// The reason why log segments do not become Parquet files at present; empty if all is well.
    pub seal_trouble: String,
    /// The reason why files are not copied to the target at present; empty if all is well.
    pub copy_trouble: String,
}

impl ArchiveStatus {
    /// Returns all present problems as text for people; empty if all is well. Samples that are not
    /// written may be lost, files that are not copied are still here.
    pub fn troubles(&self) -> String {
        let all = [
            ("history is not written", &self.trouble),
            (
                "history is written, but not made into Parquet",
                &self.seal_trouble,
            ),
            (
                "history is written, but not copied to its target",
                &self.copy_trouble,
            ),
        ];
        let told = all.iter().filter(|(_, why)| !why.is_empty());
        let told: Vec<String> = told.map(|(what, why)| format!("{what}: {why}")).collect();
        told.join("; ")
    }
}

/// The writer. Dropping it flushes, syncs and ends its threads; a copy under way is only waited for
/// some seconds: files that are not copied are copied after the next start.
pub struct Keeper {
    journal: Journal,
    clock: Arc<dyn Clock>,
    progress: Arc<LogProgress>,
    sealed: Arc<Mutex<SealStatus>>,
    /// The losses before this start, as the log records them.
    lost_before: ArchiveLosses,
    /// The marks that were in the log at the start.
    marks: Vec<RingMark>,
    /// The queue to the writer; `None` once it is to end.
    requests: Option<SyncSender<SealAllRequest>>,
    /// A flag that makes the sealer and the copier abandon their work.
    stop: Arc<AtomicBool>,
    /// The queue to the copier; `None` if nothing is copied.
    errands: Option<Arc<CopyQueue>>,
    threads: Vec<JoinHandle<()>>,
    /// The lock of the archive, which stepped loops hold too.
    lock: Arc<FileLock>,
}

impl Keeper {
    /// Takes the lock, recovers what a crash left (torn tails are cut and counted), and starts the
    /// threads. If the archive cannot be opened the result is an error: the agent then continues
    /// without an archive.
    pub fn start(
        config: ArchiveConfig,
        storage: Arc<dyn Storage>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ArchiveError> {
        Self::start_with_target(config, storage, clock, None)
    }

    /// Like [`start`](Self::start), with a target to which sealed files are copied.
    pub fn start_with_target(
        config: ArchiveConfig,
        storage: Arc<dyn Storage>,
        clock: Arc<dyn Clock>,
        target: Option<Box<dyn CopyTarget>>,
    ) -> Result<Self, ArchiveError> {
        let journal = Journal::new(&config);
        Self::start_with_journal(config, storage, clock, target, journal)
    }

    /// Like [`start_with_target`](Self::start_with_target), with a journal that may already have
    /// entries: they are written first. After a failure the start may be tried again with the same
    /// journal, by one caller at a time.
    pub fn start_with_journal(
        config: ArchiveConfig,
        storage: Arc<dyn Storage>,
        clock: Arc<dyn Clock>,
        target: Option<Box<dyn CopyTarget>>,
        journal: Journal,
    ) -> Result<Self, ArchiveError> {
        let (mut keeper, parts) = Self::assemble(config, storage, clock, target, journal)?;
        if let Some(copier) = parts.copier {
            // This thread is not among those that are joined: at the end the sealer waits for it,
            // with a time limit.
            drop(spawn("archive-copy", move || copier::run(copier))?);
        }
        let (sealer, orders) = (parts.sealer, parts.orders);
        let thread = spawn("archive-seal", move || seal::run(sealer, &orders))?;
        keeper.threads.push(thread);
        // This thread starts last: once it runs, it takes what waits in the journal.
        let flusher = parts.flusher;
        let thread = spawn("archive-log", move || flusher::run(flusher))?;
        keeper.threads.push(thread);
        Ok(keeper)
    }

    /// Like [`start_with_journal`](Self::start_with_journal), without threads: the caller steps the
    /// loops. Whoever waits for this keeper on the same thread waits for ever: requests are made by
    /// [`request_seal`](Self::request_seal) and [`request_compact`](Self::request_compact).
    pub fn start_stepped(
        config: ArchiveConfig,
        storage: Arc<dyn Storage>,
        clock: Arc<dyn Clock>,
        target: Option<Box<dyn CopyTarget>>,
        journal: Journal,
    ) -> Result<(Self, KeeperLoops), ArchiveError> {
        let (keeper, parts) = Self::assemble(config, storage, clock, target, journal)?;
        let loops = KeeperLoops {
            ended: Some(FlusherEnd(Arc::clone(&keeper.journal.shared))),
            flusher: Some(parts.flusher),
            copier: parts.copier,
            sealer: Some(parts.sealer),
            orders: parts.orders,
            _lock: Arc::clone(&keeper.lock),
        };
        Ok((keeper, loops))
    }

    /// Takes the lock, recovers, and makes the loops, which nothing runs yet.
    fn assemble(
        config: ArchiveConfig,
        storage: Arc<dyn Storage>,
        clock: Arc<dyn Clock>,
        target: Option<Box<dyn CopyTarget>>,
        journal: Journal,
    ) -> Result<(Self, KeeperParts), ArchiveError> {
        let layout = ArchiveLayout::new(&config.root, &config.node);
        let lock = recover::occupy(&layout, &*storage)?;
        recover::empty_tmp(&layout, &*storage)?;
        let manifest = sweep::start(&layout, &config.node, &*storage)?;
        let recovered = recover::logs(&layout, &*storage, manifest.sealed_through)?;
        let progress = Arc::new(LogProgress::begin(clock.monotonic_ns()));
        let sealed = Arc::new(Mutex::new(SealStatus::default()));
        let (requests, requested) = sync_channel(REQUESTS_MAX);
        let (sealings, orders) = sync_channel(SEALINGS_MAX);
        let marks: Vec<RingMark> = recovered.marks.iter().collect();
        journal.shared.lock().begin(&marks, &recovered.lost_now);
        let keeper = Self {
            journal,
            clock: Arc::clone(&clock),
            progress: Arc::clone(&progress),
            sealed: Arc::clone(&sealed),
            lost_before: recovered.losses,
            marks,
            requests: Some(requests),
            stop: Arc::default(),
            errands: target
                .is_some()
                .then(|| CopyQueue::new(sealings.clone()).into()),
            threads: Vec::new(),
            lock: Arc::new(lock),
        };
        let copier = keeper.errands.clone().zip(target).map(|(errands, target)| {
            let stop = Arc::clone(&keeper.stop);
            Copier::new(errands, target, config.root.clone(), stop)
        });
        let stop = Arc::clone(&keeper.stop);
        let context = SealerContext::new(config.clone(), Arc::clone(&storage), stop);
        let flusher = Flusher::new(FlusherParts {
            config: config.clone(),
            clock: Arc::clone(&clock),
            shared: Arc::clone(&keeper.journal.shared),
            progress,
            writer: LogWriter::new(
                storage,
                Arc::clone(&clock),
                layout,
                config.node,
                recovered.next,
                recovered.kept,
                recovered.marks,
            ),
            requests: requested,
            sealer: sealings,
            sealed: Arc::clone(&sealed),
            closed: Arc::clone(&context.closed),
        });
        let sealer = Sealer::new(context, clock, manifest, sealed, keeper.errands.clone());
        let parts = KeeperParts {
            flusher,
            copier,
            sealer,
            orders,
        };
        Ok((keeper, parts))
    }

    /// Returns the sampler's side of the queue.
    pub fn journal(&self) -> Journal {
        self.journal.clone()
    }

    /// Returns the status of the writer.
    pub fn status(&self) -> ArchiveStatus {
        let sealed = self.sealed.lock().unwrap_or_else(PoisonError::into_inner);
        let sealed = sealed.clone();
        let mut losses = sealed.losses;
        losses.add(&self.lost_before);
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let log_bytes = load(&self.progress.log_bytes);
        let flushed_ns = load(&self.progress.flushed_ns) as i64;
        let oldest = load(&self.progress.oldest_ts) as i64;
        let state = self.journal.shared.lock();
        losses.add(&state.lost);
        ArchiveStatus {
            samples: load(&self.progress.samples),
            bytes: log_bytes + sealed.bytes,
            log_bytes,
            files: sealed.files,
            waiting_bytes: (state.pending.bytes() + state.writing_bytes) as u64,
            oldest_ts: oldest_of(oldest, sealed.oldest_ts),
            flushed_age_ns: self.clock.monotonic_ns().saturating_sub(flushed_ns).max(0),
            losses,
            waiting_copies: sealed.waiting_copies,
            stale_copies: sealed.stale_copies,
            trouble: state.trouble.clone(),
            seal_trouble: sealed.trouble,
            copy_trouble: sealed.copy_trouble,
        }
    }

    /// Returns the marks of programs' rings when this writer started: every record up to them is in
    /// the archive. Marks that are not needed any more are to be dropped with
    /// [`crate::Entry::Forget`].
    pub fn marks(&self) -> &[RingMark] {
        &self.marks
    }

    /// Seals the open log segment and all before it, and waits for the result: afterwards
    /// everything that was submitted before is in Parquet files.
    pub fn seal(&self) -> Result<(), ArchiveError> {
        self.request_seal()?.wait().map(|_| ())
    }

    /// Seals, then merges the files of each hour into one, and waits for the result. Returns how
    /// many files were replaced.
    pub fn compact(&self) -> Result<usize, ArchiveError> {
        self.request_compact()?.wait()
    }

    /// Like [`seal`](Self::seal), without waiting for the result. At most 16 requests wait; the
    /// sender of another one blocks.
    pub fn request_seal(&self) -> Result<SealRequest, ArchiveError> {
        self.request(false)
    }

    /// Like [`compact`](Self::compact), without waiting for the result; see
    /// [`request_seal`](Self::request_seal).
    pub fn request_compact(&self) -> Result<SealRequest, ArchiveError> {
        self.request(true)
    }

    fn request(&self, merge: bool) -> Result<SealRequest, ArchiveError> {
        let (reply, answer) = sync_channel(1);
        if let Some(requests) = &self.requests {
            let sent = requests.send(SealAllRequest { merge, reply });
            sent.map_err(|_| sealer_has_ended())?;
            self.journal.shared.call_now();
        }
        Ok(SealRequest { answer })
    }
}

/// A request to seal that was made and may not be answered yet.
#[derive(Debug)]
pub struct SealRequest {
    answer: Receiver<Result<usize, ArchiveError>>,
}

impl SealRequest {
    /// Waits for the result: the number of files that were replaced.
    pub fn wait(self) -> Result<usize, ArchiveError> {
        self.answer.recv().map_err(|_| sealer_has_ended())?
    }

    /// Returns the result if it is there; it is there once.
    pub fn poll(&self) -> Option<Result<usize, ArchiveError>> {
        match self.answer.try_recv() {
            Ok(result) => Some(result),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(sealer_has_ended())),
        }
    }
}

fn sealer_has_ended() -> ArchiveError {
    ArchiveError::Thread {
        name: "archive-seal",
        source: io::Error::other("it has ended"),
    }
}

fn spawn(
    name: &'static str,
    body: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, ArchiveError> {
    let thread = Builder::new().name(name.to_owned()).spawn(body);
    thread.map_err(|source| ArchiveError::Thread { name, source })
}

/// The loops of an archive before anything runs them.
struct KeeperParts {
    flusher: Flusher,
    copier: Option<Copier>,
    sealer: Sealer,
    orders: Receiver<SealerMessage>,
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").finish_non_exhaustive()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.journal.shared.stop();
        self.stop.store(true, Ordering::Relaxed);
        self.requests = None;
        if let Some(errands) = &self.errands {
            errands.stop();
        }
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the archive panicked");
            }
        }
    }
}

/// Returns the older of the log's oldest sample (`i64::MAX`: none) and that of the Parquet files
/// (0: none).
fn oldest_of(log: i64, parquet: i64) -> i64 {
    match (log, parquet) {
        (i64::MAX, parquet) => parquet,
        (log, 0) => log,
        (log, parquet) => log.min(parquet),
    }
}

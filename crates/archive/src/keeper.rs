//! The writer of an archive: its threads, and what it says of itself.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use barograph_model::Clock;
use barograph_stream::FileLock;

use crate::copier::{self, Errands};
use crate::flusher::{Flusher, Progress, Request};
use crate::log::{LogWriter, Mark};
use crate::seal::{self, Context, Order, SealStatus, Sealer};
use crate::{
    ArchiveConfig, ArchiveError, Journal, Layout, Losses, Storage, Target, recover, sweep,
};

/// Requests of people that wait for the writer; the next waits for its turn.
const REQUESTS_MAX: usize = 16;
/// Requests that wait for the sealer; a segment that finds no room is offered again.
const SEALINGS_MAX: usize = 4;

/// How the writer is doing; the agent makes streams of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// Samples written to the log since the start.
    pub samples: u64,
    /// Bytes of all files of this node.
    pub bytes: u64,
    /// Bytes of them that are log segments.
    pub log_bytes: u64,
    /// Parquet files.
    pub files: u64,
    /// Bytes that wait for the writer.
    pub waiting_bytes: u64,
    /// Time of the oldest sample kept at any tier, ns since the epoch; 0 when there is none.
    pub oldest_ts: i64,
    /// Age of the last sync or flush, in ns.
    pub flushed_age_ns: i64,
    /// What was lost, since the archive began.
    pub losses: Losses,
    /// Files that wait to be copied to the target; 0 where there is none.
    pub waiting_copies: u64,
    /// Copies at the target that wait to be removed, since their rows are in others by now.
    pub stale_copies: u64,
    /// Why nothing is written just now, and what to do about it; empty when all is well.
    pub trouble: String,
    /// Why log segments, which are written, are not made into Parquet just now; empty when all is well.
    pub seal_trouble: String,
    /// Why files, which are written, are not copied to the target just now; empty when all is well.
    pub copy_trouble: String,
}

impl Status {
    /// What is wrong just now, for people; empty when all is well. What is not written may be lost, what is
    /// not copied is still here.
    pub fn troubles(&self) -> String {
        let all = [
            ("history is not written", &self.trouble),
            (
                "history is written, but not made into Parquet",
                &self.seal_trouble,
            ),
            (
                "history is written, but not copied to archive.target",
                &self.copy_trouble,
            ),
        ];
        let told = all.iter().filter(|(_, why)| !why.is_empty());
        let told: Vec<String> = told.map(|(what, why)| format!("{what}: {why}")).collect();
        told.join("; ")
    }
}

/// The writer. Dropping it flushes, syncs and ends its threads; only a copy under way is not waited for beyond some
/// seconds: what is not copied is copied after the next start.
pub struct Keeper {
    journal: Journal,
    clock: Arc<dyn Clock>,
    progress: Arc<Progress>,
    sealed: Arc<Mutex<SealStatus>>,
    /// What was lost before this start, by what the log says.
    lost_before: Losses,
    /// What the start found.
    marks: Vec<Mark>,
    /// `None` once it is told to end.
    requests: Option<SyncSender<Request>>,
    /// Tells the sealer and the copier to give up what they are making.
    stop: Arc<AtomicBool>,
    /// What is handed to the copier; `None` where nothing is copied.
    errands: Option<Arc<Errands>>,
    threads: Vec<JoinHandle<()>>,
    _lock: FileLock,
}

impl Keeper {
    /// Takes the lock, recovers what a crash left (torn tails are cut and counted), and starts the
    /// threads. An archive that cannot be opened is an error: the agent then goes on without one.
    pub fn start(
        config: ArchiveConfig,
        storage: Arc<dyn Storage>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ArchiveError> {
        Self::start_with_target(config, storage, clock, None)
    }

    /// The same; sealed files are copied to `target` as well.
    pub fn start_with_target(
        config: ArchiveConfig,
        storage: Arc<dyn Storage>,
        clock: Arc<dyn Clock>,
        target: Option<Box<dyn Target>>,
    ) -> Result<Self, ArchiveError> {
        let journal = Journal::new(&config);
        Self::start_with_journal(config, storage, clock, target, journal)
    }

    /// The same with a journal that may have been written to since it was made: what waits in it is written
    /// first. After a failure it may be tried again with the same journal, by one at a time.
    pub fn start_with_journal(
        config: ArchiveConfig,
        storage: Arc<dyn Storage>,
        clock: Arc<dyn Clock>,
        target: Option<Box<dyn Target>>,
        journal: Journal,
    ) -> Result<Self, ArchiveError> {
        let layout = Layout::new(&config.root, &config.node);
        let lock = recover::occupy(&layout, &*storage)?;
        recover::empty_tmp(&layout, &*storage)?;
        let manifest = sweep::start(&layout, &config.node, &*storage)?;
        let recovered = recover::logs(&layout, &*storage, manifest.sealed_through)?;
        let shared = Arc::clone(&journal.shared);
        let progress = Arc::new(Progress::default());
        let now = clock.monotonic_ns();
        progress.flushed_ns.store(now as u64, Ordering::Relaxed);
        let none = i64::MAX as u64;
        progress.oldest_ts.store(none, Ordering::Relaxed);
        let sealed = Arc::new(Mutex::new(SealStatus::default()));
        let (requests, requested) = sync_channel(REQUESTS_MAX);
        let (sealings, to_seal) = sync_channel(SEALINGS_MAX);
        let marks: Vec<Mark> = recovered.marks.iter().collect();
        shared.lock().begin(&marks, &recovered.lost_now);
        let writer = LogWriter::new(
            Arc::clone(&storage),
            Arc::clone(&clock),
            layout,
            config.node.clone(),
            recovered.next,
            recovered.kept,
            recovered.marks,
        );
        let flusher = Flusher {
            config: config.clone(),
            clock: Arc::clone(&clock),
            shared: Arc::clone(&shared),
            progress: Arc::clone(&progress),
            writer,
            requests: requested,
            asked: Vec::new(),
            offers: VecDeque::new(),
            offered: 0,
            is_owing: false,
            sealer: sealings.clone(),
            sealed: Arc::clone(&sealed),
        };
        let mut keeper = Self {
            journal,
            clock: Arc::clone(&clock),
            progress,
            sealed: Arc::clone(&sealed),
            lost_before: recovered.losses,
            marks,
            requests: Some(requests),
            stop: Arc::default(),
            errands: None,
            threads: Vec::new(),
            _lock: lock,
        };
        let root = config.root.clone();
        let context = Context::new(config, storage, Arc::clone(&keeper.stop));
        if let Some(target) = target {
            keeper.start_copier(target, root, sealings)?;
        }
        let errands = keeper.errands.clone();
        let sealer = Sealer::new(context, clock, manifest, sealed, errands);
        keeper.spawn("archive-seal", move || seal::run(sealer, &to_seal))?;
        // Last: once it runs it takes what waits in the journal.
        keeper.spawn("archive-log", move || flusher.run())?;
        Ok(keeper)
    }

    fn spawn(
        &mut self,
        name: &'static str,
        body: impl FnOnce() + Send + 'static,
    ) -> Result<(), ArchiveError> {
        let thread = Builder::new().name(name.to_owned()).spawn(body);
        let thread = thread.map_err(|source| ArchiveError::Thread { name, source })?;
        self.threads.push(thread);
        Ok(())
    }

    /// It is not among the threads that are joined: the sealer waits for it at the end, for as long as that takes
    /// at most.
    fn start_copier(
        &mut self,
        target: Box<dyn Target>,
        root: PathBuf,
        wake: SyncSender<Order>,
    ) -> Result<(), ArchiveError> {
        let name = "archive-copy";
        let errands = Arc::new(Errands::new(wake));
        self.errands = Some(Arc::clone(&errands));
        let stop = Arc::clone(&self.stop);
        let body = move || copier::run(&errands, target, &root, &stop);
        let started = Builder::new().name(name.to_owned()).spawn(body);
        started
            .map(|_| ())
            .map_err(|source| ArchiveError::Thread { name, source })
    }

    /// The sampler's side.
    pub fn journal(&self) -> Journal {
        self.journal.clone()
    }

    /// How the writer is doing.
    pub fn status(&self) -> Status {
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
        Status {
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

    /// How far programs' rings had been read when this writer started: everything before is in the archive.
    /// Those that are of no use any more are to be forgotten ([`crate::Entry::Forget`]).
    pub fn marks(&self) -> &[Mark] {
        &self.marks
    }

    /// Seals the log segment of now and all before it, and waits for it: afterwards everything that
    /// was submitted before is Parquet.
    pub fn seal(&self) -> Result<(), ArchiveError> {
        self.ask(false).map(|_| ())
    }

    /// Seals, then merges the files of each hour into one, and waits for it. Returns how many files
    /// were replaced.
    pub fn compact(&self) -> Result<usize, ArchiveError> {
        self.ask(true)
    }

    fn ask(&self, merge: bool) -> Result<usize, ArchiveError> {
        let gone = || ArchiveError::Thread {
            name: "archive-seal",
            source: io::Error::other("it has ended"),
        };
        let (reply, answer) = sync_channel(1);
        if let Some(requests) = &self.requests {
            let sent = requests.send(Request { merge, reply });
            sent.map_err(|_| gone())?;
            self.journal.shared.call_now();
        }
        answer.recv().map_err(|_| gone())?
    }
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

/// The older of the log's oldest sample (`i64::MAX`: none) and the Parquet files' (0: none).
fn oldest_of(log: i64, parquet: i64) -> i64 {
    match (log, parquet) {
        (i64::MAX, parquet) => parquet,
        (log, 0) => log,
        (log, parquet) => log.min(parquet),
    }
}

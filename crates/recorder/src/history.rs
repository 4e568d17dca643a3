//! The agent's archive: it is started before the streams and closed after them, and its failures
//! never stop the agent from observing.
//!
//! It stands between the archive's writer, which knows only files, and the event loop, the
//! documents and the control requests, which must work without a writer too. The journal exists
//! from the beginning: entries that are appended while a start is under way, or has failed and will
//! be tried again, wait there as far as there is room; those beyond it are counted as lost.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use barograph_archive::{
    ArchiveError, ArchiveLayout, ArchiveStatus, Journal, JournalPosition, Keeper, KeeperLoops,
    RingMark,
};
use barograph_model::{ArchiveVerb, ControlFault, ControlFaultKind};
use serde_json::{Value as Json, json};
use tracing::{info, warn};

use crate::{ArchiveConfig, ArchiveDocument, Backoff, Job, World};

/// The number of times that a command checks whether a first start has ended.
const START_LOOKS: u32 = 100;
/// Time between two of these checks.
const START_LOOK: Duration = Duration::from_millis(20);
/// Longest wait for the writer before something replaces the memory from which entries come.
const WRITTEN_WAIT: Duration = Duration::from_secs(1);

/// Makes the archive's directory, with the rights that it needs.
pub type PrepareArchive = Arc<dyn Fn() -> io::Result<()> + Send + Sync>;

/// The writer of this agent's archive, or the reason why there is none.
pub struct History {
    /// `None` if history is off.
    starting: Option<Arc<Starting>>,
    state: Mutex<State>,
    /// Held while a control verb works: one at a time.
    working: Mutex<()>,
}

/// The arguments of each start.
struct Starting {
    config: ArchiveConfig,
    node: String,
    world: World,
    prepare: PrepareArchive,
    journal: Journal,
}

#[derive(Default)]
struct State {
    /// `None` while there is no writer, and after [`History::close`].
    keeper: Option<Arc<Keeper>>,
    /// The loops of a writer without threads.
    loops: Option<KeeperLoops>,
    /// The reason why a wanted writer is missing; empty while the first start is under way.
    trouble: String,
    /// Whether readers may read the past of this agent in the archive's directory.
    is_readable: bool,
    is_closed: bool,
    /// A start that is under way.
    attempt: Option<Job<Attempt>>,
    /// The wait for the next start, after one that failed.
    backoff: Backoff,
}

/// The result of a start: the writer, and its loops if it has no threads.
type Attempt = Result<(Keeper, Option<KeeperLoops>), Failure>;

/// The reason why a start failed.
struct Failure {
    trouble: String,
    /// Whether the directory holds this agent's past even though it cannot be written.
    is_readable: bool,
}

impl Starting {
    /// Tries to start the writer. A failure does not stop the agent: it goes on without an archive,
    /// reports the reason, and tries again.
    fn attempt(&self) -> Attempt {
        let failure = |trouble: String, is_readable| Failure {
            trouble,

            is_readable,
        };
        let dir = &self.config.dir;
        (self.prepare)().map_err(|source| {
            let text = format!("cannot make {}: {source}", dir.display());
            failure(remedied(&text), false)
        })?;
        let told = self.config.writer(&self.node);
        let told = told.and_then(|writer| Ok((writer, self.config.target()?)));
        let (writer, target) = told.map_err(|e| failure(e.to_string(), false))?;
        let (storage, clock) = (&self.world.storage, &self.world.clock);
        let (storage, clock) = (Arc::clone(storage), Arc::clone(clock));
        let journal = self.journal.clone();
        let started = if self.world.work.is_stepped() {
            Keeper::start_stepped(writer, storage, clock, target, journal)
                .map(|(keeper, loops)| (keeper, Some(loops)))
        } else {
            Keeper::start_with_journal(writer, storage, clock, target, journal)
                .map(|keeper| (keeper, None))
        };
        started.map_err(|error| {
            // An archive that another agent writes is that agent's past, and would hide the present
            // of this one. The same holds for a directory that somebody else may have written.
            let is_foreign = matches!(
                error,
                ArchiveError::Occupied { .. } | ArchiveError::Foreign { .. }
            );
            let trouble = match error {
                ArchiveError::Io { .. } => remedied(&error),
                other => other.to_string(),
            };
            failure(trouble, !is_foreign && dir.is_dir())
        })
    }
}

impl History {
    /// Starts the writer and waits for it, so that it is known how far programs' rings were read.
    pub fn start(config: &ArchiveConfig, node: &str, world: &World) -> Self {
        let history = Self::new(config, node, world, Arc::new(|| Ok(())));
        history.wait();
        history
    }

    /// Starts the writer as [`Self::start`] does, in a directory that `prepare` makes. If there is
    /// no archive yet, this does not wait: on a busy disk a start takes seconds.
    pub fn start_in(
        config: &ArchiveConfig,
        node: &str,
        world: &World,
        prepare: PrepareArchive,
    ) -> Self {
        let history = Self::new(config, node, world, prepare);
        if ArchiveLayout::new(&config.dir, node).node_dir().exists() {
            history.wait();
        } else if let Some(starting) = &history.starting
            && !history.begin(starting)
        {
            history.wait();
        }
        history
    }

    fn new(config: &ArchiveConfig, node: &str, world: &World, prepare: PrepareArchive) -> Self {
        let mut history = Self {
            starting: None,
            state: Mutex::default(),
            working: Mutex::new(()),
        };
        if !config.enabled {
            return history;
        }
        let writer = config.writer(node);
        let journal = match &writer {
            Ok(writer) => Journal::new(writer),
            Err(error) => {
                warn!("history is not written: {error}");
                return history;
            }
        };
        history.starting = Some(Arc::new(Starting {
            config: config.clone(),
            node: node.to_owned(),
            world: world.clone(),
            prepare,
            journal,
        }));
        history
    }

    /// Makes the first start on the calling thread.
    fn wait(&self) {
        let Some(starting) = &self.starting else {
            return;
        };
        let attempt = starting.attempt();
        let mut state = self.lock();
        Self::end(&mut state, attempt, starting);
    }

    /// Starts the writer beside the caller; false if no thread can be started for it.
    fn begin(&self, starting: &Arc<Starting>) -> bool {
        let ours = Arc::clone(starting);
        let work = &starting.world.work;
        let attempt = work.start("archive-start", move || ours.attempt());
        if let Err(error) = &attempt {
            warn!(%error, "no thread can start history now");
        }
        let is_begun = attempt.is_ok();
        self.lock().attempt = attempt.ok();
        is_begun
    }

    fn end(state: &mut State, attempt: Attempt, starting: &Starting) {
        match attempt {
            Ok((keeper, loops)) => {
                info!(dir = %starting.config.dir.display(), "history is written");
                (state.keeper, state.loops) = (Some(Arc::new(keeper)), loops);
                state.trouble.clear();
                (state.is_readable, state.backoff) = (true, Backoff::default());
            }
            Err(failure) => {
                if state.trouble != failure.trouble {
                    warn!(
                        "history is not written, and will be tried again: {}",
                        failure.trouble
                    );
                }
                starting.journal.set_trouble(&failure.trouble);
                state.trouble = failure.trouble;
                state.is_readable = failure.is_readable;
                state.backoff.failed(starting.world.clock.monotonic_ns());
            }
        }
    }

    /// Goes on with a start that is under way or has failed; never waits. Returns whether this call
    /// brought the writer up.
    pub fn attend(&self, monotonic_ns: i64) -> bool {
        let Some(starting) = &self.starting else {
            return false;
        };
        let mut state = self.lock();
        if state.keeper.is_some() || state.is_closed {
            return false;
        }
        match state.attempt.take_if(|attempt| attempt.is_finished()) {
            Some(attempt) => {
                let attempt = attempt.join().unwrap_or_else(|_| Err(panicked()));
                Self::end(&mut state, attempt, starting);
                state.keeper.is_some()
            }
            None => {
                let is_due = state.attempt.is_none() && state.backoff.is_over(monotonic_ns);
                drop(state);
                if is_due && !self.begin(starting) {
                    self.lock().backoff.failed(monotonic_ns);
                }
                false
            }
        }
    }

    /// Does what is due in the loops of a writer without threads, and returns the time of the next
    /// step: `i64::MAX` if there are no such loops.
    pub fn step(&self, monotonic_ns: i64) -> i64 {
        let mut state = self.lock();
        let loops = state.loops.as_mut();
        loops.map_or(i64::MAX, |loops| loops.step(monotonic_ns))
    }

    /// Waits, for a second at most, until the entries up to `position` are with the operating
    /// system, which a kill of this process cannot undo. A writer without threads makes its next
    /// step instead. Returns whether they are.
    pub(crate) fn wait_written(&self, position: JournalPosition) -> bool {
        let Some(starting) = &self.starting else {
            return false;
        };
        let (has_writer, is_stepped) = {
            let state = self.lock();
            (state.keeper.is_some(), state.loops.is_some())
        };
        let written = |wait| starting.journal.wait_written(position, wait);
        if !has_writer || !is_stepped {
            return has_writer && written(WRITTEN_WAIT);
        }
        written(Duration::ZERO) || {
            self.step(starting.world.clock.monotonic_ns());
            written(Duration::ZERO)
        }
    }

    /// The directory in which readers find the past of this agent, if there is any.
    pub fn readable_dir(&self) -> Option<PathBuf> {
        let starting = self.starting.as_ref()?;
        self.lock().is_readable.then(|| starting.config.dir.clone())
    }

    /// The journal to which streams hand what they append, whether there is a writer yet or not;
    /// `None` if history is off.
    pub fn journal(&self) -> Option<Journal> {
        Some(self.starting.as_ref()?.journal.clone())
    }

    /// The reason why nothing can be written, if a start failed and none has succeeded since.
    pub fn trouble(&self) -> Option<String> {
        let state = self.lock();
        let is_troubled = state.keeper.is_none() && !state.trouble.is_empty();
        is_troubled.then(|| state.trouble.clone())
    }

    /// The positions up to which programs' rings had been read when the writer started. If this
    /// agent's archive exists but cannot be written, the marks are read from its log: otherwise
    /// records would be taken in twice.
    pub fn marks(&self) -> Vec<RingMark> {
        let Some(starting) = &self.starting else {
            return Vec::new();
        };
        let (keeper, is_readable) = {
            let state = self.lock();
            (state.keeper.clone(), state.is_readable)
        };
        match keeper {
            Some(keeper) => keeper.marks().to_vec(),
            None if is_readable => barograph_archive::marks_of(&ArchiveLayout::new(
                &starting.config.dir,
                &starting.node,
            )),
            None => Vec::new(),
        }
    }

    /// The writer's status; `None` if history is off.
    pub fn status(&self) -> Option<ArchiveStatus> {
        let starting = self.starting.as_ref()?;
        let state = self.lock();
        Some(match &state.keeper {
            Some(keeper) => keeper.status(),
            None => ArchiveStatus {
                trouble: state.trouble.clone(),
                losses: starting.journal.lost(),
                ..ArchiveStatus::default()
            },
        })
    }

    /// The contents of `archive.json`; null if history is off.
    pub fn document(&self, status: Option<&ArchiveStatus>) -> Option<ArchiveDocument> {
        let (starting, status) = (self.starting.as_ref()?, status?);
        Some(ArchiveDocument {
            dir: starting.config.dir.display().to_string(),
            bytes: status.bytes,
            log_bytes: status.log_bytes,
            files: status.files,
            samples: status.samples,
            oldest_ts: Some(status.oldest_ts).filter(|ts| *ts != 0),
            waiting_bytes: status.waiting_bytes,
            waiting_copies: status.waiting_copies,
            stale_copies: status.stale_copies,
            losses: status.losses.clone(),
            trouble: status.troubles(),
        })
    }

    /// Returns the writer; if the first start is under way, waits for it for at most 2 s.
    #[expect(
        clippy::disallowed_methods,
        reason = "a command waits for the first start of an archive"
    )]
    fn keeper_soon(&self) -> Option<Arc<Keeper>> {
        for _ in 0..START_LOOKS {
            let state = self.lock();
            let is_starting = state.trouble.is_empty() && !state.is_closed;
            if state.keeper.is_some() || self.starting.is_none() || !is_starting {
                return state.keeper.clone();
            }
            drop(state);
            std::thread::sleep(START_LOOK);
        }
        self.keeper()
    }

    /// Carries out a control verb and waits for it, which takes minutes if there is much to do.
    /// Fails if there is no archive, if another verb is at work, or if the verb itself fails.
    pub fn command(&self, verb: ArchiveVerb) -> Result<Json, ControlFault> {
        let fault = |kind, message: String| ControlFault { kind, message };
        let Some(keeper) = self.keeper_soon() else {
            let trouble = self.trouble();
            let why = match (&self.starting, &trouble) {
                (None, _) => "history is off (archive.enabled = false or --no-archive)",
                (_, Some(trouble)) => trouble,
                (_, None) => "it is being started, or the agent is stopping",
            };
            let message = format!("there is no archive to work on: {why}");
            return Err(fault(ControlFaultKind::Statement, message));
        };
        let Ok(_working) = self.working.try_lock() else {
            let message = "the archive is being worked on: wait for it, then try again";
            return Err(fault(ControlFaultKind::Busy, message.into()));
        };
        let done = match verb {
            ArchiveVerb::Seal => keeper.seal().map(|()| json!({ "sealed": true })),
            ArchiveVerb::Compact => keeper.compact().map(|n| json!({ "replaced_files": n })),
        };
        done.map_err(|error| fault(ControlFaultKind::Internal, error.to_string()))
    }

    /// Writes and syncs all entries that were handed over, and closes the archive. Waits for a
    /// start that is under way, since it writes the entries that wait in the journal.
    pub fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let (keeper, loops) = (state.keeper.take(), state.loops.take());
        let attempt = state.attempt.take();
        drop(state);
        drop(keeper);
        self.finish(loops);
        if let Some(Ok(Ok((keeper, loops)))) = attempt.map(Job::join) {
            drop(keeper);
            self.finish(loops);
        }
    }

    /// Steps the loops of a writer that is gone until they have ended.
    fn finish(&self, loops: Option<KeeperLoops>) {
        if let (Some(loops), Some(starting)) = (loops, &self.starting) {
            loops.finish(starting.world.clock.monotonic_ns());
        }
    }

    fn keeper(&self) -> Option<Arc<Keeper>> {
        self.lock().keeper.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // Ignoring poison is sound: no holder of the lock can leave a half-written value behind.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the error's text with a remedy, for errors that do not name one.
fn remedied(error: &impl ToString) -> String {
    let error = error.to_string();
    format!(
        "{error} (make room, or choose an --archive-dir that this user may write, or --no-archive)"
    )
}

fn panicked() -> Failure {
    Failure {
        trouble: "the start of the archive has panicked: see the log of the agent".into(),
        is_readable: false,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::atomic::{AtomicBool, Ordering};

    use barograph_archive::{ArchiveReader, DeclaredStream, JournalEntry};
    use barograph_model::{Descriptor, Name, Sample, StreamKey, Unit, ValueType};

    use super::*;

    /// Waits until a start that is under way has ended.
    fn settle(history: &History) {
        while history.lock().attempt.is_some() {
            history.attend(i64::MIN);
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_others_may_have_written_is_not_this_agents_past() {
        let dir = tempfile::tempdir().unwrap();
        let config = ArchiveConfig {
            dir: dir.path().to_owned(),
            free_bytes_min: 0,
            ..ArchiveConfig::default()
        };
        let check = |readable: bool, trouble: &str| {
            let history = History::start(&config, "n1", &World::real());
            settle(&history);
            let is = history.readable_dir();
            assert_eq!(is, readable.then(|| config.dir.clone()), "{trouble}");
            let status = history.status().unwrap();
            assert!(status.trouble.contains(trouble), "{}", status.trouble);
            assert_eq!(status.trouble.is_empty(), trouble.is_empty());
            assert_eq!(history.trouble().is_none(), trouble.is_empty());
            history
        };
        let writer = check(true, "");
        check(false, "held by another agent");
        drop(writer);
        let node = dir.path().join("nodes/n1");
        fs::set_permissions(&node, Permissions::from_mode(0o777)).unwrap();
        check(false, "everybody may write there");
        fs::set_permissions(&node, Permissions::from_mode(0o755)).unwrap();
        // The archive is ours, but it cannot be written.
        fs::rename(node.join("lock"), node.join("lock.old")).unwrap();
        fs::create_dir(node.join("lock")).unwrap();
        check(true, "cannot open");
    }

    /// As if the disk was full for a moment, and then has room again.
    #[test]
    fn a_start_that_has_failed_is_tried_again_and_what_came_meanwhile_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let config = ArchiveConfig {
            dir: dir.path().join("archive"),
            free_bytes_min: 0,
            ..ArchiveConfig::default()
        };
        let is_full = Arc::new(AtomicBool::new(true));
        let full = Arc::clone(&is_full);
        let prepare: PrepareArchive = Arc::new(move || match full.load(Ordering::SeqCst) {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        });
        let history = History::start_in(&config, "n1", &World::real(), prepare);
        settle(&history);
        let trouble = history.trouble().unwrap();
        assert!(trouble.contains("make room"), "{trouble}");
        assert_eq!(history.readable_dir(), None);
        let mut entries: Vec<JournalEntry> = (1..=3).map(sample).collect();
        entries.insert(0, declared());
        let position = history.journal().unwrap().submit(&mut entries);
        // No start is made before its time.
        assert!(!history.attend(0) && history.lock().attempt.is_none());
        is_full.store(false, Ordering::SeqCst);
        assert!(!history.attend(i64::MAX) && history.lock().attempt.is_some());
        while !history.attend(i64::MIN) {
            std::thread::yield_now();
        }
        assert_eq!(
            (history.trouble(), history.readable_dir()),
            (None, Some(config.dir.clone()))
        );
        while !history.journal().unwrap().is_settled(position) {
            std::thread::yield_now();
        }
        history.close();
        let view = ArchiveReader::open(&config.dir).view().unwrap();
        let rows: u64 = view.parts().iter().map(|part| part.rows).sum();
        assert_eq!(rows, 3);
    }

    fn declared() -> JournalEntry {
        let descriptor = Descriptor::gauge(
            Name::new("app.a.b").unwrap(),
            ValueType::Int,
            Unit::new("").unwrap(),
        );
        let declared = DeclaredStream {
            descriptor: Arc::new(descriptor),
            life: 1,
            depth: 1_024,
        };
        JournalEntry::Declare(StreamKey(0), declared)
    }

    fn sample(number: u64) -> JournalEntry {
        JournalEntry::Sample(StreamKey(0), number, Sample::measured(number as i64, 7))
    }
}

//! Scopes: a segment and an archive for each set of readers, laid out as a run directory.

mod all;
mod opening;
mod past;

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use barograph_archive::{ArchiveRank, Journal, JournalPosition, RingMark};
use barograph_model::{Clock, Descriptor, Sample, SeriesId, Sink as _, StreamKey};
use barograph_stream::{
    ARCHIVE_DOCUMENT, AgentLock, FORECASTS_DOCUMENT, Incarnation, RunDir, SCOPES_DIR, ScopeReader,
    SegmentConfig, StreamError, make_public_dir, make_scope_dir,
};
use serde::Serialize;
use tracing::{info, warn};

use super::ScopeShared;
use super::ledger::{LOSS_STREAMS_MAX, LossCause, LossLedger, LossSample};
use super::newest::NewestTimes;
use super::shares::Shares;
use crate::IntakeConfig;
pub(crate) use all::OpenScopes;
use barograph_recorder::{
    ArchiveConfig, DOCUMENTS_NS, ForecastConfig, Forecasts, History, ScopeCopies, ScopeHistories,
    Streams, name_archive, publish,
};
use opening::OpenedScope;
use past::PastReading;

/// Samples in a ring of a scope.
const DEPTH: u32 = 1_024;
/// Streams of a scope whose rings hold [`DEPTH`] samples; later streams of numbers have shorter
/// rings, so that many streams take little memory.
const DEEP_STREAMS: u32 = 2_048;
/// Samples in a ring of each stream of numbers beyond [`DEEP_STREAMS`].
const SHALLOW_DEPTH: u32 = 256;
/// Samples in a ring of a stream of losses.
const LOSS_DEPTH: u32 = 64;
/// Most memory for the rings of a scope, in bytes.
const RING_BYTES_MAX: usize = 1 << 30;

/// Most counters that have ended and are remembered. If there are more, any of them is forgotten,
/// and a process that continues it counts as its first.
const ENDED_MAX: usize = 1 << 16;

/// Place and settings for new scopes.
#[derive(Clone)]
pub(crate) struct ScopeSettings {
    pub run_dir: RunDir,
    node: String,
    state_dir: PathBuf,
    archive: ArchiveConfig,
    streams_max: u32,
    streams_per_user_max: u32,
    ring_bytes_max: u64,
    is_shared: bool,
    forecast: ForecastConfig,
    pub shared: ScopeShared,
    copies: Option<ScopeCopies>,
}

impl ScopeSettings {
    pub(crate) fn new(config: &IntakeConfig, run_dir: RunDir, shared: ScopeShared) -> Self {
        Self {
            run_dir,
            node: config.node.clone(),
            state_dir: std::path::absolute(&config.state_dir)
                .unwrap_or_else(|_| config.state_dir.clone())
                .join(SCOPES_DIR),
            // All samples of applications are synced, since they cannot be read again.
            archive: ArchiveConfig {
                durable: vec!["*".into()],
                // Copies go through `copies`.
                target: String::new(),
                rank: ArchiveRank::Guest,
                ..config.archive.clone()
            },
            streams_max: config.applications.streams_max,
            streams_per_user_max: config.applications.streams_of_user_max(),
            ring_bytes_max: config.applications.ring_bytes_max,
            is_shared: config.applications.is_open_to_all(),
            forecast: config.forecast.clone(),
            shared,
            copies: config.archive.scope_copies(),
        }
    }

    /// The configuration of the segment of a scope with this run directory.
    fn segment_config(&self, run_dir: &RunDir) -> Result<SegmentConfig, StreamError> {
        let incarnation = self.shared.world.randomness.incarnation();
        let incarnation = incarnation.map_err(|source| StreamError::Io {
            what: "name",
            path: run_dir.segment(),
            source,
        })?;
        Ok(SegmentConfig {
            streams_max: self.streams_max.saturating_add(LOSS_STREAMS_MAX),
            depth_default: DEPTH,
            ring_bytes_max: RING_BYTES_MAX,
            incarnation: Some(incarnation),
            ..SegmentConfig::new(&self.node)
        })
    }

    fn shares_of_streams(&self) -> Shares<Box<str>> {
        let (all, of_user) = (self.streams_max, self.streams_per_user_max);
        Shares::new(all.into(), of_user.into(), self.is_shared)
    }

    fn shares_of_rings(&self) -> Shares<Box<str>> {
        Shares::new(self.ring_bytes_max, u64::MAX, self.is_shared)
    }

    /// The directory of the scopes' state directories.
    pub(crate) fn state_dir(&self) -> &Path {
        &self.state_dir
    }
}

/// A segment and its archive, for one set of readers.
pub(crate) struct Scope<'c> {
    streams: Streams<'c>,
    forecasts: Forecasts,
    /// Whether the last document of forecasts had rows.
    tells_forecasts: bool,
    next_documents_ns: i64,
    history: Arc<History>,
    histories: ScopeHistories,
    name: String,
    journal: Option<Journal>,
    /// The journal position of the newest values that were handed over.
    newest_position: Option<JournalPosition>,
    /// The marks of earlier lives of the agent, for ingest files that still exist.
    marks: Vec<RingMark>,
    past: PastReading,
    /// Time of the newest archived sample of each series that no bridged source owns now.
    newest: NewestTimes,
    run_dir: RunDir,
    /// Counts of values that were put and are not recorded.
    ledger: LossLedger,
    opened_ns: i64,
    streams_max: u32,
    /// Number of streams, without those of losses, which have room of their own.
    streams_used: u32,
    /// Counters of processes that have ended.
    ended: BTreeSet<SeriesId>,
    /// Number of times that room for one more stream became free.
    rooms: u64,
    /// Number of streams by user, if several users write.
    shares: Option<Shares<Box<str>>>,
    /// Bytes of the rings of all scopes, by user.
    rings: Rc<RefCell<Shares<Box<str>>>>,
    /// The user of each stream, and the bytes of its ring.
    owners: HashMap<StreamKey, (Box<str>, u64)>,
    _lock: AgentLock,
}

impl<'c> Scope<'c> {
    /// Makes a scope of what a job has opened.
    fn new(
        opened: OpenedScope,
        settings: &ScopeSettings,
        reader: ScopeReader,
        clock: &'c Arc<dyn Clock>,
        rings: Rc<RefCell<Shares<Box<str>>>>,
    ) -> Self {
        let history = opened.history;
        let journal = history.journal();
        let past = match opened.past {
            Some(_) => PastReading::Done,
            None => PastReading::Awaited,
        };
        let (mut newest, mut ledger) = (NewestTimes::default(), LossLedger::default());
        if let Some(past) = opened.past {
            past.add_to(&mut newest, &mut ledger);
        }
        let mut scope = Self {
            // Every update is kept, and none is repeated because it holds.
            streams: Streams::new(opened.segment, &**clock, journal.clone(), i64::MAX),
            forecasts: Forecasts::new(&settings.forecast, Arc::clone(&settings.shared.forecasts)),
            tells_forecasts: false,
            next_documents_ns: i64::MIN,
            newest,
            ledger,
            opened_ns: opened.opened_ns,
            streams_max: settings.streams_max,
            streams_used: 0,
            ended: BTreeSet::new(),
            rooms: 0,
            marks: opened.marks,
            past,
            history,
            histories: settings.shared.histories.clone(),
            name: opened.name,
            journal,
            newest_position: None,
            run_dir: opened.run_dir,
            shares: (!matches!(reader, ScopeReader::User(_))).then(|| settings.shares_of_streams()),
            rings,
            owners: HashMap::new(),
            _lock: opened.lock,
        };
        scope.tell_due(scope.streams.now_ns());
        scope.histories.add(&scope.name, &scope.history);
        info!(scope = scope.name, "a scope of applications is open");
        scope
    }

    /// Goes on with an archive whose start is under way or has failed; returns whether this call
    /// brought it up.
    fn attend(&mut self, settings: &ScopeSettings, clock: &Arc<dyn Clock>) -> bool {
        let is_new = self.history.attend(clock.monotonic_ns());
        if is_new {
            name_archive(&self.run_dir, self.history.readable_dir().as_deref());
            self.marks = self.history.marks();
            if matches!(self.past, PastReading::Awaited) {
                self.past = PastReading::Due { is_told: false };
            }
            self.begin_past(settings, clock);
        }
        if self.past.is_finished() {
            self.take_past();
        }
        is_new
    }

    /// The reason why samples are kept only in the rings, although there should be an archive.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.history.trouble()
    }

    /// Appends the counts of losses that are due.
    fn tell_due(&mut self, now_ns: i64) {
        for loss in self.ledger.due(now_ns) {
            tell_loss(loss, None, &mut self.streams);
        }
    }

    /// Declares a stream for a user; `value_bytes_max` applies to types that are no numbers.
    pub(crate) fn declare(
        &mut self,
        descriptor: &Descriptor,
        value_bytes_max: u32,
        user: &str,
    ) -> Result<StreamKey, NoStream> {
        if self.streams_used >= self.streams_max {
            return Err(NoStream::Full);
        }
        let depth = (self.streams_used >= DEEP_STREAMS).then_some(SHALLOW_DEPTH);
        let depth = depth.filter(|_| descriptor.value_type.is_number());
        let segment = self.streams.segment();
        let bytes = segment.ring_bytes(descriptor, depth, Some(value_bytes_max)) as u64;
        let user_of: Box<str> = user.into();
        let shares = self.shares.as_ref();
        if !shares.is_none_or(|shares| shares.has_room(&user_of, 1)) {
            return Err(NoStream::FullForUser);
        }
        if !self.rings.borrow().has_room(&user_of, bytes) {
            return Err(NoStream::RingsFullForUser);
        }
        let made = self
            .streams
            .register(descriptor, depth, Some(value_bytes_max));
        let key = made.map_err(|error| match error {
            StreamError::Duplicate { .. } => NoStream::Twice,
            error => NoStream::NoMemory(error.to_string()),
        })?;
        self.streams_used += 1;
        if let Some(shares) = &mut self.shares {
            shares.take(user_of.clone(), 1);
        }
        self.rings.borrow_mut().take(user_of.clone(), bytes);
        self.owners.insert(key, (user_of, bytes));
        self.forecasts
            .stream_of_user_added(key, descriptor, user, &mut self.streams);
        Ok(key)
    }

    /// Whether a process that has ended had this series, in this life of the agent or before.
    pub(crate) fn was_there(&self, descriptor: &Descriptor) -> bool {
        self.ended.contains(&descriptor.series_id()) || self.newest.has(descriptor)
    }

    /// Retires a counter of a process: the next process with its series begins anew.
    pub(crate) fn retire_counter(&mut self, key: StreamKey, series: SeriesId) {
        self.retire(key);
        if self.ended.len() >= ENDED_MAX {
            self.ended.pop_first();
        }
        self.ended.insert(series);
    }

    pub(crate) fn retire(&mut self, key: StreamKey) {
        if let Some((user, bytes)) = self.owners.remove(&key) {
            self.rings.borrow_mut().give_back(&user, bytes);
            if let Some(shares) = &mut self.shares {
                shares.give_back(&user, 1);
            }
        }
        self.forecasts.stream_removed(key, &mut self.streams);
        self.streams.retire(key);
        self.streams_used = self.streams_used.saturating_sub(1);
        self.rooms += 1;
    }

    /// Counts lost values, with the mark up to which the ring was read for them.
    pub(crate) fn lose(
        &mut self,
        cause: LossCause,
        publication: &str,
        user: &str,
        count: u64,
        mark: Option<RingMark>,
    ) {
        let now_ns = self.streams.now_ns();
        let loss = self.ledger.lose(cause, publication, user, count, now_ns);
        tell_loss(loss, mark, &mut self.streams);
    }

    /// Appends a sample, even if the value has not changed, with the mark up to which the ring was
    /// read for it.
    pub(crate) fn append(&mut self, key: StreamKey, sample: &Sample, mark: Option<RingMark>) {
        self.streams.append(key, sample, mark);
        self.forecasts.looked(key, sample);
    }

    /// Removes and returns the time of a series' newest archived sample: from then on the owner of
    /// the series knows it.
    pub(crate) fn take_newest(&mut self, descriptor: &Descriptor) -> Option<i64> {
        self.newest.take(descriptor)
    }

    /// Keeps the time of a series' newest sample after its owner has ended.
    pub(crate) fn give_newest(&mut self, descriptor: &Descriptor, newest_ns: i64) {
        self.newest.give(descriptor, newest_ns);
    }

    /// Forgets the marks of a process whose file is gone: they will not be needed again.
    fn forget(&mut self, incarnation: Incarnation) {
        self.marks.retain(|mark| mark.incarnation != incarnation);
        self.streams.forget(incarnation);
    }

    /// Publishes projections, hands the archive what was appended, and wakes readers. Returns the
    /// journal position to wait for.
    pub(crate) fn finish(&mut self) -> Option<JournalPosition> {
        let now_ns = self.streams.now_ns();
        self.forecasts.project(now_ns, &mut self.streams);
        let position = self.streams.finish();
        self.newest_position = position.or(self.newest_position);
        position
    }

    /// The journal position of the newest values that were handed over; `None` if there were none
    /// in this life.
    pub(crate) fn newest_position(&self) -> Option<JournalPosition> {
        self.newest_position
    }

    /// The directory in which readers find the history of the scope, if there is any.
    pub(crate) fn archive_dir(&self) -> Option<PathBuf> {
        self.history.readable_dir()
    }

    /// The journal, if there is an archive.
    pub(crate) fn journal(&self) -> Option<Journal> {
        self.journal.clone()
    }

    /// Whether everything up to a position is as safe as possible: on disk, or counted as lost
    /// there; without an archive, in the rings.
    pub(crate) fn is_safe(&self, position: JournalPosition) -> bool {
        match &self.journal {
            Some(journal) => journal.is_settled(position),
            None => true,
        }
    }

    /// Writes the heartbeat, coverages and repeated counts of losses, and every 5 s the documents
    /// of archive and forecasts. Called once a second.
    pub(crate) fn beat(&mut self, now_ns: i64, monotonic_ns: i64) {
        self.streams.beat(now_ns);
        self.tell_due(now_ns);
        self.forecasts.beat(now_ns, &mut self.streams);
        if monotonic_ns < self.next_documents_ns {
            return;
        }
        self.next_documents_ns = monotonic_ns.saturating_add(DOCUMENTS_NS);
        let status = self.history.status();
        self.publish(ARCHIVE_DOCUMENT, &self.history.document(status.as_ref()));
        let is_needed = self.forecasts.is_needed();
        if is_needed || self.tells_forecasts {
            self.publish(FORECASTS_DOCUMENT, &self.forecasts.document());
        }
        self.tells_forecasts = is_needed;
    }

    pub(crate) fn publish(&self, name: &str, document: &impl Serialize) {
        publish(&self.run_dir, name, document);
    }
}

impl Drop for Scope<'_> {
    fn drop(&mut self) {
        // The counts of losses go on from those of the past also where it was read late.
        self.take_past();
        self.streams.finish();
        self.streams.segment().close();
        self.histories.remove(&self.name);
        self.history.close();
    }
}

fn tell_closed(scope: &str) {
    warn!(
        scope,
        "only the agent can read this scope: the file system has no access-control lists"
    );
}

/// Starts a scope's archive. If its directory cannot be made now, that is a failed start that is
/// tried again.
fn open_history(settings: &ScopeSettings, reader: ScopeReader) -> History {
    let world = settings.shared.world.clone();
    let scopes = settings.state_dir.clone();
    let state_dir = scopes.join(reader.scope());
    let config = ArchiveConfig {
        dir: state_dir.join("archive"),
        copies: settings.copies.as_ref().map(|copies| copies.of(reader)),
        ..settings.archive.clone()
    };
    let storage = Arc::clone(&world.storage);
    let prepare = move || {
        make_public_dir(&scopes)?;
        if !make_scope_dir(&state_dir, reader)? {
            tell_closed(&reader.scope());
        }
        // The archive's past is lost if the names of the directories above it are.
        storage.make_dir(&state_dir)?;
        let above = [scopes.as_path()].into_iter().chain(scopes.parent());
        above.into_iter().try_for_each(|dir| storage.sync_dir(dir))
    };
    History::start_in(&config, &settings.node, &world, Arc::new(prepare))
}

/// Appends a count of losses, after declaring its stream if there is none.
fn tell_loss(loss: LossSample<'_>, mark: Option<RingMark>, streams: &mut Streams<'_>) {
    if let (None, Some(descriptor)) = (&loss.stream, &loss.descriptor) {
        *loss.stream = streams.declare(descriptor, Some(LOSS_DEPTH));
    }
    if let Some(key) = loss.stream {
        streams.append(*key, &loss.sample, mark);
    }
}

/// The reason why a stream is not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoStream {
    /// The scope has as many streams as it may.
    #[error("the scope has no room: it has as many streams as [applications] streams_max")]
    Full,
    /// The user has as many streams in the scope as he may.
    #[error("its user has no room: as many streams as [applications] streams_per_user_max")]
    FullForUser,
    /// The user has as much ring memory as he may.
    #[error(
        "its user has no room: as many bytes of rings as [applications] ring_bytes_max gives him"
    )]
    RingsFullForUser,
    /// The scope's ring memory is used up, or the system gives none now.
    #[error("{0}")]
    NoMemory(String),
    /// The stream exists already.
    #[error("it is declared twice")]
    Twice,
    /// The scope cannot be opened.
    #[error("its scope cannot be opened: see the log of the agent")]
    NoScope,
}

impl NoStream {
    /// Whether the stream can perhaps be made later.
    pub(crate) fn is_passing(&self) -> bool {
        *self != Self::Twice
    }
}

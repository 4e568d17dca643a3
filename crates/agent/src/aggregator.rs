//! The histories of other nodes that this one keeps: for each node an archive of its own, and one
//! of each scope of its applications, which the feeds of the node fill.
//!
//! The archive has the series, lives and numbers of the owner's, so that a feed goes on exactly
//! where the archive ends, and the histories that two aggregators keep of one node can be merged.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use barograph_archive::{
    ArchiveRank, ArchiveReader, ArchivedSeries, DeclaredStream, Journal, JournalEntry,
    JournalPosition, Neighbours, View,
};
use barograph_event::EVENT_STREAM;
use barograph_fabric::frame::{Announcement, Position};
use barograph_fabric::{DurableHistories, DurableHistory, HistoryOpening};
use barograph_model::{
    ConfigError, NS_PER_S, Pattern, Quality, Sample, Selector, SeriesId, Span, StreamKey,
};
use barograph_recorder::{ArchiveConfig, Backoff, History, Job, ScopeCopies, World, publish};
use barograph_stream::{
    AGENT_DOCUMENT, AgentDocument, RunDir, SCOPES_DIR, ScopeReader, make_public_dir, make_scope_dir,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::AgentError;
use crate::scope_places::{HistoryKey, ScopePlaces};

/// Directory of the histories, in the state directory.
const AGGREGATED_DIR: &str = "aggregated";
/// Entries at which they are handed to the writer before the step ends.
const ENTRIES_MAX: usize = 8_192;
/// Bytes that wait for the writer, for each byte that may be on the way: a sample takes more room
/// there than in a frame.
const BUFFER_FACTOR: u64 = 64;
/// The least and the most of it.
const BUFFER_BYTES: (u64, u64) = (8 << 20, 1 << 30);
/// Least depth that is believed of a stream: the writer is hurried by half as many samples of it.
const DEPTH_MIN: u32 = 64;
/// Time before the end of a series in which its last sample is looked for, in ns.
const LAST_NS: i64 = 3_600 * NS_PER_S;
/// The names of what applications publish begin with this; file events are in scopes too.
const APPLICATION_PREFIX: &str = "app.";
/// Beats after which every feed has gone on from where the archive was opened.
const BEFORE_BEATS: u32 = 120;

/// The history of other nodes that this node keeps on its disk.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AggregatorConfig {
    /// Streams of other nodes whose history is kept, as patterns such as `disk.*`. Empty: none.
    /// They are mirrored too, whether or not `cluster.mirror` names them. Patterns that match
    /// `app.*` keep what applications publish there, and `events` keeps the events of its watched
    /// trees, as far as `cluster.publications` takes them, for those who may read them.
    pub streams: Vec<String>,
    /// Names of the nodes whose history is kept, as patterns such as `rack1-*`.
    pub nodes: Vec<String>,
    /// Directory of the histories, one archive for each node, with those of its applications'
    /// scopes below; empty: `aggregated` in the state directory.
    pub dir: PathBuf,
    /// Longest time until a sample is synced to disk, and acknowledged to its owner, in seconds,
    /// 0.001 to 10.
    pub commit_seconds: f64,
    /// Most bytes of the files of all nodes together; beyond that the largest archive loses its
    /// oldest files.
    pub bytes_max: u64,
    /// Destination to which each sealed file of the histories is copied, as in `archive.target`,
    /// with the options of `archive.target_options`; empty: nowhere. The nodes themselves then copy
    /// nothing there: a sample would be in two files.
    pub target: String,
}

impl Default for AggregatorConfig {
    fn default() -> Self {
        Self {
            streams: Vec::new(),
            nodes: vec!["*".into()],
            dir: PathBuf::new(),
            commit_seconds: 0.2,
            bytes_max: 100 << 30,
            target: String::new(),
        }
    }
}

impl AggregatorConfig {
    /// Checks patterns and ranges.
    pub(crate) fn check(&self) -> Result<(), AgentError> {
        for text in &self.streams {
            let parsed = Selector::parse(text);
            parsed.map_err(|e| refused("cluster.aggregator.streams", text, e.to_string()))?;
        }
        if !(0.001..=10.0).contains(&self.commit_seconds) {
            let reason = "it must be 0.001 to 10".to_owned();
            let key = "cluster.aggregator.commit_seconds";
            return Err(refused(key, &self.commit_seconds, reason));
        }
        if self.bytes_max < 1 << 20 {
            let reason = "it must be at least 1048576".to_owned();
            return Err(refused(
                "cluster.aggregator.bytes_max",
                &self.bytes_max,
                reason,
            ));
        }
        Ok(())
    }
}

fn refused(key: &'static str, value: &dyn ToString, reason: String) -> AgentError {
    AgentError::from(ConfigError {
        key,
        value: value.to_string(),
        reason,
    })
}

/// The archives of other nodes.
pub(crate) struct NodeHistories {
    shared: Arc<AggregatorParts>,
    nodes: Vec<Pattern>,
    opening: BTreeMap<HistoryKey, Job<Result<NodeHistory, String>>>,
    /// Histories that could not be opened, with the reason and the wait before the next attempt.
    failed: BTreeMap<HistoryKey, (Backoff, String)>,
    places: ScopePlaces,
}

/// Configuration and handles that all histories share.
struct AggregatorParts {
    dir: PathBuf,
    selectors: Vec<Selector>,
    archive: ArchiveConfig,
    run_dir: RunDir,
    world: World,
    /// The connection by which files of scopes are copied; `None` if none are.
    copies: Option<ScopeCopies>,
}

impl NodeHistories {
    /// The histories that this configuration asks for; `None` if it asks for none.
    pub(crate) fn of(
        (config, window_bytes): (&AggregatorConfig, u64),
        archive: &ArchiveConfig,
        (run_dir, state_dir): (&RunDir, &Path),
        world: &World,
    ) -> Result<Option<Self>, AgentError> {
        if config.streams.is_empty() {
            return Ok(None);
        }
        let dir = match config.dir.as_os_str().is_empty() {
            true => state_dir.join(AGGREGATED_DIR),
            false => config.dir.clone(),
        };
        let dir = std::path::absolute(&dir).map_err(|source| AgentError::State {
            what: "find",
            path: dir.clone(),
            source,
        })?;
        let selectors = config.streams.iter().map(|text| Selector::parse(text));
        let archive = ArchiveConfig {
            enabled: true,
            durable: vec!["*".into()],
            leave_out: Vec::new(),
            commit_seconds: config.commit_seconds,
            buffer_bytes_max: window_bytes
                .saturating_mul(BUFFER_FACTOR)
                .clamp(BUFFER_BYTES.0, BUFFER_BYTES.1),
            bytes_max: config.bytes_max,
            target: config.target.clone(),
            rank: ArchiveRank::Guest,
            neighbours: Neighbours::default(),
            ..archive.clone()
        };
        archive.target().map_err(|error| ConfigError {
            key: match error.key {
                "archive.target" => "cluster.aggregator.target",
                key => key,
            },
            ..error
        })?;
        Ok(Some(Self {
            shared: Arc::new(AggregatorParts {
                dir,
                selectors: selectors.filter_map(Result::ok).collect(),
                copies: archive.scope_copies(),
                archive,
                run_dir: run_dir.clone(),
                world: world.clone(),
            }),
            nodes: config.nodes.iter().map(Pattern::new).collect(),
            opening: BTreeMap::new(),
            failed: BTreeMap::new(),
            places: ScopePlaces::default(),
        }))
    }
}

impl fmt::Debug for NodeHistories {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeHistories")
            .field("dir", &self.shared.dir)
            .finish_non_exhaustive()
    }
}

impl DurableHistories for NodeHistories {
    fn open(&mut self, node: &str, scope: &str) -> HistoryOpening {
        if !self.nodes.iter().any(|pattern| pattern.matches(node)) || !self.shared.keeps(scope) {
            return HistoryOpening::NotKept;
        }
        let key = (node.to_owned(), scope.to_owned());
        let monotonic_ns = self.shared.world.clock.monotonic_ns();
        let Some(job) = self.opening.remove(&key) else {
            if let Some((backoff, reason)) = self.failed.get(&key)
                && !backoff.is_over(monotonic_ns)
            {
                return HistoryOpening::Failed(not_kept(reason));
            }
            return self.begin(key);
        };
        if !job.is_finished() {
            self.opening.insert(key, job);
            return HistoryOpening::UnderWay;
        }
        let panicked = |_| Err("its start has panicked: see the log".to_owned());
        match job.join().unwrap_or_else(panicked) {
            Ok(history) => {
                self.failed.remove(&key);
                HistoryOpening::Open(Box::new(history))
            }
            Err(reason) => {
                let (backoff, why) = self.failed.entry(key).or_default();
                backoff.failed(monotonic_ns);
                why.clone_from(&reason);
                HistoryOpening::Failed(not_kept(&reason))
            }
        }
    }

    fn await_only(&mut self, awaited: &dyn Fn(&str, &str) -> bool) {
        // An archive that is open by then is closed again.
        self.opening.retain(|(node, scope), _| awaited(node, scope));
        self.failed.retain(|(node, scope), _| awaited(node, scope));
    }
}

impl NodeHistories {
    /// Begins to open a history.
    fn begin(&mut self, key: HistoryKey) -> HistoryOpening {
        let shared = Arc::clone(&self.shared);
        let monotonic_ns = self.shared.world.clock.monotonic_ns();
        if self.failed.contains_key(&key) {
            // The attempts after a failure have pauses of their own.
            self.places.release(&key);
        }
        let place = match key.1.is_empty() {
            true => None,
            false => match self.places.take(&key, monotonic_ns) {
                Ok(place) => Some(place),
                Err(reason) => return HistoryOpening::Failed(not_kept(&reason)),
            },
        };
        let (node, scope) = key.clone();
        // An archive may have much to recover, which other nodes do not wait for.
        let open = move || NodeHistory::open(&shared, &node, &scope, place);
        match self.shared.world.work.start("aggregate-start", open) {
            Ok(job) => {
                self.opening.insert(key, job);
                HistoryOpening::UnderWay
            }
            Err(error) => HistoryOpening::Failed(not_kept(&error)),
        }
    }
}

impl AggregatorParts {
    /// Whether anything of this scope may be kept.
    fn keeps(&self, scope: &str) -> bool {
        let may_match = |Selector { name, .. }: &Selector| {
            name.may_begin_with(APPLICATION_PREFIX) || name.matches(EVENT_STREAM)
        };
        scope.is_empty() || self.selectors.iter().any(may_match)
    }

    /// Makes the directory of a history, for those who may read the streams on their node.
    fn make_dir(&self, node: &str, scope: &str) -> io::Result<PathBuf> {
        let storage = &self.world.storage;
        storage.make_lasting_dir(&self.dir)?;
        let mut dir = self.dir.join(node);
        make_public_dir(&dir)?;
        if !scope.is_empty() {
            let reader = ScopeReader::of(scope).ok_or(io::ErrorKind::InvalidInput)?;
            dir.push(SCOPES_DIR);
            make_public_dir(&dir)?;
            dir.push(scope);
            // Where there are no access-control lists, the agent alone may read it, as the mirror
            // says.
            make_scope_dir(&dir, reader)?;
        }
        // The history is lost if the names of the directories above it are.
        storage.make_dir(&dir)?;
        let above = dir.ancestors().skip(1);
        let mut above = above.take_while(|above| above.starts_with(&self.dir));
        above.try_for_each(|above| storage.sync_dir(above))?;
        Ok(dir)
    }
}

fn not_kept(reason: &dyn ToString) -> String {
    format!("its history is not kept: {}", reason.to_string())
}

/// The archive of one other node's own streams, or of a scope of its applications.
struct NodeHistory {
    history: History,
    journal: Journal,
    shared: Arc<AggregatorParts>,
    /// The directory of the mirror, which names the archive to its readers.
    mirror: RunDir,
    node: String,
    scope: String,
    dir: PathBuf,
    /// The place among the histories of scopes.
    _place: Option<Arc<()>>,
    /// The streams that are kept, by key.
    streams: Vec<Option<KeptStream>>,
    entries: Vec<JournalEntry>,
    /// Position in the journal of what was handed over last.
    submitted: JournalPosition,
    positions: Vec<Position>,
    /// The archive as it was when it was opened, for as long as feeds go on from there.
    before: Option<Arc<View>>,
    beats: u32,
    is_named: bool,
}

/// A stream that is kept.
struct KeptStream {
    series: SeriesId,
    life_ns: i64,
    /// The newest sample; `None` before the first that this aggregator has taken in.
    newest: Option<Sample>,
    /// Time of the last look at its newest value, in ns since the epoch.
    looked_ns: i64,
}

impl NodeHistory {
    /// Opens the archive, and reads how far it has each stream.
    fn open(
        shared: &Arc<AggregatorParts>,
        node: &str,
        scope: &str,
        place: Option<Arc<()>>,
    ) -> Result<Self, String> {
        let dir = shared.make_dir(node, scope);
        let cannot = |error| {
            format!(
                "cannot make its directory in {}: {error}",
                shared.dir.display()
            )
        };
        let dir = dir.map_err(cannot)?;
        let mut config = ArchiveConfig {
            dir: dir.clone(),
            ..shared.archive.clone()
        };
        if !scope.is_empty() {
            let copies = shared.copies.as_ref().zip(ScopeReader::of(scope));
            config.copies = copies.map(|(copies, reader)| copies.of(reader));
            config.target = String::new();
        }
        let history = History::start(&config, node, &shared.world);
        if let Some(trouble) = history.trouble() {
            return Err(trouble);
        }
        let journal = history.journal().ok_or("history is off")?;
        let view = ArchiveReader::open(&dir).view();
        let view = view.map_err(|error| error.to_string())?;
        // A life of which nothing has come yet has number 0: all lives before it are here.
        let known = view.series().iter().filter(|one| one.archived.life > 0);
        let mut known: Vec<&ArchivedSeries> = known.collect();
        // Those that ended long ago are not asked for.
        known.sort_by_key(|one| std::cmp::Reverse(one.known.to));
        let positions = known.into_iter().map(|one| Position {
            series: one.id,
            life_ns: one.archived.life,
            number: one.archived.number,
        });
        let positions = positions.collect();
        Ok(Self {
            positions,
            history,
            journal,
            shared: Arc::clone(shared),
            mirror: match scope.is_empty() {
                true => shared.run_dir.mirror(node),
                false => shared.run_dir.mirror(node).scope(scope),
            },
            node: node.to_owned(),
            scope: scope.to_owned(),
            dir,
            _place: place,
            streams: Vec::new(),
            entries: Vec::new(),
            submitted: JournalPosition::default(),
            before: Some(view),
            beats: 0,
            is_named: false,
        })
    }

    fn kept(&mut self, key: StreamKey) -> Option<&mut KeptStream> {
        self.streams.get_mut(key.0 as usize)?.as_mut()
    }

    fn push(&mut self, entry: JournalEntry) {
        self.entries.push(entry);
        if self.entries.len() >= ENTRIES_MAX {
            self.submit();
        }
    }

    /// The newest sample of a stream's life that was in the archive when it was opened.
    fn newest_before(&self, series: SeriesId, life_ns: i64) -> Option<Sample> {
        let view = self.before.as_ref()?;
        let place = view.series().iter().position(|one| one.id == series)?;
        let span = Span {
            from: view.series()[place].known.to.saturating_sub(LAST_NS),
            ..Span::ALL
        };
        let (places, cancel) = ([place], AtomicBool::new(false));
        let chunks = view.scan(&places, span, &cancel).filter_map(Result::ok);
        let of_life = chunks.filter(|chunk| chunk.life == life_ns);
        let newest = of_life.filter_map(|chunk| {
            let last = chunk.columns.len().checked_sub(1)?;
            Some((chunk.columns.numbers[last], chunk.columns.sample(last)?))
        });
        let newest = newest.max_by_key(|(number, _)| *number);
        newest.map(|(_, sample)| sample)
    }

    /// Tells the readers of the mirror where its past is.
    fn name_archive(&mut self) {
        if self.is_named {
            return;
        }
        self.is_named = true;
        let document = AgentDocument {
            node: self.node.clone(),
            scope: (!self.scope.is_empty()).then(|| self.scope.clone()),
            archive: Some(self.dir.clone()),
            ..AgentDocument::default()
        };
        publish(&self.mirror, AGENT_DOCUMENT, &document);
    }
}

impl fmt::Debug for NodeHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeHistory")
            .field("node", &self.node)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

impl Drop for NodeHistory {
    fn drop(&mut self) {
        self.submit();
        self.history.close();
    }
}

impl DurableHistory for NodeHistory {
    fn positions(&self) -> Vec<Position> {
        self.positions.clone()
    }

    fn declare(&mut self, key: StreamKey, announcement: &Announcement) {
        let of = &announcement.descriptor;
        let mut selectors = self.shared.selectors.iter();
        if !selectors.any(|selector| selector.matches(of.name.as_str(), &of.labels)) {
            return;
        }
        let at = key.0 as usize;
        if at >= self.streams.len() {
            self.streams.resize_with(at + 1, || None);
        }
        self.streams[at] = Some(KeptStream {
            series: of.series_id(),
            life_ns: announcement.life_ns,
            newest: None,
            looked_ns: i64::MIN,
        });
        let declared = DeclaredStream {
            descriptor: Arc::new(of.clone()),
            life: announcement.life_ns,
            depth: announcement.depth.max(DEPTH_MIN),
        };
        self.push(JournalEntry::Declare(key, declared));
    }

    fn retire(&mut self, key: StreamKey) {
        let kept = self.streams.get_mut(key.0 as usize).and_then(Option::take);
        if kept.is_some() {
            self.push(JournalEntry::Retire(key));
        }
    }

    fn append(&mut self, key: StreamKey, number: u64, sample: &Sample) {
        let Some(kept) = self.kept(key) else {
            return;
        };
        kept.newest = Some(sample.clone());
        kept.looked_ns = sample.ts;
        self.push(JournalEntry::Sample(key, number, sample.clone()));
    }

    fn confirm(&mut self, key: StreamKey, looked_ns: i64) {
        if let Some(kept) = self.kept(key) {
            kept.looked_ns = kept.looked_ns.max(looked_ns);
        }
    }

    /// Ends the newest value at its last look, in place of the first sample that is missing: nobody
    /// knows what was between.
    fn miss(&mut self, key: StreamKey, first: u64) {
        let Some(kept) = self.kept(key) else {
            return;
        };
        let (series, life_ns, looked_ns) = (kept.series, kept.life_ns, kept.looked_ns);
        let newest = kept.newest.clone();
        let newest = newest.or_else(|| self.newest_before(series, life_ns));
        let Some(newest) = newest.filter(|newest| newest.quality != Quality::Ended) else {
            return;
        };
        let ended = Sample {
            ts: looked_ns.max(newest.ts),
            quality: Quality::Ended,
            ..newest
        };
        self.push(JournalEntry::Sample(key, first, ended));
    }

    fn submit(&mut self) -> u64 {
        if !self.entries.is_empty() {
            self.submitted = self.journal.submit(&mut self.entries);
        }
        self.submitted.0
    }

    fn step(&mut self) {
        self.history.step(self.shared.world.clock.monotonic_ns());
    }

    fn is_durable(&self, place: u64) -> bool {
        self.journal.is_settled(JournalPosition(place))
    }

    fn beat(&mut self) -> Option<String> {
        self.submit();
        self.name_archive();
        self.beats = self.beats.saturating_add(1);
        if self.beats > BEFORE_BEATS {
            self.before = None;
        }
        let status = self.history.status()?;
        Some(status.troubles()).filter(|trouble| !trouble.is_empty())
    }
}

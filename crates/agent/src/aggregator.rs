//! The histories of other nodes that this one keeps: for each an archive of its own, which the feed of
//! the node fills.
//!
//! The archive has the series, lives and numbers of the owner's, so that a feed goes on exactly where
//! the archive ends, and the histories that two aggregators keep of one node can be merged.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use barograph_archive::{
    ArchiveRank, ArchiveReader, ArchivedSeries, DeclaredStream, Journal, JournalEntry,
    JournalPosition, Neighbours, View,
};
use barograph_fabric::frame::{Announcement, Position};
use barograph_fabric::{DurableHistories, DurableHistory, HistoryOpening};
use barograph_model::{
    ConfigError, NS_PER_S, Pattern, Quality, Sample, Selector, SeriesId, Span, StreamKey,
};
use barograph_recorder::{ArchiveConfig, Backoff, History, Job, World, publish};
use barograph_stream::{AGENT_DOCUMENT, AgentDocument, RunDir, make_public_dir};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::AgentError;

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
/// Beats after which every feed has gone on from where the archive was opened.
const BEFORE_BEATS: u32 = 120;

/// The history of other nodes that this node keeps on its disk.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AggregatorConfig {
    /// Streams of other nodes whose history is kept, as patterns such as `disk.*`. Empty: none. They
    /// are mirrored too, whether or not `cluster.mirror` names them.
    pub streams: Vec<String>,
    /// Names of the nodes whose history is kept, as patterns such as `rack1-*`.
    pub nodes: Vec<String>,
    /// Directory of the histories, one archive for each node; empty: `aggregated` in the state
    /// directory.
    pub dir: PathBuf,
    /// Longest time until a sample is synced to disk, and acknowledged to its owner, in seconds,
    /// 0.001 to 10.
    pub commit_seconds: f64,
    /// Most bytes of the files of all nodes together; beyond that the largest archive loses its oldest
    /// files.
    pub bytes_max: u64,
}

impl Default for AggregatorConfig {
    fn default() -> Self {
        Self {
            streams: Vec::new(),
            nodes: vec!["*".into()],
            dir: PathBuf::new(),
            commit_seconds: 0.2,
            bytes_max: 100 << 30,
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
    opening: BTreeMap<String, Job<Result<NodeHistory, String>>>,
    /// The nodes whose history could not be opened, with the reason and the wait before the next
    /// attempt.
    failed: BTreeMap<String, (Backoff, String)>,
}

/// What all histories have in common.
struct AggregatorParts {
    dir: PathBuf,
    selectors: Vec<Selector>,
    archive: ArchiveConfig,
    run_dir: RunDir,
    world: World,
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
            // What is copied to a target would lie beside the history of this node.
            target: String::new(),
            rank: ArchiveRank::Guest,
            neighbours: Neighbours::default(),
            ..archive.clone()
        };
        Ok(Some(Self {
            shared: Arc::new(AggregatorParts {
                dir,
                selectors: selectors.filter_map(Result::ok).collect(),
                archive,
                run_dir: run_dir.clone(),
                world: world.clone(),
            }),
            nodes: config.nodes.iter().map(Pattern::new).collect(),
            opening: BTreeMap::new(),
            failed: BTreeMap::new(),
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
    fn open(&mut self, node: &str) -> HistoryOpening {
        if !self.nodes.iter().any(|pattern| pattern.matches(node)) {
            return HistoryOpening::NotKept;
        }
        let monotonic_ns = self.shared.world.clock.monotonic_ns();
        let Some(job) = self.opening.remove(node) else {
            if let Some((backoff, reason)) = self.failed.get(node)
                && !backoff.is_over(monotonic_ns)
            {
                return HistoryOpening::Failed(not_kept(reason));
            }
            let (shared, name) = (Arc::clone(&self.shared), node.to_owned());
            let work = &self.shared.world.work;
            // An archive may have much to recover, which other nodes do not wait for.
            let job = work.start("aggregate-start", move || NodeHistory::open(&shared, &name));
            return match job {
                Ok(job) => {
                    self.opening.insert(node.to_owned(), job);
                    HistoryOpening::UnderWay
                }
                Err(error) => HistoryOpening::Failed(not_kept(&error)),
            };
        };
        if !job.is_finished() {
            self.opening.insert(node.to_owned(), job);
            return HistoryOpening::UnderWay;
        }
        let panicked = |_| Err("its start has panicked: see the log".to_owned());
        match job.join().unwrap_or_else(panicked) {
            Ok(history) => {
                self.failed.remove(node);
                HistoryOpening::Open(Box::new(history))
            }
            Err(reason) => {
                let (backoff, why) = self.failed.entry(node.to_owned()).or_default();
                backoff.failed(monotonic_ns);
                why.clone_from(&reason);
                HistoryOpening::Failed(not_kept(&reason))
            }
        }
    }

    fn await_only(&mut self, awaited: &dyn Fn(&str) -> bool) {
        // An archive that is open by then is closed again.
        self.opening.retain(|node, _| awaited(node));
        self.failed.retain(|node, _| awaited(node));
    }
}

fn not_kept(reason: &dyn ToString) -> String {
    format!("its history is not kept: {}", reason.to_string())
}

/// The archive of one other node.
struct NodeHistory {
    history: History,
    journal: Journal,
    shared: Arc<AggregatorParts>,
    /// The run directory of the node's mirror, which names the archive to its readers.
    mirror: RunDir,
    node: String,
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
    /// Opens the archive of a node, and reads how far it has each stream.
    fn open(shared: &Arc<AggregatorParts>, node: &str) -> Result<Self, String> {
        let config = ArchiveConfig {
            dir: shared.dir.join(node),
            ..shared.archive.clone()
        };
        let dir = config.dir.clone();
        // Everyone may read it, as the archive of the node itself.
        let made = std::fs::create_dir_all(&shared.dir).and_then(|()| make_public_dir(&dir));
        made.map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
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
            mirror: shared.run_dir.mirror(node),
            node: node.to_owned(),
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
            archive: Some(self.shared.dir.join(&self.node)),
            ..AgentDocument::default()
        };
        publish(&self.mirror, AGENT_DOCUMENT, &document);
    }
}

impl fmt::Debug for NodeHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeHistory")
            .field("node", &self.node)
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

    fn is_durable(&self, place: u64) -> bool {
        // Without threads of its own, as in a simulation, the archive is written here.
        self.history.step(self.shared.world.clock.monotonic_ns());
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

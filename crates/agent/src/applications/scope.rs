//! Scopes: a segment and an archive for each set of readers, laid out as a run directory.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use barograph_archive::{Journal, Mark, Position, Rank};
use barograph_model::{Clock, Descriptor, NS_PER_S, Sample, Sink as _, StreamKey};
use barograph_stream::{AgentLock, Incarnation, RunDir, SCOPES_MAX, Segment, SegmentConfig};
use serde::Serialize;
use serde_json::json;
use tracing::{info, warn};

use super::access::{Reader, make_dir};
use super::newest::Newest;
use super::shares::Shares;
use super::taken::Taken;
use crate::documents::{self, FORECASTS_DOCUMENT};
use crate::forecasts::{ForecastConfig, Forecasts, Room};
use crate::history::History;
use crate::streams::Streams;
use crate::{AGENT_DOCUMENT, AgentError, ArchiveConfig, Config};

/// Beside the segment: what is published.
pub const PUBLICATIONS_DOCUMENT: &str = "publications.json";
/// Beside it: values that may be set.
pub const KNOBS_DOCUMENT: &str = "knobs.json";
/// Beside it: triggers that processes handle.
pub const HANDLERS_DOCUMENT: &str = "handlers.json";
/// In a user's scope: the newest calls of that user's processes, newest first. In the scope of all: what everyone may
/// read of them.
pub const CALLS_DOCUMENT: &str = "calls.json";
/// Samples that a ring of a scope holds.
const DEPTH: u32 = 1_024;
/// Memory for the rings of a scope.
const RING_BYTES_MAX: usize = 1 << 30;

/// How often what is said of forecasts is written anew.
const FORECASTS_NS: i64 = 5 * NS_PER_S;

/// Where scopes are made, and of what.
#[derive(Clone, Debug)]
pub struct Places {
    pub run_dir: RunDir,
    node: String,
    state_dir: PathBuf,
    archive: ArchiveConfig,
    streams_max: u32,
    streams_per_user_max: u32,
    forecast: ForecastConfig,
    room: Arc<Room>,
}

impl Places {
    pub fn new(config: &Config, run_dir: RunDir, room: Arc<Room>) -> Self {
        Self {
            run_dir,
            node: config.node.clone(),
            state_dir: std::path::absolute(&config.state_dir)
                .unwrap_or_else(|_| config.state_dir.clone())
                .join("applications"),
            // What applications say cannot be asked again: all of it is synced.
            archive: ArchiveConfig {
                durable: vec!["*".into()],
                // A copy elsewhere has no readers of its own, and one place for all scopes.
                target: String::new(),
                rank: Rank::Guest,
                ..config.archive.clone()
            },
            streams_max: config.applications.streams_max,
            streams_per_user_max: config.applications.streams_of_user_max(),
            forecast: config.forecast.clone(),
            room,
        }
    }

    fn segment_config(&self) -> SegmentConfig {
        SegmentConfig {
            streams_max: self.streams_max,
            depth_default: DEPTH,
            ring_bytes_max: RING_BYTES_MAX,
            ..SegmentConfig::new(&self.node)
        }
    }

    /// Where what is kept of scopes lies.
    pub fn state_dir(&self) -> &Path {
        &self.state_dir
    }
}

/// A segment and its archive, for one set of readers.
pub struct Scope<'c> {
    streams: Streams<'c>,
    forecasts: Forecasts,
    /// Whether there is a document of forecasts that says something.
    tells_forecasts: bool,
    next_forecasts_ns: i64,
    history: Arc<History>,
    journal: Option<Journal>,
    /// What earlier lives of the agent took in from files that are still there.
    marks: Vec<Mark>,
    /// Times of what is archived of series that are not bridged now.
    newest: Newest,
    run_dir: RunDir,
    /// Where several users write.
    shares: Option<Shares>,
    _lock: AgentLock,
}

impl<'c> Scope<'c> {
    fn open(
        places: &Places,
        reader: Reader,
        clock: &'c Arc<dyn Clock>,
    ) -> Result<Self, AgentError> {
        let name = reader.scope();
        let above = places.run_dir.path().join("applications");
        let io = |path: &std::path::Path| {
            let path = path.to_owned();
            move |source| AgentError::Directory { path, source }
        };
        // Names of scopes are no secret, what is in them is.
        for dir in [&above, &places.state_dir] {
            let made = DirBuilder::new().recursive(true).mode(0o755).create(dir);
            made.map_err(io(dir))?;
        }
        let run_dir = places.run_dir.scope(&name);
        let state_dir = places.state_dir.join(&name);
        let mut is_readable = true;
        for dir in [run_dir.path(), &state_dir] {
            is_readable &= make_dir(dir, reader).map_err(io(dir))?;
        }
        if !is_readable {
            warn!(
                scope = name,
                "only the agent can read this scope: the file system has no access-control lists"
            );
        }
        let lock = run_dir.occupy()?;
        let config = ArchiveConfig {
            dir: state_dir.join("archive"),
            ..places.archive.clone()
        };
        let history = Arc::new(History::start(&config, &places.node, clock));
        let now_ns = clock.now_ns();
        let segment = Segment::create(&run_dir.segment(), places.segment_config(), now_ns)?;
        let journal = history.journal();
        // Every update is kept: nothing is appended because it holds.
        let streams = Streams::new(segment, &**clock, journal.clone(), i64::MAX);
        let mut scope = Self {
            streams,
            forecasts: Forecasts::new(&places.forecast, Arc::clone(&places.room)),
            tells_forecasts: false,
            next_forecasts_ns: i64::MIN,
            newest: Newest::default(),
            marks: history.marks(),
            history,
            journal,
            run_dir,
            shares: (!matches!(reader, Reader::User(_)))
                .then(|| Shares::new(places.streams_per_user_max)),
            _lock: lock,
        };
        scope.publish(
            AGENT_DOCUMENT,
            &json!({
                "node": places.node,
                "version": env!("CARGO_PKG_VERSION"),
                "pid": std::process::id(),
                "scope": name,
                "started_ts": clock.now_ns(),
                "http": null,
                "archive": scope.history.readable_dir(),
            }),
        );
        scope.remember(&places.node, clock);
        info!(scope = name, "a scope of applications is open");
        Ok(scope)
    }

    /// Asks the archive up to when it has each series: by its index alone, no sample is read.
    fn remember(&mut self, node: &str, clock: &Arc<dyn Clock>) {
        if self.history.readable_dir().is_some() {
            self.newest = Newest::read(&self.run_dir, node, clock);
        }
    }

    /// Makes a stream for a user; `value_bytes_max` is of what is no number.
    pub fn declare(
        &mut self,
        descriptor: &Descriptor,
        value_bytes_max: u32,
        user: &str,
    ) -> Option<StreamKey> {
        let shares = self.shares.as_ref();
        if !shares.is_none_or(|shares| shares.has_room(user)) {
            return None;
        }
        let key = self
            .streams
            .declare_sized(descriptor, None, Some(value_bytes_max))?;
        if let Some(shares) = &mut self.shares {
            shares.take(key, user);
        }
        self.forecasts
            .stream_of_user_added(key, descriptor, user, &mut self.streams);
        Some(key)
    }

    pub fn retire(&mut self, key: StreamKey) {
        if let Some(shares) = &mut self.shares {
            shares.give_back(key);
        }
        self.forecasts.stream_removed(key, &mut self.streams);
        self.streams.retire(key);
    }

    /// Appends, also what has not changed; with the place up to which a ring was read for it.
    pub fn append(&mut self, key: StreamKey, sample: &Sample, mark: Option<Mark>) {
        self.streams.append(key, sample, mark);
        self.forecasts.looked(key, sample);
    }

    /// The time of the newest sample that is archived of a series, once: from then on whoever has the
    /// series knows.
    pub fn take_newest(&mut self, descriptor: &Descriptor) -> Option<i64> {
        self.newest.take(descriptor)
    }

    /// Whoever had the series has it no more.
    pub fn give_newest(&mut self, descriptor: &Descriptor, newest_ns: i64) {
        self.newest.give(descriptor, newest_ns);
    }

    /// The file of a process is gone: what was taken in of it will not be asked again.
    fn forget(&mut self, incarnation: Incarnation) {
        self.marks.retain(|mark| mark.incarnation != incarnation);
        self.streams.forget(incarnation);
    }

    /// Hands the archive what was appended, and wakes readers. Where it can be waited for.
    pub fn finish(&mut self) -> Option<Position> {
        let now_ns = self.streams.now_ns();
        self.forecasts.project(now_ns, &mut self.streams);
        self.streams.finish()
    }

    /// What is waited for, where there is an archive.
    pub fn journal(&self) -> Option<Journal> {
        self.journal.clone()
    }

    /// Whether everything up to a position is as safe as it gets: on disk, or, where there is no archive,
    /// in the rings.
    pub fn is_safe(&self, position: Position) -> bool {
        match &self.journal {
            Some(journal) => journal.wait_durable(position, Duration::ZERO),
            None => true,
        }
    }

    /// Once a second: says that it lives, and how forecasts do.
    pub fn beat(&mut self, now_ns: i64, monotonic_ns: i64) {
        self.streams.segment().heartbeat(now_ns);
        self.forecasts.beat(now_ns, &mut self.streams);
        if monotonic_ns < self.next_forecasts_ns {
            return;
        }
        self.next_forecasts_ns = monotonic_ns.saturating_add(FORECASTS_NS);
        let is_needed = self.forecasts.is_needed();
        if is_needed || self.tells_forecasts {
            self.publish(FORECASTS_DOCUMENT, &self.forecasts.document());
        }
        self.tells_forecasts = is_needed;
    }

    pub fn publish(&self, name: &str, document: &impl Serialize) {
        documents::publish(&self.run_dir, name, document);
    }
}

impl Drop for Scope<'_> {
    fn drop(&mut self) {
        self.streams.finish();
        self.streams.segment().close();
        self.history.close();
    }
}

/// The scopes that are open.
pub struct Scopes<'c> {
    places: Places,
    clock: &'c Arc<dyn Clock>,
    open: BTreeMap<Reader, Scope<'c>>,
    /// Refused once, and for good: whoever cannot be kept is told so in the log.
    refused: Vec<Reader>,
}

impl<'c> Scopes<'c> {
    pub fn new(places: Places, clock: &'c Arc<dyn Clock>) -> Self {
        Self {
            places,
            clock,
            open: BTreeMap::new(),
            refused: Vec::new(),
        }
    }

    /// The scope of a reader, opened when it is needed first.
    pub fn of(&mut self, reader: Reader) -> Option<&mut Scope<'c>> {
        if !self.open.contains_key(&reader) && !self.refused.contains(&reader) {
            if self.open.len() >= SCOPES_MAX {
                warn!(
                    scope = reader.scope(),
                    "more than {SCOPES_MAX} scopes: refused"
                );
                return None;
            }
            match Scope::open(&self.places, reader, self.clock) {
                Ok(scope) => {
                    self.open.insert(reader, scope);
                }
                Err(error) => {
                    warn!(scope = reader.scope(), %error, "a scope cannot be opened");
                    self.refused.push(reader);
                }
            }
        }
        self.open.get_mut(&reader)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Reader, &mut Scope<'c>)> {
        self.open.iter_mut().map(|(reader, scope)| (*reader, scope))
    }

    /// What earlier lives of the agent took in from a process.
    pub fn taken(&self, incarnation: Incarnation) -> Taken {
        let mut taken = Taken::default();
        for (reader, scope) in &self.open {
            let marks = scope.marks.iter();
            for mark in marks.filter(|mark| mark.incarnation == incarnation) {
                taken.add(*reader, mark);
            }
        }
        taken
    }

    /// The file of a process is gone.
    pub fn forget(&mut self, incarnation: Incarnation) {
        for scope in self.open.values_mut() {
            scope.forget(incarnation);
        }
    }

    /// Forgets the processes whose files are gone.
    pub fn forget_all_but(&mut self, is_there: impl Fn(Incarnation) -> bool) {
        for scope in self.open.values_mut() {
            let processes = scope.marks.iter().map(|mark| mark.incarnation);
            let gone: HashSet<Incarnation> = processes.filter(|p| !is_there(*p)).collect();
            scope.marks.retain(|mark| !gone.contains(&mark.incarnation));
            for incarnation in gone {
                scope.streams.forget(incarnation);
            }
        }
    }

    /// Opens the scopes that there were before, so that their past can be asked for.
    pub fn reopen(&mut self) {
        let Ok(names) = fs::read_dir(&self.places.state_dir) else {
            return;
        };
        for name in names.filter_map(|entry| entry.ok()?.file_name().into_string().ok()) {
            if let Some(reader) = parse(&name) {
                self.of(reader);
            }
        }
    }
}

fn parse(name: &str) -> Option<Reader> {
    if name == "all" {
        return Some(Reader::All);
    }
    let (kind, id) = name.split_at_checked(1)?;
    let id: u32 = id.parse().ok()?;
    let reader = match kind {
        "u" => Reader::User(id),
        "g" => Reader::Group(id),
        _ => return None,
    };
    (reader.scope() == name).then_some(reader)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_scopes() {
        for reader in [Reader::All, Reader::User(0), Reader::Group(4_711)] {
            assert_eq!(parse(&reader.scope()), Some(reader));
        }
        for name in ["", "u", "u-1", "u01", "x1", "u1.new", "all2", "é"] {
            assert_eq!(parse(name), None, "{name}");
        }
    }
}

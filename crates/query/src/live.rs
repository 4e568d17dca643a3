//! The streams and the archives as the tables see them: a snapshot that follows both, of a run directory
//! and of the scopes of applications below it.
//!
//! One `Live` belongs to one connection. Every scan asks it for the current snapshot, which costs a
//! lock that nobody contends and two loads from each segment; only when streams have come or gone is
//! a directory read again. Scopes that have come or gone are looked for by statements, once a second. An
//! archive is looked at only by who reads from it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use barograph_archive::{ArchiveError, View};
use barograph_model::{Clock, NS_PER_S};
use barograph_stream::{RunDir, SegmentReader, SegmentState};

use crate::QueryError;
use crate::asof::Held;
use crate::memory::Memory;
use crate::snapshot::{Horizon, Part, Schema, Snapshot, TableId};
use crate::source::{self, Scopes, Views};
use crate::stream::Stream;
use crate::watch::Watch;

/// The streams of a table.
type Streams = Arc<[Arc<Stream>]>;

/// A heartbeat older than this makes us ask the file system whether the agent was replaced.
const HEARTBEAT_STALE_NS: i64 = 3 * NS_PER_S;
/// An agent that did not say where its archive is is asked again after this time, and scopes that have
/// come or gone are looked for.
const ASK_AGAIN_NS: i64 = NS_PER_S;
/// Threads that one scan over much history may use, in a process that asks for itself.
pub(crate) const THREADS_DEFAULT: usize = 2;

/// The streams of one run directory, followed as they come and go, and their archive.
pub(crate) struct Live {
    clock: Arc<dyn Clock>,
    inner: Mutex<Inner>,
    threads: AtomicUsize,
    /// Bytes that scans of this connection hold outside of SQLite's heap.
    pub(crate) memory: Arc<Memory>,
    /// The watch over the statement that runs.
    pub(crate) watch: Watch,
    /// What `asof` read last.
    pub(crate) held: Mutex<Option<Held>>,
}

struct Inner {
    run_dir: Option<RunDir>,
    scopes: Scopes,
    /// When scopes were last looked for.
    looked_ns: Option<i64>,
    /// One for each part of the snapshot, in their order.
    places: Vec<Place>,
    snapshot: Arc<Snapshot>,
}

/// Where a part is, and its archive.
#[derive(Default)]
struct Place {
    run_dir: Option<RunDir>,
    /// The archive's directory, when it is known by the run directory.
    root: Option<PathBuf>,
    views: Option<Views>,
    /// When the run directory was last asked for its archive.
    asked_ns: Option<i64>,
    /// Why the archive could not be looked at, by this user or at all.
    fault: Option<String>,
}

/// Whether what was last done at this time is to be done again.
fn is_due(last_ns: Option<i64>, now_ns: i64) -> bool {
    last_ns.is_none_or(|last_ns| now_ns.abs_diff(last_ns) >= ASK_AGAIN_NS as u64)
}

impl Place {
    fn of(run_dir: Option<&RunDir>, views: Option<Views>) -> Self {
        Self {
            run_dir: run_dir.cloned(),
            views,
            ..Self::default()
        }
    }

    /// Whether the run directory is to be asked for its archive.
    fn is_archive_due(&self, now_ns: i64) -> bool {
        self.views.is_none() && self.run_dir.is_some() && is_due(self.asked_ns, now_ns)
    }

    fn ask_for_archive(&mut self, now_ns: i64) {
        if self.is_archive_due(now_ns) {
            self.asked_ns = Some(now_ns);
            let found = self.run_dir.as_ref().and_then(source::archive_of);
            self.root = found.as_ref().map(|archive| archive.root.clone());
            self.views = found.map(source::views_of_agent);
        }
    }

    /// Another agent may keep its archive elsewhere, or none. Whether it was known at all by what the
    /// agent says.
    fn forget_archive(&mut self) -> bool {
        let was_known = self.root.is_some();
        if was_known {
            *self = Self::of(self.run_dir.as_ref(), None);
        }
        was_known
    }
}

impl Inner {
    /// Takes the parts anew that have changed: of those that are in doubt the path is asked whether it is
    /// another segment's by now.
    fn renew(
        &mut self,
        doubtful: impl Fn(&SegmentReader) -> bool,
        now_ns: i64,
    ) -> Result<(), QueryError> {
        let mut parts: Vec<Arc<Part>> = Vec::new();
        let mut places = Vec::new();
        let mut changed = false;
        let known = std::mem::take(&mut self.places);
        let mut fault = None;
        for (part, mut place) in self.snapshot.parts.iter().zip(known) {
            let mut segment = part.segment.clone();
            let doubted = segment.as_mut().filter(|segment| doubtful(segment));
            match doubted.map_or(Ok(false), SegmentReader::reopen_if_replaced) {
                Ok(false) if part.is_current() => {
                    parts.push(Arc::clone(part));
                    places.push(place);
                }
                Ok(is_replaced) => {
                    let mut part = Part::take(Arc::clone(&part.scope), segment, Some(part));
                    if is_replaced {
                        self.looked_ns = None;
                        if place.forget_archive() {
                            part = part.with_view(None);
                        }
                    }
                    parts.push(Arc::new(part));
                    places.push(place);
                    changed = true;
                }
                // A scope that cannot be opened is not there.
                Err(_) if !part.scope.is_empty() => changed = true,
                Err(error) => {
                    fault = Some(error);
                    parts.push(Arc::clone(part));
                    places.push(place);
                }
            }
        }
        self.places = places;
        if changed {
            self.become_of(parts, now_ns);
        }
        fault.map_or(Ok(()), |error| Err(error.into()))
    }

    fn become_of(&mut self, parts: Vec<Arc<Part>>, ended_ns: i64) {
        let schema = Arc::clone(&self.snapshot.schema);
        self.snapshot = Arc::new(Snapshot::of(parts, schema, ended_ns));
    }

    /// Looks for scopes that have come or gone, at most once a second.
    fn look_for_scopes(&mut self, now_ns: i64) {
        let Some(run_dir) = &self.run_dir else { return };
        if self.scopes == Scopes::None || !is_due(self.looked_ns, now_ns) {
            return;
        }
        self.looked_ns = Some(now_ns);
        let found = self.scopes.of(run_dir);
        let known = self.snapshot.parts[1..].iter().map(|part| &*part.scope);
        if known.eq(found.iter().map(|(scope, _)| scope.as_str())) {
            return;
        }
        let mut known: Vec<Option<Place>> = self.places.drain(..).map(Some).collect();
        let (mut parts, mut places) = (Vec::new(), Vec::new());
        let own = std::iter::once((String::new(), None));
        for (scope, run_dir) in own.chain(found.into_iter().map(|(s, r)| (s, Some(r)))) {
            let at = |part: &Arc<Part>| *part.scope == *scope;
            let before = self.snapshot.parts.iter().position(at);
            if let Some((at, place)) = before.and_then(|at| Some((at, known[at].take()?))) {
                parts.push(Arc::clone(&self.snapshot.parts[at]));
                places.push(place);
            } else if let Some(run_dir) = run_dir
                && let Ok(segment) = SegmentReader::of(&run_dir)
            {
                parts.push(Arc::new(Part::take(scope.into(), Some(segment), None)));
                places.push(Place::of(Some(&run_dir), None));
            }
        }
        self.places = places;
        let before = &self.snapshot.parts;
        if parts.len() != before.len() || !parts.iter().zip(before).all(|(a, b)| Arc::ptr_eq(a, b))
        {
            self.become_of(parts, now_ns);
        }
    }

    /// Takes what archives are now into the snapshot.
    fn know(&mut self, seen: &[Seen]) {
        let mut parts = self.snapshot.parts.clone();
        let mut changed = false;
        for Seen { views, found } in seen {
            let is_of = |place: &Place| place.views.as_ref().is_some_and(|v| Arc::ptr_eq(v, views));
            let Some(at) = self.places.iter().position(is_of) else {
                continue; // It has gone meanwhile.
            };
            self.places[at].fault = found.as_ref().err().map(ToString::to_string);
            let Ok(view) = found else { continue };
            let known = parts[at].view.as_ref();
            if !known.is_some_and(|known| Arc::ptr_eq(known, view)) {
                parts[at] = Arc::new(parts[at].with_view(Some(Arc::clone(view))));
                changed = true;
            }
        }
        if changed {
            self.become_of(parts, i64::MIN);
        }
    }
}

/// A look at an archive.
struct Seen {
    views: Views,
    found: Result<Arc<View>, ArchiveError>,
}

impl Live {
    /// The streams of a run directory and of these scopes of it, and the archives that its agent keeps.
    pub(crate) fn open(
        run_dir: &RunDir,
        scopes: Scopes,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, QueryError> {
        Self::with(Some(run_dir), scopes, None, clock)
    }

    /// A run directory, an archive, or both.
    pub(crate) fn over(
        run_dir: Option<&RunDir>,
        views: Views,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, QueryError> {
        Self::with(run_dir, Scopes::None, Some(views), clock)
    }

    fn with(
        run_dir: Option<&RunDir>,
        scopes: Scopes,
        views: Option<Views>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, QueryError> {
        let segment = run_dir.map(SegmentReader::of);
        let part = Part::take("".into(), segment.transpose()?, None);
        let schema: Arc<Schema> = Arc::default();
        let mut inner = Inner {
            run_dir: run_dir.cloned(),
            scopes,
            looked_ns: None,
            places: vec![Place::of(run_dir, views)],
            snapshot: Arc::new(Snapshot::of(vec![Arc::new(part)], schema, i64::MIN)),
        };
        inner.look_for_scopes(clock.now_ns());
        let live = Self {
            clock,
            inner: Mutex::new(inner),
            threads: AtomicUsize::new(THREADS_DEFAULT),
            memory: Arc::default(),
            watch: Watch::default(),
            held: Mutex::default(),
        };
        match live.past() {
            // An archive that cannot be read is told to whoever asks for the past.
            Err(error) if run_dir.is_none() => Err(error),
            _ => Ok(live),
        }
    }

    pub(crate) fn now_ns(&self) -> i64 {
        self.clock.now_ns()
    }

    pub(crate) fn monotonic_ns(&self) -> i64 {
        self.clock.monotonic_ns()
    }

    /// Most threads that one scan may use beside its own.
    pub(crate) fn threads(&self) -> usize {
        self.threads.load(Ordering::Relaxed)
    }

    #[cfg(feature = "bundled")]
    pub(crate) fn set_threads(&self, threads: usize) {
        self.threads.store(threads.max(1), Ordering::Relaxed);
    }

    /// Whether the statement that runs must stop. To be called only on the thread that steps it.
    pub(crate) fn must_stop(&self) -> bool {
        self.watch.must_stop(self.monotonic_ns())
    }

    pub(crate) fn run_dir(&self) -> Option<RunDir> {
        self.lock().run_dir.clone()
    }

    /// Where the archive is, when the agent says so.
    #[cfg(feature = "bundled")]
    pub(crate) fn archive_dir(&self) -> Option<PathBuf> {
        let now_ns = self.now_ns();
        let place = &mut self.lock().places[0];
        place.ask_for_archive(now_ns);
        place.root.clone()
    }

    /// The run directories of the scopes that are read, with their names.
    pub(crate) fn scopes(&self) -> Vec<(Arc<str>, RunDir)> {
        let inner = self.lock();
        let scopes = inner.snapshot.parts.iter().zip(&inner.places).skip(1);
        scopes
            .filter_map(|(part, place)| Some((Arc::clone(&part.scope), place.run_dir.clone()?)))
            .collect()
    }

    /// Why archives could not be looked at last, and their directories.
    pub(crate) fn archive_faults(&self) -> Vec<(String, Option<PathBuf>)> {
        let inner = self.lock();
        let places = inner.places.iter();
        places
            .filter_map(|place| Some((place.fault.clone()?, place.root.clone())))
            .collect()
    }

    /// Looks at another run directory from now on.
    #[cfg(feature = "loadable")]
    pub(crate) fn move_to(&self, run_dir: RunDir) -> Result<(), QueryError> {
        let segment = SegmentReader::of(&run_dir)?;
        self.move_to_part(Some(segment), Place::of(Some(&run_dir), None));
        Ok(())
    }

    /// Reads an archive by itself from now on.
    #[cfg(feature = "loadable")]
    pub(crate) fn move_to_archive(&self, root: PathBuf) -> Result<(), QueryError> {
        let views = Some(source::views_of(root.clone()));
        let place = Place {
            root: Some(root),
            ..Place::of(None, views)
        };
        self.move_to_part(None, place);
        self.past().map(drop)
    }

    #[cfg(feature = "loadable")]
    fn move_to_part(&self, segment: Option<SegmentReader>, place: Place) {
        let now_ns = self.now_ns();
        let mut inner = self.lock();
        let part = Part::take("".into(), segment, None);
        inner.run_dir = place.run_dir.clone();
        inner.looked_ns = None;
        inner.places = vec![place];
        inner.become_of(vec![Arc::new(part)], i64::MIN);
        inner.look_for_scopes(now_ns);
    }

    /// The streams as they are now. An agent that said goodbye, or was replaced by another, is
    /// noticed here.
    pub(crate) fn current(&self) -> Result<Arc<Snapshot>, QueryError> {
        let inner = self.follow(|segment| segment.state() == SegmentState::Closed)?;
        Ok(Arc::clone(&inner.snapshot))
    }

    /// The streams of a table as they are now, none when all have ended, and up to when the archive
    /// may know more.
    pub(crate) fn streams_of(&self, table: TableId) -> Result<(Streams, Horizon), QueryError> {
        let inner = self.follow(|segment| segment.state() == SegmentState::Closed)?;
        let members = inner.snapshot.members(table);
        let streams = members.map(|m| (Arc::clone(&m.streams), m.horizon));
        Ok(streams.unwrap_or((Arc::default(), Horizon::NEVER)))
    }

    /// How many streams a table has, how many samples their rings hold, and how many series of it are
    /// archived.
    pub(crate) fn size_of(&self, table: TableId) -> Result<(usize, u64, usize), QueryError> {
        if cfg!(not(feature = "bundled")) {
            // No database of ours attends to it before each statement.
            self.attend()?;
        }
        let inner = self.follow(|segment| segment.state() == SegmentState::Closed)?;
        let Some(members) = inner.snapshot.members(table) else {
            return Ok((0, 0, 0));
        };
        let held = members.streams.iter().map(|s| u64::from(s.entry.depth));
        Ok((members.streams.len(), held.sum(), members.archived.len()))
    }

    /// As [`Self::current`], and notices as well that the run directory was laid out anew after an
    /// agent that could not say goodbye, that an agent has said where its archive is, and that scopes
    /// have come or gone.
    pub(crate) fn attend(&self) -> Result<Arc<Snapshot>, QueryError> {
        let now_ns = self.now_ns();
        let mut inner = self.follow(|segment| !segment.is_alive(now_ns, HEARTBEAT_STALE_NS))?;
        inner.look_for_scopes(now_ns);
        if !inner.places.iter().any(|p| p.is_archive_due(now_ns)) {
            return Ok(Arc::clone(&inner.snapshot));
        }
        drop(inner);
        // Whoever asks for the past is told what is wrong with it.
        let _ = self.past();
        Ok(Arc::clone(&self.lock().snapshot))
    }

    /// As [`Self::current`], and knows the archives as they are now. One that this user may not read beside
    /// its rings, or that is a scope's and cannot be looked at, stays as it was known: where it was not,
    /// the rings are all there is, and [`Self::archive_faults`] says so.
    pub(crate) fn past(&self) -> Result<Arc<Snapshot>, QueryError> {
        let mut fault = None;
        let mut seen = Vec::new();
        let is_alone = self.is_archive_alone();
        for (is_own, views) in self.find_archives() {
            let found = match views() {
                Err(error) if is_own && (is_alone || !error.is_denied()) => {
                    fault = Some(error);
                    continue;
                }
                found => found,
            };
            seen.push(Seen { views, found });
        }
        let mut inner = self.follow(|_| false)?;
        inner.know(&seen);
        match fault {
            Some(error) => Err(error.into()),
            None => Ok(Arc::clone(&inner.snapshot)),
        }
    }

    /// Whether there is an archive, as far as is known.
    pub(crate) fn has_archive(&self) -> bool {
        self.lock().places.iter().any(|place| place.views.is_some())
    }

    /// Whether an archive is read by itself, without an agent's run directory.
    pub(crate) fn is_archive_alone(&self) -> bool {
        self.lock().run_dir.is_none()
    }

    /// The archives that are known of, and whether each is the run directory's own or the one alone.
    fn find_archives(&self) -> Vec<(bool, Views)> {
        let now_ns = self.now_ns();
        let mut inner = self.lock();
        let mut found = Vec::new();
        for (at, place) in inner.places.iter_mut().enumerate() {
            place.ask_for_archive(now_ns);
            found.extend(place.views.clone().map(|views| (at == 0, views)));
        }
        found
    }

    fn follow(
        &self,
        doubtful: impl Fn(&SegmentReader) -> bool,
    ) -> Result<MutexGuard<'_, Inner>, QueryError> {
        let mut inner = self.lock();
        let is_settled = |part: &Arc<Part>| match &part.segment {
            Some(segment) => !doubtful(segment) && part.is_current(),
            None => true,
        };
        if !inner.snapshot.parts.iter().all(is_settled) {
            let now_ns = self.now_ns();
            inner.renew(doubtful, now_ns)?;
        }
        Ok(inner)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing panics while it holds the lock, and a snapshot is replaced whole.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

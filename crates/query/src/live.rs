//! The streams and archives that the tables read: a snapshot of a run directory and of the scopes
//! of applications below it, which follows their changes.
//!
//! A `Live` belongs to one connection. Every scan takes the current snapshot from it, which costs
//! an uncontended lock and two loads per segment; a directory is read again only if streams have
//! come or gone. Statements look for scopes that have come or gone, once a second. Only statements
//! that read from an archive look at it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use barograph_archive::{ArchiveError, View};
use barograph_model::{Clock, NS_PER_S};
use barograph_stream::{LOOK_NS, RunDir, ScopeChoice, SegmentFollower, SegmentPart, StreamError};

use crate::QueryError;
use crate::asof_samples::AsofSamples;
use crate::memory::ScanMemory;
use crate::snapshot::{Horizon, MirroredNodes, SnapshotPart, StreamsSnapshot, TableId};
use crate::source::{self, Views};
use crate::stream::SnapshotStream;
use crate::watch::StatementWatch;

/// The streams of a table.
type Streams = Arc<[Arc<SnapshotStream>]>;

/// Time between two looks for the archive's directory, if the agent has not published it.
const ASK_AGAIN_NS: i64 = NS_PER_S;
/// Default number of threads of one scan over much history, in a process that runs its own queries.
pub(crate) const THREADS_DEFAULT: usize = 2;

/// The streams of one run directory, followed as they come and go, and their archive.
pub(crate) struct Live {
    clock: Arc<dyn Clock>,
    inner: Mutex<Inner>,
    threads: AtomicUsize,
    /// Memory that scans of this connection hold outside of SQLite's heap.
    pub(crate) memory: Arc<ScanMemory>,
    /// The watch over the running statement.
    pub(crate) watch: StatementWatch,
    /// The samples that `asof` read last.
    pub(crate) asof: Mutex<Option<AsofSamples>>,
}

struct Inner {
    /// None if an archive is read alone.
    follower: Option<SegmentFollower<SnapshotStream>>,
    /// The number of the follower's changes until the snapshot.
    changes: u64,
    /// One place for each part of the snapshot, in the same order.
    places: Vec<ArchivePlace>,
    snapshot: Arc<StreamsSnapshot>,
}

/// The run directory of a part, and its archive.
#[derive(Default)]
struct ArchivePlace {
    run_dir: Option<RunDir>,
    /// The archive's directory, if the run directory names it.
    root: Option<PathBuf>,
    views: Option<Views>,
    /// Time of the last look for the archive's directory.
    asked_ns: Option<i64>,
    /// The reason why the archive could not be read, by this user or at all.
    fault: Option<String>,
}

/// Whether something last done at `last_ns` is to be done again.
fn is_due(last_ns: Option<i64>, now_ns: i64) -> bool {
    last_ns.is_none_or(|last_ns| now_ns.abs_diff(last_ns) >= ASK_AGAIN_NS as u64)
}

impl ArchivePlace {
    fn of(run_dir: Option<&RunDir>, views: Option<Views>) -> Self {
        Self {
            run_dir: run_dir.cloned(),
            views,
            ..Self::default()
        }
    }

    /// Whether to look for the archive in the run directory's documents.
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

    /// Forgets the archive, since another agent may keep its archive elsewhere or have none.
    /// Returns whether it was known from the agent's document.
    fn forget_archive(&mut self) -> bool {
        let was_known = self.root.is_some();
        if was_known {
            *self = Self::of(self.run_dir.as_ref(), None);
        }
        was_known
    }

    /// The part of a segment as it is followed now, after the part of this place.
    fn part_after(
        mut self,
        before: &Arc<SnapshotPart>,
        followed: &Arc<SegmentPart<SnapshotStream>>,
    ) -> (Self, Arc<SnapshotPart>) {
        if before.followed().is_some_and(|f| Arc::ptr_eq(f, followed)) {
            return (self, Arc::clone(before));
        }
        let is_same = |segment| Arc::ptr_eq(segment, &followed.segment);
        let is_replaced = !before.segment().is_some_and(is_same);
        let view = match is_replaced && self.forget_archive() {
            true => None,
            false => before.view.clone(),
        };
        (self, Arc::new(SnapshotPart::of(followed, view)))
    }
}

impl Inner {
    /// Begins to read these segments, or if there are none an archive alone, with the run directory
    /// and the archive of `own`.
    fn begin(&mut self, follower: Option<SegmentFollower<SnapshotStream>>, own: ArchivePlace) {
        self.follower = follower;
        self.places = vec![own];
        self.become_of(vec![Arc::default()], i64::MIN);
        self.take_parts(i64::MIN);
    }

    /// Follows the segments, and takes what has changed into the snapshot.
    fn follow(&mut self, now_ns: i64) -> Result<(), QueryError> {
        let Some(follower) = &mut self.follower else {
            return Ok(());
        };
        let followed = follower.follow(now_ns);
        if follower.changes() != self.changes {
            self.take_parts(now_ns);
        }
        Ok(followed?)
    }

    fn take_parts(&mut self, ended_ns: i64) {
        let Some(follower) = &self.follower else {
            return;
        };
        self.changes = follower.changes();
        let known = self.places.drain(..).zip(&self.snapshot.parts);
        let mut known: Vec<(ArchivePlace, &Arc<SnapshotPart>)> = known.collect();
        let (mut parts, mut places) = (Vec::new(), Vec::new());
        for followed in follower.parts() {
            let is_it =
                |(place, _): &(ArchivePlace, _)| place.run_dir.as_ref() == Some(&followed.run_dir);
            let (place, part) = match known.iter().position(is_it) {
                Some(at) => {
                    let (place, before) = known.swap_remove(at);
                    place.part_after(before, followed)
                }
                None => {
                    let place = ArchivePlace::of(Some(&followed.run_dir), None);
                    (place, Arc::new(SnapshotPart::of(followed, None)))
                }
            };
            parts.push(part);
            places.push(place);
        }
        self.places = places;
        self.become_of(parts, ended_ns);
    }

    fn become_of(&mut self, parts: Vec<Arc<SnapshotPart>>, ended_ns: i64) {
        let schema = Arc::clone(&self.snapshot.schema);
        self.snapshot = Arc::new(StreamsSnapshot::of(parts, schema, ended_ns));
    }

    /// Takes the present views of archives into the snapshot.
    fn know(&mut self, seen: &[Seen]) {
        let mut parts = self.snapshot.parts.clone();
        let mut changed = false;
        for Seen { views, found } in seen {
            let is_of =
                |place: &ArchivePlace| place.views.as_ref().is_some_and(|v| Arc::ptr_eq(v, views));
            let Some(at) = self.places.iter().position(is_of) else {
                continue; // The part is gone meanwhile.
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

/// Follows a run directory with the mirrors of other nodes.
fn with_mirrors(
    run_dir: &RunDir,
    scopes: ScopeChoice,
    now_ns: i64,
) -> Result<SegmentFollower<SnapshotStream>, StreamError> {
    SegmentFollower::open(run_dir, scopes, LOOK_NS, now_ns)?.with_mirrors(now_ns)
}

/// The result of a look at an archive.
struct Seen {
    views: Views,
    found: Result<Arc<View>, ArchiveError>,
}

impl Live {
    /// Opens a run directory, these scopes of it, and the archives of their agent; the mirrors of
    /// other nodes are left out.
    #[cfg(feature = "bundled")]
    pub(crate) fn open(
        run_dir: &RunDir,
        scopes: ScopeChoice,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, QueryError> {
        let follower = SegmentFollower::open(run_dir, scopes, LOOK_NS, clock.now_ns())?;
        Self::with(Some((run_dir, follower)), None, clock)
    }

    /// Opens a run directory with the mirrors of other nodes.
    pub(crate) fn open_cluster(
        run_dir: &RunDir,
        scopes: ScopeChoice,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, QueryError> {
        let follower = with_mirrors(run_dir, scopes, clock.now_ns())?;
        Self::with(Some((run_dir, follower)), None, clock)
    }

    /// Opens a run directory, an archive, or both.
    pub(crate) fn over(
        run_dir: Option<&RunDir>,
        views: Views,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, QueryError> {
        let open = |run_dir| {
            let follower =
                SegmentFollower::open(run_dir, ScopeChoice::None, LOOK_NS, clock.now_ns());
            follower.map(|follower| (run_dir, follower))
        };
        let rings = run_dir.map(open).transpose()?;
        Self::with(rings, Some(views), clock)
    }

    fn with(
        rings: Option<(&RunDir, SegmentFollower<SnapshotStream>)>,
        views: Option<Views>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, QueryError> {
        let (run_dir, follower) = rings.unzip();
        let mut inner = Inner {
            follower: None,
            changes: 0,
            places: Vec::new(),
            snapshot: Arc::new(StreamsSnapshot::of(Vec::new(), Arc::default(), i64::MIN)),
        };
        inner.begin(follower, ArchivePlace::of(run_dir, views));
        let live = Self {
            clock,
            inner: Mutex::new(inner),
            threads: AtomicUsize::new(THREADS_DEFAULT),
            memory: Arc::default(),
            watch: StatementWatch::default(),
            asof: Mutex::default(),
        };
        match live.past() {
            // An unreadable archive is reported to statements that ask for the past.
            Err(error) if run_dir.is_none() => Err(error),
            _ => Ok(live),
        }
    }

    #[cfg(feature = "bundled")]
    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
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

    /// Whether the running statement must stop. May only be called on the thread that steps it.
    pub(crate) fn must_stop(&self) -> bool {
        self.watch.must_stop(self.monotonic_ns())
    }

    pub(crate) fn run_dir(&self) -> Option<RunDir> {
        self.lock().places[0].run_dir.clone()
    }

    /// The archive's directory, if the agent keeps an archive.
    #[cfg(feature = "bundled")]
    pub(crate) fn archive_dir(&self) -> Option<PathBuf> {
        let now_ns = self.now_ns();
        let place = &mut self.lock().places[0];
        place.ask_for_archive(now_ns);
        place.root.clone()
    }

    /// Whether all is read that this process may read, and not what everyone may.
    pub(crate) fn reads_for_itself(&self) -> bool {
        let inner = self.lock();
        let scopes = inner.follower.as_ref().map(SegmentFollower::scopes);
        scopes == Some(ScopeChoice::Readable)
    }

    /// Names and run directories of the scopes that are read.
    pub(crate) fn scopes(&self) -> Vec<(Arc<str>, RunDir)> {
        let inner = self.lock();
        let scopes = inner.snapshot.parts.iter().zip(&inner.places).skip(1);
        let scopes = scopes.filter(|(part, _)| !part.is_mirror());
        scopes
            .filter_map(|(part, place)| Some((Arc::clone(&part.scope), place.run_dir.clone()?)))
            .collect()
    }

    /// The reasons why archives could not be read at the last look, with their directories.
    pub(crate) fn archive_faults(&self) -> Vec<(String, Option<PathBuf>)> {
        let inner = self.lock();
        let places = inner.places.iter();
        places
            .filter_map(|place| Some((place.fault.clone()?, place.root.clone())))
            .collect()
    }

    /// Switches to another run directory.
    #[cfg(feature = "loadable")]
    pub(crate) fn move_to(&self, run_dir: &RunDir, scopes: ScopeChoice) -> Result<(), QueryError> {
        let follower = with_mirrors(run_dir, scopes, self.now_ns())?;
        let own = ArchivePlace::of(Some(run_dir), None);
        self.lock().begin(Some(follower), own);
        Ok(())
    }

    /// Switches to an archive alone.
    #[cfg(feature = "loadable")]
    pub(crate) fn move_to_archive(&self, root: PathBuf) -> Result<(), QueryError> {
        let views = Some(source::views_of(root.clone()));
        let place = ArchivePlace {
            root: Some(root),
            ..ArchivePlace::of(None, views)
        };
        self.lock().begin(None, place);
        self.past().map(drop)
    }

    /// The present snapshot. It notices an agent that has closed its segment or was replaced by
    /// another.
    pub(crate) fn current(&self) -> Result<Arc<StreamsSnapshot>, QueryError> {
        let inner = self.follow()?;
        Ok(Arc::clone(&inner.snapshot))
    }

    /// The present streams of a table, none if all have ended, and the time up to which the archive
    /// may have more.
    pub(crate) fn streams_of(
        &self,
        table: TableId,
    ) -> Result<(Streams, Horizon, MirroredNodes), QueryError> {
        let inner = self.follow()?;
        let members = inner.snapshot.members(table);
        let streams = members.map(|m| (Arc::clone(&m.streams), m.horizon));
        let (streams, horizon) = streams.unwrap_or((Arc::default(), Horizon::NEVER));
        Ok((streams, horizon, inner.snapshot.mirrored.clone()))
    }

    /// The number of a table's streams, of samples that their rings hold, and of its archived
    /// series.
    pub(crate) fn size_of(&self, table: TableId) -> Result<(usize, u64, usize), QueryError> {
        if cfg!(not(feature = "bundled")) {
            // With the extension, no database of ours attends before each statement.
            self.attend()?;
        }
        let inner = self.follow()?;
        let Some(members) = inner.snapshot.members(table) else {
            return Ok((0, 0, 0));
        };
        let held = members.streams.iter().map(|s| u64::from(s.entry.depth));
        Ok((members.streams.len(), held.sum(), members.archived.len()))
    }

    /// Like [`Self::current`], but it also notices that the run directory was replaced after an
    /// agent that ended without closing its segment, that an agent has published its archive's
    /// directory, and that scopes have come or gone.
    pub(crate) fn attend(&self) -> Result<Arc<StreamsSnapshot>, QueryError> {
        let now_ns = self.now_ns();
        let mut inner = self.lock();
        inner.follow(now_ns)?;
        if !inner.places.iter().any(|p| p.is_archive_due(now_ns)) {
            return Ok(Arc::clone(&inner.snapshot));
        }
        drop(inner);
        // Statements that ask for the past report its errors.
        let _ = self.past();
        Ok(Arc::clone(&self.lock().snapshot))
    }

    /// Like [`Self::current`], but with the present views of the archives. If an archive is
    /// unreadable, because this user may not read it or because it is a scope's, its last view
    /// stays; without one, only the rings count, and [`Self::archive_faults`] has the reason.
    pub(crate) fn past(&self) -> Result<Arc<StreamsSnapshot>, QueryError> {
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
        let mut inner = self.follow()?;
        inner.know(&seen);
        match fault {
            Some(error) => Err(error.into()),
            None => Ok(Arc::clone(&inner.snapshot)),
        }
    }

    /// Whether an archive is known.
    pub(crate) fn has_archive(&self) -> bool {
        self.lock().places.iter().any(|place| place.views.is_some())
    }

    /// Whether an archive is read alone, without an agent's run directory.
    pub(crate) fn is_archive_alone(&self) -> bool {
        self.lock().follower.is_none()
    }

    /// The known archives, and for each whether it belongs to the run directory itself or is read
    /// alone.
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

    /// Follows the segments if memory alone tells that something has changed.
    fn follow(&self) -> Result<MutexGuard<'_, Inner>, QueryError> {
        let mut inner = self.lock();
        if !inner
            .follower
            .as_ref()
            .is_none_or(SegmentFollower::is_settled)
        {
            let now_ns = self.now_ns();
            inner.follow(now_ns)?;
        }
        Ok(inner)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code panics while it holds this lock, and a snapshot is replaced as a whole.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! The past of this node's streams for nodes that keep its history: what the rings no longer hold
//! is read from the archive.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use barograph_archive::{ArchiveError, ArchiveReader, ArchivedSeries, SampleChunk, View};
use barograph_fabric::{
    EndedList, EndedQuery, EndedSeries, LifePoint, PastGap, PastReading, PastRun, PastSamples,
    PastSource,
};
use barograph_model::{NS_PER_S, Sample, Span};
use barograph_recorder::Work;
use barograph_stream::{AGENT_DOCUMENT, AgentDocument, RunDir};
use tracing::warn;

/// Most readings of this node's own archive at a time, for all nodes together. So many more are of
/// archives of scopes.
const READINGS_MAX: usize = 4;
/// Most samples of a reading.
const SAMPLES_MAX: usize = 1 << 16;
/// Most bytes of the values of a reading, or one value.
const BYTES_MAX: usize = 4 << 20;
/// Most samples of a run.
const RUN_SAMPLES_MAX: usize = 1_024;
/// Most bytes of the values of a run, or one value: it is sent in one frame.
const RUN_BYTES_MAX: usize = 128 << 10;
/// Time before the end of a series in which its missing samples are looked for at first, in ns.
/// They are nearly always those of the last minutes.
const BACK_NS: i64 = 600 * NS_PER_S;
/// The factor of each further attempt.
const BACK_FACTOR: i64 = 8;
/// Most by which the time of a sample is before that of one with a lower number, in ns: a clock was
/// set back, or an insight over all nodes has the time of one whose clock is behind.
const BACKWARDS_NS: i64 = 3_600 * NS_PER_S;

/// Has the fabric take what was read.
pub(crate) type WakeFabric = Arc<dyn Fn() + Send + Sync>;

/// An archive of this node, as the source of what its rings no longer hold.
pub(crate) struct ArchivedPast {
    archive: PastArchive,
    work: Work,
    wake: WakeFabric,
    /// Number of readings under way.
    readings: Arc<AtomicUsize>,
    /// The archives of scopes; `None` in one of them.
    scopes: Option<ScopePasts>,
}

/// The archives of the scopes of this node's applications, as far as other nodes read them.
struct ScopePasts {
    run_dir: RunDir,
    /// Readers of the past that a feed holds, by scope.
    pasts: Mutex<BTreeMap<String, Weak<ArchivedPast>>>,
    /// Number of readings of them under way.
    readings: Arc<AtomicUsize>,
}

/// The archive, as a reading sees it; clones share it.
#[derive(Clone)]
struct PastArchive {
    /// One reader for all readings: it follows what is written.
    reader: Arc<ArchiveReader>,
    node: Arc<str>,
    /// Whether the last reading could not be done.
    is_failing: Arc<AtomicBool>,
}

/// The place of a reading among those under way. The reading and its job share it: a job goes on
/// when nobody waits for it any more.
struct ReadingPlace(Arc<AtomicUsize>);

impl ReadingPlace {
    /// A place, unless all are taken.
    fn take(readings: &Arc<AtomicUsize>) -> Option<Arc<Self>> {
        let one_more = |count: usize| (count < READINGS_MAX).then_some(count + 1);
        let taken = readings.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
        taken.ok().map(|_| Arc::new(Self(Arc::clone(readings))))
    }
}

impl Drop for ReadingPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl ArchivedPast {
    /// The archive of a node's own streams in `dir`, and those that the documents of the scopes
    /// below its run directory name.
    pub(crate) fn new(
        (dir, run_dir): (PathBuf, &RunDir),
        node: &str,
        work: &Work,
        wake: WakeFabric,
    ) -> Self {
        Self {
            archive: PastArchive::open(dir, node.into()),
            work: work.clone(),
            wake,
            readings: Arc::default(),
            scopes: Some(ScopePasts {
                run_dir: run_dir.clone(),
                pasts: Mutex::default(),
                readings: Arc::default(),
            }),
        }
    }

    /// The archive of a scope in `dir`.
    fn below(&self, dir: PathBuf, readings: &Arc<AtomicUsize>) -> Self {
        Self {
            archive: PastArchive::open(dir, Arc::clone(&self.archive.node)),
            work: self.work.clone(),
            wake: Arc::clone(&self.wake),
            readings: Arc::clone(readings),
            scopes: None,
        }
    }

    fn dir(&self) -> &Path {
        self.archive.reader.root()
    }

    /// Has a job read the archive; `panicked` is what it has found if it panics. `None` if there is
    /// no place or no thread for it at present.
    fn start<T: Send + 'static>(
        &self,
        panicked: T,
        read: impl FnOnce(&PastArchive) -> T + Send + 'static,
    ) -> Option<Box<dyn PastReading<T>>> {
        let place = ReadingPlace::take(&self.readings)?;
        let place_of_job = Arc::clone(&place);
        let (archive, wake) = (self.archive.clone(), Arc::clone(&self.wake));
        let (to, found) = sync_channel(1);
        let job = self.work.start("baro-past", move || {
            // The subscriber may be gone.
            let _ = to.send(read(&archive));
            drop(place_of_job);
            wake();
        });
        job.ok()?;
        Some(Box::new(ArchiveReading {
            found,
            panicked: Some(panicked),
            _place: place,
        }))
    }
}

impl fmt::Debug for ArchivedPast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArchivedPast")
            .field("dir", &self.dir())
            .finish_non_exhaustive()
    }
}

impl PastSource for ArchivedPast {
    fn read(&self, gaps: Vec<PastGap>) -> Option<Box<dyn PastReading<PastSamples>>> {
        // What makes a reading panic is not read again and again.
        let nothing = PastSamples {
            looked: gaps.len(),
            ..PastSamples::default()
        };
        self.start(nothing, move |archive| archive.samples_of(&gaps))
    }

    fn list(&self, query: EndedQuery) -> Option<Box<dyn PastReading<EndedList>>> {
        self.start(EndedList::default(), move |archive| archive.ended(&query))
    }

    fn of_scope(&self, scope: &str) -> Option<Arc<dyn PastSource>> {
        let scopes = self.scopes.as_ref()?;
        let document = scopes.run_dir.scope(scope).document(AGENT_DOCUMENT);
        let document: AgentDocument = serde_json::from_slice(&document.ok()??).ok()?;
        let dir = document.archive?;
        let mut pasts = scopes.pasts.lock().unwrap_or_else(PoisonError::into_inner);
        pasts.retain(|_, past| past.strong_count() > 0);
        let known = pasts.get(scope).and_then(Weak::upgrade);
        let past = known.filter(|known| known.dir() == dir);
        let past = past.unwrap_or_else(|| {
            let past = Arc::new(self.below(dir, &scopes.readings));
            pasts.insert(scope.to_owned(), Arc::downgrade(&past));
            past
        });
        Some(past)
    }
}

struct ArchiveReading<T> {
    found: Receiver<T>,
    /// Result to report if the reading panics.
    panicked: Option<T>,
    _place: Arc<ReadingPlace>,
}

impl<T> fmt::Debug for ArchiveReading<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArchiveReading").finish_non_exhaustive()
    }
}

impl<T: Send> PastReading<T> for ArchiveReading<T> {
    fn take(&mut self) -> Option<T> {
        match self.found.try_recv() {
            Ok(found) => Some(found),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => self.panicked.take(),
        }
    }
}

impl PastArchive {
    fn open(dir: PathBuf, node: Arc<str>) -> Self {
        Self {
            reader: Arc::new(ArchiveReader::open(dir)),
            node,
            is_failing: Arc::default(),
        }
    }

    /// Reads samples of these gaps, as many as a reading may have.
    fn samples_of(&self, gaps: &[PastGap]) -> PastSamples {
        let mut runs = PastRuns::default();
        let mut failure = None;
        match self.view() {
            Ok(view) => {
                for (place, gap) in gaps.iter().enumerate() {
                    if runs.is_full() {
                        break;
                    }
                    runs.found.looked = place + 1;
                    let is_its = |one: &ArchivedSeries| one.id == gap.series && self.is_of(one);
                    if let Some(series) = view.series().iter().position(is_its)
                        && let Err(error) = runs.read(&view, series, (place, gap))
                    {
                        runs.found.failed.push(place);
                        failure = Some(error.to_string());
                    }
                }
            }
            Err(error) => {
                runs.found.looked = gaps.len();
                runs.found.failed = (0..gaps.len()).collect();
                failure = Some(error);
            }
        }
        self.note(failure);
        runs.found
    }

    /// The series with lives that have ended, and that the asking node lacks entirely or in part.
    fn ended(&self, query: &EndedQuery) -> EndedList {
        let view = match self.view() {
            Ok(view) => view,
            Err(error) => {
                self.note(Some(error));
                return EndedList {
                    is_failed: true,
                    ..EndedList::default()
                };
            }
        };
        self.note(None);
        let wanted = view.series().iter().filter(|one| {
            let is_match = |name: &str| {
                let labels = &one.descriptor.labels;
                query.selectors.iter().any(|s| s.matches(name, labels))
            };
            self.is_of(one) && is_match(one.descriptor.name.as_str())
        });
        let mut lacking: Vec<(i64, EndedSeries)> = wanted
            .filter_map(|one| Some((one.known.to, lacking_of(one, query)?)))
            .collect();
        // Those that ended long ago have the least chance to be of use.
        lacking.sort_by_key(|(ended_ns, _)| std::cmp::Reverse(*ended_ns));
        let unlisted = lacking.len().saturating_sub(query.series_max);
        lacking.truncate(query.series_max);
        EndedList {
            series: lacking.into_iter().map(|(_, series)| series).collect(),
            unlisted: unlisted as u64,
            is_failed: false,
        }
    }

    /// The archive as it is now, or the reason why this node's part of it cannot be read.
    fn view(&self) -> Result<Arc<View>, String> {
        let view = self.reader.view();
        let view = view.map_err(|error| error.to_string())?;
        let is_here = view.series().iter().any(|one| self.is_of(one));
        match view.faults().first() {
            Some(fault) if !is_here => Err(fault.reason.clone()),
            _ => Ok(view),
        }
    }

    fn is_of(&self, series: &ArchivedSeries) -> bool {
        *series.node == *self.node
    }

    /// Logs that the archive cannot be read, the first time.
    fn note(&self, failure: Option<String>) {
        let was_failing = self.is_failing.swap(failure.is_some(), Ordering::Relaxed);
        if let Some(error) = failure.filter(|_| !was_failing) {
            let dir = self.reader.root().display();
            warn!(error, %dir, "the archive cannot be read for a node that keeps its history, and is tried again");
        }
    }
}

/// Part of a series' ended lives that the asking node lacks.
fn lacking_of(one: &ArchivedSeries, query: &EndedQuery) -> Option<EndedSeries> {
    let known_until = query.known_until_ns.map(|life_ns| LifePoint {
        life_ns,
        number: u64::MAX,
    });
    let after = query.has.get(&one.id).copied().or(known_until)?;
    let before = LifePoint {
        life_ns: query.present.get(&one.id).copied().unwrap_or(i64::MAX),
        number: 0,
    };
    let archived = LifePoint {
        life_ns: one.archived.life,
        number: one.archived.number,
    };
    let gap = PastGap {
        series: one.id,
        after,
        after_ns: None,
        before,
    };
    (archived > after && after.life_ns < before.life_ns).then(|| EndedSeries {
        descriptor: Arc::clone(&one.descriptor),
        gap,
    })
}

/// The runs of a reading.
#[derive(Default)]
struct PastRuns {
    found: PastSamples,
    samples: usize,
    bytes: usize,
    run_bytes: usize,
}

impl PastRuns {
    fn is_full(&self) -> bool {
        self.samples >= SAMPLES_MAX || self.bytes >= BYTES_MAX
    }

    /// Reads the samples of a gap of the series with this index.
    fn read(
        &mut self,
        view: &View,
        series: usize,
        (place, gap): (usize, &PastGap),
    ) -> Result<(), ArchiveError> {
        let (wanted, cancel) = ([series], AtomicBool::new(false));
        let from = match gap.after_ns {
            Some(after_ns) => after_ns,
            None => begin_of(view, series, gap)?,
        };
        let from = from.saturating_sub(BACKWARDS_NS);
        let span = Span { from, ..Span::ALL };
        let mut newest = gap.after;
        for chunk in view.scan(&wanted, span, &cancel) {
            let SampleChunk { life, columns, .. } = chunk?;
            for (row, &number) in columns.numbers.iter().enumerate() {
                let at = LifePoint {
                    life_ns: life,
                    number,
                };
                if at >= gap.before || self.is_full() {
                    return Ok(());
                }
                let Some(sample) = columns.sample(row).filter(|_| at > newest) else {
                    continue;
                };
                newest = at;
                self.push(place, at, sample);
            }
        }
        Ok(())
    }

    fn push(&mut self, gap: usize, at: LifePoint, sample: Sample) {
        let bytes = sample.value.bytes();
        self.samples += 1;
        self.bytes += bytes;
        self.run_bytes += bytes;
        let run_bytes = self.run_bytes;
        let goes_on = |run: &&mut PastRun| {
            run.gap == gap
                && run.life_ns == at.life_ns
                && run.first + run.samples.len() as u64 == at.number
                && run.samples.len() < RUN_SAMPLES_MAX
                && run_bytes <= RUN_BYTES_MAX
        };
        match self.found.runs.last_mut().filter(goes_on) {
            Some(run) => run.samples.push(sample),
            None => {
                self.run_bytes = bytes;
                self.found.runs.push(PastRun {
                    gap,
                    life_ns: at.life_ns,
                    first: at.number,
                    samples: vec![sample],
                });
            }
        }
    }
}

/// A time before the first sample that a gap lacks, whose time is not known.
fn begin_of(view: &View, series: usize, gap: &PastGap) -> Result<i64, ArchiveError> {
    let (wanted, cancel) = ([series], AtomicBool::new(false));
    let to = view.series()[series].known.to;
    let wanted_first = LifePoint {
        number: gap.after.number.saturating_add(1),
        ..gap.after
    };
    let mut back_ns = BACK_NS;
    loop {
        let from = to.saturating_sub(back_ns);
        if from <= gap.after.life_ns {
            // A stream may be registered after its first look.
            return Ok(gap.after.life_ns.saturating_sub(BACK_NS));
        }
        let span = Span { from, ..Span::ALL };
        if let Some(chunk) = view.scan(&wanted, span, &cancel).next() {
            let chunk = chunk?;
            let first = chunk.columns.numbers.first().copied();
            let first = first.map(|number| LifePoint {
                life_ns: chunk.life,
                number,
            });
            if first.is_some_and(|first| first <= wanted_first) {
                return Ok(from);
            }
        }
        back_ns = back_ns.saturating_mul(BACK_FACTOR);
    }
}

#[cfg(test)]
mod tests;

//! The past of this node's streams for nodes that keep its history: what the rings no longer hold is
//! read from the archive.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};

use barograph_archive::{ArchiveReader, SampleChunk, View};
use barograph_fabric::transport::ZenohWaker;
use barograph_fabric::{PastGap, PastReading, PastRun, PastSamples, PastSource};
use barograph_model::{NS_PER_S, Sample, Span};
use barograph_recorder::Work;
use tracing::warn;

/// Most readings at a time, of all nodes together.
const READINGS_MAX: usize = 4;
/// Most samples of a reading.
const SAMPLES_MAX: usize = 1 << 16;
/// Most bytes of the values of a reading, or one value.
const BYTES_MAX: usize = 4 << 20;
/// Most samples of a run.
const RUN_SAMPLES_MAX: usize = 1_024;
/// Most bytes of the values of a run, or one value: it is sent in one frame.
const RUN_BYTES_MAX: usize = 128 << 10;
/// How far before the end of a series its missing samples are looked for at first, in ns. They are
/// nearly always those of the last minutes.
const BACK_NS: i64 = 600 * NS_PER_S;
/// The factor of each further attempt.
const BACK_FACTOR: i64 = 8;

/// The archive of this node, as the source of what its rings no longer hold.
pub(crate) struct ArchivedPast {
    dir: PathBuf,
    node: Arc<str>,
    work: Work,
    waker: ZenohWaker,
    /// Number of readings under way.
    readings: Arc<AtomicUsize>,
}

/// The place of a reading among those under way. The reading and its job share it: a job goes on when
/// nobody waits for it any more.
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
    pub(crate) fn new(dir: PathBuf, node: &str, work: &Work, waker: ZenohWaker) -> Self {
        Self {
            dir,
            node: node.into(),
            work: work.clone(),
            waker,
            readings: Arc::default(),
        }
    }
}

impl fmt::Debug for ArchivedPast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArchivedPast")
            .field("dir", &self.dir)
            .finish_non_exhaustive()
    }
}

impl PastSource for ArchivedPast {
    fn read(&self, gaps: Vec<PastGap>) -> Option<Box<dyn PastReading>> {
        let place = ReadingPlace::take(&self.readings)?;
        let (place_of_job, count) = (Arc::clone(&place), gaps.len());
        let (dir, node, waker) = (self.dir.clone(), Arc::clone(&self.node), self.waker.clone());
        let (to, found) = sync_channel(1);
        let job = self.work.start("baro-past", move || {
            // The subscriber may be gone.
            let _ = to.send(samples_of(&ArchiveReader::open(dir), &node, &gaps));
            drop(place_of_job);
            waker.wake();
        });
        // Without a thread there may be one at the next attempt.
        job.ok()?;
        Some(Box::new(ArchiveReading {
            found,
            gaps: count,
            _place: place,
        }))
    }
}

struct ArchiveReading {
    found: Receiver<PastSamples>,
    /// Number of gaps that were asked for.
    gaps: usize,
    _place: Arc<ReadingPlace>,
}

impl fmt::Debug for ArchiveReading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArchiveReading").finish_non_exhaustive()
    }
}

impl PastReading for ArchiveReading {
    fn take(&mut self) -> Option<PastSamples> {
        match self.found.try_recv() {
            Ok(found) => Some(found),
            Err(TryRecvError::Empty) => None,
            // A reading that has panicked has found nothing, and is not begun again and again.
            Err(TryRecvError::Disconnected) => Some(PastSamples {
                looked: self.gaps,
                ..PastSamples::default()
            }),
        }
    }
}

/// Reads samples of these gaps, as many as a reading may have.
fn samples_of(archive: &ArchiveReader, node: &str, gaps: &[PastGap]) -> PastSamples {
    let view = match archive.view() {
        Ok(view) => view,
        Err(error) => {
            let dir = archive.root().display();
            warn!(%error, %dir, "a node that keeps the history of this one lacks what the archive has");
            return PastSamples {
                looked: gaps.len(),
                ..PastSamples::default()
            };
        }
    };
    let mut runs = PastRuns::default();
    for (place, gap) in gaps.iter().enumerate() {
        if runs.is_full() {
            break;
        }
        runs.found.looked = place + 1;
        let mut series = view.series().iter();
        if let Some(at) = series.position(|one| one.id == gap.series && *one.node == *node) {
            runs.read(&view, at, (place, gap));
        }
    }
    runs.found
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
    fn read(&mut self, view: &View, series: usize, (place, gap): (usize, &PastGap)) {
        let (wanted, cancel) = ([series], AtomicBool::new(false));
        let from_ns = match gap.after_ns {
            Some(after_ns) => after_ns,
            None => begin_of(view, series, gap),
        };
        let span = Span {
            from: from_ns,
            ..Span::ALL
        };
        let mut newest = gap.after;
        for chunk in view.scan(&wanted, span, &cancel) {
            let chunk = match chunk {
                Ok(chunk) => chunk,
                Err(error) => {
                    warn!(%error, "samples of the archive cannot be read for another node");
                    return;
                }
            };
            if chunk.life != gap.life_ns {
                continue;
            }
            for (row, &number) in chunk.columns.numbers.iter().enumerate() {
                if number >= gap.before || self.is_full() {
                    return;
                }
                let Some(sample) = chunk.columns.sample(row).filter(|_| number > newest) else {
                    continue;
                };
                newest = number;
                self.push(place, number, sample);
            }
        }
    }

    fn push(&mut self, gap: usize, number: u64, sample: Sample) {
        let bytes = sample.value.bytes();
        self.samples += 1;
        self.bytes += bytes;
        self.run_bytes += bytes;
        let run_bytes = self.run_bytes;
        let goes_on = |run: &&mut PastRun| {
            run.gap == gap
                && run.first + run.samples.len() as u64 == number
                && run.samples.len() < RUN_SAMPLES_MAX
                && run_bytes <= RUN_BYTES_MAX
        };
        match self.found.runs.last_mut().filter(goes_on) {
            Some(run) => run.samples.push(sample),
            None => {
                self.run_bytes = bytes;
                self.found.runs.push(PastRun {
                    gap,
                    first: number,
                    samples: vec![sample],
                });
            }
        }
    }
}

/// A time before the first sample that a gap lacks, whose time is not known.
fn begin_of(view: &View, series: usize, gap: &PastGap) -> i64 {
    let (wanted, cancel) = ([series], AtomicBool::new(false));
    let to = view.series()[series].known.to;
    let mut back_ns = BACK_NS;
    loop {
        let from = to.saturating_sub(back_ns);
        if from <= gap.life_ns {
            // A stream may be registered after its first look.
            return gap.life_ns.saturating_sub(BACK_NS);
        }
        let span = Span { from, ..Span::ALL };
        let of_life = |chunk: &SampleChunk| chunk.life == gap.life_ns;
        let mut chunks = view.scan(&wanted, span, &cancel).filter_map(Result::ok);
        let first = chunks.find(of_life);
        let first = first.and_then(|chunk| chunk.columns.numbers.first().copied());
        if first.is_some_and(|first| first <= gap.after + 1) {
            return from;
        }
        back_ns = back_ns.saturating_mul(BACK_FACTOR);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use barograph_archive::{
        ArchiveConfig, DeclaredStream, DiskStorage, JournalEntry, KeepConfig, Keeper,
    };
    use barograph_model::{
        Descriptor, Name, Selector, SeriesId, StreamKey, Unit, Value, ValueType,
    };
    use barograph_stream::SystemClock;

    use super::*;

    const BEGIN_NS: i64 = 1_700_000_000 * NS_PER_S;
    /// Time between two samples: ten thousand of them are longer than the first attempt looks back.
    const STEP_NS: i64 = NS_PER_S;

    fn descriptor(name: &str, value_type: ValueType) -> Descriptor {
        let (name, unit) = (Name::new(name).unwrap(), Unit::new("bytes").unwrap());
        Descriptor::gauge(name, value_type, unit)
    }

    fn keeper(root: &Path) -> Keeper {
        let config = ArchiveConfig {
            durable: vec![Selector::parse("*").unwrap()],
            free_bytes_min: 0,
            keep: KeepConfig::FOREVER,
            ..ArchiveConfig::new(root, "n")
        };
        Keeper::start(config, Arc::new(DiskStorage), Arc::new(SystemClock::new())).unwrap()
    }

    /// Writes the numbers of a life, whose values are the numbers.
    fn write(keeper: &Keeper, key: u32, life: i64, numbers: std::ops::Range<u64>) {
        let key = StreamKey(key);
        let declared = DeclaredStream {
            descriptor: Arc::new(descriptor("test.bytes", ValueType::Int)),
            life,
            depth: 1 << 20,
        };
        let mut entries = vec![JournalEntry::Declare(key, declared)];
        for number in numbers {
            let sample = Sample::measured(life + number as i64 * STEP_NS, number as i64);
            entries.push(JournalEntry::Sample(key, number, sample));
        }
        let position = keeper.journal().submit(&mut entries);
        let is_done = keeper
            .journal()
            .wait_durable(position, Duration::from_secs(60));
        assert!(is_done);
    }

    fn gap(life_ns: i64, after: u64, before: u64) -> PastGap {
        PastGap {
            series: descriptor("test.bytes", ValueType::Int).series_id(),
            life_ns,
            after,
            after_ns: None,
            before,
        }
    }

    /// The numbers of each run, which are their values too.
    fn numbers_of(found: &PastSamples, gap: usize) -> Vec<u64> {
        let mut numbers = Vec::new();
        for run in found.runs.iter().filter(|run| run.gap == gap) {
            assert!((1..=RUN_SAMPLES_MAX).contains(&run.samples.len()));
            for (number, sample) in (run.first..).zip(&run.samples) {
                assert_eq!(sample.value, Value::Int(number as i64));
                numbers.push(number);
            }
        }
        numbers
    }

    #[test]
    fn the_numbers_of_a_gap_come_from_files_and_log_of_its_life() {
        let dir = tempfile::tempdir().unwrap();
        let keeper = keeper(dir.path());
        let (first, second) = (BEGIN_NS, BEGIN_NS + 20_000 * STEP_NS);
        write(&keeper, 1, first, 1..50);
        write(&keeper, 2, second, 1..9_000);
        keeper.seal().unwrap();
        write(&keeper, 3, second, 9_000..10_001);
        let archive = ArchiveReader::open(dir.path());
        let gaps = [
            gap(second, 8_990, 9_500),
            gap(second, 20, 2_000),
            gap(first, 40, 60),
            gap(first + 1, 1, 100),
            PastGap {
                series: SeriesId([9; 16]),
                ..gap(second, 1, 100)
            },
            PastGap {
                after_ns: Some(second + 9_998 * STEP_NS),
                ..gap(second, 9_998, 20_000)
            },
        ];
        let found = samples_of(&archive, "n", &gaps);
        assert_eq!(found.looked, gaps.len());
        let expect: [Vec<u64>; 6] = [
            (8_991..9_500).collect(),
            (21..2_000).collect(),
            (41..50).collect(),
            Vec::new(),
            Vec::new(),
            vec![9_999, 10_000],
        ];
        for (place, expect) in expect.iter().enumerate() {
            assert_eq!(numbers_of(&found, place), *expect, "gap {place}");
        }
        assert!(samples_of(&archive, "other", &gaps).runs.is_empty());
        let nothing = samples_of(&ArchiveReader::open(dir.path().join("nothing")), "n", &gaps);
        assert_eq!((nothing.runs.len(), nothing.looked), (0, gaps.len()));
    }

    #[test]
    fn a_reading_ends_at_its_bound_and_the_next_one_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let keeper = keeper(dir.path());
        let count = SAMPLES_MAX as u64 + 5_000;
        write(&keeper, 1, BEGIN_NS, 1..count);
        let archive = ArchiveReader::open(dir.path());
        let gaps = [gap(BEGIN_NS, 1, count), gap(BEGIN_NS, 10, 20)];
        let found = samples_of(&archive, "n", &gaps);
        let numbers = numbers_of(&found, 0);
        assert_eq!((numbers.len(), found.looked), (SAMPLES_MAX, 1));
        let after = *numbers.last().unwrap();
        let gaps = [gap(BEGIN_NS, after, count), gaps[1]];
        let found = samples_of(&archive, "n", &gaps);
        assert_eq!(
            numbers_of(&found, 0),
            (after + 1..count).collect::<Vec<_>>()
        );
        assert_eq!(numbers_of(&found, 1), (11..20).collect::<Vec<_>>());
    }
}

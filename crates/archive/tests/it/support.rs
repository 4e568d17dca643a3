//! Helpers that several tests share.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use barograph_archive::{
    ArchiveConfig, ArchiveError, ArchiveExport, ArchiveLayout, ArchiveLosses, ArchiveReader,
    CopyTarget, DeclaredStream, DiskStorage, ExportTo, Journal, JournalEntry, KeepConfig, Keeper,
    KeeperLoops, LogPart, Storage, View,
};
use barograph_model::{
    Clock, Columns, Descriptor, Kind, Labels, ManualClock, NS_PER_S, Name, Quality, Sample,
    Selector, Span, StreamKey, Unit, Value, ValueType,
};

/// Longest wait for something that should happen soon; nothing is measured by it.
pub(crate) const SOON: Duration = Duration::from_secs(60);

pub(crate) fn descriptor(name: &str, value_type: ValueType) -> Arc<Descriptor> {
    Arc::new(Descriptor {
        name: Name::new(name).unwrap(),
        labels: Labels::new([("device", "vda"), ("mount", "/é,{}\"")]).unwrap(),
        value_type,
        unit: Unit::new("bytes").unwrap(),
        kind: Kind::Gauge,
        help: "What it is.".into(),
    })
}

pub(crate) fn declare(key: u32, name: &str, value_type: ValueType, life: i64) -> JournalEntry {
    let declared = DeclaredStream {
        descriptor: descriptor(name, value_type),
        life,
        depth: 1 << 20,
    };
    JournalEntry::Declare(StreamKey(key), declared)
}

pub(crate) fn sample(key: u32, number: u64, ts: i64, value: impl Into<Value>) -> JournalEntry {
    JournalEntry::Sample(StreamKey(key), number, Sample::measured(ts, value))
}

/// Returns a configuration in which every stream whose name begins with `durable` is durable.
pub(crate) fn config(root: &Path) -> ArchiveConfig {
    ArchiveConfig {
        durable: vec![Selector::parse("durable*").unwrap()],
        leave_out: vec![Selector::parse("unwanted.*").unwrap()],
        commit_ns: 1_000_000,
        flush_ns: 5_000_000,
        // Nothing is deleted by age, and the disk of the tests may be full.
        free_bytes_min: 0,
        keep: KeepConfig::FOREVER,
        ..ArchiveConfig::new(root, "n1")
    }
}

/// Wall and monotonic time that are moved independently.
#[derive(Default)]
pub(crate) struct TwoClocks {
    pub wall: AtomicI64,
    pub monotonic: AtomicI64,
}

impl Clock for TwoClocks {
    fn now_ns(&self) -> i64 {
        self.wall.load(Ordering::SeqCst)
    }

    fn monotonic_ns(&self) -> i64 {
        self.monotonic.load(Ordering::SeqCst)
    }
}

pub(crate) fn start(config: ArchiveConfig) -> Result<Keeper, ArchiveError> {
    start_on(config, Arc::new(DiskStorage))
}

pub(crate) fn start_on(
    config: ArchiveConfig,
    storage: Arc<dyn Storage>,
) -> Result<Keeper, ArchiveError> {
    let clock = Arc::new(barograph_stream::SystemClock::new());
    Keeper::start(config, storage, clock)
}

/// An archive without threads, on a clock that stands unless the archive is waited for.
pub(crate) struct SteppedArchive {
    keeper: Option<Keeper>,
    loops: Option<KeeperLoops>,
    clock: Arc<ManualClock>,
}

impl SteppedArchive {
    pub(crate) fn start(
        config: ArchiveConfig,
        storage: Arc<dyn Storage>,
    ) -> Result<Self, ArchiveError> {
        Self::start_with_target(config, storage, None)
    }

    pub(crate) fn start_with_target(
        config: ArchiveConfig,
        storage: Arc<dyn Storage>,
        target: Option<Box<dyn CopyTarget>>,
    ) -> Result<Self, ArchiveError> {
        // Later than all samples, so that hours are over.
        let clock = Arc::new(ManualClock::at(2_000_000_000 * NS_PER_S));
        let journal = Journal::new(&config);
        let clock_of_it = Arc::clone(&clock) as _;
        let (keeper, loops) = Keeper::start_stepped(config, storage, clock_of_it, target, journal)?;
        Ok(Self {
            keeper: Some(keeper),
            loops: Some(loops),
            clock,
        })
    }

    pub(crate) fn keeper(&self) -> &Keeper {
        self.keeper.as_ref().unwrap()
    }

    /// Sets the clock forward, before the archive is stepped again.
    pub(crate) fn advance(&self, ns: i64) {
        self.clock.advance(ns);
    }

    /// Steps the archive until there is an answer, for at most a minute of its clock.
    pub(crate) fn run<T>(&mut self, answer: impl Fn(&Keeper) -> Option<T>) -> Option<T> {
        let end_ns = self.clock.monotonic_ns() + 60 * NS_PER_S;
        loop {
            let now_ns = self.clock.monotonic_ns();
            let found = answer(self.keeper());
            if found.is_some() || now_ns >= end_ns {
                return found;
            }
            let due_ns = self.loops.as_mut().unwrap().step(now_ns);
            self.clock.advance(due_ns.min(end_ns) - now_ns);
        }
    }

    /// Steps the archive until a condition holds.
    #[track_caller]
    pub(crate) fn until(&mut self, holds: impl Fn(&Keeper) -> bool) {
        let found = self.run(|keeper| holds(keeper).then_some(()));
        assert_eq!(found, Some(()), "it does not come to that");
    }

    /// Submits entries and waits for them; false if they are not synced within a minute.
    pub(crate) fn commit(&mut self, mut entries: Vec<JournalEntry>) -> bool {
        let position = self.keeper().journal().submit(&mut entries);
        let is_durable = |keeper: &Keeper| keeper.journal().wait_durable(position, Duration::ZERO);
        self.run(|keeper| is_durable(keeper).then_some(()))
            .is_some()
    }

    pub(crate) fn seal(&mut self) -> Result<(), ArchiveError> {
        let request = self.keeper().request_seal()?;
        self.run(|_| request.poll()).unwrap().map(drop)
    }

    pub(crate) fn compact(&mut self) -> Result<usize, ArchiveError> {
        let request = self.keeper().request_compact()?;
        self.run(|_| request.poll()).unwrap()
    }
}

impl Drop for SteppedArchive {
    fn drop(&mut self) {
        self.keeper = None;
        if let Some(loops) = self.loops.take() {
            loops.finish(self.clock.monotonic_ns());
        }
    }
}

/// Returns a directory in memory, if the system has one: on a disk, the syncs of a busy machine
/// take most of the time of a test.
pub(crate) fn dir_in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

/// Returns the log segments of the node, oldest first.
pub(crate) fn segments(root: &Path) -> Vec<PathBuf> {
    let mut paths = DiskStorage
        .list(&ArchiveLayout::new(root, "n1").log_dir())
        .unwrap();
    paths.retain(|path| path.extension().is_some_and(|e| e == "log"));
    paths
}

/// The archived samples by stream name and life: number, and the rest as text so that NaN equals
/// itself.
pub(crate) type Everything = BTreeMap<(String, i64), Vec<(u64, String)>>;

/// Returns a sample as text for comparison.
pub(crate) fn told(sample: &Sample) -> String {
    let value = match &sample.value {
        Value::Float(v) => format!("{:#x}", v.to_bits()),
        value => format!("{value:?}"),
    };
    format!(
        "{} {value} {} {:#x}",
        sample.ts,
        sample.quality.as_str(),
        sample.error.to_bits()
    )
}

/// Returns all samples of an archive, through a view.
pub(crate) fn everything(root: &Path) -> Everything {
    everything_of(&ArchiveReader::open(root).view().unwrap(), Span::ALL)
}

/// Returns all samples of a view within a span.
pub(crate) fn everything_of(view: &View, span: Span) -> Everything {
    let all: Vec<usize> = (0..view.series().len()).collect();
    let mut found = Everything::new();
    for chunk in view.scan(&all, span, &AtomicBool::new(false)) {
        let chunk = chunk.unwrap();
        let name = view.series()[chunk.series].descriptor.name.as_str();
        let samples = found.entry((name.to_owned(), chunk.life)).or_default();
        for row in 0..chunk.columns.len() {
            let sample = chunk.columns.sample(row).unwrap();
            samples.push((chunk.columns.numbers[row], told(&sample)));
        }
    }
    found
}

pub(crate) fn add(part: &LogPart, found: &mut Everything) {
    for (series, columns) in read(part, Span::ALL) {
        let of = &part.series()[series];
        let name = of.descriptor.name.as_str().to_owned();
        let samples = found.entry((name, of.life)).or_default();
        for row in 0..columns.len() {
            let sample = columns.sample(row).unwrap();
            samples.push((columns.numbers[row], told(&sample)));
        }
    }
}

/// Returns all chunks of a segment.
pub(crate) fn read(part: &LogPart, span: Span) -> Vec<(usize, Columns)> {
    let mut chunks = Vec::new();
    let all = |_: &barograph_archive::LogSeries| true;
    part.read(
        &all,
        span,
        &AtomicBool::new(false),
        &mut |series, columns| {
            chunks.push((series, columns));
            Ok(())
        },
    )
    .unwrap();
    chunks
}

/// Exports a whole archive; returns how many samples.
pub(crate) fn export_all(root: &Path, to: ExportTo<'_>) -> u64 {
    let mut of = ArchiveExport::new(Span::ALL);
    of.add(&ArchiveReader::open(root), None, &|_| true).unwrap();
    of.write(to, &mut |_| {}).unwrap()
}

/// Returns the losses that the archive records.
pub(crate) fn losses(root: &Path) -> ArchiveLosses {
    let mut losses = ArchiveLosses::default();
    for (_, of_node) in ArchiveReader::open(root).view().unwrap().losses() {
        losses.add(&of_node);
    }
    losses
}

/// Returns the Parquet files below a directory, sorted.
pub(crate) fn parquet_files(root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for path in DiskStorage.list(&dir).unwrap() {
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|e| e == "parquet") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// Asserts that verification finds nothing wrong, and that no other files are left.
pub(crate) fn assert_sound(root: &Path) {
    let verified = barograph_archive::verify(root, &mut |_, _| {}).unwrap();
    assert_eq!(verified.findings, []);
    assert_eq!(verified.twice, 0, "{verified:?}");
}

/// Asserts that each life's numbers ascend: no sample is there twice.
pub(crate) fn assert_once(found: &Everything) {
    for (series, samples) in found {
        for pair in samples.windows(2) {
            assert!(pair[0].0 < pair[1].0, "{series:?}: {pair:?}");
        }
    }
}

/// Returns samples of every kind that is hard to store.
pub(crate) fn awkward() -> Vec<Sample> {
    let floats = [f64::NAN, -f64::NAN, f64::INFINITY, -0.0, f64::MIN_POSITIVE];
    let mut samples: Vec<Sample> = floats
        .into_iter()
        .map(|v| Sample::measured(-1, v))
        .collect();
    samples.push(Sample {
        ts: i64::MIN,
        value: Value::Float(1.5),
        quality: Quality::Predicted,
        error: f32::NAN,
    });
    samples.push(Sample {
        ts: i64::MAX,
        value: Value::Float(2.5),
        quality: Quality::Reconciled,
        error: 0.25,
    });
    samples
}

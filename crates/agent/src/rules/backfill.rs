//! The samples that windows of rules need from before the newest ones. They are read as any reader
//! reads them, from rings, log, Parquet and tiers as one.
//!
//! This is apart from the thread of rules, since a disk may take any time: a thread of its own
//! reads, and the thread of rules waits for it for a bounded time.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use barograph_model::{
    Buckets, Clock, Columns, Descriptor, Labels, NS_PER_S, Name, Past as _, PastRequest, Sample,
    Span, SqlFault, SqlFaultKind, StreamKey, unbounded,
};
use barograph_query::{PastReader, Scopes};
use barograph_rule::Summary;
use barograph_stream::RunDir;
use tracing::warn;

/// How long rules wait for the past.
const WAIT_NS_MAX: i64 = 2 * NS_PER_S;
/// …looking so often whether they are to stop.
const LOOK: Duration = Duration::from_millis(20);
/// Streams that are read together…
const TOGETHER_MAX: usize = 256;
/// …and their samples, or buckets, at a time. Where there are more samples, buckets stand for older ones.
const SAMPLES_MAX: usize = 1 << 18;
/// Buckets that a stretch of a window is read by.
const BUCKETS_MAX: i64 = 256;
/// A window needs the value that held at its start: it is looked for so much earlier. What is sampled
/// is appended again within this time when it has not changed.
const BEFORE_NS: i64 = 300 * NS_PER_S;
/// So many times samples are tried for a shorter time before it is given up.
const STEPS_MAX: usize = 6;

/// Why there is nothing, for people.
const LATE: &str = "the archive was not read in time";
const FAILED: &str = "the archive could not be read (see the agent's log)";
const ABSENT: &str = "there is no archive";

/// A stream whose past is wanted.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub key: StreamKey,
    pub scope: Arc<str>,
    /// The run directory of that scope.
    pub run_dir: RunDir,
    pub node: Arc<str>,
    pub descriptor: Arc<Descriptor>,
    /// How far back, in ns.
    pub length_ns: i64,
}

/// What was found of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Found {
    /// What is known of the samples before the others, where those were too many.
    pub older: Vec<Summary>,
    /// In order of time; those that the ring holds are among them.
    pub samples: Vec<Sample>,
    /// Why there may be more than was found.
    pub lack: Option<&'static str>,
}

impl Found {
    fn lacking(lack: &'static str) -> Self {
        Self {
            lack: Some(lack),
            ..Self::default()
        }
    }

    /// The time of the oldest that was found.
    pub(super) fn oldest_ns(&self) -> Option<i64> {
        let older = self.older.first().map(|s| s.ts);
        older.or_else(|| self.samples.first().map(|s| s.ts))
    }
}

/// Readers of the run directory and its scopes, by the scope's name.
type Readers = Arc<Mutex<HashMap<Arc<str>, PastReader>>>;
/// What was found of each stream.
pub(super) type Told = Vec<(StreamKey, Found)>;

/// Reads the past.
pub(super) struct Backfill {
    clock: Arc<dyn Clock>,
    readers: Readers,
    /// One that was not waited for any longer.
    straggler: Option<JoinHandle<()>>,
}

impl Backfill {
    pub(super) fn new(clock: &Arc<dyn Clock>) -> Self {
        Self {
            clock: Arc::clone(clock),
            readers: Readers::default(),
            straggler: None,
        }
    }

    /// Hands over what was found of each stream that was asked for, part by part; of what was not read
    /// it says so. Waits, but not for long, and not once it `is_over`.
    pub(super) fn read(
        &mut self,
        asks: &[Ask],
        is_over: &dyn Fn() -> bool,
        take: &mut dyn FnMut(Told),
    ) {
        let mut left: HashSet<StreamKey> = asks.iter().map(|ask| ask.key).collect();
        let is_free = self.straggler.as_ref().is_none_or(JoinHandle::is_finished);
        if is_free {
            let cancel = Arc::new(AtomicBool::new(false));
            // One part is read while another is taken in.
            let (sender, receiver) = sync_channel(1);
            match self.start(asks, &cancel, sender) {
                Ok(thread) => {
                    self.collect(&receiver, is_over, &mut |told| {
                        left.retain(|key| told.iter().all(|(known, _)| known != key));
                        take(told);
                    });
                    cancel.store(true, Ordering::Relaxed);
                    self.straggler = Some(thread);
                }
                Err(error) => warn!(%error, "no thread to read the past of rules' streams"),
            }
        }
        if !left.is_empty() {
            let left = left.into_iter().map(|key| (key, Found::lacking(LATE)));
            take(left.collect());
        }
    }

    fn start(
        &self,
        asks: &[Ask],
        cancel: &Arc<AtomicBool>,
        told: SyncSender<Told>,
    ) -> std::io::Result<JoinHandle<()>> {
        let mut asks = asks.to_vec();
        asks.sort_by(|a, b| (&a.scope, a.length_ns, a.key).cmp(&(&b.scope, b.length_ns, b.key)));
        let (clock, readers) = (Arc::clone(&self.clock), Arc::clone(&self.readers));
        let cancel = Arc::clone(cancel);
        let work = move || {
            let mut readers = readers.lock().unwrap_or_else(PoisonError::into_inner);
            let same = |a: &Ask, b: &Ask| a.scope == b.scope && a.length_ns == b.length_ns;
            for together in asks
                .chunk_by(same)
                .flat_map(|same| same.chunks(TOGETHER_MAX))
            {
                if cancel.load(Ordering::Relaxed) {
                    return;
                }
                let found = read(together, &mut readers, &clock, &cancel);
                if told.send(found).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new()
            .name("baro-backfill".into())
            .spawn(work)
    }

    /// What comes in time.
    fn collect(
        &self,
        receiver: &Receiver<Told>,
        is_over: &dyn Fn() -> bool,
        take: &mut dyn FnMut(Told),
    ) {
        let until_ns = self.clock.monotonic_ns().saturating_add(WAIT_NS_MAX);
        while self.clock.monotonic_ns() < until_ns && !is_over() {
            match receiver.recv_timeout(LOOK) {
                Ok(told) => take(told),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

/// Streams of one scope, as far back all of them.
fn read(
    asks: &[Ask],
    readers: &mut HashMap<Arc<str>, PastReader>,
    clock: &Arc<dyn Clock>,
    cancel: &AtomicBool,
) -> Told {
    let Some(first) = asks.first() else {
        return Told::new();
    };
    let lacking = |lack| {
        let found = asks.iter().map(|ask| (ask.key, Found::lacking(lack)));
        found.collect::<Told>()
    };
    if !readers.contains_key(&first.scope) {
        match PastReader::open(&first.run_dir, Scopes::None, Arc::clone(clock)) {
            Ok(reader) => drop(readers.insert(Arc::clone(&first.scope), reader.with_threads(1))),
            Err(error) => {
                warn!(%error, scope = &*first.scope, "the past of rules' streams");
                return lacking(FAILED);
            }
        }
    }
    let Some(reader) = readers.get(&first.scope) else {
        return lacking(FAILED);
    };
    let mut reading = Reading::of(asks, reader, cancel);
    match reading.all(clock.now_ns(), first.length_ns) {
        Ok(()) => {}
        Err(fault) if fault.kind == SqlFaultKind::Cancelled => return lacking(LATE),
        Err(error) => {
            warn!(%error, scope = &*first.scope, "the past of rules' streams");
            return lacking(FAILED);
        }
    }
    let lack = reader.archive_dir().is_none().then_some(ABSENT);
    let found = reading.found.into_iter();
    found
        .map(|(key, found)| (key, Found { lack, ..found }))
        .collect()
}

/// One reading of some streams.
struct Reading<'a> {
    asks: &'a [Ask],
    places: HashMap<(&'a Name, &'a Labels), usize>,
    reader: &'a PastReader,
    cancel: &'a AtomicBool,
    samples_max: usize,
    found: Told,
}

impl<'a> Reading<'a> {
    fn of(asks: &'a [Ask], reader: &'a PastReader, cancel: &'a AtomicBool) -> Self {
        let place = |(at, ask): (usize, &'a Ask)| {
            let descriptor = &*ask.descriptor;
            ((&descriptor.name, &descriptor.labels), at)
        };
        Self {
            places: asks.iter().enumerate().map(place).collect(),
            found: asks.iter().map(|a| (a.key, Found::default())).collect(),
            asks,
            reader,
            cancel,
            samples_max: SAMPLES_MAX,
        }
    }

    /// The newest samples as they are, as many as fit, and what is older by buckets.
    fn all(&mut self, now_ns: i64, length_ns: i64) -> Result<(), SqlFault> {
        let mut from = now_ns.saturating_sub(length_ns).saturating_sub(BEFORE_NS);
        for _ in 0..STEPS_MAX {
            match self.samples(Span { from, to: i64::MAX }) {
                Err(fault) if fault.kind == SqlFaultKind::Limit => {}
                done => return done,
            }
            let step_ns = step_ns(now_ns.saturating_sub(from));
            let seam = now_ns.saturating_sub(now_ns.rem_euclid(step_ns));
            if seam <= from {
                break;
            }
            from = from.saturating_sub(from.rem_euclid(step_ns));
            let to = seam - 1;
            self.buckets(Span { from, to }, step_ns)?;
            from = seam;
        }
        // So many in so short a time: the ring has the newest.
        Ok(())
    }

    fn samples(&mut self, span: Span) -> Result<(), SqlFault> {
        let wanted = |node: &str, descriptor: &Descriptor| self.place(node, descriptor).is_some();
        let found = self.reader.read(&self.request(&wanted, span))?;
        for (series, columns) in found {
            if let Some(at) = self.place(&series.node, &series.descriptor) {
                let samples = samples(&columns);
                self.found[at].1.samples.extend(samples);
            }
        }
        Ok(())
    }

    fn buckets(&mut self, span: Span, step_ns: i64) -> Result<(), SqlFault> {
        let wanted = |node: &str, descriptor: &Descriptor| self.place(node, descriptor).is_some();
        let found = self.reader.buckets(&self.request(&wanted, span), step_ns)?;
        for (series, buckets) in found {
            if let Some(at) = self.place(&series.node, &series.descriptor) {
                let summaries = summaries(&buckets, step_ns);
                self.found[at].1.older.extend(summaries);
            }
        }
        Ok(())
    }

    fn place(&self, node: &str, descriptor: &Descriptor) -> Option<usize> {
        let at = self.places.get(&(&descriptor.name, &descriptor.labels));
        let at = *at?;
        let known = &self.asks[at].descriptor;
        let is_it = *self.asks[at].node == *node
            && known.value_type == descriptor.value_type
            && known.unit == descriptor.unit;
        is_it.then_some(at)
    }

    fn request<'r>(
        &self,
        wanted: &'r dyn Fn(&str, &Descriptor) -> bool,
        span: Span,
    ) -> PastRequest<'r>
    where
        'a: 'r,
    {
        PastRequest {
            wanted,
            span,
            samples_max: self.samples_max,
            cancel: self.cancel,
            holds: &unbounded,
        }
    }
}

/// The length of buckets for so long a time: one that tiers have buckets for.
fn step_ns(length_ns: i64) -> i64 {
    let step_ns = (length_ns / BUCKETS_MAX).max(1);
    let units = [3_600 * NS_PER_S, 60 * NS_PER_S, NS_PER_S, 1];
    let unit_ns = units.into_iter().find(|unit_ns| *unit_ns <= step_ns);
    let unit_ns = unit_ns.unwrap_or(1);
    step_ns.div_euclid(unit_ns).saturating_add(1) * unit_ns
}

fn samples(columns: &Columns) -> impl Iterator<Item = Sample> {
    (0..columns.len()).filter_map(|row| columns.sample(row))
}

fn summaries(buckets: &Buckets, step_ns: i64) -> impl Iterator<Item = Summary> {
    let rows = (0..buckets.len()).filter(|row| buckets.count[*row] > 0);
    rows.filter_map(move |row| {
        Some(Summary {
            ts: buckets.ts[row].saturating_add(step_ns - 1),
            count: buckets.count[row],
            low: buckets.min.number(row).unwrap_or(f64::NAN),
            high: buckets.max.number(row).unwrap_or(f64::NAN),
            mean: buckets.sample_mean[row],
            last: buckets.last.get(row)?,
        })
    })
}

#[cfg(test)]
mod tests {
    use barograph_model::{Kind, Unit, ValueType};
    use barograph_stream::{Segment, SegmentConfig, SystemClock};

    use super::*;

    const SAMPLES: i64 = 900;

    /// A sample each second until now.
    fn run_dir(dir: &std::path::Path, now_ns: i64) -> (RunDir, Segment, Arc<Descriptor>) {
        let run_dir = RunDir::new(dir);
        let mut segment =
            Segment::create(&run_dir.segment(), SegmentConfig::new("n1"), now_ns).unwrap();
        let descriptor = Descriptor {
            name: Name::new("a.level").unwrap(),
            labels: Labels::none(),
            value_type: ValueType::Int,
            unit: Unit::new("count").unwrap(),
            kind: Kind::Gauge,
            help: String::new(),
        };
        let mut writer = segment.register(&descriptor, Some(1_024), now_ns).unwrap();
        for at in 0..SAMPLES {
            let ts = now_ns - (SAMPLES - 1 - at) * NS_PER_S;
            writer.append(&Sample::measured(ts, at)).unwrap();
        }
        (run_dir, segment, Arc::new(descriptor))
    }

    #[test]
    fn what_is_too_much_is_told_by_buckets_each_sample_once() {
        let dir = tempfile::tempdir().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let now_ns = clock.now_ns();
        let (run_dir, _segment, descriptor) = run_dir(dir.path(), now_ns);
        let reader = PastReader::open(&run_dir, Scopes::None, Arc::clone(&clock)).unwrap();
        let ask = |node: &str| Ask {
            key: StreamKey(7),
            scope: "".into(),
            run_dir: run_dir.clone(),
            node: node.into(),
            descriptor: Arc::clone(&descriptor),
            length_ns: 3_600 * NS_PER_S,
        };
        let check = |node: &str, samples_max: usize, expect: i64, has_older: bool| {
            let (asks, cancel) = ([ask(node)], AtomicBool::new(false));
            let mut reading = Reading::of(&asks, &reader, &cancel);
            reading.samples_max = samples_max;
            reading.all(now_ns, asks[0].length_ns).unwrap();
            let (key, found) = &reading.found[0];
            assert_eq!(*key, StreamKey(7));
            let told: u64 = found.older.iter().map(|s| s.count).sum();
            let all = told as i64 + found.samples.len() as i64;
            assert_eq!((all, told > 0), (expect, has_older), "{samples_max}");
            let times = found.older.iter().map(|s| s.ts);
            let times: Vec<i64> = times.chain(found.samples.iter().map(|s| s.ts)).collect();
            assert!(times.is_sorted(), "{samples_max}");
        };
        check("n1", SAMPLES_MAX, SAMPLES, false);
        check("n1", 400, SAMPLES, true);
        check("n2", SAMPLES_MAX, 0, false);
        let mut told = Vec::new();
        let mut backfill = Backfill::new(&clock);
        backfill.read(&[ask("n1")], &|| false, &mut |found| told.extend(found));
        assert_eq!(told[0].1.samples.len() as i64, SAMPLES);
        assert_eq!(told[0].1.lack, Some(ABSENT));
        // Who is to stop waits for nothing, and hears that.
        told.clear();
        backfill.straggler.take().unwrap().join().unwrap();
        backfill.read(&[ask("n1")], &|| true, &mut |found| told.extend(found));
        assert_eq!(told, [(StreamKey(7), Found::lacking(LATE))]);
    }

    #[test]
    fn steps_are_those_of_tiers() {
        for (seconds, expect) in [(3_600, 15), (86_400, 360), (30 * 86_400, 10_800), (60, 1)] {
            let step_ns = step_ns(seconds * NS_PER_S);
            assert!(step_ns * BUCKETS_MAX >= seconds * NS_PER_S);
            assert!(step_ns <= expect * NS_PER_S, "{seconds}: {step_ns}");
        }
    }
}

//! The reading of the past that windows of rules need: the samples from before the newest ones.
//! They are read as any reader reads them, from rings, log, Parquet and tiers as one.
//!
//! [`PastReaders`] reads where it is called; [`PastThread`] is the shell that has it read on a
//! thread of its own, since a disk may take any time.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use barograph_model::{
    Buckets, Clock, Descriptor, Labels, NS_PER_S, Name, Past as _, PastRequest, PastSamples,
    Quality, Sample, Span, SqlFault, SqlFaultKind, unbounded,
};
use barograph_query::{PastReader, ScopeChoice};
use barograph_rule::FiringSummary;
use tracing::warn;

use super::backfill::{FoundPast, FoundPasts, LATE, PastEvent, PastOrder, PastStream};

/// Longest wait between two looks whether the rules are to stop.
const LOOK: Duration = Duration::from_millis(20);
/// Most streams that are read together.
const TOGETHER_MAX: usize = 256;
/// Most samples or buckets of these streams at a time; buckets replace older samples.
const SAMPLES_MAX: usize = 1 << 18;
/// Most buckets of a stretch of a window.
const BUCKETS_MAX: i64 = 256;
/// Time before a window's start in which the value that held at the start is searched. An unchanged
/// value is appended again within this time.
const BEFORE_NS: i64 = 300 * NS_PER_S;
/// Most attempts to read samples, each over a shorter time.
const STEPS_MAX: usize = 6;

/// Most readers that are kept open.
const READERS_MAX: usize = 256;

/// The reason why there is no past, for people.
const FAILED: &str = "the archive could not be read (see the agent's log)";
const ABSENT: &str = "there is no archive";
const NOT_KEPT: &str = "this node keeps no history of the other node (cluster.aggregator)";

/// Readers of the run directory, its scopes and its mirrors.
pub(crate) struct PastReaders {
    clock: Arc<dyn Clock>,
    by_dir: HashMap<PathBuf, PastReader>,
}

impl PastReaders {
    pub(crate) fn new(clock: &Arc<dyn Clock>) -> Self {
        Self {
            clock: Arc::clone(clock),
            by_dir: HashMap::new(),
        }
    }

    /// Reads the past of the streams of an order, and hands it over part by part, until there is no
    /// more, the order is cancelled, or `take` returns false.
    pub(crate) fn read(&mut self, order: PastOrder, take: &mut dyn FnMut(FoundPasts) -> bool) {
        let PastOrder {
            mut streams,
            cancel,
        } = order;
        let order = |s: &PastStream| (s.length_ns, s.key);
        streams.sort_by(|a, b| a.dir().cmp(b.dir()).then(order(a).cmp(&order(b))));
        let same =
            |a: &PastStream, b: &PastStream| a.dir() == b.dir() && a.length_ns == b.length_ns;
        for together in streams
            .chunk_by(same)
            .flat_map(|same| same.chunks(TOGETHER_MAX))
        {
            if cancel.load(Ordering::Relaxed) {
                return;
            }
            let found = read(together, &mut self.by_dir, &self.clock, &cancel);
            if !take(found) {
                return;
            }
        }
    }
}

/// The thread that reads the past, one order at a time.
pub(crate) struct PastThread {
    readers: Arc<Mutex<PastReaders>>,
    /// The thread of the newest order; after a late answer it may still read.
    thread: Option<JoinHandle<()>>,
    found: Option<Receiver<FoundPasts>>,
}

impl PastThread {
    pub(crate) fn new(clock: &Arc<dyn Clock>) -> Self {
        Self {
            readers: Arc::new(Mutex::new(PastReaders::new(clock))),
            thread: None,
            found: None,
        }
    }

    /// Begins to read, unless the thread of an earlier order still reads.
    pub(crate) fn start(&mut self, order: PastOrder) {
        // Without a receiver the reading has ended.
        self.found = None;
        if !self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
            return;
        }
        // One part is read while another is taken in.
        let (sender, receiver) = sync_channel(1);
        let readers = Arc::clone(&self.readers);
        let work = move || {
            let mut readers = readers.lock().unwrap_or_else(PoisonError::into_inner);
            readers.read(order, &mut |found| sender.send(found).is_ok());
        };
        let thread = std::thread::Builder::new().name("baro-backfill".into());
        match thread.spawn(work) {
            Ok(thread) => (self.thread, self.found) = (Some(thread), Some(receiver)),
            Err(error) => warn!(%error, "no thread to read the past of rules' streams"),
        }
    }

    /// Waits for news of the order, but not for long.
    #[expect(
        clippy::disallowed_methods,
        reason = "the shell of the reading of rules' past"
    )]
    pub(crate) fn wait(&mut self, at_most: Duration) -> Option<PastEvent> {
        let Some(found) = &self.found else {
            return Some(PastEvent::Ended);
        };
        match found.recv_timeout(at_most.min(LOOK)) {
            Ok(found) => Some(PastEvent::Found(found)),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                self.found = None;
                // The thread has nothing left to do: without this join, the next order could find
                // it alive.
                if self
                    .thread
                    .take()
                    .is_some_and(|thread| thread.join().is_err())
                {
                    warn!("the thread that reads the past of rules' streams had panicked");
                }
                Some(PastEvent::Ended)
            }
        }
    }
}

/// Streams of one segment, as far back all of them.
fn read(
    streams: &[PastStream],
    readers: &mut HashMap<PathBuf, PastReader>,
    clock: &Arc<dyn Clock>,
    cancel: &AtomicBool,
) -> FoundPasts {
    let Some(first) = streams.first() else {
        return FoundPasts::new();
    };
    let lacking = |lack| {
        let found = streams
            .iter()
            .map(|stream| (stream.key, FoundPast::lacking(lack)));
        found.collect::<FoundPasts>()
    };
    let dir = first.dir();
    if !readers.contains_key(dir) {
        if readers.len() >= READERS_MAX {
            // Scopes and mirrors that have gone are not read again.
            readers.clear();
        }
        match PastReader::open(&first.run_dir, ScopeChoice::None, Arc::clone(clock)) {
            Ok(reader) => drop(readers.insert(dir.to_owned(), reader.with_threads(1))),
            Err(error) => {
                warn!(%error, dir = %dir.display(), "the past of rules' streams");
                return lacking(FAILED);
            }
        }
    }
    let Some(reader) = readers.get(dir) else {
        return lacking(FAILED);
    };
    let mut reading = Reading::of(streams, reader, cancel);
    match reading.all(clock.now_ns(), first.length_ns) {
        Ok(()) => {}
        Err(fault) if fault.kind == SqlFaultKind::Cancelled => return lacking(LATE),
        Err(error) => {
            warn!(%error, dir = %dir.display(), "the past of rules' streams");
            return lacking(FAILED);
        }
    }
    let absent = match first.run_dir.mirrored_node() {
        Some(_) => NOT_KEPT,
        None => ABSENT,
    };
    let lack = reader.archive_dir().is_none().then_some(absent);
    let found = reading.found.into_iter();
    found
        .map(|(key, found)| (key, FoundPast { lack, ..found }))
        .collect()
}

/// One reading of some streams.
struct Reading<'a> {
    streams: &'a [PastStream],
    places: HashMap<(&'a Name, &'a Labels), usize>,
    reader: &'a PastReader,
    cancel: &'a AtomicBool,
    samples_max: usize,
    found: FoundPasts,
}

impl<'a> Reading<'a> {
    fn of(streams: &'a [PastStream], reader: &'a PastReader, cancel: &'a AtomicBool) -> Self {
        let place = |(at, stream): (usize, &'a PastStream)| {
            let descriptor = &stream.of_owner.descriptor;
            ((&descriptor.name, &descriptor.labels), at)
        };
        Self {
            places: streams.iter().enumerate().map(place).collect(),
            found: streams
                .iter()
                .map(|s| (s.key, FoundPast::default()))
                .collect(),
            streams,
            reader,
            cancel,
            samples_max: SAMPLES_MAX,
        }
    }

    /// Reads as many of the newest samples as fit, and buckets for the older ones.
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
        for past in found {
            if let Some(at) = self.place(&past.series.node, &past.series.descriptor) {
                self.found[at].1.samples.extend(samples(&past));
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
        let known = &self.streams[at].of_owner.descriptor;
        let is_it = *self.streams[at].node == *node
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

/// The samples of a series. Where another life begins, the sample before is a last look, even if an
/// agent that was killed could not mark it.
fn samples(past: &PastSamples) -> impl Iterator<Item = Sample> {
    let columns = &past.columns;
    (0..columns.len()).filter_map(|row| {
        let mut sample = columns.sample(row)?;
        if past.begins.binary_search(&(row + 1)).is_ok() {
            sample.quality = Quality::Ended;
        }
        Some(sample)
    })
}

fn summaries(buckets: &Buckets, step_ns: i64) -> impl Iterator<Item = FiringSummary> {
    let rows = (0..buckets.len()).filter(|row| buckets.count[*row] > 0);
    rows.filter_map(move |row| {
        Some(FiringSummary {
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
    use barograph_model::{Columns, PastSeries, StreamKey, Unit, ValueType};
    use barograph_stream::{DirectoryEntry, RunDir, Segment, SegmentConfig, SystemClock};

    use super::super::backfill::RuleBackfill;
    use super::*;

    const SAMPLES: i64 = 900;

    /// A sample each second until now.
    fn run_dir(dir: &std::path::Path, now_ns: i64) -> (RunDir, Segment, Arc<DirectoryEntry>) {
        let run_dir = RunDir::new(dir);
        let mut segment =
            Segment::create(&run_dir.segment(), SegmentConfig::new("n1"), now_ns).unwrap();
        let descriptor = Descriptor::gauge(
            Name::new("a.level").unwrap(),
            ValueType::Int,
            Unit::new("count").unwrap(),
        );
        let mut writer = segment.register(&descriptor, Some(1_024), now_ns).unwrap();
        for at in 0..SAMPLES {
            let ts = now_ns - (SAMPLES - 1 - at) * NS_PER_S;
            writer.append(&Sample::measured(ts, at)).unwrap();
        }
        let [entry] = &*segment.reader().unwrap().directory().entries else {
            panic!("one stream");
        };
        (run_dir, segment, Arc::new(entry.clone()))
    }

    #[test]
    fn what_is_too_much_is_told_by_buckets_each_sample_once() {
        let dir = tempfile::tempdir().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let now_ns = clock.now_ns();
        let (run_dir, _segment, entry) = run_dir(dir.path(), now_ns);
        let reader = PastReader::open(&run_dir, ScopeChoice::None, Arc::clone(&clock)).unwrap();
        let wanted = |node: &str| PastStream {
            key: StreamKey(7),
            run_dir: run_dir.clone(),
            node: node.into(),
            of_owner: Arc::clone(&entry),
            descriptor: Arc::new(entry.descriptor.clone()),
            length_ns: 3_600 * NS_PER_S,
        };
        let check = |node: &str, samples_max: usize, expect: i64, has_older: bool| {
            let (streams, cancel) = ([wanted(node)], AtomicBool::new(false));
            let mut reading = Reading::of(&streams, &reader, &cancel);
            reading.samples_max = samples_max;
            reading.all(now_ns, streams[0].length_ns).unwrap();
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
        let mut thread = PastThread::new(&clock);
        let backfill = RuleBackfill::new(vec![wanted("n1")], 0);
        thread.start(backfill.order());
        let mut found = FoundPasts::new();
        loop {
            match thread.wait(Duration::MAX) {
                Some(PastEvent::Found(part)) => found.extend(part),
                Some(PastEvent::Ended) => break,
                None => {}
            }
        }
        assert_eq!(found[0].1.samples.len() as i64, SAMPLES);
        assert_eq!(found[0].1.lack, Some(ABSENT));
        // A request that was dropped is not read.
        let order = backfill.order();
        drop(backfill);
        thread.start(order);
        while !matches!(thread.wait(Duration::MAX), Some(PastEvent::Ended)) {}
    }

    #[test]
    fn nobody_looked_before_another_life() {
        let descriptor = Descriptor::gauge(
            Name::new("a.level").unwrap(),
            ValueType::Int,
            Unit::new("count").unwrap(),
        );
        let mut columns = Columns::new(ValueType::Int);
        for ts in 0..4 {
            columns.push(ts as u64 + 7, &Sample::measured(ts, ts));
        }
        let past = PastSamples {
            series: PastSeries {
                node: "n1".into(),
                descriptor: Arc::new(descriptor),
                known: Span { from: 0, to: 3 },
                interval_ns: 0,
                is_living: true,
            },
            columns,
            begins: vec![1, 3],
        };
        let ended: Vec<bool> = samples(&past)
            .map(|s| s.quality == Quality::Ended)
            .collect();
        assert_eq!(ended, [true, false, true, false]);
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

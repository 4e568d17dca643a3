//! The pump of one source of events: what its collector gives is recorded in order, and
//! acknowledged upstream when it is durable.
//!
//! It is a step without a thread: tests step it with a collector and a record of their own.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use barograph_event::{
    Collected, Collector, CollectorFault, CollectorStatus, EventFlags, FileEvent, encode,
};
use barograph_model::{NS_PER_MS, NS_PER_S, Quality, Sample, Value};

/// Most events of a batch.
const BATCH_EVENTS_MAX: usize = 4_096;
/// Bytes that are recorded and not durable yet, at which nothing more is collected.
const WINDOW_BYTES_MAX: usize = 2 << 20;
/// Time between two looks whether batches are durable, in ns.
const SETTLE_NS: i64 = 5 * NS_PER_MS;
/// Time after which a batch is handed over again that was not taken, in ns.
const BUSY_NS: i64 = 100 * NS_PER_MS;
/// Time after which a source is read again that could not be read, in ns.
const FAULT_NS: i64 = NS_PER_S;

/// The place where events are recorded.
pub(crate) trait EventSink: Send {
    /// Records samples after all earlier ones. Returns a number to ask [`Self::settled`] with.
    ///
    /// # Errors
    ///
    /// Nothing was recorded, for this reason: try again.
    fn record(&mut self, samples: Vec<Sample>) -> Result<u64, String>;

    /// The state of what was recorded with this number.
    fn settled(&mut self, number: u64) -> Settled;

    /// Takes events that have become durable, for whoever acts on them: those after the number
    /// `after`, up to the number `last`.
    fn durable(&mut self, samples: Vec<Sample>, numbers: (u64, u64));
}

/// The state of recorded events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// They are durable.
    Durable,
    /// They are not durable yet.
    Waiting,
    /// They, or a part of them, found no room, and have to be recorded again.
    Lost,
}

/// The wait until the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PumpWait {
    /// Monotonic time of the next step, in ns, unless something is readable before.
    pub until_ns: i64,
    /// Whether the collector's descriptor ends the wait.
    pub is_open: bool,
}

/// A batch of events that is not acknowledged yet.
#[derive(Debug)]
struct Batch {
    samples: Vec<Sample>,
    bytes: usize,
    last_index: u64,
    /// Its number at the sink; `None` if it has to be recorded.
    number: Option<u64>,
}

/// A collector and the way of its events.
pub(crate) struct EventPump<S> {
    collector: Box<dyn Collector>,
    sink: S,
    batches: VecDeque<Batch>,
    /// Bytes of all batches.
    bytes: usize,
    events: Vec<FileEvent>,
    scratch: Vec<u8>,
    /// Number of the last event that was collected, and of the last one that is durable.
    last_index: u64,
    durable_index: u64,
    /// Number of the last event that was handed over as durable.
    handed_over: u64,
    /// Number up to which the collector has been told that events are durable, why it could not be
    /// told more, and the monotonic time of the next attempt, in ns.
    acknowledged: u64,
    unacknowledged: String,
    acknowledge_ns: i64,
    /// Why events are not recorded, or the source is not read, at present.
    trouble: String,
    /// Monotonic time before which nothing is tried again, in ns.
    retry_ns: i64,
    /// Number of batches that were recorded again.
    again: u64,
    /// Directories whose events are left out.
    left_out: Vec<PathBuf>,
}

impl<S: EventSink> EventPump<S> {
    /// Joins a collector with the place where its events are recorded.
    pub(crate) fn new(collector: Box<dyn Collector>, sink: S) -> Self {
        Self {
            collector,
            sink,
            batches: VecDeque::new(),
            bytes: 0,
            events: Vec::new(),
            scratch: Vec::new(),
            last_index: 0,
            durable_index: 0,
            handed_over: 0,
            acknowledged: 0,
            unacknowledged: String::new(),
            acknowledge_ns: i64::MIN,
            trouble: String::new(),
            retry_ns: i64::MIN,
            again: 0,
            left_out: Vec::new(),
        }
    }

    /// Leaves out the events of what is in these directories: those of the agent itself, which
    /// would record that it records.
    pub(crate) fn without(mut self, directories: Vec<PathBuf>) -> Self {
        self.left_out = directories;
        self
    }

    /// Goes on after the event with this number.
    pub(crate) fn after(mut self, last: u64) -> Self {
        (self.last_index, self.durable_index) = (last, last);
        (self.handed_over, self.acknowledged) = (last, last);
        self
    }

    /// Does what can be done now; `now` has the time in ns since the epoch, and that of the
    /// monotonic clock.
    pub(crate) fn step(&mut self, now: (i64, i64)) -> PumpWait {
        self.settle();
        self.acknowledge(now.1);
        let mut has_more = false;
        if now.1 >= self.retry_ns {
            self.trouble.clear();
            if self.has_room() && self.batches.iter().all(|batch| batch.number.is_some()) {
                has_more = self.collect(now);
            }
            self.record(now.1);
        }
        if !self.has_room() {
            self.collector.hold();
        }
        let is_open = self.has_room() && self.trouble.is_empty();
        let until_ns = if has_more && is_open {
            now.1
        } else if !self.trouble.is_empty() {
            self.retry_ns
        } else if !self.batches.is_empty() {
            now.1 + SETTLE_NS
        } else {
            self.collector.due_ns()
        };
        let until_ns = match self.unacknowledged.is_empty() {
            true => until_ns,
            false => until_ns.min(self.acknowledge_ns),
        };
        PumpWait { until_ns, is_open }
    }

    /// The collector, to wait for its descriptor with.
    pub(crate) fn collector(&self) -> &dyn Collector {
        &*self.collector
    }

    /// What is known of the source, with what hinders its events.
    pub(crate) fn status(&self) -> CollectorStatus {
        let mut status = self.collector.status();
        for trouble in [&self.trouble, &self.unacknowledged] {
            if status.trouble.is_empty() {
                status.trouble.clone_from(trouble);
            }
        }
        status
    }

    /// Numbers of the last event that was collected, and of the last one that is durable.
    pub(crate) fn indexes(&self) -> (u64, u64) {
        (self.last_index, self.durable_index)
    }

    /// Number of batches that were recorded again, and bytes that are not durable yet.
    pub(crate) fn backlog(&self) -> (u64, usize) {
        (self.again, self.bytes)
    }

    fn has_room(&self) -> bool {
        self.bytes < WINDOW_BYTES_MAX
    }

    /// Collects one batch; returns whether the source has more.
    fn collect(&mut self, now: (i64, i64)) -> bool {
        let collected = self
            .collector
            .collect(&mut self.events, BATCH_EVENTS_MAX, now);
        let mut samples = Vec::with_capacity(self.events.len());
        let mut bytes = 0;
        for event in self.events.drain(..) {
            self.last_index = event.index;
            let path = Path::new(OsStr::from_bytes(&event.path));
            if self.left_out.iter().any(|dir| path.starts_with(dir)) {
                continue;
            }
            self.scratch.clear();
            encode(&event, &mut self.scratch);
            bytes += self.scratch.len() + size_of::<Sample>();
            samples.push(Sample {
                ts: event.ts,
                value: Value::Bytes(Arc::from(&self.scratch[..])),
                quality: match event.flags.has(EventFlags::RECONCILED) {
                    true => Quality::Reconciled,
                    false => Quality::Measured,
                },
                error: 0.0,
            });
        }
        if !samples.is_empty() {
            self.bytes += bytes;
            self.batches.push_back(Batch {
                samples,
                bytes,
                last_index: self.last_index,
                number: None,
            });
        } else if self.collector.has_numbers_of_source() {
            self.pass_left_out();
        }
        match collected {
            Ok(collected) => collected == Collected::More,
            Err(fault) => {
                self.hinder(&fault, now.1 + FAULT_NS);
                false
            }
        }
    }

    /// Takes events that were all left out as durable with the ones before them, so that the
    /// source may forget them.
    fn pass_left_out(&mut self) {
        let last = self.last_index;
        if let Some(before) = self.batches.back_mut() {
            before.last_index = last;
        } else {
            self.durable_index = self.durable_index.max(last);
        }
    }

    /// Records what is not recorded, in order.
    fn record(&mut self, monotonic_ns: i64) {
        for batch in self.batches.iter_mut().filter(|one| one.number.is_none()) {
            match self.sink.record(batch.samples.clone()) {
                Ok(number) => batch.number = Some(number),
                Err(reason) => {
                    self.trouble = reason;
                    self.retry_ns = monotonic_ns + BUSY_NS;
                    return;
                }
            }
        }
    }

    /// Takes in what has become durable. If a batch was lost, it and all later ones are recorded
    /// again; their readers know by the numbers which events they have already.
    fn settle(&mut self) {
        while let Some(number) = self.batches.front().and_then(|batch| batch.number) {
            match self.sink.settled(number) {
                Settled::Waiting => break,
                Settled::Lost => {
                    self.again += self.batches.len() as u64;
                    self.batches.iter_mut().for_each(|one| one.number = None);
                }
                Settled::Durable => {
                    if let Some(batch) = self.batches.pop_front() {
                        self.bytes -= batch.bytes;
                        let numbers = (self.handed_over, batch.last_index);
                        self.handed_over = batch.last_index;
                        self.durable_index = batch.last_index;
                        self.sink.durable(batch.samples, numbers);
                    }
                }
            }
        }
    }

    /// Tells the collector what has become durable. If that fails, the source keeps what it could
    /// forget, and is told again; events go on meanwhile.
    fn acknowledge(&mut self, monotonic_ns: i64) {
        if self.durable_index == self.acknowledged || monotonic_ns < self.acknowledge_ns {
            return;
        }
        match self.collector.acknowledge(self.durable_index) {
            Ok(()) => {
                self.acknowledged = self.durable_index;
                self.unacknowledged.clear();
            }
            Err(fault) => {
                self.unacknowledged = fault.to_string();
                self.acknowledge_ns = monotonic_ns + FAULT_NS;
            }
        }
    }

    fn hinder(&mut self, fault: &CollectorFault, retry_ns: i64) {
        self.trouble = fault.to_string();
        self.retry_ns = retry_ns;
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::BorrowedFd;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};

    use barograph_event::{EventKind, decode};

    use super::*;

    /// A source of so many events, of which each look gives so many.
    struct Counting {
        /// Path of the directory of all events.
        directory: &'static str,
        next: u64,
        last: u64,
        at_once: u64,
        acknowledged: Arc<Mutex<Vec<u64>>>,
        faults: u32,
        /// Acknowledgements that fail.
        refusals: u32,
        held: Arc<AtomicU64>,
    }

    impl Collector for Counting {
        fn collect(
            &mut self,
            events: &mut Vec<FileEvent>,
            events_max: usize,
            now: (i64, i64),
        ) -> Result<Collected, CollectorFault> {
            for _ in 0..self.at_once.min(events_max as u64) {
                if self.next > self.last {
                    return Ok(Collected::All);
                }
                let mut event = FileEvent::new(EventKind::Create, self.next, now.0);
                event.path = format!("{}/{}", self.directory, "x".repeat(3_000)).into();
                events.push(event);
                self.next += 1;
            }
            if self.faults > 0 {
                self.faults -= 1;
                return Err(CollectorFault::Unusable("not now".into()));
            }
            Ok(Collected::More)
        }

        fn hold(&mut self) {
            self.held.fetch_add(1, Ordering::Relaxed);
        }

        fn acknowledge(&mut self, index: u64) -> Result<(), CollectorFault> {
            if self.refusals > 0 {
                self.refusals -= 1;
                return Err(CollectorFault::Unusable("cannot clear".into()));
            }
            self.acknowledged.lock().unwrap().push(index);
            Ok(())
        }

        fn has_numbers_of_source(&self) -> bool {
            true
        }

        fn readable(&self) -> Option<BorrowedFd<'_>> {
            None
        }

        fn due_ns(&self) -> i64 {
            i64::MAX
        }

        fn status(&self) -> CollectorStatus {
            CollectorStatus::default()
        }
    }

    /// A place that is busy, loses and is slow as its script says: one letter for each call.
    struct Scripted {
        script: std::vec::IntoIter<char>,
        recorded: Arc<Mutex<Vec<u64>>>,
        handed_over: Arc<Mutex<Vec<u64>>>,
        batches: Vec<Vec<u64>>,
    }

    fn index(sample: &Sample) -> u64 {
        match &sample.value {
            Value::Bytes(bytes) => decode(bytes, sample.ts).unwrap().index,
            _ => panic!("a record is bytes"),
        }
    }

    impl EventSink for Scripted {
        fn record(&mut self, samples: Vec<Sample>) -> Result<u64, String> {
            if self.script.next() == Some('b') {
                return Err("busy".into());
            }
            self.batches.push(samples.iter().map(index).collect());
            Ok(self.batches.len() as u64 - 1)
        }

        fn settled(&mut self, number: u64) -> Settled {
            match self.script.next() {
                Some('w') => Settled::Waiting,
                Some('l') => Settled::Lost,
                _ => {
                    let batch = &self.batches[number as usize];
                    self.recorded.lock().unwrap().extend(batch);
                    Settled::Durable
                }
            }
        }

        fn durable(&mut self, samples: Vec<Sample>, (after, last): (u64, u64)) {
            let mut handed_over = self.handed_over.lock().unwrap();
            assert_eq!(handed_over.last().copied().unwrap_or(0), after);
            handed_over.extend(samples.iter().map(index));
            assert_eq!(handed_over.last(), Some(&last));
        }
    }

    fn check(script: &str, faults: u32) {
        let (acknowledged, recorded) = (Arc::default(), Arc::default());
        let handed_over = Arc::default();
        let held = Arc::new(AtomicU64::new(0));
        let collector = Counting {
            directory: "/data",
            next: 1,
            last: 3_000,
            at_once: 100,
            acknowledged: Arc::clone(&acknowledged),
            faults,
            refusals: 40,
            held: Arc::clone(&held),
        };
        let sink = Scripted {
            script: script.chars().collect::<Vec<_>>().into_iter(),
            recorded: Arc::clone(&recorded),
            handed_over: Arc::clone(&handed_over),
            batches: Vec::new(),
        };
        let mut pump = EventPump::new(Box::new(collector), sink);
        let (mut monotonic_ns, mut waited) = (0, 0);
        for _ in 0..2_000 {
            let wait = pump.step((7, monotonic_ns));
            assert!(pump.bytes < WINDOW_BYTES_MAX + (1 << 20));
            waited += u64::from(pump.bytes >= WINDOW_BYTES_MAX);
            assert_eq!(held.load(Ordering::Relaxed), waited);
            if wait.until_ns == i64::MAX {
                break;
            }
            monotonic_ns = wait.until_ns.max(monotonic_ns);
        }
        let recorded = recorded.lock().unwrap();
        assert_eq!(*recorded, (1..=3_000).collect::<Vec<u64>>(), "{script}");
        assert_eq!(*handed_over.lock().unwrap(), *recorded, "{script}");
        assert_eq!(pump.indexes(), (3_000, 3_000));
        assert_eq!(acknowledged.lock().unwrap().last(), Some(&3_000));
        assert!(acknowledged.lock().unwrap().is_sorted());
        assert!(waited > 0 || script.len() < 60, "{script}");
    }

    /// Events that are all left out hold up neither their source nor the others of its file system.
    #[test]
    fn events_that_are_left_out_are_acknowledged() {
        let acknowledged: Arc<Mutex<Vec<u64>>> = Arc::default();
        let recorded: Arc<Mutex<Vec<u64>>> = Arc::default();
        let collector = Counting {
            directory: "/state/events",
            next: 8,
            last: 300,
            at_once: 100,
            acknowledged: Arc::clone(&acknowledged),
            faults: 0,
            refusals: 0,
            held: Arc::default(),
        };
        let sink = Scripted {
            script: Vec::new().into_iter(),
            recorded: Arc::clone(&recorded),
            handed_over: Arc::default(),
            batches: Vec::new(),
        };
        let pump = EventPump::new(Box::new(collector), sink).after(7);
        let mut pump = pump.without(vec!["/state".into()]);
        for step in 0..8 {
            pump.step((7, step));
        }
        assert_eq!(pump.indexes(), (300, 300));
        assert_eq!(acknowledged.lock().unwrap().last(), Some(&300));
        assert!(recorded.lock().unwrap().is_empty());
    }

    #[test]
    fn all_events_are_recorded_in_order_and_acknowledged_when_they_are_durable() {
        check("", 0);
        check("wwwwwwwwww", 0);
        check(&"w".repeat(60), 0);
        check("bbbb", 0);
        check("xlxlxlbbwwlb", 0);
        check("xxxxxxxxlbxlxxxb", 3);
    }
}

//! The poller's deadlines: never more than there are sources, whatever policies want.

use std::sync::Arc;

use barograph_model::{
    Clock, Descriptor, Kind, Labels, ManualClock, NS_PER_S, Name, Sample, Sink, StreamKey, Unit,
    ValueType, Wanted,
};

use super::*;
use crate::{Batch, FactId, Report, SourceError};

struct Constant(Option<FactId>);

impl Source for Constant {
    fn name(&self) -> &'static str {
        "constant"
    }

    fn read(&mut self, now_ns: i64, batch: &mut Batch) -> Result<(), SourceError> {
        let declare = || {
            let descriptor = Descriptor {
                name: Name::new("constant.count").unwrap(),
                labels: Labels::default(),
                value_type: ValueType::Float,
                unit: Unit::new("count").unwrap(),
                kind: Kind::Gauge,
                help: String::new(),
            };
            batch.declare(descriptor, None)
        };
        let fact = *self.0.get_or_insert_with(declare);
        batch.put(fact, Sample::measured(now_ns, 1.0));
        Ok(())
    }

    fn report(&self) -> Report {
        Report::default()
    }
}

/// A sink that wants the first stream after `wait_ns`.
#[derive(Default)]
struct Caller {
    wait_ns: i64,
    wishes: u64,
    streams: u32,
    looks: u32,
}

impl Sink for Caller {
    fn declare(&mut self, _: &Descriptor, _: Option<u32>) -> Option<StreamKey> {
        self.streams += 1;
        Some(StreamKey(self.streams - 1))
    }

    fn retire(&mut self, _: StreamKey) {}

    fn put(&mut self, key: StreamKey, _: &Sample) {
        self.looks += u32::from(key.0 == 0);
    }

    fn expect_interval(&mut self, _: StreamKey, _: i64) {}

    fn wanted(&self, key: StreamKey) -> Option<Wanted> {
        (key.0 == 0).then_some(Wanted {
            wait_ns: self.wait_ns,
            wrong_per_s: 0.1,
            weight: 1.0,
            min_ns: 1_000_000,
            max_ns: 86_400 * NS_PER_S,
        })
    }

    fn wishes(&self) -> u64 {
        self.wishes
    }
}

#[test]
fn calls_under_a_long_interval_leave_nothing_behind() {
    let clock = Arc::new(ManualClock::at(1_000 * NS_PER_S));
    let theirs: Arc<dyn Clock> = clock.clone();
    let fixed = IntervalPolicy::Fixed {
        interval_ns: 3_600 * NS_PER_S,
    };
    let sources = (0..3).map(|_| {
        let source: Box<dyn Source> = Box::new(Constant(None));
        (source, fixed)
    });
    let mut poller = Poller::with_sources(sources, theirs, Arc::new(|| {}));
    let long_ns = 86_400 * NS_PER_S;
    for entry in &mut poller.entries {
        entry.pace.caps.max_ns = long_ns;
        entry.pace.caps.min_ns = 1_000_000;
    }
    let mut sink = Caller {
        wait_ns: long_ns,
        wishes: 1,
        ..Caller::default()
    };
    poller.run_due(&mut sink);
    let calls = 10_000;
    for call in 1..=calls {
        clock.advance(NS_PER_S / 10);
        sink.wait_ns = 0;
        sink.wishes += 1;
        // After each read the sink wants the long interval again.
        poller.heed(&mut sink);
        sink.wait_ns = long_ns;
        poller.run_due(&mut sink);
        assert_eq!(sink.looks, call + 1);
        assert_eq!(poller.deadlines_ns.len(), 3, "one for each source");
    }
    // 1,000 s have passed: the other sources were never due, and the one that was called waits for
    // the whole interval that it wants.
    let others_ns = 1_000 * NS_PER_S + 3_600 * NS_PER_S;
    assert_eq!(poller.next_deadline_ns(), others_ns);
    let called = clock.monotonic_ns() + long_ns;
    assert_eq!(poller.entries[0].next_read_ns, called);
}

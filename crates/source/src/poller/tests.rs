//! The poller's deadlines: never more than there are sources, whatever policies want; and those of
//! sources of whose kind there is nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use barograph_model::{
    Clock, Descriptor, IntervalRequest, ManualClock, NS_PER_S, Name, Sample, Sink, StreamKey, Unit,
    ValueType,
};

use super::*;
use crate::{FactId, SourceBatch, SourceCoverage, SourceError};

#[derive(Default)]
struct Constant {
    fact: Option<FactId>,
    is_absent: bool,
    /// The time that a read takes, on this clock.
    cost: Option<(Arc<ManualClock>, i64)>,
}

impl Source for Constant {
    fn name(&self) -> &'static str {
        "constant"
    }

    fn read(&mut self, now_ns: i64, batch: &mut SourceBatch) -> Result<(), SourceError> {
        let declare = || {
            let descriptor = Descriptor::gauge(
                Name::new("constant.count").unwrap(),
                ValueType::Float,
                Unit::new("count").unwrap(),
            );
            batch.declare(descriptor, None)
        };
        let fact = *self.fact.get_or_insert_with(declare);
        batch.put(fact, Sample::measured(now_ns, 1.0));
        if let Some((clock, cost_ns)) = &self.cost {
            clock.advance(*cost_ns);
        }
        Ok(())
    }

    fn report(&self) -> SourceCoverage {
        SourceCoverage::default()
    }

    fn is_absent(&self) -> bool {
        self.is_absent
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

    fn wanted(&self, key: StreamKey) -> Option<IntervalRequest> {
        (key.0 == 0).then_some(IntervalRequest {
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
        let source: Box<dyn Source> = Box::new(Constant::default());
        (source, fixed)
    });
    let mut poller = Poller::with_sources(sources, theirs);
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
    // 1,000 s have passed: the other sources were due once, each in its second, and the one that
    // was called waits for the whole interval that it wants.
    let others_ns = 1_001 * NS_PER_S + 3_600 * NS_PER_S;
    assert_eq!(poller.next_deadline_ns(), others_ns);
    let called = clock.monotonic_ns() + long_ns;
    assert_eq!(poller.entries[0].next_read_ns, called);
}

#[test]
fn what_is_absent_is_looked_for_when_the_mounts_change() {
    let clock = Arc::new(ManualClock::at(1_000 * NS_PER_S));
    let theirs: Arc<dyn Clock> = clock.clone();
    let fixed = IntervalPolicy::Fixed {
        interval_ns: NS_PER_S,
    };
    let source: Box<dyn Source> = Box::new(Constant {
        is_absent: true,
        ..Constant::default()
    });
    let mut poller = Poller::with_sources([(source, fixed)], theirs);
    let have_changed = Arc::new(AtomicBool::new(false));
    let sign = Arc::clone(&have_changed);
    poller.have_mounts_changed = Box::new(move || sign.swap(false, Ordering::SeqCst));
    let mut sink = Caller::default();
    let mut reads_at = |second: i64| {
        let wait_ns = (1_000 + second) * NS_PER_S - clock.monotonic_ns();
        clock.advance(wait_ns);
        (
            poller.run_due(&mut sink),
            poller.next_deadline_ns() / NS_PER_S - 1_000,
        )
    };
    assert_eq!(reads_at(0), (1, 60));
    assert_eq!(reads_at(7), (0, 60));
    have_changed.store(true, Ordering::SeqCst);
    assert_eq!(reads_at(8), (1, 60));
    assert_eq!(reads_at(9), (0, 60));
    assert_eq!(reads_at(60), (1, 120));
}

#[test]
fn cheap_sources_do_not_wait_for_costly_ones() {
    let clock = Arc::new(ManualClock::at(1_000 * NS_PER_S));
    let theirs: Arc<dyn Clock> = clock.clone();
    let fixed = IntervalPolicy::Fixed {
        interval_ns: NS_PER_S,
    };
    let costs_ns = [5_000_000, 1_000_000, 3_000_000];
    let sources = costs_ns.map(|cost_ns| {
        let source: Box<dyn Source> = Box::new(Constant {
            cost: Some((clock.clone(), cost_ns)),
            ..Constant::default()
        });
        (source, fixed)
    });
    let mut poller = Poller::with_sources(sources, theirs);
    let mut sink = Caller::default();
    let skews_ns = |poller: &Poller| [0, 1, 2].map(|index| poller.entries[index].books.skew_ns);
    // At first nothing is known of their costs.
    poller.run_due(&mut sink);
    assert_eq!(skews_ns(&poller), [0, 5_000_000, 6_000_000]);
    let wait_ns = 1_001 * NS_PER_S - clock.monotonic_ns();
    clock.advance(wait_ns);
    poller.run_due(&mut sink);
    assert_eq!(skews_ns(&poller), [4_000_000, 0, 1_000_000]);
}

#[test]
fn sources_of_long_intervals_are_due_in_seconds_of_their_own() {
    let begin_ns = 1_000 * NS_PER_S;
    let clock = Arc::new(ManualClock::at(begin_ns));
    let theirs: Arc<dyn Clock> = clock.clone();
    let fixed = IntervalPolicy::Fixed {
        interval_ns: 5 * NS_PER_S,
    };
    let sources = (0..3).map(|_| {
        let source: Box<dyn Source> = Box::new(Constant::default());
        (source, fixed)
    });
    let mut poller = Poller::with_sources(sources, theirs);
    let mut sink = Caller::default();
    let mut turns = Vec::new();
    while poller.next_deadline_ns() < begin_ns + 12 * NS_PER_S {
        let wait_ns = poller.next_deadline_ns() - clock.monotonic_ns();
        clock.advance(wait_ns);
        let second = (clock.monotonic_ns() - begin_ns) / NS_PER_S;
        turns.push((second, poller.run_due(&mut sink)));
    }
    let each = [
        (0, 3),
        (1, 1),
        (2, 1),
        (5, 1),
        (6, 1),
        (7, 1),
        (10, 1),
        (11, 1),
    ];
    assert_eq!(turns, each);
    assert!(poller.entries.iter().all(|entry| entry.books.missed == 0));
}

//! Tests of the poller under policies: the intervals that they want, limited by the sources and the
//! budget.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use barograph_model::{Clock, IntervalRequest, ManualClock, NS_PER_S};
use barograph_source::policy::IntervalPolicy;
use barograph_source::{BudgetConfig, IntervalCaps, Source};

use crate::poller::{A, B, Bench, Fake, PATIENCE, fixed, gated};

fn wanted(wait_s: i64) -> IntervalRequest {
    IntervalRequest {
        wait_ns: wait_s * NS_PER_S,
        wrong_per_s: 0.1,
        weight: 1.0,
        min_ns: NS_PER_S,
        max_ns: 60 * NS_PER_S,
    }
}

/// Source a has a policy that wants this interval, and a second between polls without it; b has no
/// policy.
fn bench(wait_s: i64) -> Bench {
    let sources = vec![
        (Fake::new("a").boxed(), fixed(1)),
        (Fake::new("b").boxed(), fixed(3)),
    ];
    want(Bench::new(sources), wait_s)
}

fn want(mut bench: Bench, wait_s: i64) -> Bench {
    bench.map.wanted.insert(A.into(), wanted(wait_s));
    bench.map.wishes = 1;
    bench
}

fn after(bench: &Bench, ns: i64) -> i64 {
    bench.clock.monotonic_ns() + ns
}

#[test]
fn a_source_is_read_when_it_is_wanted_and_others_as_configured() {
    let mut bench = bench(10);
    for _ in 0..8 {
        bench.step();
    }
    let elapsed_ns = bench.clock.monotonic_ns() - 1000 * NS_PER_S;
    assert_eq!(elapsed_ns, 19 * NS_PER_S);
    let count = |stream| bench.map.samples(stream).len();
    assert_eq!((count(A), count(B)), (2, 8));
    assert_eq!(bench.map.interval(A), Some(10 * NS_PER_S));
    assert_eq!(bench.map.interval(B), Some(3 * NS_PER_S));
    let rare = bench.map.interval("fake.count{fact=rare,source=a}");
    assert_eq!(rare, Some(60 * NS_PER_S));
    assert_eq!(bench.own("interval.seconds", "a"), Some(10.0));
    let pace = bench.report("a").pace.unwrap();
    assert_eq!(
        (pace.configured_ns, pace.wanted_ns, pace.shortest_ns),
        (NS_PER_S, 10 * NS_PER_S, NS_PER_S)
    );
    assert_eq!(bench.report("b").pace, None);
    assert_eq!(bench.own("missed.count", "a"), Some(0.0));
}

#[test]
fn a_call_makes_a_source_due_at_once_but_no_sooner_than_it_bears() {
    let mut bench = bench(60);
    bench.run();
    let start_ns = bench.clock.monotonic_ns();
    bench.clock.advance(5 * NS_PER_S);
    bench.run();
    assert_eq!(bench.map.samples(A).len(), 1);
    // Without a notice the poller does not ask for wishes.
    bench.map.wanted.insert(A.into(), wanted(0));
    bench.run();
    assert_eq!(bench.map.samples(A).len(), 1);
    bench.map.wishes += 1;
    bench.run();
    assert_eq!(bench.map.samples(A).len(), 2, "it is read in the same run");
    let clock = bench.clock.clone();
    clock.advance(NS_PER_S / 2);
    bench.map.wishes += 1;
    bench.run();
    assert_eq!(bench.map.samples(A).len(), 2);
    bench.step();
    assert_eq!(bench.clock.monotonic_ns(), start_ns + 6 * NS_PER_S);
    let mut bench = want(bench, 60);
    bench.step();
    let due_ns = bench.map.samples(A).last().unwrap().ts + 60 * NS_PER_S;
    while bench.poller.next_deadline_ns() < due_ns {
        bench.step();
    }
    assert_eq!(bench.map.samples(A).len(), 4);
}

#[test]
fn the_source_says_what_it_bears() {
    let caps = IntervalCaps {
        interval_ns: NS_PER_S,
        min_ns: 5 * NS_PER_S,
        max_ns: 20 * NS_PER_S,
    };
    for (wait_s, expect_s) in [(0, 5), (7, 7), (60, 20)] {
        let bench = Bench::new(vec![(Fake::new("a").boxed(), fixed(1))]);
        let mut bench = want(bench, wait_s);
        bench.poller = bench.poller.with_caps("a", caps);
        bench.run();
        let deadline_ns = bench.poller.next_deadline_ns();
        assert_eq!(deadline_ns, after(&bench, expect_s * NS_PER_S), "{wait_s}");
    }
}

#[test]
fn at_most_so_many_reads_per_second() {
    let mut bench = bench(0);
    let eager = IntervalRequest {
        min_ns: 1_000_000,
        ..wanted(0)
    };
    bench.map.wanted.insert(A.into(), eager);
    bench.run();
    assert_eq!(
        bench.poller.next_deadline_ns(),
        after(&bench, NS_PER_S / 10)
    );
    let budget = BudgetConfig {
        polls_per_s: 2.0,
        ..BudgetConfig::default()
    };
    bench.poller = bench.poller.with_budget(budget);
    bench.step();
    assert_eq!(bench.poller.next_deadline_ns(), after(&bench, NS_PER_S / 2));
}

#[test]
fn a_policy_that_goes_leaves_the_source_as_it_was_configured() {
    let mut bench = bench(60);
    bench.run();
    bench.clock.advance(5 * NS_PER_S);
    bench.map.wanted.clear();
    bench.map.wishes += 1;
    bench.run();
    assert_eq!(bench.map.samples(A).len(), 2);
    assert_eq!(bench.map.interval(A), Some(NS_PER_S));
    assert_eq!(bench.poller.next_deadline_ns(), after(&bench, NS_PER_S));
    assert_eq!(bench.report("a").pace, None);
}

#[test]
fn a_slow_source_waits_from_when_it_was_asked() {
    let (fake, begun, go) = gated("a");
    let mut bench = want(Bench::new(vec![(fake.boxed(), fixed(1))]), 20);
    let read = |bench: &mut Bench| {
        begun.recv_timeout(PATIENCE).unwrap();
        go.send(()).unwrap();
        bench.wait_for_batch();
        bench.run();
    };
    let start_ns = bench.clock.monotonic_ns();
    bench.run();
    read(&mut bench);
    assert_eq!(bench.map.interval(A), Some(20 * NS_PER_S));
    // The deadlines of the source's fixed interval pass unused.
    while bench.clock.monotonic_ns() < start_ns + 19 * NS_PER_S {
        assert_eq!(bench.step(), 0);
    }
    assert_eq!(bench.clock.monotonic_ns(), start_ns + 20 * NS_PER_S);
    begun.recv_timeout(PATIENCE).unwrap();
    // A request during a read changes nothing: the wanted interval is known after the read.
    bench.map.wishes += 1;
    bench.clock.advance(NS_PER_S / 2);
    bench.run();
    go.send(()).unwrap();
    bench.wait_for_batch();
    bench.run();
    assert_eq!(bench.map.samples(A).len(), 2);
    assert_eq!(bench.own("missed.count", "a"), Some(0.0));
    drop(go);
    bench.poller.stop();
}

#[test]
fn what_fails_is_tried_again_as_often_as_it_bears() {
    let fake = Fake::new("a");
    let value = fake.value.clone();
    let mut bench = want(Bench::new(vec![(fake.boxed(), fixed(1))]), 30);
    bench.run();
    value.store(-1, Ordering::SeqCst);
    bench.map.wanted.insert(A.into(), wanted(0));
    bench.map.wishes += 1;
    let start_ns = bench.clock.monotonic_ns();
    for second in 1..5 {
        bench.run();
        bench.step();
        assert_eq!(bench.report("a").errors, second);
        assert_eq!(
            bench.clock.monotonic_ns(),
            start_ns + second as i64 * NS_PER_S
        );
    }
}

/// A source whose reads take this many milliseconds of the clock.
fn dear(
    name: &'static str,
    clock: &Arc<ManualClock>,
    ms: i64,
) -> (Box<dyn Source>, IntervalPolicy) {
    let mut fake = Fake::new(name);
    let clock = clock.clone();
    fake.during = Box::new(move || clock.advance(ms * 1_000_000));
    (fake.boxed(), fixed(1))
}

#[test]
fn the_budget_is_kept_and_goes_where_it_buys_most() {
    let clock = Arc::new(ManualClock::at(1000 * NS_PER_S));
    let sources = vec![dear("a", &clock, 50), dear("b", &clock, 50)];
    let mut bench = want(Bench::at(clock, sources), 0);
    let rare = IntervalRequest {
        wrong_per_s: 0.1 / 9.0,
        ..wanted(0)
    };
    bench.map.wanted.insert(B.into(), rare);
    // Until the first share is known, the sources are polled as wanted.
    let start_ns = bench.clock.monotonic_ns() + 20 * NS_PER_S;
    while bench.clock.monotonic_ns() < start_ns {
        bench.step();
    }
    let reads = |bench: &Bench| [A, B].map(|stream| bench.map.samples(stream).len() as i64);
    let before = reads(&bench);
    while bench.clock.monotonic_ns() < start_ns + 1000 * NS_PER_S {
        bench.step();
    }
    let after = reads(&bench);
    let [of_a, of_b] = [after[0] - before[0], after[1] - before[1]];
    let spent = (of_a + of_b) as f64 * 0.05 / 1000.0;
    assert!(spent <= 0.0105, "{spent}: {of_a} and {of_b}");
    assert!(spent >= 0.008, "{spent}: {of_a} and {of_b}");
    // The square root of nine.
    let ratio = of_a as f64 / of_b as f64;
    assert!((2.5..=3.5).contains(&ratio), "{of_a} and {of_b}");
    let pace = bench.report("a").pace.unwrap();
    assert!(pace.shortest_ns > NS_PER_S, "{pace:?}");
}

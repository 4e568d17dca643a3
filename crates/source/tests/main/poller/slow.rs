//! Slow sources: a pool of threads reads them, or the caller.

use super::*;

#[test]
fn a_slow_source_hands_over_and_is_looked_for() {
    let (fake, begun, go) = gated("a");
    let mut bench = Bench::new(vec![
        (fake.boxed(), fixed(1)),
        (Fake::new("b").boxed(), fixed(1)),
    ]);
    assert_eq!(bench.run(), 1, "only the live one is read on the loop");
    begun.recv_timeout(PATIENCE).unwrap();
    assert!(bench.map.samples(A).is_empty() && bench.own("up.flag", "a").is_none());
    // It is looked for whenever it has taken twice as long.
    let start_ns = bench.clock.monotonic_ns();
    for after_ms in [20, 40, 80] {
        let after_ns = bench.poller.next_deadline_ns() - start_ns;
        assert_eq!(after_ns, after_ms * NS_PER_MS);
        assert_eq!(bench.step(), 0);
    }
    assert!(bench.own("up.flag", "a").is_none(), "a look is no poll");
    go.send(()).unwrap();
    bench.wait_for_batch();
    assert_eq!(bench.step(), 1);
    assert_eq!(bench.clock.monotonic_ns() - start_ns, 160 * NS_PER_MS);
    assert_eq!(bench.poller.next_deadline_ns(), start_ns + NS_PER_S);
    assert_eq!(bench.map.samples(A).len(), 1);
    assert_eq!(bench.own("up.flag", "a"), Some(1.0));
    assert_eq!(bench.report("a").sees, "what it is told");
    drop(go);
    bench.poller.stop();
}

#[test]
fn a_hung_read_is_reported_and_the_rest_goes_on() {
    let (fake, begun, go) = gated("a");
    let mut bench = Bench::new(vec![
        (fake.boxed(), fixed(2)),
        (Fake::new("b").boxed(), fixed(1)),
    ]);
    bench.run();
    begun.recv_timeout(PATIENCE).unwrap();
    let start_ns = bench.clock.monotonic_ns();
    while bench.clock.monotonic_ns() < start_ns + STALL_NS + 4 * NS_PER_S {
        bench.step();
    }
    assert_eq!(bench.map.samples(B).len(), 10, "the other kept its rhythm");
    let report = bench.report("a");
    assert_eq!((report.state, report.polls), (SourceState::Down, 0));
    assert!(report.sees.contains("9 s"), "{}", report.sees);
    assert_eq!(bench.own("up.flag", "a"), Some(0.0));
    assert_eq!(bench.own("missed.count", "a"), Some(4.0));
    assert!(begun.try_recv().is_err(), "no second read is begun");
    go.send(()).unwrap();
    bench.wait_for_batch();
    bench.run();
    assert_eq!(bench.report("a").state, SourceState::Ok);
    assert_eq!(bench.own("up.flag", "a"), Some(1.0));
    drop(go);
    bench.poller.stop();
}

#[test]
fn a_source_that_may_take_its_time_hangs_later() {
    let (mut fake, begun, go) = gated("a");
    fake.stall_ns = 60 * NS_PER_S;
    let mut bench = Bench::new(vec![(fake.boxed(), fixed(100))]);
    let start_ns = bench.clock.monotonic_ns();
    bench.run();
    begun.recv_timeout(PATIENCE).unwrap();
    while bench.report("a").state != SourceState::Down {
        bench.step();
    }
    assert_eq!(bench.clock.monotonic_ns(), start_ns + 60 * NS_PER_S);
    drop(go);
    bench.poller.stop();
}

#[test]
fn a_slow_source_that_panics_is_down() {
    let mut fake = Fake::new("a");
    fake.slow = true;
    fake.during = Box::new(|| panic!("told to"));
    let mut bench = Bench::new(vec![(fake.boxed(), fixed(1))]);
    bench.run();
    bench.wait_for_batch();
    // The look finds that it has ended, and the next read finds no source.
    bench.step();
    bench.step();
    let report = bench.report("a");
    assert_eq!(report.state, SourceState::Down);
    assert!(report.last_error.unwrap().contains("panicked"));
}

#[test]
fn the_end_does_not_wait_for_a_hung_read() {
    let (fake, begun, go) = gated("a");
    let mut bench = Bench::new(vec![(fake.boxed(), fixed(1))]);
    bench.run();
    begun.recv_timeout(PATIENCE).unwrap();
    bench.poller.stop();
    drop(go);
}

/// A simulation reads everything on its own thread, and misses nothing of it.
#[test]
fn slow_sources_are_read_inline_in_the_turn_that_asks() {
    let mut fake = Fake::new("a");
    fake.slow = true;
    let mut bench = Bench::new(vec![
        (fake.boxed(), fixed(1)),
        (Fake::new("b").boxed(), fixed(1)),
    ]);
    bench.poller = bench.poller.with_inline_reads();
    let start_ns = bench.clock.monotonic_ns();
    for second in 1..4 {
        assert_eq!(bench.run(), 2);
        assert_eq!(
            bench.poller.next_deadline_ns(),
            start_ns + second * NS_PER_S
        );
        bench.clock.advance(NS_PER_S);
    }
    assert_eq!(bench.map.samples(A).len(), 3);
}

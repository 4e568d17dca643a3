//! Tests of the reads of slow sources, and of the threads that make them.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use barograph_model::{ManualClock, NS_PER_S};

use super::*;

/// Longest time that a test waits for another thread before it fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// A source whose reads do this.
struct Slow(Box<dyn FnMut() + Send>);

impl Source for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn read(&mut self, _: i64, _: &mut SourceBatch) -> Result<(), SourceError> {
        (self.0)();
        Ok(())
    }

    fn report(&self) -> SourceCoverage {
        SourceCoverage::default()
    }
}

fn worker(during: impl FnMut() + Send + 'static) -> Worker {
    Worker::new(Box::new(Slow(Box::new(during))))
}

#[test]
fn a_read_is_made_when_it_is_asked_for_and_its_batch_was_taken() {
    let clock = Arc::new(ManualClock::at(7 * NS_PER_S));
    let theirs = Arc::clone(&clock);
    let mut worker = worker(move || theirs.advance(NS_PER_S));
    let pool = ReaderPool::inline(clock.clone());
    assert!(worker.take().is_none(), "nobody asked");
    let now_ns = clock.monotonic_ns();
    assert_eq!(worker.ask(now_ns, &pool), ReadRequest::Started);
    assert_eq!(worker.busy_for_ns(now_ns + 5), Some(5));
    assert!(worker.has_ended());
    assert_eq!(worker.ask(now_ns, &pool), ReadRequest::Busy);
    let cost_ns = worker.take().map(|(outcome, _)| outcome.cost_ns);
    assert_eq!(cost_ns, Some(NS_PER_S));
    assert_eq!(worker.busy_for_ns(now_ns), None);
    assert_eq!(worker.ask(now_ns, &pool), ReadRequest::Started);
}

/// A worker whose reads tell when they begin, and end when they are allowed to.
fn gated() -> (Worker, Receiver<()>, SyncSender<()>) {
    let (begun_tx, begun) = sync_channel(8);
    let (go, go_rx) = sync_channel::<()>(8);
    let worker = worker(move || {
        begun_tx.send(()).unwrap_or_default();
        // When the test is over, the read ends at once.
        let _ = go_rx.recv();
    });
    (worker, begun, go)
}

#[test]
fn a_read_that_hangs_delays_the_others_until_the_next_turn_alone() {
    let pool = ReaderPool::new(Arc::new(ManualClock::at(0)));
    let (mut first, first_begun, first_go) = gated();
    let (mut second, second_begun, second_go) = gated();
    assert_eq!(first.ask(0, &pool), ReadRequest::Started);
    first_begun.recv_timeout(PATIENCE).unwrap();
    assert_eq!(second.ask(0, &pool), ReadRequest::Started);
    assert_eq!(lock(&pool.shared.state).threads, 1);
    pool.relieve();
    second_begun.recv_timeout(PATIENCE).unwrap();
    assert_eq!(lock(&pool.shared.state).threads, 2);
    pool.relieve();
    assert_eq!(lock(&pool.shared.state).threads, 2, "no read waits");
    for (worker, go) in [(&second, &second_go), (&first, &first_go)] {
        go.send(()).unwrap();
        assert!(pool.wait_until(|| worker.has_ended(), PATIENCE));
    }
    // One of them waits for the next read, and the other has nothing to wait for.
    let is_one = || lock(&pool.shared.state).threads == 1;
    while !is_one() {
        std::thread::yield_now();
    }
    assert!(first.take().is_some() && second.take().is_some());
    assert_eq!(second.ask(0, &pool), ReadRequest::Started);
    second_begun.recv_timeout(PATIENCE).unwrap();
    assert!(is_one());
    second_go.send(()).unwrap();
    pool.stop(PATIENCE);
    assert_eq!(lock(&pool.shared.state).threads, 0);
}

#[test]
fn what_waits_when_the_pool_ends_is_not_read() {
    let pool = ReaderPool::new(Arc::new(ManualClock::at(0)));
    let (mut first, first_begun, first_go) = gated();
    let (mut second, second_begun, second_go) = gated();
    assert_eq!(first.ask(0, &pool), ReadRequest::Started);
    first_begun.recv_timeout(PATIENCE).unwrap();
    assert_eq!(second.ask(0, &pool), ReadRequest::Started);
    pool.end();
    drop((first_go, second_go));
    pool.stop(PATIENCE);
    assert!(second_begun.try_recv().is_err());
    assert!(first.has_ended() && !second.has_ended());
}

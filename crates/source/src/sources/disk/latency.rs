//! Quantiles of latency over the last minute, from cumulative counters.
//!
//! Between two reads the kernel gives the number of requests that completed and their total time,
//! not the time of each. So each interval counts as its number of requests, all with the mean
//! latency: the quantiles are those of the means of intervals, weighted by requests. A few slow
//! requests among many fast ones of the same interval do not show; `block_trace` gives the
//! quantiles of single requests.

use barograph_model::NS_PER_S;

use crate::util::diskstats::LATENCY_SHARES;

/// Number of slices of the window, which spans 45 to 60 seconds.
const SLICES: usize = 4;
const SLICE_NS: i64 = 15 * NS_PER_S;
/// Upper bound of the first bucket, in seconds.
const LEAST_SECONDS: f64 = 4e-6;
const BUCKETS_PER_OCTAVE: f64 = 8.0;
/// Number of buckets, up to 67 s; the last bucket has all latencies above.
const BUCKETS: usize = 192;
/// Least total time of an interval, in ms. The kernel's times are whole milliseconds: an interval
/// with fewer has no reliable mean, and is joined with those after it.
const CERTAIN_MS: u64 = 4;

/// Requests of about the same latency: their number and their total time.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    ops: u32,
    ms: u32,
}

/// The latencies of one direction of one disk. Its size in memory is fixed.
#[derive(Debug)]
pub(super) struct Latencies {
    slices: Box<[[Bucket; BUCKETS]; SLICES]>,
    /// Number of the present slice since the clock's start.
    slice: Option<i64>,
    /// Number and total ms of the requests whose time is not reliable yet.
    pending: (u64, u64),
    quantiles: Option<[f64; 3]>,
    /// Whether `quantiles` are those of the present slices.
    known: bool,
}

impl Latencies {
    pub(super) fn new() -> Self {
        Self {
            slices: Box::new([[Bucket::default(); BUCKETS]; SLICES]),
            slice: None,
            pending: (0, 0),
            quantiles: None,
            known: true,
        }
    }

    /// Counts the requests that completed since the last call, with their total time.
    pub(super) fn add(&mut self, at_ns: i64, ops: u64, ms: u64) {
        self.move_on(at_ns);
        if ms >= CERTAIN_MS && ops > 0 {
            return self.record(ops, ms);
        }
        let (pending_ops, pending_ms) = &mut self.pending;
        *pending_ops = pending_ops.saturating_add(ops);
        *pending_ms = pending_ms.saturating_add(ms);
        if *pending_ms >= CERTAIN_MS {
            self.flush();
        }
    }

    /// Median, 90th and 99th percentile, in seconds; `None` if no request completed in the window.
    pub(super) fn quantiles(&mut self) -> Option<[f64; 3]> {
        if !self.known {
            self.quantiles = self.compute();
            self.known = true;
        }
        self.quantiles
    }

    /// Empties the slices that are to be filled next.
    fn move_on(&mut self, at_ns: i64) {
        let now = at_ns.div_euclid(SLICE_NS);
        let then = *self.slice.get_or_insert(now);
        if now <= then {
            return;
        }
        self.flush();
        for slice in (then + 1..=now).take(SLICES) {
            self.slices[slice.rem_euclid(SLICES as i64) as usize].fill(Bucket::default());
        }
        self.slice = Some(now);
        self.known = false;
    }

    fn flush(&mut self) {
        let (ops, ms) = std::mem::take(&mut self.pending);
        // The time of requests that took less than a millisecond in total is unknown.
        if ops > 0 && ms > 0 {
            self.record(ops, ms);
        }
    }

    fn record(&mut self, ops: u64, ms: u64) {
        let small = |v: u64| u32::try_from(v).unwrap_or(u32::MAX);
        let slice = self.slice.unwrap_or(0).rem_euclid(SLICES as i64) as usize;
        let bucket = &mut self.slices[slice][place(ms as f64 / 1e3 / ops as f64)];
        bucket.ops = bucket.ops.saturating_add(small(ops));
        bucket.ms = bucket.ms.saturating_add(small(ms));
        self.known = false;
    }

    fn compute(&self) -> Option<[f64; 3]> {
        let ops_of = |bucket: &Bucket| u64::from(bucket.ops);
        let all: u64 = self.slices.iter().flatten().map(ops_of).sum();
        if all == 0 {
            return None;
        }
        let mut quantiles = [0.0; 3];
        let mut wanted = 0;
        let mut passed = 0;
        for place in 0..BUCKETS {
            let (mut ops, mut ms) = (0, 0);
            for slice in self.slices.iter() {
                ops += ops_of(&slice[place]);
                ms += u64::from(slice[place].ms);
            }
            passed += ops;
            while wanted < LATENCY_SHARES.len()
                && ops > 0
                && passed as f64 >= LATENCY_SHARES[wanted] * all as f64
            {
                quantiles[wanted] = ms as f64 / (ops as f64 * 1e3);
                wanted += 1;
            }
        }
        Some(quantiles)
    }
}

/// The index of the bucket of a latency.
fn place(seconds: f64) -> usize {
    let place = (seconds / LEAST_SECONDS).log2() * BUCKETS_PER_OCTAVE;
    // A value that is not a number also gets a bucket.
    (place.max(0.0) as usize).min(BUCKETS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = NS_PER_S;

    #[test]
    fn places_go_up_and_stay_inside() {
        assert_eq!((place(0.0), place(1e-9), place(f64::NAN)), (0, 0, 0));
        assert_eq!(
            (place(1e9), place(f64::INFINITY)),
            (BUCKETS - 1, BUCKETS - 1)
        );
        assert!(place(0.001) < place(0.0011) && place(60.0) < BUCKETS - 1);
    }

    #[test]
    fn each_interval_weighs_as_much_as_it_has_requests() {
        let mut reads = Latencies::new();
        assert_eq!(reads.quantiles(), None);
        reads.add(S, 900, 90);
        assert_eq!(reads.quantiles(), Some([0.0001; 3]));
        reads.add(2 * S, 85, 850);
        reads.add(3 * S, 15, 1500);
        // 1000 requests: the 500th took 0.1 ms, as did the 900th, the 990th 100 ms.
        assert_eq!(reads.quantiles(), Some([0.0001, 0.0001, 0.1]));
        reads.add(4 * S, 85, 850);
        // 1085 requests: the 977th took 10 ms.
        assert_eq!(reads.quantiles(), Some([0.0001, 0.01, 0.1]));
    }

    #[test]
    fn what_is_older_than_a_minute_no_longer_counts() {
        let mut reads = Latencies::new();
        reads.add(S, 10, 1000);
        for at in 2..45 {
            reads.add(at * S, 0, 0);
            assert_eq!(reads.quantiles(), Some([0.1; 3]), "{at} s");
        }
        reads.add(60 * S, 0, 0);
        assert_eq!(reads.quantiles(), None);
        reads.add(61 * S, 10, 100);
        reads.add(1000 * S, 0, 0);
        assert_eq!(reads.quantiles(), None);
    }

    #[test]
    fn times_shorter_than_the_counter_shows_are_taken_together() {
        let mut reads = Latencies::new();
        // 10 requests of 80 us each second: the counter grows by 0 or 1 ms.
        for (at, ms) in (1..=10).zip([0, 1, 1, 1, 1, 0, 1, 1, 1, 1]) {
            reads.add(at * S, 10, ms);
        }
        assert_eq!(reads.quantiles(), Some([0.00008; 3]));
        // A slow interval is not joined with the pending requests.
        reads.add(11 * S, 10, 1);
        reads.add(12 * S, 300, 30_000);
        assert_eq!(reads.quantiles(), Some([0.1; 3]));
    }

    #[test]
    fn huge_numbers_and_clocks_that_stand_still() {
        let mut reads = Latencies::new();
        for at_ns in [0, 0, i64::MAX, i64::MIN, i64::MAX - 1] {
            reads.add(at_ns, u64::MAX, u64::MAX);
            reads.add(at_ns, 1, u64::MAX);
            reads.add(at_ns, u64::MAX, 3);
            let quantiles = reads.quantiles().unwrap();
            assert!(quantiles.iter().all(|q| q.is_finite() && *q >= 0.0));
        }
    }
}

//! Conversion of the counter values of puts to times, and the error of these.
//!
//! The agent reads counter and clock together from time to time. Times after the last such pair
//! follow from the rate between the first pair and the last. All processes of the node share the
//! counter.
//!
//! The error is the distance from what this node's clock showed at the put, not from true time; the
//! source `clock` measures that one (`clock.error.max.seconds`).

use barograph_model::{Clock, NS_PER_S};
use barograph_stream::ingest::{TickPair, TimeSource};
use rustix::time::{ClockId, clock_getres};

/// After work that others have to wait for, there is a rest of this many times as long as it took.
const REST: i64 = 20;
/// Time between two pairs, while there are counter values to convert.
const EVERY_NS: i64 = 1_000_000;
/// The clock was set if it differs this much from what the last pairs predict; the pairs then begin
/// anew.
const STEP_NS: u64 = NS_PER_S as u64 / 100;
/// Most pairs after the first one of which the first rate is taken.
const FIRST_PAIRS_MAX: u32 = 5;
/// Greatest difference of the clock's rate from its mean since the first pair. The kernel allows no
/// greater correction of its frequency (`MAXFREQ`, include/linux/timex.h). If the last pair shows a
/// greater difference, since the clock is steered in another way, that one is used.
const DRIFT_RATIO: f64 = 500e-6;
/// A rate with at most this error is replaced by that of newer pairs even if their error is no
/// smaller.
const RATE_ERROR_FINE: f64 = 1e-6;

/// Converts counter values to times.
#[derive(Debug)]
pub(crate) struct TickClock {
    first: TickPair,
    last: TickPair,
    /// Nanoseconds per count.
    rate: f64,
    /// Greatest relative error of `rate` as the mean rate between the pairs.
    rate_error: f64,
    /// Greatest relative difference of the clock's present rate from its mean.
    drift: f64,
    /// Resolution of the node's clock.
    resolution_ns: i64,
    /// Number of pairs that [`Self::begin`] may still take.
    begins_left: u32,
}

impl TickClock {
    /// Begins with one pair; [`Self::begin`] takes the next.
    pub(crate) fn new(clock: &dyn Clock) -> Self {
        let resolution = clock_getres(ClockId::Realtime);
        let mut timing = Self::from(TickPair::take(clock));
        timing.resolution_ns = (resolution.tv_sec * NS_PER_S + resolution.tv_nsec).max(1);
        timing
    }

    /// Takes a further pair, if the rate is not known yet. Calls are some milliseconds apart.
    /// Returns whether times can be converted: the rate is known, or cannot be found in a few
    /// tries.
    pub(crate) fn begin(&mut self, clock: &dyn Clock) -> bool {
        if self.begins_left == 0 {
            return true;
        }
        self.begins_left -= 1;
        if self.follow(TickPair::take(clock)) {
            self.begins_left = 0;
        }
        self.begins_left == 0
    }

    /// Takes a pair if one is due.
    pub(crate) fn attend(&mut self, clock: &dyn Clock) {
        let age_ns = clock.now_ns().saturating_sub(self.last.ns);
        if !(0..EVERY_NS).contains(&age_ns) {
            self.take(TickPair::take(clock));
        }
    }

    /// Continues from this pair, unless it is less exact than what is known already: the thread may
    /// have been interrupted between its two readings.
    fn take(&mut self, pair: TickPair) {
        let foretold = self.last.ns_of(pair.ticks, self.rate);
        let off_ns = foretold.abs_diff(pair.ns);
        if off_ns > STEP_NS {
            // The rate still holds; only the time has changed.
            (self.first, self.last) = (pair, pair);
            self.drift = DRIFT_RATIO;
            return;
        }
        if pair.error_ticks as f64 * self.rate > self.counted_error_ns(pair.ticks) {
            return;
        }
        let brackets = self.last.error_ticks.saturating_add(pair.error_ticks);
        let away = pair.ticks.abs_diff(self.last.ticks) as f64 * self.rate;
        let unexplained = (off_ns as f64 - brackets as f64 * self.rate).max(0.0);
        if self.follow(pair) {
            self.drift = (unexplained / away.max(1.0)).max(DRIFT_RATIO);
        }
    }

    fn follow(&mut self, pair: TickPair) -> bool {
        let Some(rate) = self.first.rate(pair) else {
            return false;
        };
        self.last = pair;
        let apart = pair.ticks.wrapping_sub(self.first.ticks) as f64;
        let brackets = self.first.error_ticks.saturating_add(pair.error_ticks);
        let rate_error = brackets as f64 / apart;
        if rate_error <= self.rate_error.max(RATE_ERROR_FINE) {
            (self.rate, self.rate_error) = (rate, rate_error);
        }
        true
    }

    /// The time of a record, in ns since the epoch.
    pub(crate) fn ns_of(&self, source: TimeSource, time: u64) -> i64 {
        match source {
            TimeSource::Realtime => time as i64,
            TimeSource::Counter => self.last.ns_of(time, self.rate),
        }
    }

    /// Greatest distance of [`TickClock::ns_of`] from what the node's clock showed then, in
    /// nanoseconds: half of the time that reading the last pair took, the drift that the clock may
    /// have had between the pair and the record, and the clock's resolution. If the program read
    /// the clock itself, only the resolution.
    pub(crate) fn error_ns(&self, source: TimeSource, time: u64) -> i64 {
        let counted = match source {
            TimeSource::Realtime => 0,
            TimeSource::Counter => self.counted_error_ns(time).ceil() as i64,
        };
        counted.saturating_add(self.resolution_ns)
    }

    fn counted_error_ns(&self, time: u64) -> f64 {
        let away = (time.wrapping_sub(self.last.ticks) as i64).unsigned_abs() as f64;
        let ticks = self.last.error_ticks as f64 + away * (self.rate_error + self.drift);
        ticks * self.rate
    }
}

impl From<TickPair> for TickClock {
    /// Begins with one pair; the rate is not known yet.
    fn from(first: TickPair) -> Self {
        Self {
            first,
            last: first,
            rate: 1.0,
            rate_error: 1.0,
            drift: DRIFT_RATIO,
            resolution_ns: 1,
            begins_left: FIRST_PAIRS_MAX,
        }
    }
}

/// Time from which work that took from `begun_ns` to `ended_ns` may be done again.
pub(crate) fn after_rest(begun_ns: i64, ended_ns: i64) -> i64 {
    let took_ns = ended_ns.saturating_sub(begun_ns).max(0);
    ended_ns.saturating_add(took_ns.saturating_mul(REST))
}

#[cfg(test)]
mod tests {
    use barograph_stream::SystemClock;

    use super::*;

    /// A pair of a counter that counts twice per nanosecond.
    fn pair(ns: i64, bracket_ns: u64) -> TickPair {
        TickPair {
            ticks: 2 * ns as u64,
            ns,
            error_ticks: bracket_ns,
        }
    }

    /// Two exact pairs a second apart, the second of which took `bracket_ns` to read.
    fn known(bracket_ns: u64) -> TickClock {
        let mut timing = TickClock::from(pair(NS_PER_S, 0));
        assert!(timing.follow(pair(2 * NS_PER_S, bracket_ns)));
        timing
    }

    #[test]
    fn counts_are_times_of_this_machine() {
        let clock = SystemClock::new();
        let mut timing = TickClock::new(&clock);
        let source = TimeSource::of_this_machine();
        let is_known = |timing: &TickClock| timing.rate_error < 1.0;
        while !is_known(&timing) {
            timing.attend(&clock);
            std::thread::yield_now();
        }
        let before = clock.now_ns();
        let count = source.now(&clock);
        let ns = timing.ns_of(source, count);
        let after = clock.now_ns();
        // A millisecond of slack, since the rate comes from so short a time.
        let slack = timing.error_ns(source, count).max(1_000_000);
        assert!(
            (before - slack..=after + slack).contains(&ns),
            "{before} <= {ns} <= {after}"
        );
    }

    #[test]
    fn the_error_is_half_of_the_bracket_and_what_may_have_drifted() {
        for (bracket_ns, after_ns, expect) in [
            // At the pair itself: half of the bracket, and 1 ns of resolution.
            (200, 0, 101),
            (2_000, 0, 1_001),
            // 500 ppm of a millisecond are 500 ns.
            (0, 1_000_000, 501),
            (0, -1_000_000, 501),
            // The rate is known to half of 200 ns in a second.
            (200, 1_000_000, 100 + 500 + 1 + 1),
            (200, NS_PER_S, 100 + 500_000 + 100 + 1),
        ] {
            let timing = known(bracket_ns);
            let time = 2 * (2 * NS_PER_S + after_ns) as u64;
            let error = timing.error_ns(TimeSource::Counter, time);
            assert_eq!(error, expect, "{bracket_ns} ns, {after_ns} ns later");
        }
    }

    #[test]
    fn the_error_grows_with_the_distance_from_the_pair() {
        let timing = known(200);
        let error = |away: i64| {
            let time = (4 * NS_PER_S as u64).wrapping_add_signed(away);
            timing.error_ns(TimeSource::Counter, time)
        };
        for sign in [-1, 1] {
            let errors = (0..62).map(|bit| error(sign << bit));
            assert!(errors.is_sorted());
        }
        assert_eq!(error(1 << 30), error(-(1 << 30)));
        // A value that no program counts must not panic.
        let _ = (error(i64::MAX), error(i64::MIN));
    }

    #[test]
    fn who_reads_the_clock_is_as_exact_as_it() {
        let mut timing = known(200);
        timing.resolution_ns = 4_000_000;
        assert_eq!(timing.error_ns(TimeSource::Realtime, 7), 4_000_000);
    }

    #[test]
    fn a_pair_that_was_torn_apart_is_passed_over() {
        let mut timing = known(200);
        let later = 2 * NS_PER_S + EVERY_NS;
        timing.take(pair(later, 2_000));
        assert_eq!(timing.last.ns, 2 * NS_PER_S);
        timing.take(pair(later, 400));
        assert_eq!((timing.last.ns, timing.drift), (later, DRIFT_RATIO));
        assert_eq!(timing.error_ns(TimeSource::Counter, timing.last.ticks), 201);
    }

    #[test]
    fn a_clock_that_is_steered_harder_widens_the_bound() {
        let mut timing = known(0);
        // 1 % too fast for 10 ms.
        let mut steered = pair(2 * NS_PER_S + 10_000_000, 0);
        steered.ns += 100_000;
        // Exact pairs: nothing is known better than these.
        timing.take(steered);
        assert!((timing.drift - 0.01).abs() < 1e-9, "{}", timing.drift);
        let after = steered.ticks + 2 * EVERY_NS as u64;
        assert!(timing.error_ns(TimeSource::Counter, after) >= 10_000);
    }

    #[test]
    fn a_clock_that_was_set_keeps_its_rate() {
        let mut timing = known(200);
        let mut set = pair(3 * NS_PER_S, 100);
        set.ns += NS_PER_S;
        timing.take(set);
        let after = set.ticks + 2_000;
        assert_eq!(timing.ns_of(TimeSource::Counter, after), set.ns + 1_000);
        assert_eq!(timing.error_ns(TimeSource::Counter, set.ticks), 51);
        // The next pair is too near for a better rate, but times continue from it all the same.
        let mut next = pair(3 * NS_PER_S + EVERY_NS, 100);
        next.ns += NS_PER_S;
        timing.take(next);
        assert_eq!((timing.last.ns, timing.rate), (next.ns, 0.5));
        assert!(timing.rate_error < 1e-6);
    }
}

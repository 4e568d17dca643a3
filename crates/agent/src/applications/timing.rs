//! From the counts of puts to times.
//!
//! The agent reads counter and clock together from time to time; between and beyond, time goes on at the
//! rate between the first pair and the last. All processes of the node share the counter.

use barograph_model::{Clock, NS_PER_S};
use barograph_stream::ingest::{Pair, TimeSource};

/// A new pair is taken this often.
const EVERY_NS: i64 = NS_PER_S;
/// A clock that differs so much from what the last pairs foretell was set: rates begin anew.
const STEP_NS: u64 = NS_PER_S as u64 / 100;
/// The first two pairs are so far apart.
const APART: std::time::Duration = std::time::Duration::from_millis(2);

/// What the counter says, as times.
#[derive(Debug)]
pub struct Timing {
    first: Pair,
    last: Pair,
    rate: f64,
}

impl Timing {
    /// Begins with two pairs some milliseconds apart.
    pub fn new(clock: &dyn Clock) -> Self {
        const TRIES: usize = 5;
        let first = Pair::take(clock);
        let mut timing = Self {
            first,
            last: first,
            rate: 1.0,
        };
        for _ in 0..TRIES {
            std::thread::sleep(APART);
            if timing.follow(Pair::take(clock)) {
                break;
            }
        }
        timing
    }

    /// Takes a pair when it is time for one.
    pub fn attend(&mut self, clock: &dyn Clock) {
        let age_ns = clock.now_ns().saturating_sub(self.last.ns);
        if (0..EVERY_NS).contains(&age_ns) {
            return;
        }
        let pair = Pair::take(clock);
        let foretold = self.last.ns_of(pair.ticks, self.rate);
        if foretold.abs_diff(pair.ns) > STEP_NS {
            // The rate holds; what the time is has changed.
            (self.first, self.last) = (pair, pair);
        } else {
            self.follow(pair);
        }
    }

    fn follow(&mut self, pair: Pair) -> bool {
        let rate = self.first.rate(pair);
        if let Some(rate) = rate {
            (self.rate, self.last) = (rate, pair);
        }
        rate.is_some()
    }

    /// The time of a record.
    pub fn ns_of(&self, source: TimeSource, time: u64) -> i64 {
        match source {
            TimeSource::Realtime => time as i64,
            TimeSource::Counter => self.last.ns_of(time, self.rate),
        }
    }
}

#[cfg(test)]
mod tests {
    use barograph_stream::SystemClock;

    use super::*;

    #[test]
    fn counts_are_times_of_this_machine() {
        let clock = SystemClock::new();
        let mut timing = Timing::new(&clock);
        let source = TimeSource::of_this_machine();
        std::thread::sleep(std::time::Duration::from_millis(20));
        timing.attend(&clock);
        let before = clock.now_ns();
        let ns = timing.ns_of(source, source.now(&clock));
        let after = clock.now_ns();
        // A millisecond of slack: the rate is of 20 ms only.
        let slack = 1_000_000;
        assert!(
            (before - slack..=after + slack).contains(&ns),
            "{before} <= {ns} <= {after}"
        );
    }
}

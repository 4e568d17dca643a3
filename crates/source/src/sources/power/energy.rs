//! Turns an energy counter that wraps around into a coarse one that only grows.
//!
//! A RAPL counter has 32 bits of small units: with 15 µJ it wraps around after 65 kJ, which a
//! package uses in a few minutes. One wrap is visible, since the counter is then smaller than
//! before. Two wraps are not visible. They are possible only if the time between two polls is long
//! enough for the largest possible draw; then no power is given for that step, and the energy is a
//! lower bound.

/// Greatest draw of a zone on average over a second, in watts: existing processors draw a quarter.
const WATTS_MAX: u64 = 2000;
/// Resolution of the energy that this file gives, in microjoules: 0.1 J.
const STEP_UJ: u64 = 100_000;
/// The number of such steps per joule.
const STEPS_PER_J: f64 = 10.0;

/// One energy counter.
#[derive(Debug)]
pub(super) struct Energy {
    /// Its largest value, if it wraps around.
    range_uj: Option<u64>,
    /// Monotonic time and value of the last poll.
    last: Option<(i64, u64)>,
    total_uj: u64,
}

/// The power since the last poll.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Growth {
    Watts(f64),
    /// There was no poll before, or the counter was set to another value since.
    Unknown,
    /// The last poll was so long ago that the counter may have wrapped around unseen.
    TooSeldom,
}

impl Energy {
    pub(super) fn new(range_uj: Option<u64>) -> Self {
        Self {
            range_uj,
            last: None,
            total_uj: 0,
        }
    }

    /// Returns the joules since the counter began, in steps of 0.1 J, and the power that follows
    /// from these steps. Returns nothing if the counter cannot have this value.
    pub(super) fn read(&mut self, at_ns: i64, raw_uj: u64) -> Option<(f64, Growth)> {
        if self.range_uj.is_some_and(|range_uj| raw_uj > range_uj) {
            return None;
        }
        let Some((then_ns, old_uj)) = self.last.replace((at_ns, raw_uj)) else {
            self.total_uj = raw_uj;
            return Some((self.joules(), Growth::Unknown));
        };
        let elapsed_ns = u64::try_from(at_ns.saturating_sub(then_ns)).unwrap_or(0);
        // Watts times nanoseconds are nanojoules.
        let most_uj = elapsed_ns.saturating_mul(WATTS_MAX) / 1000;
        let before = self.steps();
        let used_uj = match (raw_uj.checked_sub(old_uj), self.range_uj) {
            (Some(used_uj), _) => Some(used_uj),
            (None, Some(range_uj)) => Some(range_uj - old_uj + raw_uj),
            (None, None) => None,
        };
        let Some(used_uj) = used_uj.filter(|used_uj| *used_uj <= most_uj && elapsed_ns > 0) else {
            // The counter was reset, by a program that may write to it or because its driver was
            // loaded again.
            return Some((self.joules(), Growth::Unknown));
        };
        self.total_uj = self.total_uj.saturating_add(used_uj);
        let growth = match self.range_uj {
            Some(range_uj) if most_uj >= range_uj => Growth::TooSeldom,
            _ => {
                let joules = (self.steps() - before) as f64 / STEPS_PER_J;
                Growth::Watts(joules * 1e9 / elapsed_ns as f64)
            }
        };
        Some((self.joules(), growth))
    }

    fn steps(&self) -> u64 {
        self.total_uj / STEP_UJ
    }

    fn joules(&self) -> f64 {
        self.steps() as f64 / STEPS_PER_J
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;
    const J: u64 = 1_000_000;

    /// Polls as (time, counter), and the joules and power that each gives.
    fn check(range_uj: Option<u64>, reads: &[(i64, u64)], expect: &[(f64, Growth)]) {
        let mut energy = Energy::new(range_uj);
        let got: Vec<_> = reads
            .iter()
            .map(|(at_ns, raw_uj)| energy.read(*at_ns, *raw_uj).unwrap())
            .collect();
        assert_eq!(got, expect, "{reads:?}");
    }

    #[test]
    fn grows_in_coarse_steps() {
        use Growth::{Unknown, Watts};
        check(
            Some(100_000 * J),
            &[
                (0, 1_099_999),
                (S, 1_100_000),
                (2 * S, 101_190_000),
                (4 * S, 121_200_000),
            ],
            &[
                (1.0, Unknown),
                (1.1, Watts(0.1)),
                (101.1, Watts(100.0)),
                (121.2, Watts(10.05)),
            ],
        );
    }

    #[test]
    fn goes_on_where_the_counter_goes_round() {
        use Growth::{Unknown, Watts};
        check(
            Some(1000 * J + 500_000),
            &[(0, 950 * J), (S / 4, 49_500_000), (S / 2, 50 * J)],
            &[
                (950.0, Unknown),
                (1050.0, Watts(400.0)),
                (1050.5, Watts(2.0)),
            ],
        );
    }

    #[test]
    fn a_reset_is_no_turn() {
        use Growth::{Unknown, Watts};
        // As a wrap this would be 99 kJ in a second.
        check(
            Some(100_000 * J),
            &[(0, 1000 * J), (S, 5 * J), (2 * S, 105 * J)],
            &[(1000.0, Unknown), (1000.0, Unknown), (1100.0, Watts(100.0))],
        );
        check(
            None,
            &[(0, 1000 * J), (S, 990 * J), (2 * S, 1000 * J)],
            &[(1000.0, Unknown), (1000.0, Unknown), (1010.0, Watts(10.0))],
        );
    }

    #[test]
    fn what_may_have_gone_round_unseen_has_no_power() {
        use Growth::{TooSeldom, Unknown};
        // 1000 kJ at 2000 W take 500 s.
        let range = Some(1_000_000 * J);
        check(
            range,
            &[(0, 0), (499 * S, 10 * J)],
            &[(0.0, Unknown), (10.0, Growth::Watts(10.0 / 499.0))],
        );
        check(
            range,
            &[(0, 0), (500 * S, 10 * J)],
            &[(0.0, Unknown), (10.0, TooSeldom)],
        );
    }

    #[test]
    fn impossible_values_and_times() {
        let mut energy = Energy::new(Some(100));
        assert_eq!(energy.read(0, 101), None);
        assert_eq!(energy.read(0, 100), Some((0.0, Growth::Unknown)));
        assert_eq!(energy.read(0, 90), Some((0.0, Growth::Unknown)));
        assert_eq!(energy.read(-5, 99), Some((0.0, Growth::Unknown)));
        let mut energy = Energy::new(None);
        energy.read(0, 0);
        let (joules, growth) = energy.read(S, i64::MAX as u64).unwrap();
        assert_eq!((joules, growth), (0.0, Growth::Unknown));
    }
}

//! Prediction by periods: found in a thresholded spectrum, proved by repetition, extrapolated by
//! repeating.

use super::periods::{FoundPeriod, FourierTransform, RepeatingPart, TRANSFORM, WINDOW, detect};
use super::{JUMP_MAX, finite_or};
use crate::Predictor;

/// Number of values before the first analysis; the next ones come after twice as many each, as long
/// as the window grows.
const FIRST: usize = 32;
/// Number of values between later analyses, and the most that is added to it, from the bits of the
/// newest value: so streams that began together are not analysed together for ever.
const EVERY: u32 = 112;
const SPREAD: u32 = 32;

/// The period of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Period {
    /// Length of the period, in steps.
    pub steps: usize,
    /// The share of the error that repetition saves, within the seen values, against the best of:
    /// the last value, the mean, the mean of as many values right before, the mean change. 1 for a
    /// series without noise, above 0.
    pub confidence: f64,
}

/// Repeats the detected period if there is one, else the last value.
///
/// The period is searched in the newest 256 values (which contain four times the period of a
/// minute, in a stream that is read each second) at intervals, see `periods`.
///
/// The extrapolation is the seasonal naïve method (Hyndman and Athanasopoulos, Forecasting:
/// Principles and Practice, 3rd edition, 5.2) with the mean of up to four periods: of values if the
/// level is steady, of changes if it is not, whichever had the smaller error.
#[derive(Clone, Debug)]
pub struct Spectral {
    /// A ring of values; the next value goes to index `next`.
    ring: [f64; WINDOW],
    next: usize,
    count: usize,
    until_analysis: u32,
    found: Option<FoundPeriod>,
    transform: &'static FourierTransform,
}

impl Default for Spectral {
    fn default() -> Self {
        Self {
            ring: [0.0; WINDOW],
            next: 0,
            count: 0,
            until_analysis: FIRST as u32,
            found: None,
            transform: &TRANSFORM,
        }
    }
}

impl Spectral {
    /// The period found by the newest analysis; [`None`] if nothing repeats.
    pub fn period(&self) -> Option<Period> {
        self.found.map(|found| Period {
            steps: found.period,
            confidence: found.confidence,
        })
    }

    /// The value `age` steps before the newest.
    fn before(&self, age: usize) -> f64 {
        self.ring[(self.next + 2 * WINDOW - 1 - age) % WINDOW]
    }

    fn repeat(&self, found: FoundPeriod, steps: usize) -> f64 {
        let last = self.before(0);
        let FoundPeriod {
            period, periods, ..
        } = found;
        // The place within the next period, and the number of whole periods before it.
        let (cycles, phase) = ((steps - 1) / period, (steps - 1) % period + 1);
        let mean = 1.0 / periods as f64;
        let ages = (1..=periods).map(|n| n * period);
        match found.repeats {
            RepeatingPart::Values => ages.map(|age| mean * self.before(age - phase)).sum(),
            RepeatingPart::Changes => {
                let cycle = mean * (last - self.before(periods * period));
                let change: f64 = ages
                    .map(|age| mean * (self.before(age - phase) - self.before(age)))
                    .sum();
                last + change + cycles as f64 * cycle
            }
        }
    }

    fn analyse(&self) -> Option<FoundPeriod> {
        let mut values = [0.0; WINDOW];
        for (age, value) in values[..self.count].iter_mut().rev().enumerate() {
            *value = self.before(age);
        }
        detect(&mut values[..self.count], self.transform)
    }
}

impl Predictor for Spectral {
    fn name(&self) -> &'static str {
        "spectral"
    }

    fn observe(&mut self, value: f64) {
        if self.count > 0 && (value - self.before(0)).abs() >= JUMP_MAX {
            self.forget();
        }
        self.ring[self.next] = value;
        self.next = (self.next + 1) % WINDOW;
        self.count = (self.count + 1).min(WINDOW);
        self.until_analysis -= 1;
        if self.until_analysis == 0 {
            self.found = self.analyse();
            self.until_analysis = if self.count < WINDOW {
                self.count as u32
            } else {
                let mixed = value.to_bits().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                EVERY + mixed as u32 % SPREAD
            };
        }
    }

    fn predict(&self, steps: u32) -> f64 {
        let last = self.before(0);
        match self.found {
            Some(found) => finite_or(self.repeat(found, steps.max(1) as usize), last),
            None => last,
        }
    }

    /// Forgets the phase, and with it the period.
    fn forget(&mut self) {
        self.count = 0;
        self.until_analysis = FIRST as u32;
        self.found = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predictors::series;

    fn fed(values: &[f64]) -> Spectral {
        let mut spectral = Spectral::default();
        values.iter().for_each(|value| spectral.observe(*value));
        spectral
    }

    #[test]
    fn nothing_and_one_value() {
        assert_eq!(fed(&[]).predict(3), 0.0);
        assert_eq!(fed(&[5.0]).predict(3), 5.0);
    }

    #[test]
    fn periods_and_none() {
        let table: [(&str, Vec<f64>, Option<usize>); 11] = [
            ("HACC", series::hacc_regular(400), Some(5)),
            ("sine", series::sine(400), Some(24)),
            ("sine and noise", series::noisy_sine(400), Some(24)),
            ("a minute's checkpoints", series::checkpoints(400), Some(60)),
            (
                "ramp with rounding",
                (0..400).map(|n| 1e9 + 0.1 * f64::from(n)).collect(),
                None,
            ),
            ("alternating", [1.0, 7.0].repeat(40), Some(2)),
            ("ramp", series::ramp(400), None),
            ("constant", series::constant(400), None),
            ("walk", series::walk(400), None),
            ("noise", series::noise(400), None),
            ("autoregression", series::autoregression(400), None),
        ];
        for (name, values, expect) in table {
            let period = fed(&values).period();
            // A multiple of the period repeats as well, and a step beside it is hardly worse.
            let close = |found: usize, expect: usize| {
                let off = found % expect;
                off.min(expect - off) * 12 <= expect
            };
            match (period, expect) {
                (None, None) => {}
                (Some(period), Some(expect)) => {
                    assert!(close(period.steps, expect), "{name}: {period:?}");
                    assert!((0.0..=1.0).contains(&period.confidence), "{name}");
                }
                _ => panic!("{name}: {period:?}, not {expect:?}"),
            }
        }
    }

    #[test]
    fn without_noise_all_is_certain() {
        assert!(fed(&series::hacc_regular(300)).period().unwrap().confidence > 0.999);
        assert!(fed(&series::sine(300)).period().unwrap().confidence > 0.999);
    }

    /// A walk is not periodic, however often it is analysed: here 300 walks, four times each.
    #[test]
    fn chance_is_seldom_taken_for_a_period() {
        let mut random = crate::random::Random::new(21);
        let (mut looks, mut found) = (0, 0);
        for round in 0..300 {
            let mut spectral = Spectral::default();
            let mut at = 0.0;
            for _ in 0..WINDOW {
                at = if round % 2 == 0 { at } else { 0.0 } + random.normal();
                spectral.observe(at);
                if [FIRST, 2 * FIRST, 4 * FIRST, WINDOW].contains(&spectral.count) {
                    looks += 1;
                    found += usize::from(spectral.period().is_some());
                }
            }
        }
        assert!(looks >= 1200 && found * 50 <= looks, "{found} of {looks}");
    }

    #[test]
    fn a_path_goes_on_over_many_periods() {
        let spectral = fed(&series::hacc_regular(400));
        let mut path = [0.0; 500];
        spectral.path(&mut path);
        let truth = series::hacc_regular(900);
        for (step, expected) in path.iter().enumerate() {
            assert!(
                (expected - truth[400 + step]).abs() < 1.0,
                "{step}: {expected}"
            );
        }
        let spectral = fed(&series::sine(400));
        let truth = series::sine(600);
        for step in 1..200 {
            let error = spectral.predict(step) - truth[399 + step as usize];
            assert!(error.abs() < 1e-6, "{step}: {error}");
        }
    }

    #[test]
    fn after_a_gap_the_last_value_holds() {
        let mut spectral = fed(&series::sine(400));
        spectral.forget();
        assert_eq!(spectral.period(), None);
        spectral.observe(3.0);
        assert_eq!(spectral.predict(5), 3.0);
    }

    #[test]
    fn a_period_that_ended_is_dropped() {
        let mut values = series::sine(400);
        values.extend(series::walk(700));
        assert_eq!(fed(&values).period(), None);
    }
}

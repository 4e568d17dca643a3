//! Periods: found in a thresholded spectrum, proved by repetition, extrapolated by repeating.

use std::sync::{Arc, LazyLock};

use realfft::num_complex::Complex;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};

use super::{ERROR_MIN, JUMP_MAX, finite_or};
use crate::Predictor;

/// Values that are kept: a minute's period of a stream that is read each second is there four times.
const WINDOW: usize = 256;
/// Twice the window, so that the correlation does not wrap round.
const PADDED: usize = 2 * WINDOW;
/// Lines of less than this share of the largest one's power are noise: half its amplitude (Tango, IV-A).
const POWER_MIN: f64 = 0.25;
/// A period has to be in the window at least this often.
const PERIODS_MIN: usize = 3;
/// Earlier periods that the next one is the mean of, at most.
const PERIODS_MEAN: usize = 4;
/// Periods that are tried by repetition.
const CANDIDATES: usize = 3;
/// Newest values that they are tried on.
const TRIED: usize = 96;
/// The first analysis comes after so many values, the next ones after twice as many, as long as the window grows.
const FIRST: usize = 32;
/// Then after so many each.
const EVERY: u32 = 128;
/// What repetition has to save, more than chance saves.
const CONFIDENCE_MIN: f64 = 0.05;

/// What a series repeats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Period {
    /// After so many steps.
    pub steps: usize,
    /// The share of the error that repetition saves, within what was seen, against the best of: the last value, the
    /// mean, the mean change. 1 for a series without noise, above 0.
    pub confidence: f64,
}

/// Repeats the period that is found, if there is one, else the last value.
///
/// After the periodicity detection of Vlachos, Yu and Castelli (On Periodicity Detection and Structural Similarity,
/// SDM 2005): lines of the spectrum above a threshold suggest periods, the correlation (which has the resolution of
/// a step, where a line has that of the window) refines them. The threshold is Tango's (IV-A), but without its
/// constant term: mean and trend are taken off first. Each candidate is then tried on the newest values of the
/// window, and stays if it was better than what knows of no period, by more than chance.
///
/// The extrapolation is the seasonal naïve method (Hyndman and Athanasopoulos, Forecasting: Principles and Practice,
/// 3rd edition, 5.2) with the mean of up to four periods: of values where the level is steady, of changes where it is
/// not, whichever had the lesser error.
#[derive(Clone)]
pub struct Spectral {
    /// Where the next value goes is `next`.
    ring: [f64; WINDOW],
    next: usize,
    count: usize,
    until_analysis: u32,
    found: Option<Found>,
    transform: &'static Transform,
}

#[derive(Clone, Copy, Debug)]
struct Found {
    period: usize,
    /// Earlier periods that are averaged.
    periods: usize,
    repeats: Repeats,
    confidence: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Repeats {
    Values,
    Changes,
}

/// What is planned once, for all streams.
struct Transform {
    forward: Arc<dyn RealToComplex<f64>>,
    backward: Arc<dyn ComplexToReal<f64>>,
}

static TRANSFORM: LazyLock<Transform> = LazyLock::new(|| {
    let mut planner = RealFftPlanner::new();
    Transform {
        forward: planner.plan_fft_forward(PADDED),
        backward: planner.plan_fft_inverse(PADDED),
    }
});

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
    /// What was found in the newest analysis; [`None`] if nothing recurs.
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

    fn repeat(&self, found: Found, steps: usize) -> f64 {
        let last = self.before(0);
        let Found {
            period, periods, ..
        } = found;
        // Where in the next period, and how many more lie between.
        let (cycles, phase) = ((steps - 1) / period, (steps - 1) % period + 1);
        let mean = 1.0 / periods as f64;
        let ages = (1..=periods).map(|n| n * period);
        match found.repeats {
            Repeats::Values => ages.map(|age| mean * self.before(age - phase)).sum(),
            Repeats::Changes => {
                let cycle = mean * (last - self.before(periods * period));
                let change: f64 = ages
                    .map(|age| mean * (self.before(age - phase) - self.before(age)))
                    .sum();
                last + change + cycles as f64 * cycle
            }
        }
    }

    fn analyse(&self) -> Option<Found> {
        let mut values = [0.0; WINDOW];
        for (age, value) in values[..self.count].iter_mut().rev().enumerate() {
            *value = self.before(age);
        }
        let values = &mut values[..self.count];
        if !normalise(values) {
            return None;
        }
        let correlation = self.transform.correlation(values)?;
        let mut best: Option<Found> = None;
        for period in candidates(&correlation[..=self.count / PERIODS_MIN]) {
            let tried = period.and_then(|period| trial(values, period));
            if let Some(found) = tried
                && best.is_none_or(|best| found.confidence > best.confidence)
            {
                best = Some(found);
            }
        }
        best
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
                EVERY
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

    /// The phase is lost, and with it the period.
    fn forget(&mut self) {
        self.count = 0;
        self.until_analysis = FIRST as u32;
        self.found = None;
    }
}

impl Transform {
    /// What recurs, by distance: the power of the lines above the threshold, transformed back (Wiener and Khinchin).
    fn correlation(&self, values: &[f64]) -> Option<[f64; PADDED]> {
        let mut series = [0.0; PADDED];
        series[..values.len()].copy_from_slice(values);
        without_trend(&mut series[..values.len()]);
        let mut lines = [Complex::new(0.0, 0.0); WINDOW + 1];
        // No scratch: the series is scratch already. A plan that wanted more would say so here.
        self.forward
            .process_with_scratch(&mut series, &mut lines, &mut [])
            .ok()?;
        let largest = lines
            .iter()
            .fold(0.0, |most: f64, line| most.max(line.norm_sqr()));
        for line in &mut lines {
            let power = line.norm_sqr();
            let kept = if power >= POWER_MIN * largest {
                power
            } else {
                0.0
            };
            *line = Complex::new(kept, 0.0);
        }
        self.backward
            .process_with_scratch(&mut lines, &mut series, &mut [])
            .ok()?;
        Some(series)
    }
}

/// Relative to the newest, the largest 1; false if nothing differs.
fn normalise(values: &mut [f64]) -> bool {
    let Some(last) = values.last().copied() else {
        return false;
    };
    let largest = values
        .iter()
        .fold(0.0, |most: f64, value| most.max((value - last).abs()));
    if !(ERROR_MIN..f64::MAX).contains(&largest) {
        return false;
    }
    for value in values {
        *value = (*value - last) / largest;
    }
    true
}

/// Takes off the line of least squares: the constant term, and what drifts.
fn without_trend(values: &mut [f64]) {
    let count = values.len() as f64;
    let middle = (count - 1.0) / 2.0;
    let mean = values.iter().sum::<f64>() / count;
    let (mut moment, mut square, mut at) = (0.0, 0.0, -middle);
    for value in &*values {
        moment += at * value;
        square += at * at;
        at += 1.0;
    }
    let slope = moment / square;
    let mut line = mean - slope * middle;
    for value in values {
        *value -= line;
        line += slope;
    }
}

/// The highest peaks of the correlation, which begins with distance 0.
fn candidates(correlation: &[f64]) -> [Option<usize>; CANDIDATES] {
    let mut peaks = [None; CANDIDATES];
    let mut heights = [0.0; CANDIDATES];
    for (before, three) in correlation.windows(3).enumerate() {
        let [left, mut height, right] = [three[0], three[1], three[2]];
        if height < left || height < right {
            continue;
        }
        let mut peak = Some(before + 1);
        for place in 0..CANDIDATES {
            if height > heights[place] {
                std::mem::swap(&mut height, &mut heights[place]);
                std::mem::swap(&mut peak, &mut peaks[place]);
            }
        }
    }
    peaks
}

/// Repeats a period over the newest values, as [`Spectral::repeat`] would have done one step before each.
fn trial(values: &[f64], period: usize) -> Option<Found> {
    let periods = (values.len() / period).saturating_sub(1).min(PERIODS_MEAN);
    let first = (periods * period + 1).max(values.len().saturating_sub(TRIED));
    let tried = values.len().saturating_sub(first);
    if period < 2 || periods + 1 < PERIODS_MIN || tried < period {
        return None;
    }
    let mean = values[first..].iter().sum::<f64>() / tried as f64;
    let drift = (values[values.len() - 1] - values[first - 1]) / tried as f64;
    let seasonal = |at: usize| -> f64 {
        (1..=periods).map(|n| values[at - n * period]).sum::<f64>() / periods as f64
    };
    let mut seasonal_before = seasonal(first - 1);
    let mut repetition = [0.0; 2];
    let mut without = [0.0; 3];
    for at in first..values.len() {
        let (value, change) = (values[at], values[at] - values[at - 1]);
        let seasonal = seasonal(at);
        repetition[0] += (value - seasonal).abs();
        repetition[1] += (change - (seasonal - seasonal_before)).abs();
        seasonal_before = seasonal;
        without[0] += change.abs();
        without[1] += (value - mean).abs();
        without[2] += (change - drift).abs();
    }
    let repeats = if repetition[0] <= repetition[1] {
        Repeats::Values
    } else {
        Repeats::Changes
    };
    let without = without.iter().copied().fold(f64::INFINITY, f64::min);
    let confidence = 1.0 - repetition[repeats as usize] / without;
    (confidence > CONFIDENCE_MIN + 1.0 / (tried as f64).sqrt()).then_some(Found {
        period,
        periods,
        repeats,
        confidence,
    })
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
        let table: [(&str, Vec<f64>, Option<usize>); 10] = [
            ("HACC", series::hacc_regular(400), Some(5)),
            ("sine", series::sine(400), Some(24)),
            ("sine and noise", series::noisy_sine(400), Some(24)),
            ("a minute's checkpoints", series::checkpoints(400), Some(60)),
            ("alternating", [1.0, 7.0].repeat(40), Some(2)),
            ("ramp", series::ramp(400), None),
            ("constant", series::constant(400), None),
            ("walk", series::walk(400), None),
            ("noise", series::noise(400), None),
            ("autoregression", series::autoregression(400), None),
        ];
        for (name, values, expect) in table {
            let period = fed(&values).period();
            // A multiple repeats as well, and a step beside it hardly worse.
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

    /// A walk is not periodic, however often one looks: of 300, each looked at four times.
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
                if spectral.until_analysis == EVERY
                    || spectral.until_analysis as usize == spectral.count
                {
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

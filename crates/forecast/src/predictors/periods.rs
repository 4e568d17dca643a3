//! The detection of a period: a thresholded spectrum gives candidates, which have to predict the
//! newest values.
//!
//! After the periodicity detection of Vlachos, Yu and Castelli (On Periodicity Detection and
//! Structural Similarity, SDM 2005): lines of the spectrum above a threshold suggest periods, and
//! the correlation (which has the resolution of a step, where a line has that of the window)
//! refines them. The threshold is that of Tango (IV-A), but without its constant term: mean and
//! trend are removed first. Each candidate is then tried on the newest values, and is kept if it
//! was better than predictions without a period, by more than chance.

use std::fmt;
use std::sync::{Arc, LazyLock};

use realfft::num_complex::Complex;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};

use super::ERROR_MIN;

/// Most values that are analysed.
pub(super) const WINDOW: usize = 256;
/// Length of the transform: twice the window, so that the correlation does not wrap around.
const PADDED: usize = 2 * WINDOW;
/// Lines with less than this share of the largest line's power are noise: half its amplitude
/// (Tango, IV-A).
const POWER_MIN: f64 = 0.25;
/// Fewest repetitions of a period in the window.
const PERIODS_MIN: usize = 3;
/// Most earlier periods over which the next one is averaged.
const PERIODS_MEAN: usize = 4;
/// Number of periods that are tried.
const CANDIDATES: usize = 3;
/// Number of the newest values on which they are tried.
const TRIED: usize = 96;
/// The share of the error that repetition has to save, beyond what chance saves.
const CONFIDENCE_MIN: f64 = 0.05;
/// The further share that a longer period has to save compared with a shorter one: multiples of a
/// period repeat as well.
const MULTIPLE_MIN: f64 = 0.03;

/// A period, and how it repeats.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoundPeriod {
    pub(super) period: usize,
    /// Number of earlier periods that are averaged.
    pub(super) periods: usize,
    pub(super) repeats: RepeatingPart,
    pub(super) confidence: f64,
}

/// The part of a series that repeats: values if the level is steady, changes if it is not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum RepeatingPart {
    Values,
    Changes,
}

/// The plans of the transform, made once for all streams. Without the library's variants for vector
/// instructions, which take a minute to compile and would make spectra differ between machines.
pub(super) struct FourierTransform {
    forward: Arc<dyn RealToComplex<f64>>,
    backward: Arc<dyn ComplexToReal<f64>>,
}

pub(super) static TRANSFORM: LazyLock<FourierTransform> = LazyLock::new(|| {
    let mut planner = RealFftPlanner::new();
    FourierTransform {
        forward: planner.plan_fft_forward(PADDED),
        backward: planner.plan_fft_inverse(PADDED),
    }
});

/// Detects the period of `values`, oldest first, at most [`WINDOW`]; the values are changed.
pub(super) fn detect(values: &mut [f64], transform: &FourierTransform) -> Option<FoundPeriod> {
    let rounding = normalise(values)?;
    let correlation = transform.correlation(values)?;
    let mut periods = candidates(&correlation[..=values.len() / PERIODS_MIN]);
    periods.sort_unstable();
    let mut best: Option<FoundPeriod> = None;
    for period in periods.into_iter().flatten() {
        if let Some(found) = trial(values, period, rounding)
            && best.is_none_or(|best| found.confidence > best.confidence + MULTIPLE_MIN)
        {
            best = Some(found);
        }
    }
    best
}

/// The distances, in steps, at which the newest [`WINDOW`] values are like themselves: the highest
/// peaks of the correlation of the lines above the threshold, up to half of the values. A peak
/// counts if the values themselves correlate there by more than the most that is expected of noise
/// at any of these distances: `sqrt(2 ln m)` standard errors (Bartlett 1946) for `m` distances, the
/// greatest of as many normal numbers.
pub(crate) fn seasons(values: &[f64]) -> impl Iterator<Item = usize> {
    let mut found = [None; CANDIDATES];
    let mut values = values[values.len().saturating_sub(WINDOW)..].to_vec();
    let distances = values.len() / 2;
    let count = values.len() as f64;
    if let Some(rounding) = normalise(&mut values)
        && let Some(correlation) = TRANSFORM.correlation(&values)
    {
        without_trend(&mut values);
        let product = |distance: usize| -> f64 {
            let later = values.iter().skip(distance);
            values.iter().zip(later).map(|(a, b)| a * b).sum()
        };
        let power = product(0);
        let of_noise = (2.0 * (distances as f64).ln() / count).sqrt() * power;
        if power > count * rounding {
            found = candidates(&correlation[..=distances])
                .map(|peak| peak.filter(|distance| product(*distance) > of_noise));
        }
    }
    found.into_iter().flatten()
}

impl fmt::Debug for FourierTransform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transform").finish_non_exhaustive()
    }
}

impl FourierTransform {
    /// The autocorrelation by distance: the power of the lines above the threshold, transformed
    /// back (Wiener and Khinchin).
    fn correlation(&self, values: &[f64]) -> Option<[f64; PADDED]> {
        let mut series = [0.0; PADDED];
        series[..values.len()].copy_from_slice(values);
        without_trend(&mut series[..values.len()]);
        let mut lines = [Complex::new(0.0, 0.0); WINDOW + 1];
        // Most plans need no scratch memory; none needs more than the length of the transform.
        let mut scratch = [Complex::new(0.0, 0.0); PADDED];
        self.forward
            .process_with_scratch(&mut series, &mut lines, &mut scratch)
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
            .process_with_scratch(&mut lines, &mut series, &mut scratch)
            .ok()?;
        Some(series)
    }
}

/// Makes the values relative to the newest, with a largest distance of 1. Returns the largest
/// rounding error of a value; [`None`] if all values are equal.
fn normalise(values: &mut [f64]) -> Option<f64> {
    let last = *values.last()?;
    let largest = values
        .iter()
        .fold(0.0, |most: f64, value| most.max((value - last).abs()));
    if !(ERROR_MIN..f64::MAX).contains(&largest) {
        return None;
    }
    for value in values {
        *value = (*value - last) / largest;
    }
    Some(f64::EPSILON * (1.0 + last.abs() / largest))
}

/// Removes the line of least squares: the constant term and the drift.
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

/// Repeats a period over the newest values, as the predictor would have done one step before each.
fn trial(values: &[f64], period: usize, rounding: f64) -> Option<FoundPeriod> {
    let periods = (values.len() / period - 1).min(PERIODS_MEAN);
    let first = (periods * period + 1).max(values.len().saturating_sub(TRIED));
    let tried = values.len().saturating_sub(first);
    // Errors over less than a period give no information about the rest of it.
    if period < 2 || tried + 1 < period {
        return None;
    }
    let mean = values[first..].iter().sum::<f64>() / tried as f64;
    let drift = (values[values.len() - 1] - values[first - 1]) / tried as f64;
    let seasonal = |at: usize| -> f64 {
        (1..=periods).map(|n| values[at - n * period]).sum::<f64>() / periods as f64
    };
    let mut seasonal_before = seasonal(first - 1);
    let mut repetition = [0.0; 2];
    let mut without = [0.0; 4];
    for at in first..values.len() {
        let (value, change) = (values[at], values[at] - values[at - 1]);
        let seasonal = seasonal(at);
        repetition[0] += (value - seasonal).abs();
        repetition[1] += (change - (seasonal - seasonal_before)).abs();
        seasonal_before = seasonal;
        without[0] += change.abs();
        without[1] += (value - mean).abs();
        without[2] += (change - drift).abs();
        let nearest = values[at - periods..at].iter().sum::<f64>() / periods as f64;
        without[3] += (value - nearest).abs();
    }
    let repeats = if repetition[0] <= repetition[1] {
        RepeatingPart::Values
    } else {
        RepeatingPart::Changes
    };
    let without = without.iter().copied().fold(f64::INFINITY, f64::min);
    if without <= tried as f64 * rounding {
        return None;
    }
    let confidence = 1.0 - repetition[repeats as usize] / without;
    (confidence > CONFIDENCE_MIN + 1.0 / (tried as f64).sqrt()).then_some(FoundPeriod {
        period,
        periods,
        repeats,
        confidence,
    })
}

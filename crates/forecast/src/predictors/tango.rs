//! The estimate of Tango, only for comparison: the effect of its constant term, and of periods
//! between its lines.
//!
//! Tango (Algorithm 1, III-C and IV-A) transforms a window, drops the lines of less than half the
//! largest amplitude, and transforms back. Taken literally, the largest is that of the constant
//! term whenever the mean exceeds the swings, and then no other line is left.

use std::f64::consts::TAU;

use super::Spectral;
use super::series;
use crate::Predictor;

/// The value `steps` after a window, from the lines that are left; with `constant_counts` as in the
/// paper.
fn estimate(window: &[f64], steps: usize, threshold: f64, constant_counts: bool) -> f64 {
    let count = window.len();
    let turn = |line: usize, at: usize| TAU * (line * at % count) as f64 / count as f64;
    let lines: Vec<(f64, f64)> = (0..count)
        .map(|line| {
            let along = |of: fn(f64) -> f64| -> f64 {
                let terms = window.iter().enumerate();
                terms.map(|(at, value)| value * of(turn(line, at))).sum()
            };
            (along(f64::cos), along(f64::sin))
        })
        .collect();
    let amplitude = |line: &(f64, f64)| line.0.hypot(line.1);
    let counted = &lines[usize::from(!constant_counts)..];
    let largest = counted.iter().map(amplitude).fold(0.0, f64::max);
    let at = count - 1 + steps;
    lines
        .iter()
        .enumerate()
        .filter(|(index, line)| {
            (*index == 0 && !constant_counts) || amplitude(line) >= threshold * largest
        })
        .map(|(index, line)| {
            (line.0 * turn(index, at).cos() + line.1 * turn(index, at).sin()) / count as f64
        })
        .sum()
}

/// Mean absolute errors one step ahead over the second half of a series: of Tango as in the paper,
/// of Tango with the constant term apart, of our predictor, of persistence.
fn errors(values: &[f64], window: usize) -> [f64; 4] {
    let mut errors = [0.0; 4];
    let mut spectral = Spectral::default();
    let begin = values.len() / 2;
    for (at, value) in values.iter().enumerate() {
        if at >= begin {
            let before = &values[at - window..at];
            let expected = [
                estimate(before, 1, 0.5, true),
                estimate(before, 1, 0.5, false),
                spectral.predict(1),
                values[at - 1],
            ];
            for (error, expected) in errors.iter_mut().zip(expected) {
                *error += (expected - value).abs() / (values.len() - begin) as f64;
            }
        }
        spectral.observe(*value);
    }
    errors
}

/// A bandwidth of 500 that swings by 100 with period 24: on a line of a window of 48. Between two
/// lines of a window of 60, the swings are seen, but continue out of phase.
#[test]
fn the_constant_term_hides_the_swings() {
    for (window, apart_max) in [(48, 1e-6), (60, 80.0)] {
        let [paper, apart, ours, _] = errors(&series::sine(800), window);
        // Only the mean is left: the error is the mean distance of a sine from its mean.
        assert!((60.0..67.0).contains(&paper), "{window}: {paper}");
        assert!(apart < apart_max, "{window}: {apart}");
        assert!(ours < 1e-6, "{window}: {ours}");
    }
}

/// With noise, lines are the better extrapolation if the window happens to be a multiple of the
/// period, and worse than persistence if not; repetition of the detected period is better than
/// persistence in both cases, and if the period has edges, better than lines in both.
#[test]
fn repetition_needs_no_luck() {
    let noisy = series::noisy_sine(800);
    let [paper, apart, ours, persistence] = errors(&noisy, 48);
    assert!(apart < ours && ours < 1.15 * apart, "{apart} {ours}");
    assert!(ours < 0.8 * persistence && persistence < 0.5 * paper);
    let [paper, apart, ours, persistence] = errors(&noisy, 60);
    assert!(ours < 0.8 * persistence && persistence < 0.5 * apart.min(paper));
    for window in [48, 60] {
        let [paper, apart, ours, persistence] = errors(&series::checkpoints(800), window);
        assert!(ours < 0.4 * persistence && persistence < 0.5 * apart.min(paper));
    }
}

//! Tango's estimate, for comparison alone: what its constant term costs, and what its lines do between its bins.
//!
//! Tango (III-C, Algorithm 1, and IV-A) transforms a window, drops the lines of less than half the largest
//! amplitude, and transforms back. The largest is that of the constant term wherever the mean exceeds the swings,
//! and then no line is left.

use std::f64::consts::TAU;

use super::Spectral;
use super::series;
use crate::Predictor;

/// The value `steps` after a window, from the lines that are left; `constant_counts` as in the paper.
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

/// Mean absolute errors one step ahead over the end of a series: as in the paper, with the constant term apart, of
/// ours, of persistence.
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

/// Bandwidth of 500 that swings by 100, period 24: on a line of a window of 48. Between two lines of one of
/// 60, the swings are seen, but go on out of step.
#[test]
fn the_constant_term_hides_the_swings() {
    for (window, apart_max) in [(48, 1e-6), (60, 80.0)] {
        let [paper, apart, ours, _] = errors(&series::sine(800), window);
        // The mean alone is left: off by what a sine is off its mean.
        assert!((60.0..67.0).contains(&paper), "{window}: {paper}");
        assert!(apart < apart_max, "{window}: {apart}");
        assert!(ours < 1e-6, "{window}: {ours}");
    }
}

/// With noise, and with steps: repeating the period found is the better extrapolation.
#[test]
fn repetition_is_better_than_the_lines_of_a_window() {
    for (name, values) in [
        ("sine", series::noisy_sine(800)),
        ("checkpoints", series::checkpoints(800)),
    ] {
        let [paper, apart, ours, persistence] = errors(&values, 60);
        println!("{name}: {paper} {apart} {ours} {persistence}");
        assert!(
            ours < apart && ours < paper,
            "{name}: {ours} {apart} {paper}"
        );
    }
}

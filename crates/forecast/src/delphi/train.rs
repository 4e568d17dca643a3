//! Training of the repaired Delphi: each feature on its own family, then the remaining filter and
//! the trust on everything, archived streams included. The same input and seed give the same
//! weights.

use std::ops::ControlFlow;
use std::sync::Arc;

use thiserror::Error;

use super::adam::Adam;
use super::features::SeriesFamily;
use super::repaired::{RepairedDelphi, SILENT_BELOW};
use super::weights::{EXPERTS, FILTERS, HEADS, HORIZONS, REST, WINDOW, Weights};
use crate::{Predictor, Random};

/// The options of a training.
#[derive(Clone, Copy, Debug)]
pub struct TrainingOptions {
    /// Seed of the synthetic series, and of the choice of windows.
    pub seed: u64,
    /// Windows of each stage; ten times as many take ten times as long. Limited to 1,000 to
    /// 300,000.
    pub examples: usize,
}

impl Default for TrainingOptions {
    fn default() -> Self {
        Self {
            seed: 1,
            examples: 60_000,
        }
    }
}

/// The progress of a training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrainingProgress {
    /// Number of completed stages.
    pub done: u32,
    /// Number of all stages.
    pub of: u32,
    /// Mean absolute error of the stage as a multiple of that of the last value, one step ahead or
    /// at the stage's horizon.
    pub error: f64,
}

/// The callback stopped the training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("training was stopped")]
pub struct TrainingStopped;

/// Number of stages: the filters, then the trust of each horizon.
pub const STAGES: u32 = (FILTERS + HEADS) as u32;
/// Length of a synthetic series.
const SERIES_LEN: usize = 192;
/// Number of windows of a synthetic series that are used.
const SERIES_EXAMPLES: usize = 24;

/// Largest weight of an archived series, in synthetic ones.
const SERIES_FACTOR_MAX: f64 = 1e4;

/// Trains with synthetic series and with the given `series`, in equal steps. Values that are not
/// finite are gaps; series shorter than a window and its horizons are not used.
pub fn train(
    series: &[&[f64]],
    options: TrainingOptions,
    mut progress: impl FnMut(TrainingProgress) -> ControlFlow<()>,
) -> Result<Weights, TrainingStopped> {
    let examples = options.examples.clamp(1_000, 300_000);
    let mut random = Random::new(options.seed);
    let mut weights = Weights::zero();
    let mut done = 0;
    let mut tell = |error| {
        done += 1;
        match progress(TrainingProgress {
            done,
            of: STAGES,
            error,
        }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(TrainingStopped),
        }
    };
    for (lane, family) in OF_LANES.into_iter().enumerate() {
        let count = examples.div_ceil(SERIES_EXAMPLES);
        let set: Vec<_> = (0..count)
            .map(|_| family.series(&mut random, SERIES_LEN))
            .collect();
        let windows = windows(set.iter().map(Vec::as_slice), examples, &mut random);
        tell(fit_lane(&mut weights, lane, &windows))?;
    }
    let mixture = mixture(&mut random, examples.div_ceil(SERIES_EXAMPLES));
    let mixture: Vec<&[f64]> = mixture.iter().map(Vec::as_slice).collect();
    let mut windows = windows(mixture.iter().copied(), examples, &mut random);
    windows.extend(self::windows(series.iter().copied(), examples, &mut random));
    tell(fit_lane(&mut weights, REST, &windows))?;
    let frozen = Arc::new(weights.clone());
    for head in 0..HEADS {
        let mut all = opinions(&frozen, head, &mixture, examples * 2, &mut random);
        let half: f64 = all.iter().map(Opinion::stake).sum();
        let first = all.len();
        all.extend(opinions(&frozen, head, series, examples * 2, &mut random));
        // Archived series count as much as synthetic ones, unless hardly anything in them moves.
        let other: f64 = all[first..].iter().map(Opinion::stake).sum();
        let factor = (half / other).min(SERIES_FACTOR_MAX);
        for opinion in &mut all[first..] {
            opinion.weight *= factor;
        }
        tell(fit_trust(&mut weights.trust[head], &all))?;
    }
    Ok(weights)
}

/// The families of the filters that are frozen after they are fitted.
const OF_LANES: [SeriesFamily; REST] = [
    SeriesFamily::Concave,
    SeriesFamily::Convex,
    SeriesFamily::Sine,
    SeriesFamily::Level,
    SeriesFamily::TrendUp,
    SeriesFamily::TrendDown,
    SeriesFamily::Spike,
];

/// Every family, and random walks as often as nine of them: most streams cannot be predicted.
fn mixture(random: &mut Random, count: usize) -> Vec<Vec<f64>> {
    (0..count)
        .map(|at| {
            let family = SeriesFamily::ALL
                .get(at % (SeriesFamily::ALL.len() + 8))
                .copied();
            family
                .unwrap_or(SeriesFamily::RandomWalk)
                .series(random, SERIES_LEN)
        })
        .collect()
}

/// A window and the values after it, in mean steps of the window.
struct Window {
    differences: [f32; WINDOW],
    truth: [f64; HEADS],
}

/// Returns at most `count` windows, chosen uniformly from all places.
fn windows<'a>(
    series: impl Iterator<Item = &'a [f64]> + Clone,
    count: usize,
    random: &mut Random,
) -> Vec<Window> {
    let places: usize = series.clone().map(<[f64]>::len).sum();
    let share = count as f64 / places.max(1) as f64;
    let mut windows = Vec::new();
    let blank = Arc::new(Weights::zero());
    for values in series {
        walk(values, &blank, |at, predictor| {
            if !random.chance(share) || windows.len() >= count {
                return;
            }
            if let (Some(differences), Some(truth)) =
                (predictor.inputs(), truth(values, at, predictor))
            {
                windows.push(Window {
                    differences: *differences,
                    truth,
                });
            }
        });
    }
    windows
}

/// Feeds a series to a predictor, and calls `each` after each value whose window is full.
fn walk(values: &[f64], weights: &Arc<Weights>, mut each: impl FnMut(usize, &RepairedDelphi)) {
    let mut predictor = RepairedDelphi::new(weights.clone());
    let mut run = 0;
    for (at, value) in values.iter().enumerate() {
        if !value.is_finite() {
            predictor.forget();
            run = 0;
            continue;
        }
        predictor.observe(*value);
        run += 1;
        if run > WINDOW {
            each(at, &predictor);
        }
    }
}

/// The value at each horizon; `None` if the series ends before, or is not finite there.
fn truth(values: &[f64], at: usize, predictor: &RepairedDelphi) -> Option<[f64; HEADS]> {
    let mut truth = [0.0; HEADS];
    for (truth, horizon) in truth.iter_mut().zip(HORIZONS) {
        let value = values
            .get(at + horizon as usize)
            .filter(|value| value.is_finite())?;
        *truth = predictor.steps_to(*value);
    }
    Some(truth)
}

/// Fits a filter to least absolute errors, by iteratively reweighted least squares; returns its
/// error as a multiple of that of the last value.
fn fit_lane(weights: &mut Weights, lane: usize, windows: &[Window]) -> f64 {
    const ROUNDS: usize = 8;
    let mut ratio = 1.0;
    for head in (0..HEADS).rev() {
        let mut filter = [0.0f64; WINDOW];
        for _ in 0..ROUNDS {
            filter = weighted_least_squares(windows, lane, head, &filter);
        }
        let (mut ours, mut theirs) = (0.0, 0.0);
        for window in windows {
            let said = said(&filter, window);
            let said = if said.abs() < f64::from(SILENT_BELOW[lane]) {
                0.0
            } else {
                said
            };
            ours += (window.truth[head] - said).abs();
            theirs += window.truth[head].abs();
        }
        ratio = if theirs > 0.0 { ours / theirs } else { 1.0 };
        for (row, weight) in weights.filters[head].iter_mut().zip(filter) {
            row[lane] = if weight.is_finite() {
                weight.clamp(-60.0, 60.0) as f32
            } else {
                0.0
            };
        }
    }
    ratio
}

fn said(filter: &[f64; WINDOW], window: &Window) -> f64 {
    filter
        .iter()
        .zip(window.differences)
        .map(|(weight, value)| weight * f64::from(value))
        .sum()
}

fn weighted_least_squares(
    windows: &[Window],
    lane: usize,
    head: usize,
    before: &[f64; WINDOW],
) -> [f64; WINDOW] {
    // A smaller error counts like its square: otherwise one window would decide.
    const NEAR: f64 = 0.05;
    const RIDGE: f64 = 1e-3;
    let mut matrix = [[0.0; WINDOW]; WINDOW];
    let mut right = [0.0; WINDOW];
    let mut whole = 1.0;
    // A feature that ignores small moves learns only from large ones.
    let large = |window: &&Window| window.truth[head].abs() >= f64::from(SILENT_BELOW[lane]);
    for window in windows.iter().filter(large) {
        let truth = window.truth[head];
        let weight = 1.0 / (truth - said(before, window)).abs().max(NEAR);
        let values = window.differences.map(f64::from);
        for (row, value) in values.iter().enumerate() {
            let weighted = weight * value;
            right[row] += weighted * truth;
            for column in 0..=row {
                matrix[row][column] += weighted * values[column];
            }
        }
        whole += weight;
    }
    for (at, row) in matrix.iter_mut().enumerate() {
        row[at] += RIDGE * whole;
    }
    solve(matrix, right)
}

/// Solves the equations of a symmetric, positive definite matrix (Cholesky); only its lower half is
/// read.
fn solve(mut matrix: [[f64; WINDOW]; WINDOW], mut right: [f64; WINDOW]) -> [f64; WINDOW] {
    for row in 0..WINDOW {
        for column in 0..=row {
            let dot: f64 = (0..column)
                .map(|at| matrix[row][at] * matrix[column][at])
                .sum();
            let rest = matrix[row][column] - dot;
            matrix[row][column] = if row == column {
                rest.max(f64::MIN_POSITIVE).sqrt()
            } else {
                rest / matrix[column][column]
            };
        }
        let dot: f64 = (0..row).map(|at| matrix[row][at] * right[at]).sum();
        right[row] = (right[row] - dot) / matrix[row][row];
    }
    for row in (0..WINDOW).rev() {
        let dot: f64 = (row + 1..WINDOW)
            .map(|at| matrix[at][row] * right[at])
            .sum();
        right[row] = (right[row] - dot) / matrix[row][row];
    }
    right
}

/// The predictions of the features, their confidence, the true value, and the weight of the
/// example.
struct Opinion {
    said: [f32; EXPERTS],
    sure: [f32; EXPERTS],
    truth: f64,
    weight: f64,
}

impl Opinion {
    /// The error of the last value, weighted.
    fn stake(&self) -> f64 {
        self.weight * self.truth.abs()
    }
}

/// Returns at most `count` examples, the same number of each series.
fn opinions(
    weights: &Arc<Weights>,
    head: usize,
    series: &[&[f64]],
    count: usize,
    random: &mut Random,
) -> Vec<Opinion> {
    let mut all: Vec<Opinion> = Vec::new();
    let of_each = count as f64 / series.len().max(1) as f64;
    for values in series {
        let first = all.len();
        let share = of_each / values.len().max(1) as f64;
        walk(values, weights, |at, predictor| {
            let later = values
                .get(at + HORIZONS[head] as usize)
                .filter(|value| value.is_finite());
            let (Some(value), Some(_)) = (later, predictor.inputs()) else {
                return;
            };
            if random.chance(share) && all.len() < count {
                let (said, sure) = predictor.opinions(head);
                all.push(Opinion {
                    said,
                    sure,
                    truth: predictor.steps_to(*value),
                    weight: 1.0,
                });
            }
        });
        // Each series counts the same: by the improvement over the last value. A series that
        // returns to where it was counts by its mean step instead.
        let taken = all.len() - first;
        let theirs: f64 = all[first..].iter().map(Opinion::stake).sum();
        for opinion in &mut all[first..] {
            opinion.weight = 1.0 / theirs.max(taken as f64);
        }
    }
    all
}

/// Descends the absolute error, in the logarithm of trust; returns the error as a multiple of that
/// of the last value.
fn fit_trust(trust: &mut [f32; EXPERTS], opinions: &[Opinion]) -> f64 {
    const ROUNDS: usize = 300;
    const RATE: f64 = 0.03;
    const REACH: f64 = 8.0;
    let mut logarithms = [0.0f64; EXPERTS];
    let mut adam = Adam::<EXPERTS>::new(RATE);
    let whole: f64 = opinions.iter().map(Opinion::stake).sum();
    let mut ratio = 1.0;
    for _ in 0..ROUNDS {
        let mut gradient = [0.0; EXPERTS];
        let mut error = 0.0;
        let factors = logarithms.map(f64::exp);
        for opinion in opinions {
            error += trust_gradient(&factors, opinion, &mut gradient);
        }
        if whole > 0.0 {
            ratio = error / whole;
            let gradient = gradient.map(|slope| slope / whole);
            adam.step(&mut logarithms, &gradient);
        }
        logarithms = logarithms.map(|value| value.clamp(-REACH, REACH));
    }
    *trust = logarithms.map(|value| value.exp() as f32);
    ratio
}

/// Adds the slope of one error to the gradient; returns the error, weighted.
fn trust_gradient(
    factors: &[f64; EXPERTS],
    opinion: &Opinion,
    gradient: &mut [f64; EXPERTS],
) -> f64 {
    let confidence: [f64; EXPERTS] =
        std::array::from_fn(|at| factors[at] * f64::from(opinion.sure[at]));
    let whole: f64 = confidence.iter().sum();
    let sum: f64 = confidence
        .iter()
        .zip(opinion.said)
        .map(|(sure, said)| sure * f64::from(said))
        .sum();
    let out = sum / whole;
    let off = out - opinion.truth;
    // The slope of |off|, without its corner.
    let slope = opinion.weight * (off / 0.02).clamp(-1.0, 1.0);
    for (at, gradient) in gradient.iter_mut().enumerate() {
        *gradient += slope * confidence[at] * (f64::from(opinion.said[at]) - out) / whole;
    }
    opinion.weight * off.abs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delphi::weights::committed::WEIGHTS;

    const SHORT: TrainingOptions = TrainingOptions {
        seed: 3,
        examples: 2_000,
    };

    fn trained(series: &[&[f64]]) -> Weights {
        train(series, SHORT, |_| ControlFlow::Continue(())).unwrap()
    }

    /// Absolute error one step ahead, as a multiple of that of the last value.
    fn error(weights: &Weights, series: &[f64]) -> f64 {
        let mut predictor = RepairedDelphi::new(Arc::new(weights.clone()));
        let (mut ours, mut theirs) = (0.0, 0.0);
        for pair in series.windows(2) {
            predictor.observe(pair[0]);
            ours += (pair[1] - predictor.predict(1)).abs();
            theirs += (pair[1] - pair[0]).abs();
        }
        ours / theirs
    }

    #[test]
    fn the_same_seed_gives_the_same_weights_and_another_gives_others() {
        let weights = trained(&[]);
        assert_eq!(weights, trained(&[]));
        let other = TrainingOptions { seed: 4, ..SHORT };
        assert_ne!(
            Ok(weights),
            train(&[], other, |_| ControlFlow::Continue(()))
        );
    }

    /// The full training takes a minute here; a short one with another seed must come close to its
    /// result.
    #[test]
    fn the_committed_weights_are_those_of_such_a_training() {
        let options = TrainingOptions {
            seed: 3,
            examples: 6_000,
        };
        let weights = train(&[], options, |_| ControlFlow::Continue(())).unwrap();
        for family in SeriesFamily::ALL {
            let series: Vec<Vec<f64>> = (77..97)
                .map(|seed| family.series(&mut Random::new(seed), 400))
                .collect();
            let mean = |weights: &Weights| {
                series
                    .iter()
                    .map(|series| error(weights, series))
                    .sum::<f64>()
                    / series.len() as f64
            };
            let (short, committed) = (mean(&weights), mean(&WEIGHTS));
            println!("{:15} {short:.3} {committed:.3}", family.name());
            assert!(
                (short - committed).abs() < 0.15,
                "{} {short} {committed}",
                family.name()
            );
        }
    }

    #[test]
    fn progress_is_told_and_may_stop_it() {
        let mut told = Vec::new();
        train(&[], SHORT, |progress| {
            told.push(progress);
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(told.len(), STAGES as usize);
        assert!(
            told.iter()
                .all(|one| one.of == STAGES && one.error.is_finite())
        );
        assert_eq!(told.last().map(|one| one.done), Some(STAGES));
        assert_eq!(
            train(&[], SHORT, |_| ControlFlow::Break(())),
            Err(TrainingStopped)
        );
    }

    /// Each value is the one three before it, turned: no family contains that.
    #[test]
    fn what_is_archived_is_learned() {
        let mut random = Random::new(5);
        let mut series = vec![0.0; 3];
        for at in 3..6000 {
            let before: f64 = series[at - 3];
            series.push(-0.95 * before + random.normal());
        }
        let (seen, unseen) = series.split_at(4000);
        let (without, with) = (
            error(&trained(&[]), unseen),
            error(&trained(&[seen]), unseen),
        );
        println!("{without:.3} {with:.3}");
        assert!(with < without * 0.97, "{with} {without}");
    }

    /// The last value is never wrong there: a sum in a denominator is 0.
    #[test]
    fn a_series_that_moved_once_leaves_the_rest_trained() {
        let mut series = [1.0; 300];
        series[0] = 0.0;
        series[12..].fill(2.0);
        for trust in trained(&[&series]).trust {
            assert_ne!(trust, [1.0; EXPERTS]);
        }
    }

    #[test]
    fn any_series_gives_weights_that_can_be_kept() {
        let nan = [f64::NAN; 300];
        let mut holes = SeriesFamily::RandomWalk.series(&mut Random::new(1), 900);
        for at in (0..900).step_by(90) {
            holes[at] = f64::INFINITY;
        }
        let huge: Vec<f64> = (0..300)
            .map(|at| if at % 2 == 0 { f64::MAX } else { f64::MIN })
            .collect();
        let weights = trained(&[
            &[],
            &[1.0],
            &nan,
            &[7.0; 300],
            &holes,
            &huge,
            &[5e-324; 300],
        ]);
        assert_eq!(
            Weights::from_bytes(weights.to_text().as_bytes()),
            Ok(weights)
        );
    }

    #[test]
    fn equations_are_solved() {
        let mut matrix = [[0.0; WINDOW]; WINDOW];
        for (at, row) in matrix.iter_mut().enumerate() {
            row[..=at].fill(1.0);
            row[at] = 3.0;
        }
        // Each row of the whole matrix sums to 18.
        let solution = solve(matrix, [36.0; WINDOW]);
        assert!(
            solution.iter().all(|value| (value - 2.0).abs() < 1e-9),
            "{solution:?}"
        );
    }
}

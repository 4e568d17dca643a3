//! Forecasts of the reader's bandwidth from its own past: the mean, the thresholded transform of
//! Tango, and Holt-Winters.

use realfft::RealFftPlanner;
use realfft::num_complex::Complex;

use crate::predictors::{JUMP_MAX, seasons};

/// Most steps of the past that are used, the newest.
pub const WINDOW_MAX: usize = 256;

/// Most steps ahead.
pub const HORIZON_MAX: usize = 256;

/// Smoothing factors that are tried, for level, trend and season; the set with the least squared
/// error one step ahead is used.
const LEVELS: [f64; 3] = [0.02, 0.1, 0.3];
const TRENDS: [f64; 2] = [0.0, 0.05];
const SEASONS: [f64; 3] = [0.1, 0.3, 0.6];

/// The share of a trend that is left a step later.
const DAMPING: f64 = 0.9;

/// The place of the constant term in the threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConstantTerm {
    /// Its amplitude counts for the largest one. This is the paper taken literally: where the mean
    /// exceeds the swings, the mean is all that is left.
    Counts,
    /// It does not count, and is always kept: the threshold is a share of the largest swing.
    Apart,
}

/// A forecast of the next steps from the past ones.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StepModel {
    /// The mean of the window.
    Mean,
    /// The thresholded discrete Fourier transform (Tango, Algorithm 1, lines 3 to 5): terms with
    /// less than a share of the largest amplitude are dropped, and the transform back is continued
    /// as it is, with the length of the window as its period. With a share of 0 the window is
    /// replayed.
    Transform {
        /// The threshold, as a share of the largest amplitude. The paper tries 0.25, 0.5 and 0.75
        /// (IV-B, Fig. 7).
        share: f64,
        /// The place of the constant term, on which the paper is silent.
        constant: ConstantTerm,
    },
    /// The additive method of Holt and Winters with a damped trend (Hyndman and Athanasopoulos,
    /// Forecasting: Principles and Practice, 3rd edition, 8.3), with the season from the
    /// autocorrelation.
    HoltWinters,
}

/// A forecast from the past.
#[derive(Debug, Clone, PartialEq)]
pub struct HistoryForecast {
    /// The values of the next steps: finite.
    pub values: Vec<f64>,
    /// The season that repeats, in steps: the window for the transform. [`None`] for the mean.
    pub season: Option<usize>,
}

impl StepModel {
    /// Forecasts `steps` values (at most [`HORIZON_MAX`]) after `history`, oldest first. [`None`]
    /// if the past is too short, has no season for Holt-Winters, or has values that are not finite
    /// or beyond 1e150.
    pub fn forecast(&self, history: &[f64], steps: usize) -> Option<HistoryForecast> {
        let window = &history[history.len().saturating_sub(WINDOW_MAX)..];
        if window.is_empty() || !window.iter().all(|value| value.abs() < JUMP_MAX) {
            return None;
        }
        let steps = steps.min(HORIZON_MAX);
        let forecast = match self {
            Self::Mean => HistoryForecast {
                values: vec![mean(window); steps],
                season: None,
            },
            Self::Transform { share, constant } => {
                let kept = thresholded(window, *share, *constant)?;
                HistoryForecast {
                    values: (0..steps).map(|step| kept[step % kept.len()]).collect(),
                    season: Some(kept.len()),
                }
            }
            Self::HoltWinters => {
                let fitted = HoltWinters::fitted(window)?;
                HistoryForecast {
                    values: fitted.path(steps),
                    season: Some(fitted.offsets.len()),
                }
            }
        };
        let is_finite = forecast.values.iter().all(|value| value.is_finite());
        is_finite.then_some(forecast)
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The window, transformed, thresholded, and transformed back.
fn thresholded(window: &[f64], share: f64, constant: ConstantTerm) -> Option<Vec<f64>> {
    let count = window.len();
    let mut planner = RealFftPlanner::new();
    let forward = planner.plan_fft_forward(count);
    let backward = planner.plan_fft_inverse(count);
    let mut series = window.to_vec();
    let mut terms = forward.make_output_vec();
    forward.process(&mut series, &mut terms).ok()?;
    let first = usize::from(constant == ConstantTerm::Apart);
    let largest = terms
        .iter()
        .skip(first)
        .map(|term| term.norm())
        .fold(0.0, f64::max);
    for term in terms.iter_mut().skip(first) {
        if term.norm() < share * largest {
            *term = Complex::new(0.0, 0.0);
        }
    }
    // Rounding must not leave an imaginary part where there is none.
    terms[0].im = 0.0;
    if count.is_multiple_of(2) {
        terms[count / 2].im = 0.0;
    }
    backward.process(&mut terms, &mut series).ok()?;
    for value in &mut series {
        *value /= count as f64;
    }
    Some(series)
}

/// The state of the method after a window.
struct HoltWinters {
    level: f64,
    trend: f64,
    /// The offsets of the next season, the next step first.
    offsets: Vec<f64>,
}

impl HoltWinters {
    /// Runs all smoothing factors over the window, for each season that the correlation suggests,
    /// and returns the state of the best.
    fn fitted(window: &[f64]) -> Option<Self> {
        let mut best: Option<(f64, Self)> = None;
        for season in seasons(window).filter(|season| 2 * season <= window.len()) {
            for level in LEVELS {
                for trend in TRENDS {
                    for offset in SEASONS {
                        let (error, state) = Self::run(window, season, [level, trend, offset]);
                        if best.as_ref().is_none_or(|(least, _)| error < *least) {
                            best = Some((error, state));
                        }
                    }
                }
            }
        }
        best.map(|(_, state)| state)
    }

    /// Runs one set of factors, and returns the mean squared error one step ahead.
    fn run(window: &[f64], season: usize, factors: [f64; 3]) -> (f64, Self) {
        let [level, trend, offset] = factors;
        // The first season starts the level and the offsets, and is not predicted.
        let (begin, rest) = window.split_at(season);
        let mut state = Self {
            level: mean(begin),
            trend: 0.0,
            offsets: Vec::new(),
        };
        state.offsets = begin.iter().map(|value| value - state.level).collect();
        let mut sum = 0.0;
        for (at, value) in rest.iter().enumerate() {
            let at = at % season;
            let steady = state.level + DAMPING * state.trend;
            let error = value - steady - state.offsets[at];
            sum += error * error;
            state.level = steady + level * error;
            state.trend = DAMPING * state.trend + level * trend * error;
            state.offsets[at] += offset * (1.0 - level) * error;
        }
        state.offsets.rotate_left(rest.len() % season);
        (sum / rest.len() as f64, state)
    }

    fn path(&self, steps: usize) -> Vec<f64> {
        let (mut level, mut trend) = (self.level, self.trend);
        let next = |step: usize| {
            trend *= DAMPING;
            level += trend;
            level + self.offsets[step % self.offsets.len()]
        };
        (0..steps).map(next).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waves(count: usize) -> Vec<f64> {
        let dip = |at: usize| if at % 6 < 2 { 20.0 } else { 60.0 };
        (0..count).map(|at| dip(at) + (at % 3) as f64).collect()
    }

    #[test]
    fn a_threshold_of_0_replays_the_window() {
        for count in [1, 2, 7, 30, 45] {
            let window = waves(count);
            for constant in [ConstantTerm::Counts, ConstantTerm::Apart] {
                let replay = StepModel::Transform {
                    share: 0.0,
                    constant,
                };
                let forecast = replay.forecast(&window, 2 * count + 1).unwrap();
                for (step, value) in forecast.values.iter().enumerate() {
                    assert!(
                        (value - window[step % count]).abs() < 1e-9,
                        "{count} {step}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_constant_term_that_counts_leaves_the_mean() {
        let window = waves(30);
        let half = |constant| {
            let model = StepModel::Transform {
                share: 0.5,
                constant,
            };
            model.forecast(&window, 30).unwrap().values
        };
        let mean = mean(&window);
        let counts = half(ConstantTerm::Counts);
        assert!(
            counts.iter().all(|value| (value - mean).abs() < 1e-9),
            "{counts:?}"
        );
        let apart = half(ConstantTerm::Apart);
        assert!(
            apart.iter().any(|value| (value - mean).abs() > 10.0),
            "{apart:?}"
        );
    }

    #[test]
    fn a_season_is_continued_at_any_phase() {
        for count in [25, 30, 41, 60] {
            let all = waves(count + 30);
            let forecast = StepModel::HoltWinters.forecast(&all[..count], 30).unwrap();
            assert_eq!(forecast.season, Some(6), "{count}");
            for (step, value) in forecast.values.iter().enumerate() {
                let truth = all[count + step];
                assert!(
                    (value - truth).abs() < 1.0,
                    "{count} {step}: {value} {truth}"
                );
            }
        }
    }

    #[test]
    fn no_season_no_forecast() {
        let table: [(&str, Vec<f64>); 5] = [
            ("nothing", Vec::new()),
            ("constant", vec![7.0; 40]),
            ("ramp", (0..40).map(f64::from).collect()),
            ("not a number", vec![f64::NAN; 40]),
            ("huge", [1e300, -1e300].repeat(20)),
        ];
        for (name, values) in table {
            let forecast = StepModel::HoltWinters.forecast(&values, 5);
            assert!(forecast.is_none(), "{name}: {forecast:?}");
        }
    }

    #[test]
    fn noise_seldom_has_a_season() {
        for count in [25, 30, 45, 60] {
            let found = (0..300).filter(|seed| {
                let mut random = crate::Random::new(*seed);
                let noise: Vec<f64> = (0..count).map(|_| 90.0 + random.normal()).collect();
                StepModel::HoltWinters.forecast(&noise, 1).is_some()
            });
            let found = found.count();
            println!("{count} values: {found} of 300");
            assert!(found <= 24, "{count}: {found} of 300");
        }
    }
}

//! The forecaster of the reader's bandwidth: it follows the model that was best of late, and says
//! why.
//!
//! Each step, every model forecasts all steps ahead; each later measurement is compared with what
//! was forecast for it one step before, two steps before, and so on. Near and far steps have
//! different best models, so steps ahead are divided into bands, each with losses and a calibration
//! of its own. A model is followed only while its recent error is clearly less than that of the
//! mean on the same steps, so that none is worse than the mean for long. Where nothing is periodic,
//! neither a writer nor the reader's past, the mean is the forecast, whatever the errors: a
//! transform of a short window may be right by chance.

use std::collections::VecDeque;
use std::fmt;

use super::outlook::Outlook;
use super::steps::{ConstantTerm, HORIZON_MAX, StepModel, WINDOW_MAX};
use crate::conformal::Calibration;

/// Number of models.
const CANDIDATES: usize = 4;

/// The last steps of the bands of steps ahead; the last band ends with the horizon.
const BAND_ENDS: [usize; 3] = [1, 8, HORIZON_MAX];

/// The share of a loss that is left a step later.
const KEPT: f64 = 1.0 - 1.0 / 24.0;

/// The loss of a model must be less than this share of that of the mean, or of the followed model.
const BETTER: f64 = 0.95;

/// Steps in which a model was compared, before it is followed.
const COMPARED_MIN: u32 = 4;

/// Steps as which the past counts for which the schedules were computed anew.
const RESTART: f64 = 8.0;

/// Fewest past steps for which the schedules are judged anew.
const RESTART_MIN: usize = 8;

/// A model of the bandwidth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Candidate {
    /// The mean of the window, against which all others are measured.
    Mean,
    /// The thresholded transform of Tango.
    Transform,
    /// Holt-Winters.
    HoltWinters,
    /// The schedules of the writers, rolled forward through the shared device.
    Schedules,
}

const ALL: [Candidate; CANDIDATES] = [
    Candidate::Mean,
    Candidate::Transform,
    Candidate::HoltWinters,
    Candidate::Schedules,
];

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mean => "the mean",
            Self::Transform => "the thresholded transform",
            Self::HoltWinters => "Holt-Winters",
            Self::Schedules => "the writers' schedules",
        })
    }
}

/// The configuration of a [`BandwidthForecaster`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InterferenceConfig {
    /// Number of past steps that models see, 1 to [`WINDOW_MAX`].
    pub window: usize,
    /// Number of steps ahead, 1 to [`HORIZON_MAX`].
    pub steps: usize,
    /// The share of measurements that should lie within the half width, 0.5 to 0.99.
    pub confidence: f64,
    /// The threshold of the transform, as a share of the largest swing.
    pub threshold: f64,
}

impl Default for InterferenceConfig {
    /// The window and the threshold of Tango (IV-A), and a confidence of 0.9.
    fn default() -> Self {
        Self {
            window: 30,
            steps: 30,
            confidence: 0.9,
            threshold: 0.5,
        }
    }
}

/// The forecast of one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepForecast {
    /// Bandwidth, in bytes per second: finite and not negative.
    pub value: f64,
    /// The measured bandwidth lies within this distance, with the configured confidence. Infinite
    /// while too few forecasts of such steps were compared.
    pub half_width: f64,
    /// The model that was followed.
    pub by: Candidate,
}

/// The forecast of the next steps.
#[derive(Debug, Clone, PartialEq)]
pub struct BandwidthForecast {
    /// The forecasts of the next steps; none before the first measurement.
    pub steps: Vec<StepForecast>,
    /// The share of measurements that should lie within the half widths.
    pub confidence: f64,
    /// The reason for the models that were followed, for people.
    pub reason: String,
}

/// What was forecast after one step.
#[derive(Debug, Clone)]
struct Paths {
    /// By candidate; the mean is always there.
    models: [Option<Vec<f64>>; CANDIDATES],
    followed: Vec<StepForecast>,
}

/// The losses of one band of steps ahead.
#[derive(Debug, Clone)]
struct Band {
    first: usize,
    last: usize,
    /// Sums of the absolute errors of each candidate, older ones less; and of the mean, on the same
    /// steps.
    losses: [(f64, f64); CANDIDATES],
    /// Steps in which each candidate was compared.
    compared: [u32; CANDIDATES],
    followed: usize,
    calibration: Calibration,
}

impl Band {
    fn new(first: usize, last: usize, confidence: f64) -> Self {
        Self {
            first,
            last,
            losses: [(0.0, 0.0); CANDIDATES],
            compared: [0; CANDIDATES],
            followed: 0,
            calibration: Calibration::new(confidence),
        }
    }

    /// Compares what was forecast with what came. Of the half widths, one step ahead is compared
    /// each time, in turn: the errors of neighbours are nearly the same error.
    fn score(&mut self, pending: &VecDeque<Paths>, value: f64, turn: usize) {
        for loss in &mut self.losses {
            *loss = (KEPT * loss.0, KEPT * loss.1);
        }
        let mut was_compared = [false; CANDIDATES];
        for ahead in self.first..=self.last {
            let Some(paths) = pending
                .len()
                .checked_sub(ahead)
                .and_then(|at| pending.get(at))
            else {
                break;
            };
            let error = |candidate: usize| -> Option<f64> {
                let path = paths.models[candidate].as_ref()?;
                Some((path.get(ahead - 1)? - value).abs())
            };
            let Some(of_mean) = error(0) else { continue };
            for (candidate, was_compared) in was_compared.iter_mut().enumerate() {
                if let Some(error) = error(candidate) {
                    self.losses[candidate].0 += error;
                    self.losses[candidate].1 += of_mean;
                    *was_compared = true;
                }
            }
        }
        for (count, was_compared) in self.compared.iter_mut().zip(was_compared) {
            *count = count.saturating_add(u32::from(was_compared));
        }
        let ahead = self.first + turn % (self.last - self.first + 1);
        let paths = pending
            .len()
            .checked_sub(ahead)
            .and_then(|at| pending.get(at));
        if let Some(step) = paths.and_then(|paths| paths.followed.get(ahead - 1)) {
            self.calibration
                .score((step.value - value).abs(), step.half_width);
        }
        self.follow();
    }

    /// Replaces the losses of the schedules by the mean errors of `own` and `of_mean` for past
    /// steps.
    fn restart(&mut self, own: f64, of_mean: f64) {
        let at = Candidate::Schedules as usize;
        let entries = RESTART * (self.last - self.first + 1) as f64;
        self.losses[at] = (entries * own, entries * of_mean);
        self.compared[at] = self.compared[at].max(COMPARED_MIN);
        self.follow();
    }

    /// The error of a candidate as a multiple of that of the mean. [`None`] if it was not compared
    /// often enough, or the mean made no error.
    fn ratio(&self, candidate: usize) -> Option<f64> {
        let (own, of_mean) = self.losses[candidate];
        let is_known = self.compared[candidate] >= COMPARED_MIN && of_mean > 0.0;
        is_known.then(|| own / of_mean)
    }

    fn follow(&mut self) {
        let mut best = 0;
        let mut least = BETTER;
        for candidate in 1..CANDIDATES {
            if let Some(ratio) = self.ratio(candidate).filter(|ratio| *ratio < least) {
                (best, least) = (candidate, ratio);
            }
        }
        let followed = self.ratio(self.followed).filter(|_| self.followed != 0);
        if followed.is_none_or(|followed| followed >= BETTER || least < BETTER * followed) {
            self.followed = best;
        }
    }

    /// The reason for the forecast by one candidate: the followed one, or the mean in its place.
    fn reason(&self, by: Candidate) -> String {
        let followed = ALL[self.followed];
        if by != followed {
            return format!("{by}, as there is none by {followed} now");
        }
        match self.ratio(self.followed).filter(|_| self.followed != 0) {
            Some(ratio) => format!("{by}, with {ratio:.2} of the error of the mean of late"),
            None if self.compared[0] < COMPARED_MIN => {
                format!("{by}, as too few forecasts were compared yet")
            }
            None => format!("{by}, as no other was clearly better of late"),
        }
    }
}

/// The forecaster of one reader's bandwidth. `examples/interference.rs` measures it.
#[derive(Debug, Clone)]
pub struct BandwidthForecaster {
    config: InterferenceConfig,
    history: VecDeque<f64>,
    /// The newest forecasts, the newest last: one for each step.
    pending: VecDeque<Paths>,
    bands: Vec<Band>,
    turn: usize,
    /// Number of periodic writers in the newest outlook.
    periodic: usize,
}

impl BandwidthForecaster {
    /// Creates a forecaster; numbers outside their ranges are moved into them.
    pub fn new(config: InterferenceConfig) -> Self {
        let config = InterferenceConfig {
            window: config.window.clamp(1, WINDOW_MAX),
            steps: config.steps.clamp(1, HORIZON_MAX),
            confidence: if config.confidence.is_nan() {
                0.9
            } else {
                config.confidence.clamp(0.5, 0.99)
            },
            threshold: config.threshold,
        };
        let mut bands = Vec::new();
        let mut first = 1;
        for end in BAND_ENDS {
            let last = end.min(config.steps);
            if first <= last {
                bands.push(Band::new(first, last, config.confidence));
            }
            first = end + 1;
        }
        Self {
            config,
            history: VecDeque::new(),
            pending: VecDeque::new(),
            bands,
            turn: 0,
            periodic: 0,
        }
    }

    /// Takes in the bandwidth of the newest step (see [`super::corrected`]), in bytes per second,
    /// and the outlook of the next steps if the writers are known; returns the forecast. A step
    /// without a measurement, or with one that is negative or not finite, counts as it was
    /// forecast, and is compared with nothing.
    pub fn step(&mut self, bandwidth: Option<f64>, outlook: Option<&Outlook>) -> BandwidthForecast {
        let measured = bandwidth.filter(|value| (0.0..super::BYTES_MAX).contains(value));
        if let Some(value) = measured {
            self.turn = self.turn.wrapping_add(1);
            for band in &mut self.bands {
                band.score(&self.pending, value, self.turn);
            }
        }
        let newest = self.pending.back();
        let expected = newest.and_then(|paths| paths.followed.first());
        if let Some(value) = measured.or(expected.map(|step| step.value)) {
            self.history.push_back(value);
        }
        while self.history.len() > self.config.window {
            self.history.pop_front();
        }
        self.restart(outlook);
        let models = self.models(outlook);
        let is_periodic = models[Candidate::HoltWinters as usize].is_some()
            || outlook.is_some_and(|outlook| outlook.periodic > 0);
        let followed = self.followed(&models, is_periodic);
        let reason = self.reason(&followed, is_periodic, outlook);
        self.pending.push_back(Paths {
            models,
            followed: followed.clone(),
        });
        while self.pending.len() > self.config.steps {
            self.pending.pop_front();
        }
        BandwidthForecast {
            steps: followed,
            confidence: self.config.confidence,
            reason,
        }
    }

    /// Judges the schedules anew when one more writer is periodic: forecasts that were made before
    /// took it for a constant load.
    fn restart(&mut self, outlook: Option<&Outlook>) {
        let Some(outlook) = outlook else { return };
        let is_new = outlook.periodic > self.periodic;
        self.periodic = outlook.periodic;
        let count = outlook.past.len().min(self.history.len());
        if !is_new || count < RESTART_MIN {
            return;
        }
        let history = self.history.make_contiguous();
        let came = &history[history.len() - count..];
        let expected = &outlook.past[outlook.past.len() - count..];
        let mean = history.iter().sum::<f64>() / history.len() as f64;
        let (mut own, mut of_mean) = (0.0, 0.0);
        for (came, expected) in came.iter().zip(expected) {
            own += (came - expected).abs() / count as f64;
            of_mean += (came - mean).abs() / count as f64;
        }
        if own.is_finite() {
            self.bands
                .iter_mut()
                .for_each(|band| band.restart(own, of_mean));
        }
    }

    /// The forecasts of all models.
    fn models(&mut self, outlook: Option<&Outlook>) -> [Option<Vec<f64>>; CANDIDATES] {
        let history = self.history.make_contiguous();
        let steps = self.config.steps;
        let of = |model: StepModel| model.forecast(history, steps).map(|of| of.values);
        let schedules = outlook
            .filter(|outlook| outlook.periodic > 0)
            .map(|outlook| {
                let values = outlook.steps.iter().map(|step| step.mean);
                values.take(steps).collect::<Vec<f64>>()
            });
        let transform = StepModel::Transform {
            share: self.config.threshold,
            constant: ConstantTerm::Apart,
        };
        [
            of(StepModel::Mean),
            of(transform),
            of(StepModel::HoltWinters),
            schedules.filter(|values| values.iter().all(|value| value.is_finite())),
        ]
    }

    fn followed(
        &self,
        models: &[Option<Vec<f64>>; CANDIDATES],
        is_periodic: bool,
    ) -> Vec<StepForecast> {
        let Some(mean) = &models[0] else {
            return Vec::new();
        };
        let at = |band: &Band, ahead: usize| {
            let followed = if is_periodic { band.followed } else { 0 };
            let value = models[followed]
                .as_ref()
                .and_then(|path| path.get(ahead - 1));
            let (value, by) = match value {
                Some(value) => (*value, ALL[followed]),
                None => (mean[ahead - 1], Candidate::Mean),
            };
            StepForecast {
                value: value.max(0.0),
                half_width: band.calibration.half_width(),
                by,
            }
        };
        let steps = self.bands.iter();
        steps
            .flat_map(|band| (band.first..=band.last).map(move |ahead| at(band, ahead)))
            .collect()
    }

    fn reason(
        &self,
        steps: &[StepForecast],
        is_periodic: bool,
        outlook: Option<&Outlook>,
    ) -> String {
        if steps.is_empty() {
            return "nothing was measured yet".to_owned();
        }
        if !is_periodic {
            return "no period found: the mean".to_owned();
        }
        let of_band = |band: &Band| {
            let by = steps
                .get(band.first - 1)
                .map_or(Candidate::Mean, |step| step.by);
            match band.last - band.first {
                0 => format!("step {}: {}", band.first, band.reason(by)),
                _ => format!("steps {} to {}: {}", band.first, band.last, band.reason(by)),
            }
        };
        let mut text = self
            .bands
            .iter()
            .map(of_band)
            .collect::<Vec<_>>()
            .join("; ");
        if let Some(outlook) = outlook {
            text += &format!(
                "; {} of {} writers are periodic",
                outlook.periodic, outlook.writers
            );
        }
        text
    }
}

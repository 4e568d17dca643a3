//! Forecasts beyond 64 steps: coarser forecasters go on, whose steps are 64 times as long.

use std::sync::Arc;

use crate::delphi::Weights;
use crate::explain::Explanation;
use crate::forecaster::{Forecast, Forecaster, ForecasterConfig, LEVELS, Taken};
use crate::shape::Shape;
use crate::steps::GAP_STEPS_MAX;

/// How many times as long a coarser forecaster's steps are.
pub const COARSER: i64 = GAP_STEPS_MAX as i64;

/// A stream's forecaster and two coarser ones: with steps of a second, one of a minute and one of an hour, so that
/// something is said of the next three days.
///
/// A coarser one is made when the finer has made 64 steps, and is fed with each 64th of its values. That allocates,
/// once each.
pub struct Cascade {
    config: ForecasterConfig,
    delphi: Option<Arc<Weights>>,
    finest: Forecaster,
    /// They see what predictors of the finest see: counters without their resets.
    coarser: [Option<Box<Forecaster>>; 2],
}

impl Cascade {
    /// `config` is of the finest.
    pub fn new(config: ForecasterConfig) -> Self {
        Self::with_delphi(config, None)
    }

    /// The same with [`Forecaster::with_delphi`], at each length of steps.
    pub fn with_delphi(config: ForecasterConfig, delphi: Option<Arc<Weights>>) -> Self {
        Self {
            config,
            finest: Forecaster::with_delphi(config, delphi.clone()),
            delphi,
            coarser: [None, None],
        }
    }

    /// The forecaster whose steps are the stream's.
    pub fn finest(&self) -> &Forecaster {
        &self.finest
    }

    /// A look at the stream.
    pub fn observe(&mut self, ts_ns: i64, value: f64) -> Taken {
        let taken = self.finest.observe(ts_ns, value);
        self.go_on(ts_ns, taken);
        taken
    }

    /// The same of an integer. Counters keep all its digits.
    pub fn observe_int(&mut self, ts_ns: i64, value: i64) -> Taken {
        let taken = self.finest.observe_int(ts_ns, value);
        self.go_on(ts_ns, taken);
        taken
    }

    fn go_on(&mut self, ts_ns: i64, taken: Taken) {
        if matches!(taken, Taken::Late | Taken::NotFinite) {
            return;
        }
        let seen = self.finest.last;
        let (mut finer_steps, mut finer_ns) = (self.finest.now, self.finest.step_ns());
        for coarser in &mut self.coarser {
            let step_ns = finer_ns.saturating_mul(COARSER);
            let Some(coarser) = coarser else {
                if finer_steps >= COARSER.unsigned_abs() {
                    let config = ForecasterConfig {
                        step_ns,
                        ..self.config
                    };
                    let made = Forecaster::with_delphi(config, self.delphi.clone());
                    coarser.insert(Box::new(made)).observe(ts_ns, seen);
                }
                return;
            };
            // Within half a finer step of the time.
            let due = coarser.newest_ns().is_none_or(|newest_ns| {
                ts_ns.saturating_sub(newest_ns) >= step_ns.saturating_sub(finer_ns / 2)
            });
            if !due {
                return;
            }
            coarser.observe(ts_ns, seen);
            (finer_steps, finer_ns) = (coarser.now, coarser.step_ns());
        }
    }

    /// What the stream is at `ts_ns`, said by the finest that says anything of that time. None before the newest
    /// look, and beyond 64 steps of the coarsest.
    pub fn at(&self, ts_ns: i64) -> Option<Forecast> {
        if let Some(forecast) = self.finest.at(ts_ns) {
            return Some(forecast);
        }
        let seen = self.coarser_at(ts_ns)?;
        Some(Forecast {
            value: self.finest.track.float(seen.value),
            ..seen
        })
    }

    /// The same for a stream of integers, see [`Forecaster::at_int`].
    pub fn at_int(&self, ts_ns: i64) -> Option<(i64, Forecast)> {
        if self.finest.at(ts_ns).is_some() {
            return self.finest.at_int(ts_ns);
        }
        let seen = self.coarser_at(ts_ns)?;
        let value = self.finest.track.float(seen.value);
        let int = self.finest.track.int(seen.value)?;
        Some((int, Forecast { value, ..seen }))
    }

    fn coarser_at(&self, ts_ns: i64) -> Option<Forecast> {
        if ts_ns < self.finest.newest_ns()? {
            return None;
        }
        let mut coarser = self.coarser.iter().flatten();
        let mut forecast = coarser.find_map(|coarser| coarser.at(ts_ns))?;
        if self.config.shape == Shape::Counter {
            forecast.value = forecast.value.max(self.finest.last);
        }
        Some(forecast)
    }

    /// How far off a forecast so long after the newest look may be, see [`Forecaster::half_width`].
    pub fn half_width(&self, horizon_ns: i64) -> f64 {
        let Some(newest_ns) = self.finest.newest_ns() else {
            return self.finest.half_width(horizon_ns);
        };
        let ts_ns = newest_ns.saturating_add(horizon_ns);
        if horizon_ns <= 0 || self.finest.at(ts_ns).is_some() {
            return self.finest.half_width(horizon_ns);
        }
        self.coarser_at(ts_ns)
            .map_or(f64::INFINITY, |forecast| forecast.half_width)
    }

    /// Of the finest, and of each coarser one that there is.
    pub fn explain(&self) -> Vec<Explanation> {
        let coarser = self.coarser.iter().flatten();
        std::iter::once(self.finest.explain())
            .chain(coarser.map(|coarser| coarser.explain()))
            .collect()
    }

    /// What is said at the levels of all, calibrated: how long after the newest look, ns, what, and how far off it
    /// may be. Ascending.
    pub(crate) fn calibrated(&self) -> Vec<(f64, f64, f64)> {
        let mut all: Vec<(f64, f64, f64)> = Vec::new();
        let Some(now_ns) = self.finest.newest_ns() else {
            return all;
        };
        let coarser = self.coarser.iter().flatten().map(|coarser| &**coarser);
        for (at, forecaster) in std::iter::once(&self.finest).chain(coarser).enumerate() {
            let Some(newest_ns) = forecaster.newest_ns() else {
                continue;
            };
            for (steps, forecast) in LEVELS.iter().zip(forecaster.levels()) {
                let Some(forecast) = forecast.filter(|forecast| forecast.half_width.is_finite())
                else {
                    continue;
                };
                #[expect(clippy::cast_precision_loss, reason = "a horizon")]
                let after_ns = f64::from(*steps) * forecaster.step_ns() as f64
                    - now_ns.abs_diff(newest_ns) as f64;
                let value = match at {
                    0 => forecast.value,
                    _ => self.finest.track.float(forecast.value),
                };
                if all.last().map_or(0.0, |last| last.0) < after_ns {
                    all.push((after_ns, value, forecast.half_width));
                }
            }
        }
        all
    }
}

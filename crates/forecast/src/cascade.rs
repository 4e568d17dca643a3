//! Forecasts beyond 64 steps, by coarser forecasters whose steps are 64 times as long.

use std::sync::Arc;

use crate::delphi::Weights;
use crate::explain::Explanation;
use crate::forecaster::{Forecast, Forecaster, ForecasterConfig, LEVELS, LookEffect};
use crate::shape::Shape;
use crate::steps::GAP_STEPS_MAX;
use crate::straight::StraightLines;

/// Ratio of the step of a coarser forecaster to that of the finer one.
pub const COARSER: i64 = GAP_STEPS_MAX as i64;

/// The forecaster of a stream and two coarser ones: with steps of a second, of about a minute and
/// of about an hour, so that there are forecasts for the next three days.
///
/// A coarser forecaster is created when the finer one has made 64 steps, and receives each 64th of
/// its values. That allocates, once for each.
pub struct Cascade {
    config: ForecasterConfig,
    delphi: Option<Arc<Weights>>,
    finest: Forecaster,
    /// The coarser forecasters. They see the values that predictors of the finest see: counters
    /// without their resets.
    coarser: [Option<Box<Coarser>>; 2],
    /// The straight line of a stream that has bounds.
    straight: Option<Box<StraightLines>>,
}

/// A forecaster of longer steps.
struct Coarser {
    forecaster: Forecaster,
    /// Its forecasts at its levels since its last value, without bounds: those may change.
    said: [Option<Forecast>; LEVELS.len()],
}

impl Coarser {
    fn observe(&mut self, ts_ns: i64, seen: f64) {
        self.forecaster.observe(ts_ns, seen);
        self.said = self.forecaster.unbounded_levels();
    }
}

/// The accuracy of the forecasts at one horizon.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HorizonCoverage {
    /// The horizon, in ns.
    pub horizon_ns: i64,
    /// Number of forecasts with a half width that were compared with the later value; at most some
    /// hundreds.
    pub compared: u32,
    /// The share of those that lay within it.
    pub share: f64,
}

impl Cascade {
    /// Creates a cascade; `config` is that of the finest forecaster.
    pub fn new(config: ForecasterConfig) -> Self {
        Self::with_delphi(config, None)
    }

    /// Creates a cascade with [`Forecaster::with_delphi`] at each length of steps.
    pub fn with_delphi(config: ForecasterConfig, delphi: Option<Arc<Weights>>) -> Self {
        Self {
            config,
            finest: Forecaster::with_delphi(config, delphi.clone()),
            delphi,
            coarser: [None, None],
            straight: None,
        }
    }

    /// The forecaster whose step is that of the stream.
    pub fn finest(&self) -> &Forecaster {
        &self.finest
    }

    /// Takes in a look at the stream.
    pub fn observe(&mut self, ts_ns: i64, value: f64) -> LookEffect {
        let taken = self.finest.observe(ts_ns, value);
        self.go_on(ts_ns, taken);
        taken
    }

    /// Takes in a look at a stream of integers. Counters keep all their digits.
    pub fn observe_int(&mut self, ts_ns: i64, value: i64) -> LookEffect {
        let taken = self.finest.observe_int(ts_ns, value);
        self.go_on(ts_ns, taken);
        taken
    }

    fn go_on(&mut self, ts_ns: i64, taken: LookEffect) {
        if matches!(taken, LookEffect::Late | LookEffect::NotFinite) {
            return;
        }
        let seen = self.finest.last;
        if matches!(self.config.shape, Shape::Bounded { .. }) {
            let straight = self.straight.get_or_insert_default();
            straight.look(ts_ns, self.finest.track.float(seen));
        }
        let (mut finer_steps, mut finer_ns) = (self.finest.now, self.finest.step_ns());
        for coarser in &mut self.coarser {
            let step_ns = finer_ns.saturating_mul(COARSER);
            let Some(coarser) = coarser else {
                if finer_steps >= COARSER.unsigned_abs() {
                    let config = ForecasterConfig {
                        step_ns,
                        ..self.config
                    };
                    let made = Coarser {
                        forecaster: Forecaster::with_delphi(config, self.delphi.clone()),
                        said: [None; LEVELS.len()],
                    };
                    coarser.insert(Box::new(made)).observe(ts_ns, seen);
                }
                return;
            };
            // Due within half a finer step of its time.
            let due = coarser.forecaster.newest_ns().is_none_or(|newest_ns| {
                ts_ns.saturating_sub(newest_ns) >= step_ns.saturating_sub(finer_ns / 2)
            });
            if !due {
                return;
            }
            coarser.observe(ts_ns, seen);
            (finer_steps, finer_ns) = (coarser.forecaster.now, coarser.forecaster.step_ns());
        }
    }

    /// The value of the stream at `ts_ns`, by the finest forecaster that has a forecast for that
    /// time. `None` before the newest look, and beyond 64 steps of the coarsest.
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

    /// The value for a stream of integers, see [`Forecaster::at_int`].
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
        let mut forecast = coarser.find_map(|coarser| coarser.forecaster.at(ts_ns))?;
        forecast.value = self.possible(forecast.value);
        Some(forecast)
    }

    /// The half width of a forecast `horizon_ns` after the newest look, see
    /// [`Forecaster::half_width`].
    pub fn half_width(&self, horizon_ns: i64) -> f64 {
        let Some(newest_ns) = self.finest.newest_ns() else {
            return self.finest.half_width(horizon_ns);
        };
        let ts_ns = newest_ns.saturating_add(horizon_ns);
        if horizon_ns <= 0 || self.finest.is_within(ts_ns) {
            return self.finest.half_width(horizon_ns);
        }
        self.coarser_at(ts_ns)
            .map_or(f64::INFINITY, |forecast| forecast.half_width)
    }

    /// Explains the finest forecaster and each coarser one that exists.
    pub fn explain(&self) -> Vec<Explanation> {
        let coarser = self.coarser.iter().flatten();
        std::iter::once(self.finest.explain())
            .chain(coarser.map(|coarser| coarser.forecaster.explain()))
            .collect()
    }

    /// The share of values that lay within their forecast's half width, at each horizon for which
    /// it is known, in ascending order.
    pub fn coverage(&self) -> impl Iterator<Item = HorizonCoverage> + '_ {
        let coarser = self.coarser.iter().flatten();
        let coarser = coarser.map(|coarser| (&coarser.forecaster, 1));
        // The first level of a coarser forecaster is left out: one of its steps is 64 of the finer,
        // which has a coverage for that horizon.
        let all = std::iter::once((&self.finest, 0)).chain(coarser);
        all.flat_map(|(forecaster, from)| {
            forecaster.levels[from..].iter().filter_map(|level| {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "at most some hundreds"
                )]
                Some(HorizonCoverage {
                    horizon_ns: forecaster.step_ns().saturating_mul(i64::from(level.steps)),
                    compared: level.calibration.compared() as u32,
                    share: level.calibration.coverage()?,
                })
            })
        })
    }

    /// Sets the values that the stream can have from now on, see [`Forecaster::set_shape`].
    pub fn set_shape(&mut self, shape: Shape) {
        self.finest.set_shape(shape);
        self.config.shape = self.finest.shape;
        for coarser in self.coarser.iter_mut().flatten() {
            coarser.forecaster.set_shape(shape);
        }
    }

    /// Seconds after the newest look until a bound is met if the stream goes on in its recent
    /// straight line, and that bound.
    pub(crate) fn straight_on(&self) -> Option<(f64, f64)> {
        let here = self.finest.track.float(self.finest.last);
        self.straight
            .as_ref()?
            .meets(self.config.shape.bounds(here)?)
    }

    /// Limits an earlier forecast of a coarser forecaster to the values that are possible now.
    fn possible(&self, seen: f64) -> f64 {
        self.config.shape.possible(self.finest.last, seen)
    }

    /// The calibrated forecasts of the coarser forecasters at their levels: time after the newest
    /// look in ns, value, half width. Those of each forecaster ascend; they may overlap with the
    /// finest and with each other. A bounded stream goes on beyond its bounds.
    pub(crate) fn calibrated_beyond(&self) -> impl Iterator<Item = (f64, f64, f64)> + '_ {
        let now_ns = self.finest.newest_ns().unwrap_or_default();
        self.coarser.iter().flatten().flat_map(move |coarser| {
            let Coarser { forecaster, said } = &**coarser;
            let passed_ns = now_ns.abs_diff(forecaster.newest_ns().unwrap_or(now_ns));
            LEVELS.iter().zip(said).filter_map(move |(steps, said)| {
                let said = said.filter(|said| said.half_width.is_finite())?;
                let possible = self.possible(said.value);
                // A forecast that the value stays holds from now on as well, while the value has
                // stayed: so the projection of a stream that does not change stays the same, too.
                let stays = forecaster.last.to_bits() == self.finest.last.to_bits()
                    && possible.to_bits() == self.finest.last.to_bits();
                #[expect(clippy::cast_precision_loss, reason = "a horizon")]
                let passed_ns = if stays { 0.0 } else { passed_ns as f64 };
                #[expect(clippy::cast_precision_loss, reason = "a horizon")]
                let after_ns = f64::from(*steps) * forecaster.step_ns() as f64 - passed_ns;
                let seen = match self.config.shape.bounds(self.finest.last) {
                    Some(_) => said.value,
                    None => possible,
                };
                Some((after_ns, self.finest.track.float(seen), said.half_width))
            })
        })
    }
}

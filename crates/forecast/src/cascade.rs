//! Forecasts beyond 64 steps: coarser forecasters go on, whose steps are 64 times as long.

use std::sync::Arc;

use crate::delphi::Weights;
use crate::explain::Explanation;
use crate::forecaster::{Forecast, Forecaster, ForecasterConfig, LEVELS, Taken};
use crate::shape::Shape;
use crate::steps::GAP_STEPS_MAX;
use crate::straight::Straight;

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
    coarser: [Option<Box<Coarser>>; 2],
    /// Of what has bounds.
    straight: Option<Box<Straight>>,
}

/// A forecaster of longer steps.
struct Coarser {
    forecaster: Forecaster,
    /// What it says at its levels since it was fed last, as if there were no bounds: those may change.
    said: [Option<Forecast>; LEVELS.len()],
}

impl Coarser {
    fn observe(&mut self, ts_ns: i64, seen: f64) {
        self.forecaster.observe(ts_ns, seen);
        self.said = self.forecaster.unbounded_levels();
    }
}

/// How well what was said at one horizon did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Coverage {
    /// The horizon.
    pub horizon_ns: i64,
    /// How many forecasts that had a half width were compared with what came; at most some hundreds.
    pub compared: u32,
    /// Which share of those was within it.
    pub share: f64,
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
            straight: None,
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
            // Within half a finer step of the time.
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
        let mut forecast = coarser.find_map(|coarser| coarser.forecaster.at(ts_ns))?;
        forecast.value = self.possible(forecast.value);
        Some(forecast)
    }

    /// How far off a forecast so long after the newest look may be, see [`Forecaster::half_width`].
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

    /// Of the finest, and of each coarser one that there is.
    pub fn explain(&self) -> Vec<Explanation> {
        let coarser = self.coarser.iter().flatten();
        std::iter::once(self.finest.explain())
            .chain(coarser.map(|coarser| coarser.forecaster.explain()))
            .collect()
    }

    /// Which share of what came was within what was said, at each horizon of which that is known. Ascending.
    pub fn coverage(&self) -> impl Iterator<Item = Coverage> + '_ {
        let coarser = self.coarser.iter().flatten();
        let coarser = coarser.map(|coarser| (&coarser.forecaster, 1));
        // One step of a coarser one is 64 of the finer, which has said how well it did.
        let all = std::iter::once((&self.finest, 0)).chain(coarser);
        all.flat_map(|(forecaster, from)| {
            forecaster.levels[from..].iter().filter_map(|level| {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "at most some hundreds"
                )]
                Some(Coverage {
                    horizon_ns: forecaster.step_ns().saturating_mul(i64::from(level.steps)),
                    compared: level.calibration.compared() as u32,
                    share: level.calibration.coverage()?,
                })
            })
        })
    }

    /// What values the stream can have from now on, see [`Forecaster::set_shape`].
    pub fn set_shape(&mut self, shape: Shape) {
        self.finest.set_shape(shape);
        self.config.shape = self.finest.shape;
        for coarser in self.coarser.iter_mut().flatten() {
            coarser.forecaster.set_shape(shape);
        }
    }

    /// When a bound is met if the stream goes on as straight as of late, seconds after the newest look, and that bound.
    pub(crate) fn straight_on(&self) -> Option<(f64, f64)> {
        let here = self.finest.track.float(self.finest.last);
        self.straight
            .as_ref()?
            .meets(self.config.shape.bounds(here)?)
    }

    /// What a coarser forecaster said some time ago, drawn into what is possible now.
    fn possible(&self, seen: f64) -> f64 {
        self.config.shape.possible(self.finest.last, seen)
    }

    /// What coarser ones say at their levels, calibrated: how long after the newest look, ns, what, and how far off it may be.
    /// Each of them ascends; they may overlap with the finest and with each other. What has bounds goes on beyond them.
    pub(crate) fn calibrated_beyond(&self) -> impl Iterator<Item = (f64, f64, f64)> + '_ {
        let now_ns = self.finest.newest_ns().unwrap_or_default();
        self.coarser.iter().flatten().flat_map(move |coarser| {
            let Coarser { forecaster, said } = &**coarser;
            let passed_ns = now_ns.abs_diff(forecaster.newest_ns().unwrap_or(now_ns));
            LEVELS.iter().zip(said).filter_map(move |(steps, said)| {
                let said = said.filter(|said| said.half_width.is_finite())?;
                let possible = self.possible(said.value);
                // Who says that it stays as it was says so of now as well, as long as it is as it was: so what is said
                // of a stream that stands still stays the same, too.
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

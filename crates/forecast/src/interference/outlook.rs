//! The bandwidth of the reader's next steps, from the schedules of the writers.
//!
//! Schedules are rolled forward through the device several times, each time with other delays and
//! sizes within their spreads, and with other periods and phases within their errors. The mean over
//! these draws is the forecast with the least squared error: far ahead, where it is not known any
//! more which steps meet a burst, it goes to the mean by itself.

use super::estimate::WriterEstimate;
use super::schedule::{Pacing, Schedule};
use super::sharing::{Arrival, Fluid, Load, Read};
use super::{is_positive, sound_bytes, sound_time};
use crate::random::Random;

/// Number of draws. Each second one is the mirror image of the one before.
pub const DRAWS: usize = 24;

/// Most writers with a load of their own; those after them count as one constant load.
pub const WRITERS_MAX: usize = 256;

/// Most bursts of all writers in one draw.
pub const ARRIVALS_MAX: usize = 8_192;

/// Seconds after the begin of the last read for which bursts are rolled forward.
const AFTER_S: f64 = 600.0;

/// Largest delay that is drawn, in spreads.
const DELAY_MAX: f64 = 3.0;

/// A writer on the device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Writer {
    /// Weight of its group.
    pub weight: f64,
    /// The estimate of its load.
    pub estimate: WriterEstimate,
}

/// The bandwidth that a read is expected to get.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExpectedBandwidth {
    /// Mean over the draws, in bytes per second.
    pub mean: f64,
    /// Standard deviation over the draws, in bytes per second.
    pub spread: f64,
}

/// The bandwidths of the next reads, and the number of writers that they follow from.
#[derive(Debug, Clone, PartialEq)]
pub struct Outlook {
    /// The bandwidths, read by read.
    pub steps: Vec<ExpectedBandwidth>,
    /// Number of writers.
    pub writers: usize,
    /// Number of writers with a schedule.
    pub periodic: usize,
    /// The bandwidths that the same schedules give for the newest past reads, oldest first, as mean
    /// over the draws. May be empty.
    pub past: Vec<f64>,
}

impl Outlook {
    /// Computes the outlook of `reads`, in order of time, on a device with a capacity in bytes per
    /// second. The same seed gives the same outlook.
    pub fn of(capacity: f64, writers: &[Writer], now_s: f64, reads: &[Read], seed: u64) -> Self {
        let now_s = sound_time(now_s).unwrap_or(0.0);
        let mut sums = vec![(0.0, 0.0); reads.len()];
        for draw in 0..DRAWS {
            let mut chance = Chance {
                random: Random::new(seed.wrapping_add(draw as u64 / 2)),
                sign: if draw % 2 == 0 { 1.0 } else { -1.0 },
            };
            let loads = loads(writers, now_s, reads, &mut chance);
            let bandwidths = Fluid::new(capacity, now_s, &loads, reads).finish();
            for (sum, bandwidth) in sums.iter_mut().zip(bandwidths) {
                sum.0 += bandwidth;
                sum.1 += bandwidth * bandwidth;
            }
        }
        let draws = DRAWS as f64;
        let expected = |(sum, squares): (f64, f64)| {
            let mean = sum / draws;
            ExpectedBandwidth {
                mean,
                spread: (squares / draws - mean * mean).max(0.0).sqrt(),
            }
        };
        let is_periodic = |writer: &&Writer| writer.estimate.schedule.is_ok();
        Self {
            steps: sums.into_iter().map(expected).collect(),
            writers: writers.len(),
            periodic: writers.iter().take(WRITERS_MAX).filter(is_periodic).count(),
            past: Vec::new(),
        }
    }

    /// Adds what the same schedules, continued backwards, give for `past` reads, the newest last.
    /// A forecaster compares that with what was measured when a writer becomes known to be
    /// periodic, and need not wait until its forecasts have come true.
    #[must_use]
    pub fn with_past(
        mut self,
        capacity: f64,
        writers: &[Writer],
        past: &[Read],
        seed: u64,
    ) -> Self {
        let Some(from_s) = past.first().and_then(|read| sound_time(read.at_s)) else {
            return self;
        };
        let back = |writer: &Writer| Writer {
            estimate: WriterEstimate {
                schedule: writer
                    .estimate
                    .schedule
                    .map(|schedule| schedule.back(from_s)),
                outstanding: 0.0,
                ..writer.estimate
            },
            ..*writer
        };
        let writers: Vec<Writer> = writers.iter().map(back).collect();
        let outlook = Self::of(capacity, &writers, from_s, past, seed);
        self.past = outlook.steps.iter().map(|step| step.mean).collect();
        self
    }
}

/// Normal numbers, and their mirror images in each second draw.
struct Chance {
    random: Random,
    sign: f64,
}

impl Chance {
    fn normal(&mut self) -> f64 {
        self.sign * self.random.normal().clamp(-DELAY_MAX, DELAY_MAX)
    }
}

/// The loads of the writers in one draw.
fn loads(writers: &[Writer], now_s: f64, reads: &[Read], chance: &mut Chance) -> Vec<Load> {
    let times = reads.iter().filter_map(|read| sound_time(read.at_s));
    let until_s = times.fold(now_s, f64::max) + AFTER_S;
    let (own, others) = writers.split_at(writers.len().min(WRITERS_MAX));
    let each = ARRIVALS_MAX / own.len().max(1);
    let mut loads: Vec<Load> = own
        .iter()
        .map(|writer| load(writer, now_s, until_s, each, chance))
        .collect();
    if !others.is_empty() {
        let sound = |writer: &Writer| sound_bytes(writer.estimate.mean_rate);
        loads.push(Load {
            weight: others.iter().map(|writer| writer.weight.max(0.0)).sum(),
            outstanding: 0.0,
            rate: others.iter().map(sound).sum(),
            bursts: Vec::new(),
        });
    }
    loads
}

fn load(writer: &Writer, now_s: f64, until_s: f64, most: usize, chance: &mut Chance) -> Load {
    let WriterEstimate {
        schedule,
        mean_rate,
        background_rate,
        outstanding,
    } = writer.estimate;
    let (rate, bursts) = match schedule {
        Ok(schedule) => (background_rate, schedule.draw(now_s, until_s, most, chance)),
        Err(_) => (mean_rate, Vec::new()),
    };
    Load {
        weight: writer.weight,
        outstanding,
        rate,
        bursts,
    }
}

impl Schedule {
    /// The schedule with the first start after `from_s` as the next one.
    fn back(mut self, from_s: f64) -> Self {
        let periods = ((self.next_s - from_s) / self.period_s).floor();
        if periods.is_finite() {
            self.next_s -= periods * self.period_s;
            self.reach -= periods;
        }
        self
    }

    /// The bursts between two times in one draw, at most `most`.
    fn draw(&self, now_s: f64, until_s: f64, most: usize, chance: &mut Chance) -> Vec<Arrival> {
        let (phase, period) = (chance.normal(), chance.normal());
        let phase_s = self.phase_error_s * phase;
        let mut delay_s = 0.0;
        let mut arrivals = Vec::new();
        for number in 0..most {
            let number = number as f64;
            let expected_s = self.next_s + number * self.period_s;
            // A period of 0, or of no number, never gets anywhere.
            if !is_positive(self.period_s) || !is_positive(until_s - expected_s) {
                break;
            }
            let own_s = self.start_spread_s * chance.normal();
            delay_s = match self.pacing {
                Pacing::Clock => own_s,
                Pacing::AfterLast => delay_s + own_s,
            };
            let bytes = self.bytes + self.bytes_spread * chance.normal();
            let is_there = chance.random.unit() < self.presence;
            let off_s = phase_s + self.period_error_s * period * (self.reach + number) + delay_s;
            if is_there {
                arrivals.push(Arrival {
                    at_s: (expected_s + off_s).max(now_s),
                    bytes,
                });
            }
        }
        arrivals
    }
}

//! The bursts of one writer, found in the readings of its byte counter.
//!
//! A rate above a threshold begins a burst, and a rate below half of that threshold, for longer
//! than a short pause, ends it. Both follow from the readings themselves: the threshold is a share
//! of the rate at which the writer moves its bytes, above the rate that it always has.

use super::{BYTES_MAX, median, sound_time};

/// Most readings that are looked at, the newest: four hours at one each second.
pub const READINGS_MAX: usize = 14_400;

/// Most bursts that are kept, the newest.
pub const BURSTS_MAX: usize = 512;

/// The shares of the distance between the constant rate and the rate of bursts at which a burst
/// begins and ends. They are low, as a burst that shares the device with five others is slow.
const ON: f64 = 0.1;
const OFF: f64 = 0.05;

/// The constant rate is the one below which the writer is for this share of the time.
const ALWAYS: f64 = 0.1;

/// A writer whose bytes move at less than this multiple of its constant rate has no bursts.
const CONTRAST_MIN: f64 = 2.0;

/// The longest pause within a burst, and the longest distance of two readings that tell the rate
/// between them, as multiples of the usual distance of two readings.
const PAUSE: f64 = 3.0;
const HOLE: f64 = 5.0;

/// Bursts with less than this share of the usual bytes of a burst are left out.
const SMALL: f64 = 0.125;

/// Shortest distance of two readings, in seconds.
const INTERVAL_S_MIN: f64 = 1e-3;

/// One reading of a writer's byte counter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CounterReading {
    /// Time of the reading, in seconds.
    pub at_s: f64,
    /// Bytes written until then, by any origin.
    pub bytes: f64,
}

/// The part of a burst that the readings show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BurstPart {
    /// The whole burst.
    Whole,
    /// The end only: the readings begin within the burst, or have a hole before.
    WithoutStart,
    /// The start only: the burst still runs, or the readings have a hole within it.
    WithoutEnd,
}

/// A time in which a writer writes much more than usual.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Burst {
    /// Start, in seconds: within an interval between two readings by the bytes in it.
    pub start_s: f64,
    /// End of the last interval in which it was seen, in seconds.
    pub end_s: f64,
    /// Bytes beyond the constant rate.
    pub bytes: f64,
    /// The part of it that was seen.
    pub part: BurstPart,
}

/// The bursts of a writer, and what it writes beside them.
#[derive(Debug, Clone, PartialEq)]
pub struct Activity {
    /// The bursts in order of time.
    pub bursts: Vec<Burst>,
    /// Mean rate over the readings, in bytes per second.
    pub mean_rate: f64,
    /// Mean rate of the bytes that are in no burst.
    pub background_rate: f64,
    /// Time of the newest reading, in seconds. [`None`] without readings.
    pub newest_s: Option<f64>,
    /// The newest burst still runs.
    pub is_running: bool,
}

impl Activity {
    /// Finds the bursts in the readings, oldest first. Readings that are not later than the one
    /// before, or are not numbers, are left out; a counter that falls was reset, and tells nothing
    /// about the time before.
    pub fn of(readings: &[CounterReading]) -> Self {
        let series = Series::of(readings);
        let (mut seconds, mut bytes) = (0.0, 0.0);
        for interval in &series.intervals {
            seconds += interval.seconds;
            bytes += interval.bytes;
        }
        let rate = |bytes: f64| if seconds > 0.0 { bytes / seconds } else { 0.0 };
        let found = series.thresholds().map(|thresholds| {
            let mut finder = Finder::new(&series, thresholds);
            finder.find();
            finder.bursts
        });
        let mut bursts = without_small(found.unwrap_or_default());
        bursts.drain(..bursts.len().saturating_sub(BURSTS_MAX));
        let in_bursts: f64 = bursts.iter().map(|burst| burst.bytes).sum();
        let is_running = bursts
            .last()
            .zip(series.newest_s)
            .is_some_and(|(last, to_s)| {
                last.part != BurstPart::Whole && to_s - last.end_s <= series.pause_s
            });
        Self {
            bursts,
            mean_rate: rate(bytes),
            background_rate: rate((bytes - in_bursts).max(0.0)),
            newest_s: series.newest_s,
            is_running,
        }
    }
}

/// The time between two readings.
#[derive(Debug, Clone, Copy)]
struct Interval {
    to_s: f64,
    seconds: f64,
    bytes: f64,
    /// It begins where the interval before ends.
    is_joined: bool,
}

impl Interval {
    fn rate(&self) -> f64 {
        self.bytes / self.seconds
    }
}

/// The readings as intervals.
struct Series {
    intervals: Vec<Interval>,
    newest_s: Option<f64>,
    pause_s: f64,
}

impl Series {
    fn of(readings: &[CounterReading]) -> Self {
        let newest = &readings[readings.len().saturating_sub(READINGS_MAX)..];
        let mut sound: Vec<CounterReading> = Vec::with_capacity(newest.len());
        for reading in newest {
            let is_later = sound
                .last()
                .is_none_or(|last| reading.at_s - last.at_s >= INTERVAL_S_MIN);
            let is_number = (0.0..=BYTES_MAX).contains(&reading.bytes);
            if is_later && is_number && sound_time(reading.at_s).is_some() {
                sound.push(*reading);
            }
        }
        let mut distances: Vec<f64> = sound.windows(2).map(|w| w[1].at_s - w[0].at_s).collect();
        let usual_s = median(&mut distances);
        let mut intervals = Vec::with_capacity(sound.len());
        let mut is_joined = false;
        for pair in sound.windows(2) {
            let seconds = pair[1].at_s - pair[0].at_s;
            let bytes = pair[1].bytes - pair[0].bytes;
            let is_known = bytes >= 0.0 && seconds <= HOLE * usual_s;
            if is_known {
                intervals.push(Interval {
                    to_s: pair[1].at_s,
                    seconds,
                    bytes,
                    is_joined,
                });
            }
            is_joined = is_known;
        }
        Self {
            intervals,
            newest_s: sound.last().map(|reading| reading.at_s),
            pause_s: PAUSE * usual_s,
        }
    }

    /// The rates at which bursts begin and end; [`None`] if the writer has no bursts.
    fn thresholds(&self) -> Option<Thresholds> {
        let mut by_rate: Vec<(f64, f64, f64)> = self
            .intervals
            .iter()
            .map(|interval| (interval.rate(), interval.seconds, interval.bytes))
            .collect();
        by_rate.sort_by(|a, b| a.0.total_cmp(&b.0));
        // The rate below which the sum reaches a share of the whole.
        let at = |share: f64, of: fn(&(f64, f64, f64)) -> f64| -> Option<f64> {
            let mut left = share * by_rate.iter().map(of).sum::<f64>();
            by_rate.iter().find_map(|interval| {
                left -= of(interval);
                (left <= 0.0).then_some(interval.0)
            })
        };
        let always = at(ALWAYS, |interval| interval.1)?;
        let usual = at(0.5, |interval| interval.2)?;
        (usual > CONTRAST_MIN * always).then_some(Thresholds {
            always,
            on: always + ON * (usual - always),
            off: always + OFF * (usual - always),
        })
    }
}

#[derive(Debug, Clone, Copy)]
struct Thresholds {
    /// The rate that the writer always has.
    always: f64,
    on: f64,
    off: f64,
}

/// The walk over the intervals.
struct Finder<'a> {
    series: &'a Series,
    thresholds: Thresholds,
    bursts: Vec<Burst>,
    running: Option<Burst>,
    /// Seconds, and bytes, since the running burst was last above the lower threshold.
    idle: (f64, f64),
}

impl<'a> Finder<'a> {
    fn new(series: &'a Series, thresholds: Thresholds) -> Self {
        Self {
            series,
            thresholds,
            bursts: Vec::new(),
            running: None,
            idle: (0.0, 0.0),
        }
    }

    fn find(&mut self) {
        for at in 0..self.series.intervals.len() {
            let interval = self.series.intervals[at];
            if !interval.is_joined {
                self.end(BurstPart::WithoutEnd);
            }
            let beyond = (interval.bytes - self.thresholds.always * interval.seconds).max(0.0);
            let Some(running) = &mut self.running else {
                if interval.rate() >= self.thresholds.on {
                    self.begin(at, beyond);
                }
                continue;
            };
            if interval.rate() >= self.thresholds.off {
                running.bytes += self.idle.1 + beyond;
                running.end_s = interval.to_s;
                self.idle = (0.0, 0.0);
            } else {
                self.idle.0 += interval.seconds;
                self.idle.1 += beyond;
                if self.idle.0 > self.series.pause_s {
                    self.end(BurstPart::Whole);
                }
            }
        }
        self.end(BurstPart::WithoutEnd);
    }

    fn begin(&mut self, at: usize, beyond: f64) {
        let interval = self.series.intervals[at];
        let above = |interval: &Interval| interval.rate() - self.thresholds.always;
        // The burst began within the interval if the next one, which is full of it, is faster.
        let next = self.series.intervals.get(at + 1);
        let share = match next.filter(|next| next.is_joined).map(above) {
            Some(full) if full > above(&interval) => above(&interval) / full,
            _ => 1.0,
        };
        self.idle = (0.0, 0.0);
        self.running = Some(Burst {
            start_s: interval.to_s - share * interval.seconds,
            end_s: interval.to_s,
            bytes: beyond,
            part: if interval.is_joined {
                BurstPart::Whole
            } else {
                BurstPart::WithoutStart
            },
        });
    }

    fn end(&mut self, part: BurstPart) {
        if let Some(mut burst) = self.running.take() {
            if burst.part == BurstPart::Whole {
                burst.part = part;
            }
            self.bursts.push(burst);
        }
    }
}

/// Leaves out bursts with few bytes, such as those of a log beside checkpoints.
fn without_small(mut bursts: Vec<Burst>) -> Vec<Burst> {
    let mut sizes: Vec<f64> = bursts.iter().map(|burst| burst.bytes).collect();
    sizes.sort_by(f64::total_cmp);
    let mut left = sizes.iter().sum::<f64>() / 2.0;
    let usual = sizes.iter().find(|size| {
        left -= **size;
        left <= 0.0
    });
    let least = SMALL * usual.copied().unwrap_or(0.0);
    bursts.retain(|burst| burst.bytes >= least);
    bursts
}

//! The fit of a schedule to the starts of bursts.
//!
//! The distances of burst starts suggest a period. Each start then gets a whole number, so that
//! bursts that were missed leave a number out, and a line of least squares through starts by number
//! is period and phase. Starts follow a clock (each is off by itself) or the start before (delays
//! add up, as where a job computes for some time after each checkpoint): whichever leaves the
//! smaller error for the next start.
//!
//! Few starts lie near the points of some line by chance. How likely that is follows from the
//! geometry: `n` unrelated starts, with two parameters fitted, leave a residual that lies anywhere
//! in `n - 2` dimensions, to one of the points of a lattice; see [`chance`].

use std::f64::consts::PI;

use super::schedule::{BURSTS_MIN, CHANCE_MAX, NotPeriodic, Pacing, SPREAD_MAX, Schedule};
use super::{Activity, Burst, BurstPart, is_positive, median};

/// Rounds in which numbers and period are adapted to each other.
const ROUNDS: usize = 4;

/// Number of pacings that are tried.
const PACINGS: f64 = 2.0;

/// A burst is late, not left out, until its start is this many spreads behind.
const LATE: f64 = 3.0;

/// The ratio of standard deviation and median absolute deviation of a normal distribution.
const DEVIATION: f64 = 1.4826;

/// Fits the schedule with the least chance, of those that the distances of starts suggest.
pub(super) fn fit(activity: &Activity) -> Result<Schedule, NotPeriodic> {
    let Some(newest_s) = activity.newest_s.filter(|_| activity.mean_rate > 0.0) else {
        return Err(NotPeriodic::Silent);
    };
    if activity.bursts.is_empty() {
        return Err(NotPeriodic::Steady);
    }
    let started = |burst: &&Burst| burst.part != BurstPart::WithoutStart;
    let bursts: Vec<Burst> = activity.bursts.iter().filter(started).copied().collect();
    if bursts.len() < BURSTS_MIN {
        return Err(NotPeriodic::TooFewBursts(bursts.len()));
    }
    let fits = suggested(&bursts).map(|period_s| Fit::of(&bursts, period_s));
    let best = fits
        .into_iter()
        .flatten()
        .min_by(|a, b| a.chance.total_cmp(&b.chance));
    let Some(best) = best else {
        return Err(NotPeriodic::Scattered);
    };
    let spread = best.next.spread_s / best.next.period_s;
    if spread > SPREAD_MAX || best.chance > CHANCE_MAX {
        let chance = best.chance;
        return Err(NotPeriodic::Irregular { spread, chance });
    }
    best.schedule(newest_s).ok_or(NotPeriodic::TooFewBursts(0))
}

/// The quartiles of the distances between starts: the middle one is the period if few bursts were
/// missed, and few were split.
fn suggested(bursts: &[Burst]) -> [f64; 3] {
    let distances = bursts.windows(2).map(|two| two[1].start_s - two[0].start_s);
    let mut distances: Vec<f64> = distances.collect();
    let middle = median(&mut distances);
    let quarter = distances.len() / 4;
    [
        distances[quarter],
        middle,
        distances[distances.len() - 1 - quarter],
    ]
}

/// The bursts by number, and what fits them.
struct Fit {
    bursts: Vec<Burst>,
    numbers: Vec<f64>,
    pacing: Pacing,
    next: NextStart,
    chance: f64,
}

/// The expected start of the burst after the newest; the fields are those of [`Schedule`].
struct NextStart {
    at_s: f64,
    period_s: f64,
    period_error_s: f64,
    phase_error_s: f64,
    reach: f64,
    spread_s: f64,
}

impl Fit {
    /// Fits a period near `period_s`; [`None`] if too many bursts are left out or too close.
    fn of(bursts: &[Burst], period_s: f64) -> Option<Self> {
        let joined = joined(bursts, period_s / 2.0);
        let count = joined.len();
        let is_split = 4 * (bursts.len() - count) > count;
        if count < BURSTS_MIN || is_split || !is_positive(period_s) {
            return None;
        }
        let mut numbers = numbered(&joined, period_s);
        let mut line = Line::through(&numbers, &joined);
        for _ in 1..ROUNDS {
            if !is_positive(line.period_s) {
                return None;
            }
            numbers = numbered(&joined, line.period_s);
            line = Line::through(&numbers, &joined);
        }
        let missed = numbers[count - 1] - (count - 1) as f64;
        if !is_positive(line.period_s) || missed > count as f64 {
            return None;
        }
        let steps = Steps::between(&numbers, &joined);
        // The variance of the next start by either.
        let by_line = line.variance * (1.0 + 4.0 / count as f64);
        let (pacing, next) = if by_line <= steps.variance {
            (Pacing::Clock, line.next(&numbers))
        } else {
            (Pacing::AfterLast, steps.next(&numbers, &joined))
        };
        Some(Self {
            chance: (PACINGS
                * chance(count, next.spread_s / next.period_s)
                * ways(bursts.len(), bursts.len() - count))
            .min(1.0),
            bursts: joined,
            numbers,
            pacing,
            next,
        })
    }

    /// The schedule after `newest_s`; [`None`] if no burst was seen whole.
    fn schedule(&self, newest_s: f64) -> Option<Schedule> {
        let whole = self
            .bursts
            .iter()
            .filter(|burst| burst.part == BurstPart::Whole);
        let mut sizes: Vec<f64> = whole.map(|burst| burst.bytes).collect();
        let count = sizes.len() as f64;
        let total: f64 = sizes.iter().sum();
        let bytes = median(&mut sizes);
        if !is_positive(bytes) {
            return None;
        }
        sizes
            .iter_mut()
            .for_each(|size| *size = (*size - bytes).abs());
        let in_part = self.bursts.len() as f64 - count;
        let periods = self.numbers[self.numbers.len() - 1] + 1.0 - in_part;
        let next = &self.next;
        let late_s = newest_s - LATE * next.spread_s - next.at_s;
        let left_out = (late_s / next.period_s).ceil().max(0.0);
        Some(Schedule {
            period_s: next.period_s,
            period_error_s: next.period_error_s,
            next_s: next.at_s + left_out * next.period_s,
            phase_error_s: next.phase_error_s,
            reach: next.reach + left_out,
            start_spread_s: next.spread_s,
            pacing: self.pacing,
            bytes,
            bytes_spread: DEVIATION * median(&mut sizes),
            presence: (total / (bytes * periods.max(count))).clamp(0.0, 1.0),
            bursts: self.bursts.len(),
            confidence: 1.0 - self.chance,
        })
    }
}

/// Joins bursts that begin within `distance_s` of the one before: a burst with a long pause.
fn joined(bursts: &[Burst], distance_s: f64) -> Vec<Burst> {
    let mut joined: Vec<Burst> = Vec::with_capacity(bursts.len());
    for burst in bursts {
        match joined.last_mut() {
            Some(last) if burst.start_s - last.start_s < distance_s => {
                last.bytes += burst.bytes;
                last.end_s = burst.end_s;
                last.part = burst.part;
            }
            _ => joined.push(*burst),
        }
    }
    joined
}

/// The numbers of the bursts, from 0, ascending: two periods apart, two numbers apart.
fn numbered(bursts: &[Burst], period_s: f64) -> Vec<f64> {
    let mut number = 0.0;
    let mut numbers = vec![number];
    for two in bursts.windows(2) {
        let periods = (two[1].start_s - two[0].start_s) / period_s;
        number += periods.round().max(1.0);
        numbers.push(number);
    }
    numbers
}

/// The line of least squares through the starts by number.
struct Line {
    period_s: f64,
    /// Means of the numbers and of the starts.
    middle: f64,
    middle_s: f64,
    /// Sum of the squared distances of the numbers from their mean.
    squares: f64,
    /// Variance of the starts around the line.
    variance: f64,
}

impl Line {
    fn through(numbers: &[f64], bursts: &[Burst]) -> Self {
        let count = numbers.len() as f64;
        let middle = numbers.iter().sum::<f64>() / count;
        let middle_s = bursts.iter().map(|burst| burst.start_s).sum::<f64>() / count;
        let both = || numbers.iter().zip(bursts);
        let squares: f64 = numbers.iter().map(|number| (number - middle).powi(2)).sum();
        let moment: f64 = both()
            .map(|(number, burst)| (number - middle) * (burst.start_s - middle_s))
            .sum();
        let period_s = moment / squares;
        let residual = both()
            .map(|(number, burst)| {
                (burst.start_s - middle_s - period_s * (number - middle)).powi(2)
            })
            .sum::<f64>();
        Self {
            period_s,
            middle,
            middle_s,
            squares,
            variance: residual / (count - 2.0),
        }
    }

    fn next(&self, numbers: &[f64]) -> NextStart {
        let count = numbers.len();
        let reach = numbers[count - 1] + 1.0 - self.middle;
        let spread_s = self.variance.sqrt();
        NextStart {
            at_s: self.middle_s + self.period_s * reach,
            period_s: self.period_s,
            period_error_s: spread_s / self.squares.sqrt(),
            phase_error_s: spread_s / (count as f64).sqrt(),
            reach,
            spread_s,
        }
    }
}

/// The distances of starts, which are all that counts if delays add up.
struct Steps {
    period_s: f64,
    /// Variance of the distance of two starts that are one period apart.
    variance: f64,
}

impl Steps {
    fn between(numbers: &[f64], bursts: &[Burst]) -> Self {
        let last = bursts.len() - 1;
        let period_s = (bursts[last].start_s - bursts[0].start_s) / numbers[last];
        let squares: f64 = numbers
            .windows(2)
            .zip(bursts.windows(2))
            .map(|(numbers, bursts)| {
                let periods = numbers[1] - numbers[0];
                let off_s = bursts[1].start_s - bursts[0].start_s - periods * period_s;
                off_s * off_s / periods
            })
            .sum();
        Self {
            period_s,
            variance: squares / (last as f64 - 1.0),
        }
    }

    fn next(&self, numbers: &[f64], bursts: &[Burst]) -> NextStart {
        let last = bursts.len() - 1;
        let spread_s = self.variance.sqrt();
        NextStart {
            at_s: bursts[last].start_s + self.period_s,
            period_s: self.period_s,
            period_error_s: spread_s / numbers[last].sqrt(),
            phase_error_s: 0.0,
            reach: 1.0,
            spread_s,
        }
    }
}

/// The chance that `bursts` unrelated starts leave at most a standard deviation of `spread`
/// periods: the volume of the ball of such residuals in `bursts - 2` dimensions, by the number of
/// points per volume of the lattice of whole numbers of periods, seen along the two directions
/// (phase and period) that are fitted. That counts each period that starts can be numbered by, of
/// which a fit tries few: the true chance is smaller.
fn chance(bursts: usize, spread: f64) -> f64 {
    let dimensions = bursts - 2;
    let square = spread * spread * dimensions as f64;
    let mut volume = if dimensions.is_multiple_of(2) {
        1.0
    } else {
        2.0 * square.sqrt()
    };
    let first = 2 + dimensions % 2;
    for dimension in (first..=dimensions).step_by(2) {
        volume *= 2.0 * PI * square / dimension as f64;
    }
    let count = bursts as f64;
    let points = count * ((count * count - 1.0) / 12.0).sqrt();
    (volume * points).min(1.0)
}

/// The number of ways to leave out some of the starts: each of them is one more chance.
fn ways(starts: usize, left_out: usize) -> f64 {
    let factor = |at: usize| (starts - at) as f64 / (at + 1) as f64;
    (0..left_out).map(factor).product()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bursts(starts: &[f64]) -> Vec<Burst> {
        let burst = |start_s: &f64| Burst {
            start_s: *start_s,
            end_s: *start_s + 5.0,
            bytes: 1e9,
            part: BurstPart::Whole,
        };
        starts.iter().map(burst).collect()
    }

    fn activity(starts: &[f64], newest_s: f64) -> Activity {
        Activity {
            bursts: bursts(starts),
            mean_rate: 1e7,
            background_rate: 0.0,
            newest_s: Some(newest_s),
            is_running: false,
        }
    }

    #[test]
    fn starts_and_the_next_ones() {
        let table: [(&str, &[f64], f64, f64, f64); 6] = [
            ("exact", &[10.0, 110.0, 210.0, 310.0], 350.0, 100.0, 410.0),
            (
                "one is missing",
                &[10.0, 110.0, 310.0, 410.0, 510.0],
                520.0,
                100.0,
                610.0,
            ),
            (
                "one is split",
                &[10.0, 110.0, 130.0, 210.0, 310.0, 410.0],
                420.0,
                100.0,
                510.0,
            ),
            (
                "the next is left out",
                &[0.0, 100.0, 200.0, 300.0],
                410.0,
                100.0,
                500.0,
            ),
            (
                "many are left out",
                &[0.0, 100.0, 200.0, 300.0],
                1e6 + 1.0,
                100.0,
                1e6 + 100.0,
            ),
            (
                "far from 0",
                &[1e9, 1e9 + 60.0, 1e9 + 120.0, 1e9 + 180.0],
                1e9 + 181.0,
                60.0,
                1e9 + 240.0,
            ),
        ];
        for (name, starts, newest_s, period_s, next_s) in table {
            let schedule = fit(&activity(starts, newest_s)).expect(name);
            assert!(
                (schedule.period_s - period_s).abs() < 1e-6,
                "{name}: {schedule:?}"
            );
            assert!(
                (schedule.next_s - next_s).abs() < 1e-3,
                "{name}: {schedule:?}"
            );
            assert!(schedule.confidence > 0.99, "{name}: {schedule:?}");
        }
    }

    #[test]
    fn reasons_against_a_schedule() {
        let silent = Activity {
            mean_rate: 0.0,
            ..activity(&[], 9.0)
        };
        assert_eq!(fit(&silent), Err(NotPeriodic::Silent));
        assert_eq!(fit(&activity(&[], 9.0)), Err(NotPeriodic::Steady));
        let three = activity(&[0.0, 100.0, 200.0], 250.0);
        assert_eq!(fit(&three), Err(NotPeriodic::TooFewBursts(3)));
        let scattered = [0.0, 40.0, 190.0, 225.0, 410.0, 434.0, 507.0, 690.0];
        assert_eq!(
            fit(&activity(&scattered, 700.0)),
            Err(NotPeriodic::Scattered)
        );
        let irregular = [0.0, 60.0, 205.0, 290.0, 430.0, 485.0, 620.0, 690.0, 835.0];
        let reason = fit(&activity(&irregular, 840.0));
        assert!(
            matches!(reason, Err(NotPeriodic::Irregular { spread, .. }) if spread > 0.1),
            "{reason:?}"
        );
    }

    #[test]
    fn a_job_that_waits_after_each_checkpoint_is_paced_by_the_last() {
        let mut random = crate::Random::new(3);
        let (mut clock, mut after_last) = (Vec::new(), vec![0.0]);
        for number in 0..60 {
            clock.push(100.0 * f64::from(number) + 3.0 * random.normal());
            after_last.push(after_last[after_last.len() - 1] + 100.0 + 3.0 * random.normal());
        }
        for (starts, pacing) in [(clock, Pacing::Clock), (after_last, Pacing::AfterLast)] {
            let last = starts[starts.len() - 1];
            let schedule = fit(&activity(&starts, last + 1.0)).unwrap();
            assert_eq!(schedule.pacing, pacing);
            assert!(
                (2.0..4.0).contains(&schedule.start_spread_s),
                "{schedule:?}"
            );
        }
    }

    #[test]
    fn ways_to_leave_out() {
        for (starts, left_out, expect) in [(9, 0, 1.0), (9, 1, 9.0), (9, 3, 84.0), (5, 5, 1.0)] {
            assert!(
                (ways(starts, left_out) - expect).abs() < 1e-9,
                "{starts} {left_out}"
            );
        }
    }

    #[test]
    fn chance_falls_with_bursts_and_grows_with_the_spread() {
        assert_eq!(chance(4, 0.0), 0.0);
        assert_eq!(chance(512, 1.0), 1.0);
        for bursts in BURSTS_MIN..100 {
            assert!(chance(bursts, 0.01) < chance(bursts, 0.02));
            assert!(chance(bursts + 2, 0.05) < chance(bursts, 0.05), "{bursts}");
        }
    }
}

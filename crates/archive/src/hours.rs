//! The hours for which one sealing writes files: one file for each hour, unless there are too many.
//!
//! This module stands alone because it decides how many files and how much memory a sealing needs,
//! whatever times the samples have.

use std::collections::BTreeMap;

use barograph_model::Span;

use crate::layout;
use crate::tier::HOUR_NS;

/// Hours whose files are always written together: a segment seldom contains more than one full
/// hour.
const HOURS_OPEN: usize = 2;
/// Most hours whose files are written together: each takes up to four open files.
const HOURS_OPEN_MAX: usize = 32;
/// Most samples of the hours whose files are written together, since a row group of each may wait
/// in memory.
const HOURS_OPEN_ROWS: u64 = 512 << 10;
/// Most hours, or runs of hours, for which one sealing writes files: six weeks that are filled in
/// late. If there are more, runs of hours share files, whose place names no hour.
const HOURS_MAX: usize = 1_024;

/// Returns the hour of a time, counted since the epoch.
fn hour_of(ts: i64) -> i64 {
    ts.div_euclid(HOUR_NS)
}

/// A run of hours that share files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HourRange {
    /// Place of the files: the hour since the epoch if all samples are of one hour.
    pub(crate) hour: i64,
    /// All instants of the run.
    pub(crate) span: Span,
    /// Number of samples; `u64::MAX` if they were not counted.
    rows: u64,
}

impl HourRange {
    /// Returns a run of all time, for files that already have a place.
    pub(crate) fn at(hour: i64) -> Self {
        Self {
            hour,
            span: Span::ALL,
            rows: u64::MAX,
        }
    }

    /// Returns the hours of a span, if they are so few that their samples need not be counted.
    pub(crate) fn few(span: Span) -> Option<Vec<Self>> {
        let (from, to) = (hour_of(span.from), hour_of(span.to));
        (to - from < HOURS_OPEN as i64).then(|| (from..=to).map(Self::one).collect())
    }

    fn one(hour: i64) -> Self {
        Self {
            hour,
            span: instants(hour, hour),
            rows: u64::MAX,
        }
    }
}

/// Splits hours into groups whose files are written together, so that the sources are read few
/// times and the memory is bounded.
pub(crate) fn open_together(hours: &[HourRange]) -> impl Iterator<Item = &[HourRange]> {
    let mut left = hours;
    std::iter::from_fn(move || {
        let mut sum = 0_u64;
        let fits = |(at, hours): &(usize, &HourRange)| {
            sum = sum.saturating_add(hours.rows);
            *at < HOURS_OPEN || sum <= HOURS_OPEN_ROWS
        };
        let most = left.iter().take(HOURS_OPEN_MAX).enumerate();
        let (now, rest) = left.split_at(most.take_while(fits).count());
        left = rest;
        (!now.is_empty()).then_some(now)
    })
}

/// Returns all instants of the hours from `first` to `last`, both included.
fn instants(first: i64, last: i64) -> Span {
    Span {
        from: first.saturating_mul(HOUR_NS),
        // The last hour of all time ends with time.
        to: (last + 1)
            .checked_mul(HOUR_NS)
            .map_or(i64::MAX, |end| end - 1),
    }
}

/// A set of hours, in runs of a power of two hours so that there are never too many runs.
#[derive(Default)]
pub(crate) struct HourSet {
    shift: u32,
    runs: BTreeMap<i64, HourRun>,
}

/// The first and the last hour of a run that have samples, and the number of samples.
#[derive(Clone, Copy)]
struct HourRun {
    first: i64,
    last: i64,
    rows: u64,
}

impl HourRun {
    fn with(self, other: Self) -> Self {
        Self {
            first: self.first.min(other.first),
            last: self.last.max(other.last),
            rows: self.rows + other.rows,
        }
    }
}

impl HourSet {
    /// Adds samples with these times.
    pub(crate) fn add_times(&mut self, times: &[i64]) {
        for of_hour in times.chunk_by(|a, b| hour_of(*a) == hour_of(*b)) {
            self.add(hour_of(of_hour[0]), of_hour.len() as u64);
        }
    }

    fn add(&mut self, hour: i64, rows: u64) {
        let here = HourRun {
            first: hour,
            last: hour,
            rows,
        };
        self.merge(hour >> self.shift, here);
        while self.runs.len() > HOURS_MAX {
            self.shift += 1;
            for (run, hours) in std::mem::take(&mut self.runs) {
                self.merge(run >> 1, hours);
            }
        }
    }

    fn merge(&mut self, run: i64, hours: HourRun) {
        let slot = self.runs.entry(run);
        slot.and_modify(|slot| *slot = slot.with(hours))
            .or_insert(hours);
    }

    /// Returns each hour by itself, unless there are too many.
    pub(crate) fn hours(&self) -> Vec<HourRange> {
        let hours = |run: &HourRun| HourRange {
            hour: match run.first == run.last {
                true => run.first,
                false => layout::several(run.first),
            },
            span: instants(run.first, run.last),
            rows: run.rows,
        };
        self.runs.values().map(hours).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_are_few_whatever_the_clock_did() {
        let mut set = HourSet::default();
        for hour in [10, 5, 10, 100_000] {
            set.add(hour, 3);
        }
        set.add_times(&[6 * HOUR_NS - 1, 6 * HOUR_NS]);
        let few: Vec<_> = set.hours().iter().map(|h| (h.hour, h.rows)).collect();
        assert_eq!(few, [(5, 4), (6, 1), (10, 6), (100_000, 3)]);
        for hour in (-500_000..500_000).step_by(7) {
            set.add(hour, 1);
        }
        let hours = set.hours();
        assert!(hours.len() <= HOURS_MAX && hours.len() > HOURS_MAX / 4);
        for hour in [-500_000, 5, 10, 100_000] {
            let ts = hour * HOUR_NS;
            let holding = hours.iter().filter(|h| h.span.holds(ts)).count();
            assert_eq!(holding, 1, "{hour}");
        }
        for hours in &hours {
            let first = layout::first_of_several(hours.hour).expect("it claims no hour");
            assert!(hours.span.holds(first * HOUR_NS));
        }
    }

    #[test]
    fn the_first_and_the_last_instant_are_of_an_hour() {
        let mut set = HourSet::default();
        set.add_times(&[i64::MIN, i64::MAX]);
        for ts in [i64::MIN, i64::MAX] {
            assert!(set.hours().iter().any(|hours| hours.span.holds(ts)));
        }
    }

    #[test]
    fn hours_are_written_together_as_far_as_their_samples_fit() {
        let check = |rows: &[u64], expect: &[usize]| {
            let hours = |(at, rows): (usize, &u64)| HourRange {
                rows: *rows,
                ..HourRange::one(at as i64)
            };
            let hours: Vec<HourRange> = rows.iter().enumerate().map(hours).collect();
            let lengths: Vec<usize> = open_together(&hours).map(<[HourRange]>::len).collect();
            assert_eq!(lengths, expect);
        };
        check(&[], &[]);
        check(&[u64::MAX; 3], &[2, 1]);
        check(&[5; 70], &[32, 32, 6]);
        check(&[HOURS_OPEN_ROWS / 4; 9], &[4, 4, 1]);
        check(&[1, HOURS_OPEN_ROWS, 1, 1], &[2, 2]);
    }
}

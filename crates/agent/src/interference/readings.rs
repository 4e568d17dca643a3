//! The readings of one writer's byte counter. Times in which nothing was written are kept as two
//! readings, so that hours of a writer with rare bursts take little memory.

use std::collections::VecDeque;

use barograph_forecast::interference::{Arrival, CounterReading, READINGS_MAX};

/// Most readings that are kept of one writer, the newest; those of a pause count as two.
const KEPT_MAX: usize = 3_600;

/// The readings of one counter, oldest first.
#[derive(Debug, Default)]
pub(super) struct Readings {
    kept: VecDeque<CounterReading>,
}

impl Readings {
    /// Adds a reading. One that is not later than the newest is left out.
    pub(super) fn push(&mut self, at_s: f64, bytes: f64) {
        let mut newest = self.kept.iter_mut().rev();
        let last = newest.next();
        if last.as_ref().is_some_and(|last| last.at_s >= at_s) {
            return;
        }
        if let (Some(last), Some(before)) = (last, newest.next())
            && last.bytes.total_cmp(&bytes).is_eq()
            && before.bytes.total_cmp(&bytes).is_eq()
        {
            last.at_s = at_s;
            return;
        }
        if self.kept.len() >= KEPT_MAX {
            self.kept.pop_front();
        }
        self.kept.push_back(CounterReading { at_s, bytes });
    }

    /// Time of the newest reading, in seconds.
    pub(super) fn newest_s(&self) -> Option<f64> {
        self.kept.back().map(|reading| reading.at_s)
    }

    /// The newest readings, at most [`READINGS_MAX`], with those within pauses put in again: one
    /// for each `interval_s`.
    pub(super) fn whole(&self, interval_s: f64) -> Vec<CounterReading> {
        let mut newest_first: Vec<CounterReading> = Vec::new();
        for reading in self.kept.iter().rev() {
            if let Some(after) = newest_first.last().copied()
                && after.bytes.total_cmp(&reading.bytes).is_eq()
            {
                let pause_s = after.at_s - reading.at_s;
                let inner = (pause_s / interval_s - 0.5).max(0.0) as usize;
                let room = READINGS_MAX.saturating_sub(newest_first.len());
                newest_first.extend((1..=inner.min(room)).map(|nth| CounterReading {
                    at_s: after.at_s - interval_s * nth as f64,
                    bytes: reading.bytes,
                }));
            }
            if newest_first.len() >= READINGS_MAX {
                break;
            }
            newest_first.push(*reading);
        }
        newest_first.reverse();
        newest_first
    }

    /// The bytes written after `from_s`: those between two readings come when the earlier was
    /// taken.
    pub(super) fn arrivals_after(&self, from_s: f64) -> Vec<Arrival> {
        let mut arrivals = Vec::new();
        let mut after: Option<&CounterReading> = None;
        for reading in self.kept.iter().rev() {
            if let Some(after) = after.filter(|after| after.bytes > reading.bytes) {
                let seconds = after.at_s - reading.at_s;
                let share = ((after.at_s - from_s) / seconds).clamp(0.0, 1.0);
                arrivals.push(Arrival {
                    at_s: reading.at_s.max(from_s),
                    bytes: (after.bytes - reading.bytes) * share,
                });
            }
            if reading.at_s <= from_s {
                break;
            }
            after = Some(reading);
        }
        arrivals.reverse();
        arrivals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(all: &[(f64, f64)]) -> Readings {
        let mut readings = Readings::default();
        for (at_s, bytes) in all {
            readings.push(*at_s, *bytes);
        }
        readings
    }

    #[test]
    fn pauses_take_no_memory_and_come_back() {
        let steps: Vec<(f64, f64)> = (0..=20)
            .map(|at| (f64::from(at), if at < 3 { 0.0 } else { 5.0 }))
            .chain([(21.0, 9.0)])
            .collect();
        let readings = readings(&steps);
        assert_eq!(readings.kept.len(), 5);
        let whole = readings.whole(1.0);
        let times: Vec<(f64, f64)> = whole.iter().map(|r| (r.at_s, r.bytes)).collect();
        assert_eq!(times, steps);
    }

    #[test]
    fn bytes_come_between_readings() {
        let readings = readings(&[(0.0, 0.0), (10.0, 0.0), (12.0, 8.0), (13.0, 9.0)]);
        let check = |from_s: f64, expect: &[(f64, f64)]| {
            let arrivals = readings.arrivals_after(from_s);
            let arrivals: Vec<(f64, f64)> = arrivals.iter().map(|a| (a.at_s, a.bytes)).collect();
            assert_eq!(arrivals, expect, "{from_s}");
        };
        check(5.0, &[(10.0, 8.0), (12.0, 1.0)]);
        check(11.0, &[(11.0, 4.0), (12.0, 1.0)]);
        check(13.0, &[]);
    }

    #[test]
    fn memory_is_bounded() {
        let many: Vec<(f64, f64)> = (0..20_000)
            .map(|at| (f64::from(at), f64::from(at)))
            .collect();
        let busy = readings(&many);
        assert_eq!(busy.whole(1.0).len(), KEPT_MAX);
        let idle = readings(&[(0.0, 0.0), (1.0, 0.0), (1e9, 0.0)]);
        assert_eq!(idle.whole(1.0).len(), READINGS_MAX);
        // A reading that is not later, as after the clock was set back, changes nothing.
        let mut late = readings(&[(5.0, 1.0)]);
        late.push(4.0, 2.0);
        assert_eq!(late.newest_s(), Some(5.0));
    }
}

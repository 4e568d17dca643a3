//! The past of a stream in equal steps, as its forecaster would have seen it: the input for
//! training.
//!
//! Archives store changes, and only now and then a value that did not change. In between, the value
//! held: looks found it unchanged.

use std::collections::VecDeque;

use crate::shape::{MeasuredValue, Shape, ValueTrack};
use crate::steps::{Advance, GAP_STEPS_MAX, Steps};

/// The configuration of resampling.
#[derive(Clone, Copy, Debug)]
pub struct Resampling {
    /// Interval at which the stream was looked at, in ns. At least 1.
    pub step_ns: i64,
    /// Longest time between samples, in ns: until then the value held, after a longer one it is
    /// unknown.
    pub hold_ns: i64,
    /// Shape of the stream. A counter is converted to its increments, without its resets.
    pub shape: Shape,
    /// Most steps that are kept: the newest ones.
    pub steps_max: usize,
}

/// Converts samples to equal steps.
pub struct EqualSteps {
    config: Resampling,
    steps: Steps,
    track: ValueTrack,
    values: VecDeque<f64>,
}

impl EqualSteps {
    /// Creates a converter without samples.
    pub fn new(config: Resampling) -> Self {
        Self {
            config,
            steps: Steps::new(config.step_ns),
            track: ValueTrack::new(config.shape),
            values: VecDeque::new(),
        }
    }

    /// Takes in a sample. One that is not later than those before, or not finite, is skipped.
    pub fn sample(&mut self, ts_ns: i64, value: f64) {
        if value.is_finite() {
            self.take(ts_ns, MeasuredValue::Float(value));
        }
    }

    /// Takes in a sample of integers. Counters keep all their digits.
    pub fn sample_int(&mut self, ts_ns: i64, value: i64) {
        self.take(ts_ns, MeasuredValue::Int(value));
    }

    /// Returns one value per step, oldest first. An unknown time, however long, becomes as many NaN
    /// as no forecast goes beyond.
    pub fn finish(self) -> Vec<f64> {
        self.values.into()
    }

    fn take(&mut self, ts_ns: i64, value: MeasuredValue) {
        let Some(newest_ns) = self.steps.newest_ns() else {
            let first = self.track.start(value);
            self.steps.take(ts_ns, Advance::First);
            self.push(first);
            return;
        };
        if ts_ns <= newest_ns {
            return;
        }
        let is_unknown = ts_ns.abs_diff(newest_ns) > self.config.hold_ns.unsigned_abs();
        if is_unknown {
            self.steps.take(ts_ns, Advance::Gap);
            (0..GAP_STEPS_MAX).for_each(|_| self.push(f64::NAN));
            let seen = self.see(value);
            self.push(seen);
            return;
        }
        self.hold_until(ts_ns);
        let advance = self.steps.look(ts_ns);
        let seen = self.see(value);
        self.steps.take(ts_ns, advance);
        match (advance, self.values.back_mut()) {
            (Advance::Same, Some(last)) => *last = seen,
            _ => self.push(seen),
        }
    }

    /// Adds the looks of each step that found the value unchanged.
    fn hold_until(&mut self, ts_ns: i64) {
        let step_ns = self.steps.step_ns();
        let held = self.values.back().copied().unwrap_or(f64::NAN);
        let mut since_ns = self.steps.newest_ns().unwrap_or(ts_ns);
        // Steps that would be dropped again are not added.
        let room_ns =
            step_ns.saturating_mul(i64::try_from(self.config.steps_max).unwrap_or(i64::MAX));
        if since_ns < ts_ns.saturating_sub(room_ns) {
            since_ns = ts_ns.saturating_sub(room_ns);
            self.steps.take(since_ns, Advance::Gap);
        }
        while ts_ns.saturating_sub(since_ns) > step_ns.saturating_add(step_ns / 2) {
            since_ns += step_ns;
            self.steps.take(since_ns, Advance::Steps(1));
            self.push(held);
        }
    }

    fn see(&mut self, value: MeasuredValue) -> f64 {
        if self.track.is_reset(value) {
            let last = self.values.iter().rev().find(|value| value.is_finite());
            let last = last.copied().unwrap_or(0.0);
            self.track.reset(value, last);
            last
        } else {
            self.track.see(value)
        }
    }

    fn push(&mut self, value: f64) {
        if self.values.len() >= self.config.steps_max.max(1) {
            self.values.pop_front();
        }
        self.values.push_back(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAN: f64 = f64::NAN;

    fn config(shape: Shape) -> Resampling {
        Resampling {
            step_ns: 10,
            hold_ns: 100,
            shape,
            steps_max: 1_000,
        }
    }

    #[track_caller]
    fn check(shape: Shape, samples: &[(i64, i64)], expect: &[f64]) {
        let mut steps = EqualSteps::new(config(shape));
        for (ts_ns, value) in samples {
            steps.sample_int(*ts_ns, *value);
        }
        let text = |values: &[f64]| format!("{values:?}");
        assert_eq!(text(&steps.finish()), text(expect));
    }

    #[test]
    fn what_held_is_there_in_each_step() {
        let gauge = Shape::Gauge;
        check(gauge, &[], &[]);
        check(
            gauge,
            &[(0, 5), (10, 6), (10, 9), (8, 9), (21, 7)],
            &[5.0, 6.0, 7.0],
        );
        check(
            gauge,
            &[(0, 5), (40, 6), (71, 7)],
            &[5.0, 5.0, 5.0, 5.0, 6.0, 6.0, 6.0, 7.0],
        );
        // Of two samples in a step, the later one counts.
        check(
            gauge,
            &[(0, 5), (10, 6), (12, 8), (20, 7)],
            &[5.0, 8.0, 7.0],
        );
    }

    #[test]
    fn a_long_silence_is_a_gap_that_no_horizon_crosses() {
        let mut expect = vec![5.0];
        expect.extend([NAN; 64]);
        expect.extend([8.0, 9.0]);
        check(Shape::Gauge, &[(0, 5), (101, 8), (111, 9)], &expect);
    }

    #[test]
    fn a_counter_goes_on_where_it_begins_again() {
        check(
            Shape::Counter,
            &[(0, 1 << 60), (10, (1 << 60) + 1), (20, 3), (30, 7)],
            &[0.0, 1.0, 1.0, 5.0],
        );
    }

    #[test]
    fn the_newest_are_kept() {
        let mut steps = EqualSteps::new(Resampling {
            steps_max: 3,
            hold_ns: i64::MAX,
            ..config(Shape::Gauge)
        });
        steps.sample(0, 1.0);
        steps.sample(i64::MAX - 10, 2.0);
        steps.sample(i64::MAX, NAN);
        steps.sample(i64::MAX, 4.0);
        assert_eq!(steps.finish(), [1.0, 2.0, 4.0]);
    }

    proptest! {
        #[test]
        fn any_samples_make_steps(
            samples in prop::collection::vec((any::<i64>(), any::<i64>()), 0..50),
            step_ns in any::<i64>(),
            hold_ns in any::<i64>(),
            is_counter in any::<bool>(),
        ) {
            let shape = if is_counter { Shape::Counter } else { Shape::Gauge };
            let mut steps = EqualSteps::new(Resampling { step_ns, hold_ns, shape, steps_max: 500 });
            for (ts_ns, value) in &samples {
                steps.sample_int(*ts_ns, *value);
                steps.sample(*ts_ns, f64::from_bits(value.cast_unsigned()));
            }
            prop_assert!(steps.finish().len() <= 500);
        }
    }
}

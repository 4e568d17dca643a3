//! The shape of a stream: the range of its forecasts, and the form in which predictors see its
//! values.
//!
//! A counter is seen as its increment since a base, so that 64-bit counters lose no digits, and a
//! reset moves the base and not the seen value.

/// The values that a stream can have.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Shape {
    /// Any number.
    #[default]
    Gauge,
    /// A number that never decreases, except at a reset.
    Counter,
    /// A gauge that stays within bounds, such as the free part of a capacity. Invalid bounds (the
    /// lower one above the upper one, NaN) are not applied.
    Bounded {
        /// The smallest possible value.
        min: f64,
        /// The largest possible value.
        max: f64,
    },
}

impl Shape {
    /// Limits `said` to the values that are possible after `last`. Since `last` is assumed to be
    /// possible, the result is never farther from it.
    pub(crate) fn possible(self, last: f64, said: f64) -> f64 {
        let possible = match (self, self.bounds(last)) {
            (Self::Counter, _) => said.max(last),
            (_, Some((least, most))) => said.clamp(least, most),
            (_, None) => said,
        };
        possible.clamp(f64::MIN, f64::MAX)
    }

    /// The smallest and the largest value that are possible after `last`; `None` without bounds.
    pub(crate) fn bounds(self, last: f64) -> Option<(f64, f64)> {
        match self {
            Self::Bounded { min, max } if min <= max => Some((min.min(last), max.max(last))),
            _ => None,
        }
    }
}

/// A value as it was measured.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MeasuredValue {
    Float(f64),
    Int(i64),
}

impl MeasuredValue {
    fn float(self) -> f64 {
        match self {
            Self::Float(value) => value,
            #[expect(
                clippy::cast_precision_loss,
                reason = "the base is subtracted first where digits count"
            )]
            Self::Int(value) => value as f64,
        }
    }

    /// The difference between this value and `base`; with all digits if both are integers.
    fn above(self, base: Self) -> f64 {
        #[expect(
            clippy::cast_precision_loss,
            reason = "what is lost is below the 53rd bit of the difference"
        )]
        let above = match (self, base) {
            (Self::Int(value), Self::Int(base)) => (i128::from(value) - i128::from(base)) as f64,
            _ => self.float() - base.float(),
        };
        above.clamp(f64::MIN, f64::MAX)
    }

    fn is_below(self, other: Self) -> bool {
        match (self, other) {
            (Self::Int(value), Self::Int(other)) => value < other,
            _ => self.float() < other.float(),
        }
    }
}

/// The conversion from measured values to the values that predictors see, and back.
#[derive(Debug, Clone)]
pub(crate) struct ValueTrack {
    counter: bool,
    base: MeasuredValue,
    newest: MeasuredValue,
    /// The newest value, as predictors saw it.
    seen: f64,
    /// The value that predictors saw when the base was measured.
    shift: f64,
}

impl ValueTrack {
    pub(crate) fn new(shape: Shape) -> Self {
        Self {
            counter: shape == Shape::Counter,
            base: MeasuredValue::Int(0),
            newest: MeasuredValue::Int(0),
            seen: 0.0,
            shift: 0.0,
        }
    }

    /// Takes in the first value.
    pub(crate) fn start(&mut self, value: MeasuredValue) -> f64 {
        if self.counter {
            self.base = value;
        }
        self.see(value)
    }

    pub(crate) fn is_reset(&self, value: MeasuredValue) -> bool {
        self.counter && value.is_below(self.newest)
    }

    /// Takes in `value` and returns it as predictors see it.
    pub(crate) fn see(&mut self, value: MeasuredValue) -> f64 {
        self.newest = value;
        self.seen = if self.counter {
            (value.above(self.base) + self.shift).clamp(f64::MIN, f64::MAX)
        } else {
            value.float()
        };
        self.seen
    }

    /// Takes in a reset to `value`, which predictors see as `seen`: as if the counter had gone on.
    pub(crate) fn reset(&mut self, value: MeasuredValue, seen: f64) {
        self.base = value;
        self.newest = value;
        self.seen = seen;
        self.shift = seen;
    }

    /// Converts a value as predictors see it to a value of the stream.
    pub(crate) fn float(&self, seen: f64) -> f64 {
        if !self.counter {
            return seen;
        }
        (self.newest.float() + (seen - self.seen)).clamp(f64::MIN, f64::MAX)
    }

    /// Like [`Self::float`], with all digits. `None` if the looks were not integers, or if the
    /// result is out of range.
    pub(crate) fn int(&self, seen: f64) -> Option<i64> {
        let (from, since) = match (self.counter, self.newest) {
            (true, MeasuredValue::Int(newest)) => (newest, seen - self.seen),
            (false, MeasuredValue::Int(_)) => (0, seen),
            _ => return None,
        };
        // The conversion saturates at the ends of i128, so the sum is then outside of i64.
        #[expect(clippy::cast_possible_truncation, reason = "saturates")]
        let since = since.round() as i128;
        i64::try_from(i128::from(from).saturating_add(since)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_at_the_end_of_its_bits_keeps_its_digits() {
        let mut track = ValueTrack::new(Shape::Counter);
        assert_eq!(track.start(MeasuredValue::Int(i64::MAX - 3)), 0.0);
        assert_eq!(track.see(MeasuredValue::Int(i64::MAX - 2)), 1.0);
        assert_eq!(track.int(2.0), Some(i64::MAX - 1));
        assert_eq!(track.int(3.0), Some(i64::MAX));
        assert_eq!(track.int(4.0), None);
        assert!(track.is_reset(MeasuredValue::Int(i64::MIN)));
        track.reset(MeasuredValue::Int(i64::MIN), 2.0);
        assert_eq!(track.see(MeasuredValue::Int(i64::MIN + 7)), 9.0);
        assert_eq!(track.int(9.0), Some(i64::MIN + 7));
        assert_eq!(track.int(9.6), Some(i64::MIN + 8));
        assert_eq!(track.see(MeasuredValue::Int(i64::MAX)), 2.0f64.powi(64));
    }

    #[test]
    fn a_gauge_is_seen_as_it_is() {
        let mut track = ValueTrack::new(Shape::Gauge);
        assert_eq!(track.start(MeasuredValue::Float(7.5)), 7.5);
        assert_eq!(track.see(MeasuredValue::Float(-1.0)), -1.0);
        assert!(!track.is_reset(MeasuredValue::Float(-2.0)));
        assert_eq!((track.float(3.25), track.int(3.25)), (3.25, None));
        assert_eq!(track.see(MeasuredValue::Int(4)), 4.0);
        assert_eq!(track.int(3.75), Some(4));
    }

    #[test]
    fn what_is_possible_is_never_farther_from_the_last() {
        let bounded = Shape::Bounded {
            min: 0.0,
            max: 10.0,
        };
        let none = Shape::Bounded { min: 3.0, max: 1.0 };
        for (shape, last, said, expect) in [
            (Shape::Gauge, 5.0, -3.0, -3.0),
            (Shape::Counter, 5.0, -3.0, 5.0),
            (Shape::Counter, 5.0, 8.0, 8.0),
            (bounded, 5.0, 12.0, 10.0),
            (bounded, 5.0, -12.0, 0.0),
            (bounded, 15.0, 14.0, 14.0),
            (bounded, 15.0, 16.0, 15.0),
            (none, 5.0, 99.0, 99.0),
            (Shape::Gauge, 1.0, f64::INFINITY, f64::MAX),
        ] {
            let possible = shape.possible(last, said);
            assert_eq!(possible, expect, "{shape:?} {last} {said}");
        }
    }
}

//! What a stream is expected to be after its newest look, as an array of doubles that any reader evaluates at his own time.
//!
//! It is the value of the stream `forecast.<name>`, so it lies in memory, log and archive as any value does: whoever reads it
//! trusts none of it.

/// What the name of a stream of projections begins with; the rest is the name of the stream that is meant.
pub const FORECAST_PREFIX: &str = "forecast.";
/// Most knots of one projection.
pub const KNOTS_MAX: usize = 64;

/// Doubles of one knot.
const PARTS: usize = 3;

/// What is expected so long after the newest look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Knot {
    /// After the look, in seconds; 0 is the look itself.
    pub after_s: f64,
    /// The value.
    pub value: f64,
    /// The true value is within so much of it as often as was asked for; infinite while that is not known.
    pub half_width: f64,
}

/// Knots in the order of time, between which lines are drawn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Projection(Vec<Knot>);

impl Projection {
    /// Of knots whose times ascend; those that do not, are no numbers or are too many are left out.
    pub fn new(knots: impl IntoIterator<Item = Knot>) -> Self {
        let mut kept: Vec<Knot> = Vec::new();
        for knot in knots {
            let is_later = kept.last().is_none_or(|last| knot.after_s > last.after_s);
            let is_sound = knot.after_s.is_finite()
                && knot.after_s >= 0.0
                && knot.value.is_finite()
                && knot.half_width >= 0.0;
            if is_later && is_sound && kept.len() < KNOTS_MAX {
                kept.push(knot);
            }
        }
        Self(kept)
    }

    /// From the value of a stream of projections: after, value and half width of each knot, in seconds and the stream's unit.
    /// `None` for what is no such array.
    pub fn from_floats(floats: &[f64]) -> Option<Self> {
        let (knots, rest) = floats.as_chunks::<PARTS>();
        let projection = Self::new(knots.iter().map(|&[after_s, value, half_width]| Knot {
            after_s,
            value,
            half_width,
        }));
        (rest.is_empty() && !knots.is_empty() && projection.0.len() == knots.len())
            .then_some(projection)
    }

    /// As the stream's value has them.
    pub fn to_floats(&self) -> Vec<f64> {
        let parts = |knot: &Knot| [knot.after_s, knot.value, knot.half_width];
        self.0.iter().flat_map(parts).collect()
    }

    /// The knots.
    pub fn knots(&self) -> &[Knot] {
        &self.0
    }

    /// What is expected `after_s` seconds after the look. `None` before it, and beyond the last knot: nothing is said of that time.
    pub fn at(&self, after_s: f64) -> Option<Knot> {
        let next = self.0.partition_point(|knot| knot.after_s < after_s);
        let (next, before) = (self.0.get(next)?, next.checked_sub(1));
        let before = before.and_then(|before| self.0.get(before));
        if next.after_s == after_s {
            return Some(*next);
        }
        let before = before.filter(|_| after_s >= 0.0)?;
        let share = (after_s - before.after_s) / (next.after_s - before.after_s);
        // What stays as it is does so to the last bit; the difference of two finite numbers may be none.
        let mix = |a: f64, b: f64| match b - a {
            way if way.is_finite() => a + way * share,
            _ => a * (1.0 - share) + b * share,
        };
        let half_width = match before.half_width.is_finite() && next.half_width.is_finite() {
            true => mix(before.half_width, next.half_width),
            false => f64::INFINITY,
        };
        Some(Knot {
            after_s,
            value: mix(before.value, next.value),
            half_width,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn knot(after_s: f64, value: f64, half_width: f64) -> Knot {
        Knot {
            after_s,
            value,
            half_width,
        }
    }

    #[test]
    fn lines_are_drawn_between_knots() {
        let projection = Projection::new([
            knot(0.0, 10.0, 0.0),
            knot(2.0, 20.0, 4.0),
            knot(4.0, 20.0, f64::INFINITY),
        ]);
        for (after_s, expect) in [
            (-0.1, None),
            (0.0, Some((10.0, 0.0))),
            (1.0, Some((15.0, 2.0))),
            (2.0, Some((20.0, 4.0))),
            (3.0, Some((20.0, f64::INFINITY))),
            (4.1, None),
            (f64::NAN, None),
        ] {
            let found = projection.at(after_s).map(|k| (k.value, k.half_width));
            assert_eq!(found, expect, "{after_s}");
        }
    }

    #[test]
    fn what_stays_as_it_is_does_so_to_the_last_bit() {
        let total = 25_276_502_016.0;
        let projection = Projection::new([knot(0.0, total, 0.0), knot(0.7, total, 0.0)]);
        for step in 0..=70 {
            let found = projection.at(f64::from(step) / 100.0).unwrap();
            assert_eq!((found.value, found.half_width), (total, 0.0), "{step}");
        }
    }

    #[test]
    fn what_is_no_projection_is_refused() {
        for floats in [
            vec![],
            vec![0.0, 1.0],
            vec![1.0, 1.0, 0.0, 1.0, 1.0, 0.0],
            vec![0.0, f64::NAN, 0.0],
            vec![0.0, 1.0, -1.0],
            vec![-1.0, 1.0, 1.0],
            vec![0.0; PARTS * (KNOTS_MAX + 1)],
        ] {
            assert_eq!(Projection::from_floats(&floats), None, "{floats:?}");
        }
    }

    proptest! {
        #[test]
        fn foreign_numbers_never_panic(floats: Vec<f64>, after_s: f64) {
            if let Some(projection) = Projection::from_floats(&floats) {
                prop_assert_eq!(projection.to_floats(), floats);
                if let Some(knot) = projection.at(after_s) {
                    prop_assert!(knot.value.is_finite() && knot.half_width >= 0.0);
                }
            }
        }
    }
}

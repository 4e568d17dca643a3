//! What a cascade says of all the time that it says anything of, as knots that readers draw lines between.

use barograph_model::{KNOTS_MAX, Projection};

use crate::cascade::Cascade;
use crate::said::width_at;
use crate::shape::Shape;
use crate::steps::GAP_STEPS_MAX;

/// The steps of the finest forecaster that have a knot: each where a pattern repeats, ever fewer beyond.
const STEPS: [usize; 23] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 20, 24, 28, 32, 40, 48, 64,
];
const NS_PER_S: f64 = 1e9;
/// Doubles of one knot.
const PARTS: usize = 3;

impl Cascade {
    /// What is expected after the newest look; empty before the first. This allocates.
    pub fn project(&self) -> Projection {
        let mut floats = Vec::new();
        self.project_into(&mut floats);
        Projection::from_floats(&floats).unwrap_or_default()
    }

    /// The same as [`Projection::to_floats`] has it, in place of what is in `floats`: allocates only where that has no
    /// room.
    pub fn project_into(&self, floats: &mut Vec<f64>) {
        floats.clear();
        let finest = self.finest();
        if finest.newest_ns().is_none() {
            return;
        }
        let mut path = [0.0; GAP_STEPS_MAX as usize];
        finest.path(&mut path);
        let step_s = finest.step_ns() as f64 / NS_PER_S;
        let widths = finest.widths();
        let mut knots = Knots { floats };
        let here = finest.track.float(finest.last);
        knots.push(0.0, here, 0.0);
        for step in STEPS {
            let value = finest.track.float(path[step - 1]);
            knots.push(step as f64 * step_s, value, width_at(&widths, step));
        }
        let mut least = match finest.shape {
            Shape::Counter => finest.track.float(path[path.len() - 1]),
            _ => f64::NEG_INFINITY,
        };
        for (after_ns, value, half_width) in self.calibrated_beyond() {
            // A counter does not fall, whoever says what of it.
            let value = value.max(least);
            if knots.push(after_ns / NS_PER_S, value, half_width) && finest.shape == Shape::Counter
            {
                least = value;
            }
        }
    }
}

/// Knots as doubles.
struct Knots<'a> {
    floats: &'a mut Vec<f64>,
}

impl Knots<'_> {
    /// Adds one that is sound and later than those before; whether it was.
    fn push(&mut self, after_s: f64, value: f64, half_width: f64) -> bool {
        let count = self.floats.len() / PARTS;
        let is_later = match count.checked_sub(1) {
            Some(last) => after_s > self.floats[last * PARTS],
            None => true,
        };
        let is_sound = after_s.is_finite() && value.is_finite() && half_width >= 0.0;
        let is_taken = is_later && is_sound && count < KNOTS_MAX;
        if is_taken {
            self.floats.extend([after_s, value, half_width]);
        }
        is_taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ForecasterConfig;

    #[test]
    fn a_ramp_is_projected() {
        let mut cascade = Cascade::new(ForecasterConfig::default());
        assert!(cascade.project().knots().is_empty());
        for second in 0..6_000_i64 {
            cascade.observe(second * 1_000_000_000, 7.0 + 3.0 * second as f64);
        }
        let projection = cascade.project();
        let last = 7.0 + 3.0 * 5_999.0;
        for after_s in [0.0, 0.5, 1.0, 9.0, 60.0, 200.0] {
            let knot = projection.at(after_s).expect("minutes are projected");
            let truth = last + 3.0 * after_s;
            assert!(
                (knot.value - truth).abs() <= 0.05 * 3.0 * after_s + 1e-6,
                "{after_s}: {knot:?}, {truth}"
            );
        }
    }

    fn fed(shape: Shape, values: impl Iterator<Item = f64>) -> Cascade {
        let mut cascade = Cascade::new(ForecasterConfig {
            shape,
            ..ForecasterConfig::default()
        });
        for (second, value) in (0..).zip(values) {
            cascade.observe(second * 1_000_000_000, value);
        }
        cascade
    }

    #[test]
    fn a_stream_that_stands_still_is_projected_the_same_at_each_look() {
        let mut cascade = fed(Shape::Gauge, std::iter::repeat_n(7.0, 6_000));
        let (mut before, mut after) = (Vec::new(), Vec::new());
        cascade.project_into(&mut before);
        let last_s = before[before.len() - PARTS];
        assert!(
            last_s > 200.0,
            "{last_s}: coarser forecasters say something"
        );
        for second in 6_000..6_100 {
            cascade.observe(second * 1_000_000_000, 7.0);
            cascade.project_into(&mut after);
            assert_eq!(before, after, "{second}");
        }
    }

    #[test]
    fn bounds_that_change_are_kept_to() {
        let ends = |cascade: &Cascade| {
            let projection = cascade.project();
            let values = projection.knots().iter().map(|knot| knot.value);
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), v| {
                (v.min(least), v.max(most))
            })
        };
        let ramp = || (0..6_000).map(|at| 7.0 + 3.0 * f64::from(at));
        let mut cascade = fed(Shape::Gauge, ramp());
        let now = 7.0 + 3.0 * 5_999.0;
        assert!(ends(&cascade).1 > now + 300.0);
        let bounded = |max| Shape::Bounded { min: 0.0, max };
        cascade.set_shape(bounded(now + 100.0));
        assert_eq!(ends(&cascade), (now, now + 100.0));
        let last_ns = cascade.finest().newest_ns().unwrap();
        let far = cascade.at(last_ns + 300_000_000_000).unwrap();
        assert_eq!(far.value, now + 100.0);
        // It was made larger, and smaller than what is there.
        cascade.set_shape(bounded(now + 200.0));
        assert_eq!(ends(&cascade).1, now + 200.0);
        cascade.set_shape(bounded(now - 1.0));
        assert_eq!(ends(&cascade), (now, now));
        cascade.set_shape(Shape::Gauge);
        assert!(ends(&cascade).1 > now + 300.0);
        let falling = fed(bounded(1e6), ramp().map(|v| 18_100.0 - v));
        assert_eq!(ends(&falling).0, 0.0);
    }

    #[test]
    fn a_counter_stays_one_and_is_never_projected_to_fall() {
        let mut random = crate::Random::new(5);
        let mut sum = 0.0;
        let values = (0..9_000).map(|_| {
            sum += random.normal().max(0.0) * 100.0;
            sum
        });
        let mut cascade = fed(Shape::Counter, values);
        cascade.set_shape(Shape::Bounded { min: 0.0, max: 1.0 });
        for second in 9_000..9_200 {
            cascade.observe(second * 1_000_000_000, 1e6 + f64::from(second as i32));
            let projection = cascade.project();
            let knots = projection.knots();
            assert!(
                knots.is_sorted_by(|a, b| a.value <= b.value),
                "{second}: {knots:?}"
            );
        }
    }

    #[test]
    fn coverage_is_told_of_each_horizon() {
        let mut random = crate::Random::new(7);
        let cascade = fed(Shape::Gauge, (0..6_000).map(|_| random.normal()));
        let coverage: Vec<_> = cascade.coverage().collect();
        assert!(coverage.len() > 4 && coverage.is_sorted_by_key(|of| of.horizon_ns));
        assert_eq!(
            (coverage[0].horizon_ns, coverage[0].compared),
            (1_000_000_000, 512)
        );
        assert!((0.85..0.95).contains(&coverage[0].share), "{coverage:?}");
        assert_eq!(
            fed(Shape::Gauge, std::iter::once(1.0)).coverage().count(),
            0
        );
    }
}

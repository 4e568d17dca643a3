//! The projection of a cascade: all of its forecasts as knots, between which readers draw lines.

use barograph_model::{KNOT_PARTS, KNOTS_MAX, Projection};

use crate::cascade::Cascade;
use crate::forecaster::LEVELS;
use crate::said::width_at;
use crate::shape::Shape;
use crate::steps::GAP_STEPS_MAX;

/// The steps of the finest forecaster that have a knot: each step where patterns repeat, ever fewer
/// beyond.
const STEPS: [usize; 23] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 20, 24, 28, 32, 40, 48, 64,
];
/// Most knots at the meeting of a line and a bound: as many as leave room for all others.
const MEETINGS_MAX: usize = KNOTS_MAX - (1 + STEPS.len() + 2 * LEVELS.len());
const NS_PER_S: f64 = 1e9;

impl Cascade {
    /// Returns the projection after the newest look; empty before the first look. It allocates.
    pub fn project(&self) -> Projection {
        let mut floats = Vec::new();
        self.project_into(&mut floats);
        Projection::from_floats(&floats).unwrap_or_default()
    }

    /// Writes the projection into `floats`, in the form of [`Projection::to_floats`], replacing the
    /// content: it allocates only if there is not enough room.
    pub fn project_into(&self, floats: &mut Vec<f64>) {
        floats.clear();
        let finest = self.finest();
        if finest.newest_ns().is_none() {
            return;
        }
        let mut path = [0.0; GAP_STEPS_MAX as usize];
        finest.unbounded_path(&mut path);
        let step_s = finest.step_ns() as f64 / NS_PER_S;
        let widths = finest.widths();
        let here = finest.track.float(finest.last);
        let mut knots = Knots {
            floats,
            bounds: finest.shape.bounds(here),
            meetings: MEETINGS_MAX,
            before: (0.0, here),
        };
        knots.add(0.0, here, 0.0);
        for (step, seen) in (1..).zip(path) {
            let (after_s, value) = (step as f64 * step_s, finest.track.float(seen));
            knots.go_on(after_s, value, |at_s| {
                finest.half_width_after(at_s / step_s)
            });
            if STEPS.binary_search(&step).is_ok() {
                knots.add(after_s, value, width_at(&widths, step));
            }
        }
        let counter = finest.shape == Shape::Counter;
        let mut least = if counter { knots.before.1 } else { f64::MIN };
        let mut before = (knots.before.0, widths[widths.len() - 1]);
        for (after_ns, value, half_width) in self.calibrated_beyond() {
            // A counter does not fall, whichever level predicts that.
            let (after_s, value) = (after_ns / NS_PER_S, value.max(least));
            if !(after_s > before.0 && after_s.is_finite()) {
                continue;
            }
            let (from_s, from) = before;
            let share = |at_s: f64| (at_s - from_s) / (after_s - from_s);
            knots.go_on(after_s, value, |at_s| {
                from * (1.0 - share(at_s)) + half_width * share(at_s)
            });
            knots.add(after_s, value, half_width);
            before = (after_s, half_width);
            if counter {
                least = value;
            }
        }
        if let Some((after_s, bound)) = self.straight_on() {
            go_straight_on(floats, after_s, bound);
        }
    }
}

/// Replaces the knots that were compared with nothing by a straight line from the last knot with
/// known error to a bound. If the error is known as far as that, or the bound is met before, the
/// compared knots stay.
fn go_straight_on(floats: &mut Vec<f64>, after_s: f64, bound: f64) {
    let (knots, _) = floats.as_chunks::<KNOT_PARTS>();
    let known = knots.iter().take_while(|knot| knot[2].is_finite()).count();
    let Some([known_s, ..]) = known.checked_sub(1).map(|last| knots[last]) else {
        return;
    };
    let is_met = knots[..known].iter().any(|knot| knot[1] == bound);
    if !is_met && after_s > known_s && known < KNOTS_MAX {
        floats.truncate(known * KNOT_PARTS);
        floats.extend([after_s, bound, f64::INFINITY]);
    }
}

/// The knots as doubles, while they are added.
struct Knots<'a> {
    floats: &'a mut Vec<f64>,
    /// The least and the greatest possible value, if there are bounds.
    bounds: Option<(f64, f64)>,
    /// Number of knots that may still be added where a bound is met.
    meetings: usize,
    /// The end of the line so far, as time and value, whether it is a knot or not; not limited by
    /// the bounds.
    before: (f64, f64),
}

impl Knots<'_> {
    /// Continues the line, with a knot where it meets a bound: the line is straight up to there,
    /// and level from there on.
    fn go_on(&mut self, after_s: f64, value: f64, half_width: impl Fn(f64) -> f64) {
        let (from_s, from) = std::mem::replace(&mut self.before, (after_s, value));
        let Some((least, most)) = self.bounds else {
            return;
        };
        let in_order = match value > from {
            true => [least, most],
            false => [most, least],
        };
        for bound in in_order {
            // Computed with halves, whose differences are finite.
            let share = (bound / 2.0 - from / 2.0) / (value / 2.0 - from / 2.0);
            if value != from && (0.0..=1.0).contains(&share) && self.meetings > 0 {
                let at_s = (from_s + (after_s - from_s) * share).min(after_s);
                self.meetings -= usize::from(self.add(at_s, bound, half_width(at_s)));
            }
        }
    }

    /// Adds a knot if it is valid and later than those before; returns whether it was added.
    fn add(&mut self, after_s: f64, value: f64, half_width: f64) -> bool {
        let value = match self.bounds {
            Some((least, most)) => value.clamp(least, most),
            None => value,
        };
        let count = self.floats.len() / KNOT_PARTS;
        let is_later = match count.checked_sub(1) {
            Some(last) => after_s > self.floats[last * KNOT_PARTS],
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
    use proptest::prelude::*;

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
        let last_s = before[before.len() - KNOT_PARTS];
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
        // The capacity was made larger, and then smaller than the present value.
        cascade.set_shape(bounded(now + 200.0));
        assert_eq!(ends(&cascade).1, now + 200.0);
        cascade.set_shape(bounded(now - 1.0));
        assert_eq!(ends(&cascade), (now, now));
        cascade.set_shape(Shape::Gauge);
        assert!(ends(&cascade).1 > now + 300.0);
        let falling = fed(bounded(1e6), ramp().map(|v| 18_100.0 - v));
        assert_eq!(ends(&falling).0, 0.0);
    }

    /// The forecast of a time by the projection, and by the forecasters themselves; `None` where
    /// either has no forecast, and where the error is not known, since there a straight line may be
    /// drawn.
    fn told_and_said(cascade: &Cascade, after_s: f64) -> Option<(f64, f64)> {
        let after_ns = (after_s * NS_PER_S) as i64;
        let told = cascade.project().at(after_ns as f64 / NS_PER_S)?;
        let told = told.half_width.is_finite().then_some(told)?;
        let said = cascade.at(cascade.finest().newest_ns()? + after_ns)?;
        Some((told.value, said.value))
    }

    /// A capacity that has `to_go_s` seconds to go until it is full or, if it falls, used up; and
    /// its total.
    fn capacity(looks: u32, to_go_s: f64, rate: f64, noise: f64, falls: bool) -> (Cascade, f64) {
        let total = rate * (f64::from(looks - 1) + to_go_s);
        let mut random = crate::Random::new(u64::from(looks));
        let value = |look: u32| {
            let used = rate * (f64::from(look) + noise * random.normal());
            if falls { total - used } else { used }.clamp(0.0, total)
        };
        let max = total;
        let cascade = fed(Shape::Bounded { min: 0.0, max }, (0..looks).map(value));
        (cascade, total)
    }

    #[test]
    fn a_bound_that_is_met_has_a_knot() {
        for falls in [true, false] {
            for to_go_s in [2.25, 7.5, 18.75, 55.25, 50.0, 8.0] {
                let (cascade, total) = capacity(2_000, to_go_s, 3.0, 0.0, falls);
                let end = if falls { 0.0 } else { total };
                let projection = cascade.project();
                let there = projection.knots().iter().find(|knot| knot.value == end);
                let after_s = there.map_or(f64::NAN, |knot| knot.after_s);
                assert!((after_s - to_go_s).abs() < 1e-6, "{to_go_s}: {after_s}");
                let expected_s = projection.reaches(end).and_then(|reach| reach.expected_s);
                assert_eq!(expected_s, Some(after_s), "{to_go_s}");
                // One at most, however a step that ends there is rounded.
                let (free, _) = capacity(2_000, 1e9, 3.0, 0.0, falls);
                let more = projection.knots().len() - free.project().knots().len();
                assert!(more <= 1, "{to_go_s}: {more}");
            }
        }
    }

    proptest! {
        #[test]
        fn a_capacity_is_told_as_it_is_said(
            looks in 2_000..2_600_u32,
            to_go_s in 0.0..600.0,
            rate in 1e-3..1e9,
            falls: bool,
            times in prop::collection::vec(0.0..1_000.0, 9),
        ) {
            let (cascade, total) = capacity(looks, to_go_s, rate, 0.0, falls);
            for after_s in times.into_iter().chain([to_go_s, to_go_s * 0.999]) {
                let Some((told, said)) = told_and_said(&cascade, after_s) else { continue };
                prop_assert!((told - said).abs() <= 1e-9 * total, "{after_s}: {told} {said}");
            }
        }

        /// With a knot at each step, the projection holds for all forecasts.
        #[test]
        fn a_noisy_capacity_is_told_as_it_is_said(
            looks in 2..400_u32,
            to_go_s in 0.0..20.0,
            noise in 0.0..9.0,
            falls: bool,
            times in prop::collection::vec(0.0..16.0, 9),
        ) {
            let (cascade, total) = capacity(looks, to_go_s, 7.0, noise, falls);
            for after_s in times {
                let Some((told, said)) = told_and_said(&cascade, after_s) else { continue };
                prop_assert!((told - said).abs() <= 1e-9 * total, "{after_s}: {told} {said}");
                prop_assert!((0.0..=total).contains(&told), "{after_s}: {told}");
            }
        }
    }

    #[test]
    fn a_steady_fill_is_told_before_its_error_is_known() {
        for falls in [true, false] {
            let (cascade, total) = capacity(40, 1_800.0, 3.0, 0.2, falls);
            let end = if falls { 0.0 } else { total };
            let projection = cascade.project();
            let reach = projection.reaches(end).unwrap();
            let expected_s = reach.expected_s.unwrap();
            assert!((expected_s / 1_800.0 - 1.0).abs() < 0.1, "{expected_s}");
            assert_eq!((reach.early_s, reach.late_s), (None, None));
            assert!(projection.known_s().is_some_and(|s| s < 64.0));
        }
    }

    #[test]
    fn what_has_been_compared_counts_more_than_a_line() {
        let (infinite, start) = (f64::INFINITY, [0.0, 9.0, 0.0]);
        let check = |knots: &[[f64; 3]], expect: &[[f64; 3]]| {
            let mut floats = knots.concat();
            go_straight_on(&mut floats, 100.0, 0.0);
            assert_eq!(floats, expect.concat());
        };
        let line = [100.0, 0.0, infinite];
        check(&[], &[]);
        check(&[start], &[start, line]);
        check(&[start, [64.0, 8.0, infinite]], &[start, line]);
        let known = [64.0, 8.0, 1.0];
        check(&[start, known], &[start, known, line]);
        check(
            &[start, known, [300.0, 5.0, infinite]],
            &[start, known, line],
        );
        for known in [[64.0, 0.0, 1.0], [128.0, 8.0, 1.0]] {
            let all = [start, known, [300.0, 0.0, infinite]];
            check(&all, &all);
        }
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

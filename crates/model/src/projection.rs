//! A projection: the expected values of a stream after its newest look, as an array of doubles that
//! any reader evaluates at a time of its choice.
//!
//! The array is the value of the stream `forecast.<name>`, so it lies in memory, log and archive
//! like any other value, and readers validate it before use.

use crate::{Descriptor, NS_PER_S, Quality, Sample, Value};

/// Prefix of the name of a forecast stream; the rest is the name of the stream that is forecast.
pub const FORECAST_PREFIX: &str = "forecast.";
/// Most knots of one projection.
pub const KNOTS_MAX: usize = 64;

/// Doubles per knot.
pub const KNOT_PARTS: usize = 3;

/// The expected value at one time after the newest look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Knot {
    /// Time after the look, in seconds; 0 is the look itself.
    pub after_s: f64,
    /// Expected value, in the stream's unit.
    pub value: f64,
    /// Half width of the interval that holds the true value with the requested confidence; infinite
    /// while it is unknown.
    pub half_width: f64,
}

impl Knot {
    fn of(&[after_s, value, half_width]: &[f64; KNOT_PARTS]) -> Self {
        Self {
            after_s,
            value,
            half_width,
        }
    }

    /// The time, and the value plus `half_widths` half widths. The latter is infinite if the half
    /// width is unknown.
    fn bound(&self, half_widths: f64) -> (f64, f64) {
        let there = match half_widths {
            0.0 => self.value,
            _ => self.value + half_widths * self.half_width,
        };
        // The sum of two finite numbers may overflow.
        match self.half_width.is_finite() {
            true => (self.after_s, there.clamp(f64::MIN, f64::MAX)),
            false => (self.after_s, there),
        }
    }

    fn is_sound(&self) -> bool {
        self.after_s.is_finite()
            && self.after_s >= 0.0
            && self.value.is_finite()
            && self.half_width >= 0.0
    }
}

/// Times at which a level is reached, each in seconds after the look; `None` if it is not reached
/// within the projection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LevelReach {
    /// Time at which the expected value reaches the level.
    pub expected_s: Option<f64>,
    /// Time at which the nearer edge of the interval reaches the level: with the requested
    /// confidence (plus half of the rest) not sooner. Also `None` if an earlier half width is
    /// unknown.
    pub early_s: Option<f64>,
    /// Time at which the farther edge of the interval reaches the level: not later, with the same
    /// confidence.
    pub late_s: Option<f64>,
}

/// Knots in order of time, with straight lines between them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Projection(Vec<Knot>);

impl Projection {
    /// Creates a projection of knots whose times ascend; knots that do not ascend, are not finite
    /// or are too many are left out.
    pub fn new(knots: impl IntoIterator<Item = Knot>) -> Self {
        let mut projection = Self::default();
        projection.refill(knots);
        projection
    }

    /// Replaces the knots, as in [`Self::new`]; allocates only if there is not enough room for
    /// them.
    pub fn refill(&mut self, knots: impl IntoIterator<Item = Knot>) {
        self.0.clear();
        for knot in knots {
            let last = self.0.last();
            let is_later = last.is_none_or(|last| knot.after_s > last.after_s);
            if is_later && knot.is_sound() && self.0.len() < KNOTS_MAX {
                self.0.push(knot);
            }
        }
    }

    /// Replaces the knots, as in [`Self::from_floats`]; leaves no knots if the array is invalid.
    pub fn refill_from_floats(&mut self, floats: &[f64]) {
        self.0.clear();
        self.0
            .extend(whole(floats).into_iter().flatten().map(Knot::of));
    }

    /// Reads the value of a forecast stream: time after the look (in seconds), value and half width
    /// (in the stream's unit) of each knot. Returns `None` for an invalid array.
    pub fn from_floats(floats: &[f64]) -> Option<Self> {
        Some(Self(whole(floats)?.iter().map(Knot::of).collect()))
    }

    /// Returns the array that the forecast stream has as its value.
    pub fn to_floats(&self) -> Vec<f64> {
        let mut floats = Vec::new();
        self.write_floats(&mut floats);
        floats
    }

    /// Writes the same array into `floats`, replacing its content.
    pub fn write_floats(&self, floats: &mut Vec<f64>) {
        let parts = |knot: &Knot| [knot.after_s, knot.value, knot.half_width];
        floats.clear();
        floats.extend(self.0.iter().flat_map(parts));
    }

    /// The knots, in order of time.
    pub fn knots(&self) -> &[Knot] {
        &self.0
    }

    /// The expected value `after_s` seconds after the look. `None` before the first knot and beyond
    /// the last one: nothing is predicted there.
    pub fn at(&self, after_s: f64) -> Option<Knot> {
        line_at(&self.0, |knot| *knot, after_s)
    }

    /// The end of the projection, in seconds after the look; `None` if it is empty.
    pub fn horizon_s(&self) -> Option<f64> {
        self.0.last().map(|knot| knot.after_s)
    }

    /// The time up to which the error is known, in seconds after the look; `None` if it is known at
    /// the look only, or nowhere.
    pub fn known_s(&self) -> Option<f64> {
        let known = self.0.iter().take_while(|knot| knot.half_width.is_finite());
        let last_s = known.last()?.after_s;
        (last_s > 0.0).then_some(last_s)
    }

    /// The first times at which the projection is as great as `level`, or as small if it starts
    /// above it: for the expected value and for both edges of its interval. `None` if the
    /// projection is empty, and for a level that is not finite.
    ///
    /// The search ends at the last knot. An edge that is unknown at a knot is unknown up to the
    /// next knot at which it is known.
    ///
    /// A projection that stays at the level to its end is at a limit, as a disk is no fuller than
    /// full: its values cannot go beyond the level, so nothing there shows how the edges go on. The
    /// edges are therefore continued in a straight line from the last knot before the level. This
    /// is not done if the error at that end is unknown, since it was compared with nothing.
    pub fn reaches(&self, level: f64) -> Option<LevelReach> {
        let first = self.0.first()?;
        if !level.is_finite() {
            return None;
        }
        let way = if level < first.value { -1.0 } else { 1.0 };
        let staying = self.0.iter().rev().take_while(|knot| knot.value == level);
        let free = match self.0.len() - staying.count() {
            0 => self.0.len(),
            free => free,
        };
        let (free, at_end) = self.0.split_at(free);
        let end = at_end.first().filter(|knot| knot.half_width.is_finite());
        let known = free.iter().take_while(|knot| knot.half_width.is_finite());
        let known = known.count();
        let crossing = |knots: &[Knot], towards: f64| {
            let points = knots.iter().map(|knot| knot.bound(towards * way));
            crossing(points, level, way)
        };
        let beyond = |towards: f64| straight_on(free, end?, level, towards * way);
        let expected_s = crossing(&self.0, 0.0);
        let early_s = crossing(&free[..known], 1.0);
        let early_s = early_s.or_else(|| beyond(1.0).filter(|_| known == free.len()));
        let late_s = crossing(free, -1.0).or_else(|| beyond(-1.0));
        let horizon_s = self.horizon_s()?;
        // The three times are put in order, however they were rounded.
        Some(LevelReach {
            expected_s,
            early_s: early_s.map(|early| expected_s.map_or(early, |expected| early.min(expected))),
            late_s: late_s
                .and_then(|late| Some(late.max(expected_s?)))
                .filter(|late| *late <= horizon_s),
        })
    }
}

/// The sample that a projection predicts for `at_ns`: its quality is predicted, its error the half
/// width. `said` is the value of a forecast stream, `looked_ns` the time when that was last
/// published. `None` if `said` is not a projection, and beyond its end.
pub fn predicted_sample(said: &Value, looked_ns: i64, at_ns: i64) -> Option<Sample> {
    let Value::Floats(floats) = said else {
        return None;
    };
    // A look in the future, after the clock was set back, counts as a look now.
    let after_ns = at_ns.saturating_sub(looked_ns).max(0);
    let knot = line_at(whole(floats)?, Knot::of, after_ns as f64 / NS_PER_S as f64)?;
    Some(Sample {
        ts: at_ns,
        value: Value::Float(knot.value),
        quality: Quality::Predicted,
        error: knot.half_width as f32,
    })
}

/// Returns the projections of the stream `of` among things that are sorted by name and labels.
pub fn projections_among<'a, T>(
    sorted: &'a [T],
    descriptor: impl Fn(&T) -> &Descriptor,
    of: &Descriptor,
) -> &'a [T] {
    let order = |thing: &T| {
        let it = descriptor(thing);
        let wanted = FORECAST_PREFIX.bytes().chain(of.name.as_str().bytes());
        let by_name = it.name.as_str().bytes().cmp(wanted);
        by_name.then_with(|| it.labels.cmp(&of.labels))
    };
    let from = sorted.partition_point(|thing| order(thing).is_lt());
    let rest = &sorted[from..];
    &rest[..rest.partition_point(|thing| order(thing).is_le())]
}

/// The knots of an array, if all of it is valid knots whose times ascend.
fn whole(floats: &[f64]) -> Option<&[[f64; KNOT_PARTS]]> {
    let (knots, rest) = floats.as_chunks::<KNOT_PARTS>();
    let is_sound = knots.iter().all(|knot| Knot::of(knot).is_sound());
    let is_whole = rest.is_empty() && (1..=KNOTS_MAX).contains(&knots.len());
    (is_whole && is_sound && knots.is_sorted_by(|a, b| a[0] < b[0])).then_some(knots)
}

/// The value at a time, on the lines between knots.
fn line_at<K>(knots: &[K], of: impl Fn(&K) -> Knot, after_s: f64) -> Option<Knot> {
    let at = knots.partition_point(|knot| of(knot).after_s < after_s);
    let next = of(knots.get(at)?);
    if next.after_s == after_s {
        return Some(next);
    }
    let before = of(knots.get(at.checked_sub(1)?)?);
    let share = (after_s - before.after_s) / (next.after_s - before.after_s);
    // A constant value stays constant to the last bit; the difference of two finite numbers may
    // overflow.
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

/// Time at which lines between points (time, value) first reach `level` or lie beyond it, in the
/// direction `way` (1 up, -1 down).
fn crossing(points: impl Iterator<Item = (f64, f64)>, level: f64, way: f64) -> Option<f64> {
    let mut before: Option<(f64, f64)> = None;
    for (after_s, there) in points {
        if there * way >= level * way {
            let Some((from_s, from)) = before else {
                return Some(after_s);
            };
            // Computed with halves, whose differences are finite.
            let share = (level / 2.0 - from / 2.0) / (there / 2.0 - from / 2.0);
            let share = if share.is_finite() {
                share.clamp(0.0, 1.0)
            } else {
                1.0
            };
            return Some((from_s + (after_s - from_s) * share).min(after_s));
        }
        before = Some((after_s, there));
    }
    None
}

/// Time at which a straight line reaches `level` if it is continued: the line from the first knot
/// to the last free one, or to `end` if there is only one free knot.
fn straight_on(free: &[Knot], end: &Knot, level: f64, half_widths: f64) -> Option<f64> {
    let first = free.first()?;
    let to = if free.len() > 1 { free.last()? } else { end };
    let (to_s, there) = to.bound(half_widths);
    let times = (level - first.value) / (there - first.value);
    let at_s = first.after_s + (to_s - first.after_s) * times;
    (times > 0.0 && at_s.is_finite()).then_some(at_s)
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
            vec![0.0; KNOT_PARTS * (KNOTS_MAX + 1)],
        ] {
            assert_eq!(Projection::from_floats(&floats), None, "{floats:?}");
        }
    }

    /// Returns the early, expected and late times, rounded to the microsecond.
    fn reached(projection: &Projection, level: f64) -> Option<[Option<f64>; 3]> {
        let reach = projection.reaches(level)?;
        let all = [reach.early_s, reach.expected_s, reach.late_s];
        Some(all.map(|at_s| at_s.map(|at_s| (at_s * 1e6).round() / 1e6)))
    }

    #[test]
    fn levels_are_reached_between_knots_from_both_sides() {
        let up = [
            knot(0.0, 10.0, 0.0),
            knot(10.0, 20.0, 5.0),
            knot(20.0, 30.0, 10.0),
        ];
        let down = up.map(|k| knot(k.after_s, -k.value, k.half_width));
        for (level, expect) in [
            (10.0, [Some(0.0), Some(0.0), Some(0.0)]),
            (15.0, [Some(3.333333), Some(5.0), Some(10.0)]),
            (20.0, [Some(6.666667), Some(10.0), Some(20.0)]),
            (25.0, [Some(10.0), Some(15.0), None]),
            (40.0, [Some(20.0), None, None]),
            (41.0, [None; 3]),
            (9.0, [None; 3]),
        ] {
            assert_eq!(
                reached(&Projection::new(up), level),
                Some(expect),
                "{level}"
            );
            let found = reached(&Projection::new(down), -level);
            assert_eq!(found, Some(expect), "down to -{level}");
        }
        assert_eq!(Projection::new(up).horizon_s(), Some(20.0));
    }

    #[test]
    fn what_stays_at_the_level_was_there_before() {
        // Decreases by 10 per second, give or take 1: at 8 s nothing is left of 60.
        let disk = [
            knot(0.0, 60.0, 0.0),
            knot(4.0, 20.0, 4.0),
            knot(6.0, 0.0, 6.0),
            knot(16.0, 0.0, 16.0),
        ];
        let early = 60.0 / 11.0;
        let late = 60.0 / 9.0;
        let round = |at_s: f64| Some((at_s * 1e6).round() / 1e6);
        let expect = [round(early), Some(6.0), round(late)];
        assert_eq!(reached(&Projection::new(disk), 0.0), Some(expect));
        let used = disk.map(|k| knot(k.after_s, 60.0 - k.value, k.half_width));
        assert_eq!(reached(&Projection::new(used), 60.0), Some(expect));
        // The late time is never beyond the last knot, and without the end knot it is unknown.
        let found = reached(&Projection::new(disk.into_iter().take(3)), 0.0);
        assert_eq!(found, Some([expect[0], expect[1], None]));
        let slower = [
            knot(0.0, 60.0, 0.0),
            knot(4.0, 50.0, 0.0),
            knot(8.0, 0.0, 1.0),
        ];
        assert_eq!(
            reached(&Projection::new(slower), 0.0),
            Some([Some(8.0), Some(8.0), None])
        );
        // If there is only one knot before the end, the line goes to the end.
        let short = [
            knot(0.0, 60.0, 0.0),
            knot(8.0, 0.0, 20.0),
            knot(16.0, 0.0, 20.0),
        ];
        assert_eq!(
            reached(&Projection::new(short), 0.0),
            Some([Some(6.0), Some(8.0), Some(12.0)])
        );
        let unknown = [knot(0.0, 60.0, 0.0), knot(8.0, 0.0, f64::INFINITY)];
        let found = reached(&Projection::new(unknown), 0.0);
        assert_eq!(found, Some([None, Some(8.0), None]));
        // A known error does not replace an unknown one after it.
        let straight = [unknown[0], knot(1.0, 54.0, 0.5), unknown[1]];
        let found = reached(&Projection::new(straight), 0.0);
        assert_eq!(found, Some([None, Some(8.0), None]));
        assert_eq!(Projection::new(straight).known_s(), Some(1.0));
        assert_eq!(Projection::new(unknown).known_s(), None);
    }

    #[test]
    fn what_is_not_known_is_not_reached() {
        let infinite = f64::INFINITY;
        let projection = Projection::new([
            knot(1.0, 0.0, 1.0),
            knot(2.0, 1.0, infinite),
            knot(3.0, 9.0, 1.0),
        ]);
        for (level, expect) in [
            // Nothing is predicted before the first knot, and the edge may be at 1 at once.
            (1.0, [Some(1.0), Some(2.0), Some(3.0)]),
            (5.0, [None, Some(2.5), Some(3.0)]),
            (9.0, [None, Some(3.0), None]),
        ] {
            assert_eq!(reached(&projection, level), Some(expect), "{level}");
        }
        for level in [f64::NAN, infinite, -infinite] {
            assert_eq!(reached(&projection, level), None, "{level}");
        }
        assert_eq!(reached(&Projection::default(), 1.0), None);
        assert_eq!(Projection::default().horizon_s(), None);
        // Knots that go back in time are left out.
        let back = Projection::new([knot(2.0, 0.0, 0.0), knot(1.0, 5.0, 0.0)]);
        assert_eq!(reached(&back, 5.0), Some([None; 3]));
        // The largest finite numbers.
        let far = Projection::new([knot(0.0, f64::MIN, 0.0), knot(1.0, f64::MAX, f64::MAX)]);
        assert_eq!(reached(&far, 0.0), Some([Some(0.5), Some(0.5), Some(1.0)]));
    }

    #[test]
    fn the_sample_of_a_time_is_predicted() {
        let said = Value::Floats(vec![0.0, 1.0, 0.0, 2.0, 3.0, 4.0].into());
        for (second, expect) in [(1, Some((1.0, 0.0))), (6, Some((2.0, 2.0))), (8, None)] {
            let found = predicted_sample(&said, 5 * NS_PER_S, second * NS_PER_S);
            let found = found.map(|s| {
                assert_eq!((s.ts, s.quality), (second * NS_PER_S, Quality::Predicted));
                (s.value.as_f64().unwrap_or(f64::NAN), s.error)
            });
            assert_eq!(found, expect, "{second}");
        }
        for other in [Value::Floats(vec![1.0].into()), Value::Int(7)] {
            assert_eq!(predicted_sample(&other, 0, 1), None);
        }
    }

    #[test]
    fn projections_are_found_by_name_and_labels() {
        let descriptor = |name: &str, device: &str| Descriptor {
            name: crate::Name::new(name).unwrap(),
            labels: crate::Labels::new([("device", device)]).unwrap(),
            value_type: crate::ValueType::Floats,
            unit: crate::Unit::new("1").unwrap(),
            kind: crate::Kind::State,
            help: String::new(),
        };
        let mut all = Vec::new();
        for name in ["a.b", "forecast.a.b", "forecast.a.b.c", "forecast.b", "z"] {
            all.extend(["sda", "sdb"].map(|device| descriptor(name, device)));
        }
        for (name, device, expect) in [
            ("a.b", "sdb", Some("forecast.a.b{device=sdb}")),
            ("b", "sda", Some("forecast.b{device=sda}")),
            ("a.b", "sdc", None),
            ("a", "sda", None),
        ] {
            let found = projections_among(&all, |d| d, &descriptor(name, device));
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            assert_eq!(found, Vec::from_iter(expect), "{name} {device}");
        }
    }

    fn knots() -> impl Strategy<Value = Vec<Knot>> {
        let half_width = prop_oneof![5 => 0.0..1e3, 1 => Just(f64::INFINITY)];
        let one = (0.01..100.0, -1e3..1e3, half_width);
        prop::collection::vec(one, 1..20).prop_map(|all| {
            let mut after_s = 0.0;
            let knots = all.into_iter().map(|(step_s, value, half_width)| {
                after_s += step_s;
                knot(after_s, value, half_width)
            });
            knots.collect()
        })
    }

    proptest! {
        #[test]
        fn a_level_is_reached_first_where_the_lines_are_there(knots in knots(), level in -1.5e3..1.5e3) {
            let projection = Projection::new(knots.iter().copied());
            let reach = projection.reaches(level).unwrap();
            let way = if level < knots[0].value { -1.0 } else { 1.0 };
            let is_short = |value: f64| value * way < level * way + 1e-6;
            for (towards, at_s) in [(1.0, reach.early_s), (0.0, reach.expected_s), (-1.0, reach.late_s)] {
                let bound = |knot: &Knot| match towards * way * knot.half_width {
                    none if none.is_nan() => knot.value,
                    width => knot.value + width,
                };
                let Some(at_s) = at_s else {
                    let unknown = knots.iter().take_while(|k| towards < 1.0 || k.half_width.is_finite());
                    prop_assert!(unknown.map(&bound).all(is_short));
                    continue;
                };
                let before = knots.iter().filter(|knot| knot.after_s < at_s);
                prop_assert!(before.map(&bound).all(is_short));
                let there = projection.at(at_s).unwrap();
                let is_jump = knots.iter().any(|knot| knot.after_s == at_s);
                let off = (bound(&there) - level).abs();
                prop_assert!(off < 1e-6 || is_jump, "{at_s}: {off}");
            }
            let in_order = |a: Option<f64>, b: Option<f64>| a.zip(b).is_none_or(|(a, b)| a <= b);
            prop_assert!(in_order(reach.early_s, reach.expected_s) && in_order(reach.expected_s, reach.late_s));
            prop_assert!(reach.late_s.is_none() || reach.expected_s.is_some());
        }

        #[test]
        fn foreign_numbers_never_panic(floats: Vec<f64>, after_s: f64, level: f64) {
            if let Some(projection) = Projection::from_floats(&floats) {
                if let Some(reach) = projection.reaches(level) {
                    let all = [reach.early_s, reach.expected_s, reach.late_s];
                    prop_assert!(all.into_iter().flatten().all(|at_s| projection.at(at_s).is_some()));
                }
                prop_assert_eq!(projection.to_floats(), floats);
                if let Some(knot) = projection.at(after_s) {
                    prop_assert!(knot.value.is_finite() && knot.half_width >= 0.0);
                }
            }
        }
    }
}

//! The straight line through recent values: it predicts from the first minute on when a capacity
//! will be used up, if it goes on as before.
//!
//! Forecasts earn their error: those of an hour ahead are compared with nothing until many hours
//! have passed. A disk that fills at a steady rate is full by then. This line is compared with
//! nothing either, and is marked so: a projection has it behind its last knot of known error, with
//! an unknown error.

/// Time for which the past counts, in seconds: a look of that age weighs 1/e of the newest one. A
/// new rate is recognized as a line after twice a memory; values that come in bursts need a memory
/// longer than several bursts.
const MEMORIES_S: [f64; 3] = [60.0, 300.0, 3_600.0];
/// Fewest looks for a line: with fewer, a single jump looks like one.
const LOOKS_MIN: u32 = 6;
/// Shortest span of looks, in seconds: in a shorter one, moments are distinguished and not trends.
const SPAN_S_MIN: f64 = 30.0;
/// The share of the variance that a line has to explain. A line through a single jump explains .77
/// at most (with six looks; .65 once the memory is full).
const EXPLAINED_MIN: f64 = 0.8;
/// The latest time for which a line predicts, in seconds, however straight it is: it is based on at
/// most an hour of the past.
const AFTER_S_MAX: f64 = 30.0 * 86_400.0;
/// Steps within a factor of two to which the predicted time is rounded, so that it does not change
/// at each look.
const STEPS_PER_OCTAVE: f64 = 32.0;

/// Lines through the looks at one stream, each with a memory of its own.
#[derive(Debug, Clone, Default)]
pub(crate) struct StraightLines {
    newest: Option<(i64, f64)>,
    looks: u32,
    span_s: f64,
    lines: [Line; MEMORIES_S.len()],
}

impl StraightLines {
    /// Takes in a look that is not earlier than those before.
    pub(crate) fn look(&mut self, ts_ns: i64, value: f64) {
        let since_s = match self.newest {
            Some((before_ns, _)) if before_ns >= ts_ns => return,
            Some((before_ns, _)) => ts_ns.saturating_sub(before_ns) as f64 / 1e9,
            None => 0.0,
        };
        self.newest = Some((ts_ns, value));
        self.looks = self.looks.saturating_add(1);
        self.span_s += since_s;
        for (line, memory_s) in self.lines.iter_mut().zip(MEMORIES_S) {
            line.look(since_s, value, memory_s);
        }
    }

    /// Seconds after the newest look until one of two bounds is met, and that bound: the earliest
    /// time of all lines. `None` while there are too few looks, and if the values are not on a line
    /// or move away from both bounds.
    pub(crate) fn meets(&self, (least, most): (f64, f64)) -> Option<(f64, f64)> {
        let (_, here) = self.newest?;
        if self.looks < LOOKS_MIN || self.span_s < SPAN_S_MIN {
            return None;
        }
        let slopes = self.lines.iter().filter_map(Line::slope_per_s);
        let met = slopes.filter_map(|slope| {
            let bound = if slope < 0.0 { least } else { most };
            let after_s = (bound - here) / slope;
            (after_s > 0.0 && after_s <= AFTER_S_MAX).then_some((coarse(after_s), bound))
        });
        met.min_by(|a, b| a.0.total_cmp(&b.0))
    }
}

fn coarse(seconds: f64) -> f64 {
    ((seconds.log2() * STEPS_PER_OCTAVE).round() / STEPS_PER_OCTAVE).exp2()
}

/// Least squares over looks, of which older ones count less.
#[derive(Debug, Clone, Copy, Default)]
struct Line {
    weight: f64,
    /// Age of the mean look, in seconds before the newest look, and the mean value.
    mean_s: f64,
    mean: f64,
    /// Weighted sums of squares and products around the means.
    times: f64,
    products: f64,
    values: f64,
}

impl Line {
    fn look(&mut self, since_s: f64, value: f64, memory_s: f64) {
        let kept = (-since_s / memory_s).exp();
        self.weight *= kept;
        self.times *= kept;
        self.products *= kept;
        self.values *= kept;
        self.mean_s += since_s;
        self.weight += 1.0;
        let (later_s, more) = (self.mean_s, value - self.mean);
        self.mean_s -= later_s / self.weight;
        self.mean += more / self.weight;
        self.times += later_s * self.mean_s;
        self.products += more * self.mean_s;
        self.values += more * (value - self.mean);
    }

    /// The slope in units per second; `None` if the values are not on a line that moves.
    fn slope_per_s(&self) -> Option<f64> {
        let explained = self.products * self.products / (self.times * self.values);
        let slope = self.products / self.times;
        (explained >= EXPLAINED_MIN && slope.is_finite() && slope != 0.0).then_some(slope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: (f64, f64) = (0.0, 1e12);

    fn looked(values: impl IntoIterator<Item = f64>, every_s: i64) -> StraightLines {
        let mut straight = StraightLines::default();
        for (look, value) in (0..).zip(values) {
            straight.look(look * every_s * 1_000_000_000, value);
        }
        straight
    }

    #[test]
    fn a_steady_fill_is_foreseen_within_the_first_minute() {
        let left = |look: u32| 4e9 - 1.2e7 * f64::from(look);
        let check = |looks: u32, expect: Option<f64>| {
            let met = looked((0..looks).map(left), 10).meets(BOUNDS);
            assert_eq!(met.is_some(), expect.is_some(), "{looks}: {met:?}");
            if let (Some((after_s, bound)), Some(expect)) = (met, expect) {
                assert_eq!(bound, 0.0, "{looks}");
                assert!((after_s / expect - 1.0).abs() < 0.012, "{looks}: {after_s}");
            }
        };
        check(5, None);
        for looks in [6, 7, 30, 180, 300] {
            check(looks, Some(left(looks - 1) / 1.2e6));
        }
    }

    #[test]
    fn what_comes_in_bursts_is_a_line_and_a_single_jump_is_none() {
        let check = |name: &str, left: &dyn Fn(u32) -> f64, is_line: bool| {
            for looks in 6..400 {
                let met = looked((0..looks).map(left), 10).meets(BOUNDS);
                let is_right = met.is_some() == is_line || (is_line && looks < 30);
                assert!(is_right, "{name} after {looks}: {met:?}");
            }
        };
        check("bursts", &|look| 1e12 - 1e9 * f64::from(look / 6), true);
        check("still", &|_| 1e12, false);
        for at in [1, 3, 20, 200] {
            let jump = move |look| if look < at { 1e12 } else { 9e11 };
            check("a jump", &jump, false);
        }
    }

    #[test]
    fn the_way_it_goes_decides_which_bound_is_met() {
        let up = looked((0..30).map(|look| 5e11 + 1e9 * f64::from(look)), 1);
        assert_eq!(up.meets(BOUNDS), None, "too short a time");
        let up = looked((0..60).map(|look| 5e11 + 1e9 * f64::from(look)), 1);
        let (after_s, bound) = up.meets(BOUNDS).unwrap();
        assert_eq!(bound, 1e12);
        assert!((after_s / 441.0 - 1.0).abs() < 0.012, "{after_s}");
        // At the bound, and beyond it, nothing is predicted.
        assert_eq!(up.meets((0.0, 5.59e11)), None);
        assert_eq!(up.meets((0.0, 5.0e11)), None);
    }

    #[test]
    fn a_rate_that_grew_counts_soon() {
        let left = |look: u32| match look {
            0..600 => 1e12 - 1e7 * f64::from(look),
            _ => 1e12 - 6e9 - 1e9 * f64::from(look - 600),
        };
        let met = |looks: u32| looked((0..looks).map(left), 10).meets(BOUNDS);
        let (slow_s, _) = met(600).unwrap();
        assert!(slow_s > 9e5, "{slow_s}");
        let fast_s = |looks: u32| met(looks).unwrap().0;
        assert!((9_000.0..17_000.0).contains(&fast_s(613)));
        assert!((9_000.0..12_000.0).contains(&fast_s(621)));
    }

    #[test]
    fn times_that_go_back_and_extremes_are_harmless() {
        let mut straight = looked((0..20).map(|look| 1e9 - 1e6 * f64::from(look)), 10);
        let before = straight.meets(BOUNDS);
        straight.look(0, 7.0);
        assert_eq!(straight.meets(BOUNDS), before);
        for value in [f64::MAX, f64::MIN, 0.0, f64::MAX] {
            straight.look(i64::MAX, value);
            let _ = straight.meets((f64::MIN, f64::MAX));
        }
    }
}

//! The recent past of one stream, as far as a window reaches: a ring of points that is kept up to
//! date sample by sample, in bounded memory.
//!
//! It stands alone because it knows neither rules nor streams, and a test compares it with the same
//! questions asked of all samples.

use std::collections::VecDeque;

use barograph_model::{EXACT_MAX, NS_PER_S};

use barograph_statement::{ArithmeticOp, SqlValue, UncertainValue, arith};

/// Fewest points that a window is thinned to.
pub(crate) const WINDOW_POINTS_MIN: usize = 8;
/// Time in ns for which points are kept beyond their window: a sample that is older than the newest
/// one by at most this is still counted right.
pub(crate) const WINDOW_DISORDER_NS_MAX: i64 = NS_PER_S;

/// One sample, or several that follow each other and were made one to save room.
#[derive(Clone, Debug)]
struct Point {
    /// The time of the previous sample; its own time when there is none.
    since: i64,
    /// The time until which the previous value was known to hold: the change came after it.
    from: i64,
    /// The time of the (newest) sample.
    ts: i64,
    /// Its value.
    val: SqlValue,
    /// Whether nobody looked from then until the next sample.
    is_last_look: bool,
    /// The least and the greatest number; the least is the greater one when there is none.
    low: f64,
    high: f64,
    /// Number of samples.
    count: u64,
    /// The previous value, times the nanoseconds from `since` to `ts` in which it was a number.
    area: f64,
    /// The number of those nanoseconds.
    area_ns: i64,
    /// The sum of the value's changes; a counter that falls has begun anew, and has not changed.
    change: f64,
    /// The nanoseconds of the change, within `from` to `ts`; 0 when they are not known.
    known_ns: i64,
}

/// A sample as a window takes it.
#[derive(Clone, Debug)]
pub(crate) struct WindowSample {
    pub ts: i64,
    pub val: SqlValue,
    /// Whether nobody looked from then until the next sample.
    pub is_last_look: bool,
    /// The time until which the previous value was seen to hold.
    pub held_ns: i64,
    pub is_counter: bool,
    /// The earliest end of a window that may be asked for.
    pub horizon_ns: i64,
    /// The samples that it stands for, if it is the last of several.
    pub several: Option<SampleRun>,
}

/// A summary of samples that are handed over as one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampleRun {
    pub count: u64,
    pub low: f64,
    pub high: f64,
    pub mean: f64,
}

/// The points of the newest `length_ns` of a stream, and the one before them.
#[derive(Debug)]
pub(crate) struct StreamWindow {
    pub length_ns: i64,
    points: VecDeque<Point>,
}

impl StreamWindow {
    pub(crate) fn new(length_ns: i64) -> Self {
        Self {
            length_ns,
            points: VecDeque::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.points.len()
    }

    /// Takes in the next sample. Later points are forgotten: they come from a clock that was wrong.
    pub(crate) fn push(&mut self, sight: &WindowSample, points_max: usize) {
        let mut sight = sight.clone();
        if let Some(held_ns) = self.forget_after(sight.ts) {
            sight.held_ns = held_ns;
        }
        let point = next(self.points.back(), &sight);
        self.points.push_back(point);
        let horizon_ns = sight.ts.min(sight.horizon_ns);
        let start_ns = horizon_ns
            .saturating_sub(self.length_ns)
            .saturating_sub(WINDOW_DISORDER_NS_MAX);
        while self.points.get(1).is_some_and(|p| p.ts <= start_ns) {
            self.points.pop_front();
        }
        if self.points.len() > points_max.max(WINDOW_POINTS_MIN) {
            self.thin();
        }
    }

    /// Puts samples before the oldest point. Samples that are not older are left out, so that none
    /// is counted twice.
    pub(crate) fn prepend(&mut self, past: impl Iterator<Item = WindowSample>, points_max: usize) {
        let mut known = std::mem::take(&mut self.points);
        // What was made one begins with its first sample, or after that of `since`.
        let oldest = |p: &Point| if p.count == 1 { p.ts } else { p.since };
        let before_ns = known.front().map_or(i64::MAX, oldest);
        let mut is_counter = false;
        for sight in past.filter(|s| s.ts < before_ns) {
            is_counter = sight.is_counter;
            self.push(&sight, points_max);
        }
        if let Some(first) = known.front_mut()
            && let Some(last) = self.points.back()
        {
            if first.count == 1 {
                let sight = WindowSample {
                    ts: first.ts,
                    val: first.val.clone(),
                    is_last_look: first.is_last_look,
                    held_ns: last.ts,
                    is_counter,
                    horizon_ns: i64::MIN,
                    several: None,
                };
                *first = next(Some(last), &sight);
            } else {
                first.reach_back(last);
            }
        }
        self.points.append(&mut known);
        if self.points.len() > points_max.max(WINDOW_POINTS_MIN) {
            self.thin();
        }
    }

    /// Forgets the points later than this; returns the time until which the previous one held.
    pub(crate) fn forget_after(&mut self, ts: i64) -> Option<i64> {
        let mut held_ns = None;
        while self.points.back().is_some_and(|p| p.ts > ts) {
            held_ns = self.points.pop_back().map(|p| p.from);
        }
        held_ns
    }

    /// Merges neighbours, so that at most half of the points remain, evenly over the time.
    pub(crate) fn thin(&mut self) {
        let (Some(first), Some(last)) = (self.points.front(), self.points.back()) else {
            return;
        };
        let span_ns = last.ts.saturating_sub(first.ts);
        let limit_ns = span_ns / (self.points.len() as i64 / 4).max(1);
        let mut thinned: VecDeque<Point> = VecDeque::with_capacity(self.points.len());
        for point in self.points.drain(..) {
            match thinned.back_mut() {
                // Measured from the sample before the first one: a merged point counts whole.
                Some(open) if point.ts.saturating_sub(open.since) <= limit_ns => merge(open, point),
                _ => thinned.push_back(point),
            }
        }
        self.points = thinned;
    }

    /// The change per second in the window that ends at `end_ns`: the mean over time of SQL's
    /// `rate()` from sample to sample.
    pub(crate) fn rate(&self, end_ns: i64) -> SqlValue {
        let start_ns = end_ns.saturating_sub(self.length_ns);
        let (mut change, mut known_ns) = (0.0, 0.0);
        for point in self.after(start_ns) {
            if point.area_ns > 0 {
                known_ns += between(start_ns.max(point.since), point.from);
            }
            if point.known_ns > 0 {
                let part = between(start_ns.max(point.from), point.ts);
                let share = part / between(point.from, point.ts);
                change += point.change * share;
                known_ns += point.known_ns as f64 * share;
            }
        }
        if let Some(last) = self.points.back()
            && last.held().is_some()
        {
            known_ns += between(start_ns.max(last.ts), end_ns);
        }
        if known_ns > 0.0 {
            SqlValue::real(change / known_ns * 1e9)
        } else {
            SqlValue::Null
        }
    }

    /// The change in the window: the growth of a counter; of others, the newest value less the one
    /// that held at the window's start, or the first in the window if none is known to have held.
    pub(crate) fn delta(&self, end_ns: i64, is_counter: bool, is_whole: bool) -> SqlValue {
        let start_ns = end_ns.saturating_sub(self.length_ns);
        let Some(last) = self.points.back() else {
            return SqlValue::Null;
        };
        if is_counter {
            if number(&last.val).is_none() {
                return SqlValue::Null;
            }
            let grown = self.after(start_ns).map(|p| p.change).sum();
            return whole(grown, is_whole);
        }
        let before = self.held_at(start_ns);
        let before = before.or_else(|| self.after(start_ns).last());
        let Some(before) = before.filter(|p| number(&p.val).is_some()) else {
            return SqlValue::Null;
        };
        if number(&last.val).is_none() {
            return SqlValue::Null;
        }
        let known = |val: &SqlValue| UncertainValue::exact(val.clone());
        arith(ArithmeticOp::Sub, &known(&last.val), &known(&before.val)).val
    }

    /// The mean over the time of the window that ends at `end_ns`: each value holds until the next,
    /// and none while nobody looked.
    pub(crate) fn avg(&self, end_ns: i64) -> SqlValue {
        let start_ns = end_ns.saturating_sub(self.length_ns);
        let (mut area, mut time_ns) = (0.0, 0.0);
        for point in self.after(start_ns).filter(|p| p.area_ns > 0) {
            let part = between(start_ns.max(point.since), point.ts);
            let share = part / between(point.since, point.ts);
            area += point.area * share;
            time_ns += point.area_ns as f64 * share;
        }
        let Some(last) = self.points.back() else {
            return SqlValue::Null;
        };
        if let Some(newest) = last.held() {
            let part = between(start_ns.max(last.ts), end_ns);
            if part > 0.0 {
                area += newest * part;
                time_ns += part;
            }
        }
        if time_ns > 0.0 {
            return SqlValue::real(area / time_ns);
        }
        number(&last.val).map_or(SqlValue::Null, SqlValue::real)
    }

    /// The least value that held in the window.
    pub(crate) fn min(&self, end_ns: i64, is_whole: bool) -> SqlValue {
        let lows = self.after(end_ns.saturating_sub(self.length_ns));
        let low = lows.map(|p| p.low).fold(f64::INFINITY, f64::min);
        self.extreme(end_ns, low, f64::min, is_whole)
    }

    /// The greatest value that held in the window.
    pub(crate) fn max(&self, end_ns: i64, is_whole: bool) -> SqlValue {
        let highs = self.after(end_ns.saturating_sub(self.length_ns));
        let high = highs.map(|p| p.high).fold(f64::NEG_INFINITY, f64::max);
        self.extreme(end_ns, high, f64::max, is_whole)
    }

    fn extreme(
        &self,
        end_ns: i64,
        found: f64,
        of: fn(f64, f64) -> f64,
        is_whole: bool,
    ) -> SqlValue {
        let start_ns = end_ns.saturating_sub(self.length_ns);
        let held = self.held_at(start_ns).and_then(|p| number(&p.val));
        let any = self.after(start_ns).any(|p| p.low <= p.high);
        match (held, any) {
            (None, false) => SqlValue::Null,
            (None, true) => whole(found, is_whole),
            (Some(held), false) => whole(held, is_whole),
            (Some(held), true) => whole(of(held, found), is_whole),
        }
    }

    /// The number of samples in the window that ends now.
    pub(crate) fn count(&self, now_ns: i64) -> SqlValue {
        let start_ns = now_ns.saturating_sub(self.length_ns);
        let count: u64 = self.after(start_ns).map(|p| p.count).sum();
        SqlValue::Int(i64::try_from(count).unwrap_or(i64::MAX))
    }

    /// The value that held at the start of the window that ends now; NULL if nobody looked then.
    pub(crate) fn ago(&self, now_ns: i64) -> SqlValue {
        let start_ns = now_ns.saturating_sub(self.length_ns);
        self.held_at(start_ns)
            .map_or(SqlValue::Null, |p| p.val.clone())
    }

    /// The time at which the next point leaves the window that ends now.
    pub(crate) fn leaves_ns(&self, now_ns: i64) -> Option<i64> {
        let start_ns = now_ns.saturating_sub(self.length_ns);
        let next = self.after(start_ns).last()?;
        Some(next.ts.saturating_add(self.length_ns))
    }

    /// The points after `start_ns`, newest first.
    fn after(&self, start_ns: i64) -> impl Iterator<Item = &Point> {
        self.points
            .iter()
            .rev()
            .take_while(move |p| p.ts > start_ns)
    }

    /// The point whose value held at `start_ns`; `None` if nobody looked then.
    fn held_at(&self, start_ns: i64) -> Option<&Point> {
        let last = self.points.iter().rev().find(|p| p.ts <= start_ns);
        last.filter(|p| !p.is_last_look)
    }
}

impl Point {
    /// The value, if it is a number that holds until the next point.
    fn held(&self) -> Option<f64> {
        number(&self.val).filter(|_| !self.is_last_look)
    }

    /// Puts a window of earlier samples before this one: its last value held until this one began.
    fn reach_back(&mut self, before: &Self) {
        if let Some(value) = before.held() {
            let held_ns = self.since.saturating_sub(before.ts);
            self.area += value * held_ns as f64;
            self.area_ns = self.area_ns.saturating_add(held_ns);
        }
        self.since = before.ts;
    }
}

/// The value as a number; `None` for text and NaN.
pub(crate) fn number(val: &SqlValue) -> Option<f64> {
    match val {
        SqlValue::Text(_) => None,
        other => other.as_f64(),
    }
}

/// Nanoseconds between two times, 0 when the second is not later.
fn between(from: i64, to: i64) -> f64 {
    if to > from {
        to.saturating_sub(from) as f64
    } else {
        0.0
    }
}

/// An integer if all numbers that it was computed from are integers.
fn whole(v: f64, is_whole: bool) -> SqlValue {
    if is_whole && v.fract() == 0.0 && v.abs() <= EXACT_MAX as f64 {
        SqlValue::Int(v as i64)
    } else {
        SqlValue::real(v)
    }
}

fn next(before: Option<&Point>, sight: &WindowSample) -> Point {
    let value = number(&sight.val);
    let mut point = Point {
        since: sight.ts,
        from: sight.ts,
        ts: sight.ts,
        val: sight.val.clone(),
        is_last_look: sight.is_last_look,
        low: value.unwrap_or(f64::INFINITY),
        high: value.unwrap_or(f64::NEG_INFINITY),
        count: 1,
        area: 0.0,
        area_ns: 0,
        change: 0.0,
        known_ns: 0,
    };
    if let Some(several) = &sight.several {
        point.count = several.count.max(1);
        point.low = if several.low.is_nan() {
            point.low
        } else {
            several.low
        };
        point.high = if several.high.is_nan() {
            point.high
        } else {
            several.high
        };
    }
    let Some(before) = before else {
        return point;
    };
    point.since = before.ts;
    point.from = match sight.held_ns.clamp(before.ts, sight.ts) {
        held if held == sight.ts => before.ts,
        held => held,
    };
    let Some(old) = number(&before.val) else {
        return point;
    };
    let elapsed_ns = sight.ts.saturating_sub(before.ts);
    if !before.is_last_look && elapsed_ns > 0 {
        point.area_ns = elapsed_ns;
        let mean = sight.several.map(|several| several.mean);
        let held = mean.filter(|mean| !mean.is_nan()).unwrap_or(old);
        point.area = held * point.area_ns as f64;
    }
    if let Some(new) = value {
        // In integers as far as they reach, as in SQL's `rate()`.
        let change = match (&before.val, &sight.val) {
            (SqlValue::Int(a), SqlValue::Int(b)) => {
                b.checked_sub(*a).map_or(new - old, |d| d as f64)
            }
            _ => new - old,
        };
        let fits = !sight.is_counter || change >= 0.0;
        if elapsed_ns > 0 && fits && !change.is_nan() {
            point.change = change;
            point.known_ns = sight.ts.saturating_sub(point.from);
        }
    }
    point
}

fn merge(older: &mut Point, newer: Point) {
    if newer.area_ns > 0 {
        let held_ns = newer.from.saturating_sub(newer.since);
        older.known_ns = older.known_ns.saturating_add(held_ns);
    }
    older.known_ns = older.known_ns.saturating_add(newer.known_ns);
    older.ts = newer.ts;
    older.val = newer.val;
    older.is_last_look = newer.is_last_look;
    older.low = older.low.min(newer.low);
    older.high = older.high.max(newer.high);
    older.count += newer.count;
    older.area += newer.area;
    older.area_ns = older.area_ns.saturating_add(newer.area_ns);
    older.change += newer.change;
}

//! Windows that count the events of a rule, by the times of the events.

use std::collections::VecDeque;

/// Most points of one window.
pub const COUNT_POINTS_MAX: usize = 256;
/// Number of parts of a window within which events become one point when the points are too many.
const COUNT_PARTS: i64 = 128;

/// The events of the last time, as points: a time, and the number of events of that time.
///
/// A window with [`COUNT_POINTS_MAX`] points gives up those that are further than its length from
/// the newest event. If there are still too many, the events within each 128th of the length become
/// one point at the newest of their times. So the memory is bounded, and an event is counted until
/// it is older than the length and at most a 128th of it more.
#[derive(Clone, Debug)]
pub(super) struct CountWindow {
    length_ns: i64,
    /// Points in the order of their times.
    points: VecDeque<(i64, u64)>,
}

impl CountWindow {
    pub(super) fn new(length_ns: i64) -> Self {
        Self {
            length_ns,
            points: VecDeque::new(),
        }
    }

    /// Adds an event, which need not be the newest.
    pub(super) fn add(&mut self, ts: i64) {
        if self.points.len() >= COUNT_POINTS_MAX {
            self.thin(ts);
        }
        let at = self.points.partition_point(|(time, _)| *time < ts);
        match self.points.get_mut(at) {
            Some((time, count)) if *time == ts => *count = count.saturating_add(1),
            _ => self.points.insert(at, (ts, 1)),
        }
    }

    /// The number of events in the window that ends at this time and includes it. An event that is
    /// as old as the window is long is not in it.
    pub(super) fn count(&self, end: i64) -> u64 {
        let from = self
            .points
            .partition_point(|(ts, _)| self.is_before(*ts, end));
        let inside = self.points.range(from..).take_while(|(ts, _)| *ts <= end);
        inside.fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// Whether a time is before the window that ends at `end`.
    fn is_before(&self, ts: i64, end: i64) -> bool {
        ts <= end.saturating_sub(self.length_ns)
    }

    fn thin(&mut self, now: i64) {
        let points = std::mem::take(&mut self.points);
        let part_ns = (self.length_ns / COUNT_PARTS).max(1);
        let last = now.saturating_add(self.length_ns);
        for (ts, count) in points {
            if self.is_before(ts, now) || ts > last {
                continue;
            }
            match self.points.back_mut() {
                Some((time, sum)) if time.div_euclid(part_ns) == ts.div_euclid(part_ns) => {
                    (*time, *sum) = (ts, sum.saturating_add(count));
                }
                _ => self.points.push_back((ts, count)),
            }
        }
        // Two lengths of time, before and after the event, have twice as many parts, and the last
        // part of each may be cut: the farthest points go.
        while self.points.len() >= COUNT_POINTS_MAX {
            self.points.pop_back();
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.points.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn edges() {
        let mut window = CountWindow::new(10);
        for ts in [0, 5, 5, 9] {
            window.add(ts);
        }
        let counts = [-1, 0, 4, 5, 9, 10, 14, 15, 19].map(|end| window.count(end));
        assert_eq!(counts, [0, 1, 1, 3, 4, 3, 3, 1, 0]);
    }

    #[test]
    fn extreme_times() {
        let mut window = CountWindow::new(1_000);
        for ts in [i64::MIN, i64::MAX, 0, i64::MAX - 1] {
            window.add(ts);
        }
        // Nothing is as long ago as the beginning of time.
        assert_eq!(window.count(i64::MAX), 2);
        assert_eq!(window.count(0), 1);
        for ts in 0..10_000 {
            window.add(ts);
            assert!(window.len() <= COUNT_POINTS_MAX);
        }
        assert!(window.count(9_999) >= 1_000);
    }

    #[test]
    fn one_wrong_time_does_not_stop_counting() {
        let mut window = CountWindow::new(1_000);
        for ts in 0..200 {
            window.add(ts);
        }
        window.add(1 << 60);
        assert_eq!(window.count(1 << 60), 1);
        for ts in 200..2_000 {
            window.add(ts);
            let (count, part) = (window.count(ts), 1_000 / COUNT_PARTS as u64 + 1);
            let exact = (ts + 1).min(1_000) as u64;
            assert!((exact..=exact + part).contains(&count), "{ts}: {count}");
        }
    }

    proptest! {
        #[test]
        fn counts_are_never_too_small_and_at_most_a_part_too_large(
            steps in prop::collection::vec(0_i64..40, 1..1_000),
        ) {
            const LENGTH: i64 = 12_800;
            let mut window = CountWindow::new(LENGTH);
            let (mut now, mut all) = (0, Vec::new());
            for step in steps {
                now += step;
                window.add(now);
                all.push(now);
                let exact = |length: i64| {
                    all.iter().filter(|ts| **ts > now - length).count() as u64
                };
                let count = window.count(now);
                prop_assert!(window.len() <= COUNT_POINTS_MAX);
                prop_assert!(count >= exact(LENGTH));
                prop_assert!(count <= exact(LENGTH + LENGTH / COUNT_PARTS));
            }
        }
    }
}

//! When a stream will have a value: time-to-full.

use crate::cascade::Cascade;

/// When a level is reached, ns since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// Not before this, as often as the confidence says (and half of the rest).
    pub earliest_ns: i64,
    /// Where what is expected reaches it. None if it goes elsewhere.
    pub expected_ns: Option<i64>,
    /// Not after this, likewise. None if it may never be.
    pub latest_ns: Option<i64>,
}

impl Cascade {
    /// When the stream is as great as `level`, or as small if it is greater now.
    ///
    /// Up to the last calibrated horizon, what is said there and its half width decide; beyond, what is expected,
    /// the most and the least go on as straight as they went from now to there. None while nothing is calibrated,
    /// and where not even the interval gets there before the end of time.
    pub fn reaches(&self, level: f64) -> Option<Reach> {
        let now_ns = self.finest().newest_ns()?;
        let now = self.finest().at(now_ns)?.value;
        let said = self.calibrated();
        if said.is_empty() || !level.is_finite() {
            return None;
        }
        // As if it were below, and as a way from now.
        let sign = if level < now { -1.0 } else { 1.0 };
        let far = (level - now).abs();
        let ways = |width: f64| {
            said.iter().map(move |(after_ns, value, half)| {
                (*after_ns, sign * (value - now) + width * half)
            })
        };
        let when = |width: f64| {
            let after_ns = crossing(ways(width), far)?;
            // 2^63, which is one too many, is the least that is.
            if after_ns >= 9_223_372_036_854_775_808.0 {
                return None;
            }
            #[expect(clippy::cast_possible_truncation, reason = "checked")]
            now_ns.checked_add(after_ns as i64)
        };
        Some(Reach {
            earliest_ns: when(1.0)?,
            expected_ns: when(0.0),
            latest_ns: when(-1.0),
        })
    }
}

/// How long it takes until a way that begins at 0 and goes straight between its points, and straight on, is `far`.
fn crossing(way: impl Iterator<Item = (f64, f64)>, far: f64) -> Option<f64> {
    if far <= 0.0 {
        return Some(0.0);
    }
    let mut from = (0.0, 0.0);
    for (after, there) in way {
        if there >= far {
            let share = (far - from.1) / (there - from.1);
            return Some(from.0 + (after - from.0) * if share.is_finite() { share } else { 1.0 });
        }
        from = (after, there);
    }
    let after = from.0 * (far / from.1);
    (from.1 > 0.0 && after.is_finite()).then_some(after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ForecasterConfig, Shape};

    #[test]
    fn ways_cross_between_their_points_and_beyond() {
        let way = [(1.0, 2.0), (4.0, 8.0), (16.0, 8.0), (64.0, 16.0)];
        for (far, expect) in [
            (0.0, Some(0.0)),
            (1.0, Some(0.5)),
            (5.0, Some(2.5)),
            (12.0, Some(40.0)),
            (16.0, Some(64.0)),
            (160.0, Some(640.0)),
            (1e300, Some(4e300)),
            (f64::MAX, None),
        ] {
            assert_eq!(crossing(way.into_iter(), far), expect, "{far}");
        }
        assert_eq!(crossing([(1.0, 0.0)].into_iter(), 1.0), None);
        assert_eq!(crossing([(1.0, -1.0)].into_iter(), 1.0), None);
        let overflows = [(1.0, f64::MIN), (2.0, f64::INFINITY)];
        assert_eq!(crossing(overflows.into_iter(), 1.0), Some(2.0));
    }

    #[test]
    fn what_does_not_move_never_gets_there() {
        let mut cascade = Cascade::new(ForecasterConfig {
            step_ns: 10,
            shape: Shape::Bounded {
                min: 0.0,
                max: 100.0,
            },
            ..ForecasterConfig::default()
        });
        assert_eq!(cascade.reaches(1.0), None);
        for at in 0..2000 {
            cascade.observe(at * 10, 50.0);
        }
        assert_eq!(cascade.reaches(0.0), None);
        assert_eq!(cascade.reaches(f64::NAN), None);
        let there = cascade.reaches(50.0);
        assert_eq!(there.map(|reach| reach.latest_ns), Some(Some(19_990)));
    }
}

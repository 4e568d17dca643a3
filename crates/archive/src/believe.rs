//! The time by which history is deleted: the clock's, if the archive confirms it.
//!
//! This module stands alone because a clock that is set to a wrong year must not delete all
//! history. The archive itself is the evidence, so the result is the same after a restart: samples
//! made by a wrong clock prove nothing until there are many hours of them.

use std::collections::BTreeMap;

use barograph_model::{Clock, NS_PER_S, Span};

use crate::tier::HOUR_NS;

/// A clock that is further ahead of the archive than this is not believed, and nothing is deleted
/// by age: a machine may have been off for that long.
const AHEAD_NS_MAX: i64 = 7 * 86_400 * NS_PER_S;
/// Number of hours with samples after such a gap that make the times behind it believed.
const HOURS_PROVEN: usize = 168;

/// The newest time that is believed.
#[derive(Debug, Default)]
pub(crate) struct BelievedTime {
    /// A wall time that was believed, and the monotonic time at that moment.
    known: Option<(i64, i64)>,
    /// Whether it was logged that the clock is not believed.
    told: bool,
}

impl BelievedTime {
    /// Returns the clock's time, if it is not far ahead of the newest believed sample plus the time
    /// that has passed since that sample was known. `spans` are the times of all archived files.
    pub(crate) fn now(
        &mut self,
        clock: &dyn Clock,
        spans: impl Iterator<Item = Span>,
    ) -> Option<i64> {
        let (now, monotonic) = (clock.now_ns(), clock.monotonic_ns());
        let passed = |(wall, then): (i64, i64)| {
            let elapsed = monotonic.saturating_sub(then).max(0);
            wall.saturating_add(elapsed)
        };
        let newest = newest(spans);
        if newest.is_some_and(|newest| self.known.is_none_or(|known| newest > passed(known))) {
            self.known = newest.map(|newest| (newest, monotonic));
        }
        let expected = passed(self.known?);
        let believed = now <= expected.saturating_add(AHEAD_NS_MAX);
        if believed == self.told {
            self.told = !believed;
            if self.told {
                let ahead_s = now.saturating_sub(expected) / NS_PER_S;
                tracing::warn!(
                    ahead_s,
                    "the clock is far ahead of all that is archived: nothing is let go by its age until {HOURS_PROVEN} hours bear it out"
                );
            }
        }
        believed.then_some(now)
    }
}

/// Returns the newest time that is believed: the end of the oldest run of samples without a long
/// gap, or of a later run that has many hours.
fn newest(spans: impl Iterator<Item = Span>) -> Option<i64> {
    // A file may hold samples from before and after the clock was set: only its ends are certain.
    let mut hours: BTreeMap<i64, i64> = BTreeMap::new();
    for ts in spans.flat_map(|span| [span.from, span.to]) {
        let newest = hours.entry(ts.div_euclid(HOUR_NS)).or_insert(ts);
        *newest = ts.max(*newest);
    }
    let times: Vec<i64> = hours.into_values().collect();
    let near = |a: &i64, b: &i64| b.saturating_sub(*a) <= AHEAD_NS_MAX;
    let runs = times.chunk_by(near).enumerate();
    let believed = runs.filter(|(at, run)| *at == 0 || run.len() >= HOURS_PROVEN);
    believed.last().and_then(|(_, run)| run.last().copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use barograph_model::ManualClock;

    fn spans(hours: std::ops::Range<i64>) -> impl Iterator<Item = Span> {
        hours.map(|hour| Span {
            from: hour * HOUR_NS,
            to: (hour + 1) * HOUR_NS - 1,
        })
    }

    #[test]
    fn a_few_hours_behind_a_gap_prove_nothing() {
        let year = 365 * 24;
        let end = |hour: i64| Some(hour * HOUR_NS - 1);
        assert_eq!(newest(spans(0..0)), None);
        assert_eq!(newest(spans(0..3)), end(3));
        assert_eq!(newest(spans(0..3).chain(spans(170..171))), end(171));
        assert_eq!(newest(spans(0..3).chain(spans(172..173))), end(3));
        assert_eq!(newest(spans(0..3).chain(spans(year..year + 167))), end(3));
        let proven = spans(0..3).chain(spans(year..year + 168));
        assert_eq!(newest(proven), end(year + 168));
        let forever = Span {
            from: i64::MIN,
            to: i64::MAX,
        };
        assert_eq!(newest([forever].into_iter()), Some(i64::MIN));
    }

    #[test]
    fn time_passes_without_samples() {
        let clock = ManualClock::at(10 * HOUR_NS);
        let mut belief = BelievedTime::default();
        let days = 24 * HOUR_NS;
        assert_eq!(belief.now(&clock, spans(0..0)), None);
        for _ in 0..20 {
            assert_eq!(belief.now(&clock, spans(0..9)), Some(clock.now_ns()));
            clock.advance(5 * days);
        }
    }
}

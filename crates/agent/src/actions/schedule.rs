//! The times of rules on schedules.

use barograph_action::EventCursor;
use barograph_model::NS_PER_S;
use barograph_rule::{EventFacts, RuleSchedule};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

/// The kind in the fields of an action of a rule on a schedule, and the beginning of its source.
const TIME_KIND: &str = "schedule";

/// The latest time of a schedule up to `now_ns`, in ns since the epoch. Times of day are those of
/// the zone: one that a day has not is as much later as its clock was set, and of one that a day
/// has twice it is the first.
pub(super) fn latest_ns(schedule: &RuleSchedule, now_ns: i64, zone: &TimeZone) -> Option<i64> {
    match schedule {
        RuleSchedule::Every(length_ns) => Some(now_ns.div_euclid(*length_ns) * length_ns),
        RuleSchedule::At(minutes) => {
            let now = Timestamp::from_nanosecond(now_ns.into()).ok()?;
            let today = zone.to_datetime(now).date();
            // What the day before has may be later than its own midnight.
            let days = [today.checked_sub(1.day()).ok()?, today];
            let times = days
                .iter()
                .flat_map(|day| minutes.iter().map(|minute| (*day, *minute)));
            let times = times.filter_map(|(day, minute)| time_ns(day, minute, zone));
            times.filter(|time_ns| *time_ns <= now_ns).max()
        }
    }
}

/// The cursor of a rule on a schedule at a time, whose number is the second since the epoch.
pub(super) fn time_cursor(rule: &str, time_ns: i64) -> EventCursor {
    EventCursor {
        source: format!("{TIME_KIND}:{rule}"),
        index: u64::try_from(time_ns.div_euclid(NS_PER_S)).unwrap_or_default(),
        ts: time_ns,
    }
}

/// What the action of a rule on a schedule gets in place of an event.
pub(super) fn time_facts<'a>(cursor: &'a EventCursor, node: &'a str) -> EventFacts<'a> {
    EventFacts {
        kind: TIME_KIND,
        source: &cursor.source,
        node,
        index: cursor.index,
        ts: cursor.ts,
        ..EventFacts::default()
    }
}

fn time_ns(day: Date, minute: u32, zone: &TimeZone) -> Option<i64> {
    let (hour, minute) = (
        i8::try_from(minute / 60).ok()?,
        i8::try_from(minute % 60).ok()?,
    );
    let time = day.at(hour, minute, 0, 0);
    let time = zone.to_ambiguous_timestamp(time).compatible().ok()?;
    Some(time.as_second() * NS_PER_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(text: &str) -> i64 {
        let time: Timestamp = text.parse().unwrap();
        time.as_second() * NS_PER_S
    }

    #[test]
    fn multiples_of_a_length() {
        let check = |length_s: i64, now: &str, expect: &str| {
            let schedule = RuleSchedule::Every(length_s * NS_PER_S);
            let seen = latest_ns(&schedule, ns(now), &TimeZone::UTC);
            assert_eq!(seen, Some(ns(expect)), "{now}");
        };
        check(3_600, "2026-03-01T10:59:59Z", "2026-03-01T10:00:00Z");
        check(3_600, "2026-03-01T10:00:00Z", "2026-03-01T10:00:00Z");
        check(86_400, "2026-03-01T23:59:59Z", "2026-03-01T00:00:00Z");
        check(60, "1969-12-31T23:59:59Z", "1969-12-31T23:59:00Z");
    }

    #[test]
    fn times_of_day() {
        // That of Berlin, without a data base of time zones.
        let berlin = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let check = |minutes: &[u32], now: &str, expect: &str| {
            let schedule = RuleSchedule::At(minutes.to_vec());
            let seen = latest_ns(&schedule, ns(now), &berlin);
            assert_eq!(seen, Some(ns(expect)), "{minutes:?} {now}");
        };
        check(&[150], "2026-01-05T01:29:59Z", "2026-01-04T01:30:00Z");
        check(&[150], "2026-01-05T01:30:00Z", "2026-01-05T01:30:00Z");
        check(&[150, 870], "2026-07-05T20:00:00Z", "2026-07-05T12:30:00Z");
        check(&[0], "2026-01-05T00:00:00Z", "2026-01-04T23:00:00Z");
        // The clock goes from 02:00 to 03:00, and half a year later from 03:00 to 02:00.
        check(&[150], "2026-03-29T12:00:00Z", "2026-03-29T01:30:00Z");
        check(&[150], "2026-10-25T12:00:00Z", "2026-10-25T00:30:00Z");
    }
}

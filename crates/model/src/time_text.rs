//! Times and durations as people write them: `10s`, `-1h`, `2026-11-20T08:00:00Z`, or nanoseconds.
//!
//! They are a module of their own because HTTP, Python and the command line must read them in the
//! same way.

use crate::{ModelError, NS_PER_S};

/// Units of a duration and their lengths in ns.
const UNITS: &[(&str, i64)] = &[
    ("min", 60 * NS_PER_S),
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", NS_PER_S),
    ("m", 60 * NS_PER_S),
    ("h", 3_600 * NS_PER_S),
    ("d", DAY_S * NS_PER_S),
];
/// Seconds in a day.
pub const DAY_S: i64 = 86_400;
/// Longest text that is parsed, in bytes.
const TEXT_BYTES_MAX: usize = 64;

/// Parses a duration: nanoseconds, or a number with a unit (`10s`, `1min`, `1h`, `7d`).
pub fn duration_ns(text: &str) -> Result<i64, ModelError> {
    read_duration(text).ok_or_else(|| ModelError::Duration { text: shown(text) })
}

/// Parses an instant, as ns since the epoch: nanoseconds, RFC 3339 (`2026-11-20T08:00:00Z`, also
/// with an offset or a fraction), relative to `now_ns` (`-1h`), or `now`.
pub fn instant_ns(text: &str, now_ns: i64) -> Result<i64, ModelError> {
    let fault = || ModelError::Instant { text: shown(text) };
    if let Ok(ns) = text.parse::<i64>() {
        return Ok(ns);
    }
    if let Some(ago) = text.strip_prefix('-') {
        let ago_ns = read_duration(ago).ok_or_else(fault)?;
        return Ok(now_ns.saturating_sub(ago_ns));
    }
    if text == "now" {
        return Ok(now_ns);
    }
    read_rfc3339(text.as_bytes()).ok_or_else(fault)
}

fn shown(text: &str) -> String {
    text.chars().take(TEXT_BYTES_MAX).collect()
}

fn read_duration(text: &str) -> Option<i64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: i64 = number.parse().ok()?;
    if unit.is_empty() {
        return Some(number);
    }
    let (_, length_ns) = UNITS.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*length_ns)
}

/// Parses `2026-11-20T08:00:00[.123456789](Z|+01:00)`; a blank may replace the T.
fn read_rfc3339(text: &[u8]) -> Option<i64> {
    if text.len() > TEXT_BYTES_MAX {
        return None;
    }
    let (head, tail) = text.split_at_checked(19)?;
    let marks = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    let date_ends = matches!(head[10], b'T' | b't' | b' ');
    if !date_ends || marks.iter().any(|(at, mark)| head[*at] != *mark) {
        return None;
    }
    let (year, month, day) = (
        number(&head[..4])?,
        number(&head[5..7])?,
        number(&head[8..10])?,
    );
    let (hour, minute, second) = (
        number(&head[11..13])?,
        number(&head[14..16])?,
        number(&head[17..])?,
    );
    let day_ok = (1..=12).contains(&month) && (1..=days_of(year, month)).contains(&day);
    // 60 is a leap second: it counts as the first second of the next minute.
    if !day_ok || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let (fraction_ns, zone) = read_fraction(tail)?;
    let seconds = days_since_epoch(year, month, day) * DAY_S + hour * 3_600 + minute * 60 + second
        - read_zone(zone)?;
    seconds.checked_mul(NS_PER_S)?.checked_add(fraction_ns)
}

/// Parses `.123` as nanoseconds, and returns the rest; digits beyond the ninth are cut.
fn read_fraction(text: &[u8]) -> Option<(i64, &[u8])> {
    let [b'.', rest @ ..] = text else {
        return Some((0, text));
    };
    let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    if digits == 0 {
        return None;
    }
    let mut ns = 0;
    for place in 0..9 {
        let digit = rest[..digits].get(place).map_or(0, |b| b - b'0');
        ns = ns * 10 + i64::from(digit);
    }
    Some((ns, &rest[digits..]))
}

/// Parses an offset, in seconds east of UTC.
fn read_zone(text: &[u8]) -> Option<i64> {
    match text {
        b"Z" | b"z" => Some(0),
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let (hours, minutes) = (number(&[*h1, *h2])?, number(&[*m1, *m2])?);
            let seconds = hours * 3_600 + minutes * 60;
            let known = hours <= 23 && minutes <= 59;
            known.then_some(if *sign == b'-' { -seconds } else { seconds })
        }
        _ => None,
    }
}

/// Parses a few digits as a number.
fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |sum, b| {
        b.is_ascii_digit().then(|| sum * 10 + i64::from(b - b'0'))
    })
}

fn days_of(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 in the Gregorian calendar. The year begins in March here, so that the leap
/// day is its last day.
pub fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let months = (month + 9) % 12;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + (months * 153 + 2) / 5 + day - 1 - DAYS_TO_EPOCH
}

/// Days from March 1 of the year 0 to the epoch.
const DAYS_TO_EPOCH: i64 = 719_468;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: i64 = 1_700_000_000 * NS_PER_S;

    #[test]
    fn durations() {
        let check = |text: &str, expect: Option<i64>| {
            assert_eq!(duration_ns(text).ok(), expect, "{text:?}");
        };
        check("0", Some(0));
        check("1500", Some(1_500));
        check("7ns", Some(7));
        check("7us", Some(7_000));
        check("250ms", Some(250_000_000));
        check("10s", Some(10 * NS_PER_S));
        check("1min", Some(60 * NS_PER_S));
        check("1m", Some(60 * NS_PER_S));
        check("6h", Some(21_600 * NS_PER_S));
        check("30d", Some(30 * 86_400 * NS_PER_S));
        for bad in [
            "",
            "s",
            "-1s",
            "1 s",
            "1.5h",
            "1week",
            "+1s",
            "９s",
            "9999999999d",
            "99999999999999999999",
        ] {
            check(bad, None);
        }
    }

    #[test]
    fn instants() {
        let check = |text: &str, expect: Option<i64>| {
            assert_eq!(instant_ns(text, NOW).ok(), expect, "{text:?}");
        };
        check("0", Some(0));
        check("-5", Some(-5));
        check("1700000000000000001", Some(NOW + 1));
        check("-1h", Some(NOW - 3_600 * NS_PER_S));
        check("-0s", Some(NOW));
        check("now", Some(NOW));
        check("2023-11-14T22:13:20Z", Some(NOW));
        check("2023-11-14t22:13:20z", Some(NOW));
        check("2023-11-14 22:13:20Z", Some(NOW));
        check("2023-11-14T23:13:20+01:00", Some(NOW));
        check("2023-11-14T16:43:20-05:30", Some(NOW));
        check("2023-11-14T22:13:20.000000001Z", Some(NOW + 1));
        check("2023-11-14T22:13:20.5Z", Some(NOW + NS_PER_S / 2));
        check("2023-11-14T22:13:20.0000000019Z", Some(NOW + 1));
        check("1969-12-31T23:59:59Z", Some(-NS_PER_S));
        check("2024-02-29T00:00:00Z", Some(1_709_164_800 * NS_PER_S));
        check("2000-03-01T00:00:00Z", Some(951_868_800 * NS_PER_S));
        check("2016-12-31T23:59:60Z", Some(1_483_228_800 * NS_PER_S));
        for bad in [
            "",
            "Now",
            "-",
            "--1h",
            "2023-11-14",
            "2023-11-14T22:13:20",
            "2023-02-29T00:00:00Z",
            "2023-13-01T00:00:00Z",
            "2023-00-01T00:00:00Z",
            "2023-11-14T24:00:00Z",
            "2023-11-14T22:60:20Z",
            "2023-11-14T22:13:20.Z",
            "2023-11-14T22:13:20+0100",
            "2023-11-14T22:13:20+24:00",
            "9999-01-01T00:00:00Z",
            "2023-11-14T22:13:2é",
        ] {
            check(bad, None);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,80}", now in any::<i64>()) {
            let _ = duration_ns(&text);
            let _ = instant_ns(&text, now);
        }

        #[test]
        fn days_follow_each_other(day in -700_000_i64..2_900_000) {
            // The calendar is counted forward from the day before, by its own rule of month
            // lengths.
            let (mut year, mut month, mut rest) = (0, 3, day + DAYS_TO_EPOCH);
            let of_400_years = 146_097;
            year += 400 * rest.div_euclid(of_400_years);
            rest = rest.rem_euclid(of_400_years);
            while rest >= days_of(year, month) {
                rest -= days_of(year, month);
                month += 1;
                if month == 13 {
                    (year, month) = (year + 1, 1);
                }
            }
            prop_assert_eq!(days_since_epoch(year, month, rest + 1), day);
        }
    }
}

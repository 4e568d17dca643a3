//! Dates in UTC, for `hour()` and similar functions; ten lines of arithmetic are not worth a
//! dependency.

use barograph_model::{DAY_S, days_since_epoch};

/// A date and time in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Utc {
    pub year: i64,
    pub month: i64,
    pub day: i64,
    pub day_of_year: i64,
    /// Day of the week; 0 is Sunday.
    pub weekday: i64,
    pub hour: i64,
    pub minute: i64,
}

impl Utc {
    /// Converts seconds since the epoch; times beyond some millions of years are clamped.
    pub(super) fn of(seconds: f64) -> Self {
        let seconds = seconds.clamp(-1e15, 1e15) as i64;
        let (days, second) = (seconds.div_euclid(DAY_S), seconds.rem_euclid(DAY_S));
        let (year, month, day) = civil(days);
        Self {
            year,
            month,
            day,
            day_of_year: days - days_since_epoch(year, 1, 1) + 1,
            weekday: (days + 4).rem_euclid(7),
            hour: second / 3_600,
            minute: second / 60 % 60,
        }
    }

    /// The number of days in the date's month.
    pub(super) fn days_in_month(&self) -> i64 {
        match self.month {
            2 if self.year % 4 == 0 && (self.year % 100 != 0 || self.year % 400 == 0) => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        }
    }
}

fn civil(days: i64) -> (i64, i64, i64) {
    // An estimate, at most one year off.
    let mut year = 1970 + days.div_euclid(365) * 365 * 400 / 146_097;
    while days_since_epoch(year, 1, 1) > days {
        year -= 1;
    }
    while days_since_epoch(year + 1, 1, 1) <= days {
        year += 1;
    }
    let mut month = 12;
    while days_since_epoch(year, month, 1) > days {
        month -= 1;
    }
    (year, month, days - days_since_epoch(year, month, 1) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        let check = |seconds: f64, expect: [i64; 8]| {
            let t = Utc::of(seconds);
            let found = [
                t.year,
                t.month,
                t.day,
                t.day_of_year,
                t.weekday,
                t.hour,
                t.minute,
                t.days_in_month(),
            ];
            assert_eq!(found, expect, "{seconds}");
        };
        check(0.0, [1970, 1, 1, 1, 4, 0, 0, 31]);
        check(-1.0, [1969, 12, 31, 365, 3, 23, 59, 31]);
        check(951_782_400.0, [2000, 2, 29, 60, 2, 0, 0, 29]);
        check(1_700_000_000.0, [2023, 11, 14, 318, 2, 22, 13, 30]);
        check(4_107_542_399.0, [2100, 2, 28, 59, 0, 23, 59, 28]);
        // Only checks that they end.
        for extreme in [f64::MAX, f64::MIN, f64::NAN, f64::INFINITY] {
            Utc::of(extreme);
        }
    }
}

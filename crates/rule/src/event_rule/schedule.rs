//! Rules on schedules: `ON SCHEDULE EVERY '1 h'` and `ON SCHEDULE AT '02:30', '14:30'`.
//!
//! The times are computed by whoever has a clock and a time zone.

use barograph_model::NS_PER_S;
use barograph_statement::{StatementError, StatementWords, length_ns};

use super::limits::{RULE_TIMES_MAX, minute_of_day};

/// The times at which a rule fires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleSchedule {
    /// At each multiple of this length since the epoch, in ns, of whole seconds: `'1 h'` is at the
    /// full hours of UTC.
    Every(i64),
    /// At these minutes of each day, in ascending order.
    At(Vec<u32>),
}

impl RuleSchedule {
    /// Reads `EVERY …` or `AT …`.
    pub(super) fn parse(words: &mut StatementWords) -> Result<Self, StatementError> {
        if words.keyword("EVERY") {
            let place = words.place();
            let text = words.text("EVERY '1 h'")?;
            let length_ns = length_ns(&text)?;
            return match length_ns >= NS_PER_S && length_ns % NS_PER_S == 0 {
                true => Ok(Self::Every(length_ns)),
                false => Err(StatementError::new(format!(
                    "EVERY '{text}'{place}: write whole seconds, at least one"
                ))),
            };
        }
        if !words.keyword("AT") {
            return Err(words.unexpected("EVERY or AT"));
        }
        let mut minutes = Vec::new();
        loop {
            let place = words.place();
            let text = words.text("AT '02:30'")?;
            let minute = minute_of_day(&text).ok_or_else(|| {
                StatementError::new(format!(
                    "AT '{text}'{place}: write a time of day from 00:00 to 23:59, like '02:30'"
                ))
            })?;
            if minutes.len() >= RULE_TIMES_MAX {
                return Err(StatementError::Limit {
                    what: "times of a rule on a schedule".into(),
                    max: RULE_TIMES_MAX,
                    limit: "RULE_TIMES_MAX",
                });
            }
            if !minutes.contains(&minute) {
                minutes.push(minute);
            }
            if !words.comma() {
                minutes.sort_unstable();
                return Ok(Self::At(minutes));
            }
        }
    }
}

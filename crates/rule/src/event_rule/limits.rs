//! The bounds of rules on events, and the limits on running their actions, each with its name and
//! default.

use barograph_model::NS_PER_S;
use barograph_statement::StatementError;

/// Most rules on events. One more is refused.
pub(super) const EVENT_RULES_MAX: usize = 4_096;
/// Most sources that a rule names.
pub(super) const RULE_SOURCES_MAX: usize = 64;
/// Most arguments of a program.
pub(super) const ARGUMENTS_MAX: usize = 64;
/// Most bytes of the path of a program.
pub(super) const PROGRAM_BYTES_MAX: usize = 4_096;
/// Most bytes of an address.
pub(super) const URL_BYTES_MAX: usize = 4_096;
/// Most bytes of the template of a body.
pub(super) const BODY_BYTES_MAX: usize = 16 << 10;
/// Most bytes of the template of a place of a file.
pub(super) const PLACE_BYTES_MAX: usize = 4_096;
/// Most bytes of the template of a subject.
pub(super) const SUBJECT_BYTES_MAX: usize = 512;
/// Most bytes of a name that a rule's work writes out: of an image, a handler, an address.
pub(super) const NAME_BYTES_MAX: usize = 256;
/// Most bytes of the name of a node.
pub(super) const NODE_BYTES_MAX: usize = 253;
/// Most bytes of a mark.
pub(super) const MARK_BYTES_MAX: usize = 64;
/// Most directories of a container.
pub(super) const MOUNTS_MAX: usize = 16;
/// Most times of day of a rule on a schedule.
pub(super) const RULE_TIMES_MAX: usize = 96;
/// Most starts that a rate may allow within its time.
pub(super) const RATE_MAX: u32 = 10_000;
/// Most firings that a breaker may allow within its time.
pub(super) const BREAK_MAX: u32 = 100_000_000;
/// Most windows of one rule.
pub(super) const RULE_COUNTS_MAX: usize = 4;
/// Most actions of a rule that run at the same time, as a statement may ask for.
pub(super) const CONCURRENCY_MAX: u32 = 1_024;
/// Most retries that a statement may ask for.
pub(super) const RETRIES_MAX: u32 = 1_000;
const CONCURRENCY_DEFAULT: u32 = 4;
const TIMEOUT_NS_DEFAULT: i64 = 600 * NS_PER_S;
/// Most recent actions that are known. The oldest is forgotten for a new one.
const RECENT_ACTIONS_MAX: usize = 4_096;
/// Most bytes of the paths of all recent actions.
const RECENT_BYTES_MAX: usize = 4 << 20;
/// Most rules that are known as the causes of one action.
pub(super) const CAUSES_MAX: usize = 16;
/// Most paths of one action.
const PATHS_OF_ACTION_MAX: usize = 16;
/// Time after the end of an action in which its effects may still arrive, in ns.
const AFTER_NS_DEFAULT: i64 = 5 * NS_PER_S;
/// Longest time for which an action counts as running if its end is not told, in ns.
const RUNNING_NS_DEFAULT: i64 = 86_400 * NS_PER_S;

const MINUTES_OF_DAY: u32 = 24 * 60;
const NS_PER_MIN: i64 = 60 * NS_PER_S;

/// The bounds of a set of rules on events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRuleLimits {
    /// Most rules.
    pub rules_max: usize,
    /// The bounds of the recent actions.
    pub recent: RecentActionsLimits,
}

impl Default for EventRuleLimits {
    fn default() -> Self {
        Self {
            rules_max: EVENT_RULES_MAX,
            recent: RecentActionsLimits::default(),
        }
    }
}

/// The bounds of the recent actions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecentActionsLimits {
    /// Most actions.
    pub actions_max: usize,
    /// Most bytes of the paths of all actions.
    pub bytes_max: usize,
    /// Most paths of one action.
    pub paths_max: usize,
    /// Time before the start of an action, in ns, for which the clock of a source may be behind.
    pub before_ns: i64,
    /// Time after the end of an action, in ns, in which its effects may still happen.
    pub after_ns: i64,
    /// Longest time, in ns, for which an action counts as running if its end is not told.
    pub running_ns_max: i64,
}

impl Default for RecentActionsLimits {
    fn default() -> Self {
        Self {
            actions_max: RECENT_ACTIONS_MAX,
            bytes_max: RECENT_BYTES_MAX,
            paths_max: PATHS_OF_ACTION_MAX,
            before_ns: 0,
            after_ns: AFTER_NS_DEFAULT,
            running_ns_max: RUNNING_NS_DEFAULT,
        }
    }
}

/// The number of times that the effect of an action may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionDelivery {
    /// The action is repeated until it succeeds or its retries are used up.
    AtLeastOnce,
    /// The action is never started twice.
    AtMostOnce,
}

/// The limits on running the action of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionLimits {
    /// Most actions of the rule that run at the same time.
    pub concurrency_max: u32,
    /// The longest time that the program may run, in ns.
    pub timeout_ns: i64,
    /// Most attempts after the first one; `None` if the rule leaves that to the queue of actions.
    pub retries_max: Option<u32>,
    /// The number of times that the effect may happen.
    pub delivery: ActionDelivery,
    /// The node on which the action is run; `None` for that of the rule.
    pub node: Option<String>,
    /// The time of day in which no action is started; they wait for its end.
    pub quiet: Option<QuietTime>,
    /// The rate at which actions are started; further ones wait.
    pub rate: Option<ActionRate>,
    /// The rate of firings beyond which the rule stops until it is made anew.
    pub breaker: Option<ActionRate>,
}

/// A rate of starts or firings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActionRate {
    /// Most of them within the time.
    pub count_max: u32,
    /// The length of the time, in ns.
    pub per_ns: i64,
}

impl Default for ActionLimits {
    fn default() -> Self {
        Self {
            concurrency_max: CONCURRENCY_DEFAULT,
            timeout_ns: TIMEOUT_NS_DEFAULT,
            retries_max: None,
            delivery: ActionDelivery::AtLeastOnce,
            node: None,
            quiet: None,
            rate: None,
            breaker: None,
        }
    }
}

/// A part of the day, which may go over midnight. It includes its first minute and not its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuietTime {
    /// The minute of the day at which it begins.
    pub from_min: u32,
    /// The minute of the day at which it ends.
    pub to_min: u32,
}

impl QuietTime {
    /// Reads a part of the day from two texts like `08:00`.
    ///
    /// # Errors
    ///
    /// A text is no time of day, or both are the same.
    pub fn parse(from: &str, to: &str) -> Result<Self, StatementError> {
        let minute = |text: &str| {
            minute_of_day(text).ok_or_else(|| {
                StatementError::new(format!(
                    "QUIET '{text}': write a time of day from 00:00 to 23:59, like '08:00'"
                ))
            })
        };
        let (from_min, to_min) = (minute(from)?, minute(to)?);
        if from_min == to_min {
            return Err(StatementError::new(format!(
                "QUIET '{from}' TO '{to}': both times are the same"
            )));
        }
        Ok(Self { from_min, to_min })
    }

    /// The time until the quiet time is over, in ns; 0 if it is not quiet. `day_ns` is the time of
    /// day, which the caller knows, with its time zone, in ns since midnight.
    pub fn left_ns(&self, day_ns: i64) -> i64 {
        let day = i64::from(MINUTES_OF_DAY) * NS_PER_MIN;
        let (from, to) = (i64::from(self.from_min), i64::from(self.to_min));
        let length = (to - from).rem_euclid(i64::from(MINUTES_OF_DAY)) * NS_PER_MIN;
        let since = (day_ns.rem_euclid(day) - from * NS_PER_MIN).rem_euclid(day);
        (length - since).max(0)
    }
}

/// The minute of the day of a text like `08:00`.
pub(super) fn minute_of_day(text: &str) -> Option<u32> {
    let (hour, minute) = text.split_once(':')?;
    let number = |text: &str, max: u32| {
        let digits = text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
        let number = text.parse::<u32>().ok().filter(|_| digits)?;
        (number <= max).then_some(number)
    };
    Some(number(hour, 23)? * 60 + number(minute, 59)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quiet_times() {
        let check = |from: &str, to: &str, at_min: i64, left_min: i64| {
            let quiet = QuietTime::parse(from, to).unwrap();
            assert_eq!(
                quiet.left_ns(at_min * NS_PER_MIN),
                left_min * NS_PER_MIN,
                "{from} {to} {at_min}"
            );
        };
        check("08:00", "18:00", 8 * 60, 10 * 60);
        check("08:00", "18:00", 8 * 60 - 1, 0);
        check("08:00", "18:00", 18 * 60 - 1, 1);
        check("08:00", "18:00", 18 * 60, 0);
        check("22:30", "06:00", 23 * 60, 7 * 60);
        check("22:30", "06:00", 0, 6 * 60);
        check("22:30", "06:00", 6 * 60, 0);
        check("00:00", "23:59", 24 * 60, 24 * 60 - 1);
        check("00:00", "23:59", -1, 0);
        for (from, to) in [("8:00", "09:00"), ("24:00", "01:00"), ("08:60", "09:00")] {
            assert!(QuietTime::parse(from, to).is_err(), "{from} {to}");
        }
        for text in ["", ":", "0800", "+8:00", "08:0", "08:00:00", "１２:00"] {
            assert!(QuietTime::parse(text, "07:00").is_err(), "{text}");
        }
        assert!(QuietTime::parse("08:00", "08:00").is_err());
    }
}

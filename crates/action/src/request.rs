//! What the queue is asked to do: a request with its identity, its owner and the way in which it is
//! repeated.

use std::fmt::{self, Write as _};

use barograph_model::{NS_PER_S, cut};

/// Most bytes of the name of a rule and of the name of a source.
pub const ACTION_NAME_BYTES_MAX: usize = 256;
/// Most bytes of a reason that is kept with an action.
pub const REASON_BYTES_MAX: usize = 512;

/// The identity of an action: the same event under the same version of a rule gives the same key,
/// also after a crash and on another day.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActionKey {
    /// Name of the rule.
    pub rule: String,
    /// Version of the rule.
    pub rule_version: u64,
    /// Name of the source of the event.
    pub source: String,
    /// Number of the event in its source.
    pub index: u64,
}

impl ActionKey {
    /// Whether the names are short enough for the queue.
    pub(crate) fn is_valid(&self) -> bool {
        let fits = |name: &str| (1..=ACTION_NAME_BYTES_MAX).contains(&name.len());
        fits(&self.rule) && fits(&self.source)
    }
}

/// The idempotency key as text of letters, digits and `.`, `-`, `_` and `%`: it may be a value of a
/// header, and, if the names are short, the name of a file. Different keys have different texts.
impl fmt::Display for ActionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        escaped(&self.rule, f)?;
        write!(f, ".{}.", self.rule_version)?;
        escaped(&self.source, f)?;
        write!(f, ".{}", self.index)
    }
}

fn escaped(name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    name.bytes().try_for_each(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => f.write_char(byte.into()),
        _ => write!(f, "%{byte:02X}"),
    })
}

/// The user whose rule asks for an action, and whose rights the action has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ActionOwner {
    /// The user.
    pub uid: u32,
    /// The user's primary group.
    pub gid: u32,
}

/// How often the effect of an action may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The action is repeated until it succeeds or has used up its attempts. The receiver tells
    /// repetitions by the idempotency key.
    AtLeastOnce,
    /// The action is never started twice. If its outcome cannot be known, it becomes a dead letter.
    AtMostOnce,
}

/// How an action is repeated after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Most attempts, the first one included; at least 1.
    pub attempts_max: u32,
    /// The wait after the first failure, in ns; it doubles with each further one.
    pub wait_ns_min: i64,
    /// The longest wait, in ns.
    pub wait_ns_max: i64,
}

/// Attempts that go on for more than a day, so that a receiver may be down for one.
impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts_max: 64,
            wait_ns_min: 5 * NS_PER_S,
            wait_ns_max: 3_600 * NS_PER_S,
        }
    }
}

impl RetryPolicy {
    /// The wait after this many attempts, in ns. `random` is a number in `0..1` that takes away up
    /// to half of the wait, so that actions that failed together are not repeated together.
    pub fn wait_ns(&self, attempts: u32, random: f64) -> i64 {
        let doublings = attempts.saturating_sub(1).min(62);
        let doubled = self.wait_ns_min.max(0).saturating_mul(1 << doublings);
        let wait = doubled.min(self.wait_ns_max.max(0));
        (wait as f64 * (0.5 + random.clamp(0.0, 1.0) / 2.0)) as i64
    }
}

/// A request for an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionRequest {
    /// Identity of the action.
    pub key: ActionKey,
    /// User whose rule it is.
    pub owner: ActionOwner,
    /// How often the effect may happen.
    pub delivery: Delivery,
    /// How it is repeated.
    pub retry: RetryPolicy,
    /// What is to be done, as [`crate::ActionJob::encode`] writes it. The queue does not read it.
    pub body: Vec<u8>,
}

/// A reason, cut to the length that is kept.
pub(crate) fn reason(text: impl Into<String>) -> String {
    cut(text.into(), REASON_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(rule: &str, rule_version: u64, source: &str, index: u64) -> ActionKey {
        ActionKey {
            rule: rule.into(),
            rule_version,
            source: source.into(),
            index,
        }
    }

    #[test]
    fn keys_have_texts_of_their_own() {
        let check = |key: ActionKey, text: &str| assert_eq!(key.to_string(), text);
        check(
            key("archive-raw", 3, "lustre/MDT0000", 77),
            "archive-raw.3.lustre%2FMDT0000.77",
        );
        check(key("a.1", 1, "b", 1), "a%2E1.1.b.1");
        check(key("a", 1, "1.b", 1), "a.1.1%2Eb.1");
        check(
            key("ä\n", 0, "%", u64::MAX),
            "%C3%A4%0A.0.%25.18446744073709551615",
        );
    }

    #[test]
    fn waits_double_and_end() {
        let policy = RetryPolicy {
            attempts_max: 9,
            wait_ns_min: 1_000,
            wait_ns_max: 10_000,
        };
        let waits: Vec<i64> = (1..=6).map(|n| policy.wait_ns(n, 1.0)).collect();
        assert_eq!(waits, [1_000, 2_000, 4_000, 8_000, 10_000, 10_000]);
        assert_eq!(policy.wait_ns(1, 0.0), 500);
        assert_eq!(policy.wait_ns(u32::MAX, 1.0), 10_000);
        let odd = RetryPolicy {
            wait_ns_min: -5,
            wait_ns_max: i64::MAX,
            ..policy
        };
        assert_eq!(odd.wait_ns(70, f64::NAN), 0);
    }

    #[test]
    fn a_receiver_may_be_down_for_a_day() {
        let policy = RetryPolicy::default();
        let shortest: i64 = (1..policy.attempts_max)
            .map(|n| policy.wait_ns(n, 0.0))
            .sum();
        assert!(shortest > 24 * 3_600 * NS_PER_S, "{shortest} ns");
    }
}

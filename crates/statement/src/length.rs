//! Lengths of time in statements, like `'10 s'`.

use barograph_model::{NS_PER_S, duration_ns};

use crate::StatementError;

/// Longest length of time in a statement, in ns: 30 days.
pub const LENGTH_NS_MAX: i64 = 30 * 86_400 * NS_PER_S;

/// Reads a length of time with its unit, like `10 s` or `1min`. Returns ns.
pub fn length_ns(text: &str) -> Result<i64, StatementError> {
    let packed: String = text.split_whitespace().collect();
    let bare = packed.bytes().all(|b| b.is_ascii_digit());
    let fits = |ns: &i64| (1..=LENGTH_NS_MAX).contains(ns);
    match duration_ns(&packed) {
        Ok(ns) if fits(&ns) && !bare => Ok(ns),
        _ => Err(StatementError::new(format!(
            "'{text}' is not a length of time of at most 30 days: write a number and ns, us, ms, \
             s, min, h or d, like '10 s'"
        ))),
    }
}

//! Checks of values of the configuration.

use barograph_model::{ConfigError, NS_PER_S};

/// Converts seconds of the configuration into nanoseconds; fails if they are out of range.
pub fn seconds(key: &'static str, value: f64, min: f64, max: f64) -> Result<i64, ConfigError> {
    if !(min..=max).contains(&value) {
        return Err(refused(key, &value, &format!("it must be {min} to {max}")));
    }
    Ok((value * NS_PER_S as f64) as i64)
}

/// The error for a value of a key, with the reason.
pub(crate) fn refused(key: &'static str, value: &dyn ToString, reason: &str) -> ConfigError {
    ConfigError {
        key,
        value: value.to_string(),
        reason: reason.into(),
    }
}

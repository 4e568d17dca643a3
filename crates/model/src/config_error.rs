//! The error of a value in the configuration that is out of range.
//!
//! It stands alone because each crate checks its own part of the configuration.

use thiserror::Error;

/// A value in the configuration that is refused.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[error("{key} = {value} is refused: {reason}")]
pub struct ConfigError {
    /// The key, with the name of its table: `archive.dir`.
    pub key: &'static str,
    /// The refused value.
    pub value: String,
    /// The reason, and what to write instead.
    pub reason: String,
}

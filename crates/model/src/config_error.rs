//! The error for a configuration value that is out of range.
//!
//! It is a module of its own because each crate checks its own part of the configuration.

use thiserror::Error;

/// A configuration value that is refused.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[error("{key} = {value} is refused: {reason}")]
pub struct ConfigError {
    /// The key, with the name of its table: `archive.dir`.
    pub key: &'static str,
    /// The refused value.
    pub value: String,
    /// The reason for the refusal, and what to write instead.
    pub reason: String,
}

//! The error of a statement that cannot be read.

use barograph_model::{ModelError, cut};
use thiserror::Error;

/// Longest message about a statement, in bytes. A longer one is cut, and ends with "…".
const MESSAGE_BYTES_MAX: usize = 512;

/// A statement that was refused for its text alone.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum StatementError {
    /// The text is not SQL, or not the SQL of such a statement.
    #[error("{message}")]
    Text {
        /// The fault, and the words to write instead.
        message: String,
    },
    /// A name, unit or label that breaks the rules of streams.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A column that its table does not have.
    #[error("table {table} has no column {column}: it has {}", .known.join(", "))]
    UnknownColumn {
        /// Name of the table.
        table: String,
        /// The column as written.
        column: String,
        /// The columns that the table has.
        known: Vec<String>,
    },
    /// The statement exceeds a bound.
    #[error("{what}: at most {max} ({limit})")]
    Limit {
        /// The items that are too many.
        what: String,
        /// Value of the bound.
        max: usize,
        /// Name of the bound.
        limit: &'static str,
    },
}

impl StatementError {
    /// Makes an error about the text. A long message is cut, because it may quote an expression of
    /// thousands of bytes.
    pub fn new(message: impl Into<String>) -> Self {
        Self::Text {
            message: cut(message.into(), MESSAGE_BYTES_MAX),
        }
    }
}

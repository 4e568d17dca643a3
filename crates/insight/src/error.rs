//! The error of a refused insight. It is a separate module because every other file uses it.

use barograph_model::{ModelError, Name};
use barograph_statement::StatementError;
use thiserror::Error;

/// A statement that was refused; nothing has changed.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum InsightError {
    /// The text is not SQL, or not the SQL of an insight statement.
    #[error(transparent)]
    Statement(#[from] StatementError),
    /// The name is in use.
    #[error("{name} is the name of {taken_by}")]
    Taken {
        /// The name in the statement.
        name: Name,
        /// The kind of thing that has the name, and the remedy.
        taken_by: &'static str,
    },
    /// No metric or insight has this table.
    #[error("no metric or insight has the table {table}{}", did_you_mean(.near))]
    UnknownInput {
        /// The table as written.
        table: String,
        /// Tables of similar names, nearest first.
        near: Vec<String>,
    },
    /// The insight would read itself.
    #[error("the insight would read itself: {}", .path.join(" <- "))]
    Cycle {
        /// Names from the insight back to itself; each reads the next one.
        path: Vec<String>,
    },
    /// No insight has this name.
    #[error("there is no insight {name}{}", did_you_mean(.near))]
    UnknownInsight {
        /// The name as written.
        name: String,
        /// Insights of similar names, nearest first.
        near: Vec<String>,
    },
    /// Other insights read the insight that is to be dropped.
    #[error("{name} is read by {}: drop them first", .readers.join(", "))]
    StillRead {
        /// Name of the insight.
        name: String,
        /// Names of the insights that read it.
        readers: Vec<String>,
    },
    /// The test of a statement was stopped: its client went away, or it took too long.
    #[error("the test was stopped before its end: join fewer rows, or compute less for each")]
    Stopped,
    /// The insight is built in, and cannot be changed.
    #[error("{name} is built in and stays: make an insight of another name beside it")]
    Builtin {
        /// Name of the insight.
        name: String,
    },
}

impl InsightError {
    /// Makes an error for a statement. The message is cut, since it may quote an expression of
    /// thousands of bytes.
    pub(crate) fn statement(message: impl Into<String>) -> Self {
        StatementError::new(message).into()
    }

    /// Makes the error for a bound that was exceeded: the items that are too many, the bound, and
    /// its name.
    pub(crate) fn limit(what: String, max: usize, limit: &'static str) -> Self {
        StatementError::Limit { what, max, limit }.into()
    }
}

impl From<ModelError> for InsightError {
    fn from(error: ModelError) -> Self {
        Self::Statement(error.into())
    }
}

fn did_you_mean(near: &[String]) -> String {
    match near {
        [] => ": see the table `tables` for what there is".into(),
        near => format!(": did you mean {}?", near.join(" or ")),
    }
}

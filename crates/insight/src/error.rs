//! The error of an insight that is refused.

use barograph_model::{ModelError, Name};
use barograph_statement::StatementError;
use thiserror::Error;

/// A statement that was not carried out; nothing has changed.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum InsightError {
    /// The text is not SQL, or not the SQL of an insight.
    #[error(transparent)]
    Statement(#[from] StatementError),
    /// The name is in use.
    #[error("{name} is the name of {taken_by}")]
    Taken {
        /// The name asked for.
        name: Name,
        /// What has it, and what to do.
        taken_by: &'static str,
    },
    /// A table that no metric and no insight has.
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
        /// Names from the insight back to itself; each reads the next.
        path: Vec<String>,
    },
    /// An insight that does not exist.
    #[error("there is no insight {name}{}", did_you_mean(.near))]
    UnknownInsight {
        /// The name as written.
        name: String,
        /// Insights of similar names, nearest first.
        near: Vec<String>,
    },
    /// Other insights read it.
    #[error("{name} is read by {}: drop them first", .readers.join(", "))]
    StillRead {
        /// The insight.
        name: String,
        /// Those that read it.
        readers: Vec<String>,
    },
    /// Whoever asked went away, or the time for the test was up.
    #[error("the test was stopped before its end: join fewer rows, or compute less for each")]
    Stopped,
    /// Built-in insights stay as they are.
    #[error("{name} is built in and stays: make an insight of another name beside it")]
    Builtin {
        /// The insight.
        name: String,
    },
}

impl InsightError {
    pub(crate) fn statement(message: impl Into<String>) -> Self {
        StatementError::new(message).into()
    }

    /// The error of a bound that was reached: what there is too much of, the bound and its name.
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

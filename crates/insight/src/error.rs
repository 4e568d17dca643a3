//! Why an insight was refused. It is a module of its own because every other file uses it.

use barograph_model::{ModelError, Name, cut};
use thiserror::Error;

/// Longest message about a statement, in bytes; longer ones are cut and end with "…".
const MESSAGE_BYTES_MAX: usize = 512;

/// Why a statement was not carried out; nothing has changed.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum InsightError {
    /// The text is not SQL, or not the SQL of an insight.
    #[error("{message}")]
    Statement {
        /// What is wrong and what to write instead.
        message: String,
    },
    /// A name, unit or label outside the rules of streams.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The name is in use.
    #[error("{name} is the name of {taken_by}")]
    Taken {
        /// The name in the statement.
        name: Name,
        /// The kind of thing that has the name, and what to do.
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
    /// A table does not have this column.
    #[error("table {table} has no column {column}: it has {}", .known.join(", "))]
    UnknownColumn {
        /// The table.
        table: String,
        /// The column as written.
        column: String,
        /// The columns that the table has.
        known: Vec<String>,
    },
    /// The insight would read itself.
    #[error("the insight would read itself: {}", .path.join(" <- "))]
    Cycle {
        /// Names from the insight back to itself; each reads the next one.
        path: Vec<String>,
    },
    /// There is no such insight.
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
        /// The insight.
        name: String,
        /// The insights that read it.
        readers: Vec<String>,
    },
    /// The caller of a test went away, or the test took too long.
    #[error("the test was stopped before its end: join fewer rows, or compute less for each")]
    Stopped,
    /// A built-in insight cannot be changed.
    #[error("{name} is built in and stays: make an insight of another name beside it")]
    Builtin {
        /// The insight.
        name: String,
    },
    /// A bound was reached.
    #[error("{what}: at most {max} ({limit})")]
    Limit {
        /// What there is too much of.
        what: String,
        /// The bound.
        max: usize,
        /// The field of `Limits`, or the constant.
        limit: &'static str,
    },
}

impl InsightError {
    /// Makes an error for a statement. The message is cut, since it may quote an expression of
    /// thousands of bytes.
    pub(crate) fn statement(message: impl Into<String>) -> Self {
        Self::Statement {
            message: cut(message.into(), MESSAGE_BYTES_MAX),
        }
    }
}

fn did_you_mean(near: &[String]) -> String {
    match near {
        [] => ": see the table `tables` for what there is".into(),
        near => format!(": did you mean {}?", near.join(" or ")),
    }
}

//! Why an insight was refused. Apart, because every other file returns it.

use barograph_model::{ModelError, Name, cut};
use thiserror::Error;

/// Longest message about a statement; what is longer ends with "…".
const MESSAGE_BYTES_MAX: usize = 512;

/// A statement that was not carried out; nothing has changed.
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
    /// A column that its table has not.
    #[error("table {table} has no column {column}: it has {}", .known.join(", "))]
    UnknownColumn {
        /// The table.
        table: String,
        /// The column as written.
        column: String,
        /// The columns it has.
        known: Vec<String>,
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
    /// A bound was reached.
    #[error("{what}: at most {max} ({limit})")]
    Limit {
        /// What there is too much of.
        what: String,
        /// The bound.
        max: usize,
        /// The field of `Limits`.
        limit: &'static str,
    },
}

impl InsightError {
    /// Cuts what the message quotes of a statement, which may be one expression of thousands of bytes.
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

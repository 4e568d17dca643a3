//! The answer to a statement, and the reason why one was not executed.
//!
//! It is apart from the control side because every part that executes statements gives such
//! answers.

use barograph_insight::InsightError;
use barograph_model::{ControlFault, ControlFaultKind};
use barograph_statement::StatementError;
use serde_json::Value as Json;
use thiserror::Error;

/// The reason why a statement was not executed.
#[derive(Debug, Error)]
pub enum StatementRefusal {
    /// The statement is not valid, or was refused.
    #[error("{0}")]
    Statement(String),
    /// The thing to drop does not exist.
    #[error("{0}")]
    Absent(String),
    /// Too many requests wait, and the statement was not taken.
    #[error("{0}")]
    Busy(String),
    /// The statement was taken, but its answer did not come in time.
    #[error("{0}")]
    Late(String),
    /// The agent failed.
    #[error("{0}")]
    Internal(String),
}

impl From<InsightError> for StatementRefusal {
    fn from(error: InsightError) -> Self {
        match error {
            InsightError::UnknownInsight { .. } => Self::Absent(error.to_string()),
            error => Self::Statement(error.to_string()),
        }
    }
}

impl From<StatementError> for StatementRefusal {
    fn from(error: StatementError) -> Self {
        Self::Statement(error.to_string())
    }
}

impl From<StatementRefusal> for ControlFault {
    fn from(refusal: StatementRefusal) -> Self {
        let kind = match refusal {
            StatementRefusal::Statement(_) | StatementRefusal::Absent(_) => {
                ControlFaultKind::Statement
            }
            StatementRefusal::Busy(_) | StatementRefusal::Late(_) => ControlFaultKind::Busy,
            StatementRefusal::Internal(_) => ControlFaultKind::Internal,
        };
        Self {
            kind,
            message: refusal.to_string(),
        }
    }
}

pub(crate) type StatementAnswer = Result<Json, StatementRefusal>;

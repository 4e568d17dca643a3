//! Why a trace could not be read.

/// What is wrong with a trace, and where.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A line that means nothing.
    #[error("line {line}: {fault}")]
    Line {
        /// From 1, in the unpacked text.
        line: usize,
        /// What it should have been.
        fault: String,
    },
    /// No line of values at all.
    #[error("no values: a trace needs a header and at least one line below it")]
    Empty,
    /// More than is read.
    #[error("more than {max} {of}: cut the trace into parts")]
    TooMuch {
        /// Rows, columns or bytes.
        of: &'static str,
        /// How many are read.
        max: usize,
    },
    /// Not text, or not what its first bytes promise.
    #[error("cannot be unpacked as text: {0}")]
    Unreadable(#[from] std::io::Error),
}

impl TraceError {
    pub(crate) fn line(line: usize, fault: impl Into<String>) -> Self {
        Self::Line {
            line,
            fault: fault.into(),
        }
    }
}

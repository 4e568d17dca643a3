//! Errors of reading a trace.

/// A fault of a trace, and its place.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A line that cannot be understood.
    #[error("line {line}: {fault}")]
    Line {
        /// Number of the line, from 1, in the unpacked text.
        line: usize,
        /// The expected content of the line.
        fault: String,
    },
    /// There is no line of values.
    #[error("no values: a trace needs a header and at least one line below it")]
    Empty,
    /// The trace is greater than a bound.
    #[error("more than {max} {of}: cut the trace into parts")]
    TooMuch {
        /// The bounded thing: rows, columns or bytes.
        of: &'static str,
        /// The bound.
        max: usize,
    },
    /// The trace is not text, or not what its first bytes promise.
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

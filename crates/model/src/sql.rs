//! The seam through which `server` and `rule` reach SQL without importing `query`.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use thiserror::Error;

/// What a query may use before it is stopped.
#[derive(Clone, Copy, Debug)]
pub struct SqlLimits {
    /// Most rows in the answer; one more is an error, never a silent cut.
    pub rows_max: usize,
    /// Most bytes in the encoded answer.
    pub bytes_max: usize,
    /// Most wall time, in nanoseconds.
    pub time_ns_max: i64,
    /// Most memory that SQLite may take, in bytes (a bound on the whole process's SQLite heap).
    pub memory_bytes_max: usize,
}

impl Default for SqlLimits {
    fn default() -> Self {
        Self {
            rows_max: 1_000_000,
            bytes_max: 256 << 20,
            time_ns_max: 10_000_000_000,
            memory_bytes_max: 256 << 20,
        }
    }
}

/// How the answer is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultFormat {
    /// A JSON list of row objects.
    JsonRows,
    /// A JSON object `{"columns": […], "rows": [[…]], "elapsed_ns": n}`.
    JsonTable,
    /// An Arrow IPC stream.
    Arrow,
}

/// One question.
#[derive(Clone, Debug)]
pub struct SqlRequest {
    /// The text: one statement.
    pub sql: String,
    /// Encoding of the answer.
    pub format: ResultFormat,
    /// Bounds.
    pub limits: SqlLimits,
    /// Set by the asker who has gone away: the query stops soon after.
    pub cancel: Arc<AtomicBool>,
}

/// The encoded answer.
#[derive(Debug)]
pub struct SqlReply {
    /// The bytes, in the format that was asked for.
    pub body: Vec<u8>,
    /// How many rows they hold.
    pub rows: usize,
}

/// Whose fault it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SqlFaultKind {
    /// The statement is wrong: syntax, unknown table or column.
    Statement,
    /// The statement does what guests may not: write, attach, pragma.
    Refused,
    /// A limit was reached.
    Limit,
    /// The asker went away.
    Cancelled,
    /// Too many questions at once.
    Busy,
    /// Our side failed.
    Internal,
}

/// Why there is no answer; the text says what to do about it.
#[derive(Clone, Debug, Error)]
#[error("{message}")]
pub struct SqlFault {
    /// Whose fault.
    pub kind: SqlFaultKind,
    /// For people.
    pub message: String,
}

/// Answers SQL. Blocking: call it from a thread that may wait.
pub trait SqlEngine: Send + Sync {
    /// Runs one read-only statement within its limits.
    fn query(&self, request: &SqlRequest) -> Result<SqlReply, SqlFault>;

    /// As [`SqlEngine::query`] for the client of this number (a connection, say): clients share fairly.
    fn query_of(&self, client: u64, request: &SqlRequest) -> Result<SqlReply, SqlFault> {
        let _ = client;
        self.query(request)
    }
}

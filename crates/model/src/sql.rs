//! The seam through which `server` and `rule` use SQL without importing `query`.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use thiserror::Error;

use crate::{ClientNumber, UNKNOWN};

/// Limits of one query; a query that reaches one is stopped.
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

/// Encoding of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultFormat {
    /// A JSON list of row objects.
    JsonRows,
    /// A JSON object `{"columns": […], "rows": [[…]], "elapsed_ns": n}`.
    JsonTable,
    /// An Arrow IPC stream.
    Arrow,
}

/// JSON form of integers beyond 2^53: programs that read JSON numbers as floats, such as JavaScript
/// and jq, round them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BigIntegers {
    /// Numbers, like all other integers.
    #[default]
    Number,
    /// Texts of all their digits.
    Text,
}

/// A query with its limits.
#[derive(Clone, Debug)]
pub struct SqlRequest {
    /// The SQL text: one statement.
    pub sql: String,
    /// Encoding of the answer.
    pub format: ResultFormat,
    /// JSON form of integers beyond 2^53.
    pub big_integers: BigIntegers,
    /// Limits of rows, bytes, time and memory.
    pub limits: SqlLimits,
    /// Set when the asker has gone away: the query stops soon after.
    pub cancel: Arc<AtomicBool>,
}

/// A complete encoded answer.
#[derive(Debug)]
pub struct SqlReply {
    /// The bytes, in the requested format.
    pub body: Vec<u8>,
    /// Number of rows in the answer.
    pub rows: usize,
}

/// A receiver of an answer, piece by piece while it is made, so that no more of it is held than the
/// reader lags behind.
pub trait SqlSink: Send {
    /// Takes the next bytes. It may wait for room; an error ends the statement.
    fn put(&mut self, piece: Vec<u8>) -> Result<(), SqlFault>;

    /// Accounts for `bytes` bytes that are held in the making, beside the pieces; an error ends the
    /// statement.
    fn hold(&mut self, bytes: usize) -> Result<(), SqlFault>;

    /// Marks that the last piece was put. If a sink is dropped without it, the answer is
    /// incomplete.
    fn end(self: Box<Self>) -> Result<(), SqlFault>;
}

/// The kind of an SQL fault, or the party at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SqlFaultKind {
    /// The statement is wrong: syntax, unknown table or column.
    Statement,
    /// The statement does what guests may not do: write, attach, pragma.
    Refused,
    /// A limit was reached.
    Limit,
    /// The asker went away.
    Cancelled,
    /// Too many queries at once.
    Busy,
    /// An internal error of barograph.
    Internal,
}

/// The reason why there is no answer; its text says what to do about it.
#[derive(Clone, Debug, Error)]
#[error("{message}")]
pub struct SqlFault {
    /// The kind of the fault.
    pub kind: SqlFaultKind,
    /// The message for people.
    pub message: String,
}

/// An engine that answers SQL. Blocking: call it from a thread that may wait.
pub trait SqlEngine: Send + Sync {
    /// Runs one read-only statement within its limits and puts the answer into the sink; returns
    /// the number of rows. Clients share the engine fairly, by their numbers.
    fn query_into(
        &self,
        client: ClientNumber,
        request: &SqlRequest,
        sink: Box<dyn SqlSink>,
    ) -> Result<usize, SqlFault>;

    /// Runs one read-only statement within its limits and returns the complete answer.
    fn query(&self, request: &SqlRequest) -> Result<SqlReply, SqlFault> {
        let whole = Arc::new(Mutex::new(Vec::new()));
        let rows = self.query_into(UNKNOWN, request, Box::new(Whole(Arc::clone(&whole))))?;
        let body = std::mem::take(&mut *whole.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(SqlReply { body, rows })
    }
}

/// A sink that keeps all pieces.
struct Whole(Arc<Mutex<Vec<u8>>>);

impl SqlSink for Whole {
    fn put(&mut self, piece: Vec<u8>) -> Result<(), SqlFault> {
        let mut whole = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        whole.extend_from_slice(&piece);
        Ok(())
    }

    fn hold(&mut self, _: usize) -> Result<(), SqlFault> {
        Ok(())
    }

    fn end(self: Box<Self>) -> Result<(), SqlFault> {
        Ok(())
    }
}

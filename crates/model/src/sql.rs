//! The seam through which `server` and `rule` reach SQL without importing `query`.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use thiserror::Error;

use crate::{ClientNumber, UNKNOWN};

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

/// How JSON has integers beyond 2^53: whoever reads its numbers as floats, such as JavaScript and jq, rounds them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BigIntegers {
    /// As numbers, like all others.
    #[default]
    Number,
    /// As texts of all their digits.
    Text,
}

/// One question.
#[derive(Clone, Debug)]
pub struct SqlRequest {
    /// The text: one statement.
    pub sql: String,
    /// Encoding of the answer.
    pub format: ResultFormat,
    /// How JSON has integers beyond 2^53.
    pub big_integers: BigIntegers,
    /// Bounds.
    pub limits: SqlLimits,
    /// Set by the asker who has gone away: the query stops soon after.
    pub cancel: Arc<AtomicBool>,
}

/// The encoded answer, whole.
#[derive(Debug)]
pub struct SqlReply {
    /// The bytes, in the format that was asked for.
    pub body: Vec<u8>,
    /// How many rows they hold.
    pub rows: usize,
}

/// Takes an answer piece by piece while it is made, so that no more of it is held than its reader
/// is behind.
pub trait SqlSink: Send {
    /// Takes the next bytes. It may wait for room; a fault ends the statement.
    fn put(&mut self, piece: Vec<u8>) -> Result<(), SqlFault>;

    /// Says that so many bytes are held in the making, beside the pieces; a fault ends the
    /// statement.
    fn hold(&mut self, bytes: usize) -> Result<(), SqlFault>;

    /// Says that the last piece was put. A sink that is dropped without it holds no whole answer.
    fn end(self: Box<Self>) -> Result<(), SqlFault>;
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
    /// Runs one read-only statement within its limits and puts the answer into the sink; how many
    /// rows it has. Clients, by their numbers, share fairly.
    fn query_into(
        &self,
        client: ClientNumber,
        request: &SqlRequest,
        sink: Box<dyn SqlSink>,
    ) -> Result<usize, SqlFault>;

    /// Runs one read-only statement within its limits, for an asker who takes the answer whole.
    fn query(&self, request: &SqlRequest) -> Result<SqlReply, SqlFault> {
        let whole = Arc::new(Mutex::new(Vec::new()));
        let rows = self.query_into(UNKNOWN, request, Box::new(Whole(Arc::clone(&whole))))?;
        let body = std::mem::take(&mut *whole.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(SqlReply { body, rows })
    }
}

/// Keeps all pieces.
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

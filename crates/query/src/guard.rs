//! The rights of guests: they may read our tables and call known functions, within limits.
//! Everything else is refused when the statement is prepared, or stopped while it runs.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use barograph_model::{SqlFault, SqlFaultKind, SqlLimits};
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::{Connection, Result};

use crate::catalogue::TableNames;
use crate::live::Live;
use crate::texts::{self, LIKE_PATTERN_BYTES_MAX, TEXT_RESULT_BYTES_MAX};

/// Longest statement, in bytes.
pub const SQL_BYTES_MAX: usize = 256 << 10;
/// Longest text for statements of guests, in bytes: SQLite's functions cannot be stopped before
/// they return, and their duration grows with the lengths of their arguments.
pub const GUEST_TEXT_BYTES_MAX: i32 = 1 << 20;
/// Instructions of SQLite's virtual machine between two checks of the time: each may call a
/// function.
const PROGRESS_OPERATIONS: i32 = 100;
/// Most places in a statement that call a function: the time may not be checked between two of
/// them.
const CALLS_MAX: usize = 4_000;

/// SQLite's own bounds, set once for each connection.
const LIMITS: [(Limit, i32); 11] = [
    (Limit::SQLITE_LIMIT_LENGTH, TEXT_RESULT_BYTES_MAX),
    // The rewrite of a bare `newest` may lengthen the text a little.
    (Limit::SQLITE_LIMIT_SQL_LENGTH, 2 * SQL_BYTES_MAX as i32),
    (Limit::SQLITE_LIMIT_COLUMN, 500),
    (Limit::SQLITE_LIMIT_EXPR_DEPTH, 200),
    // Apollo's resource query is a UNION with one term per resource: up to 640 in its evaluation.
    (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 1_000),
    (Limit::SQLITE_LIMIT_VDBE_OP, 1_000_000),
    (Limit::SQLITE_LIMIT_FUNCTION_ARG, 100),
    (
        Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH,
        LIKE_PATTERN_BYTES_MAX as i32,
    ),
    (Limit::SQLITE_LIMIT_VARIABLE_NUMBER, 100),
    (Limit::SQLITE_LIMIT_ATTACHED, 0),
    (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
];

/// Table functions of SQLite that only read their arguments.
const FOREIGN_TABLES: [&str; 2] = ["json_each", "json_tree"];

/// The guard over the statements of one connection.
pub(crate) struct Guard {
    live: Arc<Live>,
    names: Arc<TableNames>,
    refusal: Mutex<Option<String>>,
    /// Number of function calls in the statement that is being prepared.
    calls: AtomicUsize,
    /// Number of databases that share the memory of scans, including this one.
    sharers: AtomicUsize,
}

impl Guard {
    /// Installs a guard on a connection.
    pub(crate) fn install(
        connection: &mut Connection,
        live: &Arc<Live>,
        names: Arc<TableNames>,
    ) -> Result<Arc<Self>> {
        for (limit, value) in LIMITS {
            connection.set_limit(limit, value)?;
        }
        let guard = Arc::new(Self {
            live: Arc::clone(live),
            names,
            refusal: Mutex::new(None),
            calls: AtomicUsize::new(0),
            sharers: AtomicUsize::new(1),
        });
        texts::register(connection, live)?;
        let judge = Arc::clone(&guard);
        connection.authorizer(Some(move |context: AuthContext<'_>| {
            judge.authorize(&context)
        }))?;
        let watch = Arc::clone(&guard);
        connection.progress_handler(PROGRESS_OPERATIONS, Some(move || watch.live.must_stop()))?;
        Ok(guard)
    }

    /// Runs `then`, which prepares and steps one statement, within the limits.
    pub(crate) fn watch<R>(
        &self,
        limits: &SqlLimits,
        cancel: &AtomicBool,
        then: impl FnOnce() -> R,
    ) -> R {
        let deadline_ns = self.live.monotonic_ns().saturating_add(limits.time_ns_max);
        let of_scans = limits.memory_bytes_max / self.sharers.load(Ordering::Relaxed);
        self.live.memory.set_max(of_scans);
        self.calls.store(0, Ordering::Relaxed);
        self.live.watch.over(deadline_ns, cancel, then)
    }

    /// Sets the number of databases that share the memory of scans, including this one.
    pub(crate) fn share_memory(&self, databases: usize) {
        self.sharers.store(databases.max(1), Ordering::Relaxed);
    }

    /// The fault of a statement that was interrupted, with the reason.
    pub(crate) fn interruption(&self, limits: &SqlLimits) -> SqlFault {
        if self.live.watch.was_cancelled() {
            let message = "the query was cancelled by its asker".into();
            return SqlFault {
                kind: SqlFaultKind::Cancelled,
                message,
            };
        }
        let seconds = limits.time_ns_max as f64 / 1e9;
        let message = format!(
            "the query was stopped after {seconds} s: narrow it (ts > now_ns() - 60e9, newest = 1), \
             or raise its time limit"
        );
        SqlFault {
            kind: SqlFaultKind::Limit,
            message,
        }
    }

    /// The fault of the last statement that was not authorized, with the refused part.
    pub(crate) fn refusal(&self) -> SqlFault {
        if self.calls.load(Ordering::Relaxed) > CALLS_MAX {
            let message =
                format!("the statement calls functions at more than {CALLS_MAX} places: split it");
            return SqlFault {
                kind: SqlFaultKind::Limit,
                message,
            };
        }
        let refused = self
            .refusal
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let what = refused.as_deref().unwrap_or("this statement");
        let message = format!(
            "{what} is refused: SQL here only reads (SELECT from what `SELECT * FROM tables` lists)"
        );
        SqlFault {
            kind: SqlFaultKind::Refused,
            message,
        }
    }

    fn authorize(&self, context: &AuthContext<'_>) -> Authorization {
        let refused = match context.action {
            AuthAction::Select | AuthAction::Recursive => return Authorization::Allow,
            // No column is read; SQLite asks in this way also for names that the statement defines
            // (CTEs).
            AuthAction::Read {
                column_name: "", ..
            } => return Authorization::Allow,
            AuthAction::Read { table_name, .. } if self.may_read(table_name) => {
                return Authorization::Allow;
            }
            AuthAction::Function { .. }
                if self.calls.fetch_add(1, Ordering::Relaxed) >= CALLS_MAX =>
            {
                return Authorization::Deny;
            }
            AuthAction::Function { function_name } if may_call(function_name) => {
                return Authorization::Allow;
            }
            AuthAction::Read { table_name, .. } => format!("reading {table_name}"),
            AuthAction::Function { function_name } => format!("the function {function_name}"),
            AuthAction::Pragma { pragma_name, .. } => format!("PRAGMA {pragma_name}"),
            AuthAction::Attach { .. } => "ATTACH".into(),
            AuthAction::Detach { .. } => "DETACH".into(),
            AuthAction::Transaction { .. } | AuthAction::Savepoint { .. } => "a transaction".into(),
            AuthAction::Insert { .. } | AuthAction::Update { .. } | AuthAction::Delete { .. } => {
                "writing".into()
            }
            _ => "changing the schema".into(),
        };
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(refused);
        Authorization::Deny
    }

    fn may_read(&self, table: &str) -> bool {
        self.names.contains(table) || FOREIGN_TABLES.iter().any(|t| t.eq_ignore_ascii_case(table))
    }
}

fn may_call(function: &str) -> bool {
    let function = function.to_ascii_lowercase();
    FUNCTIONS_ALLOWED.contains(&function.as_str())
}

/// The functions that guests may call.
pub(crate) const FUNCTIONS_ALLOWED: &[&str] = &[
    // ours
    "instant",
    "instant_beside",
    "iso",
    "now_ns",
    // aggregates and windows
    "avg",
    "count",
    "group_concat",
    "max",
    "median",
    "min",
    "percentile",
    "percentile_cont",
    "percentile_disc",
    "string_agg",
    "sum",
    "total",
    "twa",
    "cume_dist",
    "dense_rank",
    "first_value",
    "lag",
    "last_value",
    "lead",
    "nth_value",
    "ntile",
    "percent_rank",
    "rank",
    "row_number",
    // scalars
    "abs",
    "char",
    "coalesce",
    "concat",
    "concat_ws",
    "format",
    "glob",
    "hex",
    "if",
    "ifnull",
    "iif",
    "instr",
    "length",
    "like",
    "likelihood",
    "likely",
    "lower",
    "ltrim",
    "nullif",
    "octet_length",
    "printf",
    "quote",
    "random",
    "replace",
    "round",
    "rtrim",
    "sign",
    "substr",
    "substring",
    "trim",
    "typeof",
    "unicode",
    "unistr",
    "unlikely",
    "upper",
    "sqlite_version",
    // mathematics
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "ceil",
    "ceiling",
    "cos",
    "cosh",
    "degrees",
    "exp",
    "floor",
    "ln",
    "log",
    "log10",
    "log2",
    "mod",
    "pi",
    "pow",
    "power",
    "radians",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
    // times
    "current_date",
    "current_time",
    "current_timestamp",
    "date",
    "datetime",
    "julianday",
    "strftime",
    "time",
    "timediff",
    "unixepoch",
    // JSON
    "->",
    "->>",
    "json",
    "json_array",
    "json_array_length",
    "json_extract",
    "json_group_array",
    "json_group_object",
    "json_object",
    "json_quote",
    "json_remove",
    "json_replace",
    "json_set",
    "json_type",
    "json_valid",
    "json_pretty",
];

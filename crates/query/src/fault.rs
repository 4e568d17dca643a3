//! Translates SQLite's errors into helpful ones: the kind of fault, similar names, and what to do.

use barograph_model::{SqlFault, SqlFaultKind, SqlLimits, near};
use rusqlite::{Error, ErrorCode};

use crate::QueryError;
use crate::catalogue::TableNames;
use crate::documents::insight_without_streams;
use crate::functions::FUNCTIONS;
use crate::guard::{FUNCTIONS_ALLOWED, Guard};
use crate::listing::Listing;
use crate::live::Live;
use crate::text::tokens;

/// Most columns that a message lists.
const COLUMNS_SHOWN_MAX: usize = 40;

/// The statement of an error, with the limits and the database it ran with.
pub(crate) struct Circumstances<'a> {
    pub(crate) sql: &'a str,
    pub(crate) limits: &'a SqlLimits,
    pub(crate) guard: &'a Guard,
    pub(crate) names: &'a TableNames,
    pub(crate) live: &'a Live,
}

/// Makes a fault of this kind.
pub(crate) fn fault(kind: SqlFaultKind, message: impl Into<String>) -> SqlFault {
    SqlFault {
        kind,
        message: message.into(),
    }
}

impl From<QueryError> for SqlFault {
    fn from(error: QueryError) -> Self {
        fault(SqlFaultKind::Internal, error.to_string())
    }
}

/// The message for an unknown function: similar names, or the table function of that name.
fn unknown_function(function: &str) -> String {
    let is_named = |listing: &&Listing| listing.name.eq_ignore_ascii_case(function);
    if let Some(Listing {
        name, arguments, ..
    }) = FUNCTIONS.iter().find(is_named)
    {
        let arguments = arguments.join(", ");
        return format!("{name} is a table: SELECT … FROM {name}({arguments})");
    }
    let known: Vec<String> = FUNCTIONS_ALLOWED.iter().map(|&f| f.to_owned()).collect();
    format!("no function {function}{}", did_you_mean(function, &known))
}

impl Circumstances<'_> {
    /// Translates an error of SQLite into a fault with advice.
    pub(crate) fn fault(&self, error: Error) -> SqlFault {
        let (code, message) = match error {
            Error::SqlInputError { error, msg, .. } => (error.code, msg),
            Error::SqliteFailure(error, message) => {
                (error.code, message.unwrap_or_else(|| error.to_string()))
            }
            Error::MultipleStatement => (ErrorCode::Unknown, "one statement at a time".into()),
            other => (ErrorCode::Unknown, other.to_string()),
        };
        match code {
            ErrorCode::OperationInterrupted => self.guard.interruption(self.limits),
            ErrorCode::AuthorizationForStatementDenied => self.guard.refusal(),
            // SQLite has no error code for refused functions; and it refuses writes to virtual
            // tables before it asks the authorizer.
            _ if message.starts_with("not authorized")
                || message.ends_with("may not be modified") =>
            {
                self.guard.refusal()
            }
            ErrorCode::OutOfMemory => fault(
                SqlFaultKind::Limit,
                format!(
                    "the query needs more than {} bytes of memory: narrow it, or raise its limit",
                    self.limits.memory_bytes_max
                ),
            ),
            ErrorCode::TooBig => fault(
                SqlFaultKind::Limit,
                "a text or the statement is too long: make it shorter",
            ),
            ErrorCode::DatabaseCorrupt => fault(SqlFaultKind::Internal, message),
            _ => self.statement(&message),
        }
    }

    fn statement(&self, message: &str) -> SqlFault {
        const LIMITS: [&str; 7] = [
            "Recursion limit",
            "too many terms in compound SELECT",
            "Expression tree is too large",
            "parser stack overflow",
            "too many columns",
            "at most 64 tables",
            "LIKE or GLOB pattern too complex",
        ];
        if LIMITS.iter().any(|limit| message.contains(limit)) {
            return fault(
                SqlFaultKind::Limit,
                format!("{message}: split the statement"),
            );
        }
        let helpful = if let Some(table) = message.strip_prefix("no such table: ") {
            self.unknown_table(table)
        } else if let Some(column) = message.strip_prefix("no such column: ") {
            self.unknown_column(column)
        } else if let Some(function) = message.strip_prefix("no such function: ") {
            unknown_function(function)
        } else if message.contains("near \".\"") {
            format!("{message} (in table names dots become underscores: disk_read_bytes)")
        } else {
            message.to_owned()
        };
        fault(SqlFaultKind::Statement, helpful)
    }

    fn unknown_table(&self, table: &str) -> String {
        let bare = table.rsplit("main.").next().unwrap_or(table);
        if let Some(why) = insight_without_streams(self.live, bare) {
            return format!("no table {table} now: {why}");
        }
        match did_you_mean(table, &self.names.all()) {
            near if near.is_empty() => {
                format!("no table {table}; `SELECT name FROM tables` lists them")
            }
            near => format!("no table {table}{near}"),
        }
    }

    fn unknown_column(&self, column: &str) -> String {
        // SQLite appends advice about double quotes to some of these messages.
        let column = column.split(" - ").next().unwrap_or(column);
        let mut message = format!("no column {column}");
        let mut seen: Vec<String> = Vec::new();
        for token in tokens(self.sql).iter().filter(|t| t.is_word) {
            let table = token.name().to_ascii_lowercase();
            if let Some(columns) = self
                .names
                .columns(&table)
                .filter(|_| !seen.contains(&table))
            {
                let joint = if seen.is_empty() { ";" } else { "," };
                let shown = columns[..columns.len().min(COLUMNS_SHOWN_MAX)].join(", ");
                message.push_str(&format!("{joint} {table} has {shown}"));
                seen.push(table);
            }
        }
        message
    }
}

fn did_you_mean(wanted: &str, names: &[String]) -> String {
    let wanted = wanted.rsplit("main.").next().unwrap_or(wanted);
    match near(wanted, names.iter().map(String::as_str)) {
        near if near.is_empty() => String::new(),
        near => format!("; did you mean {}?", near.join(" or ")),
    }
}

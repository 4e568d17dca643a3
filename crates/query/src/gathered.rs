//! A SELECT over rows that are there already, such as those that several nodes have returned.
//!
//! It has a database of its own in memory: the rows are of other nodes, and no table of this one is
//! in reach of the statement.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use barograph_model::{Clock, SqlFault, SqlFaultKind, SqlLimits};
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::ToSqlOutput;
use rusqlite::{Connection, Error, ErrorCode, params_from_iter};
use serde_json::Value as Json;

use crate::database::columns;
use crate::fault::fault;
use crate::functions::register_iso;
use crate::rows::{RowView, Rows, Taker as _};

/// Instructions of SQLite's virtual machine between two checks of the time.
const PROGRESS_OPERATIONS: i32 = 1_000;
/// Longest text, in bytes.
const TEXT_BYTES_MAX: i32 = 1 << 20;
/// The functions that the statement may call: those that end soon for texts of any length.
const FUNCTIONS: &[&str] = &[
    "iso",
    // aggregates
    "avg",
    "count",
    "group_concat",
    "max",
    "min",
    "string_agg",
    "sum",
    "total",
    // scalars
    "abs",
    "ceil",
    "ceiling",
    "coalesce",
    "exp",
    "floor",
    "ifnull",
    "iif",
    "length",
    "ln",
    "log",
    "log10",
    "log2",
    "lower",
    "mod",
    "nullif",
    "pow",
    "power",
    "round",
    "sign",
    "sqrt",
    "trunc",
    "typeof",
    "upper",
];

/// Rows under names of columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GatheredRows {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// The rows; a cell that is missing at the end of a row is NULL.
    pub rows: Vec<Vec<Json>>,
}

impl GatheredRows {
    /// Runs a SELECT over these rows as the table `table`, within its limits.
    pub fn select(
        &self,
        table: &'static str,
        sql: &str,
        (limits, clock): (&SqlLimits, &Arc<dyn Clock>),
    ) -> Result<Rows, SqlFault> {
        let started_ns = clock.monotonic_ns();
        let until_ns = started_ns.saturating_add(limits.time_ns_max);
        let mut connection = Connection::open_in_memory().map_err(|e| broken(&e))?;
        self.fill(&mut connection, table).map_err(|e| broken(&e))?;
        let is_refused = guard(&mut connection, table).map_err(|e| broken(&e))?;
        let watch = Arc::clone(clock);
        let is_over = move || watch.monotonic_ns() >= until_ns;
        connection
            .progress_handler(PROGRESS_OPERATIONS, Some(is_over))
            .map_err(|e| broken(&e))?;
        let said = |error: Error| match error.sqlite_error_code() {
            Some(ErrorCode::OperationInterrupted) => fault(
                SqlFaultKind::Limit,
                "combining the rows of the nodes took too long: let them aggregate more",
            ),
            _ if is_refused.load(Ordering::Relaxed) => fault(
                SqlFaultKind::Refused,
                format!("over all nodes, {error}: use it without combining"),
            ),
            _ => fault(SqlFaultKind::Statement, error.to_string()),
        };
        let mut statement = connection.prepare(sql).map_err(said)?;
        let mut rows = Rows::default();
        rows.begin(columns(&statement));
        let mut source = statement.raw_query();
        while let Some(row) = source.next().map_err(said)? {
            rows.take(&RowView(row), limits)?;
        }
        rows.elapsed_ns = clock.monotonic_ns() - started_ns;
        Ok(rows)
    }

    /// Makes the table and fills it.
    fn fill(&self, connection: &mut Connection, table: &str) -> rusqlite::Result<()> {
        let quoted = |name: &String| format!("\"{}\"", name.replace('"', "\"\""));
        let names: Vec<String> = self.columns.iter().map(quoted).collect();
        // A table has a column, whether or not any node has answered.
        let names = match &names[..] {
            [] => "\"\"".to_owned(),
            names => names.join(", "),
        };
        let filling = connection.transaction()?;
        filling.execute_batch(&format!("CREATE TABLE {table} ({names})"))?;
        let places = vec!["?"; self.columns.len()].join(", ");
        if !places.is_empty() {
            let mut insert = filling.prepare(&format!("INSERT INTO {table} VALUES ({places})"))?;
            for row in &self.rows {
                let cells = (0..self.columns.len()).map(|at| row.get(at).unwrap_or(&Json::Null));
                insert.execute(params_from_iter(cells.map(JsonCell)))?;
            }
        }
        filling.commit()
    }
}

/// A JSON value as a cell: what is neither a number nor a text becomes its text.
struct JsonCell<'j>(&'j Json);

impl rusqlite::ToSql for JsonCell<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self.0 {
            Json::Null => rusqlite::types::Null.into(),
            Json::Bool(value) => (*value).into(),
            Json::Number(value) => match value.as_i64() {
                Some(value) => value.into(),
                None => value.as_f64().unwrap_or(f64::NAN).into(),
            },
            Json::String(text) => text.as_str().into(),
            other => other.to_string().into(),
        })
    }
}

/// Lets statements read the table, and nothing else. Returns whether one was refused, as it is
/// then.
fn guard(connection: &mut Connection, table: &'static str) -> rusqlite::Result<Arc<AtomicBool>> {
    let is_refused = Arc::new(AtomicBool::new(false));
    let refused = Arc::clone(&is_refused);
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, TEXT_BYTES_MAX)?;
    register_iso(connection)?;
    connection.authorizer(Some(move |context: AuthContext<'_>| match context.action {
        AuthAction::Select => Authorization::Allow,
        AuthAction::Read {
            column_name: "", ..
        } => Authorization::Allow,
        AuthAction::Read { table_name, .. } if table_name == table => Authorization::Allow,
        AuthAction::Function { function_name }
            if FUNCTIONS.contains(&&*function_name.to_ascii_lowercase()) =>
        {
            Authorization::Allow
        }
        _ => {
            refused.store(true, Ordering::Relaxed);
            Authorization::Deny
        }
    }))?;
    Ok(is_refused)
}

fn broken(error: &Error) -> SqlFault {
    fault(SqlFaultKind::Internal, error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Cell;

    fn select(rows: &GatheredRows, sql: &str) -> Result<Rows, SqlFault> {
        let limits = SqlLimits::default();
        let clock: Arc<dyn Clock> = Arc::new(barograph_stream::SystemClock::new());
        rows.select("t", sql, (&limits, &clock))
    }

    #[test]
    fn rows_are_a_table() {
        let rows = GatheredRows {
            columns: vec!["k\"0".into(), "a0".into()],
            rows: vec![
                vec![json!("x"), json!(1)],
                vec![json!("x"), json!(2.5)],
                vec![json!("y")],
            ],
        };
        let sql = "SELECT \"k\"\"0\" AS k, sum(a0), iso(0) FROM t GROUP BY 1 ORDER BY 1";
        let answer = select(&rows, sql).unwrap();
        assert_eq!((answer.len(), answer.unique_names().len()), (2, 3));
        assert_eq!(answer.get(0, 1), Some(&Cell::Real(3.5)));
        assert_eq!(answer.get(1, 1), Some(&Cell::Null));
        let none = GatheredRows::default();
        assert_eq!(select(&none, "SELECT count(*) FROM t").unwrap().len(), 1);
    }

    #[test]
    fn nothing_else_is_in_reach() {
        let rows = GatheredRows {
            columns: vec!["a".into()],
            rows: vec![vec![json!(1)]],
        };
        let check = |sql: &str, kind: SqlFaultKind| {
            assert_eq!(select(&rows, sql).unwrap_err().kind, kind, "{sql}");
        };
        check("SELECT * FROM sqlite_master", SqlFaultKind::Refused);
        check("SELECT randomblob(9) FROM t", SqlFaultKind::Refused);
        check("DELETE FROM t", SqlFaultKind::Refused);
        check("ATTACH 'x' AS y", SqlFaultKind::Refused);
        check("SELECT b FROM t", SqlFaultKind::Statement);
    }
}

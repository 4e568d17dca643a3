//! Tests of the crate from outside: answers in `.slt` files, limits, refusals, streams that change
//! during queries.

#![expect(
    clippy::disallowed_methods,
    reason = "tests wait for real threads, programs and disks"
)]
#![expect(clippy::unwrap_used, reason = "tests")]

mod answers;
mod control_events;
mod demo;
mod family;
mod files;
mod following;
mod frames;
mod hostile;
mod limits;
mod past;
mod pool;
mod pushdown;
mod refused;
mod scopes;
mod slt;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use barograph_model::{ManualClock, SqlFault, SqlLimits};
use barograph_query::{Cell, Database, Rows, ScopeChoice};
use barograph_stream::RunDir;

use demo::{S, START_NS};

/// A database whose present time is ten seconds after the first samples.
fn open(dir: &Path) -> Database {
    let clock = Arc::new(ManualClock::at(START_NS + 10 * S));
    Database::open(&RunDir::new(dir), ScopeChoice::Readable, clock).unwrap()
}

fn ask(database: &mut Database, sql: &str) -> Result<Rows, SqlFault> {
    database.run(sql, &SqlLimits::default(), &AtomicBool::new(false))
}

/// Rows as text: fields joined by `|`.
fn lines(rows: &Rows) -> Vec<String> {
    let field = |cell: &Cell| match cell {
        Cell::Null => "NULL".to_owned(),
        Cell::Int(v) => v.to_string(),
        Cell::Real(v) => format!("{v:?}"),
        Cell::Text(v) => v.to_string(),
        Cell::Blob(v) => format!("{v:?}"),
    };
    let row = |i: usize| {
        let fields = (0..rows.columns().len()).map(|c| field(rows.get(i, c).unwrap()));
        fields.collect::<Vec<_>>().join("|")
    };
    (0..rows.len()).map(row).collect()
}

fn answer(database: &mut Database, sql: &str) -> Vec<String> {
    lines(&ask(database, sql).unwrap_or_else(|e| panic!("{sql}: {e}")))
}

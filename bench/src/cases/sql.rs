//! `sql.latest`: Apollo's resource query over 1, 3 and 8 streams, in the process of the caller.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use barograph_model::{Clock as _, SqlLimits};
use barograph_query::{Database, ScopeChoice};
use barograph_stream::{RunDir, SystemClock};

use super::{Scratch, named, segment};
use crate::measure::{each_ns, keep};
use crate::report::{Fault, Report};

const ROUNDS: usize = 20_000;

/// Measures the query from text and prepared, beside SQLite's own tables in memory.
pub(super) fn run(report: &mut Report) -> Result<(), Fault> {
    let scratch = Scratch::new("sql")?;
    let mut segment = segment(&scratch)?;
    let mut writers = (0..8)
        .map(|i| segment.register(&named(&format!("bench.m{i}.count"), i), None, 0))
        .collect::<Result<Vec<_>, _>>()?;
    for ts in 0..2_000 {
        writers
            .iter_mut()
            .try_for_each(|w| w.append_f64(ts, ts as f64))?;
    }
    let clock = SystemClock::new();
    let mut database = Database::open(
        &RunDir::new(&scratch.0),
        ScopeChoice::None,
        Arc::new(SystemClock::new()),
    )?;
    let (limits, cancel) = (SqlLimits::default(), AtomicBool::new(false));
    for tables in [1, 3, 8] {
        // A segment whose agent seems dead is looked for again by each query.
        segment.heartbeat(clock.now_ns());
        let sql = query(tables);
        let answer = database.run(&sql, &limits, &cancel)?;
        if answer.len() != 1 {
            // Equal rows of a UNION become one.
            return Err(format!("{} rows of {tables} equal ones", answer.len()).into());
        }
        let mut n = 0u64;
        let text = each_ns(ROUNDS, || {
            // The text differs each time, so that no prepared statement is found.
            n += 1;
            keep(
                database
                    .run(&format!("{sql} -- {n}"), &limits, &cancel)
                    .is_ok(),
            );
        });
        report.row(
            "sql.latest",
            &format!("{tables} streams, from text, p50"),
            text.p50 / 1e3,
            "us",
            &[],
        );
        let again = each_ns(ROUNDS, || {
            keep(database.run(&sql, &limits, &cancel).is_ok())
        });
        report.row(
            "sql.latest",
            &format!("{tables} streams, same text again, p50"),
            again.p50 / 1e3,
            "us",
            &[],
        );
        let mut prepared = database.prepare(&sql)?;
        let held = each_ns(ROUNDS, || {
            keep(
                prepared
                    .for_each(&limits, &cancel, |row| keep(row.get(1)))
                    .is_ok(),
            )
        });
        let peer = [("SQLite table in memory", sqlite(&sql)? / 1e3)];
        report.row(
            "sql.latest",
            &format!("{tables} streams, prepared, p50"),
            held.p50 / 1e3,
            "us",
            &peer,
        );
    }
    Ok(())
}

/// Returns the median nanoseconds of the same prepared statement over SQLite's own tables of one
/// newest row each: the least cost for a server that keeps only the newest values.
fn sqlite(sql: &str) -> Result<f64, Fault> {
    let connection = rusqlite::Connection::open_in_memory()?;
    for i in 0..8 {
        connection.execute_batch(&format!(
            "CREATE TABLE bench_m{i}_count (Timestamp INTEGER, metric REAL);
             INSERT INTO bench_m{i}_count VALUES (1999, 1999.0);"
        ))?;
    }
    let mut statement = connection.prepare(sql)?;
    let held = each_ns(ROUNDS, || {
        let mut rows = statement.raw_query();
        while let Ok(Some(row)) = rows.next() {
            keep(row.get_ref(1).is_ok());
        }
    });
    Ok(held.p50)
}

fn query(tables: usize) -> String {
    let one = |i| format!("SELECT MAX(Timestamp), metric FROM bench_m{i}_count");
    (0..tables).map(one).collect::<Vec<_>>().join(" UNION ")
}

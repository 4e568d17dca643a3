//! Measures the cost of newest values in SQL: over 1, 3 and 8 streams, prepared, by a statement
//! that was seen before, and by one that is new each time. `cargo run --release -p barograph-query
//! --example cost`.
#![expect(clippy::unwrap_used, reason = "the streams are the tests' own")]

#[path = "../tests/it/demo.rs"]
mod demo;

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use barograph_model::{Clock as _, Kind, SqlLimits, ValueType};
use barograph_query::{Database, ScopeChoice};
use barograph_stream::{RunDir, SystemClock};

/// Runs of each case, of which the median is printed.
const RUNS: usize = 20_000;

fn main() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut demo = demo::Demo::known(dir.path());
    for number in 0..8 {
        let name = format!("cost.c{number}.bytes");
        let stream = demo::descriptor(&name, &[], ValueType::Float, Kind::Gauge);
        demo.add_deep(&stream, 1024, (0..2_000).map(|i| (i, (i as f64).into())));
    }
    let clock = SystemClock::new();
    // Without a recent heartbeat each statement would check whether the agent was replaced.
    demo.segment.heartbeat(clock.now_ns() + 3_600 * demo::S);
    let open = || {
        Database::open(
            &RunDir::new(dir.path()),
            ScopeChoice::Readable,
            Arc::new(clock),
        )
    };
    let mut database = open().expect("the segment is there");
    let (limits, never) = (SqlLimits::default(), AtomicBool::new(false));
    println!("{:<44} {:>9} {:>9}", "median and p99 in us", "p50", "p99");
    for streams in [1, 3, 8] {
        let term = |i: usize| format!("SELECT MAX(Timestamp), metric FROM cost_c{i}_bytes");
        let sql = (0..streams)
            .map(term)
            .collect::<Vec<_>>()
            .join(" UNION ALL ");
        let mut prepared = database.prepare(&sql).expect("the tables are there");
        show(&clock, &format!("{streams} streams, prepared"), |_| {
            prepared
                .for_each(&limits, &never, |row| {
                    black_box(row.get(1));
                })
                .expect("it runs");
        });
        drop(prepared);
        show(
            &clock,
            &format!("{streams} streams, text seen before"),
            |_| {
                black_box(database.run(&sql, &limits, &never).expect("it runs"));
            },
        );
        show(&clock, &format!("{streams} streams, new text"), |run| {
            let sql = format!("{sql} -- {run}");
            black_box(database.run(&sql, &limits, &never).expect("it runs"));
        });
    }
}

fn show(clock: &SystemClock, what: &str, mut run: impl FnMut(usize)) {
    let mut times: Vec<i64> = (0..RUNS)
        .map(|number| {
            let start = clock.monotonic_ns();
            run(number);
            clock.monotonic_ns() - start
        })
        .collect();
    times.sort_unstable();
    let at = |share: f64| times[(RUNS as f64 * share) as usize] as f64 / 1e3;
    println!("{what:<44} {:>9.2} {:>9.2}", at(0.5), at(0.99));
}

//! Tests that every limit is reached and reported, and that the database goes on working
//! afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use barograph_model::{SqlFaultKind, SqlLimits};
use barograph_query::{Database, ScopeChoice};
use barograph_stream::{RunDir, SystemClock};

use crate::demo::Demo;
use crate::{answer, ask};

const ENDLESS: &str =
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT count(*) FROM n";

fn open(dir: &std::path::Path) -> Database {
    Database::open(
        &RunDir::new(dir),
        ScopeChoice::Readable,
        Arc::new(SystemClock::new()),
    )
    .unwrap()
}

#[test]
fn each_limit_is_a_fault_that_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let _demo = Demo::known(dir.path());
    let mut database = open(dir.path());
    let quick = SqlLimits {
        time_ns_max: 50_000_000,
        ..SqlLimits::default()
    };
    let mut check = |sql: &str, limits: &SqlLimits, expect: &str| {
        let never = AtomicBool::new(false);
        let fault = database
            .run(sql, limits, &never)
            .map(|rows| rows.len())
            .unwrap_err();
        let sql = &sql[..sql.len().min(100)];
        assert_eq!(fault.kind, SqlFaultKind::Limit, "{sql}: {fault}");
        assert!(fault.message.contains(expect), "{sql}: {fault}");
        assert_eq!(
            answer(&mut database, "SELECT count(*) FROM disk_read_bytes"),
            ["8"]
        );
    };
    check(ENDLESS, &quick, "stopped after 0.05 s");
    let rings: Vec<String> = (0..20).map(|i| format!("disk_read_bytes t{i}")).collect();
    let cross = format!("SELECT count(*) FROM {}", rings.join(", "));
    check(&cross, &quick, "stopped after 0.05 s");
    // A function that is interrupted by the limit is no error of the statement.
    let liked = format!(
        "SELECT count(*) FROM {} WHERE t0.device LIKE '%a%' AND t1.device GLOB '*'",
        rings.join(", ")
    );
    check(&liked, &quick, "stopped after 0.05 s");

    let few = SqlLimits {
        rows_max: 7,
        ..SqlLimits::default()
    };
    check("SELECT * FROM disk_read_bytes", &few, "more than 7 rows");
    let small = SqlLimits {
        bytes_max: 1_000,
        ..SqlLimits::default()
    };
    check("SELECT printf('%2000d', 1)", &small, "more than 1000 bytes");
    check(
        "SELECT printf('%20000000d', 1) || 'x'",
        &SqlLimits::default(),
        "too long",
    );

    let deep = format!("SELECT {}1{}", "(1+".repeat(5_000), ")".repeat(5_000));
    check(&deep, &SqlLimits::default(), "split the statement");
    let wide = vec!["SELECT 1"; 1_001].join(" UNION ALL ");
    check(&wide, &SqlLimits::default(), "split the statement");
    let long = format!("SELECT '{}'", "x".repeat(300_000));
    check(&long, &SqlLimits::default(), "bytes of");
}

#[test]
fn an_asker_who_goes_away_ends_the_query() {
    let dir = tempfile::tempdir().unwrap();
    let _demo = Demo::known(dir.path());
    let mut database = open(dir.path());
    let cancel = Arc::new(AtomicBool::new(false));
    let canceller = {
        let cancel = Arc::clone(&cancel);
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            cancel.store(true, Ordering::Relaxed);
        })
    };
    let fault = database
        .run(ENDLESS, &SqlLimits::default(), &cancel)
        .unwrap_err();
    canceller.join().unwrap();
    assert_eq!(fault.kind, SqlFaultKind::Cancelled, "{fault}");
    assert!(ask(&mut database, "SELECT 1").is_ok());
}

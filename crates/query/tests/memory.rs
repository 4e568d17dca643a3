//! Test of the memory limit. SQLite has one heap limit per process, so this is a test binary of its
//! own with one test: other tests would set their own limits.
#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "it/demo.rs"]
mod demo;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use barograph_model::{Kind, SqlFaultKind, SqlLimits, ValueType};
use barograph_query::{Database, ScopeChoice};
use barograph_stream::{RunDir, SystemClock};

use demo::{Demo, descriptor};

#[test]
fn memory_is_bounded_and_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut demo = Demo::known(dir.path());
    let stream = descriptor("big.ring.count", &[], ValueType::Int, Kind::Gauge);
    demo.add_deep(&stream, 20_000, (0..20_000).map(|i| (i, i.into())));
    let clock = Arc::new(SystemClock::new());
    let mut database =
        Database::open(&RunDir::new(dir.path()), ScopeChoice::Readable, clock).unwrap();
    let never = AtomicBool::new(false);
    let mut check = |sql: &str, memory_bytes_max: usize| {
        let limits = SqlLimits {
            memory_bytes_max,
            ..SqlLimits::default()
        };
        let fault = database
            .run(sql, &limits, &never)
            .map(|rows| rows.len())
            .unwrap_err();
        assert_eq!(fault.kind, SqlFaultKind::Limit, "{sql}: {fault}");
        assert!(fault.message.contains("bytes of memory"), "{sql}: {fault}");
        // The same database goes on working within the same limit.
        let limits = SqlLimits {
            memory_bytes_max: 4 << 20,
            ..SqlLimits::default()
        };
        let rows = database
            .run("SELECT count(*) FROM big_ring_count", &limits, &never)
            .unwrap();
        assert_eq!(rows.len(), 1);
    };
    check(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n LIMIT 1000000) \
         SELECT group_concat(i) OVER () FROM n ORDER BY random()",
        4 << 20,
    );
    check("SELECT printf('%10000000d', 1)", 300_000);
    // Memory that scans hold outside of SQLite's heap counts too.
    check(
        "SELECT count(*) FROM big_ring_count a, big_ring_count b, big_ring_count c",
        4 << 20,
    );
    // Buckets count too, of which there may be as many as samples, and so do the rows that are made
    // of them.
    for function in [
        "history('big.ring.count', NULL, NULL, 1)",
        "rate('big.ring.count', NULL, NULL, 1)",
        "family('big', NULL, NULL, 1)",
    ] {
        check(&format!("SELECT count(*) FROM {function}"), 2 << 20);
    }
}

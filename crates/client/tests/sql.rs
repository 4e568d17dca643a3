//! SQL in the calling process: answers, faults, threads, restarts.

use std::sync::atomic::AtomicBool;

use barograph_client::Observer;
use barograph_model::{SqlFaultKind, SqlLimits};

use crate::node::Node;

const VDA: &str = "disk.read.bytes{device=vda}";
const NEWEST: &str = "SELECT device, value FROM disk_read_bytes WHERE newest";

fn ask(observer: &Observer, sql: &str) -> Result<String, SqlFaultKind> {
    let rows = observer
        .sql(sql, &SqlLimits::default())
        .map_err(|fault| fault.kind)?;
    Ok(String::from_utf8(rows.to_json_rows()).unwrap())
}

#[test]
fn answers_and_faults() {
    let mut node = Node::with(&[VDA]);
    node.put(VDA, 1.5);
    let observer = node.observer();
    let check = |sql: &str, expect: Result<&str, SqlFaultKind>| {
        assert_eq!(ask(&observer, sql), expect.map(str::to_owned), "{sql}");
    };
    check(NEWEST, Ok(r#"[{"device":"vda","value":1.5}]"#));
    check(
        "SELECT value FROM disk_none_bytes",
        Err(SqlFaultKind::Statement),
    );
    check("DROP TABLE disk_read_bytes", Err(SqlFaultKind::Refused));
    let cancelled = observer.sql_until(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
        &SqlLimits::default(),
        &AtomicBool::new(true),
    );
    assert_eq!(cancelled.unwrap_err().kind, SqlFaultKind::Cancelled);
    check(NEWEST, Ok(r#"[{"device":"vda","value":1.5}]"#));
}

#[test]
fn from_many_threads_and_over_a_restart() {
    let mut node = Node::with(&[VDA]);
    node.put(VDA, 1.5);
    let observer = node.observer();
    let all = |expect: &str| {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    (0..20).for_each(|_| assert_eq!(ask(&observer, NEWEST).unwrap(), expect))
                });
            }
        });
    };
    all(r#"[{"device":"vda","value":1.5}]"#);
    node.restart(&["disk.read.bytes{device=vdb}"]);
    node.put("disk.read.bytes{device=vdb}", 2.5);
    all(r#"[{"device":"vdb","value":2.5}]"#);
}

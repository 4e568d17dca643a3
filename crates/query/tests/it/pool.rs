//! Tests of the query threads: answers, cancelled and refused queries, a full queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use barograph_model::{
    BigIntegers, Clock, ResultFormat, SqlEngine as _, SqlFaultKind, SqlLimits, SqlRequest,
};
use barograph_query::{Database, PoolConfig, QueryPool, ScopeChoice};
use barograph_stream::{RunDir, SystemClock};

use crate::demo::Demo;

const ENDLESS: &str =
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT count(*) FROM n";

fn request(sql: &str) -> SqlRequest {
    SqlRequest {
        sql: sql.into(),
        format: ResultFormat::JsonRows,
        big_integers: BigIntegers::default(),
        limits: SqlLimits::default(),
        cancel: Arc::new(AtomicBool::new(false)),
    }
}

fn pool(dir: &std::path::Path, threads: usize, queue_max: usize) -> QueryPool {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let config = PoolConfig { threads, queue_max };
    QueryPool::start(&RunDir::new(dir), ScopeChoice::Public, &clock, config).unwrap()
}

#[test]
fn questions_are_answered_in_every_format() {
    let dir = tempfile::tempdir().unwrap();
    let _demo = Demo::known(dir.path());
    let pool = pool(dir.path(), 2, 4);
    let sql = "SELECT value FROM pfs_capacity WHERE newest";
    let reply = pool.query(&request(sql)).unwrap();
    assert_eq!(
        (reply.rows, &reply.body[..]),
        (1, &br#"[{"value":123456}]"#[..])
    );
    for (format, begins) in [
        (ResultFormat::JsonTable, &b"{\"columns\""[..]),
        (ResultFormat::Arrow, &[0xff; 4][..]),
    ] {
        let reply = pool
            .query(&SqlRequest {
                format,
                ..request(sql)
            })
            .unwrap();
        assert!(reply.body.starts_with(begins), "{format:?}");
    }
    // JavaScript would parse the number as 9007199254740992.
    let exact = "SELECT 9007199254740993 AS a, -9007199254740993 AS b, 9007199254740992 AS c";
    for (format, expect) in [
        (
            ResultFormat::JsonRows,
            r#"[{"a":"9007199254740993","b":"-9007199254740993","c":9007199254740992}]"#,
        ),
        (
            ResultFormat::JsonTable,
            r#""rows":[["9007199254740993","-9007199254740993",9007199254740992]]"#,
        ),
    ] {
        let reply = pool
            .query(&SqlRequest {
                format,
                big_integers: BigIntegers::Text,
                ..request(exact)
            })
            .unwrap();
        let text = String::from_utf8(reply.body).unwrap();
        assert!(text.contains(expect), "{text}");
    }
    let fault = pool.query(&request("DROP TABLE streams")).unwrap_err();
    assert_eq!(fault.kind, SqlFaultKind::Refused);
    let limits = SqlLimits {
        bytes_max: 10,
        ..SqlLimits::default()
    };
    let fault = pool
        .query(&SqlRequest {
            limits,
            ..request(sql)
        })
        .unwrap_err();
    assert_eq!(fault.kind, SqlFaultKind::Limit);
}

#[test]
fn a_wide_row_is_written_as_in_a_whole_answer() {
    let dir = tempfile::tempdir().unwrap();
    let _demo = Demo::known(dir.path());
    // One cell is larger than a piece; names repeat, are in another order, and need escapes in
    // JSON.
    let sql = "WITH t(b, a) AS (VALUES (1, printf('%300000d', 1)), (2, 'x')) \
               SELECT b, a, a AS b, NULL AS \"say 'a\\b'\" FROM t";
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let mut database =
        Database::open(&RunDir::new(dir.path()), ScopeChoice::Public, clock).unwrap();
    let rows = database.run(sql, &SqlLimits::default(), &AtomicBool::new(false));
    let reply = pool(dir.path(), 1, 1).query(&request(sql)).unwrap();
    assert!(reply.body == rows.unwrap().to_json_rows());
    assert_eq!(reply.rows, 2);
}

#[test]
fn a_full_queue_says_busy_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let _demo = Demo::known(dir.path());
    let pool = Arc::new(pool(dir.path(), 1, 1));
    let endless = request(ENDLESS);
    let askers: Vec<_> = (0..4)
        .map(|_| {
            let (pool, endless) = (Arc::clone(&pool), endless.clone());
            std::thread::spawn(move || pool.query(&endless).unwrap_err().kind)
        })
        .collect();
    // One runs and at most one waits: the others are refused while those two are stuck.
    while askers.iter().filter(|asker| asker.is_finished()).count() < 2 {
        std::thread::yield_now();
    }
    endless.cancel.store(true, Ordering::Relaxed);
    let mut kinds: Vec<_> = askers
        .into_iter()
        .map(|asker| asker.join().unwrap())
        .collect();
    kinds.sort_by_key(|kind| format!("{kind:?}"));
    assert_eq!(kinds[..2], [SqlFaultKind::Busy; 2]);
    assert!(
        kinds[2..]
            .iter()
            .all(|k| matches!(k, SqlFaultKind::Busy | SqlFaultKind::Cancelled))
    );
    assert!(pool.query(&request("SELECT 1")).is_ok());
}

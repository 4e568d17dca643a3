//! Tests of statements that never ended within one function call, and of the bounds that stop them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use barograph_model::{BigIntegers, Clock, SqlEngine as _, SqlFaultKind, SqlLimits, SqlRequest};
use barograph_query::{PoolConfig, QueryPool, ScopeChoice};
use barograph_stream::{RunDir, SystemClock};

use crate::demo::Demo;
use crate::{answer, ask, open};

/// A text of a million letters, made in SQL.
const LETTERS: &str = "printf('%.*c', 1000000, 'a')";

fn pool(dir: &std::path::Path) -> Arc<QueryPool> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let config = PoolConfig {
        threads: 2,
        queue_max: 16,
    };
    Arc::new(QueryPool::start(&RunDir::new(dir), ScopeChoice::Public, &clock, config).unwrap())
}

fn request(sql: &str) -> SqlRequest {
    SqlRequest {
        sql: sql.into(),
        format: barograph_model::ResultFormat::JsonRows,
        big_integers: BigIntegers::default(),
        limits: SqlLimits::default(),
        cancel: Arc::new(AtomicBool::new(false)),
    }
}

#[test]
fn functions_of_long_texts_take_no_time_that_grows_with_their_product() {
    let dir = tempfile::tempdir().unwrap();
    let _demo = Demo::known(dir.path());
    let pool = pool(dir.path());
    let half = LETTERS.replace("1000000", "500000");
    // Each of these took minutes: half a million letters are compared at each of a million
    // positions.
    for (sql, expect) in [
        (format!("SELECT instr({LETTERS}, {half} || 'b') AS n"), "0"),
        (
            format!("SELECT length(replace({LETTERS}, {half} || 'b', '')) AS n"),
            "1000000",
        ),
        (
            format!("SELECT length(trim({LETTERS}, 'b' || {half})) AS n"),
            "0",
        ),
        (format!("SELECT {LETTERS} LIKE '%a%a%a%a%a%b' AS n"), "0"),
        (format!("SELECT {LETTERS} GLOB '*[a-c]*[a-c]*b' AS n"), "0"),
    ] {
        let reply = pool.query(&request(&sql)).unwrap();
        let text = String::from_utf8(reply.body).unwrap();
        assert_eq!(text, format!("[{{\"n\":{expect}}}]"), "{sql}");
    }
    for sql in [
        "SELECT json_patch('{}', '{}')".to_owned(),
        "SELECT unhex('00', 'x')".to_owned(),
    ] {
        let fault = pool.query(&request(&sql)).unwrap_err();
        assert_eq!(fault.kind, SqlFaultKind::Refused, "{sql}: {fault}");
    }
    for sql in [
        "SELECT printf('%.*c', 2000000, 'a')".to_owned(),
        format!("SELECT {LETTERS} || {LETTERS}"),
        format!("SELECT replace({LETTERS}, 'a', 'aa')"),
        format!("SELECT 1 LIKE {LETTERS}"),
        format!("SELECT {}1", "abs(1) + ".repeat(4_001)),
    ] {
        let fault = pool.query(&request(&sql)).unwrap_err();
        let shown = &sql[..sql.len().min(100)];
        assert_eq!(fault.kind, SqlFaultKind::Limit, "{shown}: {fault}");
    }
    for sql in [
        format!("SELECT count(*) FROM history({LETTERS})"),
        format!("SELECT count(*) FROM asof({LETTERS}, 1)"),
    ] {
        let fault = pool.query(&request(&sql)).unwrap_err();
        assert!(fault.message.contains("longer than"), "{fault}");
        assert!(fault.message.len() < 1_000, "{} bytes", fault.message.len());
    }
}

#[test]
fn functions_in_place_of_sqlites_give_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let _demo = Demo::known(dir.path());
    let mut database = open(dir.path());
    let mut check = |sql: &str, expect: &str| {
        assert_eq!(
            answer(&mut database, &format!("SELECT {sql}")),
            [expect],
            "{sql}"
        );
    };
    check("instr('äbc', 'c')", "3");
    check("instr('abc', '')", "1");
    check("instr('', 'a')", "0");
    check("instr(NULL, 'a')", "NULL");
    check("instr(x'616263', x'6263')", "2");
    check("instr(1.5, '.')", "2");
    check("replace('abcabc', 'bc', 'x')", "axax");
    check("replace('abc', '', 'x')", "abc");
    check("replace('abc', 'b', NULL)", "NULL");
    check("replace(10203, 0, 9)", "19293");
    check("trim('xxabxx', 'x')", "ab");
    check("ltrim('xyabxy', 'yx')", "abxy");
    check("rtrim('xyabxy', 'yx')", "xyab");
    check("trim(' a ')", "a");
    check("trim('a', NULL)", "NULL");
    check("'Disk' LIKE 'd%k'", "1");
    check("'Disk' NOT LIKE 'd%k'", "0");
    check("1.5 LIKE '1.%'", "1");
    check("NULL LIKE '%'", "NULL");
    check("'a_b' LIKE 'a\\_b' ESCAPE '\\'", "1");
    check("'axb' LIKE 'a\\_b' ESCAPE '\\'", "0");
    check("'Disk' GLOB 'D[h-j]s?'", "1");
    assert!(ask(&mut database, "SELECT 'a' LIKE 'a' ESCAPE 'ab'").is_err());
}

#[test]
fn another_is_answered_while_one_asks_without_end() {
    const ENDLESS: &str =
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT count(*) FROM n";
    let dir = tempfile::tempdir().unwrap();
    let _demo = Demo::known(dir.path());
    let pool = pool(dir.path());
    let mut endless = request(ENDLESS);
    endless.limits.time_ns_max = i64::MAX;
    let sink = || Box::new(Nowhere) as Box<dyn barograph_model::SqlSink>;
    let askers: Vec<_> = (0..3)
        .map(|_| {
            let (pool, endless) = (Arc::clone(&pool), endless.clone());
            std::thread::spawn(move || pool.query_into(1, &endless, sink()).unwrap_err().kind)
        })
        .collect();
    // However often the first client asks, a thread is left: these answers come while its
    // statements run.
    for _ in 0..20 {
        assert_eq!(pool.query_into(2, &request("SELECT 1"), sink()).unwrap(), 1);
    }
    assert!(askers.iter().all(|asker| !asker.is_finished()));
    endless.cancel.store(true, Ordering::Relaxed);
    for asker in askers {
        assert_eq!(asker.join().unwrap(), SqlFaultKind::Cancelled);
    }
}

/// A sink that keeps nothing.
struct Nowhere;

impl barograph_model::SqlSink for Nowhere {
    fn put(&mut self, _: Vec<u8>) -> Result<(), barograph_model::SqlFault> {
        Ok(())
    }

    fn hold(&mut self, _: usize) -> Result<(), barograph_model::SqlFault> {
        Ok(())
    }

    fn end(self: Box<Self>) -> Result<(), barograph_model::SqlFault> {
        Ok(())
    }
}

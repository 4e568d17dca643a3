//! Statements that guests may not run, as a table.

use barograph_model::SqlFaultKind;

use crate::demo::Demo;
use crate::{ask, open};

#[test]
fn everything_but_reading() {
    let dir = tempfile::tempdir().unwrap();
    let _demo = Demo::known(dir.path());
    let mut database = open(dir.path());
    let mut check = |sql: &str, expect: &str| {
        let fault = ask(&mut database, sql).map(|rows| rows.len()).unwrap_err();
        assert_eq!(fault.kind, SqlFaultKind::Refused, "{sql}: {fault}");
        assert!(fault.message.contains(expect), "{sql}: {fault}");
    };
    check("PRAGMA table_info(streams)", "PRAGMA table_info");
    check("PRAGMA hard_heap_limit = 0", "PRAGMA hard_heap_limit");
    check(
        "SELECT * FROM pragma_database_list",
        "reading pragma_database_list",
    );
    check("ATTACH 'x.db' AS x", "ATTACH");
    check("DETACH main", "DETACH");
    check("VACUUM", "");
    check("VACUUM INTO 'x.db'", "");
    check("BEGIN", "a transaction");
    check("SAVEPOINT a", "a transaction");
    check("CREATE TABLE t(a)", "refused");
    check("CREATE TEMP TABLE t AS SELECT 1", "refused");
    check("CREATE VIEW v AS SELECT 1", "refused");
    check("CREATE VIRTUAL TABLE t USING fts5(a)", "refused");
    check("INSERT INTO disk_read_bytes(value) VALUES (1)", "refused");
    check("DELETE FROM streams", "refused");
    check("UPDATE streams SET name = 'x'", "refused");
    check("DROP TABLE streams", "refused");
    check("ANALYZE", "refused");
    check("REINDEX", "refused");
    check("SELECT load_extension('x.so')", "load_extension");
    check("SELECT fts3_tokenizer('simple')", "fts3_tokenizer");
    check("SELECT randomblob(10)", "randomblob");
    check("SELECT zeroblob(10)", "zeroblob");
    check("SELECT * FROM sqlite_schema", "reading sqlite_master");
    check("SELECT * FROM dbstat", "reading dbstat");
    check(
        "SELECT count(*) FROM pragma_database_list",
        "PRAGMA database_list",
    );
    check("SELECT 1; SELECT 2", "one statement at a time");
    check("SELECT 1; DROP TABLE streams", "one statement at a time");
    check("SELECT 1; garbage", "one statement at a time");
    check("EXPLAIN DELETE FROM streams", "refused");
    // Without a column nothing is read, and the name may be defined by the statement itself.
    assert!(ask(&mut database, "WITH n AS (SELECT 1) SELECT count(*) FROM n").is_ok());
    assert!(ask(&mut database, "EXPLAIN SELECT * FROM streams").is_ok());
}

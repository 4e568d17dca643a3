//! Tests of the encodings of an answer.

use arrow_array::Array as _;
use arrow_ipc::reader::StreamReader;
use barograph_query::Database;

use crate::demo::Demo;
use crate::{ask, open};

#[test]
fn json() {
    let dir = tempfile::tempdir().unwrap();
    let _demo = Demo::known(dir.path());
    let mut database = open(dir.path());
    let sql = "SELECT value, value, 1e999 AS big, x'0aff' AS b, NULL AS n, device \
               FROM disk_busy_ratio ORDER BY ts";
    let mut rows = ask(&mut database, sql).unwrap();
    let text = String::from_utf8(rows.to_json_rows()).unwrap();
    let tail = r#""big":null,"device":"vda","n":null"#;
    let row = |v: &str| format!(r#"{{"b":"0aff",{tail},"value":{v},"value_2":{v}}}"#);
    assert_eq!(
        text,
        format!("[{},{},{}]", row("0.5"), row("null"), row("0.75"))
    );

    rows.elapsed_ns = 17;
    let text = String::from_utf8(rows.to_json_table()).unwrap();
    assert_eq!(
        text,
        r#"{"columns":["value","value","big","b","n","device"],"#.to_owned()
            + r#""types":["REAL","REAL","","","","TEXT"],"rows":["#
            + r#"[0.5,0.5,null,"0aff",null,"vda"],[null,null,null,"0aff",null,"vda"],"#
            + r#"[0.75,0.75,null,"0aff",null,"vda"]],"elapsed_ns":17}"#
    );
    let empty = ask(&mut database, "SELECT * FROM nothing_yet_count").unwrap();
    assert_eq!(empty.to_json_rows(), b"[]");
}

const TIME: &str = "Timestamp(ns, \"UTC\")";

/// Type and number of nulls of each column, in Arrow.
fn arrow_columns(database: &mut Database, sql: &str) -> Vec<(String, usize)> {
    let rows = ask(database, sql).unwrap();
    let bytes = rows.to_arrow_ipc().unwrap();
    let mut reader = StreamReader::try_new(&bytes[..], None).unwrap();
    let batch = reader.next().unwrap().unwrap();
    assert!(reader.next().is_none());
    assert_eq!(batch.num_rows(), rows.len(), "{sql}");
    let column = |i: usize| {
        let array = batch.column(i);
        (array.data_type().to_string(), array.null_count())
    };
    (0..batch.num_columns()).map(column).collect()
}

#[test]
fn arrow() {
    let dir = tempfile::tempdir().unwrap();
    let _demo = Demo::known(dir.path());
    let mut database = open(dir.path());
    let mut check = |sql: &str, expect: &[(&str, usize)]| {
        let expect: Vec<_> = expect.iter().map(|(t, n)| ((*t).to_owned(), *n)).collect();
        assert_eq!(arrow_columns(&mut database, sql), expect, "{sql}");
    };
    check(
        "SELECT ts, value, newest, device FROM disk_read_bytes",
        &[(TIME, 0), ("Int64", 0), ("Boolean", 0), ("Utf8", 0)],
    );
    // A time column counts as one under the name that tables have for it; computed columns keep
    // their type.
    check(
        "SELECT ts AS at, ts + 0 AS ts, max(ts) AS sample_ts, looked, age_ns FROM latest",
        &[
            ("Int64", 0),
            ("Int64", 0),
            ("Int64", 0),
            (TIME, 0),
            ("Int64", 0),
        ],
    );
    check(
        "SELECT x'00ff' AS b UNION ALL SELECT NULL",
        &[("Binary", 1)],
    );
    check("SELECT value FROM disk_busy_ratio", &[("Float64", 1)]);
    check("SELECT value FROM disk_rotational_flag", &[("Boolean", 0)]);
    // Without rows the declared types count.
    check(
        "SELECT ts, error, quality, newest, ts + 1 FROM nothing_yet_count",
        &[
            (TIME, 0),
            ("Float64", 0),
            ("Utf8", 0),
            ("Boolean", 0),
            ("Utf8", 0),
        ],
    );
    check(
        "SELECT 1 AS v UNION ALL SELECT 2.5 UNION ALL SELECT NULL",
        &[("Float64", 1)],
    );
    check(
        "SELECT 9007199254740993 AS v UNION ALL SELECT 2.5",
        &[("Utf8", 0)],
    );
    check(
        "SELECT 1 AS v UNION ALL SELECT 'a' UNION ALL SELECT x'01'",
        &[("Utf8", 0)],
    );
}

#[test]
fn a_text_is_answered_alike_however_often_it_is_asked() {
    let dir = tempfile::tempdir().unwrap();
    let _demo = Demo::known(dir.path());
    let mut database = open(dir.path());
    let sql = "SELECT MAX(ts), value FROM disk_busy_ratio";
    let first = ask(&mut database, sql).unwrap().to_json_rows();
    let mut again = |text: &str| {
        let rows = ask(&mut database, text).unwrap();
        assert_eq!(rows.to_json_rows(), first, "{text}");
    };
    // New, seen before, and kept prepared; then after more other statements than are kept.
    (0..2).for_each(|_| again(sql));
    (0..200).for_each(|number| again(&format!("{sql} -- {number}")));
    (0..3).for_each(|_| again(sql));
}

//! Tests of streams that come, go and are written while queries run, and of agents that are
//! replaced.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use barograph_model::{Kind, SqlFaultKind, SqlLimits, Value, ValueType};
use barograph_query::{Database, Field, ScopeChoice};
use barograph_stream::{RunDir, SystemClock};

use crate::demo::{Demo, S, START_NS, descriptor};
use crate::{answer, ask, open};

#[test]
fn no_agent_is_an_error_that_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(SystemClock::new());
    let error = Database::open(&RunDir::new(dir.path()), ScopeChoice::Readable, clock).unwrap_err();
    assert!(error.to_string().contains("baro up"), "{error}");
}

#[test]
fn streams_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let mut demo = Demo::empty(dir.path());
    let mut database = open(dir.path());
    let sql = "SELECT * FROM new_thing_count ORDER BY ts";
    assert_eq!(
        ask(&mut database, sql).unwrap_err().kind,
        SqlFaultKind::Statement
    );

    let plain = descriptor("new.thing.count", &[], ValueType::Int, Kind::Gauge);
    demo.add(&plain, [(0, 1.into())]);
    let head = format!("{START_NS}|1|measured|0.0|Node-1|1");
    assert_eq!(answer(&mut database, sql), std::slice::from_ref(&head));
    assert_eq!(
        answer(&mut database, "SELECT value FROM node_1_new_thing_count"),
        ["1"]
    );

    // A label appears: the same statement, kept prepared, has one more column.
    let labels = [("device", "vda")];
    demo.add(
        &descriptor("new.thing.count", &labels, ValueType::Int, Kind::Gauge),
        [(1, 2.into())],
    );
    let tail = format!("{}|2|measured|0.0|Node-1|1|vda", START_NS + S);
    assert_eq!(
        answer(&mut database, sql),
        [format!("{head}|NULL"), tail.clone()]
    );

    // Streams end: their table stays, with its columns.
    let writer = demo.writers.remove(0);
    demo.segment.retire(writer);
    assert_eq!(answer(&mut database, sql), [tail]);
    let writer = demo.writers.remove(0);
    demo.segment.retire(writer);
    assert_eq!(answer(&mut database, sql), [""; 0]);
    assert_eq!(
        answer(&mut database, "SELECT count(device) FROM new_thing_count"),
        ["0"]
    );
    assert_eq!(
        answer(&mut database, "SELECT MAX(ts), value FROM new_thing_count"),
        ["NULL|NULL"]
    );
}

#[test]
fn a_prepared_statement_follows() {
    let dir = tempfile::tempdir().unwrap();
    let mut demo = Demo::known(dir.path());
    let mut database = open(dir.path());
    let mut prepared = database
        .prepare("SELECT MAX(ts), metric FROM pfs_capacity")
        .unwrap();
    let mut newest = || {
        let mut values = Vec::new();
        let never = AtomicBool::new(false);
        let count = prepared
            .for_each(&SqlLimits::default(), &never, |row| match row.get(1) {
                Field::Int(value) => values.push(value),
                other => panic!("{other:?}"),
            })
            .unwrap();
        assert_eq!(count, 1);
        values[0]
    };
    assert_eq!(newest(), 123_456);
    let later = |value: i64| barograph_model::Sample::measured(START_NS + 20 * S, value);
    demo.writers[5].append(&later(7)).unwrap();
    assert_eq!(newest(), 7);
    let labels = [("device", "vda")];
    let other = descriptor("pfs.capacity", &labels, ValueType::Int, Kind::Gauge);
    demo.add(&other, [(30, 8.into())]);
    assert_eq!(newest(), 8);
}

#[test]
fn an_agent_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = Demo::empty(dir.path());
    let stream = descriptor("some.thing.count", &[], ValueType::Int, Kind::Gauge);
    first.add(&stream, [(0, 1.into())]);
    let mut database = open(dir.path());
    let sql = "SELECT value FROM some_thing_count";
    assert_eq!(answer(&mut database, sql), ["1"]);
    drop(first);
    // The agent has closed its segment: its samples are still there, and `nodes` shows its state.
    assert_eq!(answer(&mut database, sql), ["1"]);
    assert_eq!(answer(&mut database, "SELECT state FROM nodes"), ["closed"]);

    let mut second = Demo::empty(dir.path());
    second.add(&stream, [(0, 2.into())]);
    assert_eq!(answer(&mut database, sql), ["2"]);

    // The segment is replaced while the second agent lives: nobody closes the old one.
    std::fs::remove_file(RunDir::new(dir.path()).segment()).unwrap();
    let mut third = Demo::empty(dir.path());
    third.add(&stream, [(0, 3.into())]);
    assert_eq!(answer(&mut database, sql), ["3"]);
}

#[test]
fn a_writer_that_laps_the_ring_never_shows_a_torn_or_double_row() {
    let dir = tempfile::tempdir().unwrap();
    let mut demo = Demo::empty(dir.path());
    let stream = descriptor("fast.writer.ratio", &[], ValueType::Float, Kind::Gauge);
    demo.add_deep(&stream, 256, [(0, 0.0.into())]);
    let mut writer = demo.writers.remove(0);
    let stop = Arc::new(AtomicBool::new(false));
    let thread = {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || {
            let mut number = 0_i64;
            while !stop.load(Ordering::Relaxed) {
                number += 1;
                // The value encodes the time: a torn row would not be consistent.
                writer.append_f64(START_NS + number, number as f64).unwrap();
            }
        })
    };
    let mut database = open(dir.path());
    for order in ["", "ORDER BY ts", "ORDER BY ts DESC"] {
        for _ in 0..200 {
            let sql = format!("SELECT ts, value, newest FROM fast_writer_ratio {order}");
            let rows = ask(&mut database, &sql).unwrap();
            let of = |column: usize, row: usize| match rows.get(row, column).unwrap() {
                barograph_query::Cell::Int(v) => *v,
                barograph_query::Cell::Real(v) => *v as i64,
                other => panic!("{other:?}"),
            };
            let mut times: Vec<i64> = (0..rows.len()).map(|row| of(0, row) - START_NS).collect();
            assert!(
                (0..rows.len()).all(|row| of(1, row) == times[row]),
                "{order}"
            );
            let newest: Vec<usize> = (0..rows.len()).filter(|&row| of(2, row) == 1).collect();
            assert_eq!(newest.len(), 1, "{order}: {times:?}");
            assert_eq!(times[newest[0]], *times.iter().max().unwrap());
            times.sort_unstable();
            times.dedup();
            assert_eq!(times.len(), rows.len(), "{order}: a row came twice");
        }
    }
    stop.store(true, Ordering::Relaxed);
    thread.join().unwrap();
}

#[test]
fn damaged_documents_are_our_fault_and_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let _demo = Demo::known(dir.path());
    let mut database = open(dir.path());
    let check = |database: &mut Database, text: &str, expect: Result<&str, &str>| {
        std::fs::write(dir.path().join("insights.json"), text).unwrap();
        let sql = "SELECT name, inputs, builtin, \"table\" FROM insights";
        match (ask(database, sql), expect) {
            (Ok(rows), Ok(expect)) => assert_eq!(crate::lines(&rows).join("\n"), expect),
            (Err(fault), Err(expect)) => {
                assert_eq!(fault.kind, SqlFaultKind::Internal, "{text}: {fault}");
                assert!(fault.message.contains(expect), "{text}: {fault}");
            }
            (got, _) => panic!("{text}: {got:?}"),
        }
    };
    check(&mut database, "[]", Ok(""));
    let good = r#"[{"name":"a.b","inputs":["c"],"builtin":true,"table":"a_b"}]"#;
    check(&mut database, good, Ok(r#"a.b|["c"]|1|a_b"#));
    check(&mut database, &good[..20], Err("insights.json is damaged"));
    check(&mut database, "{}", Err("insights.json is damaged"));
    check(&mut database, "[1]", Err("insights.json is damaged"));
    check(&mut database, "", Err("insights.json is damaged"));
}

#[test]
fn streams_of_one_table_may_differ_in_type() {
    let dir = tempfile::tempdir().unwrap();
    let mut demo = Demo::empty(dir.path());
    let one = descriptor("mixed.up.count", &[("a", "1")], ValueType::Int, Kind::Gauge);
    let two = descriptor(
        "mixed.up.count",
        &[("a", "2")],
        ValueType::Text,
        Kind::State,
    );
    demo.add(&one, [(0, 5.into())]);
    demo.add(&two, [(0, Value::text("five"))]);
    // A name that differs only in its dots shares the table.
    demo.add(
        &descriptor("mixed.up_count", &[], ValueType::Int, Kind::Gauge),
        [(0, 6.into())],
    );
    let mut database = open(dir.path());
    let sql = "SELECT value FROM mixed_up_count ORDER BY a";
    assert_eq!(answer(&mut database, sql), ["6", "5", "five"]);
}

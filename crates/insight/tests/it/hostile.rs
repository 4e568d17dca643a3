//! Tests of hostile and mistyped statements.

use proptest::prelude::*;

use crate::graph::disks;

#[test]
fn short_texts_cannot_stand_for_endless_work() {
    let mut rig = disks();
    let mut nested = "value".to_owned();
    for _ in 0..20 {
        nested = format!("({nested} BETWEEN 0 AND 1)");
    }
    let refused = rig.create(&format!(
        "CREATE INSIGHT o AS SELECT {nested} FROM disk_busy_ratio"
    ));
    assert_eq!(
        refused.unwrap_err().to_string(),
        "operations in a SELECT: at most 10000 (OPERATIONS_MAX)"
    );
    let chain = format!(
        "CREATE INSIGHT o AS SELECT value{} FROM disk_busy_ratio",
        "+1".repeat(990)
    );
    assert_eq!(
        rig.create(&chain).unwrap_err().to_string(),
        "levels of an expression: at most 100 (DEPTH_MAX)"
    );
}

/// An expression may be as deep as a statement is long: the stack of a thread is enough for all
/// code that visits it.
#[test]
fn a_deep_expression_is_an_error_wherever_it_stands() {
    let mut rig = disks();
    let deep = format!("value{}", "+1".repeat(960));
    let wrong = format!("value{}", " IS NULL".repeat(960));
    for deep in [deep, wrong] {
        for select in [
            format!("SELECT {deep} FROM disk_busy_ratio"),
            format!("SELECT value FROM disk_busy_ratio WHERE {deep}"),
            format!("SELECT unknown({deep}) FROM disk_busy_ratio"),
            format!("SELECT CAST({deep} AS TEXT) FROM disk_busy_ratio"),
            format!("SELECT value AT TIME ZONE ({deep}) FROM disk_busy_ratio"),
            format!("SELECT max(value) OVER (ORDER BY {deep}) FROM disk_busy_ratio"),
            format!("SELECT value FROM disk_busy_ratio GROUP BY {deep}"),
            format!("SELECT value FROM disk_busy_ratio GROUP BY device HAVING {deep}"),
            format!("SELECT value FROM disk_busy_ratio ORDER BY {deep}"),
            format!("SELECT value FROM disk_busy_ratio LIMIT {deep}"),
            format!("SELECT value FROM disk_busy_ratio WINDOW w AS (ORDER BY {deep})"),
            format!("SELECT value FROM disk_busy_ratio CLUSTER BY {deep}"),
            format!("SELECT value FROM disk_busy_ratio JOIN disk_busy_ratio ON {deep}"),
            format!("SELECT value FROM f({deep})"),
            format!("SELECT value FROM (SELECT {deep} FROM disk_busy_ratio)"),
            format!("SELECT value NOT IN ({deep}) COLLATE b FROM disk_busy_ratio"),
            format!("SELECT value IN (SELECT {deep}) FROM disk_busy_ratio"),
            format!("SELECT a[{deep}] FROM disk_busy_ratio"),
            format!("VALUES ({deep})"),
        ] {
            let refused = rig.create(&format!("CREATE INSIGHT o AS {select}"));
            let message = refused.expect_err(&select[..40]).to_string();
            assert!((1..=600).contains(&message.len()), "{message}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_an_answer_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let text = String::from_utf8_lossy(&bytes);
        let mut rig = disks();
        let _ = rig.graph.execute(&text, &mut rig.out);
        let _ = rig.graph.execute(&format!("CREATE INSIGHT o AS SELECT {text}"), &mut rig.out);
        rig.run();
    }

    #[test]
    fn any_words_are_an_answer_or_an_error(words in proptest::collection::vec(
        prop_oneof![
            "[(),*+/<>=;.'-]", "[a-z]{1,3}", "[0-9]{1,20}", "'[a-z%]*'",
            proptest::sample::select(vec![
                "CREATE", "INSIGHT", "AS", "SELECT", "FROM", "disk_read_bytes", "WHERE", "value", "sum",
                "GROUP", "BY", "device", "JOIN", "USING", "CASE", "WHEN", "THEN", "END", "NULL", "UNION",
                "ALL", "IN", "LIKE", "BETWEEN", "AND", "NOT", "HAVING", "count", "DROP", "IS", "min",
            ]).prop_map(str::to_owned),
        ], 0..40)) {
        let text = words.join(" ");
        let mut rig = disks();
        let _ = rig.graph.execute(&text, &mut rig.out);
        let _ = rig.graph.execute(&format!("CREATE INSIGHT o AS SELECT {text}"), &mut rig.out);
        let _ = rig.graph.test(&format!("SELECT device, {text} FROM disk_read_bytes"));
        rig.run();
    }
}

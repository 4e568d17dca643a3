//! Tests that pushdown changes no answer: each random query runs on the table, and on a subquery
//! into which SQLite may not push anything.

use barograph_model::{Kind, Value, ValueType};
use proptest::prelude::*;

use crate::demo::{Demo, S, START_NS, descriptor};
use crate::{answer, open};

/// Rings whose times rise, repeat and fall.
fn rings(dir: &std::path::Path) -> Demo {
    let mut demo = Demo::empty(dir);
    let times: [&[i64]; 4] = [
        &[0, 1, 2, 3, 4, 5],
        &[2, 2, 3, 3],
        &[5, 6, 1, 2, 3],
        &[9, 8, 7, 6, 5, 4, 3, 2, 1],
    ];
    for (number, times) in times.into_iter().enumerate() {
        let labels = [
            ("device", ["a", "b", "c", "5"][number]),
            ("kind", ["x", "y"][number % 2]),
        ];
        let labels = if number == 1 {
            &labels[..1]
        } else {
            &labels[..]
        };
        let stream = descriptor("random.walk.count", labels, ValueType::Int, Kind::Gauge);
        // Shallow, so that the oldest samples are overwritten.
        let samples = times
            .iter()
            .enumerate()
            .map(|(i, t)| (*t, Value::from((10 * i + number) as i64)));
        demo.add_deep(&stream, 6, samples);
    }
    demo
}

fn predicate() -> impl Strategy<Value = String> {
    let comparison = prop::sample::select(vec!["=", "<", "<=", ">", ">=", "<>", "IS", "IS NOT"]);
    let number = |t: i64| (START_NS + t * S).to_string();
    let time = prop_oneof![
        (-1..11_i64).prop_map(number),
        (0..9_i64).prop_map(|t| format!("{}.5", START_NS + t * S)),
        (0..9_i64).prop_map(|t| format!("'{}'", START_NS + t * S)),
        Just("NULL".to_owned()),
        Just("1e300".to_owned()),
        Just("-1e300".to_owned()),
        Just("9223372036854775807".to_owned()),
    ];
    let label = prop::sample::select(vec!["'a'", "'b'", "'5'", "5", "5.0", "'A'", "NULL", "''"]);
    let flag = prop::sample::select(vec!["1", "0", "2", "1.0", "'1'", "NULL", "TRUE"]);
    prop_oneof![
        (Just("ts"), comparison.clone(), time.clone()),
        (Just("Timestamp"), comparison.clone(), time),
        (
            Just("device"),
            comparison.clone(),
            label.clone().prop_map(str::to_owned)
        ),
        (
            Just("kind"),
            comparison.clone(),
            label.prop_map(str::to_owned)
        ),
        (
            Just("newest"),
            comparison.clone(),
            flag.prop_map(str::to_owned)
        ),
        (Just("node"), comparison, Just("'Node-1'".to_owned())),
        (Just("device"), Just("IN"), Just("('a', '5', 7)".to_owned())),
        (Just("newest"), Just(""), Just(String::new())),
    ]
    .prop_map(|(column, operator, value)| format!("{column} {operator} {value}"))
}

fn statement(predicates: &[String], joint: &str, order: &str, from: &str) -> String {
    let filter = match predicates {
        [] => String::new(),
        some => format!("WHERE {}", some.join(joint)),
    };
    format!("SELECT ts, value, device, kind, newest FROM {from} {filter} {order}")
}

/// SQLite may not push a predicate into a subquery with a LIMIT.
const WITHOUT: &str = "(SELECT *, Timestamp FROM random_walk_count LIMIT -1)";

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]
    #[test]
    fn answers_are_those_without_it(
        predicates in prop::collection::vec(predicate(), 0..4),
        joint in prop::sample::select(vec![" AND ", " OR "]),
        order in prop::sample::select(vec!["", "ORDER BY ts", "ORDER BY ts DESC",
            "ORDER BY Timestamp DESC LIMIT 3", "ORDER BY ts LIMIT 2"]),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let _demo = rings(dir.path());
        let mut database = open(dir.path());
        let mut pushed = answer(&mut database, &statement(&predicates, joint, order, "random_walk_count"));
        let mut plain = answer(&mut database, &statement(&predicates, joint, order, WITHOUT));
        if order.contains("LIMIT") {
            // Rows of equal times may come in any order: only the times are determined.
            let times = |rows: &[String]| -> Vec<String> {
                rows.iter().map(|row| row.split('|').next().unwrap().to_owned()).collect()
            };
            prop_assert_eq!(times(&pushed), times(&plain));
        } else {
            if !order.is_empty() {
                let times: Vec<&str> =
                    pushed.iter().map(|row| row.split('|').next().unwrap()).collect();
                let is_sorted = if order.contains("DESC") {
                    times.is_sorted_by(|a, b| a >= b)
                } else {
                    times.is_sorted()
                };
                prop_assert!(is_sorted, "{:?}", times);
            }
            pushed.sort();
            plain.sort();
            prop_assert_eq!(pushed, plain);
        }
    }
}

#[test]
fn max_and_min_are_those_of_the_whole_ring() {
    let dir = tempfile::tempdir().unwrap();
    let _demo = rings(dir.path());
    let mut database = open(dir.path());
    let scan = "(SELECT * FROM random_walk_count LIMIT -1)";
    for device in ["a", "b", "c", "5", "none"] {
        for extreme in ["MAX", "MIN"] {
            let ask =
                |from: &str| format!("SELECT {extreme}(ts) FROM {from} WHERE device = '{device}'");
            let pushed = answer(&mut database, &ask("random_walk_count"));
            assert_eq!(
                pushed,
                answer(&mut database, &ask(scan)),
                "{extreme} {device}"
            );
        }
    }
}

#[test]
fn each_stream_has_one_newest_however_it_is_asked() {
    let dir = tempfile::tempdir().unwrap();
    let _demo = rings(dir.path());
    let mut database = open(dir.path());
    let expect = ["5|83", "a|50", "b|31", "c|42"];
    for filter in [
        "newest",
        "newest = 1",
        "newest <> 0",
        "newest IS TRUE",
        "newest AND 1",
        "+newest",
    ] {
        for from in [
            "random_walk_count",
            "(SELECT * FROM random_walk_count ORDER BY ts DESC)",
        ] {
            let sql = format!("SELECT device, value FROM {from} WHERE {filter} ORDER BY device");
            assert_eq!(answer(&mut database, &sql), expect, "{sql}");
        }
    }
}

#[test]
fn plans_take_over_what_they_can() {
    let dir = tempfile::tempdir().unwrap();
    let _demo = rings(dir.path());
    let mut database = open(dir.path());
    let mut check = |rest: &str, expect: &str| {
        let sql = format!("EXPLAIN QUERY PLAN SELECT {rest}");
        let plan = answer(&mut database, &sql).join("\n");
        assert!(
            plan.contains(&format!("VIRTUAL TABLE INDEX {expect}")),
            "{rest}: {plan}"
        );
        assert!(!plan.contains("TEMP B-TREE"), "{rest}: {plan}");
    };
    let t = "FROM random_walk_count";
    check(&format!("MAX(ts), value {t}"), "2:");
    check(&format!("MIN(Timestamp), metric {t}"), "1:");
    check(&format!("value {t} ORDER BY ts DESC LIMIT 1"), "2:");
    check(&format!("value {t} WHERE newest = 1"), "0:n=5 ");
    check(&format!("value {t} WHERE newest"), "0:n!5 ");
    check(
        &format!("value {t} r WHERE device = 'a' AND r.newest"),
        "0:l=6 n!5 ",
    );
    check(
        &format!("value {t} WHERE ts > 5 AND ts <= 9.5 AND node = 'x'"),
        "0:t>0 t<0 l=4 ",
    );
    check(
        &format!("age_ns {t} WHERE device = 'a' COLLATE NOCASE"),
        "4:",
    );
}

//! Tests of rules on events: firings, the index, and the answers of SQLite.

use proptest::prelude::*;

use super::super::RuleWork;
use super::super::recent::StartedAction;
use super::*;

fn made(statements: &[&str]) -> EventRules {
    let mut rules = EventRules::new(EventRuleLimits::default());
    for tail in statements {
        rules.execute(&format!("CREATE RULE {tail}")).unwrap();
    }
    rules
}

fn at(path: &str, ts: i64) -> EventFacts<'_> {
    EventFacts {
        kind: "create",
        source: "s",
        path: path.as_bytes(),
        ts,
        uid: Some(7),
        complete: true,
        ..EventFacts::default()
    }
}

fn fired(rules: &mut EventRules, event: &EventFacts<'_>) -> Vec<String> {
    let mut names = Vec::new();
    rules.evaluate(event, &mut |rule, _| names.push(rule.name.clone()));
    names
}

const S: i64 = 1_000_000_000;

#[test]
fn each_clause_decides() {
    let mut rules = made(&[
        "kind ON EVENT unlink, rename THEN RUN '/x'",
        "source ON EVENT create FROM 't' THEN RUN '/x'",
        "glob ON EVENT create WHERE path GLOB '/a/*.h5' THEN RUN '/x'",
        "fault ON EVENT create WHERE abs(-9223372036854775807 - size) > 0 THEN RUN '/x'",
        "null ON EVENT create WHERE size > 1 OR gid = 1 THEN RUN '/x'",
        "all ON EVENT create THEN RUN '/x'",
        "case ON EVENT create WHERE CASE WHEN size IS NULL THEN 1 ELSE 0 END THEN RUN '/x'",
    ]);
    let check = |rules: &mut EventRules, event: EventFacts<'_>, expect: &[&str]| {
        assert_eq!(fired(rules, &event), expect, "{event:?}");
    };
    check(&mut rules, at("/a/b/c.h5", 0), &["glob", "all", "case"]);
    let one = EventFacts {
        size: Some(1),
        ..at("/b", 0)
    };
    check(&mut rules, one, &["all"]);
    let two = EventFacts {
        source: "t",
        size: Some(2),
        ..at("/b", 0)
    };
    check(&mut rules, two, &["source", "fault", "null", "all"]);
    let renamed = EventFacts {
        kind: "rename",
        ..at("/b", 0)
    };
    check(&mut rules, renamed, &["kind"]);
    let fault = rules
        .reports()
        .into_iter()
        .find(|it| it.name == "fault")
        .unwrap();
    assert_eq!(
        (fault.failed, fault.fired),
        (1, 1),
        "size 2 makes it a real number"
    );
    assert_eq!(fault.fault, "integer overflow");
}

#[test]
fn patterns_over_directories_are_those_of_sqlite() {
    let mut rules = made(&["r ON EVENT create WHERE path GLOB '/data/**/x' THEN RUN '/x'"]);
    for (path, expect) in [
        ("/data/a/x", 1),
        ("/data/a/b/x", 1),
        ("/data/x", 0),
        ("/data//x", 1),
        ("/data/a/y", 0),
    ] {
        assert_eq!(fired(&mut rules, &at(path, 0)).len(), expect, "{path}");
    }
}

#[test]
fn counts_and_cooldowns_are_by_the_time_of_events() {
    let mut rules = made(&[
        "count ON EVENT create WHERE path GLOB '/a*' WHEN count_over('10 s') > 2 THEN RUN '/x'",
        "cool ON EVENT create THEN RUN '/x' COOLDOWN '10 s'",
    ]);
    let mut check = |path: &str, second: i64, expect: &[&str]| {
        let event = at(path, second * S);
        assert_eq!(fired(&mut rules, &event), expect, "{path} {second}");
    };
    check("/a1", 100, &["cool"]);
    check("/b", 101, &[]);
    check("/a2", 105, &[]);
    check("/a3", 109, &["count"]);
    check("/a4", 110, &["count", "cool"]);
    check("/a5", 119, &[]);
    check("/a6", 119, &["count"]);
    // An old event counts those before it.
    check("/a7", 106, &["count"]);
    // A time far away does not silence a rule.
    check("/b", 1 << 32, &["cool"]);
    check("/b", 121, &["cool"]);
    let reports = rules.reports();
    let counts = reports
        .iter()
        .map(|it| (&*it.name, it.matched, it.fired, it.suppressed));
    let counts: Vec<_> = counts.collect();
    assert_eq!(counts, [("cool", 10, 4, 6), ("count", 7, 4, 0)]);
}

#[test]
fn a_rule_that_fires_too_often_stops_until_it_is_made_anew() {
    let sql = "b ON EVENT create THEN RUN '/x' BREAK 3 PER '10 s'";
    let mut rules = made(&[sql]);
    let fire = |rules: &mut EventRules, second: i64| {
        let facts = EventFacts {
            kind: "create",
            ts: second * 1_000_000_000,
            ..EventFacts::default()
        };
        let mut fired = 0;
        rules.evaluate(&facts, &mut |_, _| fired += 1);
        fired
    };
    // Never more than three in ten seconds.
    let seen: Vec<u32> = [0, 4, 9, 11, 15, 20].map(|at| fire(&mut rules, at)).into();
    assert_eq!(seen, [1, 1, 1, 1, 1, 1]);
    // The fourth within ten seconds has no action, and no later one has.
    let seen: Vec<u32> = [21, 22, 23, 90].map(|at| fire(&mut rules, at)).into();
    assert_eq!(seen, [1, 0, 0, 0]);
    let report = &rules.reports()[0];
    assert_eq!((report.is_broken, report.passed_over), (true, 3));
    assert_eq!(report.fired, 7);
    let again = format!("CREATE OR REPLACE RULE {sql}");
    rules.execute(&again).unwrap();
    assert_eq!(fire(&mut rules, 91), 1);
    assert!(!rules.reports()[0].is_broken);
}

#[test]
fn own_effects_do_not_fire_and_do_not_count() {
    let mut rules = made(&[
        "own ON EVENT create WHEN count_over('10 s') >= 1 THEN RUN '/x' '{path}'",
        "other ON EVENT create THEN RUN '/x'",
    ]);
    let own = StartedAction {
        id: 1,
        rule: "own",
        uid: Some(7),
        paths: &[b"/a"],
        ..StartedAction::default()
    };
    rules.recent().started(&own, 10);
    assert_eq!(fired(&mut rules, &at("/a", 20)), ["other"]);
    assert_eq!(fired(&mut rules, &at("/b", 20)), ["own", "other"]);
    let report = rules.reports().pop().unwrap();
    assert_eq!((report.own_effects, report.matched), (1, 1));
    assert_eq!(report.last_own_effect_ns, Some(20));
    let explained = rules.explain("own", &at("/a", 20)).unwrap();
    let why: Vec<String> = explained.iter().map(ToString::to_string).collect();
    assert!(
        why[1].contains("own action (path = '/a', uid = 7)"),
        "{why:?}"
    );
}

#[test]
fn explanations_have_clauses_and_values() {
    let mut rules = made(&[
        "r ON EVENT create, unlink FROM 's' WHERE path GLOB '/a/*' AND (size > 5 AND uid = 7) \
         WHEN count_over('1 min') > 1 THEN RUN '/x' COOLDOWN '1500 ms'",
    ]);
    let check = |rules: &EventRules, event: &EventFacts<'_>, expect: &[&str]| {
        let all = rules.explain("r", event).unwrap();
        let seen: Vec<String> = all.iter().map(ToString::to_string).collect();
        assert_eq!(seen, expect);
    };
    let large = EventFacts {
        size: Some(9),
        ..at("/a/it's\n", 0)
    };
    check(
        &rules,
        &EventFacts {
            kind: "open",
            source: "t",
            path: b"/b",
            ..at("", 0)
        },
        &[
            "does not hold: ON EVENT create, unlink (kind = 'open')",
            "does not hold: FROM 's' (source = 't')",
            "does not hold: path GLOB '/a/*' (path = '/b')",
            "is NULL: size > 5 (size = NULL)",
            "holds: uid = 7 (uid = 7)",
            "does not hold: count_over('1 min') > 1 (count_over('60 s') = 0)",
            "holds: COOLDOWN 1.5 s",
        ],
    );
    fired(&mut rules, &large);
    assert_eq!(fired(&mut rules, &large), ["r"]);
    check(
        &rules,
        &EventFacts { ts: S, ..large },
        &[
            "holds: ON EVENT create, unlink (kind = 'create')",
            "holds: FROM 's' (source = 's')",
            "holds: path GLOB '/a/*' (path = '/a/it''s\\n')",
            "holds: size > 5 (size = 9)",
            "holds: uid = 7 (uid = 7)",
            "holds: count_over('1 min') > 1 (count_over('60 s') = 3)",
            "does not hold: COOLDOWN 1.5 s (time to the last firing = 1 s)",
        ],
    );
    assert_eq!(rules.explain("s", &large), None);
}

#[test]
fn rules_come_and_go() {
    let mut rules = EventRules::new(EventRuleLimits {
        rules_max: 2,
        ..EventRuleLimits::default()
    });
    let mut check = |sql: &str, expect: &str| {
        let seen = match rules.execute(sql) {
            Ok(outcome) => format!("{outcome:?}"),
            Err(error) => error.to_string(),
        };
        assert_eq!(seen, expect, "{sql}");
    };
    check(
        "CREATE RULE night ON EVENT open THEN RUN '/x'",
        "Created(\"night\")",
    );
    check(
        "CREATE RULE night ON EVENT open THEN RUN '/x'",
        "night is the name of a rule: CREATE OR REPLACE it, or drop it first",
    );
    check(
        "CREATE OR REPLACE RULE night ON EVENT open THEN RUN '/y'",
        "Created(\"night\")",
    );
    check(
        "CREATE RULE b ON EVENT open THEN RUN '/x'",
        "Created(\"b\")",
    );
    check(
        "CREATE RULE c ON EVENT open THEN RUN '/x'",
        "rules on events: at most 2 (rules_max)",
    );
    check(
        "DROP RULE nigth",
        "there is no rule nigth on events: did you mean night?",
    );
    check("DROP RULE IF EXISTS zzz", "Dropped(\"zzz\")");
    check("DROP RULE b", "Dropped(\"b\")");
    assert_eq!(rules.list().count(), 1);
    let work = RuleWork::Run {
        program: "/y".into(),
        arguments: Vec::new(),
        container: None,
    };
    assert_eq!(rules.get("night").unwrap().work, work);
}

/// Conditions whose literals meet the values of [`events`].
fn conditions() -> impl Strategy<Value = String> {
    let text = prop::sample::select(vec![
        "path", "old_path", "name", "dir", "ext", "job", "source", "node", "kind",
    ]);
    let number = prop::sample::select(vec![
        "size",
        "uid",
        "gid",
        "ts",
        "directory",
        "complete",
        "reconciled",
    ]);
    let literal = prop::sample::select(vec![
        "'/a/*'",
        "'/a/b*'",
        "'/a/b'",
        "'/a'",
        "'*.h5'",
        "'/a/**/c'",
        "'/[ab]/?'",
        "'/b/c.h5'",
        "''",
        "'h5'",
        "'s'",
        "'5'",
        "5",
        "0",
        "1",
        "NULL",
        "9223372036854775807",
        "-1",
        "2.5",
        "'%b%'",
    ]);
    let any = prop_oneof![text.clone(), number];
    let op = prop::sample::select(vec![
        "=", "<>", "<", "<=", ">", ">=", "GLOB", "LIKE", "+", "%",
    ]);
    let leaf = prop_oneof![
        4 => (prop::sample::select(vec!["path", "dir"]), literal.clone())
            .prop_map(|(column, literal)| format!("{column} GLOB {literal}")),
        2 => (any.clone(), op.clone(), literal.clone())
            .prop_map(|(a, op, b)| format!("({a} {op} {b})")),
        1 => (any.clone(), op, any.clone()).prop_map(|(a, op, b)| format!("({a} {op} {b})")),
        1 => (any.clone(), literal.clone(), literal)
            .prop_map(|(a, b, c)| format!("{a} IN ({b}, {c})")),
        1 => any.clone().prop_map(|a| format!("{a} IS NULL")),
        1 => any.prop_map(|a| format!("(abs({a}) > 1)")),
        1 => text.prop_map(|a| format!("(coalesce({a}, 'none') <> 'none')")),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} AND {b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} OR {b})")),
            inner.clone().prop_map(|a| format!("(NOT {a})")),
            (inner.clone(), inner.clone(), inner)
                .prop_map(|(a, b, c)| format!("(CASE WHEN {a} THEN {b} ELSE {c} END)")),
        ]
    })
}

#[derive(Clone, Debug)]
struct OwnedEvent {
    kind: &'static str,
    source: &'static str,
    job: &'static str,
    path: Vec<u8>,
    old_path: Vec<u8>,
    numbers: (Option<u64>, Option<u32>, Option<u32>, i64),
    flags: (bool, bool, bool, bool),
}

impl OwnedEvent {
    fn facts(&self) -> EventFacts<'_> {
        EventFacts {
            kind: self.kind,
            source: self.source,
            node: "n",
            index: 0,
            ts: self.numbers.3,
            path: &self.path,
            old_path: &self.old_path,
            size: self.numbers.0,
            uid: self.numbers.1,
            gid: self.numbers.2,
            job: self.job,
            mark: "",
            directory: self.flags.0,
            complete: self.flags.1,
            reconciled: self.flags.2,
            beyond: self.flags.3,
        }
    }
}

fn events() -> impl Strategy<Value = OwnedEvent> {
    let path = prop_oneof![
        4 => prop::sample::select(vec![
            "", "/", "/a", "/a/b", "/a/b/c", "/a/bc", "/a/x/c", "/b/c", "/b/c.h5", "/a/b.h5", "c",
            "/a/.h5", "/a/5",
        ]).prop_map(|path| path.as_bytes().to_vec()),
        1 => prop::collection::vec(prop::sample::select(b"/ab.\xff\xc3".to_vec()), 0..8),
    ];
    (
        prop::sample::select(vec!["create", "close_write", "unlink", "rename", "unknown"]),
        prop::sample::select(vec!["s", "t", ""]),
        prop::sample::select(vec!["", "5", "job"]),
        path.clone(),
        path,
        (
            prop::option::of(prop_oneof![0_u64..7, Just(u64::MAX)]),
            prop::option::of(0_u32..7),
            prop::option::of(0_u32..3),
            prop_oneof![0_i64..7, Just(i64::MIN), Just(i64::MAX)],
        ),
        any::<(bool, bool, bool, bool)>(),
    )
        .prop_map(
            |(kind, source, job, path, old_path, numbers, flags)| OwnedEvent {
                kind,
                source,
                job,
                path,
                old_path,
                numbers,
                flags,
            },
        )
}

/// The answer of SQLite for the condition over one row; `None` if it fails.
fn sqlite_holds(condition: &str, event: &EventFacts<'_>) -> Option<bool> {
    use rusqlite::types::Value;
    let db = rusqlite::Connection::open_in_memory().unwrap();
    let row = EventRow::new(event);
    let columns = super::super::EVENT_RULE_COLUMNS;
    let declared: Vec<String> = columns
        .iter()
        .map(|name| match *name {
            "size" | "uid" | "gid" | "ts" => format!("{name} INTEGER"),
            "directory" | "complete" | "reconciled" => format!("{name} BOOLEAN"),
            name => format!("{name} TEXT"),
        })
        .collect();
    db.execute_batch(&format!("CREATE TABLE e ({})", declared.join(", ")))
        .unwrap();
    let values = (0..columns.len()).map(|place| match row.value(place) {
        barograph_statement::SqlValue::Int(v) => Value::Integer(v),
        barograph_statement::SqlValue::Text(text) => Value::Text(text.to_string()),
        _ => Value::Null,
    });
    let marks = vec!["?"; columns.len()].join(", ");
    db.execute(
        &format!("INSERT INTO e VALUES ({marks})"),
        rusqlite::params_from_iter(values),
    )
    .unwrap();
    let sql = format!("SELECT count(*) FROM e WHERE {condition}");
    db.query_row(&sql, [], |row| row.get::<_, i64>(0))
        .ok()
        .map(|rows| rows == 1)
}

fn with_kinds() -> impl Strategy<Value = Vec<(String, &'static str, &'static str, bool)>> {
    let kinds = prop::sample::select(vec![
        "create",
        "create, unlink",
        "rename",
        "close_write",
        "close_write, create",
    ]);
    let from = prop::sample::select(vec!["", "FROM 's'", "FROM 's', 't'"]);
    prop::collection::vec((conditions(), kinds, from, any::<bool>()), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn conditions_are_those_of_sqlite(condition in conditions(), events in prop::collection::vec(events(), 1..4)) {
        for event in events {
            let facts = EventFacts { kind: "create", ..event.facts() };
            let mut rules = made(&[&format!("r ON EVENT create WHERE {condition} THEN RUN '/x'")]);
            let ours = !fired(&mut rules, &facts).is_empty();
            // Where SQLite fails, so does the rule or another operand has decided.
            if let Some(theirs) = sqlite_holds(&condition, &facts) {
                let failed = rules.reports()[0].failed == 1;
                prop_assert!(ours == theirs || failed, "{condition} {facts:?}: {ours} {theirs}");
            }
        }
    }

    #[test]
    fn the_index_changes_no_result(rules in with_kinds(), events in prop::collection::vec(events(), 1..40)) {
        let mut texts = Vec::new();
        for (at, (condition, kinds, from, count)) in rules.iter().enumerate() {
            let when = if *count { "WHEN count_over('3 ns') > 1" } else { "" };
            texts.push(format!("r{at} ON EVENT {kinds} {from} WHERE {condition} {when} THEN RUN '/x' COOLDOWN '2 ns'"));
        }
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let (mut by_index, mut by_all) = (made(&texts), made(&texts));
        for event in &events {
            let facts = event.facts();
            let mut all = Vec::new();
            by_all.evaluate_all(&facts, &mut |rule, _| all.push(rule.name.clone()));
            prop_assert_eq!(fired(&mut by_index, &facts), all, "{:?}", facts);
            for rule in &texts {
                let name = rule.split(' ').next().unwrap_or_default();
                let _ = by_index.explain(name, &facts);
            }
        }
        let counts = |rules: &EventRules| -> Vec<(u64, u64, u64)> {
            rules.reports().iter().map(|it| (it.matched, it.fired, it.suppressed)).collect()
        };
        prop_assert_eq!(counts(&by_index), counts(&by_all));
    }
}

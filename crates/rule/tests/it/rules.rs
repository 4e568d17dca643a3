//! Tests of the meaning of rules, one decision at a time, and of their bounds.

use barograph_model::{Sample, StreamKey, Value};
use barograph_rule::{RuleLimits, RuleState, Rules};
use barograph_statement::StatementOutcome;
use proptest::prelude::*;
use serde_json::json;

use crate::rig::{RuleRig, S, described};

#[test]
fn it_fires_at_the_edge_of_each_subject() {
    let mut rig = RuleRig::default();
    rig.set("disk.busy.ratio{device=a}", 0.95);
    rig.set("disk.busy.ratio{device=b}", 0.1);
    rig.create("hot WHEN latest('disk.busy.ratio') > 0.9 CALL 'slow.down'");
    assert_eq!(rig.run(), ["hot{device=a}"], "also if it is true at first");
    rig.set("disk.busy.ratio{device=a}", 0.97);
    assert!(rig.run().is_empty(), "still true");
    rig.set("disk.busy.ratio{device=b}", 0.91);
    assert_eq!(rig.run(), ["hot{device=b}"]);
    rig.set("disk.busy.ratio{device=a}", 0.5);
    rig.run();
    rig.set("disk.busy.ratio{device=a}", 0.92);
    assert_eq!(rig.run(), ["hot{device=a}"]);
    // NaN is NULL, and NULL is not true.
    rig.set("disk.busy.ratio{device=a}", f64::NAN);
    assert!(rig.run().is_empty());
    rig.set("disk.busy.ratio{device=a}", 1.0);
    assert_eq!(rig.run(), ["hot{device=a}"]);
    let report = rig.report("hot");
    assert_eq!((report.fired, report.subjects, report.holding), (4, 2, 2));
    assert_eq!(report.state, RuleState::Holding);
    let firing = &rig.fired[0];
    assert_eq!(
        (firing.call.as_str(), firing.expires_ns),
        ("slow.down", 60 * S)
    );
    assert_eq!(
        firing.explanation,
        "disk.busy.ratio{device=a}: latest('disk.busy.ratio') = 0.95"
    );
}

#[test]
fn a_cooldown_passes_over_what_becomes_true_in_it() {
    let mut rig = RuleRig::default();
    rig.create("t WHEN latest('a.count') > 5 CALL 'x' COOLDOWN '10 s'");
    rig.set("a.count", 9);
    assert_eq!(rig.run(), ["t"]);
    for (value, expect) in [(1, 0), (9, 0), (9, 0)] {
        rig.pass(3.0);
        rig.set("a.count", value);
        assert_eq!(rig.run().len(), expect);
    }
    // It is still true when the cooldown is over, and does not fire again.
    assert!(rig.pass(60.0).is_empty());
    assert_eq!(rig.report("t").suppressed, 1);
    rig.set("a.count", 1);
    rig.run();
    rig.set("a.count", 9);
    assert_eq!(rig.run(), ["t"]);
}

#[test]
fn absence_is_told_once_by_time_alone() {
    let mut rig = RuleRig::default();
    rig.create("gone WHEN absent('app.x.frame.count{rank=3}', '5 s') CALL 'x' TO 'rank={rank}'");
    assert!(rig.pass(4.9).is_empty());
    assert_eq!(rig.pass(0.2), ["gone{rank=3}"], "there never was a stream");
    assert_eq!(rig.fired[0].target, [("rank".to_owned(), "3".to_owned())]);
    rig.set("app.x.frame.count{rank=3}", 1);
    assert!(rig.pass(4.0).is_empty());
    rig.look("app.x.frame.count{rank=3}");
    assert!(rig.pass(4.0).is_empty(), "a look is a sign of life");
    assert_eq!(rig.pass(2.0), ["gone{rank=3}"]);
    rig.set("app.x.frame.count{rank=3}", 2);
    rig.run();
    rig.remove("app.x.frame.count{rank=3}");
    assert_eq!(rig.pass(6.0), ["gone{rank=3}"], "its stream has ended");
    assert!(rig.pass(100.0).is_empty());
    assert_eq!(rig.report("gone").subjects, 0);
    rig.set("app.x.frame.count{rank=3}", 3);
    assert_eq!(rig.pass(6.0), ["gone{rank=3}"]);
}

#[test]
fn ages_have_deadlines() {
    let mut rig = RuleRig::default();
    rig.set("a.count", 1);
    rig.create("old WHEN age('a.count') > 2.5 CALL 'x'");
    rig.create("odd WHEN age('a.count') * 2 >= 5 CALL 'x'");
    rig.run();
    let start = rig.now;
    assert_eq!(rig.pass(2.4), [""; 0]);
    let mut fired = rig.pass(0.2);
    fired.sort();
    assert_eq!(fired, ["odd", "old"]);
    assert_eq!(rig.fired[0].rule, "odd");
    assert_eq!(rig.fired[1].fired_ns, start + 5 * S / 2 + 1);
    // Compared with a number it is computed when it gets there, and else ten times a second.
    assert!(rig.report("old").evaluations <= 4);
    assert!(rig.report("odd").evaluations >= 20);
}

#[test]
fn other_functions_take_the_streams_whose_labels_agree() {
    let mut rig = RuleRig::default();
    rig.set("a.count{node=1,rank=0}", 1);
    rig.set("a.count{node=2,rank=1}", 1);
    rig.set("b.count{node=1}", 7);
    rig.set("b.count{node=2}", 3);
    rig.create("t WHEN latest('a.count') = 1 AND latest('b.count') > 5 CALL 'x'");
    assert_eq!(rig.run(), ["t{node=1,rank=0}"]);
    // Of several the one with the newest sample.
    rig.create("s WHEN latest('a.count{rank=0}') = 1 AND latest('c.count') > 5 CALL 'x'");
    rig.now += 1;
    rig.set("c.count{q=1}", 9);
    rig.now += 1;
    rig.set("c.count{q=2}", 1);
    assert!(rig.run().is_empty());
    rig.now += 1;
    rig.set("c.count{q=1}", 8);
    assert_eq!(rig.run(), ["s{node=1,rank=0}"]);
    rig.remove("c.count{q=1}");
    assert!(rig.run().is_empty());
    assert_eq!(rig.report("s").holding, 0);
}

#[test]
fn a_firing_says_what_and_to_whom() {
    let mut rig = RuleRig::default();
    rig.set("app.x.phase{rank=2,job=7}", Value::text("solve \"it\""));
    rig.set("b.level", 1.5);
    rig.create(
        "t HELP 'why' WHEN latest('app.x.phase') LIKE 'solve%' CALL 'go' \
         PAYLOAD json_object('phase', latest('app.x.phase'), 'level', latest('b.level') * 2, \
         'none', latest('c'), 'rank', label('rank')) TO 'rank={rank},name=r{rank}-{job}x' EXPIRES '5 min'",
    );
    rig.run();
    let firing = &rig.fired[0];
    let expect = json!({"phase": "solve \"it\"", "level": 3.0, "none": null, "rank": "2"});
    assert_eq!(firing.payload, expect);
    assert_eq!(firing.expires_ns, 300 * S);
    let target: Vec<String> = firing
        .target
        .iter()
        .map(|(n, v)| format!("{n}={v}"))
        .collect();
    assert_eq!(target, ["rank=2", "name=r2-7x"]);
    // A label that is not there would make the call wider than it was meant.
    rig.create("u WHEN latest('b.level') > 1 CALL 'go' TO 'rank={rank}'");
    assert!(rig.run().is_empty());
    let report = rig.report("u");
    assert_eq!((report.state, report.failed), (RuleState::Failed, 1));
    assert!(report.reason.contains("no label rank"), "{}", report.reason);
}

#[test]
fn the_clock_may_go_back() {
    let mut rig = RuleRig::default();
    rig.create("gone WHEN absent('a.count', '5 s') CALL 'x' COOLDOWN '2 s'");
    rig.create("many WHEN count_over('a.count', '10 s') >= 3 CALL 'y'");
    for _ in 0..3 {
        rig.set("a.count", 1);
        rig.pass(1.0);
    }
    assert_eq!(rig.fired.len(), 1);
    rig.now -= 1_000 * S;
    assert!(rig.run().is_empty());
    assert_eq!(rig.rules.set_backs(), 1);
    assert!(rig.pass(4.9).is_empty());
    assert_eq!(rig.pass(0.2), ["gone"], "not a thousand seconds later");
    for _ in 0..3 {
        rig.set("a.count", 1);
        rig.pass(1.0);
    }
    assert_eq!(rig.fired.last().unwrap().rule, "many");
}

/// Checks the outcome of a statement, where there is a rule called known.
fn check(sql: &str, expect: &str) {
    let mut rig = RuleRig::default();
    rig.create("known WHEN latest('a') > 1 CALL 'x'");
    let refused = rig.execute(sql);
    let seen = refused.map_or_else(|e| e.to_string(), |done| format!("{done:?}"));
    assert!(seen.contains(expect), "{sql}\n  {seen}\n  {expect}");
}

#[test]
fn clauses_that_are_wrong_say_what_is_right() {
    let when = "CREATE RULE t WHEN latest('a') > 1 CALL 'x'";
    for (rest, expect) in [
        ("", "Created(\"t\")"),
        (" ;", "Created(\"t\")"),
        (" COOLDOWN '1 s' PAYLOAD 1 TO 'a=b'", "Created(\"t\")"),
        (
            " COOLDOWN '1 s' COOLDOWN '1 s'",
            "expected the end of the statement, found COOLDOWN",
        ),
        (" COOLDOWN 10", "expected COOLDOWN '10 s', found 10"),
        (" COOLDOWN '10'", "is not a length of time"),
        (" COOLDOWN '31 d'", "is not a length of time"),
        (" EXPIRES '0 s'", "is not a length of time"),
        (" EXPIRES '1 ms'", "between 1 s and 24 h"),
        (" TO 'a'", "no ="),
        (" TO 'a={b'", "a { is not closed"),
        (" TO 'a=b}'", "a } was not opened"),
        (" TO 'a={}'", "names no label"),
        (" TO 'a=1,a=2'", "a label twice"),
        (" TO '1a=1'", "label name \"1a\""),
        (" PAYLOAD json_object('a')", "write PAYLOAD value"),
        (" PAYLOAD json_object(a, 1)", "write PAYLOAD value"),
        (" PAYLOAD", "expected the payload"),
        (
            " SELECT 1",
            "expected the end of the statement, found SELECT",
        ),
    ] {
        check(&format!("{when}{rest}"), expect);
    }
}

#[test]
fn the_older_words_mean_the_same() {
    for kind in ["RULE", "TRIGGER"] {
        for clause in ["CALL", "FIRE"] {
            let when = "WHEN latest('a') > 1";
            let sql = format!("CREATE OR REPLACE {kind} known {when} {clause} 'x' TO 'a=b'");
            check(&sql, "Created(\"known\")");
            check(&format!("DROP {kind} known"), "Dropped(\"known\")");
        }
    }
    let mut rig = RuleRig::default();
    rig.execute("CREATE TRIGGER t WHEN latest('a') > 1 FIRE 'x'")
        .unwrap();
    rig.set("a", 2.0);
    assert_eq!(rig.run(), ["t"]);
    assert_eq!(rig.fired[0].call, "x");
}

#[test]
fn conditions_that_are_wrong_say_what_is_right() {
    for (condition, expect) in [
        ("", "expected the condition"),
        ("1 = 1", "reads no stream"),
        ("label('a') = 'b'", "reads no stream"),
        ("value > 1", "a rule reads a stream as latest('value')"),
        (
            "latest(a) > 1",
            "write latest('disk.read.bytes{device=vda}')",
        ),
        ("latest('a', '1 s') > 1", "write latest("),
        (
            "rate('a') > 1",
            "write rate('disk.read.bytes{device=vda}', '10 s')",
        ),
        ("rate('a', 10) > 1", "write rate("),
        ("rate('a', 'x') > 1", "is not a length of time"),
        ("latest('a{b') > 1", "the { is not closed"),
        (
            "sum(latest('a')) > 1",
            "no function sum with 1 arguments: there are latest, age",
        ),
        ("nothing('a') > 1", "no function nothing"),
        (
            "latest('a') > 1 latest('b')",
            "expected the end of the condition",
        ),
        ("(latest('a') > 1", "cannot read the condition"),
        (
            "latest('a')) > 1",
            "expected the end of the condition, found )",
        ),
        ("latest('a') IN (SELECT 1)", "a rule cannot compute"),
        ("(latest('a') || 'x') = 'y'", "a rule cannot compute"),
        ("EXISTS (SELECT 1)", "a rule cannot compute"),
        ("min(latest('a')) > 1", "no function min with 1 arguments"),
    ] {
        check(&format!("CREATE RULE t WHEN {condition} CALL 'x'"), expect);
    }
}

#[test]
fn statements_that_are_wrong_say_what_is_right() {
    check(
        "CREATE RULE t WHEN latest('a') > 1",
        "expected CALL, found the end",
    );
    check(
        "CREATE RULE t WHEN latest('a') > 1 CALL ''",
        "1 to 127 bytes",
    );
    check(
        "CREATE RULE T WHEN latest('a') > 1 CALL 'x'",
        "stream name \"T\"",
    );
    check("CREATE RULE t CALL 'x'", "expected WHEN, found CALL");
    check(
        "CREATE INSIGHT t AS SELECT 1",
        "expected RULE, found INSIGHT",
    );
    check("SELECT 1", "write CREATE RULE name WHEN");
    check(
        "CREATE RULE known WHEN latest('a') > 1 CALL 'x'",
        "is the name of a rule",
    );
    check(
        "CREATE OR REPLACE RULE known WHEN latest('a') > 1 CALL 'x'",
        "Created(\"known\")",
    );
    check("DROP RULE nown", "did you mean known?");
    check("DROP RULE IF EXISTS nown", "Dropped(\"nown\")");
    check("drop rule known;", "Dropped(\"known\")");
    let many: Vec<String> = (0..17).map(|i| format!("latest('a{i}') > 1")).collect();
    let sql = format!("CREATE RULE t WHEN {} CALL 'x'", many.join(" OR "));
    check(&sql, "functions of streams in a rule: at most 16");
    let deep = format!(
        "CREATE RULE t WHEN latest('a') > 1{} CALL 'x'",
        "+1".repeat(500)
    );
    check(&deep, "levels of an expression: at most 100");
    let long = format!(
        "CREATE RULE t WHEN latest('a') > {} CALL 'x'",
        "1".repeat(20_000)
    );
    check(&long, "SQL_BYTES_MAX");
}

#[test]
fn what_is_beyond_the_bounds_is_counted_and_told() {
    let mut rig = RuleRig::with(RuleLimits {
        rules_max: 2,
        subjects_max: 3,
        candidates_max: 2,
        streams_max: 12,
        ..RuleLimits::default()
    });
    for i in 0..5 {
        rig.set(&format!("a.count{{i={i}}}"), 1);
    }
    for i in 0..4 {
        rig.set(&format!("b.count{{q={i}}}"), 1);
    }
    rig.create("t WHEN latest('a.count') = 1 CALL 'x'");
    rig.create("u WHEN latest('a.count{i=0}') + latest('b.count') = 2 CALL 'x'");
    let refused = rig.execute("CREATE RULE v WHEN latest('a') > 1 CALL 'x'");
    assert_eq!(
        refused.unwrap_err().to_string(),
        "rules: at most 2 (rules_max)"
    );
    assert_eq!(rig.run().len(), 4);
    let report = rig.report("t");
    assert_eq!((report.subjects, report.beyond), (3, 2));
    assert!(
        report.reason.contains("2 streams are beyond"),
        "{}",
        report.reason
    );
    assert_eq!(
        rig.report("u").left_out,
        1,
        "one more than there is room for is enough to tell"
    );
    // Room that becomes free is taken.
    rig.remove("a.count{i=0}");
    rig.remove("a.count{i=1}");
    assert_eq!(rig.run(), ["t{i=3}", "t{i=4}"]);
    assert_eq!(rig.report("t").beyond, 0);
    for i in 0..4 {
        rig.set(&format!("c.count{{i={i}}}"), 1);
    }
    assert_eq!(rig.rules.ignored(), 1);
}

#[test]
fn windows_stay_within_their_bounds() {
    let mut rig = RuleRig::with(RuleLimits {
        points_max: 64,
        points_all_max: 200,
        windows_max: 9,
        ..RuleLimits::default()
    });
    rig.create("t WHEN max_over('a.count', '1 h') > 1e9 CALL 'x'");
    for at in 0..3_000 {
        rig.now += S;
        for i in 0..12 {
            rig.set(&format!("a.count{{i={i}}}"), at);
        }
        rig.run();
        let (points, windows, refused) = rig.rules.windows();
        assert!(points <= 200 + 12 * 9, "{points}");
        assert_eq!((windows, refused), (9, 3));
    }
    rig.execute("DROP RULE t").unwrap();
    assert_eq!(rig.rules.windows(), (0, 0, 3));
}

#[test]
fn a_thinned_window_is_off_by_little() {
    let mut rig = RuleRig::default();
    rig.create(
        "t WHEN latest('a.count') > 99990 CALL 'x' PAYLOAD json_object('rate', \
         rate('a.count', '100 s'), 'min', min_over('a.count', '100 s'), 'avg', \
         avg_over('a.count', '100 s'), 'n', count_over('a.count', '100 s'))",
    );
    for value in 0..=99_991 {
        rig.now += S / 100;
        rig.set("a.count", value);
        rig.run();
    }
    let payload = &rig.fired[0].payload;
    let near = |key: &str, expect: f64, by: f64| {
        let seen = payload[key].as_f64().unwrap();
        assert!((seen - expect).abs() <= by, "{key}: {seen}, not {expect}");
    };
    near("rate", 100.0, 1e-6);
    near("min", 89_991.0, 100.0);
    near("avg", 94_991.0, 100.0);
    near("n", 10_000.0, 100.0);
}

#[test]
fn a_sample_costs_what_its_readers_cost() {
    let mut rig = RuleRig::default();
    for rule in 0..100 {
        rig.create(&format!(
            "t{rule} WHEN rate('m{rule}.bytes', '10 s') > 1e9 OR absent('m{rule}.bytes', \
             '1 h') CALL 'x'"
        ));
    }
    let name = |i: u32| format!("m{}.bytes{{i={i}}}", i % 100);
    for i in 0..10_000 {
        rig.set(&name(i), 0);
    }
    assert!(rig.run().is_empty());
    let before = rig.evaluations();
    for round in 1..=5 {
        rig.now += S;
        for i in 0..10_000 {
            rig.set(&name(i), round);
        }
        rig.run();
    }
    assert_eq!(rig.evaluations() - before, 50_000, "one for each sample");
    let before = rig.evaluations();
    rig.now += S;
    rig.set(&name(77), 9);
    rig.run();
    assert_eq!(rig.evaluations() - before, 1);
    rig.now += S;
    rig.run();
    assert_eq!(rig.evaluations() - before, 1, "time alone costs nothing");
    // Presence costs nothing while it lasts.
    let mut rig = RuleRig::default();
    rig.create("t WHEN absent('a.count', '100 s') CALL 'x'");
    for value in 0..1_000 {
        rig.set("a.count", value);
        rig.pass(1.0);
    }
    assert!(rig.evaluations() < 30, "{}", rig.evaluations());
}

#[test]
fn dropped_and_replaced_rules_leave_nothing() {
    let mut rig = RuleRig::default();
    rig.set("a.count", 9);
    rig.create("t WHEN avg_over('a.count', '1 s') > 1 AND age('a.count') < 9 CALL 'x'");
    assert_eq!(rig.run(), ["t"]);
    let again = rig.execute("CREATE OR REPLACE RULE t WHEN latest('a.count') > 1 CALL 'y'");
    assert_eq!(again.unwrap(), StatementOutcome::Created("t".into()));
    assert_eq!(rig.run(), ["t"], "it begins anew");
    assert_eq!(rig.rules.windows(), (0, 0, 0));
    assert_eq!(rig.rules.next_deadline_ns(), None);
    rig.execute("DROP RULE t").unwrap();
    rig.set("a.count", 0);
    rig.set("a.count", 9);
    assert!(rig.run().is_empty());
    assert!(rig.rules.is_empty());
}

#[derive(Clone, Debug)]
enum Hostile {
    Add(u32, u8),
    Remove(u32),
    Sample(u32, i64, f64),
    Look(u32, i64),
    Seed(u32, Vec<i64>),
    Evaluate(i64),
    Execute(String),
}

fn time() -> impl Strategy<Value = i64> {
    prop_oneof![any::<i64>(), 0..1_000_i64, Just(i64::MAX), Just(i64::MIN)]
}

fn hostile() -> impl Strategy<Value = Hostile> {
    let words = proptest::sample::select(vec![
        "CREATE",
        "RULE",
        "TRIGGER",
        "t",
        "WHEN",
        "latest('a.count')",
        "absent('a.count', '5 ns')",
        ">",
        "1",
        "rate('b.bytes', '9 ns')",
        "CALL",
        "FIRE",
        "'x'",
        "COOLDOWN",
        "'1 s'",
        "TO",
        "'a={i}'",
        "PAYLOAD",
        "json_object('a', 1)",
        "AND",
        "NOT",
        "(",
        ")",
        "DROP",
        "OR",
        "REPLACE",
        "ago('a.count', '30 d')",
    ]);
    let text = proptest::collection::vec(words, 0..14).prop_map(|w| w.join(" "));
    prop_oneof![
        (0..6_u32, 0..3_u8).prop_map(|(k, n)| Hostile::Add(k, n)),
        (0..6_u32).prop_map(Hostile::Remove),
        (0..6_u32, time(), any::<f64>()).prop_map(|(k, t, v)| Hostile::Sample(k, t, v)),
        (0..6_u32, time()).prop_map(|(k, t)| Hostile::Look(k, t)),
        (0..6_u32, proptest::collection::vec(time(), 0..4)).prop_map(|(k, t)| Hostile::Seed(k, t)),
        time().prop_map(Hostile::Evaluate),
        text.prop_map(Hostile::Execute),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn nothing_makes_it_panic(steps in proptest::collection::vec(hostile(), 0..60)) {
        let mut rules = Rules::new(RuleLimits { points_max: 8, ..RuleLimits::default() });
        for sql in [
            "CREATE RULE all.of WHEN rate('a.count', '9 ns') + delta('a.count', '9 ns') \
             + avg_over('b.bytes', '30 d') + min_over('a.count', '1 ns') + max_over('a.count', '9 ns') \
             + count_over('b.bytes', '9 ns') + age('a.count') + latest('c') > 0 OR absent('c', '1 ns') \
             OR ago('a.count', '9 ns') > 1 CALL 'x' TO 'i={i}' COOLDOWN '3 ns'",
            "CREATE RULE own WHEN delta('b.bytes', '9 ns') > 0 OR age('b.bytes') > 1e-9 CALL 'x'",
        ] {
            rules.execute(sql, 0).unwrap();
        }
        for step in steps {
            match step {
                Hostile::Add(key, name) => {
                    let name = ["a.count{i=1}", "b.bytes", "c"][name as usize];
                    rules.stream_added(StreamKey(key), &described(name), &"".into());
                }
                Hostile::Remove(key) => rules.stream_removed(StreamKey(key)),
                Hostile::Sample(key, ts, v) => {
                    let value = if v > 0.0 { Value::Int(v as i64) } else { v.into() };
                    rules.sample(StreamKey(key), &Sample::measured(ts, value));
                }
                Hostile::Look(key, ts) => rules.looked(StreamKey(key), ts),
                Hostile::Seed(key, ts) => {
                    let past: Vec<Sample> = ts.into_iter().map(|t| Sample::measured(t, 1.0)).collect();
                    rules.seed(StreamKey(key), &past);
                }
                Hostile::Evaluate(now) => rules.evaluate(now, &mut |_| {}),
                Hostile::Execute(sql) => drop(rules.execute(&sql, 0)),
            }
            rules.next_deadline_ns();
            rules.reports();
        }
    }

    #[test]
    fn any_bytes_are_a_rule_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let text = String::from_utf8_lossy(&bytes);
        let mut rules = Rules::new(RuleLimits::default());
        let _ = rules.execute(&text, 0);
        let _ = rules.execute(&format!("CREATE RULE t WHEN {text} CALL 'x'"), 0);
        let _ = rules.execute(&format!("CREATE RULE t WHEN latest('{text}') > 1 CALL 'x'"), 0);
        let _ = rules.execute(&format!("CREATE RULE t WHEN latest('a') > 1 CALL 'x' TO '{text}'"), 0);
    }
}

//! Tests of rules on streams that do something else than a call.

use barograph_rule::RuleWork;

use barograph_model::Value;

use crate::rig::{RuleRig, S};

#[test]
fn a_rule_may_do_something_else_than_a_call() {
    let mut rig = RuleRig::default();
    rig.set("disk.busy.ratio{device=a}", 0.95);
    rig.create(
        "hot WHEN latest('disk.busy.ratio') > 0.9 THEN RUN '/bin/x' '-d' '/dev/{device}' RETRY 2",
    );
    rig.create(
        "told WHEN latest('disk.busy.ratio') > 0.9 THEN POST 'https://h/x' RATE 1 PER '1 s'",
    );
    rig.create("odd WHEN latest('disk.busy.ratio') > 0.9 THEN RUN '/bin/x' '{mount}'");
    assert_eq!(rig.run(), ["hot{device=a}", "told{device=a}"]);
    let action = rig.fired[0].action.clone().unwrap();
    let work = RuleWork::Run {
        program: "/bin/x".into(),
        arguments: vec!["-d".into(), "/dev/a".into()],
        container: None,
    };
    assert_eq!((action.work, action.limits.retries_max), (work, Some(2)));
    assert_eq!(rig.report("hot").call, "run /bin/x -d /dev/{device}");
    let odd = rig.report("odd");
    assert_eq!(odd.failed, 1);
    assert!(odd.reason.contains("no label mount"), "{}", odd.reason);
    let mut limits: Vec<_> = rig
        .rules
        .actions()
        .map(|(rule, _)| rule.to_owned())
        .collect();
    limits.sort();
    assert_eq!(limits, ["hot", "odd", "told"]);
    for (tail, expect) in [
        ("THEN POST 'https://h/{device}'", "a fixed address"),
        ("THEN POST 'https://h/' BODY '1'", "a fixed address"),
        ("THEN RUN '/bin/x' 'a}'", "a } was not opened"),
        (
            "THEN RUN '/bin/{device}'",
            "an event cannot name the program",
        ),
        ("THEN RUN '/bin/x' TO 'a=b'", "found TO"),
        ("THEN CALL 'x'", "write CALL in place of THEN CALL"),
        (
            "THEN RUN '/x' BREAK 1 PER '1 s'",
            "BREAK is for rules on events",
        ),
    ] {
        let error = rig.execute(&format!("CREATE RULE r WHEN latest('a') > 1 {tail}"));
        let error = error.unwrap_err().to_string();
        assert!(error.contains(expect), "{tail}: {error}");
    }
}

#[test]
fn conditions_read_forecasts() {
    let mut rig = RuleRig::default();
    rig.create(
        "full WHEN forecast('space.available{mount=/x}', '1 h') < 0.1 * latest('space.total{mount=/x}') \
         THEN RUN '/bin/drain' '{mount}'",
    );
    rig.create("surely WHEN forecast_high('space.available', '1 h') < 10 THEN RUN '/bin/x'");
    rig.create("perhaps WHEN forecast_low('space.available', '1 h') < 10 THEN RUN '/bin/x'");
    rig.create("late WHEN forecast('space.available', '3 h') < 1000 THEN RUN '/bin/x'");
    let said = |value: f64, half_width: f64| {
        let knots = [0.0, 90.0, 0.0, 7_200.0, value, half_width];
        Value::Floats(knots.to_vec().into())
    };
    rig.set("space.total{mount=/x}", 100.0);
    rig.set("space.available{mount=/x}", 90.0);
    assert!(rig.run().is_empty());
    assert!(rig.report("full").reason.contains("[forecast] streams"));
    // In an hour it will be halfway, 45 and then 9.
    rig.set("forecast.space.available{mount=/x}", said(0.0, 72.0));
    assert_eq!(rig.run(), ["perhaps{mount=/x}"]);
    rig.now += S;
    rig.set(
        "forecast.space.available{mount=/x}",
        said(-72.0, f64::INFINITY),
    );
    assert_eq!(rig.run(), ["full{mount=/x}"]);
    assert!(
        rig.fired[1]
            .explanation
            .contains("forecast('space.available{mount=/x}', '1 h') = ")
    );
    rig.now += S;
    rig.set("forecast.space.available{mount=/x}", said(-72.0, 1.0));
    assert_eq!(rig.run(), ["perhaps{mount=/x}", "surely{mount=/x}"]);
    assert_eq!(rig.report("late").fired, 0, "it reaches two hours");
    // An array that is none says nothing.
    rig.now += S;
    rig.set(
        "forecast.space.available{mount=/x}",
        Value::Floats(vec![1.0].into()),
    );
    assert!(rig.run().is_empty());
}

//! Tests of rules on streams that do something else than a call.

use barograph_rule::RuleWork;

use crate::rig::RuleRig;

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
    };
    assert_eq!((action.work, action.limits.retries_max), (work, Some(2)));
    assert_eq!(rig.report("hot").call, "run /bin/x");
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
        ("THEN CALL 'x'", "expected RUN or POST"),
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

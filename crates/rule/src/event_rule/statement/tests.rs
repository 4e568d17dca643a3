//! Tests of the grammar and of its errors.

use proptest::prelude::*;

use super::*;

fn created(sql: &str) -> Result<EventRule, String> {
    match EventRuleStatement::parse(sql) {
        Ok(EventRuleStatement::Create { rule, .. }) => Ok(*rule),
        Ok(EventRuleStatement::Drop { .. }) => Err("a DROP".into()),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn all_clauses() {
    let sql = "create or replace rule a.b help 'why' on event create, CLOSE_WRITE from 's', 't' \
        where path GLOB '/x/*' and (size > 1 and uid is not null) \
        when count_over('1 min') > 10 and count_over('1 min') < count_over('1 h') \
        then run '/bin/do' '--in={path}' '{{x}}' quiet '08:00' to '18:00' delivery 'at_most_once' \
        retry 0 timeout '1 min' concurrency 2 cooldown '10 s' rate 5 per '1 min' break 7 per '1 h';";
    let rule = created(sql).unwrap();
    assert_eq!((&*rule.name, &*rule.help), ("a.b", "why"));
    assert_eq!(rule.kinds().collect::<Vec<_>>(), ["create", "close_write"]);
    assert_eq!(rule.sources, ["s", "t"]);
    let texts = |parts: &[EventClause]| -> Vec<String> {
        parts.iter().map(|part| part.text.clone()).collect()
    };
    let expect = ["path GLOB '/x/*'", "size > 1", "uid IS NOT NULL"];
    assert_eq!(texts(&rule.conditions), expect);
    assert_eq!(rule.counts.len(), 2);
    assert_eq!(rule.windows_ns, [60_000_000_000, 3_600_000_000_000]);
    let work = RuleWork::Run {
        program: "/bin/do".into(),
        arguments: vec!["--in={path}".into(), "{{x}}".into()],
        container: None,
    };
    assert_eq!((rule.work, rule.schedule), (work, None));
    assert_eq!(rule.cooldown_ns, 10_000_000_000);
    let limits = ActionLimits {
        concurrency_max: 2,
        timeout_ns: 60_000_000_000,
        retries_max: Some(0),
        delivery: ActionDelivery::AtMostOnce,
        node: None,
        quiet: Some(QuietTime {
            from_min: 480,
            to_min: 1_080,
        }),
        rate: Some(ActionRate {
            count_max: 5,
            per_ns: 60_000_000_000,
        }),
        breaker: Some(ActionRate {
            count_max: 7,
            per_ns: 3_600_000_000_000,
        }),
    };
    assert_eq!(rule.limits, limits);
    let short = created("CREATE RULE r ON EVENT open THEN RUN '/x'").unwrap();
    assert_eq!(short.limits, ActionLimits::default());
    assert_eq!(
        short.version,
        created(" CREATE RULE r ON EVENT open THEN RUN '/x'\n")
            .unwrap()
            .version
    );
    assert_ne!(short.version, rule.version);
}

fn check_work(tail: &str, expect: RuleWork, summary: &str) {
    let work = created(&format!("CREATE RULE r ON EVENT open THEN {tail}"));
    let work = work.unwrap().work;
    assert_eq!(work.summary(), summary);
    assert_eq!(work, expect);
}

#[test]
fn works() {
    check_work(
        "RUN IN 'img:1' MOUNT '/data' MOUNT '/out' WRITABLE 'prog' '{path}' TIMEOUT '1 s'",
        RuleWork::Run {
            program: "prog".into(),
            arguments: vec!["{path}".into()],
            container: Some(super::super::RuleContainer {
                image: "img:1".into(),
                mounts: vec![("/data".into(), false), ("/out".into(), true)],
            }),
        },
        "run in img:1 prog {path}",
    );
    let (from, to) = (|| "{path}".to_owned(), || "lab:{name}".to_owned());
    let copy = RuleWork::Copy {
        from: from(),
        to: to(),
    };
    check_work(
        "COPY '{path}' TO 'lab:{name}' ON NODE 'b'",
        copy,
        "copy {path} to lab:{name}",
    );
    let moved = RuleWork::Move {
        from: from(),
        to: to(),
    };
    check_work(
        "MOVE '{path}' TO 'lab:{name}'",
        moved,
        "move {path} to lab:{name}",
    );
    check_work(
        "DELETE '{path}' RETRY 1",
        RuleWork::Delete { file: from() },
        "delete {path}",
    );
}

#[test]
fn works_without_files() {
    check_work(
        "MARK 'is.ok-1' RATE 1 PER '1 s'",
        RuleWork::Mark {
            mark: "is.ok-1".into(),
        },
        "mark is.ok-1",
    );
    check_work(
        "MAIL 'ops@site' SUBJECT 'new {name}' BODY 'see {path}'",
        RuleWork::Mail {
            to: "ops@site".into(),
            subject: "new {name}".into(),
            body: Some("see {path}".into()),
        },
        "mail ops@site",
    );
    check_work(
        "CALL 'reload' PAYLOAD '\"{path}\"' TO 'rank=0'",
        RuleWork::Call {
            name: "reload".into(),
            payload: Some("\"{path}\"".into()),
            target: "rank=0".into(),
            is_knob: false,
        },
        "call reload",
    );
    check_work(
        "SET 'app.level' TO '3' IN 'rank=0'",
        RuleWork::Call {
            name: "app.level".into(),
            payload: Some("3".into()),
            target: "rank=0".into(),
            is_knob: true,
        },
        "set app.level",
    );
}

#[test]
fn faults_of_works() {
    let of = |tail: &str| created(&format!("CREATE RULE r ON EVENT open THEN {tail}"));
    let node = of("COPY '{path}' TO '/x' ON NODE 'b'").unwrap().limits.node;
    assert_eq!(node.as_deref(), Some("b"));
    for (tail, expect) in [
        ("COPY '{path}'", "expected TO"),
        ("COPY '{pth}' TO '/x'", "did you mean path?"),
        ("COPY '' TO '/x'", "a text of 1 to"),
        ("DELETE", "DELETE"),
        ("MAIL '{path}' SUBJECT 'x'", "write out a name"),
        ("MAIL 'a@b'", "expected SUBJECT"),
        ("RUN IN '-v' 'x'", "begins with no -"),
        ("RUN IN 'i' MOUNT 'x' 'y'", "an absolute path"),
        ("RUN IN 'i' MOUNT '/x:/y' 'y'", "without colon"),
        ("RUN '/x' ON 'b'", "expected NODE"),
        ("RUN '/x' ON NODE ''", "the name of a node"),
        (
            "FLY 'x'",
            "RUN, POST, COPY, MOVE, DELETE, MARK, MAIL, CALL or SET",
        ),
    ] {
        let fault = of(tail).unwrap_err().to_string();
        assert!(fault.contains(expect), "{tail}: {fault}");
    }
}

#[test]
fn posts_and_schedules() {
    let of = |tail: &str| created(&format!("CREATE RULE r {tail}"));
    let post = |url: &str, body: Option<&str>| RuleWork::Post {
        url: url.into(),
        body: body.map(Into::into),
    };
    let rule = of("ON EVENT open THEN POST 'https://h:1/x?n={name}' RETRY 2").unwrap();
    assert_eq!(rule.work, post("https://h:1/x?n={name}", None));
    let rule = of("ON EVENT open THEN POST 'http://h' BODY '{{\"p\":\"{path}\"}}'").unwrap();
    assert_eq!(rule.work, post("http://h", Some("{{\"p\":\"{path}\"}}")));
    let rule = of("ON SCHEDULE EVERY '15 min' THEN RUN '/x'").unwrap();
    assert_eq!(rule.schedule, Some(RuleSchedule::Every(900_000_000_000)));
    assert_eq!(rule.kinds().count(), 0);
    let rule = of("ON SCHEDULE AT '14:30', '02:05', '14:30' THEN RUN '/x'").unwrap();
    assert_eq!(rule.schedule, Some(RuleSchedule::At(vec![125, 870])));
    for (tail, expect) in [
        (
            "ON EVENT open THEN POST 'ftp://h'",
            "begins with https:// or http://",
        ),
        (
            "ON EVENT open THEN POST 'http://{name}/'",
            "write out the host",
        ),
        (
            "ON EVENT open THEN POST 'http://u@h/'",
            "write out the host",
        ),
        ("ON EVENT open THEN POST 'http:///x'", "write out the host"),
        (
            "ON EVENT open THEN POST 'http://h/{nam}'",
            "did you mean name",
        ),
        (
            "ON EVENT open THEN POST 'http://h/' BODY '{x'",
            "the brace at byte 0 is not closed",
        ),
        ("ON EVENT open THEN RUN '/x' RATE 0 PER '1 s'", "RATE 0"),
        ("ON EVENT open THEN RUN '/x' RATE 1 '1 s'", "expected PER"),
        (
            "ON SCHEDULE EVERY '1500 ms' THEN RUN '/x'",
            "write whole seconds",
        ),
        (
            "ON SCHEDULE AT '2:30' THEN RUN '/x'",
            "a time of day from 00:00 to 23:59",
        ),
        ("ON SCHEDULE DAILY THEN RUN '/x'", "expected EVERY or AT"),
        (
            "ON SCHEDULE AT '02:30' WHERE size > 1 THEN RUN '/x'",
            "a rule on a schedule has no event",
        ),
        (
            "ON SCHEDULE AT '02:30' FROM 's' THEN RUN '/x'",
            "a rule on a schedule has no event",
        ),
    ] {
        let error = of(tail).unwrap_err();
        assert!(error.contains(expect), "{tail}: {error}");
    }
}

#[test]
fn which_statements_are_on_events() {
    for (sql, expect) in [
        ("CREATE RULE r ON EVENT open", true),
        ("create or replace rule r help 'x' on event", true),
        ("CREATE RULE r WHEN latest('a') > 1 CALL 'x'", false),
        ("CREATE RULE r ON CLUSTER WHEN 1 CALL 'x'", false),
        ("DROP RULE r", false),
        ("CREATE WATCH r ON '/x'", false),
        ("", false),
        ("'", false),
    ] {
        assert_eq!(EventRuleStatement::is_one(sql), expect, "{sql}");
    }
}

fn check(tail: &str, expect: &str) {
    let sql = format!("CREATE RULE r\n{tail}");
    let fault = created(&sql).unwrap_err();
    assert!(fault.starts_with(expect), "{tail}: {fault}");
}

#[test]
fn faults_name_their_places() {
    check("WHEN 1", "expected ON, found WHEN at Line: 2, Column: 1");
    check(
        "ON EVENT",
        "expected a kind of events, like create, found the end",
    );
    check(
        "ON EVENT create, clse",
        "there is no kind of events clse at Line: 2, Column: 18: did you mean close",
    );
    check(
        "ON EVENT open, open",
        "open stands twice in ON EVENT at Line: 2, Column: 16",
    );
    check(
        "ON EVENT open FROM 's', 's'",
        "FROM 's' at Line: 2, Column: 25: write the name of each source once",
    );
    check(
        "ON EVENT open WHERE size > 1 AND pth = 'x' THEN RUN '/x'",
        "an event has no column pth at Line: 2, Column: 34: did you mean path",
    );
    check(
        "ON EVENT open WHERE e.path = 'x' THEN RUN '/x'",
        "e.path at Line: 2, Column: 21: write path",
    );
    check(
        "ON EVENT open WHERE rond(size) = 1 THEN RUN '/x'",
        "no function rond with 1 arguments at Line: 2, Column: 21: there are count_over, abs",
    );
}

#[test]
fn faults_of_windows_and_actions() {
    check(
        "ON EVENT open WHERE count_over('1 s') > 1 THEN RUN '/x'",
        "count_over counts the events",
    );
    check(
        "ON EVENT open WHEN size > 1 THEN RUN '/x'",
        "WHEN counts nothing",
    );
    check(
        "ON EVENT open WHEN count_over(1) > 1 THEN RUN '/x'",
        "write count_over('1 min')",
    );
    check(
        "ON EVENT open WHEN count_over('1') > 1 THEN RUN '/x'",
        "'1' is not a length of time",
    );
    check(
        "ON EVENT open WHERE THEN RUN '/x'",
        "expected the condition, found THEN at Line: 2",
    );
    check(
        "ON EVENT open RUN '/x'",
        "expected THEN, found RUN at Line: 2, Column: 15",
    );
    check(
        "ON EVENT open THEN RUN ''",
        "RUN '' at Line: 2, Column: 24: a program has 1 to",
    );
    check(
        "ON EVENT open THEN RUN '{path}'",
        "RUN '{path}' at Line: 2, Column: 24: an event cannot",
    );
    check(
        "ON EVENT open THEN RUN '/x' 'a' 'b {nam}'",
        "argument 2 of RUN at Line: 2, Column: 33: unknown field {nam} at byte 2: did you mean name",
    );
    let five: Vec<String> = (1..6).map(|n| format!("count_over('{n} s') > 1")).collect();
    check(
        &format!("ON EVENT open WHEN {} THEN RUN '/x'", five.join(" AND ")),
        "windows of a rule on events: at most 4 (RULE_COUNTS_MAX)",
    );
}

#[test]
fn faults_of_limits() {
    let tail =
        |tail: &str, expect: &str| check(&format!("ON EVENT open THEN RUN '/x' {tail}"), expect);
    tail(
        "COOLDOWN '1 s' COOLDOWN '1 s'",
        "COOLDOWN stands twice at Line: 2, Column: 44",
    );
    tail(
        "CONCURRENCY 0",
        "CONCURRENCY 0 at Line: 2, Column: 41: write a whole number from 1",
    );
    tail("RETRY 1.5", "RETRY 1.5 at Line: 2");
    tail(
        "DELIVERY 'exactly_once'",
        "DELIVERY 'exactly_once' at Line: 2, Column: 38: write",
    );
    tail(
        "DELIVERY 'at_most_once' RETRY 1",
        "an action that is delivered at most once has no RETRY",
    );
    tail(
        "QUIET '08:00' TO '08:00'",
        "QUIET '08:00' TO '08:00': both times are the same",
    );
    tail(
        "QUIET '25:00' TO '08:00'",
        "QUIET '25:00': write a time of day",
    );
    tail(
        "CALL 'x'",
        "expected COOLDOWN, CONCURRENCY, TIMEOUT, RETRY, DELIVERY, QUIET, RATE, BREAK, ON NODE or the end of",
    );
}

#[test]
fn long_and_deep_texts_are_no_danger() {
    for condition in [
        format!("{}1{}", "(".repeat(5_000), ")".repeat(5_000)),
        format!("1{}", " AND 1".repeat(900)),
        format!("1{}", " OR 1".repeat(900)),
        format!("1{}", "+1".repeat(900)),
        format!("{}1", "NOT ".repeat(900)),
        format!("{}1{}", "CASE WHEN 1 THEN ".repeat(300), " END".repeat(300)),
    ] {
        let sql = format!("CREATE RULE r ON EVENT open WHERE {condition} THEN RUN '/x'");
        let _ = EventRuleStatement::parse(&sql);
    }
}

proptest! {
    #[test]
    fn no_text_panics(words in prop::collection::vec(prop::sample::select(vec![
        "CREATE", "OR", "REPLACE", "RULE", "r", "ON", "EVENT", "open", ",", "FROM", "'s'", "WHERE",
        "path", "GLOB", "'/a*'", "AND", "(", ")", "WHEN", "count_over", "('1 s')", ">", "1", "THEN",
        "RUN", "POST", "SCHEDULE", "EVERY", "RATE", "BREAK", "PER", "'/x'", "'http://h'", "'{path}'", "'{'", "COOLDOWN", "RETRY", "QUIET", "TO", ";", "CASE", "END", "é",
        "--", "/*",
    ]), 0..30), begins in any::<bool>()) {
        let begin = if begins { "CREATE RULE r ON EVENT open " } else { "" };
        let sql = format!("{begin}{}", words.join(" "));
        let _ = (EventRuleStatement::parse(&sql), EventRuleStatement::is_one(&sql));
    }
}

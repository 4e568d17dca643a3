//! Any text as a rule on events, and as a document of rules with their tests. The tests and the
//! fuzz targets share this file.

use barograph_rule::{
    EventFacts, EventRule, EventRuleLimits, EventRuleStatement, EventRules, check_rule_markdown,
};

/// Reads a text as a statement, as the condition and as the end of one. What is read is read again
/// the same, and is evaluated and explained.
pub(crate) fn statement(text: &str) {
    for sql in [
        text.to_owned(),
        format!("CREATE RULE r ON EVENT create, rename WHERE {text} THEN RUN '/x' '{{path}}'"),
        format!("CREATE RULE r ON EVENT create, rename WHEN {text} THEN RUN '/x'"),
        format!("CREATE RULE r ON EVENT create, rename THEN RUN {text}"),
    ] {
        let is_one = EventRuleStatement::is_one(&sql);
        match EventRuleStatement::parse(&sql) {
            Ok(EventRuleStatement::Create { rule, .. }) => {
                assert!(is_one, "{sql}");
                evaluated(*rule);
            }
            Ok(EventRuleStatement::Drop { .. }) => {}
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

fn evaluated(rule: EventRule) {
    let again = EventRuleStatement::parse(&rule.sql);
    let Ok(EventRuleStatement::Create { rule: again, .. }) = again else {
        panic!("what was read is not read again: {}", rule.sql);
    };
    assert_eq!(again.version, rule.version);
    let mut rules = EventRules::new(EventRuleLimits::default());
    rules.add(rule.clone(), false).expect("there is room");
    for (at, kind) in ["create", "rename", "write", "unlink"].iter().enumerate() {
        let event = EventFacts {
            kind,
            source: "s",
            node: "n",
            index: at as u64 + 1,
            ts: i64::MAX - 3 + at as i64,
            path: [&b"/data/a.h5"[..], b"", b"/\xff/..", b"x"][at],
            old_path: b"/old/\xff",
            size: [None, Some(0), Some(u64::MAX), Some(7)][at],
            uid: Some(u32::MAX),
            job: "job",
            complete: at != 1,
            reconciled: at == 2,
            ..EventFacts::default()
        };
        let before = rules.explain(&rule.name, &event);
        assert!(before.is_some());
        let mut fired = 0;
        rules.evaluate(&event, &mut |_, _| fired += 1);
        assert!(fired <= 1);
    }
    assert_eq!(rules.reports().len(), 1);
}

/// Reads a text as a document, and as the table of a rule.
pub(crate) fn document(text: &str) {
    let rule = "```sql\nCREATE RULE r ON EVENT create WHERE size > 1 OR path GLOB '/a*' \
                WHEN count_over('1 s') > 0 THEN RUN '/x'\n```\n\n";
    let head = "| kind | path | size | ts | fires |\n| --- | --- | --- | --- | --- |\n";
    for document in [
        text.to_owned(),
        format!("{rule}{text}"),
        format!("{rule}{head}{text}"),
    ] {
        match check_rule_markdown(&document) {
            Ok(rules) => {
                let lines = document.lines().count();
                for rule in rules {
                    assert!(rule.rows > 0 && rule.differences.len() <= rule.rows);
                    assert!(rule.differences.iter().all(|row| row.line <= lines));
                }
            }
            Err(fault) => {
                let lines = document.lines().count().max(1);
                assert!(fault.line >= 1 && fault.line <= lines, "{fault}");
            }
        }
    }
}

//! From a rule that fires for an event to the request for its action.

use barograph_action::{
    ActionFields, ActionJob, ActionKey, ActionOwner, ActionRequest, ActionWork, Delivery,
    ExitRetry, JobFault, RetryPolicy, Template,
};
use barograph_event::{EventFlags, FileEvent};
use barograph_rule::{ActionDelivery, EventFacts, EventRule};

/// The facts of an event that rules read.
pub fn event_facts<'a>(event: &'a FileEvent, source: &'a str, node: &'a str) -> EventFacts<'a> {
    EventFacts {
        kind: event.kind.as_str(),
        source,
        node,
        index: event.index,
        ts: event.ts,
        path: &event.path,
        old_path: &event.old_path,
        size: event.size,
        uid: event.uid,
        gid: event.gid,
        job: &event.job,
        directory: event.flags.has(EventFlags::DIRECTORY),
        complete: !event.flags.has(EventFlags::PATH_INCOMPLETE),
        reconciled: event.flags.has(EventFlags::RECONCILED),
        beyond: event.flags.has(EventFlags::BEYOND),
    }
}

/// The request for the action of a rule that fires for an event. All fields are filled in now, so
/// that the action does what this version of the rule wanted.
///
/// # Errors
///
/// The action cannot be written down.
pub(super) fn request(
    rule: &EventRule,
    event: &EventFacts<'_>,
    causes: Vec<String>,
    owner: ActionOwner,
) -> Result<ActionRequest, JobFault> {
    let key = key(rule, event);
    let fields = fields(rule, event, key.to_string());
    let limits = &rule.limits;
    let job = ActionJob {
        work: ActionWork::Run {
            argv: argv(rule, &fields),
            time_ns_max: limits.timeout_ns,
            retry: match limits.retries_max {
                Some(retries) if retries > 0 => ExitRetry::All,
                _ => ExitRetry::None,
            },
        },
        fields,
        causes,
    };
    let policy = RetryPolicy::default();
    let attempts = limits.retries_max.map(|retries| retries.saturating_add(1));
    Ok(ActionRequest {
        key,
        owner,
        delivery: match limits.delivery {
            ActionDelivery::AtLeastOnce => Delivery::AtLeastOnce,
            ActionDelivery::AtMostOnce => Delivery::AtMostOnce,
        },
        retry: RetryPolicy {
            attempts_max: attempts.unwrap_or(policy.attempts_max),
            ..policy
        },
        body: job.encode()?,
    })
}

/// The program and the words that a rule runs for an event.
pub fn action_words(rule: &EventRule, event: &EventFacts<'_>) -> Vec<Vec<u8>> {
    let key = key(rule, event).to_string();
    argv(rule, &fields(rule, event, key))
}

fn key(rule: &EventRule, event: &EventFacts<'_>) -> ActionKey {
    ActionKey {
        rule: rule.name.clone(),
        rule_version: rule.version,
        source: event.source.to_owned(),
        index: event.index,
    }
}

fn fields(rule: &EventRule, event: &EventFacts<'_>, key: String) -> ActionFields {
    ActionFields {
        path: event.path.to_vec(),
        old_path: event.old_path.to_vec(),
        size: event.size,
        uid: event.uid,
        gid: event.gid,
        job: event.job.to_owned(),
        kind: event.kind.to_owned(),
        source: event.source.to_owned(),
        node: event.node.to_owned(),
        index: event.index,
        rule: rule.name.clone(),
        key,
        ts: event.ts,
    }
}

/// The program and its words. Each argument is a template, as was checked with the statement.
fn argv(rule: &EventRule, fields: &ActionFields) -> Vec<Vec<u8>> {
    let fill = |text: &String| match Template::parse(text) {
        Ok(template) => template.fill(fields),
        Err(_) => text.clone().into_bytes(),
    };
    let program = std::iter::once(&rule.program);
    program.chain(&rule.arguments).map(fill).collect()
}

#[cfg(test)]
mod tests {
    use barograph_action::FIELD_NAMES;
    use barograph_event::EventKind;
    use barograph_rule::{ACTION_FIELDS, EVENT_RULE_KINDS, EventRuleStatement};

    use super::*;

    fn rule(tail: &str) -> EventRule {
        let sql = format!("CREATE RULE r ON EVENT create THEN RUN '/bin/x' {tail}");
        match EventRuleStatement::parse(&sql).unwrap() {
            EventRuleStatement::Create { rule, .. } => *rule,
            EventRuleStatement::Drop { .. } => panic!("{sql}"),
        }
    }

    #[test]
    fn rules_know_the_kinds_of_events_and_the_fields_of_actions() {
        let kinds: Vec<&str> = EventKind::ALL.iter().map(|kind| kind.as_str()).collect();
        assert_eq!(kinds, EVENT_RULE_KINDS);
        let mut names = FIELD_NAMES.to_vec();
        let mut known = ACTION_FIELDS.to_vec();
        names.sort_unstable();
        known.sort_unstable();
        assert_eq!(names, known);
    }

    #[test]
    fn fields_are_filled_in_and_never_read_again() {
        let mut event = FileEvent::new(EventKind::Create, 9, 5);
        event.path = b"/d/{name} $(x).tif".to_vec();
        event.size = Some(3);
        let owner = ActionOwner { uid: 1, gid: 2 };
        let facts = event_facts(&event, "s", "n1");
        let rule = rule("'{path}' '{dir}/{stem}.{size}@{node}' RETRY 4 TIMEOUT '2 s'");
        let made = request(&rule, &facts, vec!["a".into()], owner).unwrap();
        assert_eq!((made.key.index, made.retry.attempts_max), (9, 5));
        let job = ActionJob::decode(&made.body).unwrap();
        assert_eq!(job.causes, ["a"]);
        let ActionWork::Run {
            argv,
            time_ns_max,
            retry,
        } = job.work
        else {
            panic!("a program is run");
        };
        let words: Vec<_> = argv
            .iter()
            .map(|word| String::from_utf8_lossy(word))
            .collect();
        assert_eq!(
            words,
            ["/bin/x", "/d/{name} $(x).tif", "/d/{name} $(x).3@n1"]
        );
        assert_eq!((time_ns_max, retry), (2_000_000_000, ExitRetry::All));
    }

    #[test]
    fn delivery_and_retries() {
        let check = |tail: &str, delivery: Delivery, attempts: u32, retry: ExitRetry| {
            let event = FileEvent::new(EventKind::Create, 1, 5);
            let owner = ActionOwner { uid: 1, gid: 2 };
            let made = request(
                &rule(tail),
                &event_facts(&event, "s", "n"),
                Vec::new(),
                owner,
            )
            .unwrap();
            assert_eq!(
                (made.delivery, made.retry.attempts_max),
                (delivery, attempts),
                "{tail}"
            );
            let job = ActionJob::decode(&made.body).unwrap();
            assert!(matches!(job.work, ActionWork::Run { retry: seen, .. } if seen == retry));
        };
        let usual = RetryPolicy::default().attempts_max;
        check("", Delivery::AtLeastOnce, usual, ExitRetry::None);
        check("RETRY 0", Delivery::AtLeastOnce, 1, ExitRetry::None);
        check("RETRY 2", Delivery::AtLeastOnce, 3, ExitRetry::All);
        check(
            "DELIVERY 'at_most_once'",
            Delivery::AtMostOnce,
            usual,
            ExitRetry::None,
        );
    }
}

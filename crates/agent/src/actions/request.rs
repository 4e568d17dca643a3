//! From a rule that fires for an event to the request for its action.

use std::collections::BTreeMap;

use barograph_action::{
    ACTION_NAME_BYTES_MAX, ActionFields, ActionJob, ActionKey, ActionOwner, ActionRequest,
    ActionWork, Delivery, JobFault, JobPlace, MailMessage, RetryPolicy,
};
use barograph_event::{EventFlags, FileEvent};
use barograph_model::fnv1a;
use barograph_rule::{
    ActionDelivery, ActionLimits, EventFacts, EventRule, FiredAction, Firing, RuleWork,
};
use jiff::tz::TimeZone;
use serde_json::{Value as Json, json};

use super::schedule::{latest_ns, time_cursor, time_facts};
use super::work::{words, work};

/// The kind in the fields of an action of a rule on streams, and the beginning of its source.
const CONDITION_KIND: &str = "condition";

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
        mark: event.mark(),
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
    let job = ActionJob {
        work: work(&rule.work, &rule.limits, (&fields, false)),
        fields,
        causes,
        place: place(&rule.limits),
    };
    Ok(limited(key, owner, &rule.limits, job.encode()?))
}

/// The request for the action of a rule on streams that fires.
///
/// # Errors
///
/// The action cannot be written down.
pub(super) fn request_of_firing(
    firing: &Firing,
    action: &FiredAction,
    node: &str,
    owner: ActionOwner,
) -> Result<ActionRequest, JobFault> {
    let subject = format!("{CONDITION_KIND}:{}", firing.subject);
    let key = ActionKey {
        rule: firing.rule.clone(),
        rule_version: action.version,
        // Two subjects may fire at the same time.
        source: match subject.len() <= ACTION_NAME_BYTES_MAX {
            true => subject,
            false => format!("{CONDITION_KIND}:{:016x}", fnv1a(subject.as_bytes())),
        },
        index: u64::try_from(firing.fired_ns).unwrap_or_default(),
    };
    let fields = ActionFields {
        kind: CONDITION_KIND.to_owned(),
        source: key.source.clone(),
        node: node.to_owned(),
        index: key.index,
        rule: key.rule.clone(),
        key: key.to_string(),
        ts: firing.fired_ns,
        ..ActionFields::default()
    };
    let work = match &action.work {
        RuleWork::Post { url, .. } => ActionWork::Webhook {
            url: url.clone(),
            body: told(firing, &fields).to_string().into_bytes(),
        },
        RuleWork::Mail { to, subject, body } => ActionWork::Mail(MailMessage {
            to: to.clone(),
            subject: subject.clone(),
            body: body
                .clone()
                .unwrap_or_else(|| lines_of(&told(firing, &fields))),
        }),
        // The labels stand in the texts already.
        work => self::work(work, &action.limits, (&fields, true)),
    };
    let job = ActionJob {
        work,
        fields,
        causes: Vec::new(),
        place: place(&action.limits),
    };
    Ok(limited(key, owner, &action.limits, job.encode()?))
}

/// What a firing says.
fn told(firing: &Firing, fields: &ActionFields) -> Json {
    json!({
        "rule": firing.rule,
        "key": fields.key,
        "node": fields.node,
        "ts": firing.fired_ns,
        "subject": labels(firing),
        "explanation": firing.explanation,
    })
}

/// The members of an object, a line each.
fn lines_of(object: &Json) -> String {
    let members = object.as_object().into_iter().flatten();
    let lines = members.map(|(name, value)| match value {
        Json::String(text) => format!("{name}: {text}\n"),
        other => format!("{name}: {other}\n"),
    });
    lines.collect()
}

fn labels(firing: &Firing) -> BTreeMap<&str, &str> {
    firing.subject.iter().collect()
}

/// The node on which a rule has its actions done, if it names one.
fn place(limits: &ActionLimits) -> Option<JobPlace> {
    Some(JobPlace {
        node: limits.node.clone()?,
        attempts_max: attempts_max(limits),
    })
}

fn attempts_max(limits: &ActionLimits) -> u32 {
    let attempts = limits.retries_max.map(|retries| retries.saturating_add(1));
    attempts.unwrap_or_else(|| RetryPolicy::default().attempts_max)
}

/// A request with the limits of its rule.
fn limited(
    key: ActionKey,
    owner: ActionOwner,
    limits: &ActionLimits,
    body: Vec<u8>,
) -> ActionRequest {
    ActionRequest {
        key,
        owner,
        delivery: match limits.delivery {
            ActionDelivery::AtLeastOnce => Delivery::AtLeastOnce,
            ActionDelivery::AtMostOnce => Delivery::AtMostOnce,
        },
        retry: RetryPolicy {
            attempts_max: attempts_max(limits),
            ..RetryPolicy::default()
        },
        body,
    }
}

/// The words of what a rule does for an event: the program and its arguments, or the verb and what
/// follows it.
pub fn action_words(rule: &EventRule, event: &EventFacts<'_>) -> Vec<Vec<u8>> {
    let key = key(rule, event).to_string();
    let fields = fields(rule, event, key);
    words(&work(&rule.work, &rule.limits, (&fields, false)))
}

/// The last times of a rule on a schedule before `now_ns`, the latest first, in ns since the epoch,
/// each with the words of what the rule does then. There is none for a rule on events.
pub fn scheduled_words(
    rule: &EventRule,
    (now_ns, count_max): (i64, usize),
) -> Vec<(i64, Vec<Vec<u8>>)> {
    let zone = TimeZone::system();
    let before = |time_ns: i64| latest_ns(rule.schedule.as_ref()?, time_ns, &zone);
    let times = std::iter::successors(before(now_ns), |time_ns| before(time_ns - 1));
    let times = times.take(count_max).map(|time_ns| {
        let cursor = time_cursor(&rule.name, time_ns);
        (time_ns, action_words(rule, &time_facts(&cursor, "")))
    });
    times.collect()
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

#[cfg(test)]
mod tests {
    use barograph_action::{ExitRetry, FIELD_NAMES};
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
            ..
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

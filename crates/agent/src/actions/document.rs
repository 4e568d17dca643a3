//! What is published of rules on events and of actions.

use std::collections::{BTreeMap, BTreeSet};

use barograph_action::{
    ActionDetail, ActionFilter, ActionInfo, ActionJob, ActionQueue, ActionState, ActionWork,
    Delivery, RuleCounts,
};
use barograph_rule::{EventRule, EventRuleReport};
use barograph_stream::{ActionsRow, RulesRow, ScopeReader};
use serde_json::{Value as Json, json};

use super::work::words;

/// Most actions of each list that the document has: the newest ones, and the newest dead letters.
const ACTIONS_MAX: usize = 500;

/// The rows of the newest actions and of the newest dead letters, by those who may read them: the
/// readers of their sources. `None` is the agent's user, who reads those that have no watch.
pub(super) fn actions(
    queue: &ActionQueue,
    readers: &BTreeMap<String, ScopeReader>,
) -> BTreeMap<Option<ScopeReader>, Vec<ActionsRow>> {
    let list = |state| {
        let filter = ActionFilter {
            state,
            count_max: ACTIONS_MAX,
            ..ActionFilter::default()
        };
        queue.list(&filter).unwrap_or_default()
    };
    let mut all = list(None);
    let seen: BTreeSet<u64> = all.iter().map(|info| info.id).collect();
    let dead = list(Some(ActionState::Dead));
    all.extend(dead.into_iter().filter(|info| !seen.contains(&info.id)));
    let mut rows: BTreeMap<Option<ScopeReader>, Vec<ActionsRow>> = BTreeMap::new();
    for info in &all {
        let reader = readers.get(&info.key.source).copied();
        rows.entry(reader).or_default().push(row(info));
    }
    rows
}

fn row(info: &ActionInfo) -> ActionsRow {
    let due = |state| (info.state == state).then_some(info.at_ns);
    ActionsRow {
        id: info.id,
        rule: info.key.rule.clone(),
        state: info.state.as_str().into(),
        source: info.key.source.clone(),
        idx: info.key.index,
        key: info.key.to_string(),
        delivery: match info.delivery {
            Delivery::AtLeastOnce => "at_least_once".into(),
            Delivery::AtMostOnce => "at_most_once".into(),
        },
        attempts: info.attempts,
        attempts_max: info.attempts_max,
        enqueued_ts: info.enqueued_ns,
        started_ts: info.started_ns,
        due_ts: due(ActionState::Waiting),
        ended_ts: match info.state {
            ActionState::Waiting | ActionState::Running => None,
            _ => Some(info.at_ns),
        },
        reason: info.reason.clone().unwrap_or_default(),
        ..ActionsRow::default()
    }
}

/// All that is known of one action.
pub(super) fn detail(detail: &ActionDetail) -> Json {
    let mut answer = json!(row(&detail.info));
    answer["output"] = String::from_utf8_lossy(&detail.output).into();
    let Ok(job) = ActionJob::decode(&detail.body) else {
        return answer;
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    answer["kind"] = job.fields.kind.clone().into();
    answer["path"] = text(&job.fields.path).into();
    answer["old_path"] = text(&job.fields.old_path).into();
    answer["event_ts"] = job.fields.ts.into();
    answer["causes"] = job.causes.clone().into();
    if let Some(place) = &job.place {
        answer["node"] = place.node.clone().into();
    }
    answer["argv"] = words(&job.work).iter().map(|word| text(word)).collect();
    match job.work {
        ActionWork::Run {
            time_ns_max,
            container,
            ..
        } => {
            answer["time_ns_max"] = time_ns_max.into();
            if let Some(container) = container {
                answer["container"] = json!(container);
            }
        }
        ActionWork::Transfer { time_ns_max, .. } => answer["time_ns_max"] = time_ns_max.into(),
        _ => {}
    }
    answer
}

/// The row of a rule in the table of rules.
pub(super) fn rule(
    rule: &EventRule,
    report: &EventRuleReport,
    counts: Option<&RuleCounts>,
    (made_ns, trouble): (i64, &str),
) -> RulesRow {
    let (refused, dead) = counts.map_or((0, 0), |counts| (counts.refused, counts.dead));
    let reason = match (trouble, &*report.fault, refused) {
        ("", _, _) if report.is_broken => format!(
            "it fired too often, and is stopped: {} events have no action; mend the cause and make it anew \
             (CREATE OR REPLACE RULE)",
            report.passed_over
        ),
        ("", "", 0) => String::new(),
        ("", "", refused) => format!("{refused} events have no action, since the queue was full"),
        ("", fault, _) => fault.to_owned(),
        (trouble, _, _) => trouble.to_owned(),
    };
    RulesRow {
        name: report.name.clone(),
        call: rule.work.summary(),
        sql: report.sql.clone(),
        help: report.help.clone(),
        state: match reason.is_empty() {
            true => "armed".into(),
            false => "failed".into(),
        },
        reason,
        fired: report.fired,
        suppressed: report.suppressed + report.own_effects,
        failed: report.failed + dead,
        missed: refused + report.passed_over,
        evaluations: report.matched,
        made_ts: made_ns,
        last_fired_ts: report.last_fired_ns,
        ..RulesRow::default()
    }
}

//! What is published of decisions: rows for SQL, for the command line and for the answers of the
//! server.

use barograph_control::{Decision, DecisionOutcome, DecisionValue};
use barograph_stream::{DecisionsRow, user_name};
use serde_json::{Value as Json, json};

use super::readers::{PlannedRead, Readers};

/// The rows of a plan: that of its buckets, and that of its weight.
pub(super) fn rows(uid: Option<u32>, plan: &PlannedRead) -> Vec<DecisionsRow> {
    let user = uid.map(user_name).unwrap_or_default();
    let decisions = [Some(&plan.augmentation), plan.weight.as_ref()];
    let rows = decisions.into_iter().flatten();
    rows.map(|decision| row(decision, plan, &user)).collect()
}

fn row(decision: &Decision, plan: &PlannedRead, user: &str) -> DecisionsRow {
    let value = |value: &DecisionValue| json!(value);
    let list = |items: Json| match items {
        Json::Array(items) => items,
        _ => Vec::new(),
    };
    let inputs = decision.inputs.iter();
    let (outcome, outcome_reason) = outcome(&decision.outcome);
    DecisionsRow {
        id: decision.id,
        plan: plan.augmentation.id,
        made_ts: decision.made_ns,
        controller: decision.controller.clone(),
        device: plan.device.name.clone(),
        user: user.to_owned(),
        label: plan.label.clone(),
        subject: decision.subject.clone(),
        proposal: value(&decision.proposed),
        value: value(&decision.value),
        reason: decision.reason.clone(),
        inputs: inputs.map(|(name, it)| (name.clone(), value(it))).collect(),
        alternatives: list(json!(decision.alternatives)),
        limits: list(json!(decision.limits)),
        outcome: outcome.to_owned(),
        outcome_reason: outcome_reason.to_owned(),
        effect: decision.effect.as_ref().map(|effect| json!(effect)),
        dropped: decision.dropped,
        ..DecisionsRow::default()
    }
}

fn outcome(outcome: &DecisionOutcome) -> (&'static str, &str) {
    match outcome {
        DecisionOutcome::Proposed => ("proposed", ""),
        DecisionOutcome::DryRun => ("dry_run", ""),
        DecisionOutcome::Done => ("done", ""),
        DecisionOutcome::Deferred { reason } => ("deferred", reason),
        DecisionOutcome::Failed { reason } => ("failed", reason),
        DecisionOutcome::Reverted { reason } => ("reverted", reason),
    }
}

/// All rows, with their users; `None` is one that is not known.
pub(super) fn all_rows(readers: &Readers) -> Vec<(Option<u32>, DecisionsRow)> {
    let plans = readers.plans(None);
    let of_plan = |(uid, plan)| rows(uid, plan).into_iter().map(move |row| (uid, row));
    plans.flat_map(of_plan).collect()
}

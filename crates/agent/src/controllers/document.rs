//! What is published of decisions: rows for SQL, for the command line and for the answers of the
//! server.

use std::collections::BTreeMap;

use barograph_control::{Decision, DecisionOutcome, DecisionValue};
use barograph_recorder::{publish, publish_private};
use barograph_stream::{DECISIONS_DOCUMENT, DecisionsRow, RunDir, ScopeReader, user_name};
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

/// The documents of decisions as they were written last, by their readers; `None` is the agent's
/// user, who also has those of users without a scope.
#[derive(Default)]
pub(super) struct PublishedDecisions {
    told: RowsOfReaders,
}

/// Rows by those who may read them; `None` is the agent's user.
pub(super) type RowsOfReaders = BTreeMap<Option<ScopeReader>, Vec<DecisionsRow>>;

impl PublishedDecisions {
    /// The rows as they are now, by those who may read them.
    pub(super) fn rows(&self, run_dir: &RunDir, our_uid: u32, readers: &Readers) -> RowsOfReaders {
        let mut now = RowsOfReaders::new();
        now.entry(None).or_default();
        // Readers whose last decision is gone are told so.
        for reader in self.told.keys() {
            now.entry(*reader).or_default();
        }
        for (uid, plan) in readers.plans(None) {
            let reader = uid.filter(|uid| *uid != our_uid).map(ScopeReader::User);
            // A scope begins with the first stream of its readers.
            let reader = reader.filter(|it| run_dir.scope(&it.scope()).path().exists());
            now.entry(reader).or_default().extend(rows(uid, plan));
        }
        now
    }

    /// Writes the documents that have changed.
    pub(super) fn publish(&mut self, run_dir: &RunDir, now: RowsOfReaders) {
        for (reader, rows) in &now {
            if self.told.get(reader) == Some(rows) {
                continue;
            }
            match reader {
                None => publish_private(run_dir, DECISIONS_DOCUMENT, rows),
                Some(reader) => {
                    let dir = run_dir.scope(&reader.scope());
                    if dir.path().exists() {
                        publish(&dir, DECISIONS_DOCUMENT, rows);
                    }
                }
            }
        }
        self.told = now;
    }
}

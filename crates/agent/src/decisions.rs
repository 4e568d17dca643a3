//! What all controllers of this agent share: the book of their newest decisions with its bounds,
//! the rows in which they are told, and what people have set at run time (`switches`).
//!
//! It is below the controllers, so that each of them, whatever it decides about, keeps the same
//! record and is paused in the same way.

mod controller;
mod switches;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use barograph_control::{Decision, DecisionOutcome, DecisionValue};
use barograph_stream::DecisionsRow;
use serde_json::{Value as Json, json};

pub(crate) use controller::{ConfiguredMode, Controller, ControllerLevel, HoldOff, controller_row};
pub(crate) use switches::{ControllerMode, ControllerSwitches, SwitchedMode};

/// Most decisions of one user in a book, and most of all users: the oldest ones go first, of all
/// users those of the one that has the most.
const DECISIONS_OF_USER_MAX: usize = 128;
const DECISIONS_MAX: usize = 1_024;
/// Most bytes of a row that is archived: less important parts of a longer one are left out.
pub(crate) const ROW_BYTES_MAX: usize = 3 << 10;

/// A decision with whom and what it is about.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KeptDecision {
    /// The user for whom it was made; `None` is one that is not known, as over TCP.
    pub uid: Option<u32>,
    /// The device or the volume.
    pub device: String,
    /// A name that the user has given: of a file, or of an application.
    pub label: String,
    /// The number of the decision with which it was made.
    pub plan: u64,
    pub decision: Decision,
}

/// How many decisions a controller has made in this life of the agent, by what became of them, and
/// the time of the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DecisionTally {
    pub outcomes: BTreeMap<&'static str, u64>,
    pub last: Option<(i64, u64)>,
}

/// The newest decisions, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct DecisionBook {
    kept: BTreeMap<u64, KeptDecision>,
    /// The numbers of each user's, oldest first.
    of_users: BTreeMap<Option<u32>, VecDeque<u64>>,
    /// What became of those that are forgotten.
    forgotten: BTreeMap<String, DecisionTally>,
    /// Numbers of those that have changed since they were taken for the archive.
    changed: BTreeSet<u64>,
    /// Decisions that were forgotten, and those of them that no archive has.
    pub forgotten_count: u64,
    pub unarchived: u64,
    /// Number of changes so far.
    pub changes: u64,
}

impl DecisionTally {
    /// Counts a decision.
    pub(crate) fn count(&mut self, decision: &Decision) {
        *self
            .outcomes
            .entry(outcome(&decision.outcome).0)
            .or_default() += 1;
        self.last = self.last.max(Some((decision.made_ns, decision.id)));
    }

    /// Adds the counts of another one.
    pub(crate) fn add(&mut self, other: &Self) {
        for (outcome, count) in &other.outcomes {
            *self.outcomes.entry(outcome).or_default() += count;
        }
        self.last = self.last.max(other.last);
    }
}

impl DecisionBook {
    /// Keeps a decision.
    pub(crate) fn keep(&mut self, kept: KeptDecision) {
        let (id, uid) = (kept.decision.id, kept.uid);
        self.changes += 1;
        self.changed.insert(id);
        self.kept.insert(id, kept);
        self.of_users.entry(uid).or_default().push_back(id);
        if self.of_users.get(&uid).map_or(0, VecDeque::len) > DECISIONS_OF_USER_MAX {
            self.forget(uid);
        }
        if self.kept.len() > DECISIONS_MAX {
            let most = self.of_users.iter().max_by_key(|(_, ids)| ids.len());
            if let Some(most) = most.map(|(uid, _)| *uid) {
                self.forget(most);
            }
        }
    }

    /// Forgets the oldest decision of a user.
    fn forget(&mut self, uid: Option<u32>) {
        let Some(ids) = self.of_users.get_mut(&uid) else {
            return;
        };
        let oldest = ids.pop_front();
        if ids.is_empty() {
            self.of_users.remove(&uid);
        }
        let Some((id, gone)) = oldest.and_then(|id| Some((id, self.kept.remove(&id)?))) else {
            return;
        };
        self.forgotten_count += 1;
        self.unarchived += u64::from(self.changed.remove(&id));
        let tally = self.forgotten.entry(gone.decision.controller.clone());
        tally.or_default().count(&gone.decision);
    }

    /// A decision that is about to be changed.
    pub(crate) fn get_mut(&mut self, id: u64) -> Option<&mut Decision> {
        let kept = self.kept.get_mut(&id)?;
        self.changes += 1;
        self.changed.insert(id);
        Some(&mut kept.decision)
    }

    /// The decisions of a user, or of all, oldest first.
    pub(crate) fn of(&self, user: Option<Option<u32>>) -> impl Iterator<Item = &KeptDecision> {
        let all = self.kept.values();
        all.filter(move |kept| user.is_none_or(|user| user == kept.uid))
    }

    /// Takes those that have changed since the last call.
    pub(crate) fn take_changed(&mut self) -> Vec<KeptDecision> {
        let changed = std::mem::take(&mut self.changed).into_iter();
        changed
            .filter_map(|id| self.kept.get(&id).cloned())
            .collect()
    }

    /// What a controller has decided.
    pub(crate) fn tally(&self, controller: &str) -> DecisionTally {
        let mut tally = self.forgotten.get(controller).cloned().unwrap_or_default();
        let kept = self.kept.values();
        kept.filter(|kept| kept.decision.controller == controller)
            .for_each(|kept| tally.count(&kept.decision));
        tally
    }
}

impl KeptDecision {
    /// The row in which it is told, with the name of its user.
    pub(crate) fn row(&self, user: &str) -> DecisionsRow {
        let decision = &self.decision;
        let value = |value: &DecisionValue| json!(value);
        let list = |items: Json| match items {
            Json::Array(items) => items,
            _ => Vec::new(),
        };
        let inputs = decision.inputs.iter();
        let (outcome, outcome_reason) = outcome(&decision.outcome);
        DecisionsRow {
            id: decision.id,
            plan: self.plan,
            made_ts: decision.made_ns,
            controller: decision.controller.clone(),
            device: self.device.clone(),
            user: user.to_owned(),
            label: self.label.clone(),
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
}

/// The row as JSON for the archive: of one that is too long, alternatives, limits and inputs are
/// left out, in this order and the last ones first, and then its texts; what was left out is
/// counted.
pub(crate) fn archived(mut row: DecisionsRow) -> String {
    loop {
        let text = json!(row).to_string();
        if text.len() <= ROW_BYTES_MAX {
            return text;
        }
        row.dropped += 1;
        let is_smaller = row.alternatives.pop().is_some()
            || row.limits.pop().is_some()
            || row.inputs.pop_last().is_some();
        if !is_smaller {
            return json!({
                "id": row.id, "plan": row.plan, "made_ts": row.made_ts, "controller": row.controller,
                "outcome": row.outcome, "value": row.value, "dropped": row.dropped,
            })
            .to_string();
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(id: u64, uid: u32) -> KeptDecision {
        KeptDecision {
            uid: Some(uid),
            device: "scratch".into(),
            label: "solver".into(),
            plan: id,
            decision: Decision::new(id, id as i64, "io-schedule/scratch", "solver", 1.0),
        }
    }

    #[test]
    fn one_user_does_not_push_out_others_and_all_are_counted() {
        let mut book = DecisionBook::default();
        for id in 0..60 {
            book.keep(kept(id, id as u32 % 20));
        }
        for id in 60..5_000 {
            book.keep(kept(id, 100));
        }
        assert_eq!(book.of(Some(Some(7))).count(), 3);
        assert_eq!(book.of(Some(Some(100))).count(), DECISIONS_OF_USER_MAX);
        for id in 5_000..50_000 {
            book.keep(kept(id, id as u32 % 500));
        }
        assert_eq!(book.of(None).count(), DECISIONS_MAX);
        let tally = book.tally("io-schedule/scratch");
        assert_eq!(tally.outcomes, BTreeMap::from([("proposed", 50_000)]));
        assert_eq!(tally.last, Some((49_999, 49_999)));
        assert_eq!(book.tally("weight"), DecisionTally::default());
        // Nobody has taken one for the archive.
        assert_eq!(book.unarchived, book.forgotten_count);
        assert_eq!(book.take_changed().len(), DECISIONS_MAX);
        assert_eq!(book.take_changed(), []);
    }

    #[test]
    fn what_has_changed_is_taken_once() {
        let mut book = DecisionBook::default();
        book.keep(kept(1, 1));
        book.keep(kept(2, 1));
        assert_eq!(book.take_changed().len(), 2);
        book.get_mut(2).unwrap().revert("nothing was done");
        assert!(book.get_mut(3).is_none());
        let ids: Vec<u64> = book.take_changed().iter().map(|it| it.plan).collect();
        assert_eq!(ids, [2]);
    }

    #[test]
    fn a_row_that_is_too_long_for_the_archive_loses_its_least_part() {
        let mut one = kept(1, 1);
        for n in 0..30 {
            let alternative = barograph_control::Alternative {
                what: format!("application {n} first"),
                why_not: "x".repeat(400),
            };
            let name = format!("input {n}");
            one.decision = one.decision.input(&name, 1.0).alternative(&alternative);
        }
        let text = archived(one.row("ada"));
        assert!(text.len() <= ROW_BYTES_MAX, "{}", text.len());
        let row: DecisionsRow = serde_json::from_str(&text).unwrap();
        assert_eq!(row.inputs.len(), 30, "inputs come last");
        assert_eq!(row.dropped as usize, 30 - row.alternatives.len());
        assert!(!row.alternatives.is_empty());
    }
}

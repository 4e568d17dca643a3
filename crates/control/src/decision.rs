//! Decisions: what a controller proposed, from which inputs, what it might have done instead, which
//! limits cut it, what was done and what came of it.
//!
//! It is a file of its own because every controller keeps the same record, and because a decision
//! that is made and one that is carried out are two things: a dry run is a decision that is not
//! carried out. Each decision is one row of JSON.

use std::collections::BTreeMap;

use barograph_model::cut;
use serde::{Deserialize, Serialize};

/// Most bytes of each text of a decision; longer ones are cut.
const TEXT_BYTES_MAX: usize = 512;
/// Most inputs, alternatives and limits of one decision, each; those beyond are counted.
const PARTS_MAX: usize = 32;

/// A value of a decision. Numbers are finite: others are texts, since JSON has no word for them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum DecisionValue {
    /// A finite number.
    Number(f64),
    /// A text, or a number that is not finite (`NaN`, `inf`).
    Text(String),
}

impl From<f64> for DecisionValue {
    fn from(value: f64) -> Self {
        match value.is_finite() {
            true => Self::Number(value),
            false => Self::Text(value.to_string()),
        }
    }
}

impl From<&str> for DecisionValue {
    fn from(text: &str) -> Self {
        Self::Text(cut(text.to_owned(), TEXT_BYTES_MAX))
    }
}

/// Something that could have been done instead.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// What would have been done.
    pub what: String,
    /// Why it was not done.
    pub why_not: String,
}

/// A limit that cut a proposal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecisionLimit {
    /// The name of the limit.
    pub limit: String,
    /// The proposal before it.
    pub before: DecisionValue,
    /// The proposal after it.
    pub after: DecisionValue,
}

/// The way in which controllers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlMode {
    /// Decisions are made and carried out.
    Live,
    /// Decisions are made and recorded only.
    DryRun,
}

/// What was done about a decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum DecisionOutcome {
    /// It was made, and nothing was done yet.
    Proposed,
    /// It would have been carried out, but the controller is in a dry run.
    DryRun,
    /// It was carried out.
    Done,
    /// It was put off, for the reason given.
    Deferred {
        /// The reason.
        reason: String,
    },
    /// Carrying it out failed.
    Failed {
        /// The reason.
        reason: String,
    },
    /// It was carried out and taken back.
    Reverted {
        /// The reason.
        reason: String,
    },
}

/// What was observed after a decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecisionEffect {
    /// The time of the observation, in ns since the epoch.
    pub observed_ns: i64,
    /// What was observed, with its unit, for example `read bytes/s`.
    pub measure: String,
    /// The value before the decision took effect.
    pub before: DecisionValue,
    /// The value after it.
    pub after: DecisionValue,
}

/// The record of one decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The number of the decision, given by the caller.
    pub id: u64,
    /// The time at which it was made, in ns since the epoch.
    pub made_ns: i64,
    /// The name of the controller, for example `augmentation`.
    pub controller: String,
    /// What it is about: a stream, a device or a control group.
    pub subject: String,
    /// The proposal of the policy, before limits.
    pub proposed: DecisionValue,
    /// The value that is or would be carried out, after limits.
    pub value: DecisionValue,
    /// The reason for the proposal, as a sentence.
    pub reason: String,
    /// The inputs by name, with units in their names.
    pub inputs: BTreeMap<String, DecisionValue>,
    /// What was considered and not proposed.
    pub alternatives: Vec<Alternative>,
    /// The limits that cut the proposal, in their order.
    pub limits: Vec<DecisionLimit>,
    /// What was done.
    pub outcome: DecisionOutcome,
    /// What came of it, once that was observed.
    pub effect: Option<DecisionEffect>,
    /// Inputs, alternatives and limits that had no room.
    pub dropped: u64,
}

impl Decision {
    /// A decision that was made and not carried out yet.
    pub fn new(id: u64, made_ns: i64, controller: &str, subject: &str, proposed: f64) -> Self {
        Self {
            id,
            made_ns,
            controller: text(controller),
            subject: text(subject),
            proposed: proposed.into(),
            value: proposed.into(),
            reason: String::new(),
            inputs: BTreeMap::new(),
            alternatives: Vec::new(),
            limits: Vec::new(),
            outcome: DecisionOutcome::Proposed,
            effect: None,
            dropped: 0,
        }
    }

    /// The decision with its reason.
    #[must_use]
    pub fn because(mut self, reason: &str) -> Self {
        self.reason = text(reason);
        self
    }

    /// The decision with one more input. A name that is given again replaces the value.
    #[must_use]
    pub fn input(mut self, name: &str, value: impl Into<DecisionValue>) -> Self {
        let name = text(name);
        if self.inputs.len() < PARTS_MAX || self.inputs.contains_key(&name) {
            self.inputs.insert(name, value.into());
        } else {
            self.dropped += 1;
        }
        self
    }

    /// The decision with one more alternative.
    #[must_use]
    pub fn alternative(mut self, alternative: &Alternative) -> Self {
        if self.alternatives.len() < PARTS_MAX {
            self.alternatives.push(Alternative {
                what: text(&alternative.what),
                why_not: text(&alternative.why_not),
            });
        } else {
            self.dropped += 1;
        }
        self
    }

    /// The value that is or would be carried out, as a number; `None` if it is not a finite one.
    pub fn number(&self) -> Option<f64> {
        match self.value {
            DecisionValue::Number(value) => Some(value),
            DecisionValue::Text(_) => None,
        }
    }

    /// Cuts the value to `min..=max`, and records the limit if it changed the value. A value that
    /// is not a finite number becomes `min`, the end that asks for least. Ends that are not in
    /// order, or not finite, change nothing.
    pub fn limit(&mut self, limit: &str, min: f64, max: f64) {
        if !(min.is_finite() && max.is_finite() && min <= max) {
            return;
        }
        let after = self.number().map_or(min, |value| value.clamp(min, max));
        let after = DecisionValue::from(after);
        if after == self.value {
            return;
        }
        let before = std::mem::replace(&mut self.value, after.clone());
        if self.limits.len() < PARTS_MAX {
            let limit = text(limit);
            self.limits.push(DecisionLimit {
                limit,
                before,
                after,
            });
        } else {
            self.dropped += 1;
        }
    }

    /// Carries the decision out by `act`, and records what came of that. In a dry run, and for a
    /// value that is not a finite number, `act` is not called; nor is it for a decision that was
    /// carried out already.
    pub fn carry_out(
        &mut self,
        mode: ControlMode,
        act: impl FnOnce(f64) -> Result<DecisionOutcome, String>,
    ) {
        if self.outcome != DecisionOutcome::Proposed {
            return;
        }
        self.outcome = match (mode, self.number()) {
            (_, None) => failed("the value is not a finite number"),
            (ControlMode::DryRun, Some(_)) => DecisionOutcome::DryRun,
            (ControlMode::Live, Some(value)) => act(value).unwrap_or_else(|reason| failed(&reason)),
        };
    }

    /// Records that a decision that was carried out was taken back. One that was not carried out is
    /// left as it is.
    pub fn revert(&mut self, reason: &str) {
        if self.outcome == DecisionOutcome::Done {
            let reason = text(reason);
            self.outcome = DecisionOutcome::Reverted { reason };
        }
    }

    /// Records that a decision that was put off is carried out now. Any other is left as it is.
    pub fn resume(&mut self) {
        if matches!(self.outcome, DecisionOutcome::Deferred { .. }) {
            self.outcome = DecisionOutcome::Done;
        }
    }

    /// Records what was observed afterwards. A later observation replaces an earlier one.
    pub fn observe(&mut self, observed_ns: i64, measure: &str, before: f64, after: f64) {
        self.effect = Some(DecisionEffect {
            observed_ns,
            measure: text(measure),
            before: before.into(),
            after: after.into(),
        });
    }

    /// The decision as one line of JSON.
    pub fn row(&self) -> String {
        serde_json::to_string(self).expect("texts and finite numbers are JSON")
    }

    /// A decision from its row.
    ///
    /// # Errors
    ///
    /// The row is not one of a decision.
    pub fn from_row(row: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(row)
    }
}

fn text(text: &str) -> String {
    cut(text.to_owned(), TEXT_BYTES_MAX)
}

fn failed(reason: &str) -> DecisionOutcome {
    let reason = text(reason);
    DecisionOutcome::Failed { reason }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decision(proposed: f64) -> Decision {
        Decision::new(7, 1_000, "weight", "jobs/a", proposed)
    }

    #[test]
    fn a_limit_that_cuts_is_recorded_and_one_that_does_not_is_not() {
        let table = [
            (500.0, 1.0, 1_000.0, 500.0, 0),
            (5_000.0, 1.0, 1_000.0, 1_000.0, 1),
            (0.0, 1.0, 1_000.0, 1.0, 1),
            (f64::NAN, 1.0, 1_000.0, 1.0, 1),
            (f64::INFINITY, 1.0, 1_000.0, 1.0, 1),
            (500.0, 1_000.0, 1.0, 500.0, 0),
            (500.0, f64::NAN, 1.0, 500.0, 0),
        ];
        for (proposed, min, max, expect, cuts) in table {
            let mut decision = decision(proposed);
            decision.limit("range", min, max);
            assert_eq!(decision.number(), Some(expect), "{proposed} in {min} {max}");
            assert_eq!(decision.limits.len(), cuts, "{proposed} in {min} {max}");
            assert_eq!(decision.proposed, DecisionValue::from(proposed));
        }
    }

    #[test]
    fn a_dry_run_does_nothing_and_is_recorded_as_such() {
        let mut calls = Vec::new();
        for (mode, proposed, expect) in [
            (ControlMode::DryRun, 300.0, "dry_run"),
            (ControlMode::Live, 300.0, "done"),
            (ControlMode::Live, f64::NAN, "failed"),
        ] {
            let mut decision = decision(proposed);
            decision.carry_out(mode, |value| {
                calls.push(value);
                Ok(DecisionOutcome::Done)
            });
            assert!(decision.row().contains(expect), "{}", decision.row());
            // What has an outcome is not carried out again.
            decision.carry_out(ControlMode::Live, |_| Err("called twice".into()));
            assert!(!decision.row().contains("called twice"));
        }
        assert_eq!(calls, [300.0]);
    }

    #[test]
    fn failures_and_reversals_have_their_reason() {
        let mut decision = decision(300.0);
        decision.carry_out(ControlMode::Live, |_| Err("the group is gone".into()));
        decision.revert("nothing to take back");
        let reason = "the group is gone".to_owned();
        assert_eq!(decision.outcome, DecisionOutcome::Failed { reason });

        let mut decision = self::decision(300.0);
        decision.carry_out(ControlMode::Live, |_| Ok(DecisionOutcome::Done));
        decision.revert("slower than before");
        let reason = "slower than before".to_owned();
        assert_eq!(decision.outcome, DecisionOutcome::Reverted { reason });
    }

    #[test]
    fn a_decision_is_bounded_and_says_what_it_dropped() {
        let long = "ä".repeat(10_000);
        let alternative = Alternative {
            what: long.clone(),
            why_not: long.clone(),
        };
        let mut decision = decision(1.0).because(&long);
        for index in 0..100 {
            decision = decision
                .input(&format!("input {index}"), &*long)
                .alternative(&alternative);
            decision.limit("rising", f64::from(index), 1e9);
        }
        assert_eq!(decision.inputs.len(), PARTS_MAX);
        assert_eq!(decision.alternatives.len(), PARTS_MAX);
        assert_eq!(decision.limits.len(), PARTS_MAX);
        // The limits 0 and 1 cut nothing.
        assert_eq!(decision.dropped, 68 + 68 + 98 - PARTS_MAX as u64);
        assert!(decision.row().len() < 200 * TEXT_BYTES_MAX);
        assert!(decision.reason.len() <= TEXT_BYTES_MAX);
    }

    proptest! {
        #[test]
        fn a_row_is_one_line_and_is_read_back(
            proposed in proptest::num::f64::ANY,
            input in proptest::num::f64::ANY,
            texts in proptest::array::uniform3(".*"),
            max in -1e6..1e6_f64,
        ) {
            let alternative = Alternative { what: texts[0].clone(), why_not: texts[1].clone() };
            let mut decision = decision(proposed)
                .because(&texts[1])
                .input(&texts[2], input)
                .input("text", &*texts[0])
                .alternative(&alternative);
            decision.limit(&texts[2], -1e6, max);
            decision.carry_out(ControlMode::Live, |_| Err(texts[0].clone()));
            decision.observe(5, &texts[1], input, proposed);
            let row = decision.row();
            prop_assert!(!row.contains('\n'));
            prop_assert_eq!(Decision::from_row(&row).unwrap(), decision);
        }
    }
}

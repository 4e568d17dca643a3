//! Reports of rules, in words and numbers.

use super::{Rule, Rules};
use crate::event_rule::ActionLimits;
use crate::report::{RuleReport, RuleState};

impl Rules {
    /// The rules that do something else than a call, with the limits on doing it.
    pub fn actions(&self) -> impl Iterator<Item = (&str, &ActionLimits)> {
        let rules = self.rules.iter().flatten();
        rules.filter_map(|rule| {
            let action = rule.definition.action.as_ref()?;
            Some((rule.definition.name.as_str(), &action.limits))
        })
    }
}

impl Rule {
    /// The number of subjects.
    pub(super) fn count(&self) -> usize {
        self.subjects.len() - self.free.len()
    }

    pub(super) fn report(&self, now_ns: i64) -> RuleReport {
        let subjects = || self.subjects.iter().flatten();
        let holding = subjects().filter(|s| s.was_true).count();
        let beyond = self.matching[self.first].len() - self.of_key.len();
        let left_out: u64 = subjects().map(|s| s.left_out).sum();
        let fault = subjects().find_map(|s| s.fault);
        let count = self.count();
        let state = match (&fault, count) {
            (Some(_), _) => RuleState::Failed,
            (None, _) if !self.reason.is_empty() => RuleState::Failed,
            (None, 0) => RuleState::Waiting,
            _ if holding > 0 => RuleState::Holding,
            _ => RuleState::Armed,
        };
        let mut reasons = Vec::new();
        // Without the names of streams: not all who read this may read them.
        reasons.extend(fault.map(|fault| format!("the condition: {fault}")));
        if !self.reason.is_empty() {
            reasons.push(self.reason.clone());
        }
        if state == RuleState::Waiting {
            let first = &self.definition.leaves[self.first];
            reasons.push(match first.of.is_forecast() {
                true => format!(
                    "no stream is {}: `[forecast] streams` of barograph.toml has those that are forecast",
                    first.selector
                ),
                false => format!("no stream is {}", first.selector),
            });
        }
        if beyond > 0 {
            reasons.push(format!("{beyond} streams are beyond the bound of subjects"));
        }
        if left_out > 0 {
            reasons.push(format!(
                "{left_out} streams that it could read are left out"
            ));
        }
        if let Some((reason, until_ns)) = &self.unfilled
            && now_ns < *until_ns
        {
            reasons.push(format!("windows begin with what the rings hold: {reason}"));
        }
        RuleReport {
            name: self.definition.name.to_string(),
            sql: self.definition.sql.clone(),
            help: self.definition.help.clone(),
            call: self.definition.call.clone(),
            state,
            reason: reasons.join("; "),
            subjects: count,
            holding,
            beyond,
            left_out,
            fired: self.fired,
            suppressed: self.suppressed,
            failed: self.failed,
            missed: self.missed,
            evaluations: self.evaluations,
            made_ns: self.made_ns,
            last_fired_ns: self.last_fired_ns,
        }
    }
}

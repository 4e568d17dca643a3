//! All rules on events, changed by statements and evaluated on events.

use barograph_model::near;
use barograph_statement::{StatementError, StatementOutcome};

use super::columns::{EventFacts, EventRow};
use super::explain::{self, Explanation};
use super::index::RuleIndex;
use super::known::{EventFiring, EventRuleReport, KnownRule};
use super::recent::RecentActions;
use super::statement::EventRuleStatement;
use super::{EventRule, EventRuleLimits};

/// All rules on events.
///
/// It reads no clock and no file. An event costs as much as the rules whose kind, source and
/// beginning of the path are those of the event; the others are not looked at.
#[derive(Debug)]
pub struct EventRules {
    limits: EventRuleLimits,
    rules: Vec<KnownRule>,
    /// The index of the rules; `None` after a change until the next event.
    index: Option<RuleIndex>,
    recent: RecentActions,
    events: u64,
    looked_at: u64,
    found: Vec<u32>,
}

impl EventRules {
    /// Makes a set without rules.
    pub fn new(limits: EventRuleLimits) -> Self {
        Self {
            recent: RecentActions::new(limits.recent.clone()),
            limits,
            rules: Vec::new(),
            index: None,
            events: 0,
            looked_at: 0,
            found: Vec::new(),
        }
    }

    /// Carries out `CREATE RULE … ON EVENT …` or `DROP RULE …`. A rule that is replaced begins
    /// anew.
    ///
    /// # Errors
    ///
    /// The statement is wrong, or the rule exists or is missing.
    pub fn execute(&mut self, sql: &str) -> Result<StatementOutcome, StatementError> {
        match EventRuleStatement::parse(sql)? {
            EventRuleStatement::Create { or_replace, rule } => {
                let name = rule.name.clone();
                self.add(*rule, or_replace)?;
                Ok(StatementOutcome::Created(name))
            }
            EventRuleStatement::Drop { name, if_exists } => {
                self.drop_rule(&name, if_exists)?;
                Ok(StatementOutcome::Dropped(name))
            }
        }
    }

    /// Adds a rule, or replaces the one of its name.
    ///
    /// # Errors
    ///
    /// There is a rule of this name which is not to be replaced, or there are too many rules.
    pub fn add(&mut self, rule: EventRule, or_replace: bool) -> Result<(), StatementError> {
        let place = self.place(&rule.name);
        if place.is_some() && !or_replace {
            return Err(StatementError::new(format!(
                "{} is the name of a rule: CREATE OR REPLACE it, or drop it first",
                rule.name
            )));
        }
        if place.is_none() && self.rules.len() >= self.limits.rules_max {
            return Err(StatementError::Limit {
                what: "rules on events".into(),
                max: self.limits.rules_max,
                limit: "rules_max",
            });
        }
        let rule = KnownRule::new(rule);
        match place {
            Some(at) => self.rules[at] = rule,
            None => self.rules.push(rule),
        }
        self.index = None;
        Ok(())
    }

    /// Drops the rule of this name.
    ///
    /// # Errors
    ///
    /// There is no such rule, and `if_exists` is false.
    pub fn drop_rule(&mut self, name: &str, if_exists: bool) -> Result<(), StatementError> {
        match self.place(name) {
            Some(at) => {
                self.rules.remove(at);
                self.index = None;
                Ok(())
            }
            None if if_exists => Ok(()),
            None => {
                let known = self.rules.iter().map(|known| known.rule.name.as_str());
                Err(StatementError::new(match near(name, known).as_slice() {
                    [] => format!("there is no rule {name} on events"),
                    near => format!(
                        "there is no rule {name} on events: did you mean {}?",
                        near.join(" or ")
                    ),
                }))
            }
        }
    }

    /// Takes an event and hands over each rule that fires for it, in the order in which the rules
    /// were made. Each event is to be handed over once.
    pub fn evaluate(
        &mut self,
        event: &EventFacts<'_>,
        fire: &mut dyn FnMut(&EventRule, &EventFiring<'_>),
    ) {
        self.events += 1;
        let rules = &self.rules;
        let index = self.index.get_or_insert_with(|| {
            RuleIndex::new(rules.iter().map(|known| &known.rule).enumerate())
        });
        let row = EventRow::new(event);
        index.find(&row, &mut self.found);
        self.looked_at += self.found.len() as u64;
        for at in &self.found {
            if let Some(known) = self.rules.get_mut(*at as usize) {
                known.take(&row, &self.recent, fire);
            }
        }
    }

    /// Has a rule on a schedule fire, since its time has come. `event` has that time, and fields
    /// for the action.
    pub fn evaluate_time(
        &mut self,
        rule: &str,
        event: &EventFacts<'_>,
        fire: &mut dyn FnMut(&EventRule, &EventFiring<'_>),
    ) {
        if let Some(place) = self.place(rule) {
            self.rules[place].take_time(event, fire);
        }
    }

    /// Takes an event as [`EventRules::evaluate`] does, and looks at every rule.
    #[cfg(test)]
    pub(super) fn evaluate_all(
        &mut self,
        event: &EventFacts<'_>,
        fire: &mut dyn FnMut(&EventRule, &EventFiring<'_>),
    ) {
        let row = EventRow::new(event);
        for known in &mut self.rules {
            let kinds = super::columns::KindSet::of(event);
            if known.rule.kinds.meets(kinds) && known.rule.takes_source(event) {
                known.take(&row, &self.recent, fire);
            }
        }
    }

    /// Explains why a rule would fire for an event or not, if the event came now; `None` if there
    /// is no such rule. Nothing changes.
    pub fn explain(&self, rule: &str, event: &EventFacts<'_>) -> Option<Vec<Explanation>> {
        let known = &self.rules[self.place(rule)?];
        Some(explain::explain(known, event, &self.recent))
    }

    /// The recent actions, by which a rule knows what its own actions do.
    pub fn recent(&mut self) -> &mut RecentActions {
        &mut self.recent
    }

    /// The rule of this name.
    pub fn get(&self, name: &str) -> Option<&EventRule> {
        self.place(name).map(|at| &self.rules[at].rule)
    }

    /// All rules, in the order in which they were made.
    pub fn list(&self) -> impl ExactSizeIterator<Item = &EventRule> {
        self.rules.iter().map(|known| &known.rule)
    }

    /// The number of rules.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The number of events that were taken, and of the rules that were looked at for them.
    pub fn looks(&self) -> (u64, u64) {
        (self.events, self.looked_at)
    }

    /// The counts of all rules, by name.
    pub fn reports(&self) -> Vec<EventRuleReport> {
        let mut reports: Vec<_> = self.rules.iter().map(KnownRule::report).collect();
        reports.sort_by(|a, b| a.name.cmp(&b.name));
        reports
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.rules.iter().position(|known| known.rule.name == name)
    }
}

#[cfg(test)]
mod tests;

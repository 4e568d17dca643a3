//! All rules on events, changed by statements and evaluated on events.

use barograph_model::near;
use barograph_statement::{EvalFault, StatementError, StatementOutcome};

use super::columns::{EventFacts, EventRow, EventValues};
use super::count::CountWindow;
use super::explain::{self, Explanation};
use super::index::RuleIndex;
use super::recent::RecentActions;
use super::statement::EventRuleStatement;
use super::{EventClause, EventRule, EventRuleLimits};

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

/// A rule that fires.
#[derive(Clone, Copy, Debug)]
pub struct EventFiring<'a> {
    /// The event.
    pub event: &'a EventFacts<'a>,
    /// The number of firings of the rule since it was made, with this one.
    pub number: u64,
    /// The lengths of the windows of WHEN, in ns, each with the number of its events.
    pub windows_ns: &'a [i64],
    /// The numbers of events in these windows, with this event.
    pub counts: &'a [u64],
}

/// The counts of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRuleReport {
    /// The name of the rule.
    pub name: String,
    /// The statement that made it.
    pub sql: String,
    /// The purpose of the rule; may be empty.
    pub help: String,
    /// The hash of the statement.
    pub version: u64,
    /// Events of its kinds and sources for which WHERE held, without effects of its own actions.
    pub matched: u64,
    /// The number of firings.
    pub fired: u64,
    /// Events that matched in a cooldown, and for which it would have fired otherwise.
    pub suppressed: u64,
    /// Events for which it did not fire because its own actions caused them.
    pub own_effects: u64,
    /// Events for which a condition could not be computed.
    pub failed: u64,
    /// The reason why a condition could not be computed last; empty if there was none.
    pub fault: String,
    /// The time of the event of its last firing, in ns since the epoch.
    pub last_fired_ns: Option<i64>,
    /// The time of the last event that its own actions caused, in ns since the epoch.
    pub last_own_effect_ns: Option<i64>,
}

#[derive(Debug)]
pub(super) struct KnownRule {
    pub rule: EventRule,
    pub windows: Vec<CountWindow>,
    /// Room for the counts of the windows.
    counts: Vec<u64>,
    pub fired_ns: Option<i64>,
    matched: u64,
    fired: u64,
    suppressed: u64,
    own_effects: u64,
    failed: u64,
    fault: Option<EvalFault>,
    own_effect_ns: Option<i64>,
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

    /// Carries out `CREATE RULE … ON EVENT …` or `DROP RULE …`. A rule that is replaced begins anew.
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

    /// Takes an event as [`EventRules::evaluate`] does, and looks at every rule.
    #[cfg(test)]
    pub(super) fn evaluate_all(
        &mut self,
        event: &EventFacts<'_>,
        fire: &mut dyn FnMut(&EventRule, &EventFiring<'_>),
    ) {
        let row = EventRow::new(event);
        for known in &mut self.rules {
            let kind = super::columns::KindSet::place(event.kind);
            if kind.is_some_and(|kind| known.rule.kinds.has(kind)) && known.rule.takes_source(event)
            {
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

impl EventRule {
    /// Whether the rule takes events of the source of this one.
    pub(super) fn takes_source(&self, event: &EventFacts<'_>) -> bool {
        self.sources.is_empty() || self.sources.iter().any(|source| source == event.source)
    }

    /// Whether a firing at `ts` is within the cooldown of one at `fired_ns`.
    pub(super) fn is_cooling(&self, fired_ns: Option<i64>, ts: i64) -> bool {
        fired_ns.is_some_and(|fired_ns| fired_ns.abs_diff(ts) < self.cooldown_ns.unsigned_abs())
    }
}

impl KnownRule {
    fn new(rule: EventRule) -> Self {
        let windows = rule.windows_ns.iter().map(|ns| CountWindow::new(*ns));
        Self {
            windows: windows.collect(),
            counts: Vec::with_capacity(rule.windows_ns.len()),
            rule,
            fired_ns: None,
            matched: 0,
            fired: 0,
            suppressed: 0,
            own_effects: 0,
            failed: 0,
            fault: None,
            own_effect_ns: None,
        }
    }

    /// Takes an event of a kind and source of the rule.
    fn take(
        &mut self,
        row: &EventRow<'_>,
        recent: &RecentActions,
        fire: &mut dyn FnMut(&EventRule, &EventFiring<'_>),
    ) {
        let (event, ts) = (row.facts, row.facts.ts);
        self.counts.clear();
        if !self.holds(|rule| &rule.conditions, row) {
            return;
        }
        if recent.is_effect(&self.rule.name, event) {
            self.own_effects += 1;
            self.own_effect_ns = Some(ts);
            return;
        }
        self.matched += 1;
        for window in &mut self.windows {
            window.add(ts);
            self.counts.push(window.count(ts));
        }
        if !self.holds(|rule| &rule.counts, row) {
            return;
        }
        if self.rule.is_cooling(self.fired_ns, ts) {
            self.suppressed += 1;
            return;
        }
        self.fired_ns = Some(ts);
        self.fired += 1;
        let firing = EventFiring {
            event,
            number: self.fired,
            windows_ns: &self.rule.windows_ns,
            counts: &self.counts,
        };
        fire(&self.rule, &firing);
    }

    /// Whether all parts of a condition are true; a fault is counted.
    fn holds(&mut self, parts: fn(&EventRule) -> &[EventClause], row: &EventRow<'_>) -> bool {
        let counts = &self.counts;
        for part in parts(&self.rule) {
            if part.glob.as_ref().is_some_and(|glob| !glob.may_hold(row)) {
                return false;
            }
            match part.expr.holds(EventValues { row, counts }) {
                Ok((true, _)) => {}
                Ok((false, _)) => return false,
                Err(fault) => {
                    self.failed += 1;
                    self.fault = Some(fault);
                    return false;
                }
            }
        }
        true
    }

    fn report(&self) -> EventRuleReport {
        EventRuleReport {
            name: self.rule.name.clone(),
            sql: self.rule.sql.clone(),
            help: self.rule.help.clone(),
            version: self.rule.version,
            matched: self.matched,
            fired: self.fired,
            suppressed: self.suppressed,
            own_effects: self.own_effects,
            failed: self.failed,
            fault: self.fault.unwrap_or_default().to_owned(),
            last_fired_ns: self.fired_ns,
            last_own_effect_ns: self.own_effect_ns,
        }
    }
}

#[cfg(test)]
mod tests;

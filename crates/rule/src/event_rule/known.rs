//! One rule with its windows and counts: whether it fires for an event.
//!
//! It stands alone because the set of rules decides which rules are looked at for an event; this
//! file looks at one.

use barograph_statement::EvalFault;

use super::columns::{EventFacts, EventRow, EventValues};
use super::count::CountWindow;
use super::recent::RecentActions;
use super::{EventClause, EventRule};

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
    /// Whether its breaker has stopped it.
    pub is_broken: bool,
    /// Events that matched since then, and for which it might have fired.
    pub passed_over: u64,
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
    /// The firings that the breaker counts; `None` without a breaker.
    firings: Option<CountWindow>,
    is_broken: bool,
    passed_over: u64,
    failed: u64,
    fault: Option<EvalFault>,
    own_effect_ns: Option<i64>,
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
    pub(super) fn new(rule: EventRule) -> Self {
        let windows = rule.windows_ns.iter().map(|ns| CountWindow::new(*ns));
        Self {
            windows: windows.collect(),
            counts: Vec::with_capacity(rule.windows_ns.len()),
            firings: rule
                .limits
                .breaker
                .map(|rate| CountWindow::new(rate.per_ns)),
            rule,
            fired_ns: None,
            matched: 0,
            fired: 0,
            suppressed: 0,
            own_effects: 0,
            is_broken: false,
            passed_over: 0,
            failed: 0,
            fault: None,
            own_effect_ns: None,
        }
    }

    /// Takes an event of a kind and source of the rule.
    pub(super) fn take(
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
        self.fire(event, fire);
    }

    /// Fires since its time has come, which `event` tells.
    pub(super) fn take_time(
        &mut self,
        event: &EventFacts<'_>,
        fire: &mut dyn FnMut(&EventRule, &EventFiring<'_>),
    ) {
        self.counts.clear();
        self.matched += 1;
        match self.rule.is_cooling(self.fired_ns, event.ts) {
            true => self.suppressed += 1,
            false => self.fire(event, fire),
        }
    }

    /// Fires, unless its breaker has stopped it or does so now.
    fn fire(&mut self, event: &EventFacts<'_>, fire: &mut dyn FnMut(&EventRule, &EventFiring<'_>)) {
        if let Some((breaker, firings)) = self.rule.limits.breaker.zip(self.firings.as_mut())
            && !self.is_broken
        {
            firings.add(event.ts);
            self.is_broken = firings.count(event.ts) > u64::from(breaker.count_max);
        }
        if self.is_broken {
            self.passed_over += 1;
            return;
        }
        self.fired_ns = Some(event.ts);
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

    pub(super) fn report(&self) -> EventRuleReport {
        EventRuleReport {
            name: self.rule.name.clone(),
            sql: self.rule.sql.clone(),
            help: self.rule.help.clone(),
            version: self.rule.version,
            matched: self.matched,
            fired: self.fired,
            suppressed: self.suppressed,
            own_effects: self.own_effects,
            is_broken: self.is_broken,
            passed_over: self.passed_over,
            failed: self.failed,
            fault: self.fault.unwrap_or_default().to_owned(),
            last_fired_ns: self.fired_ns,
            last_own_effect_ns: self.own_effect_ns,
        }
    }
}

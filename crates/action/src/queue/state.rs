//! What the queue knows in memory of its file: rules, origins, counts and leases.
//!
//! Nothing here changes before a transaction is committed: a transaction collects [`Changes`],
//! which are taken over afterwards, so that a failed one leaves no trace.

use std::collections::BTreeMap;

use rusqlite::Connection;

/// State of an action, as the file has it.
pub(super) const WAITING: i64 = 0;
pub(super) const LEASED: i64 = 1;
pub(super) const DONE: i64 = 2;
pub(super) const DEAD: i64 = 3;
pub(super) const DROPPED: i64 = 4;
/// Number of the states.
const STATES: usize = 5;

/// A rule that has a row.
#[derive(Debug)]
pub(super) struct RuleState {
    pub(super) name: String,
    /// Actions in the file, by their state.
    pub(super) rows: [u64; STATES],
    pub(super) totals: RuleTotals,
}

/// What has happened to the actions of a rule, over restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RuleTotals {
    pub(super) refused: u64,
    pub(super) duplicates: u64,
    pub(super) done: u64,
    pub(super) dead: u64,
}

impl RuleTotals {
    fn add(&mut self, more: Self) {
        self.refused += more.refused;
        self.duplicates += more.duplicates;
        self.done += more.done;
        self.dead += more.dead;
    }
}

/// Version of a rule and source of its events.
pub(super) type OriginKey = (i64, u64, String);

/// A triple of rule, version and source that has a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct OriginState {
    pub(super) id: i64,
    /// The greatest number of an action that was finished and is no longer in the file.
    pub(super) forgotten: Option<u64>,
}

/// A lease that has been given.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeaseState {
    /// End of the lease by the monotonic clock, in ns: setting the system clock ends no lease.
    pub(super) end_ns: i64,
}

/// What is known of the file.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) rules: BTreeMap<i64, RuleState>,
    pub(super) rule_ids: BTreeMap<String, i64>,
    pub(super) origins: BTreeMap<OriginKey, OriginState>,
    pub(super) leases: BTreeMap<i64, LeaseState>,
}

/// What a transaction changes in the state.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) rows: BTreeMap<i64, [i64; STATES]>,
    pub(super) totals: BTreeMap<i64, RuleTotals>,
    pub(super) rules_made: BTreeMap<String, i64>,
    pub(super) rules_gone: Vec<i64>,
    pub(super) origins: BTreeMap<OriginKey, OriginState>,
    pub(super) origins_gone: Vec<OriginKey>,
    pub(super) leases: BTreeMap<i64, LeaseState>,
    pub(super) leases_gone: Vec<i64>,
    /// Finished actions that were deleted, of which dead letters.
    pub(super) forgotten: u64,
    pub(super) forgotten_dead: u64,
    pub(super) expired: u64,
    /// Greatest deleted number of each origin, which is to be written.
    pub(super) last_numbers: BTreeMap<i64, u64>,
}

impl Changes {
    /// An action has come into the state.
    pub(super) fn enters(&mut self, rule: i64, state: i64) {
        self.shift(rule, state, 1);
    }

    /// An action has left the state.
    pub(super) fn leaves(&mut self, rule: i64, state: i64) {
        self.shift(rule, state, -1);
    }

    fn shift(&mut self, rule: i64, state: i64, by: i64) {
        let rows = self.rows.entry(rule).or_default();
        if let Some(count) = usize::try_from(state).ok().and_then(|at| rows.get_mut(at)) {
            *count += by;
        }
    }
}

impl State {
    /// Reads the state from the file. `end_ns` gives the end of a lease by the monotonic clock for
    /// the end that the file has.
    pub(super) fn read(
        connection: &Connection,
        end_ns: impl Fn(i64) -> i64,
    ) -> Result<Self, rusqlite::Error> {
        let mut state = Self::default();
        let mut rules =
            connection.prepare("SELECT id, name, refused, duplicates, done, dead FROM rules")?;
        let mut rows = rules.query([])?;
        while let Some(row) = rows.next()? {
            let (id, name): (i64, String) = (row.get(0)?, row.get(1)?);
            let total = |at: usize| row.get::<_, i64>(at).map(i64::cast_unsigned);
            let totals = RuleTotals {
                refused: total(2)?,
                duplicates: total(3)?,
                done: total(4)?,
                dead: total(5)?,
            };
            state.add_rule(id, name, totals);
        }
        let mut origins =
            connection.prepare("SELECT rule, version, source, id, forgotten FROM origins")?;
        let mut rows = origins.query([])?;
        while let Some(row) = rows.next()? {
            let version: i64 = row.get(1)?;
            let forgotten: Option<i64> = row.get(4)?;
            state.origins.insert(
                (row.get(0)?, version.cast_unsigned(), row.get(2)?),
                OriginState {
                    id: row.get(3)?,
                    forgotten: forgotten.map(i64::cast_unsigned),
                },
            );
        }
        let mut counts =
            connection.prepare("SELECT rule, state, count(*) FROM actions GROUP BY 1, 2")?;
        let mut changes = Changes::default();
        let mut rows = counts.query([])?;
        while let Some(row) = rows.next()? {
            changes.shift(row.get(0)?, row.get(1)?, row.get(2)?);
        }
        let mut leases = connection.prepare("SELECT id, at_ns FROM actions WHERE state = ?1")?;
        let mut rows = leases.query([LEASED])?;
        while let Some(row) = rows.next()? {
            let end_ns = end_ns(row.get(1)?);
            changes.leases.insert(row.get(0)?, LeaseState { end_ns });
        }
        state.take(changes);
        Ok(state)
    }

    fn add_rule(&mut self, id: i64, name: String, totals: RuleTotals) {
        self.rule_ids.insert(name.clone(), id);
        let rows = [0; STATES];
        self.rules.insert(id, RuleState { name, rows, totals });
    }

    /// Takes over what a committed transaction has changed.
    pub(super) fn take(&mut self, changes: Changes) {
        for (name, id) in changes.rules_made {
            self.add_rule(id, name, RuleTotals::default());
        }
        for (rule, by) in changes.rows {
            if let Some(rule) = self.rules.get_mut(&rule) {
                for (count, by) in rule.rows.iter_mut().zip(by) {
                    *count = count.saturating_add_signed(by);
                }
            }
        }
        for (rule, more) in changes.totals {
            if let Some(rule) = self.rules.get_mut(&rule) {
                rule.totals.add(more);
            }
        }
        for key in changes.origins_gone {
            self.origins.remove(&key);
        }
        self.origins.extend(changes.origins);
        for id in changes.rules_gone {
            if let Some(rule) = self.rules.remove(&id) {
                self.rule_ids.remove(&rule.name);
            }
        }
        for id in changes.leases_gone {
            self.leases.remove(&id);
        }
        self.leases.extend(changes.leases);
    }

    /// Number of actions of a rule in a state, with what a transaction has changed.
    pub(super) fn rows(&self, changes: &Changes, rule: i64, state: i64) -> u64 {
        let at = usize::try_from(state).unwrap_or(STATES);
        let known = self.rules.get(&rule).and_then(|rule| rule.rows.get(at));
        let by = changes.rows.get(&rule).and_then(|rows| rows.get(at));
        let by = by.copied().unwrap_or_default();
        known.copied().unwrap_or_default().saturating_add_signed(by)
    }

    /// Number of actions in a state, with what a transaction has changed.
    pub(super) fn rows_of_all(&self, changes: &Changes, state: i64) -> u64 {
        let at = usize::try_from(state).unwrap_or(STATES);
        let known: u64 = self
            .rules
            .values()
            .filter_map(|rule| rule.rows.get(at))
            .sum();
        let by: i64 = changes.rows.values().filter_map(|rows| rows.get(at)).sum();
        known.saturating_add_signed(by)
    }
}

//! Giving actions to workers, with leases.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::config::QueueConfig;
use super::state::{Changes, DEAD, LEASED, LeaseState, State, WAITING};
use crate::request::{ActionKey, ActionOwner, Delivery};

/// Most actions that one claim gives.
pub const CLAIM_MAX: usize = 1_000;
/// Reason of an action that may or may not have happened.
pub(super) const UNKNOWN: &str =
    "outcome unknown: the worker did not report before its lease ended";
/// Reason of an action whose last worker vanished.
const VANISHED: &str = "no attempt is left: the worker did not report before its lease ended";

/// A rule whose actions may start now. Quiet hours and rates are the business of the caller. Rules
/// that are gone may have actions yet: [`crate::ActionQueue::rules`] has those as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleStart {
    /// Name of the rule.
    pub rule: String,
    /// Most actions of the rule that run at the same time.
    pub running_max: u64,
    /// Most actions of the rule that start with this claim.
    pub start_max: u64,
}

/// The right to run an action and to settle it. A lease that has been replaced by a later one
/// changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActionLease {
    /// Number of the action in the queue.
    pub id: u64,
    /// Number of the lease among those of the action.
    pub number: u64,
}

/// An action that a worker is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedAction {
    /// Lease of the worker.
    pub lease: ActionLease,
    /// Identity of the action.
    pub key: ActionKey,
    /// User whose rights the action has.
    pub owner: ActionOwner,
    /// How often the effect may happen.
    pub delivery: Delivery,
    /// Number of this attempt, from 1 on.
    pub attempt: u32,
    /// Time at which the action was taken into the queue, in ns since the epoch.
    pub enqueued_ns: i64,
    /// What is to be done.
    pub body: Vec<u8>,
}

/// The transaction of a claim.
pub(super) struct Claim<'a> {
    pub(super) connection: &'a Connection,
    pub(super) config: &'a QueueConfig,
    pub(super) state: &'a State,
    pub(super) changes: &'a mut Changes,
    pub(super) now_ns: i64,
    pub(super) monotonic_ns: i64,
    /// Number of claims so far: another rule is the first one each time.
    pub(super) turn: usize,
}

impl Claim<'_> {
    /// Takes back the actions whose lease has ended. One that must not repeat becomes a dead
    /// letter.
    pub(super) fn expire(&mut self) -> Result<(), rusqlite::Error> {
        let ended = self.state.leases.iter();
        let ended = ended.filter(|(_, lease)| lease.end_ns <= self.monotonic_ns);
        for id in ended.map(|(id, _)| *id).take(CLAIM_MAX) {
            let row: Option<(i64, i64, u32, u32)> = self
                .connection
                .prepare_cached(
                    "SELECT rule, delivery, attempts, attempts_max FROM actions
                     WHERE id = ?1 AND state = 1",
                )?
                .query_row([id], |row| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
                })
                .optional()?;
            self.changes.leases_gone.push(id);
            let Some((rule, delivery, attempts, attempts_max)) = row else {
                continue;
            };
            let (state, reason) = match (delivery, attempts >= attempts_max) {
                (0, false) => (WAITING, None),
                (0, true) => (DEAD, Some(VANISHED)),
                _ => (DEAD, Some(UNKNOWN)),
            };
            self.connection
                .prepare_cached(
                    "UPDATE actions SET state = ?2, at_ns = ?3, reason = coalesce(?4, reason)
                     WHERE id = ?1",
                )?
                .execute(params![id, state, self.now_ns, reason])?;
            self.changes.leaves(rule, LEASED);
            self.changes.enters(rule, state);
            self.changes.expired += 1;
            if state == DEAD {
                self.changes.totals.entry(rule).or_default().dead += 1;
            }
        }
        Ok(())
    }

    /// Gives up to `count_max` actions: first each rule its share, then the rest to those that have
    /// more.
    pub(super) fn run(
        &mut self,
        worker: &str,
        rules: &[RuleStart],
        count_max: usize,
        lease_ns: i64,
    ) -> Result<Vec<ClaimedAction>, rusqlite::Error> {
        let count_max = count_max.min(CLAIM_MAX);
        let mut claimed = Vec::new();
        let mut started = vec![0; rules.len()];
        let able = |rule: &RuleStart| {
            let id = self.state.rule_ids.get(&rule.rule).copied()?;
            (self.state.rows(self.changes, id, WAITING) > 0).then_some(id)
        };
        let ids: Vec<Option<i64>> = rules.iter().map(able).collect();
        let able_count = ids.iter().flatten().count().max(1);
        for share in [count_max.div_ceil(able_count), count_max] {
            for step in 0..rules.len() {
                let at = (self.turn + step) % rules.len();
                let Some(id) = ids[at] else { continue };
                let running = self.state.rows(self.changes, id, LEASED);
                let room = rules[at].running_max.saturating_sub(running);
                let room = room.min(rules[at].start_max.saturating_sub(started[at]));
                let room = usize::try_from(room).unwrap_or(usize::MAX);
                let room = room.min(share).min(count_max - claimed.len());
                let before = claimed.len();
                if room > 0 {
                    self.of_rule(worker, (id, &rules[at].rule), room, lease_ns, &mut claimed)?;
                }
                started[at] += (claimed.len() - before) as u64;
            }
        }
        Ok(claimed)
    }

    fn of_rule(
        &mut self,
        worker: &str,
        (rule, name): (i64, &str),
        count: usize,
        lease_ns: i64,
        claimed: &mut Vec<ClaimedAction>,
    ) -> Result<(), rusqlite::Error> {
        let mut statement = self.connection.prepare_cached(
            "SELECT actions.id, lease, version, source, number, uid, gid, delivery, attempts,
                enqueued_ns, body
             FROM actions JOIN origins ON origins.id = actions.origin
             WHERE actions.rule = ?1 AND state = 0 AND at_ns <= ?2
             ORDER BY at_ns, actions.id LIMIT ?3",
        )?;
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let from = claimed.len();
        let rows = statement.query_map(params![rule, self.now_ns, count], |row| {
            let number = |at: usize| row.get::<_, i64>(at).map(i64::cast_unsigned);
            Ok(ClaimedAction {
                lease: ActionLease {
                    id: number(0)?,
                    number: number(1)? + 1,
                },
                key: ActionKey {
                    rule: name.to_owned(),
                    rule_version: number(2)?,
                    source: row.get(3)?,
                    index: number(4)?,
                },
                owner: ActionOwner {
                    uid: row.get(5)?,
                    gid: row.get(6)?,
                },
                delivery: match row.get(7)? {
                    0 => Delivery::AtLeastOnce,
                    _ => Delivery::AtMostOnce,
                },
                attempt: row.get::<_, u32>(8)?.saturating_add(1),
                enqueued_ns: row.get(9)?,
                body: row.get(10)?,
            })
        })?;
        for row in rows {
            claimed.push(row?);
        }
        let lease_ns = lease_ns.clamp(1, self.config.lease_ns_max);
        for action in &claimed[from..] {
            let id = action.lease.id.cast_signed();
            self.connection
                .prepare_cached(
                    "UPDATE actions SET state = 1, at_ns = ?2, lease = ?3, attempts = ?4,
                        started_ns = ?5, worker = ?6 WHERE id = ?1",
                )?
                .execute(params![
                    id,
                    self.now_ns.saturating_add(lease_ns),
                    action.lease.number.cast_signed(),
                    action.attempt,
                    self.now_ns,
                    worker
                ])?;
            self.changes.leaves(rule, WAITING);
            self.changes.enters(rule, LEASED);
            let end_ns = self.monotonic_ns.saturating_add(lease_ns);
            self.changes.leases.insert(id, LeaseState { end_ns });
        }
        Ok(())
    }
}

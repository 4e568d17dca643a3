//! Settling claimed actions: done, failed, given back, or given more time.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::claim::ActionLease;
use super::config::QueueConfig;
use super::state::{Changes, DEAD, DONE, LEASED, LeaseState, State, WAITING};
use crate::request::{RetryPolicy, reason};

/// What became of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionOutcome {
    /// The action has succeeded.
    Done {
        /// End of its output.
        output: Vec<u8>,
    },
    /// The attempt has failed.
    Failed(ActionFailure),
    /// The attempt was not begun: the action is given back, and the attempt is not counted.
    Released,
}

/// A failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionFailure {
    /// Why it has failed.
    pub reason: String,
    /// End of its output.
    pub output: Vec<u8>,
    /// Whether it is repeated.
    pub repeat: RepeatWish,
    /// How far it went.
    pub reach: AttemptReach,
}

/// Whether a failed attempt is to be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepeatWish {
    /// After the wait of the retry policy.
    Later,
    /// After the wait of the retry policy, and not before so many ns, as the receiver has asked.
    NotBefore(i64),
    /// Never: another attempt would fail as well.
    Never,
}

/// How far a failed attempt went. An action that must not repeat is only repeated if nothing of it
/// was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptReach {
    /// Nothing was begun.
    NotBegun,
    /// Something may have been done.
    Begun,
}

/// What a settlement has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The action has succeeded, and is kept for a while.
    Done,
    /// The action is repeated from this time on, in ns since the epoch.
    Waiting(i64),
    /// The action is a dead letter.
    Dead,
    /// The lease is not the present one of the action: nothing was changed.
    Stale,
}

/// The transaction of a settlement.
pub(super) struct Settlement<'a> {
    pub(super) connection: &'a Connection,
    pub(super) config: &'a QueueConfig,
    pub(super) state: &'a State,
    pub(super) changes: &'a mut Changes,
    pub(super) now_ns: i64,
    pub(super) monotonic_ns: i64,
}

/// What is needed of a row to settle it.
struct Leased {
    rule: i64,
    may_repeat: bool,
    attempts: u32,
    retry: RetryPolicy,
}

impl Settlement<'_> {
    pub(super) fn settle(
        &mut self,
        lease: ActionLease,
        outcome: &ActionOutcome,
        random: f64,
    ) -> Result<Settled, rusqlite::Error> {
        let Some(row) = self.leased(lease)? else {
            return Ok(Settled::Stale);
        };
        match outcome {
            ActionOutcome::Done { output } => {
                self.finish(lease, &row, DONE, None, output)?;
                Ok(Settled::Done)
            }
            ActionOutcome::Released => self.give_back(lease, &row),
            ActionOutcome::Failed(failure) => self.fail(lease, &row, failure, random),
        }
    }

    /// Gives a lease more time; returns whether it is still the present one.
    pub(super) fn extend(
        &mut self,
        lease: ActionLease,
        lease_ns: i64,
    ) -> Result<bool, rusqlite::Error> {
        if self.leased(lease)?.is_none() {
            return Ok(false);
        }
        let lease_ns = lease_ns.clamp(1, self.config.lease_ns_max);
        let id = lease.id.cast_signed();
        self.connection
            .prepare_cached("UPDATE actions SET at_ns = ?2 WHERE id = ?1")?
            .execute(params![id, self.now_ns.saturating_add(lease_ns)])?;
        let end_ns = self.monotonic_ns.saturating_add(lease_ns);
        self.changes.leases.insert(id, LeaseState { end_ns });
        Ok(true)
    }

    fn leased(&self, lease: ActionLease) -> Result<Option<Leased>, rusqlite::Error> {
        // Most stale leases are known without the file.
        let id = lease.id.cast_signed();
        if !self.state.leases.contains_key(&id) {
            return Ok(None);
        }
        self.connection
            .prepare_cached(
                "SELECT rule, delivery, attempts, attempts_max, wait_ns_min, wait_ns_max
                 FROM actions WHERE id = ?1 AND lease = ?2 AND state = 1",
            )?
            .query_row(params![id, lease.number.cast_signed()], |row| {
                Ok(Leased {
                    rule: row.get(0)?,
                    may_repeat: row.get::<_, i64>(1)? == 0,
                    attempts: row.get(2)?,
                    retry: RetryPolicy {
                        attempts_max: row.get(3)?,
                        wait_ns_min: row.get(4)?,
                        wait_ns_max: row.get(5)?,
                    },
                })
            })
            .optional()
    }

    fn fail(
        &mut self,
        lease: ActionLease,
        row: &Leased,
        failure: &ActionFailure,
        random: f64,
    ) -> Result<Settled, rusqlite::Error> {
        let may_repeat = row.may_repeat || failure.reach == AttemptReach::NotBegun;
        let is_last = row.attempts >= row.retry.attempts_max;
        let end = match failure.repeat {
            _ if !may_repeat => Some(format!("{}; it must not be repeated", failure.reason)),
            RepeatWish::Never => Some(failure.reason.clone()),
            _ if is_last => Some(format!(
                "{}; that was attempt {} of {}",
                failure.reason, row.attempts, row.retry.attempts_max
            )),
            _ => None,
        };
        if let Some(end) = end {
            self.finish(lease, row, DEAD, Some(reason(end)), &failure.output)?;
            return Ok(Settled::Dead);
        }
        let asked_ns = match failure.repeat {
            RepeatWish::NotBefore(wait_ns) => wait_ns.clamp(0, self.config.asked_wait_ns_max),
            _ => 0,
        };
        let wait_ns = row.retry.wait_ns(row.attempts, random).max(asked_ns);
        let due_ns = self.now_ns.saturating_add(wait_ns);
        self.connection
            .prepare_cached(
                "UPDATE actions SET state = 0, at_ns = ?2, reason = ?3, output = ?4
                 WHERE id = ?1",
            )?
            .execute(params![
                lease.id.cast_signed(),
                due_ns,
                reason(failure.reason.clone()),
                self.end_of(&failure.output)
            ])?;
        self.leave(lease, row, WAITING);
        Ok(Settled::Waiting(due_ns))
    }

    fn give_back(&mut self, lease: ActionLease, row: &Leased) -> Result<Settled, rusqlite::Error> {
        self.connection
            .prepare_cached(
                "UPDATE actions SET state = 0, at_ns = ?2, attempts = max(attempts - 1, 0)
                 WHERE id = ?1",
            )?
            .execute(params![lease.id.cast_signed(), self.now_ns])?;
        self.leave(lease, row, WAITING);
        Ok(Settled::Waiting(self.now_ns))
    }

    fn finish(
        &mut self,
        lease: ActionLease,
        row: &Leased,
        state: i64,
        reason: Option<String>,
        output: &[u8],
    ) -> Result<(), rusqlite::Error> {
        self.connection
            .prepare_cached(
                "UPDATE actions SET state = ?2, at_ns = ?3, reason = ?4, output = ?5
                 WHERE id = ?1",
            )?
            .execute(params![
                lease.id.cast_signed(),
                state,
                self.now_ns,
                reason,
                self.end_of(output)
            ])?;
        let totals = self.changes.totals.entry(row.rule).or_default();
        match state {
            DONE => totals.done += 1,
            _ => totals.dead += 1,
        }
        self.leave(lease, row, state);
        Ok(())
    }

    fn leave(&mut self, lease: ActionLease, row: &Leased, state: i64) {
        self.changes.leaves(row.rule, LEASED);
        self.changes.enters(row.rule, state);
        self.changes.leases_gone.push(lease.id.cast_signed());
    }

    fn end_of<'b>(&self, output: &'b [u8]) -> &'b [u8] {
        &output[output.len().saturating_sub(self.config.output_bytes_max)..]
    }
}

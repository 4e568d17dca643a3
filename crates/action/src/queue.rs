//! The durable queue of actions: one SQLite file, in which an action stays from the moment its
//! request is acknowledged until it has succeeded or somebody has looked at its failure.
//!
//! Actions are delivered at least once. A worker has a lease; if it does not settle the action
//! before the lease ends, another one gets it, and what the first one then says changes nothing.
//! The key of an action is the same in each attempt, so that a receiver can tell repetitions. The
//! queue knows neither rules nor time of day: what may start now is an argument of each claim.

mod claim;
mod config;
mod cursor;
mod enqueue;
mod fault;
mod file;
mod keep;
mod list;
mod settle;
mod state;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use barograph_model::{Clock, NS_PER_S};
use rusqlite::{Connection, Transaction, TransactionBehavior, params};

pub use claim::{ActionLease, CLAIM_MAX, ClaimedAction, RuleStart};
pub use config::{Durability, QueueConfig};
pub use cursor::EventCursor;
pub use enqueue::Enqueued;
pub use fault::QueueFault;
pub use list::{ActionDetail, ActionFilter, ActionInfo, ActionState, Changed, LIST_MAX};
pub use settle::{ActionFailure, ActionOutcome, AttemptReach, RepeatWish, Settled};

use claim::Claim;
use enqueue::Intake;
use list::Intervention;
use settle::Settlement;
use state::{Changes, DEAD, DONE, DROPPED, LEASED, State, WAITING};

use crate::request::ActionRequest;

/// A change of the system clock against the monotonic one that moves the times of waiting actions.
const CLOCK_STEP_NS: i64 = NS_PER_S;

/// A durable queue of actions.
pub struct ActionQueue {
    inner: Mutex<Inner>,
    clock: Arc<dyn Clock>,
}

struct Inner {
    connection: Connection,
    path: PathBuf,
    config: QueueConfig,
    state: State,
    status: QueueStatus,
    /// Number of claims so far.
    turn: usize,
    /// Difference of the system clock and the monotonic one at the last claim.
    clock_offset_ns: i64,
}

/// What is known of the queue. Counts of events are those since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueStatus {
    /// Actions that wait.
    pub waiting: u64,
    /// Actions that workers have.
    pub running: u64,
    /// Actions that succeeded or were dropped, and are kept.
    pub done_kept: u64,
    /// Dead letters that are kept.
    pub dead_kept: u64,
    /// Requests taken in.
    pub accepted: u64,
    /// Requests whose key was there.
    pub duplicates: u64,
    /// Requests refused for lack of room.
    pub refused: u64,
    /// Attempts begun.
    pub claimed: u64,
    /// Settlements that came too late and changed nothing.
    pub stale: u64,
    /// Leases that ended before the action was settled.
    pub expired: u64,
    /// Finished actions that are no longer kept.
    pub forgotten: u64,
    /// Dead letters among them.
    pub forgotten_dead: u64,
    /// Operations that failed.
    pub faults: u64,
    /// The damaged file that was set aside when the queue was opened, and what was wrong with it.
    pub set_aside: Option<(PathBuf, String)>,
}

/// What has happened to the actions of a rule. Totals are kept over restarts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleCounts {
    /// Name of the rule.
    pub rule: String,
    /// Actions that wait.
    pub waiting: u64,
    /// Actions that workers have.
    pub running: u64,
    /// Dead letters that are kept.
    pub dead_kept: u64,
    /// Requests refused in all: their events have no action.
    pub refused: u64,
    /// Requests in all whose key was there.
    pub duplicates: u64,
    /// Actions that succeeded, in all.
    pub done: u64,
    /// Actions that became dead letters, in all.
    pub dead: u64,
}

impl ActionQueue {
    /// Opens the queue of a file, which is made if it does not exist. A damaged file is set aside
    /// under another name, which the log and [`QueueStatus::set_aside`] tell. Leases of before go
    /// on: programs of an agent that was killed may still be running.
    ///
    /// # Errors
    ///
    /// The file cannot be opened, is in use by another process, or is of a newer version.
    pub fn open(
        path: &Path,
        config: QueueConfig,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, QueueFault> {
        let (now_ns, monotonic_ns) = (clock.now_ns(), clock.monotonic_ns());
        let file = file::open(path, &config, now_ns)?;
        let fault = |error| QueueFault::sqlite("read", path, error);
        let end_ns = |end_ns: i64| {
            let left_ns = end_ns.saturating_sub(now_ns).clamp(0, config.lease_ns_max);
            monotonic_ns.saturating_add(left_ns)
        };
        let state = State::read(&file.connection, end_ns).map_err(fault)?;
        bound_waits(&file.connection, &config, now_ns).map_err(fault)?;
        let status = QueueStatus {
            set_aside: file.set_aside,
            ..QueueStatus::default()
        };
        let inner = Inner {
            connection: file.connection,
            path: path.to_owned(),
            config,
            state,
            status,
            turn: 0,
            clock_offset_ns: now_ns.saturating_sub(monotonic_ns),
        };
        Ok(Self {
            inner: Mutex::new(inner),
            clock,
        })
    }

    /// Takes requests in, all in one transaction: when this returns, those accepted are durable,
    /// and their events may be acknowledged. Within a rule version and source, requests are to come
    /// in the order of their numbers: one that comes late may be taken for a repetition of one that
    /// is no longer kept.
    ///
    /// # Errors
    ///
    /// Nothing was taken in; the batch is to be offered again.
    pub fn enqueue(&self, batch: &[ActionRequest]) -> Result<Enqueued, QueueFault> {
        self.take_in(batch, None)
    }

    /// Takes requests in, and moves the cursor of their source in the same transaction.
    fn take_in(
        &self,
        batch: &[ActionRequest],
        cursor: Option<&EventCursor>,
    ) -> Result<Enqueued, QueueFault> {
        let now_ns = self.clock.now_ns();
        let mut inner = self.lock();
        let outcome = inner.write("add to", now_ns, |write| {
            if let Some(cursor) = cursor {
                cursor::set(write.connection, cursor)?;
            }
            Intake {
                connection: write.connection,
                config: write.config,
                state: write.state,
                changes: write.changes,
                now_ns,
            }
            .run(batch)
        })?;
        inner.status.accepted += outcome.accepted;
        inner.status.duplicates += outcome.duplicates;
        inner.status.refused += outcome.refused();
        Ok(outcome)
    }

    /// Gives a worker up to `count_max` actions (and [`CLAIM_MAX`]) of the rules that may start
    /// now, the longest due first, with leases of `lease_ns`. Actions whose lease has ended come
    /// back first.
    ///
    /// # Errors
    ///
    /// Nothing was claimed.
    pub fn claim(
        &self,
        worker: &str,
        rules: &[RuleStart],
        count_max: usize,
        lease_ns: i64,
    ) -> Result<Vec<ClaimedAction>, QueueFault> {
        let (now_ns, monotonic_ns) = (self.clock.now_ns(), self.clock.monotonic_ns());
        let mut inner = self.lock();
        inner.follow_clock(now_ns, monotonic_ns)?;
        inner.turn = inner.turn.wrapping_add(1);
        let turn = inner.turn;
        let claimed = inner.write("claim from", now_ns, |write| {
            let mut claim = Claim {
                connection: write.connection,
                config: write.config,
                state: write.state,
                changes: write.changes,
                now_ns,
                monotonic_ns,
                turn,
            };
            claim.expire()?;
            claim.run(worker, rules, count_max, lease_ns)
        })?;
        inner.status.claimed += claimed.len() as u64;
        Ok(claimed)
    }

    /// Settles claimed actions in one transaction. `random` is a number in `0..1`, by which waits
    /// differ.
    ///
    /// # Errors
    ///
    /// Nothing was settled; the batch is to be offered again.
    pub fn settle(
        &self,
        batch: &[(ActionLease, ActionOutcome)],
        random: f64,
    ) -> Result<Vec<Settled>, QueueFault> {
        let (now_ns, monotonic_ns) = (self.clock.now_ns(), self.clock.monotonic_ns());
        let mut inner = self.lock();
        let settled = inner.write("settle actions of", now_ns, |write| {
            let mut settlement = write.settlement(now_ns, monotonic_ns);
            let each = batch.iter();
            each.map(|(lease, outcome)| settlement.settle(*lease, outcome, random))
                .collect::<Result<Vec<_>, _>>()
        })?;
        let stale = settled.iter().filter(|it| **it == Settled::Stale).count();
        inner.status.stale += stale as u64;
        Ok(settled)
    }

    /// Settles an action that has succeeded.
    ///
    /// # Errors
    ///
    /// Nothing was settled.
    pub fn done(&self, lease: ActionLease, output: Vec<u8>) -> Result<Settled, QueueFault> {
        self.settle_one(lease, ActionOutcome::Done { output }, 0.0)
    }

    /// Settles an attempt that has failed.
    ///
    /// # Errors
    ///
    /// Nothing was settled.
    pub fn failed(
        &self,
        lease: ActionLease,
        failure: ActionFailure,
        random: f64,
    ) -> Result<Settled, QueueFault> {
        self.settle_one(lease, ActionOutcome::Failed(failure), random)
    }

    fn settle_one(
        &self,
        lease: ActionLease,
        outcome: ActionOutcome,
        random: f64,
    ) -> Result<Settled, QueueFault> {
        let settled = self.settle(&[(lease, outcome)], random)?;
        Ok(settled.first().copied().unwrap_or(Settled::Stale))
    }

    /// Gives leases more time, `lease_ns` from now on; tells for each whether it is still the
    /// present one.
    ///
    /// # Errors
    ///
    /// Nothing was extended.
    pub fn extend(&self, leases: &[ActionLease], lease_ns: i64) -> Result<Vec<bool>, QueueFault> {
        let (now_ns, monotonic_ns) = (self.clock.now_ns(), self.clock.monotonic_ns());
        let mut inner = self.lock();
        let extended = inner.write("extend leases of", now_ns, |write| {
            let mut settlement = write.settlement(now_ns, monotonic_ns);
            let each = leases.iter();
            each.map(|lease| settlement.extend(*lease, lease_ns))
                .collect::<Result<Vec<_>, _>>()
        })?;
        let stale = extended.iter().filter(|is_present| !**is_present).count();
        inner.status.stale += stale as u64;
        Ok(extended)
    }

    /// Starts a dead letter anew, or a waiting action at once.
    ///
    /// # Errors
    ///
    /// Nothing was changed.
    pub fn retry(&self, id: u64) -> Result<Changed, QueueFault> {
        self.intervene(|it| it.retry(id))
    }

    /// Drops a dead letter or a waiting action: it is kept for a while, and is not run.
    ///
    /// # Errors
    ///
    /// Nothing was changed.
    pub fn drop(&self, id: u64) -> Result<Changed, QueueFault> {
        self.intervene(|it| it.drop(id))
    }

    fn intervene(
        &self,
        act: impl FnOnce(&mut Intervention<'_>) -> Result<Changed, rusqlite::Error>,
    ) -> Result<Changed, QueueFault> {
        let now_ns = self.clock.now_ns();
        self.lock().write("change", now_ns, |write| {
            act(&mut Intervention {
                connection: write.connection,
                config: write.config,
                state: write.state,
                changes: write.changes,
                now_ns,
            })
        })
    }

    /// Lists actions, the newest first.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn list(&self, filter: &ActionFilter) -> Result<Vec<ActionInfo>, QueueFault> {
        let inner = self.lock();
        list::list(&inner.connection, filter).map_err(|error| inner.fault("read", error))
    }

    /// All that is known of an action; `None` if it is not or no longer in the queue.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn show(&self, id: u64) -> Result<Option<ActionDetail>, QueueFault> {
        let inner = self.lock();
        list::show(&inner.connection, id).map_err(|error| inner.fault("read", error))
    }

    /// What is known of the queue.
    pub fn status(&self) -> QueueStatus {
        let inner = self.lock();
        let rows = |state| inner.state.rows_of_all(&Changes::default(), state);
        QueueStatus {
            waiting: rows(WAITING),
            running: rows(LEASED),
            done_kept: rows(DONE) + rows(DROPPED),
            dead_kept: rows(DEAD),
            ..inner.status.clone()
        }
    }

    /// What has happened to the actions of each rule, by the names of the rules.
    pub fn rules(&self) -> Vec<RuleCounts> {
        let inner = self.lock();
        let ids = inner.state.rule_ids.values();
        let rules = ids.filter_map(|id| inner.state.rules.get(id));
        rules
            .map(|rule| RuleCounts {
                rule: rule.name.clone(),
                waiting: rule.rows[WAITING as usize],
                running: rule.rows[LEASED as usize],
                dead_kept: rule.rows[DEAD as usize],
                refused: rule.totals.refused,
                duplicates: rule.totals.duplicates,
                done: rule.totals.done,
                dead: rule.totals.dead,
            })
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // What is in memory changes only after a commit, and without a step that can panic.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A transaction that is under way.
struct Write<'a> {
    connection: &'a Connection,
    config: &'a QueueConfig,
    state: &'a State,
    changes: &'a mut Changes,
}

impl Write<'_> {
    fn settlement(&mut self, now_ns: i64, monotonic_ns: i64) -> Settlement<'_> {
        Settlement {
            connection: self.connection,
            config: self.config,
            state: self.state,
            changes: self.changes,
            now_ns,
            monotonic_ns,
        }
    }
}

impl Inner {
    /// Runs a transaction, and takes its changes over when it is committed.
    fn write<T>(
        &mut self,
        what: &'static str,
        now_ns: i64,
        act: impl FnOnce(&mut Write<'_>) -> Result<T, rusqlite::Error>,
    ) -> Result<T, QueueFault> {
        let mut changes = Changes::default();
        let result = self.transact(now_ns, &mut changes, act);
        match result {
            Ok(value) => {
                self.status.expired += changes.expired;
                self.status.forgotten += changes.forgotten;
                self.status.forgotten_dead += changes.forgotten_dead;
                self.state.take(changes);
                Ok(value)
            }
            Err(error) => {
                self.status.faults += 1;
                Err(self.fault(what, error))
            }
        }
    }

    fn transact<T>(
        &self,
        now_ns: i64,
        changes: &mut Changes,
        act: impl FnOnce(&mut Write<'_>) -> Result<T, rusqlite::Error>,
    ) -> Result<T, rusqlite::Error> {
        // It is rolled back when it is dropped before its commit, also by a panic.
        let transaction =
            Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate)?;
        let value = act(&mut Write {
            connection: &transaction,
            config: &self.config,
            state: &self.state,
            changes,
        })?;
        keep::forget(&transaction, &self.config, &self.state, changes, now_ns)?;
        for (rule, totals) in &changes.totals {
            transaction
                .prepare_cached(
                    "UPDATE rules SET refused = refused + ?2, duplicates = duplicates + ?3,
                        done = done + ?4, dead = dead + ?5
                     WHERE id = ?1",
                )?
                .execute(params![
                    rule,
                    totals.refused.cast_signed(),
                    totals.duplicates.cast_signed(),
                    totals.done.cast_signed(),
                    totals.dead.cast_signed()
                ])?;
        }
        transaction.commit()?;
        Ok(value)
    }

    /// Moves the times of waiting actions when the system clock was set, so that waits stay as long
    /// as they were.
    fn follow_clock(&mut self, now_ns: i64, monotonic_ns: i64) -> Result<(), QueueFault> {
        let offset_ns = now_ns.saturating_sub(monotonic_ns);
        let step_ns = offset_ns.saturating_sub(self.clock_offset_ns);
        if step_ns.saturating_abs() > CLOCK_STEP_NS {
            self.connection
                .prepare_cached("UPDATE actions SET at_ns = at_ns + ?1 WHERE state = 0")
                .and_then(|mut statement| statement.execute([step_ns]))
                .map_err(|error| self.fault("write", error))?;
        }
        self.clock_offset_ns = offset_ns;
        Ok(())
    }

    fn fault(&self, what: &'static str, error: rusqlite::Error) -> QueueFault {
        QueueFault::sqlite(what, &self.path, error)
    }
}

/// Shortens waits that can only be so long because the system clock was set back while the queue
/// was closed.
fn bound_waits(
    connection: &Connection,
    config: &QueueConfig,
    now_ns: i64,
) -> Result<(), rusqlite::Error> {
    let longest_ns = "CASE attempts WHEN 0 THEN 0 ELSE max(wait_ns_max, ?2) END";
    connection
        .prepare(&format!(
            "UPDATE actions SET at_ns = ?1 + {longest_ns}
             WHERE state = 0 AND at_ns - ?1 > {longest_ns}"
        ))?
        .execute(params![now_ns, config.asked_wait_ns_max])?;
    Ok(())
}

//! The writing of audits. A thread that makes a call writes for all calls of that moment; one
//! thread of the board writes lines for which no call waits (answers, ends, a user's first
//! process). This is a module of its own so that the locks are easy to see: a user's desk is held
//! while its disk is waited for, the board's state never is.

use std::path::PathBuf;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use barograph_model::NS_PER_S;
use barograph_stream::calls::CALLS_FILE;
use barograph_stream::user_name;
use tracing::warn;

use crate::audit::{Audit, AuditDesk, position};
use crate::board::{AuditState, BoardState, SharedBoard};
use crate::row::CallEvent;
use crate::user::{AuditEntry, ReplayedAudit, UserCalls};

/// Name of the audit in a user's scope of the state directory.
const AUDIT_FILE: &str = "calls.jsonl";
/// Most lines that are written and synced at once.
const BATCH_MAX: usize = 1_024;
/// Time after which a failed write or opening is tried again.
pub(crate) const RETRY_NS: i64 = NS_PER_S;

/// Locks a desk. Ignoring poison is sound: a panic under the lock leaves no half-written state.
pub(crate) fn hold(desk: &AuditDesk) -> MutexGuard<'_, Option<Audit>> {
    desk.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedBoard {
    /// Opens the user's audit if it is not open, writes all waiting lines to it, and makes the
    /// calls among them. When this returns, everything that waited before has been tried.
    pub(super) fn attend(&self, uid: u32) -> Result<(), String> {
        let desk = self.state().users.get(&uid).map(|u| Arc::clone(&u.desk));
        let Some(desk) = desk else { return Ok(()) };
        let mut audit = hold(&desk);
        if audit.is_none() {
            *audit = Some(self.open(uid)?);
        }
        match audit.as_mut() {
            Some(audit) => self.write(uid, audit),
            None => Ok(()),
        }
    }

    /// Continues from the audit of an earlier agent; takes in answers that have come meanwhile.
    fn open(&self, uid: u32) -> Result<Audit, String> {
        let scope = format!("u{uid}");
        let calls = self.run_dir.scope(&scope).path().join(CALLS_FILE);
        let path: PathBuf = self.state_dir.join(&scope).join(AUDIT_FILE);
        let mut replayed = ReplayedAudit::default();
        let opened = Audit::open(&path, &mut |line| replayed.take(line));
        let opened = opened.map_err(|e| format!("the audit of calls cannot be opened: {e}"));
        let calls = opened.and_then(|audit| {
            let now_ns = self.clock.now_ns();
            let calls = UserCalls::open(user_name(uid), &calls, replayed, now_ns)?;
            Ok((audit, calls))
        });
        let mut state = self.state();
        let Some(user) = state.users.get_mut(&uid) else {
            return Err("nobody has joined".into());
        };
        let (audit, calls) = match calls {
            Ok(opened) => opened,
            Err(why) => {
                user.failure = Some(why.clone());
                return Err(why);
            }
        };
        user.failure = None;
        let before = std::mem::replace(&mut user.audit, AuditState::Open(Box::new(calls)));
        if let AuditState::Opening { events, lost } = before {
            if lost > 0 {
                warn!(
                    uid,
                    lost, "answers to calls came before their audit was open, and are lost"
                );
            }
            for event in events {
                state.take_in(uid, event, self.clock.now_ns());
            }
        }
        Ok(audit)
    }

    /// Writes waiting lines in order, and publishes the calls among them.
    fn write(&self, uid: u32, audit: &mut Audit) -> Result<(), String> {
        loop {
            let entries = self.with(uid, |calls| calls.take_entries(BATCH_MAX));
            if entries.is_empty() {
                return Ok(());
            }
            let must_last = entries.iter().any(|e| matches!(e, AuditEntry::Called(_)));
            let done = self.turn_over(uid, audit).and_then(|()| {
                let lines = entries.iter().map(AuditEntry::to_json);
                let written = audit.append(lines, must_last);
                written.map_err(|e| format!("nothing was fired: the audit cannot be written: {e}"))
            });
            let mut state = self.state();
            let Some(calls) = state.calls(uid) else {
                return Ok(());
            };
            if done.is_err() {
                calls.put_back(entries);
            }
            let made = calls.publish(done.clone());
            let made: Vec<CallEvent> = made.iter().map(|row| row.to_event(uid)).collect();
            made.into_iter().for_each(|event| state.tell(event));
            done?;
        }
    }

    /// Begins another file if this one is full, with the calls that are not settled.
    fn turn_over(&self, uid: u32, audit: &mut Audit) -> Result<(), String> {
        if !audit.is_full() {
            return Ok(());
        }
        let (last, unsettled) = self.with(uid, |calls| (calls.written(), calls.unsettled()));
        // Lines are made one at a time, since each names all processes that have not answered.
        let rows = unsettled
            .into_iter()
            .filter_map(|id| self.with(uid, |calls| calls.row(id).cloned()));
        let carried = rows.map(|row| row.to_audit());
        let turned = audit.turn_over(std::iter::once(position(last)).chain(carried));
        turned.map_err(|e| format!("nothing was fired: a new audit cannot be begun: {e}"))
    }

    fn with<T: Default>(&self, uid: u32, work: impl FnOnce(&mut UserCalls) -> T) -> T {
        self.state().calls(uid).map(work).unwrap_or_default()
    }

    /// One step of the writing thread: attends to the users with waiting lines. `next_ns` is what
    /// the step before returned: the monotonic time of the next attempt if one has failed, and
    /// otherwise `i64::MAX`, as there is nothing to do until a line waits. When the board ends, the
    /// time of the next attempt does not matter.
    pub(super) fn step(&self, next_ns: i64) -> i64 {
        let now_ns = self.clock.monotonic_ns();
        let state = self.state();
        if next_ns != i64::MAX && now_ns < next_ns && !state.is_over {
            return next_ns;
        }
        let waiting = state.waiting();
        drop(state);
        let mut has_failed = false;
        for uid in waiting {
            if let Err(why) = self.attend(uid) {
                has_failed = true;
                warn!(uid, why, "calls are not written down; it is tried again");
            }
        }
        match has_failed {
            true => now_ns.saturating_add(RETRY_NS),
            false => i64::MAX,
        }
    }

    /// The shell of the writing thread: it alone waits. At the end it tries the remaining lines
    /// once more.
    #[expect(
        clippy::disallowed_methods,
        reason = "the shell of the thread that writes audits"
    )]
    pub(super) fn run(&self) {
        let mut next_ns = i64::MAX;
        loop {
            let is_over = self.state().is_over;
            next_ns = self.step(next_ns);
            if is_over {
                return;
            }
            let state = self.state();
            if next_ns == i64::MAX {
                let is_idle = |state: &mut BoardState| !state.is_over && !state.is_waiting();
                drop(self.work.wait_while(state, is_idle));
            } else {
                let wait_ns = next_ns.saturating_sub(self.clock.monotonic_ns()).max(0);
                let wait = Duration::from_nanos(wait_ns.unsigned_abs());
                drop(self.work.wait_timeout_while(state, wait, |s| !s.is_over));
            }
        }
    }
}

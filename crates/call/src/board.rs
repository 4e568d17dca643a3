//! The board: which process handles what, and all calls of every user, behind one lock.
//!
//! The intake needs the lock, so its holders only touch memory. Everything that waits for a disk is
//! done at the desks (`desk.rs`), which are used without the lock.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use barograph_model::Clock;
use barograph_stream::calls::AckStatus;
use barograph_stream::{Incarnation, RunDir};
use serde_json::Value as Json;
use tracing::warn;

use crate::audit::AuditDesk;
use crate::guests::Guests;
use crate::members::{CallMember, CallMembers, why_nobody};
use crate::request::{CallError, CallOutcome, CallRequest, CallsMade, UserLeftOut};
use crate::row::{CallEvent, CallRow};
use crate::user::{CallTicket, ROWS_MAX, UserCalls};

/// Most events that wait to be taken; beyond it the oldest are dropped.
const EVENTS_MAX: usize = 4_096;
/// Answers and ends of one user that wait until the audit is open; more are dropped and counted.
const OPENING_MAX: usize = 4_096;

/// Makes calls, on any thread of the agent. When [`Self::fire`] returns, the call is on disk and in
/// its slot, and sleeping processes were woken. That function waits for the disk; no other function
/// here does.
pub struct Board {
    shared: Arc<SharedBoard>,
    /// The thread that writes lines for which no call waits.
    writer: Option<JoinHandle<()>>,
}

/// The state that the board's threads share.
pub(super) struct SharedBoard {
    pub run_dir: RunDir,
    pub state_dir: PathBuf,
    pub clock: Arc<dyn Clock>,
    state: Mutex<BoardState>,
    answered: Condvar,
    /// Signalled when there is something to write.
    pub work: Condvar,
}

#[derive(Default)]
pub(super) struct BoardState {
    pub users: BTreeMap<u32, User>,
    events: VecDeque<CallEvent>,
    events_lost: u64,
    guests: Guests,
    /// Whether the board is being dropped.
    pub is_over: bool,
}

/// A user whose processes can be called.
#[derive(Default)]
pub(super) struct User {
    members: CallMembers,
    pub desk: AuditDesk,
    pub audit: AuditState,
    /// The reason why the audit could not be opened at the last attempt.
    pub failure: Option<String>,
}

/// Whether a user's audit is open.
pub(super) enum AuditState {
    /// The audit is not open yet; answers and ends that have come meanwhile.
    Opening {
        events: Vec<ProcessReport>,
        lost: u64,
    },
    /// The calls of this user can be written and read.
    Open(Box<UserCalls>),
}

impl Default for AuditState {
    fn default() -> Self {
        Self::Opening {
            events: Vec::new(),
            lost: 0,
        }
    }
}

/// A report of a process to the board.
pub(super) enum ProcessReport {
    /// The process answers a call.
    Answer(Incarnation, u64, AckStatus),
    /// The process has ended.
    End(Incarnation),
}

/// The state of one user's part of a call.
enum CallPart {
    /// A part that waits for the disk: user, ticket, number of matching processes.
    Made(u32, CallTicket, usize),
    /// A part that is not made, for this user's processes.
    LeftOut(UserLeftOut, CallError),
}

impl Board {
    /// Makes a board for a run directory; `state_dir` is the directory of the scopes' state.
    pub fn new(run_dir: RunDir, state_dir: PathBuf, clock: Arc<dyn Clock>) -> Self {
        let mut board = Self::without_thread(run_dir, state_dir, clock);
        let shared = Arc::clone(&board.shared);
        let thread = std::thread::Builder::new()
            .name("baro-calls".into())
            .spawn(move || shared.run());
        if let Err(error) = &thread {
            warn!(%error, "answers to calls are written down by the next call alone");
        }
        board.writer = thread.ok();
        board
    }

    /// Makes a board whose lines are written by calls alone.
    pub fn without_thread(run_dir: RunDir, state_dir: PathBuf, clock: Arc<dyn Clock>) -> Self {
        let shared = SharedBoard {
            run_dir,
            state_dir,
            clock,
            state: Mutex::default(),
            answered: Condvar::new(),
            work: Condvar::new(),
        };
        Self {
            shared: Arc::new(shared),
            writer: None,
        }
    }

    /// Adds a process that can be called, or replaces its offers. The scope of its user must be
    /// open.
    pub fn join(&self, member: CallMember) {
        let mut state = self.shared.state();
        let user = state.users.entry(member.uid).or_default();
        user.members.join(member);
        self.shared.tell_writer(&state);
    }

    /// Removes a process that has ended. Calls that wait for it wait no longer.
    pub fn leave(&self, uid: u32, who: Incarnation) {
        self.take_in(uid, ProcessReport::End(who));
    }

    /// Takes in a process's answer to a call. Repeated answers, and answers of processes that do
    /// not match the call, are ignored.
    pub fn answer(&self, uid: u32, from: Incarnation, id: u64, status: AckStatus) {
        self.take_in(uid, ProcessReport::Answer(from, id, status));
    }

    fn take_in(&self, uid: u32, report: ProcessReport) {
        let mut state = self.shared.state();
        let now_ns = self.shared.clock.now_ns();
        if state.take_in(uid, report, now_ns) {
            self.shared.answered.notify_all();
        }
        self.shared.tell_writer(&state);
    }

    /// Makes a call. Fails if no living process matches, if a knob's value is out of its bounds, or
    /// if there is no room since earlier calls are unhandled. If processes of several users match,
    /// users for whom the call cannot be made are left out and counted in the result.
    pub fn fire(&self, request: &CallRequest) -> Result<CallsMade, CallError> {
        request.check_time()?;
        let shared = &self.shared;
        if let Some(uid) = request.only_user {
            let now_ns = shared.clock.monotonic_ns();
            shared.state().guests.take(uid, now_ns)?;
        }
        let unopened = shared.state().unopened(request);
        for uid in unopened {
            // The reason of a failure is kept, and reported with the users that are left out.
            let _ = shared.attend(uid);
        }
        let parts = shared.state().reserve(request, shared.clock.now_ns())?;
        let mut fired = CallsMade::default();
        let mut first_error = None;
        for part in parts {
            let (left_out, error) = match part {
                CallPart::LeftOut(left_out, error) => (left_out, error),
                CallPart::Made(uid, ticket, matched) => match shared.settle(uid, &ticket) {
                    Ok(id) => {
                        fired.calls.push((uid, id));
                        fired.matched += matched;
                        continue;
                    }
                    Err(error) => (UserLeftOut::of(uid, matched as u64, &error), error),
                },
            };
            first_error.get_or_insert(error);
            fired.leave_out(left_out);
        }
        match first_error {
            Some(error) if fired.calls.is_empty() => Err(error),
            _ => Ok(fired),
        }
    }

    /// Makes a call as [`Self::fire`] does, and waits for answers as [`Self::wait`] does. A user
    /// who may not control can wait for only a few calls at a time.
    pub fn fire_and_wait(
        &self,
        request: &CallRequest,
        longest: Duration,
    ) -> Result<(CallsMade, CallOutcome), CallError> {
        let waiter = request.only_user.filter(|_| !longest.is_zero());
        if let Some(uid) = waiter {
            self.shared.state().guests.begin_wait(uid)?;
        }
        let fired = self.fire(request);
        let ended = fired.map(|fired| {
            let outcome = self.wait(&fired, longest);
            (fired, outcome)
        });
        if let Some(uid) = waiter {
            self.shared.state().guests.end_wait(uid);
        }
        ended
    }

    /// The present state of a call. One that is forgotten counts as nothing.
    pub fn outcome(&self, fired: &CallsMade) -> CallOutcome {
        let now_ns = self.shared.clock.now_ns();
        self.shared.state().outcome(fired, now_ns)
    }

    /// Waits until every matching process has answered or is gone, the call has expired, or
    /// `longest` is over.
    #[expect(
        clippy::disallowed_methods,
        reason = "a client's thread waits for the answer to a call"
    )]
    pub fn wait(&self, fired: &CallsMade, longest: Duration) -> CallOutcome {
        let clock = &self.shared.clock;
        let longest_ns = i64::try_from(longest.as_nanos()).unwrap_or(i64::MAX);
        let until_ns = clock.monotonic_ns().saturating_add(longest_ns);
        let mut state = self.shared.state();
        loop {
            let now_ns = clock.now_ns();
            let outcome = state.outcome(fired, now_ns);
            let left_ns = until_ns.saturating_sub(clock.monotonic_ns());
            if outcome.is_settled() || left_ns <= 0 {
                return outcome;
            }
            // If the clock is set meanwhile, [`Self::beat`] notes what has expired.
            let left_ns = left_ns.min(state.expires_in_ns(fired, now_ns));
            let left = Duration::from_nanos(left_ns.unsigned_abs());
            let woken = self.shared.answered.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Notes calls that have expired. Called about once a second.
    pub fn beat(&self) {
        let now_ns = self.shared.clock.now_ns();
        let mut state = self.shared.state();
        let expired = state.open_users().map(|user| user.expire(now_ns));
        if expired.fold(false, |any, is| any | is) {
            self.shared.answered.notify_all();
        }
    }

    /// The documents of users whose calls have changed since the last call of this function, of
    /// those users for which `is_wanted` holds.
    pub fn documents(&self, is_wanted: impl Fn(u32) -> bool) -> Vec<(u32, Json)> {
        let now_ns = self.shared.clock.now_ns();
        let mut state = self.shared.state();
        let mut documents = Vec::new();
        for (uid, user) in &mut state.users {
            if let AuditState::Open(calls) = &mut user.audit
                && is_wanted(*uid)
                && std::mem::take(&mut calls.is_dirty)
            {
                documents.push((*uid, calls.document(now_ns)));
            }
        }
        documents
    }

    /// The calls that everyone may read, newest first, if they have changed since the last call of
    /// this function; at most as many as a user's document has.
    pub fn public_document(&self) -> Option<Json> {
        let now_ns = self.shared.clock.now_ns();
        let mut state = self.shared.state();
        let is_dirty = state.open_users().fold(false, |any, user| {
            std::mem::take(&mut user.is_public_dirty) | any
        });
        if !is_dirty {
            return None;
        }
        let mut rows: Vec<_> = state
            .open_users()
            .flat_map(|calls| calls.public())
            .collect();
        rows.sort_by_key(|(_, row)| std::cmp::Reverse((row.call.issued_ns, row.call.id)));
        let newest = rows.into_iter().take(ROWS_MAX);
        let documents = newest.map(|(user, row)| row.to_public_document(user, now_ns));
        Some(documents.collect())
    }

    /// The events since the last call of this function, oldest first, and the number of dropped
    /// ones.
    pub fn events(&self) -> (Vec<CallEvent>, u64) {
        let mut state = self.shared.state();
        let lost = std::mem::take(&mut state.events_lost);
        (state.events.drain(..).collect(), lost)
    }

    /// Writes waiting lines and opens audits, for tests.
    #[cfg(test)]
    pub(super) fn write_now(&self) {
        let waiting = self.shared.state().waiting();
        for uid in waiting {
            let _ = self.shared.attend(uid);
        }
    }

    /// Makes a step of the writing thread, for tests of boards without one.
    #[cfg(test)]
    pub(super) fn step(&self, next_ns: i64) -> i64 {
        self.shared.step(next_ns)
    }

    /// A user's desk, for tests in which something waits for a disk.
    #[cfg(test)]
    pub(super) fn desk(&self, uid: u32) -> Option<AuditDesk> {
        let state = self.shared.state();
        state.users.get(&uid).map(|user| Arc::clone(&user.desk))
    }
}

impl Drop for Board {
    /// Writes all waiting lines before the thread ends.
    fn drop(&mut self) {
        self.shared.state().is_over = true;
        self.shared.work.notify_all();
        if let Some(writer) = self.writer.take() {
            // A panic of that thread was already reported.
            let _ = writer.join();
        }
    }
}

impl SharedBoard {
    pub(super) fn state(&self) -> MutexGuard<'_, BoardState> {
        // Ignoring poison is sound: a panic under the lock leaves no half-written state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell_writer(&self, state: &BoardState) {
        if state.is_waiting() {
            self.work.notify_one();
        }
    }

    /// Brings a reserved call to disk and into its slot, together with everything that waits beside
    /// it.
    fn settle(&self, uid: u32, ticket: &CallTicket) -> Result<u64, CallError> {
        loop {
            if let Some(settled) = ticket.get() {
                return settled.clone();
            }
            // Each attempt takes everything that waited before, or fails; another thread may have
            // taken this call already.
            if let Err(why) = self.attend(uid)
                && ticket.get().is_none()
            {
                return Err(CallError::Internal(why));
            }
        }
    }
}

impl BoardState {
    /// The calls of users whose audit is open.
    fn open_users(&mut self) -> impl Iterator<Item = &mut UserCalls> {
        self.users.values_mut().filter_map(User::open_calls)
    }

    pub(super) fn calls(&mut self, uid: u32) -> Option<&mut UserCalls> {
        self.users.get_mut(&uid)?.open_calls()
    }

    /// Whether the writing thread has anything to do.
    pub(super) fn is_waiting(&self) -> bool {
        self.users.values().any(User::is_waiting)
    }

    /// The users for whom it has.
    pub(super) fn waiting(&self) -> Vec<u32> {
        let waiting = self.users.iter().filter(|(_, user)| user.is_waiting());
        waiting.map(|(uid, _)| *uid).collect()
    }

    /// Takes in a process's report; returns whether the state of calls has changed.
    pub(super) fn take_in(&mut self, uid: u32, report: ProcessReport, now_ns: i64) -> bool {
        let Some(user) = self.users.get_mut(&uid) else {
            return false;
        };
        if let ProcessReport::End(who) = report {
            user.members.leave(who);
        }
        let calls = match &mut user.audit {
            AuditState::Open(calls) => calls,
            AuditState::Opening { events, lost } if events.len() >= OPENING_MAX => {
                *lost += 1;
                return false;
            }
            AuditState::Opening { events, .. } => {
                events.push(report);
                return false;
            }
        };
        match report {
            ProcessReport::End(who) => calls.leave(who, now_ns),
            ProcessReport::Answer(from, id, status) => {
                let Some(row) = calls.answer(from, id, status, now_ns) else {
                    return false;
                };
                let mut event = row.to_event(uid);
                (event.ts, event.is_answer) = (now_ns, true);
                self.tell(event);
                true
            }
        }
    }

    fn asked<'s>(
        &'s self,
        request: &'s CallRequest,
    ) -> impl Iterator<Item = (u32, &'s User)> + use<'s> {
        let only = request.only_user;
        let users = self.users.iter().map(|(uid, user)| (*uid, user));
        users.filter(move |(uid, _)| only.is_none_or(|only| only == *uid))
    }

    /// Users whose processes match and whose audit is not open.
    fn unopened(&self, request: &CallRequest) -> Vec<u32> {
        let asked = self.asked(request);
        let unopened = asked.filter(|(_, user)| {
            matches!(user.audit, AuditState::Opening { .. })
                && user.members.meant(request).is_some()
        });
        unopened.map(|(uid, _)| uid).collect()
    }

    /// Reserves a call for each user whose processes match.
    fn reserve(&mut self, request: &CallRequest, now_ns: i64) -> Result<Vec<CallPart>, CallError> {
        let asked = self.asked(request);
        let meant = asked.filter_map(|(uid, user)| Some((uid, user.members.meant(request)?)));
        let meant: Vec<_> = meant.collect();
        if meant.is_empty() {
            let members = self.asked(request).map(|(_, user)| &user.members);
            return Err(CallError::Nobody(why_nobody(members, request)));
        }
        let mut parts = Vec::with_capacity(meant.len());
        for (uid, meant) in meant {
            let user = self.users.get_mut(&uid);
            let part = match (meant, user) {
                (Err((count, reason)), _) => {
                    let error = CallError::Request(reason);
                    CallPart::LeftOut(UserLeftOut::of(uid, count, &error), error)
                }
                (Ok((meant, payload)), Some(user)) => {
                    let matched = meant.who.len();
                    let call = request.call(payload, now_ns);
                    call.check().map_err(CallError::Request)?;
                    let row = CallRow::new(call, request.by.clone(), meant);
                    match user.reserve(row, now_ns) {
                        Ok(ticket) => CallPart::Made(uid, ticket, matched),
                        Err(error) => {
                            CallPart::LeftOut(UserLeftOut::of(uid, matched as u64, &error), error)
                        }
                    }
                }
                (Ok(_), None) => continue,
            };
            parts.push(part);
        }
        Ok(parts)
    }

    fn outcome(&self, fired: &CallsMade, now_ns: i64) -> CallOutcome {
        let mut sum = fired.left_out();
        for (uid, id) in &fired.calls {
            let calls = self.users.get(uid).and_then(|user| match &user.audit {
                AuditState::Open(calls) => Some(calls),
                AuditState::Opening { .. } => None,
            });
            if let Some(row) = calls.and_then(|calls| calls.row(*id)) {
                sum.add(row.outcome(now_ns));
            }
        }
        sum
    }

    /// Time until the next of these calls expires, in ns; at least 1 ns.
    fn expires_in_ns(&self, fired: &CallsMade, now_ns: i64) -> i64 {
        let rows = fired.calls.iter().filter_map(|(uid, id)| {
            let AuditState::Open(calls) = &self.users.get(uid)?.audit else {
                return None;
            };
            calls.row(*id)
        });
        let left_ns = rows.map(|row| row.call.expires_ns.saturating_sub(now_ns));
        left_ns
            .filter(|left_ns| *left_ns > 0)
            .min()
            .unwrap_or(i64::MAX)
    }

    pub(super) fn tell(&mut self, event: CallEvent) {
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
            self.events_lost += 1;
        }
        self.events.push_back(event);
    }
}

impl User {
    fn open_calls(&mut self) -> Option<&mut UserCalls> {
        match &mut self.audit {
            AuditState::Open(calls) => Some(calls),
            AuditState::Opening { .. } => None,
        }
    }

    fn is_waiting(&self) -> bool {
        match &self.audit {
            AuditState::Open(calls) => calls.has_entries(),
            AuditState::Opening { .. } => !self.members.is_empty(),
        }
    }

    fn reserve(&mut self, row: CallRow, now_ns: i64) -> Result<CallTicket, CallError> {
        let failure = self.failure.clone();
        let Some(calls) = self.open_calls() else {
            let why = failure.unwrap_or_else(|| "the audit of calls is not open yet".into());
            return Err(CallError::Internal(why));
        };
        calls.check_room(now_ns)?;
        Ok(calls.reserve(row))
    }
}

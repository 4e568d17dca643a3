//! The board: who handles what, and every user's calls, behind one lock.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use barograph_model::{Clock, NS_PER_S, near};
use barograph_stream::calls::{AckStatus, Call, CallKind, CallPayload, Subject};
use barograph_stream::{Incarnation, RunDir};
use serde_json::Value as Json;

use super::request::{FireError, FireRequest, Fired, Outcome};
use super::row::{CallRow, Meant};
use super::user::{ROWS_MAX, UserCalls};
use super::value::Bounds;
use barograph_stream::user_name;

/// The calls file in a user's scope.
const CALLS_FILE: &str = "calls";
/// The audit in a user's scope of the state directory.
const AUDIT_FILE: &str = "calls.jsonl";
/// What happened and was not taken yet; more is dropped, oldest first.
const EVENTS_MAX: usize = 4_096;
/// Who waits for answers looks at the time so often.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Calls per second of a user who may not control: each is a write to disk that others wait for.
const GUEST_CALLS_PER_S: f64 = 200.0;
/// And so many at once.
const GUEST_CALLS_MAX: f64 = 1_000.0;
/// Users whose calls are counted before those who have made none for long are forgotten.
const GUESTS_MAX: usize = 1_024;
/// Names that a hint shows.
const HINT_MAX: usize = 8;

/// A process that can be called.
#[derive(Clone, Debug)]
pub struct Member {
    /// This life of it.
    pub incarnation: Incarnation,
    /// Whose it is: the owner of its ingest file.
    pub uid: u32,
    /// What it handles.
    pub offers: Vec<Offer>,
}

/// A trigger or knob of a process.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Which of the two.
    pub kind: CallKind,
    /// The trigger's name; `publication.knob`.
    pub name: String,
    /// The publication that it is of; none for one of the process, and where the publication was refused.
    pub publication: Option<String>,
    /// Whether everyone may read that publication, and so of its calls.
    pub is_public: bool,
    /// What targets are held against.
    pub subject: Subject,
    /// Of a knob.
    pub bounds: Option<Bounds>,
}

/// Something that happened, for the streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallEvent {
    pub uid: u32,
    /// For everyone to read.
    pub is_public: bool,
    pub name: String,
    pub id: u64,
    pub ts: i64,
    /// An answer; else the call itself.
    pub is_answer: bool,
}

/// Makes calls. Any thread of the agent may: a call is on disk and in its slot, and whoever sleeps was
/// woken, when [`Self::fire`] returns. That takes a write to disk; readings and answers wait meanwhile.
pub struct Board {
    run_dir: RunDir,
    state_dir: PathBuf,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    answered: Condvar,
}

#[derive(Default)]
struct State {
    members: HashMap<Incarnation, Member>,
    users: BTreeMap<u32, UserCalls>,
    events: VecDeque<CallEvent>,
    events_lost: u64,
    guests: Guests,
}

/// How many calls each user who may not control has left: a bucket that fills at a steady rate.
#[derive(Default)]
struct Guests(HashMap<u32, (f64, i64)>);

impl Guests {
    fn take(&mut self, uid: u32, now_ns: i64) -> Result<(), FireError> {
        if self.0.len() >= GUESTS_MAX {
            let is_full =
                |left: f64, since_ns: i64| filled(left, since_ns, now_ns) >= GUEST_CALLS_MAX;
            self.0
                .retain(|_, (left, since_ns)| !is_full(*left, *since_ns));
        }
        let entry = self.0.entry(uid).or_insert((GUEST_CALLS_MAX, now_ns));
        *entry = (filled(entry.0, entry.1, now_ns), now_ns);
        if entry.0 < 1.0 {
            return Err(FireError::Busy(format!(
                "more than {GUEST_CALLS_PER_S} calls per second of one user: try again"
            )));
        }
        entry.0 -= 1.0;
        Ok(())
    }
}

fn filled(left: f64, since_ns: i64, now_ns: i64) -> f64 {
    let seconds = now_ns.saturating_sub(since_ns).max(0) as f64 / NS_PER_S as f64;
    (left + seconds * GUEST_CALLS_PER_S).min(GUEST_CALLS_MAX)
}

impl Board {
    /// A board for a run directory; `state_dir` is that of the applications.
    pub fn new(run_dir: RunDir, state_dir: PathBuf, clock: Arc<dyn Clock>) -> Self {
        Self {
            run_dir,
            state_dir,
            clock,
            state: Mutex::default(),
            answered: Condvar::new(),
        }
    }

    /// A process can be called from now on, or offers something else than before. The scope of its user
    /// must be open.
    pub fn join(&self, member: Member) -> Result<(), String> {
        let mut state = self.state();
        if let std::collections::btree_map::Entry::Vacant(entry) = state.users.entry(member.uid) {
            let scope = format!("u{}", member.uid);
            let calls = self.run_dir.scope(&scope).path().join(CALLS_FILE);
            let audit = self.state_dir.join(&scope).join(AUDIT_FILE);
            let (name, now_ns) = (user_name(member.uid), self.clock.now_ns());
            entry.insert(UserCalls::open(name, &calls, &audit, now_ns)?);
        }
        state.members.insert(member.incarnation, member);
        Ok(())
    }

    /// A process has ended. Calls that wait for it need not any more.
    pub fn leave(&self, uid: u32, who: Incarnation) {
        let mut state = self.state();
        state.members.remove(&who);
        let now_ns = self.clock.now_ns();
        if let Some(user) = state.users.get_mut(&uid)
            && user.leave(who, now_ns)
        {
            self.answered.notify_all();
        }
    }

    /// A process of a user answers a call. Repetitions, and answers of those who are not meant, do nothing.
    pub fn answer(&self, uid: u32, from: Incarnation, id: u64, status: AckStatus) {
        let mut state = self.state();
        let now_ns = self.clock.now_ns();
        let user = state.users.get_mut(&uid);
        let row = user.and_then(|user| user.answer(from, id, status, now_ns));
        let Some((name, is_public)) = row.map(|row| (row.call.name.clone(), row.is_public)) else {
            return;
        };
        state.tell(CallEvent {
            uid,
            is_public,
            name,
            id,
            ts: now_ns,
            is_answer: true,
        });
        self.answered.notify_all();
    }

    /// Makes a call: refused when nobody who lives is meant, when a knob's value is out of its bounds, and
    /// when calls that nobody has handled are in the way.
    pub fn fire(&self, request: &FireRequest) -> Result<Fired, FireError> {
        request.check_time()?;
        let mut state = self.state();
        let now_ns = self.clock.now_ns();
        if let Some(uid) = request.only_user {
            state.guests.take(uid, self.clock.monotonic_ns())?;
        }
        let (meant, payload) = state.meant(request)?;
        let expires_ns = i64::try_from(request.expires.as_nanos()).unwrap_or(i64::MAX);
        let call = Call {
            id: 0,
            issued_ns: now_ns,
            expires_ns: now_ns.saturating_add(expires_ns),
            kind: request.kind,
            name: request.name.clone(),
            target: request.target.clone(),
            payload,
            version: 0,
        };
        call.check().map_err(FireError::Request)?;
        for uid in meant.keys() {
            let user = state.users.get(uid).ok_or_else(no_file)?;
            user.check_room(now_ns)?;
        }
        let matched = meant.values().map(|meant| meant.who.len()).sum();
        let mut calls = Vec::with_capacity(meant.len());
        for (uid, meant) in meant {
            let is_public = meant.is_public;
            let user = state.users.get_mut(&uid).ok_or_else(no_file)?;
            let id = user.fire(CallRow::new(call.clone(), request.by.clone(), meant))?;
            calls.push((uid, id));
            let name = call.name.clone();
            state.tell(CallEvent {
                uid,
                is_public,
                name,
                id,
                ts: now_ns,
                is_answer: false,
            });
        }
        Ok(Fired { calls, matched })
    }

    /// How a call stands now. One that is forgotten counts as nothing.
    pub fn outcome(&self, fired: &Fired) -> Outcome {
        self.state().outcome(fired, self.clock.now_ns())
    }

    /// Waits until everyone who is meant has answered or is gone, it has expired, or `longest` is over.
    pub fn wait(&self, fired: &Fired, longest: Duration) -> Outcome {
        let longest_ns = i64::try_from(longest.as_nanos()).unwrap_or(i64::MAX);
        let until_ns = self.clock.monotonic_ns().saturating_add(longest_ns);
        let mut state = self.state();
        loop {
            let outcome = state.outcome(fired, self.clock.now_ns());
            let left_ns = until_ns.saturating_sub(self.clock.monotonic_ns());
            let left = Duration::from_nanos(u64::try_from(left_ns).unwrap_or(0));
            if outcome.is_settled() || left.is_zero() {
                return outcome;
            }
            let woken = self.answered.wait_timeout(state, left.min(LOOK_EVERY));
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Notes what has expired. Now and then.
    pub fn beat(&self) {
        let now_ns = self.clock.now_ns();
        let mut state = self.state();
        let expired = state.users.values_mut().map(|user| user.expire(now_ns));
        if expired.fold(false, |any, is| any | is) {
            self.answered.notify_all();
        }
    }

    /// The documents of users whose calls have changed since the last time.
    pub fn documents(&self) -> Vec<(u32, Json)> {
        let now_ns = self.clock.now_ns();
        let mut state = self.state();
        let dirty = state.users.iter_mut().filter(|(_, user)| user.is_dirty);
        let written = dirty.map(|(uid, user)| {
            user.is_dirty = false;
            (*uid, user.document(now_ns))
        });
        written.collect()
    }

    /// What everyone may read of calls, newest first, if that has changed since the last time: as many as of
    /// one user.
    pub fn public_document(&self) -> Option<Json> {
        let now_ns = self.clock.now_ns();
        let mut state = self.state();
        let users = state.users.values_mut();
        let is_dirty = users.fold(false, |any, user| {
            std::mem::take(&mut user.is_public_dirty) | any
        });
        if !is_dirty {
            return None;
        }
        let mut rows: Vec<_> = state.users.values().flat_map(UserCalls::public).collect();
        rows.sort_by_key(|(_, row)| std::cmp::Reverse((row.call.issued_ns, row.call.id)));
        let rows = rows.into_iter().take(ROWS_MAX);
        let rows = rows.map(|(user, row)| row.to_public_document(user, now_ns));
        Some(rows.collect())
    }

    /// What has happened since the last time, oldest first, and how much of it was dropped.
    pub fn events(&self) -> (Vec<CallEvent>, u64) {
        let mut state = self.state();
        let lost = std::mem::take(&mut state.events_lost);
        (state.events.drain(..).collect(), lost)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whoever panicked with it left no half of anything.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn no_file() -> FireError {
    FireError::Internal("a process has joined without a calls file".into())
}

impl State {
    /// Who is meant, by user, and what is written: of a knob the value in its type.
    fn meant(
        &self,
        request: &FireRequest,
    ) -> Result<(BTreeMap<u32, Meant>, CallPayload), FireError> {
        let is_asked = |member: &&Member| request.only_user.is_none_or(|uid| uid == member.uid);
        let mut meant: BTreeMap<u32, Meant> = BTreeMap::new();
        let mut payload: Option<CallPayload> = None;
        for member in self.members.values().filter(is_asked) {
            let is_meant = |offer: &&Offer| {
                let is_it = offer.kind == request.kind && offer.name == request.name;
                is_it && request.target.matches(&offer.subject)
            };
            let mut matching = member.offers.iter().filter(is_meant).peekable();
            if matching.peek().is_none() {
                continue;
            }
            let of_user = meant.entry(member.uid).or_default();
            of_user.who.push(member.incarnation);
            for offer in matching {
                of_user.add(offer);
                let Some(bounds) = offer.bounds else { continue };
                let admitted = bounds.admit(&request.payload);
                let admitted = admitted.map_err(|reason| {
                    FireError::Request(format!("{} is not set: {reason}", request.name))
                })?;
                if *payload.get_or_insert_with(|| admitted.clone()) != admitted {
                    return Err(FireError::Request(format!(
                        "{} is of different types in different processes: narrow the target",
                        request.name
                    )));
                }
            }
        }
        if meant.is_empty() {
            return Err(FireError::Nobody(self.why_nobody(request)));
        }
        Ok((meant, payload.unwrap_or_else(|| request.payload.clone())))
    }

    fn why_nobody(&self, request: &FireRequest) -> String {
        let is_asked = |member: &&Member| request.only_user.is_none_or(|uid| uid == member.uid);
        let members = self.members.values().filter(is_asked);
        let offers = members.flat_map(|member| &member.offers);
        let names = offers.filter(|offer| offer.kind == request.kind);
        let mut names: Vec<&str> = names.map(|offer| offer.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let (what, name) = (request.kind.as_str(), &request.name);
        if names.contains(&name.as_str()) {
            return format!("no process that has the {what} {name:?} is the one that is meant");
        }
        let mut hint = near(name, names.iter().copied());
        if hint.is_empty() {
            hint = names.into_iter().take(HINT_MAX).collect();
        }
        match hint.is_empty() {
            true => format!("no process of those that can be called from here has a {what}"),
            false => format!(
                "no process has the {what} {name:?}; there is {}",
                hint.join(", ")
            ),
        }
    }

    fn outcome(&self, fired: &Fired, now_ns: i64) -> Outcome {
        let mut sum = Outcome::default();
        for (uid, id) in &fired.calls {
            let row = self.users.get(uid).and_then(|user| user.row(*id));
            if let Some(row) = row {
                sum.add(row.outcome(now_ns));
            }
        }
        sum
    }

    fn tell(&mut self, event: CallEvent) {
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
            self.events_lost += 1;
        }
        self.events.push_back(event);
    }
}

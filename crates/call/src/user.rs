//! The calls of one user's processes as they are in memory: the file that they map, what is still known, and what
//! is yet to be written to the audit. Nothing here waits for a disk.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use barograph_stream::Incarnation;
use barograph_stream::calls::{AckStatus, CallsWriter, SLOTS};
use serde_json::{Value as Json, json};
use tracing::warn;

use crate::request::FireError;
use crate::row::{CallRow, incarnation};

/// Calls that are remembered, and shown.
pub const ROWS_MAX: usize = 1_024;
/// Answers and ends that wait to be written to the audit of one user; more are not in the audit, and counted there.
pub const NOTES_MAX: usize = 32_768;

/// The greatest id that an audit is believed to have given: beyond it a line is damaged.
const ID_MAX: u64 = 1 << 62;

const _: () = assert!(ROWS_MAX as u64 >= SLOTS, "what is in a slot is known");

/// What becomes of a call that is on its way to disk: its id once it is in its slot, or why it is not.
pub type Ticket = Arc<OnceLock<Result<u64, FireError>>>;

/// What is written to the audit.
#[derive(Clone, Debug)]
pub enum Entry {
    /// A call, with the id that it will have.
    Called(Box<CallRow>),
    /// An answer of a process.
    Answered(u64, Incarnation, AckStatus, i64),
    /// A process has ended that had not answered.
    Gone(u64, Incarnation, i64),
    /// So many of the two could not be kept until they were written.
    Lost(u64),
}

impl Entry {
    /// The line of the audit that tells of this event.
    pub fn to_json(&self) -> Json {
        match self {
            Self::Called(row) => row.to_audit(),
            Self::Answered(id, who, status, ts) => json!({
                "event": "answered", "id": id, "ts": ts, "incarnation": who.to_string(),
                "status": *status as u8,
            }),
            Self::Gone(id, who, ts) => json!({
                "event": "gone", "id": id, "ts": ts, "incarnation": who.to_string(),
            }),
            Self::Lost(answers) => json!({ "event": "lost", "answers": answers }),
        }
    }
}

/// What waits to be written, in its order.
enum Pending {
    Call(Box<CallRow>, Ticket),
    Note(Entry),
}

/// One user's calls.
pub struct UserCalls {
    /// The name of whose they are.
    name: String,
    writer: CallsWriter,
    /// Newest last; ids go up.
    rows: VecDeque<CallRow>,
    pending: VecDeque<Pending>,
    /// Calls among those.
    calls_pending: u64,
    notes_lost: u64,
    /// Calls that are being written to disk now, with their ids.
    in_flight: VecDeque<(CallRow, Ticket)>,
    /// Whether the document is out of date.
    pub is_dirty: bool,
    /// Whether that of what everyone may read is.
    pub is_public_dirty: bool,
}

/// What an audit tells of the calls of earlier agents.
#[derive(Default)]
pub struct Replayed {
    rows: VecDeque<CallRow>,
    /// The greatest id that was given.
    last: u64,
}

impl Replayed {
    /// Takes in a line of the audit.
    pub fn take(&mut self, line: &Json) {
        let id = line["id"].as_u64().filter(|id| (1..=ID_MAX).contains(id));
        let Some(id) = id else { return };
        self.last = self.last.max(id);
        let rows = &mut self.rows;
        if line["event"] == "fired" {
            let Some(row) = CallRow::from_audit(line) else {
                return;
            };
            // One that comes again (carried over, or of a call that failed) counts instead.
            match rows.binary_search_by_key(&row.call.id, |known| known.call.id) {
                Ok(at) => rows[at] = row,
                Err(0) if rows.len() >= ROWS_MAX => {}
                Err(at) => rows.insert(at, row),
            }
            if rows.len() > ROWS_MAX {
                rows.pop_front();
            }
            return;
        }
        let Ok(at) = rows.binary_search_by_key(&id, |row| row.call.id) else {
            return;
        };
        let (Some(who), ts) = (incarnation(&line["incarnation"]), line["ts"].as_i64()) else {
            return;
        };
        let status = line["status"].as_u64().and_then(|n| u32::try_from(n).ok());
        match (line["event"].as_str(), status.and_then(AckStatus::from_u32)) {
            (Some("answered"), Some(status)) => {
                rows[at].answer(who, status, ts.unwrap_or(0));
            }
            (Some("gone"), _) => {
                rows[at].leave(who, ts.unwrap_or(0));
            }
            _ => {}
        }
    }
}

impl UserCalls {
    /// Goes on where an earlier agent was, as its audit and its file tell. Calls that it had on disk and not
    /// in a slot, and those that wait for answers while their file is gone, are written again.
    pub fn open(
        name: String,
        calls: &Path,
        replayed: Replayed,
        now_ns: i64,
    ) -> Result<Self, String> {
        let Replayed { rows, last } = replayed;
        let writer = CallsWriter::open_or_create(calls, now_ns).map_err(|e| e.to_string())?;
        let mut user = Self {
            name,
            writer,
            is_public_dirty: rows.iter().any(|row| row.is_public),
            rows,
            pending: VecDeque::new(),
            calls_pending: 0,
            notes_lost: 0,
            in_flight: VecDeque::new(),
            is_dirty: true,
        };
        user.write_again(last, now_ns)?;
        user.forget();
        Ok(user)
    }

    fn write_again(&mut self, last: u64, now_ns: i64) -> Result<(), String> {
        let written = self.writer.written();
        if written > last && last > 0 {
            warn!(path = %self.writer.path().display(), "the audit lacks calls that were made");
        }
        let mut from = written.max(last.saturating_sub(SLOTS));
        if written == 0 {
            // A new file needs nothing that nobody waits for.
            let pending = self.rows.iter().find(|row| row.is_pending(now_ns));
            from = from.max(pending.map_or(last, |row| row.call.id - 1));
        }
        self.writer.advance_to(from);
        while self.writer.written() < last {
            let id = self.writer.written() + 1;
            let known = self.row(id).map(|row| row.call.clone());
            let call = known.unwrap_or_else(|| CallRow::placeholder(id));
            self.writer.fire(&call).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// Calls that are in slots: the id of the last.
    pub fn written(&self) -> u64 {
        self.writer.written()
    }

    /// Whether there is room for one more call, beside those on their way.
    pub fn check_room(&self, now_ns: i64) -> Result<(), FireError> {
        let on_their_way = self.calls_pending + self.in_flight.len() as u64;
        let next = self.writer.written() + on_their_way + 1;
        let in_the_way = next.checked_sub(SLOTS);
        if in_the_way.is_some_and(|id| id > self.writer.written()) {
            return Err(FireError::Busy(format!(
                "{SLOTS} calls wait for the disk that their audit is on: try again"
            )));
        }
        match in_the_way.and_then(|id| self.row(id)) {
            Some(row) if row.is_pending(now_ns) => Err(FireError::Busy(format!(
                "{SLOTS} calls wait: {:?} of the oldest has not been handled by {} processes; let them \
                 poll, or wait until it expires",
                row.call.name,
                row.outcome(now_ns).waiting
            ))),
            _ => Ok(()),
        }
    }

    /// Takes a call on. It is made when it is on disk, and its ticket tells.
    pub fn reserve(&mut self, row: CallRow) -> Ticket {
        let ticket = Ticket::default();
        self.calls_pending += 1;
        let call = Pending::Call(Box::new(row), Arc::clone(&ticket));
        self.pending.push_back(call);
        ticket
    }

    /// Whether there is anything to be written to the audit.
    pub fn has_entries(&self) -> bool {
        !self.pending.is_empty()
    }

    /// What is to be written next, at most so many. Calls among it have got their ids, and wait for
    /// [`Self::publish`]: one batch at a time.
    pub fn take_entries(&mut self, count_max: usize) -> Vec<Entry> {
        if !self.in_flight.is_empty() {
            let why = "nothing was fired: writing the audit was given up";
            self.publish(Err(why.into()));
        }
        let count = self.pending.len().min(count_max);
        let taken: Vec<Pending> = self.pending.drain(..count).collect();
        let mut entries: Vec<Entry> = taken.into_iter().map(|next| self.enter(next)).collect();
        if self.notes_lost > 0 {
            entries.push(Entry::Lost(std::mem::take(&mut self.notes_lost)));
        }
        entries
    }

    fn enter(&mut self, next: Pending) -> Entry {
        match next {
            Pending::Note(entry) => entry,
            Pending::Call(mut row, ticket) => {
                self.calls_pending -= 1;
                let id = self.writer.written() + self.in_flight.len() as u64 + 1;
                (row.call.id, row.call.version) = (id, id);
                self.in_flight.push_back(((*row).clone(), ticket));
                Entry::Called(row)
            }
        }
    }

    /// Entries that could not be written come before all others again; their calls were given up.
    pub fn put_back(&mut self, entries: Vec<Entry>) {
        for entry in entries.into_iter().rev() {
            match entry {
                Entry::Called(_) => {}
                Entry::Lost(count) => self.notes_lost += count,
                note if self.pending.len() < NOTES_MAX => {
                    self.pending.push_front(Pending::Note(note));
                }
                _ => self.notes_lost += 1,
            }
        }
    }

    /// What was taken is on disk, or why it is not: makes its calls, or gives them up. Gives those that were made.
    pub fn publish(&mut self, done: Result<(), String>) -> Vec<&CallRow> {
        let mut made = 0;
        for (row, ticket) in std::mem::take(&mut self.in_flight) {
            let written = match &done {
                // After one that failed the ids of the others are not theirs.
                Ok(()) if self.writer.written() + 1 == row.call.id => {
                    let written = self.writer.fire(&row.call);
                    written.map_err(|e| format!("the call is noted, but not made: {e}"))
                }
                Ok(()) => Err("the call is noted, but not made: one before it failed".into()),
                Err(why) => Err(why.clone()),
            };
            let written = written.map_err(FireError::Internal);
            if written.is_ok() {
                self.is_public_dirty |= row.is_public;
                self.rows.push_back(row);
                made += 1;
            }
            // Nobody else sets it.
            let _ = ticket.set(written);
        }
        self.forget();
        self.is_dirty |= made > 0;
        let from = self.rows.len().saturating_sub(made);
        self.rows.range(from..).collect()
    }

    /// Calls that are to be carried over into another file of the audit.
    pub fn unsettled(&self) -> Vec<u64> {
        let pending = self.rows.iter().filter(|row| row.is_pending(row_time(row)));
        pending.map(|row| row.call.id).collect()
    }

    /// Somebody answers a call; gives it if that is news.
    pub fn answer(
        &mut self,
        from: Incarnation,
        id: u64,
        status: AckStatus,
        now_ns: i64,
    ) -> Option<&CallRow> {
        let at = self.index(id)?;
        if !self.rows[at].answer(from, status, now_ns) {
            return None;
        }
        self.note(Entry::Answered(id, from, status, now_ns));
        self.is_public_dirty |= self.rows[at].is_public;
        Some(&self.rows[at])
    }

    /// Somebody has ended; whether calls waited for him.
    pub fn leave(&mut self, who: Incarnation, now_ns: i64) -> bool {
        let mut left = Vec::new();
        let in_flight = self.in_flight.iter_mut().map(|(row, _)| row);
        for row in self.rows.iter_mut().chain(in_flight) {
            if row.leave(who, now_ns) {
                left.push(row.call.id);
                self.is_public_dirty |= row.is_public;
            }
        }
        for next in &mut self.pending {
            // Its line is not written yet: it will tell.
            if let Pending::Call(row, _) = next {
                row.leave(who, now_ns);
            }
        }
        for id in &left {
            self.note(Entry::Gone(*id, who, now_ns));
        }
        !left.is_empty()
    }

    /// Notes what has expired; whether anything has.
    pub fn expire(&mut self, now_ns: i64) -> bool {
        let mut any = false;
        for row in self.rows.iter_mut().filter(|row| !row.outcome_is_over()) {
            if row.expire(now_ns) {
                any = true;
                self.is_public_dirty |= row.is_public;
            }
        }
        self.is_dirty |= any;
        any
    }

    /// A call that is remembered.
    pub fn row(&self, id: u64) -> Option<&CallRow> {
        self.index(id).map(|at| &self.rows[at])
    }

    /// What is known, newest first.
    pub fn document(&self, now_ns: i64) -> Json {
        let rows = self.rows.iter().rev();
        let rows = rows.map(|row| row.to_document(&self.name, now_ns));
        rows.collect()
    }

    /// What everyone may read of it, with whose it is.
    pub fn public(&self) -> impl Iterator<Item = (&str, &CallRow)> {
        let rows = self.rows.iter().filter(|row| row.is_public);
        rows.map(|row| (&*self.name, row))
    }

    fn index(&self, id: u64) -> Option<usize> {
        self.rows.binary_search_by_key(&id, |row| row.call.id).ok()
    }

    fn note(&mut self, entry: Entry) {
        self.is_dirty = true;
        if self.pending.len() < NOTES_MAX {
            self.pending.push_back(Pending::Note(entry));
        } else {
            self.notes_lost += 1;
        }
    }

    fn forget(&mut self) {
        while self.rows.len() > ROWS_MAX {
            let forgotten = self.rows.pop_front();
            self.is_public_dirty |= forgotten.is_some_and(|row| row.is_public);
        }
        let gone = self.writer.written().saturating_sub(SLOTS);
        // From the newest of them on backwards: the others were given up before.
        let old = self.rows.iter_mut().rev();
        let old = old.skip_while(|row| row.call.id > gone);
        old.take_while(|row| !row.is_given_up())
            .for_each(CallRow::give_up);
    }
}

/// A time at which a row that is not known to be over is pending: its own.
fn row_time(row: &CallRow) -> i64 {
    row.call.issued_ns
}

//! The calls of one user's processes in memory: the file that the processes map, the calls that are
//! remembered, and the lines that wait for the audit. Nothing here waits for a disk.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use barograph_stream::Incarnation;
use barograph_stream::calls::{AckStatus, CallsWriter, SLOTS};
use serde_json::{Value as Json, json};
use tracing::warn;

use crate::request::CallError;
use crate::row::{CallRow, incarnation};

/// Most calls that are remembered and shown.
pub(crate) const ROWS_MAX: usize = 1_024;
/// Most answers and ends that wait to be written to the audit of one user; of more, the audit has
/// only the number.
pub(crate) const NOTES_MAX: usize = 32_768;

/// Greatest id in an audit; a line with a greater one is damaged.
const ID_MAX: u64 = 1 << 62;

const _: () = assert!(ROWS_MAX as u64 >= SLOTS, "what is in a slot is known");

/// The result of a call on its way to disk: its id once it is in its slot, or the error.
pub(crate) type CallTicket = Arc<OnceLock<Result<u64, CallError>>>;

/// A line for the audit.
#[derive(Clone, Debug)]
pub(crate) enum AuditEntry {
    /// A call, with the id that it will have.
    Called(Box<CallRow>),
    /// An answer of a process.
    Answered(u64, Incarnation, AckStatus, i64),
    /// A process that had not answered has ended.
    Gone(u64, Incarnation, i64),
    /// The number of answers and ends that could not be kept until they were written.
    Lost(u64),
}

impl AuditEntry {
    /// The JSON of this line.
    pub(crate) fn to_json(&self) -> Json {
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

/// An entry that waits to be written, in order.
enum Pending {
    Call(Box<CallRow>, CallTicket),
    Note(AuditEntry),
}

/// One user's calls.
pub(crate) struct UserCalls {
    /// The user's name.
    name: String,
    writer: CallsWriter,
    /// The remembered calls, oldest first; ids ascend.
    rows: VecDeque<CallRow>,
    pending: VecDeque<Pending>,
    calls_pending: u64,
    notes_lost: u64,
    /// Calls that are being written to disk now, with their ids.
    in_flight: VecDeque<(CallRow, CallTicket)>,
    /// Whether the user's document is out of date.
    pub is_dirty: bool,
    /// Whether the document of calls that everyone may read is out of date.
    pub is_public_dirty: bool,
}

/// The calls of earlier agents, read from an audit.
#[derive(Default)]
pub(crate) struct ReplayedAudit {
    rows: VecDeque<CallRow>,
    /// The greatest id so far.
    last: u64,
}

impl ReplayedAudit {
    /// Takes in a line of the audit.
    pub(crate) fn take(&mut self, line: &Json) {
        let id = line["id"].as_u64().filter(|id| (1..=ID_MAX).contains(id));
        let Some(id) = id else { return };
        self.last = self.last.max(id);
        let rows = &mut self.rows;
        if line["event"] == "fired" {
            let Some(row) = CallRow::from_audit(line) else {
                return;
            };
            // A line with a known id (carried over, or of a call that failed) replaces the earlier
            // one.
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
    /// Continues from an earlier agent's audit and file. Calls that were on disk but not in a slot
    /// are written again, as are calls that wait for answers if their file is gone.
    pub(crate) fn open(
        name: String,
        calls: &Path,
        replayed: ReplayedAudit,
        now_ns: i64,
    ) -> Result<Self, String> {
        let ReplayedAudit { rows, last } = replayed;
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
            // A new file does not need calls for which no process waits.
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

    /// Id of the last call that is in a slot.
    pub(crate) fn written(&self) -> u64 {
        self.writer.written()
    }

    /// Fails if there is no room for one more call, beside those on their way.
    pub(crate) fn check_room(&self, now_ns: i64) -> Result<(), CallError> {
        let on_their_way = self.calls_pending + self.in_flight.len() as u64;
        let next = self.writer.written() + on_their_way + 1;
        let in_the_way = next.checked_sub(SLOTS);
        if in_the_way.is_some_and(|id| id > self.writer.written()) {
            return Err(CallError::Busy(format!(
                "{SLOTS} calls wait for the disk that their audit is on: try again"
            )));
        }
        match in_the_way.and_then(|id| self.row(id)) {
            Some(row) if row.is_pending(now_ns) => Err(CallError::Busy(format!(
                "{SLOTS} calls wait: {:?} of the oldest has not been handled by {} processes; let them \
                 poll, or wait until it expires",
                row.call.name,
                row.outcome(now_ns).waiting
            ))),
            _ => Ok(()),
        }
    }

    /// Reserves a call. It is made once it is on disk; the ticket then has the result.
    pub(crate) fn reserve(&mut self, row: CallRow) -> CallTicket {
        let ticket = CallTicket::default();
        self.calls_pending += 1;
        let call = Pending::Call(Box::new(row), Arc::clone(&ticket));
        self.pending.push_back(call);
        ticket
    }

    /// Whether lines wait for the audit.
    pub(crate) fn has_entries(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Takes at most `count_max` entries to write next. The calls among them get their ids and wait
    /// for [`Self::publish`]; there is one batch at a time.
    pub(crate) fn take_entries(&mut self, count_max: usize) -> Vec<AuditEntry> {
        if !self.in_flight.is_empty() {
            let why = "nothing was fired: writing the audit was given up";
            self.publish(Err(why.into()));
        }
        let count = self.pending.len().min(count_max);
        let taken: Vec<Pending> = self.pending.drain(..count).collect();
        let mut entries: Vec<AuditEntry> = taken.into_iter().map(|next| self.enter(next)).collect();
        if self.notes_lost > 0 {
            entries.push(AuditEntry::Lost(std::mem::take(&mut self.notes_lost)));
        }
        entries
    }

    fn enter(&mut self, next: Pending) -> AuditEntry {
        match next {
            Pending::Note(entry) => entry,
            Pending::Call(mut row, ticket) => {
                self.calls_pending -= 1;
                let id = self.writer.written() + self.in_flight.len() as u64 + 1;
                (row.call.id, row.call.version) = (id, id);
                self.in_flight.push_back(((*row).clone(), ticket));
                AuditEntry::Called(row)
            }
        }
    }

    /// Puts entries that could not be written back to the front; their calls were given up.
    pub(crate) fn put_back(&mut self, entries: Vec<AuditEntry>) {
        for entry in entries.into_iter().rev() {
            match entry {
                AuditEntry::Called(_) => {}
                AuditEntry::Lost(count) => self.notes_lost += count,
                note if self.pending.len() < NOTES_MAX => {
                    self.pending.push_front(Pending::Note(note));
                }
                _ => self.notes_lost += 1,
            }
        }
    }

    /// Ends a batch: makes its calls if it is on disk, otherwise gives them up. Returns the calls
    /// that were made.
    pub(crate) fn publish(&mut self, done: Result<(), String>) -> Vec<&CallRow> {
        let mut made = 0;
        for (row, ticket) in std::mem::take(&mut self.in_flight) {
            let written = match &done {
                // After a call that failed, the ids of the later ones are wrong.
                Ok(()) if self.writer.written() + 1 == row.call.id => {
                    let written = self.writer.fire(&row.call);
                    written.map_err(|e| format!("the call is noted, but not made: {e}"))
                }
                Ok(()) => Err("the call is noted, but not made: one before it failed".into()),
                Err(why) => Err(why.clone()),
            };
            let written = written.map_err(CallError::Internal);
            if written.is_ok() {
                self.is_public_dirty |= row.is_public;
                self.rows.push_back(row);
                made += 1;
            }
            // No other code sets the ticket.
            let _ = ticket.set(written);
        }
        self.forget();
        self.is_dirty |= made > 0;
        let from = self.rows.len().saturating_sub(made);
        self.rows.range(from..).collect()
    }

    /// Ids of the calls that must be carried over to another file of the audit.
    pub(crate) fn unsettled(&self) -> Vec<u64> {
        let pending = self.rows.iter().filter(|row| row.is_pending(row_time(row)));
        pending.map(|row| row.call.id).collect()
    }

    /// Takes an answer to a call; returns the call if the answer is new.
    pub(crate) fn answer(
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
        self.note(AuditEntry::Answered(id, from, status, now_ns));
        self.is_public_dirty |= self.rows[at].is_public;
        Some(&self.rows[at])
    }

    /// Notes the end of a process; returns whether calls waited for it.
    pub(crate) fn leave(&mut self, who: Incarnation, now_ns: i64) -> bool {
        let mut left = Vec::new();
        let in_flight = self.in_flight.iter_mut().map(|(row, _)| row);
        for row in self.rows.iter_mut().chain(in_flight) {
            if row.leave(who, now_ns) {
                left.push(row.call.id);
                self.is_public_dirty |= row.is_public;
            }
        }
        for next in &mut self.pending {
            // Its line is not written yet, and will not name the process.
            if let Pending::Call(row, _) = next {
                row.leave(who, now_ns);
            }
        }
        for id in &left {
            self.note(AuditEntry::Gone(*id, who, now_ns));
        }
        !left.is_empty()
    }

    /// Notes calls that have expired; returns whether there were any.
    pub(crate) fn expire(&mut self, now_ns: i64) -> bool {
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

    /// A remembered call.
    pub(crate) fn row(&self, id: u64) -> Option<&CallRow> {
        self.index(id).map(|at| &self.rows[at])
    }

    /// All remembered calls as a document, newest first.
    pub(crate) fn document(&self, now_ns: i64) -> Json {
        let rows = self.rows.iter().rev();
        let rows = rows.map(|row| row.to_document(&self.name, now_ns));
        rows.collect()
    }

    /// The calls that everyone may read, each with the user's name.
    pub(crate) fn public(&self) -> impl Iterator<Item = (&str, &CallRow)> {
        let rows = self.rows.iter().filter(|row| row.is_public);
        rows.map(|row| (&*self.name, row))
    }

    fn index(&self, id: u64) -> Option<usize> {
        self.rows.binary_search_by_key(&id, |row| row.call.id).ok()
    }

    fn note(&mut self, entry: AuditEntry) {
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
        // Goes backwards from the newest of them: older ones were given up before.
        let old = self.rows.iter_mut().rev();
        let old = old.skip_while(|row| row.call.id > gone);
        old.take_while(|row| !row.is_given_up())
            .for_each(CallRow::give_up);
    }
}

/// The time at which a row that is not known to be over counts as pending: its own.
fn row_time(row: &CallRow) -> i64 {
    row.call.issued_ns
}

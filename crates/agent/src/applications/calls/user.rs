//! The calls of one user's processes: the file that they map, the audit, and what is still known.

use std::collections::VecDeque;
use std::path::Path;

use barograph_stream::Incarnation;
use barograph_stream::calls::{AckStatus, CallsWriter, SLOTS};
use serde_json::{Value as Json, json};
use tracing::warn;

use super::audit::{Audit, position};
use super::request::FireError;
use super::row::{CallRow, incarnation};

/// Calls that are remembered, and shown.
pub const ROWS_MAX: usize = 1_024;

const _: () = assert!(ROWS_MAX as u64 >= SLOTS, "what is in a slot is known");

/// One user's calls.
pub struct UserCalls {
    /// The name of whose they are.
    name: String,
    writer: CallsWriter,
    audit: Audit,
    /// Newest last; ids go up.
    rows: VecDeque<CallRow>,
    /// Whether the document is out of date.
    pub is_dirty: bool,
    /// Whether that of what everyone may read is.
    pub is_public_dirty: bool,
}

impl UserCalls {
    /// Goes on where an earlier agent was, as its audit and its file tell. Calls that it had on disk and not
    /// in a slot, and those that wait for answers while their file is gone, are written again.
    pub fn open(name: String, calls: &Path, audit: &Path, now_ns: i64) -> Result<Self, String> {
        let mut rows = VecDeque::new();
        let mut last = 0;
        let audit = Audit::open(audit, &mut |line| {
            last = last.max(line["id"].as_u64().unwrap_or(0));
            replay(&mut rows, line);
        });
        let audit = audit.map_err(|e| format!("the audit of calls cannot be opened: {e}"))?;
        let writer = CallsWriter::open_or_create(calls, now_ns).map_err(|e| e.to_string())?;
        let mut user = Self {
            name,
            writer,
            audit,
            is_public_dirty: rows.iter().any(|row| row.is_public),
            rows,
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

    /// Whether there is room for one more call.
    pub fn check_room(&self, now_ns: i64) -> Result<(), FireError> {
        let next = self.writer.written() + 1;
        let in_the_way = next.checked_sub(SLOTS).and_then(|id| self.row(id));
        match in_the_way {
            Some(row) if row.is_pending(now_ns) => Err(FireError::Busy(format!(
                "{SLOTS} calls wait: {:?} of the oldest has not been handled by {} processes; let them \
                 poll, or wait until it expires",
                row.call.name,
                row.outcome(now_ns).waiting
            ))),
            _ => Ok(()),
        }
    }

    /// Makes a call: on disk, then in its slot. Its id is assigned here.
    pub fn fire(&mut self, mut row: CallRow) -> Result<u64, FireError> {
        let internal = |what: &str, error: &dyn ToString| {
            FireError::Internal(format!("{what}: {}", error.to_string()))
        };
        let id = self.writer.written() + 1;
        (row.call.id, row.call.version) = (id, id);
        row.call.check().map_err(FireError::Request)?;
        if self.audit.is_full() {
            let pending = self.rows.iter().filter(|row| row.is_pending(row_time(row)));
            let carried = std::iter::once(position(id - 1)).chain(pending.map(CallRow::to_audit));
            let turned = self.audit.turn_over(carried);
            turned.map_err(|e| internal("nothing was fired: a new audit cannot be begun", &e))?;
        }
        let noted = self.audit.append(&row.to_audit(), true);
        noted.map_err(|e| internal("nothing was fired: the audit cannot be written", &e))?;
        let written = self.writer.fire(&row.call);
        written.map_err(|e| internal("the call is noted, but not made", &e))?;
        self.is_public_dirty |= row.is_public;
        self.rows.push_back(row);
        self.forget();
        self.is_dirty = true;
        Ok(id)
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
        let line = json!({
            "event": "answered", "id": id, "ts": now_ns, "incarnation": from.to_string(),
            "status": status as u8,
        });
        self.note(&line);
        self.is_public_dirty |= self.rows[at].is_public;
        Some(&self.rows[at])
    }

    /// Somebody has ended; whether calls waited for him.
    pub fn leave(&mut self, who: Incarnation, now_ns: i64) -> bool {
        let mut left = Vec::new();
        for row in &mut self.rows {
            if row.leave(who, now_ns) {
                left.push(row.call.id);
                self.is_public_dirty |= row.is_public;
            }
        }
        for id in &left {
            let who = who.to_string();
            self.note(&json!({ "event": "gone", "id": id, "ts": now_ns, "incarnation": who }));
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

    fn note(&mut self, line: &Json) {
        self.is_dirty = true;
        // Not synced: what is lost by a crash of the machine is gone with its processes.
        if let Err(error) = self.audit.append(line, false) {
            warn!(%error, "an answer is not in the audit of calls");
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

/// Takes in a line of the audit.
fn replay(rows: &mut VecDeque<CallRow>, line: &Json) {
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
    let id = line["id"].as_u64().unwrap_or(0);
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

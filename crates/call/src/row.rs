//! One call as the board remembers it: the request, the matching processes and the answers.

use std::collections::BTreeMap;

use barograph_stream::Incarnation;
use barograph_stream::calls::{AckStatus, Call, CallKind, CallPayload, CallTarget};
use serde_json::{Value as Json, json};

use crate::members::{MatchedProcesses, PUBLICATIONS_MAX};
use crate::request::{CallOrigin, CallOutcome};
use crate::value::{from_audit, text, to_audit, unhex};

/// Most characters of a payload in documents.
const SHOWN_MAX: usize = 256;

/// A call or an answer, for the streams of calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallEvent {
    /// The user whose processes are called.
    pub uid: u32,
    /// Whether everyone may read it.
    pub is_public: bool,
    /// The name of the handler or knob.
    pub name: String,
    /// The number of the call.
    pub id: u64,
    /// The time of the event, in ns since the epoch.
    pub ts: i64,
    /// Whether it is an answer; otherwise it is the call.
    pub is_answer: bool,
}

/// A call and its answers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CallRow {
    /// The call as in the file.
    pub call: Call,
    pub by: CallOrigin,
    publications: Vec<String>,
    /// Whether everyone may read it, except the payload for a handler.
    pub is_public: bool,
    /// Numbers of answers; processes without an answer are in the following fields.
    counts: CallOutcome,
    /// The processes that have not answered.
    waiting: Vec<Incarnation>,
    /// Number of processes that had not answered when the call's slot was reused.
    unanswered: u64,
    is_over: bool,
    last_ack_ns: Option<i64>,
}

impl CallRow {
    /// A call to these processes.
    pub(crate) fn new(call: Call, by: CallOrigin, meant: MatchedProcesses) -> Self {
        let counts = CallOutcome {
            matched: meant.who.len() as u64,
            ..CallOutcome::default()
        };
        Self {
            call,
            by,
            publications: meant.publications.into_iter().collect(),
            is_public: meant.is_public,
            counts,
            waiting: meant.who,
            unanswered: 0,
            is_over: false,
            last_ack_ns: None,
        }
    }

    /// The present state of the call.
    pub(crate) fn outcome(&self, now_ns: i64) -> CallOutcome {
        let open = self.waiting.len() as u64 + self.unanswered;
        let mut outcome = self.counts;
        if self.is_over || self.call.is_expired(now_ns) {
            outcome.expired += open;
        } else {
            outcome.waiting = open;
        }
        outcome
    }

    /// Whether its slot must not be reused.
    pub(crate) fn is_pending(&self, now_ns: i64) -> bool {
        !self.outcome(now_ns).is_settled()
    }

    /// Takes an answer; false if the process has already answered or does not match.
    pub(crate) fn answer(&mut self, from: Incarnation, status: AckStatus, now_ns: i64) -> bool {
        if !self.take(from) {
            return false;
        }
        let count = match status {
            AckStatus::Done => &mut self.counts.acknowledged,
            AckStatus::Failed => &mut self.counts.failed,
            AckStatus::Refused => &mut self.counts.refused,
            AckStatus::Expired => &mut self.counts.expired,
            AckStatus::Late => &mut self.counts.late,
        };
        *count += 1;
        self.last_ack_ns = Some(now_ns);
        true
    }

    /// Notes the end of a process; false if no answer was expected from it. If the call had expired
    /// before, it counts as expired.
    pub(crate) fn leave(&mut self, who: Incarnation, now_ns: i64) -> bool {
        if !self.take(who) {
            return false;
        }
        let count = match self.is_over || self.call.is_expired(now_ns) {
            true => &mut self.counts.expired,
            false => &mut self.counts.gone,
        };
        *count += 1;
        true
    }

    fn take(&mut self, who: Incarnation) -> bool {
        let at = self.waiting.iter().position(|w| *w == who);
        at.map(|at| self.waiting.swap_remove(at)).is_some()
    }

    /// Notes that the call has expired; returns true once, if a process has not answered.
    pub(crate) fn expire(&mut self, now_ns: i64) -> bool {
        let is_new = !self.is_over && self.call.is_expired(now_ns);
        self.is_over |= is_new;
        is_new && !self.waiting.is_empty()
    }

    /// Whether the call is known to have expired.
    pub(crate) fn outcome_is_over(&self) -> bool {
        self.is_over
    }

    /// Whether its slot was reused.
    pub(crate) fn is_given_up(&self) -> bool {
        self.is_over && self.waiting.is_empty()
    }

    /// Notes that its slot is reused, after which no process can answer.
    pub(crate) fn give_up(&mut self) {
        self.unanswered += std::mem::take(&mut self.waiting).len() as u64;
        self.is_over = true;
    }

    /// The event that the call was made.
    pub(crate) fn to_event(&self, uid: u32) -> CallEvent {
        CallEvent {
            uid,
            is_public: self.is_public,
            name: self.call.name.clone(),
            id: self.call.id,
            ts: self.call.issued_ns,
            is_answer: false,
        }
    }

    /// The call's line in the audit.
    pub(crate) fn to_audit(&self) -> Json {
        let Call {
            id,
            issued_ns,
            expires_ns,
            kind,
            name,
            target,
            payload,
            version,
            at_frame,
        } = &self.call;
        let waiting: Vec<String> = self.waiting.iter().map(Incarnation::to_string).collect();
        let counts = &self.counts;
        json!({
            "event": "fired",
            "id": id,
            "ts": issued_ns,
            "expires_ts": expires_ns,
            "kind": *kind as u8,
            "name": name,
            "target": target.labels,
            "incarnation": target.incarnation.map(|i| i.to_string()),
            "payload": to_audit(payload),
            "version": version,
            "at_frame": at_frame,
            "by": { "user": self.by.uid, "pid": self.by.pid, "via": self.by.via },
            "publications": self.publications,
            "public": self.is_public,
            "waiting": waiting,
            "answers": [
                counts.matched, counts.acknowledged, counts.failed, counts.refused, counts.expired,
                counts.gone, counts.late,
            ],
        })
    }

    /// Parses a line of the audit; `None` if it is not that of a call.
    pub(crate) fn from_audit(line: &Json) -> Option<Self> {
        let number = |key: &str| line[key].as_i64();
        let payload = from_audit(&line["payload"])?;
        let meant = match &line["incarnation"] {
            Json::Null => None,
            text => Some(incarnation(text)?),
        };
        let call = Call {
            id: line["id"].as_u64()?,
            issued_ns: number("ts")?,
            expires_ns: number("expires_ts")?,
            kind: CallKind::from_u8(u8::try_from(number("kind")?).ok()?)?,
            name: line["name"].as_str()?.to_owned(),
            target: CallTarget {
                incarnation: meant,
                labels: serde_json::from_value(line["target"].clone()).ok()?,
            },
            payload,
            version: line["version"].as_u64()?,
            // Lines of earlier agents lack this key.
            at_frame: line["at_frame"].as_u64(),
        };
        // A call that does not fit in a slot was never written.
        call.check().ok()?;
        let by = &line["by"];
        let small = |key: &str| by[key].as_u64().and_then(|n| u32::try_from(n).ok());
        let waiting = line["waiting"].as_array()?.iter().map(incarnation);
        let answers = line["answers"].as_array()?;
        // Counts of processes stay far below this bound, so that their sums do not overflow.
        let count = |at: usize| answers.get(at)?.as_u64().filter(|n| *n <= u32::MAX.into());
        // Lines of earlier agents lack these keys.
        let publications = line["publications"].as_array().into_iter().flatten();
        let publications = publications.filter_map(|name| Some(name.as_str()?.to_owned()));
        Some(Self {
            publications: publications.take(PUBLICATIONS_MAX).collect(),
            is_public: line["public"].as_bool().unwrap_or(false),
            by: CallOrigin {
                uid: small("user"),
                pid: small("pid"),
                via: by["via"].as_str()?.to_owned(),
            },
            counts: CallOutcome {
                matched: count(0)?,
                acknowledged: count(1)?,
                failed: count(2)?,
                refused: count(3)?,
                expired: count(4)?,
                gone: count(5)?,
                late: count(6).unwrap_or(0),
                ..CallOutcome::default()
            },
            waiting: waiting.collect::<Option<_>>()?,
            unanswered: 0,
            is_over: false,
            last_ack_ns: None,
            call,
        })
    }

    /// The row in documents and the SQL table, for the user whose programs are called.
    pub(crate) fn to_document(&self, user: &str, now_ns: i64) -> Json {
        let mut row = self.to_public_document(user, now_ns);
        row["payload"] = self.shown_payload().into();
        row["by_user"] = json!(self.by.uid);
        row["by_pid"] = json!(self.by.pid);
        row["via"] = json!(self.by.via);
        row
    }

    /// The row in documents for everyone: without the caller, and without the payload for a
    /// handler. The value of a knob is in its stream anyway.
    pub(crate) fn to_public_document(&self, user: &str, now_ns: i64) -> Json {
        let outcome = self.outcome(now_ns);
        let target: BTreeMap<_, _> = self.call.target.labels.iter().cloned().collect();
        let is_knob = self.call.kind == CallKind::Knob;
        json!({
            "id": self.call.id,
            "ts": self.call.issued_ns,
            "name": self.call.name,
            "kind": self.call.kind.as_str(),
            "user": user,
            "publications": self.publications,
            "target": target,
            "incarnation": self.call.target.incarnation.map(|i| i.to_string()),
            "payload": is_knob.then(|| self.shown_payload()),
            "at_frame": self.call.at_frame,
            "payload_bytes": self.call.payload.to_bytes().len(),
            "expires_ts": self.call.expires_ns,
            "matched": outcome.matched,
            "acknowledged": outcome.acknowledged,
            "failed": outcome.failed,
            "refused": outcome.refused,
            "late": outcome.late,
            "expired": outcome.expired,
            "gone": outcome.gone,
            "state": outcome.state(),
            "last_ack_ts": self.last_ack_ns,
        })
    }

    fn shown_payload(&self) -> String {
        text(&self.call.payload).chars().take(SHOWN_MAX).collect()
    }

    /// A call for the slot of one that is not known any more.
    pub(crate) fn placeholder(id: u64) -> Call {
        Call {
            id,
            issued_ns: 0,
            expires_ns: 0,
            kind: CallKind::Trigger,
            name: "unknown".into(),
            target: CallTarget::default(),
            payload: CallPayload::None,
            version: 0,
            at_frame: None,
        }
    }
}

/// Parses an incarnation in hexadecimal.
pub(crate) fn incarnation(text: &Json) -> Option<Incarnation> {
    let bytes = unhex(text.as_str()?)?;
    bytes.try_into().ok().map(Incarnation)
}

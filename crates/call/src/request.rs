//! Requests to the board, and its results.

use std::collections::BTreeMap;
use std::time::Duration;

use barograph_model::{
    CALL_EXPIRES_DEFAULT, CALL_EXPIRES_MAX, CALL_EXPIRES_MIN, ControlFault, ControlFaultKind,
    FIRE_WAIT_MAX, RequestSender,
};
use barograph_stream::calls::{Call, CallKind, CallPayload, CallTarget};
use barograph_stream::{Incarnation, user_name};
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use thiserror::Error;

use crate::value::{payload_of, unhex};

/// Most users that are named as left out of a call; others are only counted.
const LEFT_OUT_MAX: usize = 16;

/// The caller, for the audit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallOrigin {
    /// The user id, if the kernel reports it.
    pub uid: Option<u32>,
    /// The process id, if the kernel reports it.
    pub pid: Option<u32>,
    /// The way by which the call came, or the part of the agent that makes it: `control.sock`,
    /// `rule hot_disk`.
    pub via: String,
}

/// A request for a call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRequest {
    /// Whether a handler is called or a knob is set.
    pub kind: CallKind,
    /// The handler's name, or the knob's as `publication.knob`.
    pub name: String,
    /// The choice among the processes that have declared it.
    pub target: CallTarget,
    /// The payload; for a knob, its value.
    pub payload: CallPayload,
    /// Time until the call expires: 1 s to a day.
    pub expires: Duration,
    /// The caller.
    pub by: CallOrigin,
    /// Only processes of this user are called; `None`: those of all users.
    pub only_user: Option<u32>,
    /// For a knob, the frame of its publication at whose end it is set; `None`: as soon as a
    /// process looks.
    pub at_frame: Option<u64>,
}

/// The reason why a call was not made. Nothing was written, unless the message names a write.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CallError {
    /// The request is wrong.
    #[error("{0}")]
    Request(String),
    /// No living process matches.
    #[error("{0}")]
    Nobody(String),
    /// The caller may not make this call.
    #[error("{0}")]
    Forbidden(String),
    /// There is no room: earlier calls are not handled yet, or the caller has reached a limit.
    #[error("{0}")]
    Busy(String),
    /// The agent failed.
    #[error("{0}")]
    Internal(String),
}

/// A call that was made, in the file of each user concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallsMade {
    /// User id, and id of the call in that user's file.
    pub calls: Vec<(u32, u64)>,
    /// Number of matching processes of these users.
    pub matched: usize,
    /// Users for whose processes it was not made, as far as they are named.
    pub(super) left_out: Vec<UserLeftOut>,
    /// Number of processes that were left out since they refuse the value.
    pub(super) refused: u64,
    /// Number of processes that were left out since their user has no room for a call, or since the
    /// audit cannot be written.
    pub(super) busy: u64,
}

/// A user for whose processes a call was not made, although it was made for others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UserLeftOut {
    uid: u32,
    processes: u64,
    is_refusal: bool,
    reason: String,
}

impl UserLeftOut {
    /// Leaves out `processes` of a user, for the reason in `error`.
    pub(crate) fn of(uid: u32, processes: u64, error: &CallError) -> Self {
        Self {
            uid,
            processes,
            is_refusal: matches!(error, CallError::Request(_)),
            reason: error.to_string(),
        }
    }
}

/// The state of a call, as numbers of processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallOutcome {
    /// Processes that match the call.
    pub matched: u64,
    /// Processes that have handled it.
    pub acknowledged: u64,
    /// Processes whose handler failed.
    pub failed: u64,
    /// Processes that refused the value.
    pub refused: u64,
    /// Processes that saw the value only after the frame at which it was to apply.
    pub late: u64,
    /// Processes that saw the call after it had expired, or have not answered by now.
    pub expired: u64,
    /// Processes that ended without an answer.
    pub gone: u64,
    /// Processes that were not called, since their user's calls wait to be handled, or for a disk.
    pub busy: u64,
    /// Processes that have not answered and still may.
    pub waiting: u64,
}

impl CallRequest {
    /// A request to call a handler without a payload, in all processes that have it. `via` names
    /// the caller.
    pub fn trigger(name: impl Into<String>, via: impl Into<String>) -> Self {
        Self {
            kind: CallKind::Trigger,
            name: name.into(),
            target: CallTarget::default(),
            payload: CallPayload::None,
            expires: CALL_EXPIRES_DEFAULT,
            by: CallOrigin {
                via: via.into(),
                ..CallOrigin::default()
            },
            only_user: None,
            at_frame: None,
        }
    }

    /// The call as it is in a slot, but without its id.
    pub(super) fn call(&self, payload: CallPayload, now_ns: i64) -> Call {
        let expires_ns = i64::try_from(self.expires.as_nanos()).unwrap_or(i64::MAX);
        Call {
            id: 0,
            issued_ns: now_ns,
            expires_ns: now_ns.saturating_add(expires_ns),
            kind: self.kind,
            name: self.name.clone(),
            target: self.target.clone(),
            payload,
            version: 0,
            at_frame: self.at_frame,
        }
    }

    /// Parses the body of `POST /api/v1/fire`; also returns how long the caller wants to wait for
    /// answers.
    pub fn parse(body: &Json, asker: &RequestSender) -> Result<(Self, Duration), CallError> {
        let body: Body = Body::deserialize(body).map_err(|e| refused(e.to_string()))?;
        let only_user = match (asker.may_control, asker.uid) {
            (true, _) => None,
            (false, Some(uid)) => Some(uid),
            (false, None) => {
                let why = "the kernel does not tell whose this connection is: use control.sock";
                return Err(CallError::Forbidden(why.into()));
            }
        };
        let request = Self {
            kind: if body.knob {
                CallKind::Knob
            } else {
                CallKind::Trigger
            },
            name: body.name,
            target: CallTarget {
                incarnation: body.incarnation.as_deref().map(incarnation).transpose()?,
                labels: labels(body.target)?,
            },
            payload: payload_of(&body.payload, body.payload_type.as_deref()).map_err(refused)?,
            expires: seconds("expires_s", body.expires_s, CALL_EXPIRES_DEFAULT)?,
            by: CallOrigin {
                uid: asker.uid,
                pid: asker.pid,
                via: asker.via.to_string(),
            },
            only_user,
            at_frame: body.at_frame,
        };
        if request.at_frame.is_some() && request.kind != CallKind::Knob {
            return Err(refused("at_frame is for knobs alone"));
        }
        let wait = seconds("wait_s", body.wait_s, Duration::ZERO)?;
        if wait > FIRE_WAIT_MAX {
            let max = FIRE_WAIT_MAX.as_secs();
            return Err(refused(format!("wait_s is at most {max}")));
        }
        request.check_time()?;
        Ok((request, wait))
    }

    /// Fails if the time to expiry is out of range.
    pub(super) fn check_time(&self) -> Result<(), CallError> {
        if (CALL_EXPIRES_MIN..=CALL_EXPIRES_MAX).contains(&self.expires) {
            return Ok(());
        }
        Err(refused(format!(
            "expires_s is {} to {}",
            CALL_EXPIRES_MIN.as_secs(),
            CALL_EXPIRES_MAX.as_secs()
        )))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    name: String,
    #[serde(default)]
    target: BTreeMap<String, Json>,
    incarnation: Option<String>,
    #[serde(default)]
    payload: Json,
    payload_type: Option<String>,
    expires_s: Option<f64>,
    wait_s: Option<f64>,
    #[serde(default)]
    knob: bool,
    at_frame: Option<u64>,
}

fn refused(reason: impl Into<String>) -> CallError {
    CallError::Request(reason.into())
}

fn incarnation(text: &str) -> Result<Incarnation, CallError> {
    let bytes = unhex(text).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
    let bytes = bytes.filter(|bytes| *bytes != [0; 16]);
    bytes
        .map(Incarnation)
        .ok_or_else(|| refused("incarnation is 32 hexadecimal digits, not all 0"))
}

/// The labels of a target as texts; numbers and booleans are written as texts.
fn labels(target: BTreeMap<String, Json>) -> Result<Vec<(String, String)>, CallError> {
    let text = |value: Json| match value {
        Json::String(text) => Some(text),
        Json::Number(number) => Some(number.to_string()),
        Json::Bool(is) => Some(is.to_string()),
        _ => None,
    };
    let pair = |(name, value)| {
        let value = text(value);
        let value = value.ok_or_else(|| refused(format!("the label {name:?} must be a text")))?;
        Ok((name, value))
    };
    target.into_iter().map(pair).collect()
}

fn seconds(key: &str, given: Option<f64>, default: Duration) -> Result<Duration, CallError> {
    let seconds = given.unwrap_or(default.as_secs_f64());
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| refused(format!("{key} = {seconds} is no number of seconds")))
}

impl CallOutcome {
    /// The state in one word.
    pub fn state(&self) -> &'static str {
        match self {
            _ if self.waiting > 0 => "fired",
            _ if self.acknowledged == self.matched => "acknowledged",
            _ if self.failed > 0 => "failed",
            _ if self.refused > 0 => "refused",
            _ if self.late > 0 => "late",
            _ if self.expired > 0 => "expired",
            _ if self.busy > 0 => "busy",
            _ => "gone",
        }
    }

    /// Whether no more answers can come.
    pub fn is_settled(&self) -> bool {
        self.waiting == 0
    }

    /// Adds the processes of another outcome.
    pub fn add(&mut self, mut other: Self) {
        self.waiting = self.waiting.saturating_add(other.waiting);
        for ((_, sum), (_, more)) in self.numbers().into_iter().zip(other.numbers()) {
            *sum = sum.saturating_add(*more);
        }
    }

    /// The numbers in the answer of the API.
    pub fn to_json(mut self) -> Map<String, Json> {
        let numbers = self.numbers().into_iter();
        let numbers = numbers.map(|(name, number)| (name.to_owned(), json!(number)));
        numbers.collect()
    }

    /// Reads an answer of the API of another node. What is missing there counts as 0.
    pub fn from_json(answer: &Json) -> Self {
        let mut outcome = Self::default();
        for (name, number) in outcome.numbers() {
            *number = answer[name].as_u64().unwrap_or_default();
        }
        let settled = outcome.numbers().into_iter().skip(1);
        let settled = settled.fold(0_u64, |sum, (_, number)| sum.saturating_add(*number));
        outcome.waiting = outcome.matched.saturating_sub(settled);
        outcome
    }

    /// The numbers of the answer of the API, by name: `matched` first, then those that have
    /// settled.
    fn numbers(&mut self) -> [(&'static str, &mut u64); 8] {
        [
            ("matched", &mut self.matched),
            ("acknowledged", &mut self.acknowledged),
            ("failed", &mut self.failed),
            ("refused", &mut self.refused),
            ("late", &mut self.late),
            ("expired", &mut self.expired),
            ("gone", &mut self.gone),
            ("busy", &mut self.busy),
        ]
    }
}

impl CallsMade {
    /// Adds a user that is left out.
    pub(super) fn leave_out(&mut self, left_out: UserLeftOut) {
        match left_out.is_refusal {
            true => self.refused += left_out.processes,
            false => self.busy += left_out.processes,
        }
        if self.left_out.len() < LEFT_OUT_MAX {
            self.left_out.push(left_out);
        }
    }

    /// The outcome for the processes that were left out.
    pub(super) fn left_out(&self) -> CallOutcome {
        CallOutcome {
            matched: self.refused + self.busy,
            refused: self.refused,
            busy: self.busy,
            ..CallOutcome::default()
        }
    }

    /// The answer of the API. Ids are unique per user.
    pub fn json(&self, outcome: CallOutcome) -> Json {
        let ids: Vec<String> = self
            .calls
            .iter()
            .map(|(u, id)| format!("u{u}:{id}"))
            .collect();
        let left_out = self.left_out.iter().map(|left| {
            json!({
                "user": user_name(left.uid), "processes": left.processes, "reason": left.reason,
            })
        });
        let mut answer = outcome.to_json();
        answer.insert("id".into(), json!(ids.first()));
        answer.insert("ids".into(), json!(ids));
        answer.insert("left_out".into(), left_out.collect());
        answer.insert("state".into(), json!(outcome.state()));
        Json::Object(answer)
    }
}

impl From<CallError> for ControlFault {
    fn from(error: CallError) -> Self {
        let kind = match &error {
            CallError::Request(_) => ControlFaultKind::Statement,
            CallError::Nobody(_) => ControlFaultKind::Unknown,
            CallError::Forbidden(_) => ControlFaultKind::Refused,
            CallError::Busy(_) => ControlFaultKind::Busy,
            CallError::Internal(_) => ControlFaultKind::Internal,
        };
        Self {
            kind,
            message: error.to_string(),
        }
    }
}

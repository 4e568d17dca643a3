//! What is asked of the board, and what it answers.

use std::collections::BTreeMap;
use std::time::Duration;

use barograph_server::{Asker, ControlFault, ControlFaultKind, FIRE_WAIT_MAX};
use barograph_stream::Incarnation;
use barograph_stream::calls::{CallKind, CallPayload, Target};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use thiserror::Error;

use super::value::{payload_of, unhex};

/// How long a call is worth handling, unless it is said.
const EXPIRES_DEFAULT: Duration = Duration::from_secs(60);
const EXPIRES_MIN: Duration = Duration::from_secs(1);
const EXPIRES_MAX: Duration = Duration::from_secs(86_400);

/// Who makes a call, for the audit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct By {
    /// The user, where the kernel tells.
    pub uid: Option<u32>,
    /// The process, where the kernel tells.
    pub pid: Option<u32>,
    /// Which way it came, or what part of the agent it is: `control.sock`, `trigger hot_disk`.
    pub via: String,
}

/// A call that is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct FireRequest {
    /// A trigger that is fired or a knob that is set.
    pub kind: CallKind,
    /// The trigger; the knob as `publication.knob`.
    pub name: String,
    /// Who is meant among those who have declared it.
    pub target: Target,
    /// What the call brings; of a knob the value.
    pub payload: CallPayload,
    /// For how long it is worth handling: 1 s to a day.
    pub expires: Duration,
    /// Who asks.
    pub by: By,
    /// Only processes of this user; `None`: of all.
    pub only_user: Option<u32>,
}

/// Why a call was not made. Nothing was written then, unless it says so.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum FireError {
    /// What was asked is wrong.
    #[error("{0}")]
    Request(String),
    /// Nobody who lives handles it.
    #[error("{0}")]
    Nobody(String),
    /// Whoever asks may not.
    #[error("{0}")]
    Forbidden(String),
    /// Earlier calls are in the way.
    #[error("{0}")]
    Busy(String),
    /// Our side failed.
    #[error("{0}")]
    Internal(String),
}

/// A call that was made: into the file of each user concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fired {
    /// User and id there.
    pub calls: Vec<(u32, u64)>,
    /// Processes that are meant.
    pub matched: usize,
}

/// How a call stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Processes that were meant.
    pub matched: u64,
    /// Those who have handled it.
    pub acknowledged: u64,
    /// Those whose handler failed.
    pub failed: u64,
    /// Those who refused a value.
    pub refused: u64,
    /// Those who came to it too late.
    pub expired: u64,
    /// Those who ended without an answer.
    pub gone: u64,
    /// Those who have not answered.
    pub waiting: u64,
    /// Whether those who have not answered need not any more.
    pub is_over: bool,
}

impl FireRequest {
    /// A trigger for everyone who handles it, without a payload. `via` says who fires it.
    pub fn trigger(name: impl Into<String>, via: impl Into<String>) -> Self {
        Self {
            kind: CallKind::Trigger,
            name: name.into(),
            target: Target::default(),
            payload: CallPayload::None,
            expires: EXPIRES_DEFAULT,
            by: By {
                via: via.into(),
                ..By::default()
            },
            only_user: None,
        }
    }

    /// What `POST /api/v1/fire` says, and how long whoever asks wants to wait for answers.
    pub fn parse(body: &Json, asker: &Asker) -> Result<(Self, Duration), FireError> {
        let body: Body = Body::deserialize(body).map_err(|e| refused(e.to_string()))?;
        let only_user = match (asker.may_control, asker.uid) {
            (true, _) => None,
            (false, Some(uid)) => Some(uid),
            (false, None) => {
                let why = "the kernel does not tell whose this connection is: use control.sock";
                return Err(FireError::Forbidden(why.into()));
            }
        };
        let request = Self {
            kind: if body.knob {
                CallKind::Knob
            } else {
                CallKind::Trigger
            },
            name: body.name,
            target: Target {
                incarnation: body.incarnation.as_deref().map(incarnation).transpose()?,
                labels: labels(body.target)?,
            },
            payload: payload_of(&body.payload, body.payload_type.as_deref()).map_err(refused)?,
            expires: seconds("expires_s", body.expires_s, EXPIRES_DEFAULT)?,
            by: By {
                uid: asker.uid,
                pid: asker.pid,
                via: asker.via.into(),
            },
            only_user,
        };
        let wait = seconds("wait_s", body.wait_s, Duration::ZERO)?;
        if wait > FIRE_WAIT_MAX {
            let max = FIRE_WAIT_MAX.as_secs();
            return Err(refused(format!("wait_s is at most {max}")));
        }
        request.check_time()?;
        Ok((request, wait))
    }

    /// Checks how long it is worth handling.
    pub(super) fn check_time(&self) -> Result<(), FireError> {
        if (EXPIRES_MIN..=EXPIRES_MAX).contains(&self.expires) {
            return Ok(());
        }
        Err(refused(format!(
            "expires_s is {} to {}",
            EXPIRES_MIN.as_secs(),
            EXPIRES_MAX.as_secs()
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
}

fn refused(reason: impl Into<String>) -> FireError {
    FireError::Request(reason.into())
}

fn incarnation(text: &str) -> Result<Incarnation, FireError> {
    let bytes = unhex(text).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
    let bytes = bytes.filter(|bytes| *bytes != [0; 16]);
    bytes
        .map(Incarnation)
        .ok_or_else(|| refused("incarnation is 32 hexadecimal digits, not all 0"))
}

/// Labels are texts; numbers and booleans stand for the text they look like.
fn labels(target: BTreeMap<String, Json>) -> Result<Vec<(String, String)>, FireError> {
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

fn seconds(key: &str, given: Option<f64>, default: Duration) -> Result<Duration, FireError> {
    let seconds = given.unwrap_or(default.as_secs_f64());
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| refused(format!("{key} = {seconds} is no number of seconds")))
}

impl Outcome {
    /// In a word.
    pub fn state(&self) -> &'static str {
        if self.waiting > 0 {
            return if self.is_over { "expired" } else { "fired" };
        }
        match self {
            _ if self.acknowledged == self.matched => "acknowledged",
            _ if self.failed > 0 => "failed",
            _ if self.refused > 0 => "refused",
            _ if self.expired > 0 => "expired",
            _ => "gone",
        }
    }

    /// Whether no answer is to be waited for.
    pub fn is_settled(&self) -> bool {
        self.waiting == 0 || self.is_over
    }

    pub(super) fn add(&mut self, other: Self) {
        self.matched += other.matched;
        self.acknowledged += other.acknowledged;
        self.failed += other.failed;
        self.refused += other.refused;
        self.expired += other.expired;
        self.gone += other.gone;
        self.waiting += other.waiting;
        // All are issued at one time, for one time.
        self.is_over |= other.is_over;
    }
}

impl Fired {
    /// As the API says it; ids are unique per user.
    pub fn json(&self, outcome: Outcome) -> Json {
        let ids: Vec<String> = self
            .calls
            .iter()
            .map(|(u, id)| format!("u{u}:{id}"))
            .collect();
        json!({
            "id": ids.first(),
            "ids": ids,
            "matched": outcome.matched,
            "acknowledged": outcome.acknowledged,
            "failed": outcome.failed,
            "refused": outcome.refused,
            "expired": outcome.expired,
            "gone": outcome.gone,
            "state": outcome.state(),
        })
    }
}

impl From<FireError> for ControlFault {
    fn from(error: FireError) -> Self {
        let kind = match &error {
            FireError::Request(_) => ControlFaultKind::Statement,
            FireError::Nobody(_) => ControlFaultKind::Unknown,
            FireError::Forbidden(_) => ControlFaultKind::Refused,
            FireError::Busy(_) => ControlFaultKind::Busy,
            FireError::Internal(_) => ControlFaultKind::Internal,
        };
        Self {
            kind,
            message: error.to_string(),
        }
    }
}

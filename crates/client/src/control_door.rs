//! The way by which a program asks the controllers of the agent of its node.
//!
//! This module stands alone because all who ask do it in the same way: they wait for a bounded
//! time, and go on without an answer.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use barograph_stream::{AgentSocket, RunDir};
use serde_json::Value as Json;

use crate::http;

/// The longest time for which a program waits for a decision of the agent.
pub const DECISION_WAIT_MAX: Duration = Duration::from_secs(2);
/// How a sentence about an agent that cannot be reached begins.
const UNHEARD: &str = "no agent answers";

/// The sockets of the agent, of which this user may use one or both.
#[derive(Debug)]
pub(crate) struct ControlDoor {
    run_dir: RunDir,
    /// Whether the agent takes requests of this user on its socket for reading only.
    reads_only: AtomicBool,
}

/// Why the agent has not decided.
struct Refusal {
    text: String,
    /// Whether another socket may serve this user.
    is_of_user: bool,
}

impl ControlDoor {
    /// The sockets in a run directory.
    pub(crate) fn new(run_dir: RunDir) -> Self {
        Self {
            run_dir,
            reads_only: AtomicBool::new(false),
        }
    }

    /// The agent's answer, or why there is none.
    pub(crate) fn post(&self, verb: &str, body: &Json) -> Result<Json, String> {
        let first = match self.reads_only.load(Ordering::Relaxed) {
            true => AgentSocket::Read,
            false => AgentSocket::Control,
        };
        match self.post_to(first, verb, body) {
            Err(Refusal {
                is_of_user: true,
                text,
            }) if first == AgentSocket::Control => {
                // Only the agent's user and root may control it; all others ask as readers.
                match self.post_to(AgentSocket::Read, verb, body) {
                    Err(other) if other.is_unheard() => Err(text),
                    Err(other) => Err(other.text),
                    Ok(answer) => {
                        self.reads_only.store(true, Ordering::Relaxed);
                        Ok(answer)
                    }
                }
            }
            answer => answer.map_err(|refusal| refusal.text),
        }
    }

    fn post_to(&self, door: AgentSocket, verb: &str, body: &Json) -> Result<Json, Refusal> {
        let path = format!("/api/v1/control/{verb}");
        let (run_dir, body) = (&self.run_dir, body.to_string());
        let answer = http::post(run_dir, door, &path, &body, DECISION_WAIT_MAX);
        let answer = answer.map_err(|error| Refusal {
            is_of_user: error.kind() == io::ErrorKind::PermissionDenied,
            text: format!("{UNHEARD} ({error})"),
        })?;
        let said: Option<Json> = serde_json::from_slice(&answer.body).ok();
        let Some(said) = said.filter(Json::is_object) else {
            let text = format!("the agent answered {} without JSON", answer.status);
            return Err(Refusal::of(&text, false));
        };
        if answer.status == 200 {
            return Ok(said);
        }
        let error = &said["error"];
        let message = error["message"].as_str().or(error.as_str());
        let message = message.map_or_else(|| format!("HTTP {}", answer.status), str::to_owned);
        Err(Refusal::of(&message, error["kind"] == "refused"))
    }
}

impl Refusal {
    fn of(message: &str, is_of_user: bool) -> Self {
        let text = format!("the agent has not decided ({message})");
        Self { text, is_of_user }
    }

    fn is_unheard(&self) -> bool {
        self.text.starts_with(UNHEARD)
    }
}

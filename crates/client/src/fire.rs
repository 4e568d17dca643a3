//! Calls handlers and sets knobs through the agent, which knows the processes and their rights and
//! records each call before it writes it.
//!
//! This module stands alone because calls are made by the agent; all that is read comes from files.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use barograph_model::{FIRE_PATH, FIRE_WAIT_MAX, base64};
use barograph_stream::calls::CallPayload;
use barograph_stream::{AgentSocket, Incarnation, RunDir};
use serde_json::{Map, Value as Json, json};
use thiserror::Error;

use crate::http;

/// Time that the agent may take to answer, in addition to the requested wait.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// The same if it asks other nodes: the longest time for which they may be waited for, and some
/// more.
const NODES_WAIT: Duration = Duration::from_secs(610);

/// A call: a handler to be run, or a knob to be set.
#[derive(Clone, Debug)]
pub struct Fire {
    /// The handler's name, or the knob's name with its publication, `publication.knob`.
    pub name: String,
    /// Whether the call sets a knob.
    pub is_knob: bool,
    /// Labels that a process must have to match; `application`, `pid` and `user` are labels too.
    pub target: Vec<(String, String)>,
    /// The one life of one process that the call is for; `None`: any.
    pub incarnation: Option<Incarnation>,
    /// The nodes of the cluster whose programs are called. `None`: this node alone; no name: all
    /// nodes.
    pub nodes: Option<Vec<String>>,
    /// The payload. Floats must be finite.
    pub payload: CallPayload,
    /// Time until the call expires, from now: 1 s to 24 h; 60 s if `None`.
    pub expires: Option<Duration>,
    /// For a knob: the number of the frame of its publication at whose end every process applies
    /// the setting. A process that has already ended that frame when it learns of the setting
    /// leaves the knob unchanged and answers that it is late.
    pub at_frame: Option<u64>,
    /// Longest wait for the acknowledgements of all matched processes; at most 30 s.
    pub wait: Duration,
}

impl Fire {
    /// A call of the handlers of a name, in all processes that have one.
    pub fn trigger(name: impl Into<String>, payload: CallPayload) -> Self {
        Self {
            name: name.into(),
            is_knob: false,
            target: Vec::new(),
            incarnation: None,
            nodes: None,
            payload,
            expires: None,
            at_frame: None,
            wait: Duration::ZERO,
        }
    }

    /// A call that sets a knob in all processes that have it.
    pub fn knob(name: impl Into<String>, value: CallPayload) -> Self {
        Self {
            is_knob: true,
            ..Self::trigger(name, value)
        }
    }

    /// Restricts the call to processes that have this label too.
    #[must_use]
    pub fn to(mut self, label: impl Into<String>, value: impl Into<String>) -> Self {
        self.target.push((label.into(), value.into()));
        self
    }

    /// Calls programs of these nodes of the cluster, or of all nodes if none is named.
    #[must_use]
    pub fn on_nodes(mut self, nodes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.nodes = Some(nodes.into_iter().map(Into::into).collect());
        self
    }

    /// Applies the setting at the end of this frame of the knob's publication, in every process.
    #[must_use]
    pub fn at_frame(mut self, number: u64) -> Self {
        self.at_frame = Some(number);
        self
    }

    /// Waits for acknowledgements, at most this long.
    #[must_use]
    pub fn waiting(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    fn body(&self) -> Result<Json, FireError> {
        let mut body = Map::new();
        let target = self.target.iter();
        let target: Map<String, Json> = target
            .map(|(label, value)| (label.clone(), json!(value)))
            .collect();
        if target.len() < self.target.len() {
            return Err(FireError::Argument("a target names a label twice"));
        }
        body.insert("name".into(), json!(self.name));
        body.insert("target".into(), Json::Object(target));
        body.insert("knob".into(), json!(self.is_knob));
        body.insert(
            "wait_s".into(),
            json!(self.wait.min(FIRE_WAIT_MAX).as_secs_f64()),
        );
        if let Some(expires) = self.expires {
            body.insert("expires_s".into(), json!(expires.as_secs_f64()));
        }
        if let Some(nodes) = &self.nodes {
            let all = nodes.is_empty();
            let nodes = if all { json!("all") } else { json!(nodes) };
            body.insert("nodes".into(), nodes);
        }
        if let Some(at_frame) = self.at_frame {
            body.insert("at_frame".into(), json!(at_frame));
        }
        if let Some(incarnation) = &self.incarnation {
            body.insert("incarnation".into(), json!(incarnation.to_string()));
        }
        if let Some((payload_type, payload)) = json_of(&self.payload)? {
            body.insert("payload_type".into(), json!(payload_type));
            body.insert("payload".into(), payload);
        }
        Ok(Json::Object(body))
    }
}

/// The outcome of a call, up to the end of the wait.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fired {
    /// The call's id in the tables.
    pub id: String,
    /// Number of processes that match.
    pub matched: u64,
    /// Number of processes that have handled it.
    pub acknowledged: u64,
    /// Number of processes that could not.
    pub failed: u64,
    /// Number of processes that had already ended the frame at which the knob was to be set.
    pub late: u64,
    /// The agent's word for the state of the call: `fired`, `acknowledged`, `expired`… On several
    /// nodes, `incomplete` if one of them has not answered.
    pub state: String,
    /// The result on each node, if the call was for several.
    pub nodes: Vec<NodeFired>,
}

/// The result of a call on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFired {
    /// Name of the node.
    pub node: String,
    /// The state of the call there, `nobody` if no process matches, `unanswered` if the node does
    /// not take it or has not answered.
    pub state: String,
    /// The reason, if nobody matches or there is no answer.
    pub reason: Option<String>,
}

/// The reasons why a call was not fired.
#[derive(Debug, Error)]
pub enum FireError {
    /// No agent answers.
    #[error("no agent answers in {}: start one with `baro up`, or name its run directory (BAROGRAPH_RUN_DIR): {source}", path.display())]
    NoAgent {
        /// The run directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The arguments of the call cannot be sent.
    #[error("it cannot be fired: {0}")]
    Argument(&'static str),
    /// The agent has refused the call.
    #[error("{message}")]
    Refused {
        /// An HTTP status: 404 if no process matches, 403 if the right is missing, 503 if the agent
        /// is busy.
        status: u16,
        /// The agent's message.
        message: String,
    },
    /// The answer did not come, or makes no sense: whether it was made is in the table `calls`.
    #[error("the agent has not answered: {0}; whether the call was made is in the table calls")]
    Answer(io::Error),
}

/// Calls a handler, or sets a knob, through the agent of a run directory.
pub fn fire(run_dir: &RunDir, fire: &Fire) -> Result<Fired, FireError> {
    let body = fire.body()?.to_string();
    let answer_wait = match fire.nodes {
        Some(_) => NODES_WAIT,
        None => ANSWER_WAIT,
    };
    let wait = fire.wait.min(FIRE_WAIT_MAX) + answer_wait;
    let ask = |door: AgentSocket| http::post(run_dir, door, FIRE_PATH, &body, wait);
    // Who may control the agent may fire for everyone; others may for their own programs.
    let answer = match ask(AgentSocket::Control) {
        Err(e) if is_unreachable(&e) => ask(AgentSocket::Read),
        other => other,
    };
    let answer = answer.map_err(|source| match source.kind() {
        _ if !is_unreachable(&source) => FireError::Answer(source),
        _ => FireError::NoAgent {
            path: run_dir.path().to_owned(),
            source,
        },
    })?;
    let said: Json = serde_json::from_slice(&answer.body).unwrap_or(Json::Null);
    if !(200..300).contains(&answer.status) {
        let message = said["error"]["message"].as_str();
        return Err(FireError::Refused {
            status: answer.status,
            message: match message {
                Some(message) => message.to_owned(),
                None => format!("the agent answered {}", answer.status),
            },
        });
    }
    let number = |name: &str| said[name].as_u64().unwrap_or(0);
    let text = |name: &str| said[name].as_str().unwrap_or_default().to_owned();
    let nodes = said["nodes"].as_array().into_iter().flatten();
    let nodes = nodes.map(|node| NodeFired {
        node: node["node"].as_str().unwrap_or_default().to_owned(),
        state: node["state"].as_str().unwrap_or_default().to_owned(),
        reason: node["reason"].as_str().map(str::to_owned),
    });
    Ok(Fired {
        id: text("id"),
        matched: number("matched"),
        acknowledged: number("acknowledged"),
        failed: number("failed"),
        late: number("late"),
        state: text("state"),
        nodes: nodes.collect(),
    })
}

/// Whether nothing was sent, because no socket is there or this user may not use it.
fn is_unreachable(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, NotFound, PermissionDenied};
    matches!(
        error.kind(),
        ConnectionRefused | NotFound | PermissionDenied
    )
}

/// The name of the payload's type, and its value.
fn json_of(payload: &CallPayload) -> Result<Option<(&'static str, Json)>, FireError> {
    let finite = |value: f64| {
        let number = serde_json::Number::from_f64(value).map(Json::Number);
        number.ok_or(FireError::Argument("a float that is not finite"))
    };
    Ok(Some(match payload {
        CallPayload::None => return Ok(None),
        CallPayload::Int(v) => ("int", json!(v)),
        CallPayload::Float(v) => ("float", finite(*v)?),
        CallPayload::Bool(v) => ("bool", json!(v)),
        CallPayload::Text(v) => ("text", json!(v)),
        CallPayload::Bytes(v) => ("bytes", json!(base64(v))),
        CallPayload::Json(v) => {
            let value = serde_json::from_str(v);
            (
                "json",
                value.map_err(|_| FireError::Argument("text that is not JSON"))?,
            )
        }
        CallPayload::Floats(all) => {
            let all: Result<Vec<Json>, FireError> = all.iter().map(|v| finite(*v)).collect();
            ("floats", Json::Array(all?))
        }
    }))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixListener;
    use std::path::Path;
    use std::thread::{self, JoinHandle};

    use super::*;

    #[test]
    fn what_is_asked_is_what_was_meant() {
        let plain = Fire::trigger("checkpoint", CallPayload::None);
        let expect = json!({"name": "checkpoint", "target": {}, "knob": false, "wait_s": 0.0});
        assert_eq!(plain.body().unwrap(), expect);
        let mut knob = Fire::knob("solver.tolerance", CallPayload::Float(0.5))
            .to("rank", "3")
            .waiting(Duration::from_secs(100))
            .at_frame(60);
        knob.expires = Some(Duration::from_secs(5));
        knob.incarnation = Some(Incarnation([0xab; 16]));
        let expect = json!({
            "name": "solver.tolerance", "target": {"rank": "3"}, "knob": true, "wait_s": 30.0,
            "expires_s": 5.0, "at_frame": 60, "incarnation": "ab".repeat(16), "payload_type": "float", "payload": 0.5,
        });
        assert_eq!(knob.body().unwrap(), expect);
        for payload in [
            CallPayload::Float(f64::NAN),
            CallPayload::Floats(vec![1.0, f64::INFINITY]),
            CallPayload::Json("{".into()),
        ] {
            let refused = Fire::trigger("a", payload).body().unwrap_err();
            assert!(matches!(refused, FireError::Argument(_)));
        }
        let on = |nodes: &[&str]| {
            let fire = plain.clone().on_nodes(nodes.iter().copied());
            fire.body().unwrap()["nodes"].clone()
        };
        assert_eq!(
            (on(&[]), on(&["a", "b"])),
            (json!("all"), json!(["a", "b"]))
        );
        let twice = plain.to("rank", "1").to("rank", "2");
        assert!(twice.body().is_err());
    }

    /// Answers one request and returns that request.
    fn agent(socket: &Path, answer: &'static str) -> JoinHandle<String> {
        let listener = UnixListener::bind(socket).unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = Vec::new();
            let mut piece = [0; 1_024];
            while !asked.ends_with(b"}") {
                let count = stream.read(&mut piece).unwrap();
                asked.extend_from_slice(&piece[..count]);
            }
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8(asked).unwrap()
        })
    }

    #[test]
    fn the_agent_is_asked_where_it_answers() {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = RunDir::new(dir.path());
        let wanted = Fire::trigger("checkpoint", CallPayload::Int(3));
        let nobody = fire(&run_dir, &wanted).unwrap_err();
        assert!(matches!(nobody, FireError::NoAgent { .. }), "{nobody}");
        let read = agent(
            &run_dir.read_socket(),
            "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n\
             {\"id\": \"u0:7\", \"matched\": 2, \"acknowledged\": 1, \"failed\": 1, \"state\": \"acknowledged\"}",
        );
        let fired = fire(&run_dir, &wanted).unwrap();
        let expect = Fired {
            id: "u0:7".into(),
            matched: 2,
            acknowledged: 1,
            failed: 1,
            late: 0,
            state: "acknowledged".into(),
            nodes: Vec::new(),
        };
        assert_eq!(fired, expect);
        let asked = read.join().unwrap();
        assert!(
            asked.starts_with("POST /api/v1/fire HTTP/1.1\r\n"),
            "{asked}"
        );
        assert!(asked.contains("\"payload\":3"), "{asked}");
        let control = agent(
            &run_dir.control_socket(),
            "HTTP/1.1 404 Not Found\r\nconnection: close\r\n\r\n\
             {\"error\":{\"kind\":\"unknown\",\"message\":\"nobody at all\"}}",
        );
        let refused = fire(&run_dir, &wanted).unwrap_err();
        control.join().unwrap();
        assert!(matches!(refused, FireError::Refused { status: 404, .. }));
        assert_eq!(refused.to_string(), "nobody at all");
    }
}

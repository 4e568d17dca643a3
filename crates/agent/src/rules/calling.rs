//! The way from a rule that has fired to a call into programs.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use barograph_model::{ControlFault, RequestSender};
use barograph_recorder::Work;
use barograph_rule::Firing;
use barograph_stream::SCOPE_OF_ALL;
use barograph_stream::calls::{CallPayload, CallTarget};
use serde_json::{Value as Json, json};
use tracing::info;

use super::RuleAction;
use crate::node_calls::{NodeCalls, UNANSWERED};
use barograph_call::{Board, CallError, CallRequest};

/// Most calls of rules that are on their way to other nodes. Each has a thread.
const UNDER_WAY_MAX: usize = 16;

/// The action of rules in the product: calls through the board, and to other nodes. Values that
/// only some users may read go to the programs of these users alone.
pub(crate) struct ProgramCalls {
    board: Option<Arc<Board>>,
    nodes: Arc<NodeCalls>,
    work: Work,
    under_way: Arc<AtomicUsize>,
    /// Rules and reasons. The loop of rules takes them before it fires again, so there are no more
    /// of them than it fires at a time.
    failures: Arc<Mutex<Vec<(String, String)>>>,
}

impl ProgramCalls {
    /// Without a board (no applications) every call on this node fails, with an error that names
    /// the reason. Calls on other nodes go through `nodes`, as jobs.
    pub(crate) fn new(board: Option<Arc<Board>>, nodes: Arc<NodeCalls>, work: &Work) -> Self {
        Self {
            board,
            nodes,
            work: work.clone(),
            under_way: Arc::default(),
            failures: Arc::default(),
        }
    }

    /// Starts the call on the nodes that the firing names. What comes of it is known later.
    fn fire_on_nodes(
        &self,
        firing: &Firing,
        (nodes, only_user): (&[String], Option<u32>),
    ) -> Result<(), String> {
        if self.under_way.fetch_add(1, Ordering::AcqRel) >= UNDER_WAY_MAX {
            self.under_way.fetch_sub(1, Ordering::AcqRel);
            return Err(format!(
                "{UNDER_WAY_MAX} calls of rules are on their way to other nodes already"
            ));
        }
        let (request, rule) = (request_on(firing, nodes), firing.rule.clone());
        let asker = RequestSender {
            uid: only_user,
            pid: None,
            via: format!("rule {rule}").into(),
            // Who made the rule has the right; only_user says whose programs may be told its
            // values.
            may_control: only_user.is_none(),
        };
        let (calls, under_way) = (Arc::clone(&self.nodes), Arc::clone(&self.under_way));
        let failures = Arc::clone(&self.failures);
        let started = self.work.start("baro-rule-call", move || {
            if let Some(reason) = failure(calls.fire(&request, &asker)) {
                let mut failures = failures.lock().unwrap_or_else(PoisonError::into_inner);
                failures.push((rule, reason));
            }
            under_way.fetch_sub(1, Ordering::AcqRel);
        });
        started.map(drop).map_err(|error| {
            self.under_way.fetch_sub(1, Ordering::AcqRel);
            format!("no thread for the call: {error}")
        })
    }
}

impl RuleAction for ProgramCalls {
    fn fire(&self, firing: &Firing) -> Result<(), String> {
        let only_user = only_user(&firing.scopes)?;
        let (rule, call, why) = (&firing.rule, &firing.call, &firing.explanation);
        info!(rule, call, ?only_user, why, "a rule has fired");
        if let Some(nodes) = &firing.nodes {
            return self.fire_on_nodes(firing, (nodes, only_user));
        }
        let board = self.board.as_ref();
        let board = board.ok_or("this agent takes in no applications (applications.enabled)")?;
        let request = CallRequest {
            target: CallTarget {
                incarnation: None,
                labels: firing.target.clone(),
            },
            payload: payload(&firing.payload),
            expires: Duration::from_nanos(firing.expires_ns.unsigned_abs()),
            only_user,
            ..CallRequest::trigger(&*firing.call, format!("rule {}", firing.rule))
        };
        let fired: Result<_, CallError> = board.fire(&request);
        fired.map(drop).map_err(|error| error.to_string())
    }

    fn failures(&self) -> Vec<(String, String)> {
        std::mem::take(&mut *self.failures.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The body of `POST /api/v1/fire` for a firing on these nodes, or on all if none is named.
fn request_on(firing: &Firing, nodes: &[String]) -> Json {
    let nodes = match nodes {
        [] => json!("all"),
        nodes => json!(nodes),
    };
    let target: serde_json::Map<String, Json> = firing
        .target
        .iter()
        .map(|(label, value)| (label.clone(), json!(value)))
        .collect();
    json!({
        "name": firing.call,
        "target": target,
        "payload": firing.payload,
        "expires_s": firing.expires_ns as f64 / 1e9,
        "nodes": nodes,
    })
}

/// The reason why a call on several nodes has come to nothing on some of them; `None` if it has
/// not.
fn failure(answer: Result<Json, ControlFault>) -> Option<String> {
    let answer = match answer {
        Ok(answer) => answer,
        Err(fault) => return Some(fault.message),
    };
    let nodes = answer["nodes"].as_array().into_iter().flatten();
    let unanswered = nodes.filter(|node| node["state"] == UNANSWERED);
    let reasons: Vec<String> = unanswered
        .map(|node| {
            let text = |key: &str| node[key].as_str().unwrap_or_default().to_owned();
            format!("{}: {}", text("node"), text("reason"))
        })
        .collect();
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

/// The user whose programs may get values of streams of all these scopes; `None`: all users.
fn only_user(scopes: &BTreeSet<Arc<str>>) -> Result<Option<u32>, String> {
    let is_private = |scope: &&Arc<str>| !scope.is_empty() && &***scope != SCOPE_OF_ALL;
    let mut private = scopes.iter().filter(is_private);
    let Some(scope) = private.next() else {
        return Ok(None);
    };
    if let Some(other) = private.next() {
        return Err(format!(
            "what only {scope} may read and what only {other} may read call nobody together"
        ));
    }
    let uid = scope.strip_prefix('u').and_then(|uid| uid.parse().ok());
    // Calls are addressed by user: the group of each program would have to be looked up.
    let refused =
        || format!("what only {scope} may read calls nobody: publish it for all, or for its owner");
    uid.map(Some).ok_or_else(refused)
}

fn payload(payload: &Json) -> CallPayload {
    match payload {
        Json::Null => CallPayload::None,
        Json::Bool(value) => CallPayload::Bool(*value),
        Json::String(text) => CallPayload::Text(text.clone()),
        Json::Number(number) => match number.as_i64() {
            Some(value) => CallPayload::Int(value),
            None => CallPayload::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::Array(_) | Json::Object(_) => CallPayload::Json(payload.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_some_nodes_have_not_answered_is_a_failure() {
        let answer = json!({"nodes": [
            {"node": "a", "state": "answered", "reason": null},
            {"node": "b", "state": "unanswered", "reason": "it is not connected"},
            {"node": "c", "state": "nobody", "reason": "no process"},
        ]});
        assert_eq!(failure(Ok(answer)).unwrap(), "b: it is not connected");
        assert_eq!(
            failure(Ok(json!({"nodes": [{"node": "a", "state": "nobody"}]}))),
            None
        );
    }

    #[test]
    fn private_values_are_told_to_their_user_alone() {
        let only_user = |scopes: &[&str]| {
            let scopes = scopes.iter().map(|&scope| scope.into());
            only_user(&scopes.collect())
        };
        assert_eq!(only_user(&[""]), Ok(None));
        assert_eq!(only_user(&["", "all"]), Ok(None));
        assert_eq!(only_user(&["u1000"]), Ok(Some(1000)));
        assert_eq!(only_user(&["", "all", "u1000"]), Ok(Some(1000)));
        for scopes in [
            &["g100"][..],
            &["u"],
            &["u-1"],
            &["x"],
            &["u1000", "u1001"],
            &["g100", "u1000"],
        ] {
            assert!(only_user(scopes).is_err(), "{scopes:?}");
        }
    }
}

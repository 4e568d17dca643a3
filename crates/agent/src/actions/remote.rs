//! Actions on other nodes. The node of the rule hands an action over, and is done with it when the
//! other node has it in its own durable queue; so either of them may die at any time. The identity
//! of the action goes along, so that it is taken once, however often it is handed over.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use barograph_action::{
    ACTION_NAME_BYTES_MAX, ActionFailure, ActionHost, ActionJob, ActionKey, ActionOutcome,
    ActionOwner, ActionRequest, AttemptReach, Delivery, JobPlace, RepeatWish, RetryPolicy,
};
use barograph_fabric::QuestionKind;
use barograph_model::{ControlFault, ControlFaultKind, RequestSender, fnv1a};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::{EventActions, MarkBox};
use crate::node_calls::NodeCalls;
use crate::node_questions::answered;

/// An action as it goes to another node.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct ForwardedAction {
    rule: String,
    version: u64,
    source: String,
    index: u64,
    at_most_once: bool,
    attempts_max: u32,
    job: ActionJob,
}

/// The agent, as the executor of actions sees it.
pub(crate) struct AgentHost {
    /// Makes calls, and knows the way to other nodes.
    pub calls: Arc<NodeCalls>,
    /// Takes marks.
    pub marks: Arc<MarkBox>,
}

impl ActionHost for AgentHost {
    fn call(&self, request: &str, rule: &str) -> ActionOutcome {
        let Ok(request) = serde_json::from_str::<Json>(request) else {
            return failed("the payload is not JSON".into(), RepeatWish::Never);
        };
        let asker = RequestSender {
            uid: None,
            pid: None,
            via: format!("rule {rule}").into(),
            // Who made the rule has the right.
            may_control: true,
        };
        match self.calls.fire(&request, &asker) {
            Ok(answer) => ActionOutcome::Done {
                output: answer.to_string().into_bytes(),
            },
            Err(fault) => failed_call(fault),
        }
    }

    fn mark(
        &self,
        mark: &str,
        (job, owner): (&ActionJob, ActionOwner),
        stop: &AtomicBool,
    ) -> ActionOutcome {
        let now_ns = self.calls.clock.now_ns();
        match self.marks.put(mark, (job, owner, now_ns), stop) {
            Ok(()) => ActionOutcome::Done { output: Vec::new() },
            Err(reason) => failed(reason, RepeatWish::Later),
        }
    }

    fn hand_over(
        &self,
        place: &JobPlace,
        (key, delivery): (&ActionKey, Delivery),
        job: &ActionJob,
    ) -> ActionOutcome {
        let forwarded = ForwardedAction {
            rule: key.rule.clone(),
            version: key.rule_version,
            source: key.source.clone(),
            index: key.index,
            at_most_once: delivery == Delivery::AtMostOnce,
            attempts_max: place.attempts_max,
            job: job.clone(),
        };
        let (text, node) = (json!(forwarded).to_string(), &place.node);
        let patience = Duration::from_nanos(self.calls.patience_ns.unsigned_abs());
        let until_ns = self
            .calls
            .clock
            .now_ns()
            .saturating_add(self.calls.patience_ns);
        let question = (QuestionKind::Action, &*text);
        let nodes = [node.clone()];
        let asked = self.calls.others.ask(question, &nodes, until_ns);
        let replies = match asked.and_then(|asked| asked.wait(patience)) {
            Ok(replies) => replies,
            Err(fault) => {
                return failed(format!("node {node}: {}", fault.message), RepeatWish::Later);
            }
        };
        match replies
            .into_iter()
            .next()
            .map(|reply| answered(reply.answer))
        {
            Some(Ok(answer)) => ActionOutcome::Done { output: answer },
            Some(Err((_, reason))) => failed(format!("node {node}: {reason}"), RepeatWish::Later),
            None => failed(format!("node {node} is not known"), RepeatWish::Later),
        }
    }
}

/// A failure after which nothing was done: the other node knows an action that comes again.
fn failed(reason: String, repeat: RepeatWish) -> ActionOutcome {
    ActionOutcome::Failed(ActionFailure {
        reason,
        output: Vec::new(),
        repeat,
        reach: AttemptReach::NotBegun,
    })
}

fn failed_call(fault: ControlFault) -> ActionOutcome {
    let repeat = match fault.kind {
        // Programs come and go.
        ControlFaultKind::Unknown | ControlFaultKind::Busy => RepeatWish::Later,
        _ => RepeatWish::Never,
    };
    failed(fault.message, repeat)
}

impl EventActions {
    /// Takes an action of another node in, and answers once it is durable.
    ///
    /// # Errors
    ///
    /// It is not taken, for this reason.
    pub(crate) fn take(&self, from: &str, text: &str) -> Result<Vec<u8>, String> {
        let node = &self.shared.node;
        if !self.accepted.iter().any(|pattern| pattern.matches(from)) {
            return Err(format!(
                "{node} takes no actions of {from}: name it there in accept_from of [action]"
            ));
        }
        let forwarded: ForwardedAction =
            serde_json::from_str(text).map_err(|error| error.to_string())?;
        let ForwardedAction {
            at_most_once,
            attempts_max,
            mut job,
            ..
        } = forwarded;
        job.place = None;
        // Its rule and its source are none of this node.
        let key = ActionKey {
            rule: of_node(from, &forwarded.rule),
            rule_version: forwarded.version,
            source: of_node(from, &forwarded.source),
            index: forwarded.index,
        };
        let request = ActionRequest {
            owner: self.shared.owner,
            delivery: match at_most_once {
                true => Delivery::AtMostOnce,
                false => Delivery::AtLeastOnce,
            },
            retry: RetryPolicy {
                attempts_max: attempts_max.max(1),
                ..RetryPolicy::default()
            },
            body: job.encode().map_err(|fault| fault.to_string())?,
            key,
        };
        let key = request.key.to_string();
        let queue = self.open()?;
        let kept = queue
            .enqueue(&[request])
            .map_err(|fault| fault.to_string())?;
        if kept.refused() > 0 {
            return Err(format!("the queue of actions of {node} is full"));
        }
        self.shared.wake_workers();
        Ok(
            json!({"node": node, "key": key, "is_new": kept.accepted > 0})
                .to_string()
                .into_bytes(),
        )
    }
}

/// The name of a rule or source of another node, here.
fn of_node(node: &str, name: &str) -> String {
    let whole = format!("{node}/{name}");
    match whole.len() <= ACTION_NAME_BYTES_MAX {
        true => whole,
        false => format!("remote/{:016x}", fnv1a(whole.as_bytes())),
    }
}

//! Calls into programs on the nodes of the cluster: those of this node's clients, which go to
//! several nodes, and those of other nodes, which are made here if this node takes them.
//!
//! A node makes each call by itself, with its own audit. Whose programs a call may reach, the node
//! that asks knows and says; so calls are taken only from nodes that the configuration names.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::TryRecvError;
use std::time::Duration;

use barograph_call::{Board, CallError, CallOutcome, CallRequest, CallsMade};
use barograph_fabric::{AskedQuestion, NodeAnswer, QuestionKind};
use barograph_model::{Clock, ControlFault, ControlFaultKind, Pattern, RequestSender};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use crate::node_questions::{AskedQuestions, NodeQuestions, answered, fault, meant};

/// Most calls of other nodes that wait for answers of programs here; and of one node.
const PENDING_MAX: usize = 64;
const PENDING_OF_NODE_MAX: usize = 16;
/// Longest wait for one of several calls before the others are looked at.
const SLICE: Duration = Duration::from_millis(20);
/// State of a call on a node where no process matches.
const NOBODY: &str = "nobody";
/// State of a call on a node that has not made it, or of which it is not known.
pub(crate) const UNANSWERED: &str = "unanswered";

/// A call as it goes to another node.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct ForwardedCall {
    /// The body of `POST /api/v1/fire`.
    request: Json,
    /// The user who calls, if the kernel reports it.
    uid: Option<u32>,
    /// Whether the caller has the right to control: otherwise only programs of this user are
    /// called.
    may_control: bool,
}

/// Makes calls: into programs of this node by its board, and on other nodes by the fabric.
pub(crate) struct NodeCalls {
    /// Name of this node.
    pub node: String,
    /// The calls into programs of this node; `None` if it takes in no applications.
    pub board: Option<Arc<Board>>,
    /// Time for which other nodes are waited for, beside the wait for programs, in ns.
    pub patience_ns: i64,
    /// The way to other nodes.
    pub others: NodeQuestions,
    /// Gives the time until which other nodes are waited for.
    pub clock: Arc<dyn Clock>,
}

impl NodeCalls {
    /// Makes the call of a request, on this node or on those that it names in `nodes`: `"all"`, or
    /// a list of names.
    pub(crate) fn fire(&self, request: &Json, asker: &RequestSender) -> Result<Json, ControlFault> {
        let mut request = request.clone();
        let nodes = request.as_object_mut().and_then(|map| map.remove("nodes"));
        let (call, wait) = CallRequest::parse(&request, asker)?;
        match nodes {
            None => self.fire_here(&call, wait),
            Some(nodes) => self.fire_on(&names(&nodes)?, (&request, asker), (&call, wait)),
        }
    }

    fn fire_here(&self, call: &CallRequest, wait: Duration) -> Result<Json, ControlFault> {
        let board = self.board.as_ref().ok_or_else(|| ControlFault {
            kind: ControlFaultKind::Unknown,
            message: NO_APPLICATIONS.into(),
        })?;
        let (made, outcome) = board.fire_and_wait(call, wait)?;
        Ok(made.json(outcome))
    }

    fn fire_on(
        &self,
        nodes: &[String],
        (request, asker): (&Json, &RequestSender),
        (call, wait): (&CallRequest, Duration),
    ) -> Result<Json, ControlFault> {
        let (is_here, others) = meant(nodes, &self.node);
        let forwarded = ForwardedCall {
            request: request.clone(),
            uid: asker.uid,
            may_control: asker.may_control,
        };
        let text = json!(forwarded).to_string();
        let patience = Duration::from_nanos(self.patience_ns.unsigned_abs()).saturating_add(wait);
        let patience_ns = i64::try_from(patience.as_nanos()).unwrap_or(i64::MAX);
        let until_ns = self.clock.now_ns().saturating_add(patience_ns);
        let asked = others.map(|others| {
            let question = (QuestionKind::Call, text.as_str());
            self.others.ask(question, &others, until_ns)
        });
        let asked = asked.transpose()?;
        let mut answers: BTreeMap<Arc<str>, NodeAnswer> = BTreeMap::new();
        if is_here {
            let own = match self.fire_here(call, wait) {
                Ok(answer) => NodeAnswer::Answered(answer.to_string().into_bytes()),
                Err(fault) if fault.kind == ControlFaultKind::Unknown => {
                    NodeAnswer::Answered(nobody(&fault.message))
                }
                Err(fault) => NodeAnswer::Failed(fault.message),
            };
            answers.insert(Arc::from(&*self.node), own);
        }
        if let Some(asked) = asked {
            let replies = asked.wait(patience)?.into_iter();
            answers.extend(replies.map(|reply| (reply.node, reply.answer)));
        }
        outcome_of(answers)
    }
}

const NO_APPLICATIONS: &str = "this agent takes in no applications (applications.enabled)";

/// The names of nodes in a request; none means all.
fn names(nodes: &Json) -> Result<Vec<String>, ControlFault> {
    let list = match nodes {
        Json::String(word) if word == "all" => Some(Vec::new()),
        Json::Array(list) if !list.is_empty() => {
            let names = list.iter().map(|name| name.as_str().map(str::to_owned));
            names.collect()
        }
        _ => None,
    };
    let text = "nodes is \"all\", or a list of names of nodes";
    list.ok_or_else(|| fault(ControlFaultKind::Statement, text))
}

/// The answer of a node where no process matches.
fn nobody(reason: &str) -> Vec<u8> {
    let mut answer = CallOutcome::default().to_json();
    answer.insert("state".into(), json!(NOBODY));
    answer.insert("reason".into(), json!(reason));
    Json::Object(answer).to_string().into_bytes()
}

/// The outcome of a call on several nodes: the sum over those that have answered, and what has come
/// of each. An error if no process of any node matches.
fn outcome_of(answers: BTreeMap<Arc<str>, NodeAnswer>) -> Result<Json, ControlFault> {
    let mut sum = CallOutcome::default();
    let (mut ids, mut left_out, mut nodes) = (Vec::new(), Vec::new(), Vec::new());
    let (mut is_complete, mut nobodies) = (true, Vec::new());
    let count = answers.len();
    for (node, answer) in answers {
        let said = answered(answer).and_then(|bytes| {
            let said = serde_json::from_slice::<Json>(&bytes);
            said.map_err(|_| ("failed", "its answer cannot be read".to_owned()))
        });
        let (state, reason) = match said {
            Err((_, reason)) => {
                is_complete = false;
                (UNANSWERED, Some(reason))
            }
            Ok(said) if said["state"] == NOBODY => {
                let reason = said["reason"].as_str().unwrap_or_default();
                nobodies.push(format!("{node}: {reason}"));
                (NOBODY, Some(reason.to_owned()))
            }
            Ok(said) => {
                let outcome = CallOutcome::from_json(&said);
                sum.add(outcome);
                let of_node = list(&said["ids"]).filter_map(Json::as_str);
                ids.extend(of_node.map(|id| format!("{node}/{id}")));
                for user in list(&said["left_out"]).filter_map(Json::as_object) {
                    let mut user = user.clone();
                    user.insert("node".into(), json!(&*node));
                    left_out.push(user);
                }
                (outcome.state(), None)
            }
        };
        nodes.push(json!({"node": &*node, "state": state, "reason": reason}));
    }
    if nobodies.len() == count {
        let message = match count {
            0 => "no other node is known".to_owned(),
            _ => nobodies.join("; "),
        };
        return Err(fault(ControlFaultKind::Unknown, &message));
    }
    let state = match is_complete {
        true => sum.state(),
        false => "incomplete",
    };
    let mut answer = sum.to_json();
    answer.insert("id".into(), json!(ids.first()));
    answer.insert("ids".into(), json!(ids));
    answer.insert("left_out".into(), json!(left_out));
    answer.insert("state".into(), json!(state));
    answer.insert("nodes".into(), json!(nodes));
    Ok(Json::Object(answer))
}

/// The elements of a list; none if it is no list.
fn list(json: &Json) -> impl Iterator<Item = &Json> {
    json.as_array().into_iter().flatten()
}

/// Takes an action of the node of this name in, and answers once it is durable.
pub(crate) type TakeAction = Box<dyn Fn(&str, &str) -> Result<Vec<u8>, String> + Send>;

/// Makes the calls of other nodes, and takes their actions in. Each call is answered when all
/// programs have, or when the asker waits no longer.
pub(crate) struct NodeCallWorker {
    asked: AskedQuestions,
    board: Option<Arc<Board>>,
    /// Takes the actions of other nodes in.
    actions: TakeAction,
    /// Names of this node, and of the nodes whose calls are made.
    node: String,
    callers: Vec<Pattern>,
    clock: Arc<dyn Clock>,
    pending: Vec<PendingCall>,
}

/// A call of another node that was made.
struct PendingCall {
    asked: AskedQuestion,
    made: CallsMade,
    until_ns: i64,
}

impl NodeCallWorker {
    /// Makes the calls of nodes whose names match one of these patterns.
    pub(crate) fn new(
        asked: AskedQuestions,
        (board, actions): (Option<Arc<Board>>, TakeAction),
        (node, callers): (&str, &[String]),
        clock: &Arc<dyn Clock>,
    ) -> Self {
        Self {
            asked,
            board,
            actions,
            node: node.to_owned(),
            callers: callers.iter().map(Pattern::new).collect(),
            clock: Arc::clone(clock),
            pending: Vec::new(),
        }
    }

    /// The shell of the thread: it works until the fabric has ended.
    pub(crate) fn run(mut self) {
        loop {
            if self.pending.is_empty() {
                match self.asked.wait() {
                    Ok(asked) => self.take(asked),
                    Err(_) => return,
                }
            }
            loop {
                match self.asked.next() {
                    Ok(asked) => self.take(asked),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            self.settle();
            if let (Some(board), Some(first)) = (&self.board, self.pending.first()) {
                board.wait(&first.made, SLICE);
            }
        }
    }

    /// Makes a call, or answers why it is not made.
    fn take(&mut self, asked: AskedQuestion) {
        if asked.kind == QuestionKind::Action {
            let taken = (self.actions)(&asked.from, &asked.text);
            return self.asked.answer(asked, taken);
        }
        match self.make(&asked) {
            Ok((made, wait)) => {
                let wait_ns = i64::try_from(wait.as_nanos()).unwrap_or(i64::MAX);
                let until_ns = self.clock.now_ns().saturating_add(wait_ns);
                self.pending.push(PendingCall {
                    until_ns: until_ns.min(asked.until_ns),
                    asked,
                    made,
                });
            }
            Err(CallError::Nobody(reason)) => self.asked.answer(asked, Ok(nobody(&reason))),
            Err(error) => self.asked.answer(asked, Err(error.to_string())),
        }
    }

    fn make(&self, asked: &AskedQuestion) -> Result<(CallsMade, Duration), CallError> {
        let from = &asked.from;
        if self.clock.now_ns() >= asked.until_ns {
            let text = "its turn came when nobody waited for it any more";
            return Err(CallError::Busy(text.into()));
        }
        if !self.callers.iter().any(|pattern| pattern.matches(from)) {
            return Err(CallError::Forbidden(format!(
                "{} takes no calls of {from}: name it there in cluster.calls_from",
                self.node
            )));
        }
        let of_node = self.pending.iter().filter(|one| one.asked.from == *from);
        if self.pending.len() >= PENDING_MAX || of_node.count() >= PENDING_OF_NODE_MAX {
            let text = "too many calls of other nodes wait here: try again";
            return Err(CallError::Busy(text.into()));
        }
        let board = self.board.as_ref();
        let board = board.ok_or_else(|| CallError::Nobody(NO_APPLICATIONS.into()))?;
        let call: ForwardedCall = serde_json::from_str(&asked.text)
            .map_err(|error| CallError::Request(error.to_string()))?;
        let asker = RequestSender {
            uid: call.uid,
            pid: None,
            via: format!("node {from}").into(),
            may_control: call.may_control,
        };
        let (request, wait) = CallRequest::parse(&call.request, &asker)?;
        Ok((board.fire(&request)?, wait))
    }

    /// Answers the calls that have settled, or for which nobody waits any longer.
    fn settle(&mut self) {
        let Some(board) = &self.board else {
            return;
        };
        let now_ns = self.clock.now_ns();
        let is_over =
            |one: &mut PendingCall| now_ns >= one.until_ns || board.outcome(&one.made).is_settled();
        for call in self.pending.extract_if(.., is_over) {
            let answer = call.made.json(board.outcome(&call.made)).to_string();
            self.asked.answer(call.asked, Ok(answer.into_bytes()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(json: &Json) -> NodeAnswer {
        NodeAnswer::Answered(json.to_string().into_bytes())
    }

    #[test]
    fn outcomes_of_nodes_are_added_up_and_each_is_named() {
        let here =
            json!({"ids": ["u0:7"], "matched": 2, "acknowledged": 2, "state": "acknowledged"});
        let there = json!({
            "ids": ["u0:9"], "matched": 3, "acknowledged": 1, "busy": 1,
            "left_out": [{"user": "eve", "processes": 1, "reason": "no room"}],
        });
        let nobody = NodeAnswer::Answered(nobody("no process has a handler"));
        let mut answers = BTreeMap::from([
            ("a".into(), answer(&here)),
            ("b".into(), answer(&there)),
            ("c".into(), nobody.clone()),
        ]);
        let sum = outcome_of(answers.clone()).unwrap();
        assert_eq!(sum["matched"], 5);
        assert_eq!(sum["acknowledged"], 3);
        assert_eq!(sum["state"], "fired", "one has not answered yet");
        assert_eq!(sum["ids"], json!(["a/u0:7", "b/u0:9"]));
        assert_eq!(sum["left_out"][0]["node"], "b");
        let states = |sum: &Json| -> Vec<String> {
            let nodes = sum["nodes"].as_array().unwrap().iter();
            nodes
                .map(|node| node["state"].as_str().unwrap().to_owned())
                .collect()
        };
        assert_eq!(states(&sum), ["acknowledged", "fired", "nobody"]);
        answers.insert("d".into(), NodeAnswer::Late);
        answers.insert("e".into(), NodeAnswer::Failed("it takes no calls".into()));
        answers.insert("f".into(), NodeAnswer::Answered(b"nonsense".to_vec()));
        let sum = outcome_of(answers).unwrap();
        assert_eq!(sum["state"], "incomplete");
        assert_eq!(states(&sum)[3..], ["unanswered"; 3]);
        assert_eq!(sum["nodes"][4]["reason"], "it takes no calls");
        // Nobody anywhere is an error, as on one node.
        let all = BTreeMap::from([("a".into(), nobody)]);
        let fault = outcome_of(all).unwrap_err();
        assert_eq!(fault.kind, ControlFaultKind::Unknown);
        assert_eq!(fault.message, "a: no process has a handler");
    }

    #[test]
    fn numbers_of_a_hostile_node_are_bounded() {
        let many = json!({"matched": u64::MAX, "acknowledged": u64::MAX, "failed": -1});
        let answers = BTreeMap::from([("a".into(), answer(&many)), ("b".into(), answer(&many))]);
        let sum = outcome_of(answers).unwrap();
        assert_eq!(sum["matched"], u64::MAX);
        assert_eq!(sum["failed"], 0);
    }

    #[test]
    fn nodes_are_all_or_a_list() {
        assert_eq!(names(&json!("all")).unwrap(), Vec::<String>::new());
        assert_eq!(names(&json!(["a", "b"])).unwrap(), ["a", "b"]);
        for wrong in [json!("a"), json!([]), json!([1]), json!(true), json!(null)] {
            assert!(names(&wrong).is_err(), "{wrong}");
        }
    }
}

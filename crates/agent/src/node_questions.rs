//! Questions to other nodes and their answers, between the threads of this node: from a client to
//! the fabric's thread, and from the fabric's thread to those that answer other nodes.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvError, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use barograph_fabric::transport::{Transport, ZenohWaker};
use barograph_fabric::{AskedQuestion, FabricNode, NodeAnswer, NodeAnswers, QuestionKind};
use barograph_model::{ControlFault, ControlFaultKind};

use crate::cluster_insights::ClusterInsightsDesk;

/// Most questions on their way from one thread to another.
const WAITING_MAX: usize = 32;
/// Time that answers of other nodes may be later than the patience of the asker.
const GRACE: Duration = Duration::from_millis(500);

/// A question to other nodes.
pub(crate) struct NodeQuestion {
    kind: QuestionKind,
    text: String,
    /// Names of the nodes; all that are known if there are none.
    nodes: Vec<String>,
    until_ns: i64,
    /// Gets the answers; `None` if too many questions wait.
    reply: SyncSender<Option<NodeAnswers>>,
}

/// The way to the fabric's thread. It is closed while this node is in no cluster.
#[derive(Clone, Default)]
pub(crate) struct NodeQuestions(Arc<Mutex<Option<OpenWay>>>);

/// The sender of questions, and what wakes the fabric's thread to read them.
type OpenWay = (SyncSender<NodeQuestion>, ZenohWaker);

impl NodeQuestions {
    /// Opens the way.
    pub(crate) fn open(&self, waker: ZenohWaker) -> Receiver<NodeQuestion> {
        let (to, from) = sync_channel(WAITING_MAX);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((to, waker));
        from
    }

    /// Asks these nodes, or all others that are known if none is named. Their answers are there by
    /// `until_ns`, in ns since the epoch.
    pub(crate) fn ask(
        &self,
        (kind, text): (QuestionKind, &str),
        nodes: &[String],
        until_ns: i64,
    ) -> Result<PendingAnswers, ControlFault> {
        let way = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (to, waker) = way.as_ref().ok_or_else(|| {
            let text = "this node is in no cluster: `baro up --cluster NAME …`";
            fault(ControlFaultKind::Refused, text)
        })?;
        let (reply, answers) = sync_channel(1);
        let question = NodeQuestion {
            kind,
            text: text.to_owned(),
            nodes: nodes.to_vec(),
            until_ns,
            reply,
        };
        match to.try_send(question) {
            Ok(()) => waker.wake(),
            Err(TrySendError::Full(_)) => return Err(busy()),
            Err(TrySendError::Disconnected(_)) => {
                let text = "this node is leaving its cluster";
                return Err(fault(ControlFaultKind::Busy, text));
            }
        }
        Ok(PendingAnswers(answers))
    }
}

/// The answers of other nodes, which are on their way.
pub(crate) struct PendingAnswers(Receiver<Option<NodeAnswers>>);

impl PendingAnswers {
    /// Waits for the answers. `patience` is the time until the question is over.
    #[expect(
        clippy::disallowed_methods,
        reason = "a client's thread waits for other nodes, for a bounded time"
    )]
    pub(crate) fn wait(self, patience: Duration) -> Result<NodeAnswers, ControlFault> {
        let answers = self.0.recv_timeout(patience.saturating_add(GRACE));
        let answers = answers.map_err(|_| {
            let text = "the fabric does not answer: try again";
            fault(ControlFaultKind::Busy, text)
        })?;
        answers.ok_or_else(busy)
    }
}

fn busy() -> ControlFault {
    let text = "too many questions to other nodes wait already: try again";
    fault(ControlFaultKind::Busy, text)
}

pub(crate) fn fault(kind: ControlFaultKind, message: &str) -> ControlFault {
    ControlFault {
        kind,
        message: message.to_owned(),
    }
}

/// The nodes of these names, or all if there are none: whether this node is one of them, and
/// which others are to be asked; `None` if no other one is.
pub(crate) fn meant(nodes: &[String], own: &str) -> (bool, Option<Vec<String>>) {
    let is_here = nodes.is_empty() || nodes.iter().any(|node| node == own);
    let others = nodes.iter().filter(|node| *node != own);
    let others: Vec<String> = others.cloned().collect();
    (
        is_here,
        (nodes.is_empty() || !others.is_empty()).then_some(others),
    )
}

/// The answer of a node, or what has come of it in a word and the reason why there is no answer.
pub(crate) fn answered(answer: NodeAnswer) -> Result<Vec<u8>, (&'static str, String)> {
    match answer {
        NodeAnswer::Answered(bytes) => Ok(bytes),
        NodeAnswer::Failed(reason) => Err(("failed", reason)),
        NodeAnswer::Late => Err(("late", "it did not answer in time".to_owned())),
        NodeAnswer::Gone => Err(("gone", "it is not connected".to_owned())),
    }
}

/// The reason why nobody here answers a question of this kind.
fn no_thread(kind: QuestionKind) -> &'static str {
    match kind {
        QuestionKind::Statement => {
            "the thread for statements of other nodes has ended: see the log"
        }
        QuestionKind::Call => {
            "this node takes no calls of other nodes, unless its cluster.calls_from names them"
        }
        QuestionKind::Action => {
            "this node takes no actions of other nodes, unless its action.accept_from names them"
        }
        QuestionKind::Insights => "this node takes no part in the insights of the cluster",
    }
}

/// The questions of other nodes for one of the threads that answer them.
pub(crate) struct AskedQuestions {
    asked: Receiver<AskedQuestion>,
    answers: SyncSender<(AskedQuestion, Result<Vec<u8>, String>)>,
    waker: ZenohWaker,
}

impl AskedQuestions {
    /// Waits for the next question; an error once the fabric has ended.
    pub(crate) fn wait(&self) -> Result<AskedQuestion, RecvError> {
        self.asked.recv()
    }

    /// The next question if there is one.
    pub(crate) fn next(&self) -> Result<AskedQuestion, TryRecvError> {
        self.asked.try_recv()
    }

    /// Answers a question. It waits while many answers are to be sent.
    pub(crate) fn answer(&self, asked: AskedQuestion, outcome: Result<Vec<u8>, String>) {
        // Without a fabric nobody waits for the answer.
        if self.answers.send((asked, outcome)).is_ok() {
            self.waker.wake();
        }
    }
}

/// The questions of both directions, on the fabric's thread.
pub(crate) struct NodeQuestionDesk {
    questions: Receiver<NodeQuestion>,
    waiting: BTreeMap<u64, SyncSender<Option<NodeAnswers>>>,
    statements: SyncSender<AskedQuestion>,
    calls: SyncSender<AskedQuestion>,
    answers: Receiver<(AskedQuestion, Result<Vec<u8>, String>)>,
}

impl NodeQuestionDesk {
    /// A desk, and what the threads beside it need: the one that runs the statements of all other
    /// nodes, so that clients of this node keep the other threads, and the one that makes calls and
    /// takes actions in.
    pub(crate) fn new(
        questions: Receiver<NodeQuestion>,
        waker: &ZenohWaker,
    ) -> (Self, AskedQuestions, AskedQuestions) {
        let (to_desk, answers) = sync_channel(WAITING_MAX);
        let side = || {
            let (to, asked) = sync_channel(WAITING_MAX);
            let asked = AskedQuestions {
                asked,
                answers: to_desk.clone(),
                waker: waker.clone(),
            };
            (to, asked)
        };
        let ((statements, engine_side), (calls, program_side)) = (side(), side());
        let desk = Self {
            questions,
            waiting: BTreeMap::new(),
            statements,
            calls,
            answers,
        };
        (desk, engine_side, program_side)
    }

    /// Moves questions and answers between the fabric, the threads that answer other nodes, the
    /// clients of this node, and the desk of the cluster's insights.
    pub(crate) fn step<T: Transport>(
        &mut self,
        fabric: &mut FabricNode<T>,
        insights: &mut ClusterInsightsDesk,
        now_ns: i64,
    ) {
        while let Ok(question) = self.questions.try_recv() {
            let NodeQuestion {
                kind,
                text,
                nodes,
                until_ns,
                reply,
            } = question;
            match fabric.ask((kind, &text), &nodes, (now_ns, until_ns)) {
                Some(number) => drop(self.waiting.insert(number, reply)),
                // The client may have gone.
                None => drop(reply.try_send(None)),
            }
        }
        while let Some((number, answers)) = fabric.answers(now_ns) {
            match self.waiting.remove(&number) {
                Some(reply) => drop(reply.try_send(Some(answers))),
                None => insights.answered(number, &answers, now_ns),
            }
        }
        while let Some(asked) = fabric.asked(now_ns) {
            let side = match asked.kind {
                QuestionKind::Statement => &self.statements,
                QuestionKind::Call | QuestionKind::Action => &self.calls,
                QuestionKind::Insights => {
                    let answer = insights.asked(&asked, now_ns);
                    let answer = answer.as_deref().map_err(String::as_str);
                    fabric.answer(&asked, answer, now_ns);
                    continue;
                }
            };
            let (asked, reason) = match side.try_send(asked) {
                Ok(()) => continue,
                Err(TrySendError::Full(asked)) => {
                    (asked, "too many questions of other nodes wait here")
                }
                Err(TrySendError::Disconnected(asked)) => {
                    let reason = no_thread(asked.kind);
                    (asked, reason)
                }
            };
            fabric.answer(&asked, Err(reason), now_ns);
        }
        loop {
            match self.answers.try_recv() {
                Ok((asked, Ok(answer))) => fabric.answer(&asked, Ok(&answer), now_ns),
                Ok((asked, Err(reason))) => fabric.answer(&asked, Err(&reason), now_ns),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
        }
    }
}

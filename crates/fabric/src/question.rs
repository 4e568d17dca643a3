//! Questions to other nodes, and their answers: statements that run where the data is, calls into
//! programs there, and what nodes tell each other about the insights of the cluster.
//!
//! A question goes to several nodes, and each of them answers in one message. A statement only reads,
//! so whoever gets no answer may ask again; a call may have been made all the same.
//! `docs/reference/fabric-format.md` defines the bytes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::frame::FRAME_BYTES_MAX;

const STATEMENT: [u8; 4] = *b"BARQ";
const CALL: [u8; 4] = *b"BARC";
const INSIGHTS: [u8; 4] = *b"BARI";
const ANSWER: [u8; 4] = *b"BARA";
const VERSION: u8 = 1;
/// Bytes before the text of a question: magic, version, number, patience.
const QUESTION_HEAD: usize = 4 + 1 + 8 + 4;
/// Bytes before an answer: magic, version, number, whether it is a fault.
const ANSWER_HEAD: usize = 4 + 1 + 8 + 1;
/// Most bytes of the text of a question: a statement, or a call as JSON.
pub const QUESTION_BYTES_MAX: usize = 72 << 10;
/// Most bytes of the answer of one node.
pub const ANSWER_BYTES_MAX: usize = FRAME_BYTES_MAX - ANSWER_HEAD;
/// Most questions of this node that wait for answers.
const QUESTIONS_MAX: usize = 32;
/// Most questions of other nodes that wait to be taken here; and of one node.
const ASKED_MAX: usize = 64;
const ASKED_OF_NODE_MAX: usize = 4;
/// Longest time for which another node may want to wait, in ms.
const PATIENCE_MS_MAX: u32 = 600_000;

/// The kind of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuestionKind {
    /// A read-only statement for the node's SQL engine.
    Statement,
    /// A call into programs of the node, as JSON.
    Call,
    /// What the asking node knows and offers of the cluster's insights, as JSON.
    Insights,
}

impl QuestionKind {
    /// All kinds.
    const ALL: [Self; 3] = [Self::Statement, Self::Call, Self::Insights];
}

/// What has come of a question on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeAnswer {
    /// Its answer: for a statement the rows as its SQL engine encoded them, for a call the outcome.
    Answered(Vec<u8>),
    /// It refused, and why.
    Failed(String),
    /// It did not answer in time.
    Late,
    /// It is not connected, or went away meanwhile.
    Gone,
}

/// What has come of a question on a node, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeReply {
    /// Name of the node.
    pub node: Arc<str>,
    /// What has come of the question there.
    pub answer: NodeAnswer,
    /// Time from the question until this was known, in ns.
    pub elapsed_ns: i64,
}

/// What has come of a question, by the names of nodes.
pub type NodeAnswers = Vec<NodeReply>;

/// A question of another node to this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedQuestion {
    /// Name of the node that asks.
    pub from: Arc<str>,
    /// What is asked.
    pub kind: QuestionKind,
    /// The statement, or anything else as JSON.
    pub text: String,
    /// Time after which nobody waits for the answer any more, ns since the epoch.
    pub until_ns: i64,
    number: u64,
}

/// The questions of this node that wait for answers, and those of other nodes that wait to be taken.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    next: u64,
    questions: BTreeMap<u64, Question>,
    asked: VecDeque<AskedQuestion>,
    /// Messages that made no sense, or for which there was no room.
    pub(crate) refused: u64,
}

#[derive(Debug)]
struct Question {
    /// Time of the question, ns since the epoch.
    asked_ns: i64,
    until_ns: i64,
    /// By node, with the time at which it was known, ns since the epoch.
    answers: BTreeMap<Arc<str>, Option<(NodeAnswer, i64)>>,
}

/// Whether a message is a question or an answer.
pub(crate) fn is_of_questions(bytes: &[u8]) -> bool {
    kind_of(bytes).is_some() || bytes.starts_with(&ANSWER)
}

/// The kind of a question; `None` if the message is none.
fn kind_of(bytes: &[u8]) -> Option<QuestionKind> {
    QuestionKind::ALL
        .into_iter()
        .find(|kind| bytes.starts_with(kind.magic()))
}

impl QuestionKind {
    fn magic(self) -> &'static [u8; 4] {
        match self {
            Self::Statement => &STATEMENT,
            Self::Call => &CALL,
            Self::Insights => &INSIGHTS,
        }
    }
}

impl Questions {
    /// Begins with this number, which no earlier life of the node has used.
    pub(crate) fn new(first: u64) -> Self {
        Self {
            next: first,
            ..Self::default()
        }
    }

    /// Opens a question to nodes. Returns its number and the message for each node that is connected;
    /// `None` if too many questions wait or the text is too long.
    pub(crate) fn ask(
        &mut self,
        (kind, text): (QuestionKind, &str),
        nodes: impl IntoIterator<Item = (Arc<str>, bool)>,
        (now_ns, until_ns): (i64, i64),
    ) -> Option<(u64, Vec<u8>)> {
        if self.questions.len() >= QUESTIONS_MAX || text.len() > QUESTION_BYTES_MAX {
            return None;
        }
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        let patience_ms = until_ns.saturating_sub(now_ns) / 1_000_000;
        let patience_ms = u32::try_from(patience_ms).unwrap_or_default();
        let answer = |(node, is_connected): (Arc<str>, bool)| {
            (node, (!is_connected).then_some((NodeAnswer::Gone, now_ns)))
        };
        let question = Question {
            asked_ns: now_ns,
            until_ns,
            answers: nodes.into_iter().map(answer).collect(),
        };
        self.questions.insert(number, question);
        let head = [&kind.magic()[..], &[VERSION], &number.to_le_bytes()].concat();
        let message = [&head[..], &patience_ms.to_le_bytes(), text.as_bytes()].concat();
        Some((number, message))
    }

    /// Takes in a message of a node.
    pub(crate) fn receive(&mut self, from: &Arc<str>, bytes: &[u8], now_ns: i64) {
        let taken = match kind_of(bytes) {
            Some(kind) => self.asked_by(from, (kind, bytes), now_ns),
            None => self.answered_by(from, bytes, now_ns),
        };
        if taken.is_none() {
            self.refused += 1;
        }
    }

    /// Takes in that a node has gone: it answers nothing, and nobody waits there.
    pub(crate) fn gone(&mut self, node: &str, now_ns: i64) {
        for question in self.questions.values_mut() {
            if let Some(answer @ None) = question.answers.get_mut(node) {
                *answer = Some((NodeAnswer::Gone, now_ns));
            }
        }
        self.asked.retain(|asked| *asked.from != *node);
    }

    /// A question whose answers are complete, or whose time is over.
    pub(crate) fn done(&mut self, now_ns: i64) -> Option<(u64, NodeAnswers)> {
        let is_done = |question: &Question| {
            now_ns >= question.until_ns || question.answers.values().all(Option::is_some)
        };
        let found = self.questions.iter().find(|(_, one)| is_done(one));
        let number = *found?.0;
        let Question {
            asked_ns, answers, ..
        } = self.questions.remove(&number)?;
        let replies = answers.into_iter().map(|(node, answer)| {
            let (answer, at_ns) = answer.unwrap_or((NodeAnswer::Late, now_ns));
            NodeReply {
                node,
                answer,
                elapsed_ns: at_ns.saturating_sub(asked_ns),
            }
        });
        Some((number, replies.collect()))
    }

    /// The time at which the next question is over, ns since the epoch.
    pub(crate) fn deadline_ns(&self) -> i64 {
        let deadlines = self.questions.values().map(|question| question.until_ns);
        deadlines.min().unwrap_or(i64::MAX)
    }

    /// The next question to this node. Those for which nobody waits any more are dropped.
    pub(crate) fn asked(&mut self, now_ns: i64) -> Option<AskedQuestion> {
        self.asked.retain(|asked| now_ns < asked.until_ns);
        self.asked.pop_front()
    }

    fn asked_by(
        &mut self,
        from: &Arc<str>,
        (kind, bytes): (QuestionKind, &[u8]),
        now_ns: i64,
    ) -> Option<()> {
        let (head, text) = bytes.split_at_checked(QUESTION_HEAD)?;
        let (number, patience) = (number_of(head)?, head.get(13..)?);
        let patience_ms = u32::from_le_bytes(patience.try_into().ok()?).min(PATIENCE_MS_MAX);
        let of_node = self.asked.iter().filter(|asked| asked.from == *from);
        let has_room = of_node.count() < ASKED_OF_NODE_MAX && self.asked.len() < ASKED_MAX;
        if !has_room || text.len() > QUESTION_BYTES_MAX {
            return None;
        }
        self.asked.push_back(AskedQuestion {
            from: Arc::clone(from),
            kind,
            text: std::str::from_utf8(text).ok()?.to_owned(),
            until_ns: now_ns.saturating_add(i64::from(patience_ms) * 1_000_000),
            number,
        });
        Some(())
    }

    fn answered_by(&mut self, from: &Arc<str>, bytes: &[u8], now_ns: i64) -> Option<()> {
        let (head, rest) = bytes.split_at_checked(ANSWER_HEAD)?;
        let question = self.questions.get_mut(&number_of(head)?)?;
        let answer = question.answers.get_mut(from)?;
        if answer.is_some() {
            return None;
        }
        let told = match head.last()? {
            0 => NodeAnswer::Answered(rest.to_vec()),
            _ => NodeAnswer::Failed(String::from_utf8_lossy(rest).chars().take(1_024).collect()),
        };
        *answer = Some((told, now_ns));
        Some(())
    }
}

impl AskedQuestion {
    /// The message with the answer, or with the reason why there is none.
    pub(crate) fn answer(&self, outcome: Result<&[u8], &str>) -> Vec<u8> {
        let large = format!(
            "the rows of this node have more than {ANSWER_BYTES_MAX} bytes: filter, aggregate or \
             LIMIT them in the statement"
        );
        let (is_fault, contents) = match outcome {
            Ok(answer) if answer.len() <= ANSWER_BYTES_MAX => (0, answer),
            Ok(_) => (1, large.as_bytes()),
            Err(reason) => (1, reason.as_bytes()),
        };
        let number = self.number.to_le_bytes();
        [&ANSWER[..], &[VERSION], &number, &[is_fault], contents].concat()
    }
}

/// The number of a question in the head of a message of this version.
fn number_of(head: &[u8]) -> Option<u64> {
    let (version, rest) = head.get(4..)?.split_first()?;
    let number = rest.first_chunk()?;
    (*version == VERSION).then(|| u64::from_le_bytes(*number))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn node(name: &str) -> Arc<str> {
        name.into()
    }

    #[test]
    fn a_statement_goes_to_nodes_and_each_answers_once() {
        let (mut a, mut b) = (Questions::new(7), Questions::new(1));
        let nodes = [(node("b"), true), (node("c"), false), (node("d"), true)];
        let (number, message) = a
            .ask(
                (QuestionKind::Statement, "SELECT 1"),
                nodes,
                (100, 5_000_000_100),
            )
            .unwrap();
        assert!(is_of_questions(&message) && a.done(200).is_none());
        b.receive(&node("a"), &message, 1_000);
        let asked = b.asked(2_000).unwrap();
        assert_eq!((&*asked.from, &*asked.text), ("a", "SELECT 1"));
        assert_eq!(asked.kind, QuestionKind::Statement);
        assert_eq!(asked.until_ns, 5_000_001_000);
        assert!(b.asked(2_000).is_none());
        let answer = asked.answer(Ok(b"[1]"));
        a.receive(&node("x"), &answer, 300);
        a.receive(&node("c"), &answer, 300);
        a.receive(&node("b"), &answer, 300);
        a.receive(&node("b"), &asked.answer(Err("again")), 300);
        assert_eq!(a.refused, 3, "it was not asked, has gone, or has answered");
        assert!(a.done(300).is_none(), "one has not answered");
        let reply = |name: &str, answer, elapsed_ns| NodeReply {
            node: node(name),
            answer,
            elapsed_ns,
        };
        let expect = vec![
            reply("b", NodeAnswer::Answered(b"[1]".to_vec()), 200),
            reply("c", NodeAnswer::Gone, 0),
            reply("d", NodeAnswer::Late, 5_000_000_000),
        ];
        assert_eq!(a.deadline_ns(), 5_000_000_100);
        assert_eq!(a.done(5_000_000_100), Some((number, expect)));
        assert_eq!(a.deadline_ns(), i64::MAX);
    }

    #[test]
    fn a_call_is_told_from_a_statement() {
        let (mut a, mut b) = (Questions::new(0), Questions::new(0));
        let call = (QuestionKind::Call, r#"{"request":{}}"#);
        let (_, message) = a.ask(call, [(node("b"), true)], (0, 1_000_000)).unwrap();
        assert!(is_of_questions(&message));
        b.receive(&node("a"), &message, 0);
        let asked = b.asked(0).unwrap();
        assert_eq!((asked.kind, &*asked.text), call);
    }

    #[test]
    fn who_goes_answers_nothing_and_asks_nothing() {
        let mut a = Questions::new(0);
        let (number, message) = a
            .ask((QuestionKind::Statement, "x"), [(node("b"), true)], (0, 10))
            .unwrap();
        a.receive(&node("b"), &message, 0);
        a.gone("b", 1);
        let reply = NodeReply {
            node: node("b"),
            answer: NodeAnswer::Gone,
            elapsed_ns: 1,
        };
        assert_eq!(a.done(1), Some((number, vec![reply])));
        assert!(a.asked(0).is_none());
    }

    #[test]
    fn everything_has_a_maximum() {
        let mut a = Questions::new(0);
        for _ in 0..QUESTIONS_MAX {
            assert!(
                a.ask(
                    (QuestionKind::Statement, "x"),
                    [(node("b"), true)],
                    (0, 1_000_000)
                )
                .is_some()
            );
        }
        assert!(
            a.ask(
                (QuestionKind::Statement, "x"),
                [(node("b"), true)],
                (0, 1_000_000)
            )
            .is_none()
        );
        let mut b = Questions::new(0);
        let long = "x".repeat(QUESTION_BYTES_MAX + 1);
        assert!(
            b.ask(
                (QuestionKind::Statement, &long),
                [(node("b"), true)],
                (0, 1)
            )
            .is_none()
        );
        let (_, message) = b
            .ask(
                (QuestionKind::Statement, "x"),
                [(node("b"), true)],
                (0, 1_000_000),
            )
            .unwrap();
        for from in 0..2 * ASKED_MAX {
            for _ in 0..2 * ASKED_OF_NODE_MAX {
                b.receive(&node(&from.to_string()), &message, 0);
            }
        }
        let asked: Vec<_> = std::iter::from_fn(|| b.asked(0)).collect();
        assert_eq!(asked.len(), ASKED_MAX);
        assert_eq!(
            asked.iter().filter(|one| &*one.from == "0").count(),
            ASKED_OF_NODE_MAX
        );
        let large = asked[0].answer(Ok(&vec![0; ANSWER_BYTES_MAX + 1]));
        assert!(large.len() < 1_000, "it is a fault with a remedy");
        b.receive(&node("a"), &message, 0);
        assert!(b.asked(1_000_000).is_none(), "nobody waits for it any more");
    }

    proptest! {
        #[test]
        fn whatever_comes_is_taken_or_refused(
            magic in prop::sample::select(vec![STATEMENT, CALL, INSIGHTS, ANSWER]),
            rest in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            let mut a = Questions::new(0);
            a.ask((QuestionKind::Statement, "x"), [(node("b"), true)], (0, 10)).unwrap();
            a.receive(&node("b"), &[&magic[..], &rest].concat(), 0);
            let _ = (a.asked(0), a.done(100));
        }
    }
}

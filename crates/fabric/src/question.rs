//! Questions to other nodes, and their answers: statements that run where the data is, calls into
//! programs there, and what nodes tell each other about the insights of the cluster.
//!
//! A question goes to several nodes, and each of them answers in one message. Messages are lost, so
//! a question is sent again to those that have not answered, until its time is over;
//! `asked_questions.rs` sees to it that they take it once.

use std::collections::BTreeMap;
use std::sync::Arc;

use barograph_model::NS_PER_MS;

use crate::asked_questions::AskedQuestions;
use crate::question_bytes::{
    ANSWER_HEAD, AskedQuestion, QUESTION_AGAIN_NS, QUESTION_BYTES_MAX, QuestionKind, VERSION,
    kind_of, number_of,
};

/// Most questions of this node that wait for answers.
const QUESTIONS_MAX: usize = 32;
/// Outcome of a question on one node.
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

/// Outcome of a question on a node, with its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeReply {
    /// Name of the node.
    pub node: Arc<str>,
    /// Outcome of the question there.
    pub answer: NodeAnswer,
    /// Time from the question until this was known, in ns.
    pub elapsed_ns: i64,
}

/// Outcomes of a question, by the names of nodes.
pub type NodeAnswers = Vec<NodeReply>;

/// The questions of this node that wait for answers, and those of other nodes.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    /// Number of the next question; those of earlier ones are less, also of earlier lives of the
    /// node.
    next: u64,
    questions: BTreeMap<u64, Question>,
    asked: AskedQuestions,
    /// Messages that made no sense.
    senseless: u64,
}

#[derive(Debug)]
struct Question {
    kind: QuestionKind,
    text: Box<str>,
    /// Time of the question, ns since the epoch.
    asked_ns: i64,
    until_ns: i64,
    /// Time at which it is sent to those who have not answered, ns since the epoch.
    due_ns: i64,
    /// By node, with the time at which it was known, ns since the epoch.
    answers: BTreeMap<Arc<str>, Option<(NodeAnswer, i64)>>,
}

impl Questions {
    /// Begins with this number, which is greater than those of earlier lives of the node.
    pub(crate) fn new(first: u64) -> Self {
        Self {
            next: first,
            ..Self::default()
        }
    }

    /// Opens a question to nodes, of which only those are sent it that are connected. Returns its
    /// number; `None` if too many questions wait or the text is too long.
    pub(crate) fn ask(
        &mut self,
        (kind, text): (QuestionKind, &str),
        nodes: impl IntoIterator<Item = (Arc<str>, bool)>,
        (now_ns, until_ns): (i64, i64),
    ) -> Option<u64> {
        if self.questions.len() >= QUESTIONS_MAX || text.len() > QUESTION_BYTES_MAX {
            return None;
        }
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        let answer = |(node, is_connected): (Arc<str>, bool)| {
            (node, (!is_connected).then_some((NodeAnswer::Gone, now_ns)))
        };
        let question = Question {
            kind,
            text: text.into(),
            asked_ns: now_ns,
            until_ns,
            due_ns: now_ns,
            answers: nodes.into_iter().map(answer).collect(),
        };
        self.questions.insert(number, question);
        Some(number)
    }

    /// A question that is to be sent now: its message, and the nodes that have not answered it.
    pub(crate) fn due(&mut self, now_ns: i64) -> Option<(Vec<Arc<str>>, Vec<u8>)> {
        let is_due = |one: &Question| one.due_ns <= now_ns && now_ns < one.until_ns;
        let mut questions = self.questions.iter_mut();
        let (number, question) = questions.find(|(_, one)| is_due(one))?;
        question.due_ns = now_ns.saturating_add(QUESTION_AGAIN_NS);
        let unanswered = question.answers.iter().filter(|(_, one)| one.is_none());
        let nodes = unanswered.map(|(node, _)| Arc::clone(node)).collect();
        Some((nodes, question.message(*number, now_ns)))
    }

    /// Takes in a message of a node. Returns what is to be sent to it at once, if anything is.
    pub(crate) fn receive(
        &mut self,
        from: &Arc<str>,
        bytes: &[u8],
        now_ns: i64,
    ) -> Option<Vec<u8>> {
        let Some(kind) = kind_of(bytes) else {
            let taken = self.answered_by(from, bytes, now_ns);
            self.senseless += u64::from(taken.is_none());
            return None;
        };
        let Some(asked) = AskedQuestion::read(from, (kind, bytes), now_ns) else {
            self.senseless += 1;
            return None;
        };
        self.asked.receive(asked, now_ns)
    }

    /// Messages that made no sense, or for which there was no room.
    pub(crate) fn refused(&self) -> u64 {
        self.senseless + self.asked.refused
    }

    /// Takes in that a node has gone: it answers nothing, and nobody waits there.
    pub(crate) fn gone(&mut self, node: &str, now_ns: i64) {
        for question in self.questions.values_mut() {
            if let Some(answer @ None) = question.answers.get_mut(node) {
                *answer = Some((NodeAnswer::Gone, now_ns));
            }
        }
        self.asked.gone(node);
    }

    /// A question whose answers are complete, or whose time is over.
    pub(crate) fn done(&mut self, now_ns: i64) -> Option<(u64, NodeAnswers)> {
        let is_done = |one: &Question| now_ns >= one.until_ns || one.is_complete();
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

    /// The time at which the next question is over or sent again, ns since the epoch. It is in the
    /// past if one is complete, or one of another node waits to be taken.
    pub(crate) fn deadline_ns(&self) -> i64 {
        if self.asked.has_waiting() {
            return i64::MIN;
        }
        let deadlines = self.questions.values().map(Question::deadline_ns);
        deadlines.min().unwrap_or(i64::MAX)
    }

    /// The next question to this node. Those for which nobody waits any more are dropped.
    pub(crate) fn asked(&mut self, now_ns: i64) -> Option<AskedQuestion> {
        self.asked.take(now_ns)
    }

    /// The message with the answer to a question to this node, or with the reason why there is
    /// none. It is kept for an asker that does not get it.
    pub(crate) fn answer(
        &mut self,
        asked: &AskedQuestion,
        outcome: Result<&[u8], &str>,
        now_ns: i64,
    ) -> Vec<u8> {
        let message = asked.answer(outcome);
        self.asked.answered(asked, &message, now_ns);
        message
    }

    /// Forgets what is over. Call it once a second.
    pub(crate) fn tidy(&mut self, now_ns: i64) {
        self.asked.tidy(now_ns);
    }

    fn answered_by(&mut self, from: &Arc<str>, bytes: &[u8], now_ns: i64) -> Option<()> {
        let (head, rest) = bytes.split_at_checked(ANSWER_HEAD)?;
        let number = number_of(head)?;
        let Some(question) = self.questions.get_mut(&number) else {
            // The answer to a question that is over may come late, or once more.
            return (number < self.next).then_some(());
        };
        let answer = question.answers.get_mut(from)?;
        if answer.is_some() {
            return Some(());
        }
        let told = match head.last()? {
            0 => NodeAnswer::Answered(rest.to_vec()),
            _ => NodeAnswer::Failed(String::from_utf8_lossy(rest).chars().take(1_024).collect()),
        };
        *answer = Some((told, now_ns));
        Some(())
    }
}

impl Question {
    fn is_complete(&self) -> bool {
        self.answers.values().all(Option::is_some)
    }

    fn deadline_ns(&self) -> i64 {
        match self.is_complete() {
            true => i64::MIN,
            false => self.until_ns.min(self.due_ns),
        }
    }

    /// The message to those who are asked, with the time that is left.
    fn message(&self, number: u64, now_ns: i64) -> Vec<u8> {
        let patience_ms = self.until_ns.saturating_sub(now_ns) / NS_PER_MS;
        let patience_ms = u32::try_from(patience_ms).unwrap_or(u32::MAX);
        let head = [&self.kind.magic()[..], &[VERSION], &number.to_le_bytes()].concat();
        [&head[..], &patience_ms.to_le_bytes(), self.text.as_bytes()].concat()
    }
}

#[cfg(test)]
mod tests {
    use barograph_model::NS_PER_S;
    use proptest::prelude::*;

    use super::*;
    use crate::question_bytes::{
        ANSWER, ANSWER_BYTES_MAX, CALL, INSIGHTS, STATEMENT, is_of_questions,
    };

    const SELECT: (QuestionKind, &str) = (QuestionKind::Statement, "SELECT 1");

    fn node(name: &str) -> Arc<str> {
        name.into()
    }

    /// Asks node b; returns the number of the question and its first message.
    fn ask_b(
        of: &mut Questions,
        question: (QuestionKind, &str),
        times: (i64, i64),
    ) -> (u64, Vec<u8>) {
        let number = of.ask(question, [(node("b"), true)], times).unwrap();
        (number, of.due(times.0).unwrap().1)
    }

    #[test]
    fn a_statement_goes_to_nodes_and_each_answers() {
        let (mut a, mut b) = (Questions::new(7), Questions::new(1));
        let nodes = [(node("b"), true), (node("c"), false), (node("d"), true)];
        let number = a.ask(SELECT, nodes, (100, 5_000_000_100)).unwrap();
        let (to, message) = a.due(100).unwrap();
        assert_eq!(to, [node("b"), node("d")]);
        assert!(is_of_questions(&message) && a.done(200).is_none());
        assert!(a.due(100).is_none());
        assert_eq!(b.receive(&node("a"), &message, 1_000), None);
        assert_eq!(b.deadline_ns(), i64::MIN, "it is to be taken");
        let asked = b.asked(2_000).unwrap();
        assert_eq!(
            (&*asked.from, asked.kind, &*asked.text),
            ("a", SELECT.0, SELECT.1)
        );
        assert_eq!(asked.until_ns, 5_000_001_000);
        assert!(b.asked(2_000).is_none());
        assert_eq!(b.deadline_ns(), i64::MAX);
        let answer = b.answer(&asked, Ok(b"[1]"), 3_000);
        assert_eq!(a.receive(&node("x"), &answer, 300), None);
        assert_eq!(a.refused(), 1, "it was not asked");
        a.receive(&node("c"), &answer, 300);
        a.receive(&node("b"), &answer, 300);
        a.receive(&node("b"), &asked.answer(Err("again")), 300);
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
        assert_eq!(a.done(5_000_000_100), Some((number, expect)));
        assert_eq!(a.deadline_ns(), i64::MAX);
        // What comes of it later is no fault of its sender; of a question that was never asked, it
        // is.
        a.receive(&node("d"), &answer, 6_000_000_000);
        assert_eq!(a.refused(), 1);
        a.receive(
            &node("d"),
            &[&ANSWER[..], &[VERSION], &[9; 9]].concat(),
            6_000_000_000,
        );
        assert_eq!(a.refused(), 2);
    }

    #[test]
    fn who_has_not_answered_is_asked_again_until_the_time_is_over() {
        let mut a = Questions::new(0);
        let nodes = [(node("b"), true), (node("c"), true), (node("d"), false)];
        a.ask(SELECT, nodes, (0, 5 * NS_PER_S / 2)).unwrap();
        let patience = |message: &[u8]| {
            let asked = AskedQuestion::read(&node("a"), (SELECT.0, message), 0).unwrap();
            asked.until_ns / NS_PER_MS
        };
        let (to, first) = a.due(0).unwrap();
        assert_eq!((to.len(), patience(&first)), (2, 2_500));
        assert_eq!(a.deadline_ns(), NS_PER_S);
        assert!(a.due(NS_PER_S - 1).is_none());
        let (mut b, from) = (Questions::new(0), node("a"));
        b.receive(&from, &first, 0);
        let asked = b.asked(0).unwrap();
        a.receive(&node("b"), &b.answer(&asked, Ok(b"1"), 0), 0);
        let (to, second) = a.due(NS_PER_S + 1).unwrap();
        assert_eq!((to, patience(&second)), (vec![node("c")], 1_499));
        assert_eq!(number_of(&second), number_of(&first));
        let (_, third) = a.due(2 * NS_PER_S + 1).unwrap();
        assert_eq!(patience(&third), 499);
        assert_eq!(
            a.deadline_ns(),
            5 * NS_PER_S / 2,
            "it is over before it is due again"
        );
        assert!(a.due(9 * NS_PER_S).is_none());
        assert!(a.done(9 * NS_PER_S).is_some());
    }

    #[test]
    fn a_call_is_told_from_a_statement() {
        let (mut a, mut b) = (Questions::new(0), Questions::new(0));
        let call = (QuestionKind::Call, r#"{"request":{}}"#);
        let (_, message) = ask_b(&mut a, call, (0, NS_PER_S));
        assert!(is_of_questions(&message));
        b.receive(&node("a"), &message, 0);
        let asked = b.asked(0).unwrap();
        assert_eq!((asked.kind, &*asked.text), call);
    }

    #[test]
    fn who_goes_answers_nothing_and_asks_nothing() {
        let mut a = Questions::new(0);
        let (number, message) = ask_b(&mut a, SELECT, (0, 10));
        a.receive(&node("b"), &message, 0);
        a.gone("b", 1);
        assert_eq!(a.deadline_ns(), i64::MIN, "it is complete");
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
        let ask = |a: &mut Questions, text: &str| {
            let question = (QuestionKind::Statement, text);
            a.ask(question, [(node("b"), true)], (0, NS_PER_S))
        };
        for _ in 0..QUESTIONS_MAX {
            assert!(ask(&mut a, "x").is_some());
        }
        assert_eq!(ask(&mut a, "x"), None);
        let mut b = Questions::new(0);
        assert_eq!(ask(&mut b, &"x".repeat(QUESTION_BYTES_MAX + 1)), None);
        let (_, message) = ask_b(&mut b, SELECT, (0, NS_PER_S));
        b.receive(&node("a"), &message, 0);
        let asked = b.asked(0).unwrap();
        let large = b.answer(&asked, Ok(&vec![0; ANSWER_BYTES_MAX + 1]), 0);
        assert!(large.len() < 1_000, "it is a fault with a remedy");
        b.receive(&node("c"), &message, 0);
        assert!(b.asked(NS_PER_S).is_none(), "nobody waits for it any more");
    }

    proptest! {
        #[test]
        fn whatever_comes_is_taken_or_refused(
            magic in prop::sample::select(vec![STATEMENT, CALL, INSIGHTS, ANSWER]),
            rest in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            let mut a = Questions::new(0);
            a.ask((QuestionKind::Statement, "x"), [(node("b"), true)], (0, 10)).unwrap();
            let message = [&magic[..], &rest].concat();
            let _ = (a.receive(&node("b"), &message, 0), a.receive(&node("b"), &message, 0));
            let asked = a.asked(0);
            prop_assert!(a.asked(0).is_none());
            let _ = asked.map(|asked| a.answer(&asked, Ok(&rest), 0));
            a.tidy(1);
            let _ = a.done(100);
        }
    }
}

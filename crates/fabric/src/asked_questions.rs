//! The questions of other nodes to this one: those that wait to be taken, and what is remembered of
//! those that were taken.
//!
//! An asker sends its question again until it has the answer, and a network may double a message.
//! So each question is known by its asker and its number, and is taken once. An answer is kept and
//! sent again for as long as its asker waits. Where there was no room to keep it, a statement is
//! run again, and a call is answered with a fault: it is never made again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use barograph_model::NS_PER_S;

use crate::question_bytes::{AskedQuestion, QUESTION_AGAIN_NS, QuestionKind};

/// Most questions that wait to be taken; and of one node.
const WAITING_MAX: usize = 64;
const WAITING_OF_NODE_MAX: usize = 4;
/// Most questions that were taken and are remembered; and of one node.
const TAKEN_MAX: usize = 4_096;
const TAKEN_OF_NODE_MAX: usize = 64;
/// Most bytes of the answers that are kept; and of those to one node.
const KEPT_BYTES_MAX: usize = 4 << 20;
const KEPT_OF_NODE_BYTES_MAX: usize = 256 << 10;
/// Most nodes of whose questions anything is remembered.
const NODES_MAX: usize = 4_096;
/// Longest time for which a network is expected to hold back a message, in ns: TCP's maximum
/// segment lifetime (RFC 9293, section 3.4.2). A call is remembered for so long after its asker has
/// stopped waiting.
const DELAY_NS_MAX: i64 = 120 * NS_PER_S;
/// Least time between two sendings of an answer, in ns: a question that was doubled by the network,
/// or crossed its answer, does not have the answer sent twice.
const RESEND_NS_MIN: i64 = QUESTION_AGAIN_NS / 2;
/// The answer to a call that is not made, because it may have been made before.
const OUTCOME_UNKNOWN: &str = "this call was taken before, and its outcome is no longer known here: the table \
                               calls of this node says whether it was made";

/// The questions of other nodes.
#[derive(Debug, Default)]
pub(crate) struct AskedQuestions {
    waiting: VecDeque<AskedQuestion>,
    taken: BTreeMap<Arc<str>, TakenOfNode>,
    /// Questions for which there was no room.
    pub(crate) refused: u64,
}

/// What is remembered of the questions of one node that were taken.
#[derive(Debug, Default)]
struct TakenOfNode {
    /// By number.
    questions: BTreeMap<u64, TakenQuestion>,
    forgotten: Option<ForgottenCalls>,
}

/// The calls of a node that were forgotten for lack of room. The numbers of an asker ascend, so no
/// call up to the newest of them is made.
#[derive(Clone, Copy, Debug)]
struct ForgottenCalls {
    newest: u64,
    /// Time from which on none of them can come again, ns since the epoch.
    until_ns: i64,
}

#[derive(Debug)]
struct TakenQuestion {
    kind: QuestionKind,
    /// Time after which the asker waits no longer, ns since the epoch.
    until_ns: i64,
    /// `None` while the question is being answered.
    answer: Option<SentAnswer>,
}

#[derive(Debug)]
struct SentAnswer {
    /// Time at which it was last sent, ns since the epoch.
    sent_ns: i64,
    /// `None` if there was no room for it.
    message: Option<Vec<u8>>,
}

/// What is to be done with a question that has come.
enum Known {
    /// It was not taken before, or may be taken again.
    No,
    /// It is being answered, or was answered just now.
    Attended,
    /// It has this answer.
    Answered(Vec<u8>),
    /// It has the number of another question.
    Otherwise,
}

impl AskedQuestions {
    /// Takes in a question, unless it is known. Returns the message with its answer if it was
    /// answered before.
    pub(crate) fn receive(&mut self, asked: AskedQuestion, now_ns: i64) -> Option<Vec<u8>> {
        match self.known(&asked, now_ns) {
            Known::No => {}
            Known::Attended => return None,
            Known::Answered(message) => return Some(message),
            Known::Otherwise => {
                self.refused += 1;
                return None;
            }
        }
        let mut waiting = self.waiting.iter_mut();
        if let Some(waiting) = waiting.find(|one| one.is_same(&asked)) {
            // A message that was on the way for less time tells the end of the patience better.
            waiting.until_ns = waiting.until_ns.min(asked.until_ns);
            return None;
        }
        let of_node = self.waiting.iter().filter(|one| one.from == asked.from);
        if of_node.count() < WAITING_OF_NODE_MAX && self.waiting.len() < WAITING_MAX {
            self.waiting.push_back(asked);
        } else {
            self.refused += 1;
        }
        None
    }

    /// Whether a question waits to be taken.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes the next question. Those for which nobody waits any more are dropped.
    pub(crate) fn take(&mut self, now_ns: i64) -> Option<AskedQuestion> {
        self.waiting.retain(|asked| now_ns < asked.until_ns);
        loop {
            let asked = self.waiting.pop_front()?;
            if self.remember(&asked) {
                return Some(asked);
            }
            self.refused += 1;
        }
    }

    /// Keeps the message with the answer to a question that was taken, as far as there is room.
    pub(crate) fn answered(&mut self, asked: &AskedQuestion, message: &[u8], now_ns: i64) {
        let Some(of_node) = self.taken.get_mut(&asked.from) else {
            return;
        };
        let Some(taken) = of_node.questions.get_mut(&asked.number) else {
            return;
        };
        taken.answer = Some(SentAnswer {
            sent_ns: now_ns,
            message: None,
        });
        let bytes = message.len();
        if bytes > KEPT_OF_NODE_BYTES_MAX {
            return;
        }
        while of_node.kept_bytes() + bytes > KEPT_OF_NODE_BYTES_MAX {
            of_node.drop_answer();
        }
        while self
            .taken
            .values()
            .map(TakenOfNode::kept_bytes)
            .sum::<usize>()
            + bytes
            > KEPT_BYTES_MAX
        {
            let most = self.taken.values_mut().max_by_key(|one| one.kept_bytes());
            most.into_iter().for_each(TakenOfNode::drop_answer);
        }
        let of_node = self.taken.get_mut(&asked.from);
        let taken = of_node.and_then(|of_node| of_node.questions.get_mut(&asked.number));
        if let Some(answer) = taken.and_then(|taken| taken.answer.as_mut()) {
            answer.message = Some(message.to_vec());
        }
    }

    /// Drops the questions of a node that has gone and that were not taken yet. The others are
    /// remembered: the node may not have noticed.
    pub(crate) fn gone(&mut self, node: &str) {
        self.waiting.retain(|asked| *asked.from != *node);
    }

    /// Forgets what cannot be asked for any more. Call it once a second.
    pub(crate) fn tidy(&mut self, now_ns: i64) {
        self.taken.retain(|_, of_node| {
            of_node.tidy(now_ns);
            !of_node.questions.is_empty() || of_node.forgotten.is_some()
        });
    }

    fn known(&mut self, asked: &AskedQuestion, now_ns: i64) -> Known {
        let Some(of_node) = self.taken.get_mut(&asked.from) else {
            return Known::No;
        };
        let is_call = asked.kind == QuestionKind::Call;
        let unknown = || Known::Answered(asked.answer(Err(OUTCOME_UNKNOWN)));
        let Some(taken) = of_node.questions.get_mut(&asked.number) else {
            let forgotten = of_node.forgotten;
            let is_old = forgotten.is_some_and(|forgotten| asked.number <= forgotten.newest);
            return if is_call && is_old {
                unknown()
            } else {
                Known::No
            };
        };
        if taken.kind != asked.kind {
            return Known::Otherwise;
        }
        let Some(answer) = &mut taken.answer else {
            return Known::Attended;
        };
        if now_ns.abs_diff(answer.sent_ns) < RESEND_NS_MIN.unsigned_abs() {
            return Known::Attended;
        }
        let known = match &answer.message {
            Some(message) => Known::Answered(message.clone()),
            None if is_call => unknown(),
            None => return Known::No,
        };
        answer.sent_ns = now_ns;
        known
    }

    /// Remembers that a question is taken; returns whether there was room for that.
    fn remember(&mut self, asked: &AskedQuestion) -> bool {
        if asked.kind == QuestionKind::Insights {
            // It may be taken any number of times, and costs little.
            return true;
        }
        if let Some(of_node) = self.taken.get_mut(&asked.from) {
            if let Some(again) = of_node.questions.get_mut(&asked.number) {
                again.answer = None;
                return true;
            }
            if of_node.questions.len() >= TAKEN_OF_NODE_MAX && !of_node.forget_one() {
                return false;
            }
        } else if self.taken.len() >= NODES_MAX {
            return false;
        }
        let counts = self.taken.values().map(|of_node| of_node.questions.len());
        if counts.sum::<usize>() >= TAKEN_MAX {
            let nodes = self.taken.values_mut();
            let most = nodes.max_by_key(|of_node| of_node.questions.len());
            if !most.is_some_and(TakenOfNode::forget_one) {
                return false;
            }
        }
        let taken = TakenQuestion {
            kind: asked.kind,
            until_ns: asked.until_ns,
            answer: None,
        };
        let of_node = self.taken.entry(Arc::clone(&asked.from)).or_default();
        of_node.questions.insert(asked.number, taken);
        true
    }
}

impl TakenOfNode {
    /// Bytes of the answers that are kept.
    fn kept_bytes(&self) -> usize {
        self.questions.values().map(TakenQuestion::kept_bytes).sum()
    }

    /// Drops the oldest answer that is kept, that of a statement first.
    fn drop_answer(&mut self) {
        let taken = self.questions.values_mut();
        let kept = taken.filter(|taken| taken.kept_bytes() > 0);
        let oldest = kept.min_by_key(|taken| taken.kind == QuestionKind::Call);
        if let Some(answer) = oldest.and_then(|taken| taken.answer.as_mut()) {
            answer.message = None;
        }
    }

    /// Forgets the oldest question that was answered, a statement first; returns whether there was
    /// one.
    fn forget_one(&mut self) -> bool {
        let answered = self.questions.iter();
        let answered = answered.filter(|(_, taken)| taken.answer.is_some());
        let oldest = answered.min_by_key(|(_, taken)| taken.kind == QuestionKind::Call);
        let Some(number) = oldest.map(|(number, _)| *number) else {
            return false;
        };
        let taken = self.questions.remove(&number);
        if let Some(call) = taken.filter(|taken| taken.kind == QuestionKind::Call) {
            let before = self.forgotten.unwrap_or(ForgottenCalls {
                newest: 0,
                until_ns: i64::MIN,
            });
            self.forgotten = Some(ForgottenCalls {
                newest: before.newest.max(number),
                until_ns: before.until_ns.max(call.forgotten_ns()),
            });
        }
        true
    }

    /// Forgets what cannot be asked for any more.
    fn tidy(&mut self, now_ns: i64) {
        self.questions
            .retain(|_, taken| now_ns < taken.forgotten_ns());
        for taken in self.questions.values_mut() {
            if let Some(answer) = &mut taken.answer
                && now_ns >= taken.until_ns
            {
                answer.message = None;
            }
        }
        self.forgotten = self.forgotten.filter(|calls| now_ns < calls.until_ns);
    }
}

impl TakenQuestion {
    fn kept_bytes(&self) -> usize {
        let message = self.answer.as_ref().and_then(|one| one.message.as_ref());
        message.map_or(0, Vec::len)
    }

    /// Time at which it may be forgotten, ns since the epoch.
    fn forgotten_ns(&self) -> i64 {
        match self.kind {
            QuestionKind::Call => self.until_ns.saturating_add(DELAY_NS_MAX),
            QuestionKind::Statement | QuestionKind::Action | QuestionKind::Insights => {
                self.until_ns
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const CALL: QuestionKind = QuestionKind::Call;
    const STATEMENT: QuestionKind = QuestionKind::Statement;

    fn question(from: &str, kind: QuestionKind, number: u64, until_ns: i64) -> AskedQuestion {
        AskedQuestion {
            from: from.into(),
            kind,
            text: number.to_string(),
            until_ns,
            number,
        }
    }

    /// Takes in a question, takes it, and answers it.
    fn attend(of: &mut AskedQuestions, asked: &AskedQuestion, answer: &[u8], now_ns: i64) {
        assert_eq!(of.receive(asked.clone(), now_ns), None);
        assert_eq!(of.take(now_ns).as_ref(), Some(asked));
        of.answered(asked, answer, now_ns);
    }

    #[test]
    fn a_question_that_comes_again_is_taken_once_and_its_answer_sent_again() {
        for kind in [CALL, STATEMENT] {
            let mut b = AskedQuestions::default();
            let asked = question("a", kind, 7, 10 * NS_PER_S);
            let later = question("a", kind, 7, 11 * NS_PER_S);
            assert_eq!(b.receive(later, 0), None);
            assert_eq!(b.receive(asked.clone(), 1), None);
            let taken = b.take(2).unwrap();
            assert_eq!(taken, asked, "the least delayed message tells until when");
            assert_eq!(b.take(2), None);
            // It is being answered.
            assert_eq!(b.receive(asked.clone(), NS_PER_S), None);
            assert_eq!(b.take(NS_PER_S), None);
            b.answered(&asked, b"yes", 2 * NS_PER_S);
            // It crossed the answer, or was doubled.
            assert_eq!(b.receive(asked.clone(), 2 * NS_PER_S + 1), None);
            for second in 3..6 {
                let answer = b.receive(asked.clone(), second * NS_PER_S);
                assert_eq!(answer.as_deref(), Some(&b"yes"[..]));
                assert_eq!(b.receive(asked.clone(), second * NS_PER_S + 1), None);
            }
            assert_eq!(b.take(6 * NS_PER_S), None);
            // A node that has gone may not have noticed.
            b.gone("a");
            b.tidy(7 * NS_PER_S);
            assert!(b.receive(asked.clone(), 7 * NS_PER_S).is_some());
            // Nobody else gets the answer.
            assert_eq!(
                b.receive(question("x", kind, 7, 99 * NS_PER_S), 8 * NS_PER_S),
                None
            );
            assert_eq!(&*b.take(8 * NS_PER_S).unwrap().from, "x");
            assert_eq!(b.refused, 0);
        }
    }

    #[test]
    fn a_call_whose_answer_is_not_kept_is_not_made_again_and_a_statement_is_run_again() {
        let large = vec![0; KEPT_OF_NODE_BYTES_MAX + 1];
        let mut b = AskedQuestions::default();
        let call = question("a", CALL, 1, 10 * NS_PER_S);
        let statement = question("a", STATEMENT, 2, 10 * NS_PER_S);
        attend(&mut b, &call, &large, 0);
        attend(&mut b, &statement, &large, 0);
        let answer = b.receive(call.clone(), NS_PER_S).unwrap();
        assert!(String::from_utf8_lossy(&answer).contains(OUTCOME_UNKNOWN));
        assert_eq!(b.receive(statement.clone(), NS_PER_S), None);
        assert_eq!(b.take(NS_PER_S), Some(statement.clone()));
        assert_eq!(b.take(NS_PER_S), None);
        // While it is run again it is not taken once more.
        assert_eq!(b.receive(statement.clone(), 2 * NS_PER_S), None);
        assert_eq!(b.take(2 * NS_PER_S), None);
        // A call that comes much too late, and one after that.
        b.tidy(60 * NS_PER_S);
        assert!(b.receive(call.clone(), 60 * NS_PER_S).is_some());
        b.tidy(10 * NS_PER_S + DELAY_NS_MAX);
        assert!(b.taken.is_empty());
    }

    #[test]
    fn what_is_remembered_has_a_maximum() {
        let until_ns = 100 * NS_PER_S;
        let mut b = AskedQuestions::default();
        for number in 0..3 * TAKEN_OF_NODE_MAX as u64 {
            attend(
                &mut b,
                &question("a", CALL, number, until_ns),
                &[0; 8 << 10],
                0,
            );
            let of_node = &b.taken["a"];
            assert!(of_node.questions.len() <= TAKEN_OF_NODE_MAX);
            assert!(of_node.kept_bytes() <= KEPT_OF_NODE_BYTES_MAX);
        }
        // No call is made twice, whether or not it is remembered.
        for number in 0..3 * TAKEN_OF_NODE_MAX as u64 {
            assert!(
                b.receive(question("a", CALL, number, until_ns), NS_PER_S)
                    .is_some()
            );
        }
        assert_eq!((b.take(NS_PER_S), b.refused), (None, 0));
        // What was forgotten stays so, even if its asker's clock was set back, for no longer than
        // needed.
        b.tidy(until_ns + DELAY_NS_MAX);
        let again = question("a", CALL, 0, 2 * until_ns + DELAY_NS_MAX);
        attend(&mut b, &again, b"", until_ns + DELAY_NS_MAX);

        // Many nodes, and as many questions that are never answered.
        let mut b = AskedQuestions::default();
        for node in 0..2 * TAKEN_MAX {
            let asked = question(&node.to_string(), STATEMENT, 0, until_ns);
            b.receive(asked, 0);
            b.take(0);
        }
        assert_eq!(
            b.taken
                .values()
                .map(|one| one.questions.len())
                .sum::<usize>(),
            TAKEN_MAX
        );
        assert_eq!(b.refused, TAKEN_MAX as u64);
        let mut b = AskedQuestions::default();
        for node in 0..2 * KEPT_BYTES_MAX / KEPT_OF_NODE_BYTES_MAX {
            let asked = question(&node.to_string(), STATEMENT, 0, until_ns);
            attend(&mut b, &asked, &vec![0; KEPT_OF_NODE_BYTES_MAX], 0);
        }
        assert_eq!(
            b.taken.values().map(TakenOfNode::kept_bytes).sum::<usize>(),
            KEPT_BYTES_MAX
        );

        // Of those that wait.
        let mut b = AskedQuestions::default();
        for node in 0..2 * WAITING_MAX {
            for number in 0..2 * WAITING_OF_NODE_MAX as u64 {
                b.receive(question(&node.to_string(), STATEMENT, number, until_ns), 0);
            }
        }
        let taken: Vec<_> = std::iter::from_fn(|| b.take(0)).collect();
        assert_eq!(taken.len(), WAITING_MAX);
        let of_first = taken.iter().filter(|one| &*one.from == "0");
        assert_eq!(of_first.count(), WAITING_OF_NODE_MAX);
    }

    proptest! {
        /// Whatever comes, goes and is answered, in whatever order: no call is taken twice.
        #[test]
        fn no_call_is_taken_twice(
            steps in prop::collection::vec((0u8..8, 0usize..2, 0u64..200, 0i64..2_000), 1..600),
        ) {
            let mut b = AskedQuestions::default();
            let (mut now_ns, mut made, mut under_way) = (0, BTreeSet::new(), Vec::new());
            for (what, node, number, ms) in steps {
                let node: Arc<str> = ["a", "b"][node].into();
                match what {
                    0..4 => {
                        let asked = question(&node, CALL, number, now_ns + 60 * NS_PER_S);
                        let answer = b.receive(asked, now_ns);
                        let made = made.range((node.clone(), number)..=(node, u64::MAX));
                        prop_assert!(answer.is_none() || made.count() > 0);
                    }
                    4 => {
                        if let Some(asked) = b.take(now_ns) {
                            prop_assert!(made.insert((asked.from.clone(), asked.number)));
                            under_way.push(asked);
                        }
                    }
                    5 => {
                        for asked in under_way.drain(..) {
                            b.answered(&asked, &vec![0; 1 << (ms % 20)], now_ns);
                        }
                    }
                    6 => b.gone(&node),
                    _ => {
                        // No copy of a question comes later than a network may delay it.
                        now_ns = (now_ns + ms * 1_000_000).min(DELAY_NS_MAX);
                        b.tidy(now_ns);
                    }
                }
            }
        }
    }
}

//! The bytes of a question to another node and of its answer (`docs/reference/fabric-format.md`).

use std::sync::Arc;

use barograph_model::{NS_PER_MS, NS_PER_S};

use crate::frame::FRAME_BYTES_MAX;

pub(crate) const STATEMENT: [u8; 4] = *b"BARQ";
pub(crate) const CALL: [u8; 4] = *b"BARC";
pub(crate) const INSIGHTS: [u8; 4] = *b"BARI";
pub(crate) const ACTION: [u8; 4] = *b"BARX";
pub(crate) const ANSWER: [u8; 4] = *b"BARA";
pub(crate) const VERSION: u8 = 1;
/// Bytes before the text of a question: magic, version, number, patience.
const QUESTION_HEAD: usize = 4 + 1 + 8 + 4;
/// Bytes before an answer: magic, version, number, whether it is a fault.
pub(crate) const ANSWER_HEAD: usize = 4 + 1 + 8 + 1;
/// Most bytes of the text of a question: a statement, or a call as JSON.
pub const QUESTION_BYTES_MAX: usize = 72 << 10;
/// Most bytes of the answer of one node.
pub const ANSWER_BYTES_MAX: usize = FRAME_BYTES_MAX - ANSWER_HEAD;
/// Time after which a question is sent again to nodes that have not answered, in ns. It is longer
/// than a round trip and most answers take, and a fifth of the usual patience.
pub(crate) const QUESTION_AGAIN_NS: i64 = NS_PER_S;
/// Longest time for which another node may want to wait, in ms.
const PATIENCE_MS_MAX: u32 = 600_000;

/// The kind of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuestionKind {
    /// A read-only statement for the node's SQL engine.
    Statement,
    /// A call into programs of the node, as JSON.
    Call,
    /// An action that is to be done on the node, as JSON. It has an identity of its own, so that it
    /// may be asked for again.
    Action,
    /// Knowledge and offers of the asking node about the cluster's insights, as JSON.
    Insights,
}

impl QuestionKind {
    /// All kinds.
    const ALL: [Self; 4] = [Self::Statement, Self::Call, Self::Action, Self::Insights];
}

/// A question of another node to this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedQuestion {
    /// Name of the node that asks.
    pub from: Arc<str>,
    /// Kind of the question.
    pub kind: QuestionKind,
    /// The statement, or anything else as JSON.
    pub text: String,
    /// Time after which nobody waits for the answer any more, ns since the epoch.
    pub until_ns: i64,
    pub(crate) number: u64,
}

/// Whether a message is a question or an answer.
pub(crate) fn is_of_questions(bytes: &[u8]) -> bool {
    kind_of(bytes).is_some() || bytes.starts_with(&ANSWER)
}

/// The kind of a question; `None` if the message is none.
pub(crate) fn kind_of(bytes: &[u8]) -> Option<QuestionKind> {
    QuestionKind::ALL
        .into_iter()
        .find(|kind| bytes.starts_with(kind.magic()))
}

impl QuestionKind {
    pub(crate) fn magic(self) -> &'static [u8; 4] {
        match self {
            Self::Statement => &STATEMENT,
            Self::Call => &CALL,
            Self::Action => &ACTION,
            Self::Insights => &INSIGHTS,
        }
    }
}

impl AskedQuestion {
    /// Reads a question of a node that came at `now_ns`, ns since the epoch; `None` if it is none.
    pub(crate) fn read(
        from: &Arc<str>,
        (kind, bytes): (QuestionKind, &[u8]),
        now_ns: i64,
    ) -> Option<Self> {
        let (head, text) = bytes.split_at_checked(QUESTION_HEAD)?;
        let (number, patience) = (number_of(head)?, head.get(13..)?);
        let patience_ms = u32::from_le_bytes(patience.try_into().ok()?).min(PATIENCE_MS_MAX);
        if text.len() > QUESTION_BYTES_MAX {
            return None;
        }
        Some(Self {
            from: Arc::clone(from),
            kind,
            text: std::str::from_utf8(text).ok()?.to_owned(),
            until_ns: now_ns.saturating_add(i64::from(patience_ms) * NS_PER_MS),
            number,
        })
    }

    /// Whether it is the same question, which has come again.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.from == other.from && self.number == other.number
    }

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
pub(crate) fn number_of(head: &[u8]) -> Option<u64> {
    let (version, rest) = head.get(4..)?.split_first()?;
    let number = rest.first_chunk()?;
    (*version == VERSION).then(|| u64::from_le_bytes(*number))
}

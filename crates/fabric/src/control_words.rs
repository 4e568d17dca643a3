//! Words between the controllers of nodes: who leads, what nodes report to a leader, and what it
//! orders (`docs/reference/fabric-format.md`).
//!
//! A word is one message, which may be lost, doubled and reordered: what it says is what holds from
//! then on, and those who need an answer say it again. So nothing is kept here but what waits to be
//! taken.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::frame::FRAME_BYTES_MAX;

const MAGIC: [u8; 4] = *b"BARW";
const VERSION: u8 = 1;
const HEAD: usize = MAGIC.len() + 1;
/// Most words that wait to be taken; and of one node.
const WAITING_MAX: usize = 8_192;
const WAITING_OF_NODE_MAX: usize = 256;
/// Most bytes of the words that wait.
const WAITING_BYTES_MAX: usize = 32 << 20;
/// Most bytes of a word.
pub const WORD_BYTES_MAX: usize = FRAME_BYTES_MAX - HEAD;

/// The words of other nodes that wait to be taken.
#[derive(Debug, Default)]
pub(crate) struct ControlWords {
    waiting: VecDeque<(Arc<str>, String)>,
    bytes: usize,
    of_nodes: BTreeMap<Arc<str>, usize>,
    /// Words for which there was no room, or that made no sense.
    pub(crate) refused: u64,
}

/// Whether a message is a word of a controller.
pub(crate) fn is_word(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// The message with a word; `None` if it is too long.
pub(crate) fn word_message(text: &str) -> Option<Vec<u8>> {
    let is_short = text.len() <= WORD_BYTES_MAX;
    is_short.then(|| [&MAGIC[..], &[VERSION], text.as_bytes()].concat())
}

impl ControlWords {
    /// Takes in a message.
    pub(crate) fn receive(&mut self, from: &Arc<str>, bytes: &[u8]) {
        let text = bytes.split_at_checked(HEAD).and_then(|(head, text)| {
            let is_known = head.last() == Some(&VERSION);
            std::str::from_utf8(text).ok().filter(|_| is_known)
        });
        let of_node = self.of_nodes.get(from).copied().unwrap_or(0);
        let has_room = self.waiting.len() < WAITING_MAX && of_node < WAITING_OF_NODE_MAX;
        let Some(text) = text
            .filter(|text| has_room && self.bytes.saturating_add(text.len()) <= WAITING_BYTES_MAX)
        else {
            self.refused += 1;
            return;
        };
        self.bytes += text.len();
        self.of_nodes.insert(Arc::clone(from), of_node + 1);
        self.waiting.push_back((Arc::clone(from), text.to_owned()));
    }

    /// The oldest word that waits, with the node that has sent it.
    pub(crate) fn take(&mut self) -> Option<(Arc<str>, String)> {
        let (from, text) = self.waiting.pop_front()?;
        self.bytes -= text.len();
        if let Some(of_node) = self.of_nodes.get_mut(&from) {
            *of_node -= 1;
            if *of_node == 0 {
                self.of_nodes.remove(&from);
            }
        }
        Some((from, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_in_their_order_and_are_bounded() {
        let mut words = ControlWords::default();
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        for n in 0..2 * WAITING_OF_NODE_MAX {
            words.receive(&a, &word_message(&n.to_string()).unwrap());
        }
        words.receive(&b, &word_message("of b").unwrap());
        assert_eq!(words.refused, WAITING_OF_NODE_MAX as u64);
        for n in 0..WAITING_OF_NODE_MAX {
            assert_eq!(words.take(), Some((a.clone(), n.to_string())));
        }
        assert_eq!(words.take(), Some((b, "of b".to_owned())));
        assert_eq!(words.take(), None);
        assert!(words.of_nodes.is_empty() && words.bytes == 0);
        // Large ones.
        let large = "x".repeat(WORD_BYTES_MAX);
        assert_eq!(word_message(&format!("{large}x")), None);
        for _ in 0..64 {
            words.receive(&a, &word_message(&large).unwrap());
        }
        assert!(words.bytes <= WAITING_BYTES_MAX);
    }

    #[test]
    fn what_makes_no_sense_is_counted() {
        let mut words = ControlWords::default();
        for bytes in [&b"BARW"[..], b"BARW\x02text", b"BARW\x01\xff\xfe"] {
            assert!(is_word(bytes));
            words.receive(&"a".into(), bytes);
        }
        assert_eq!((words.refused, words.take()), (3, None));
        assert!(!is_word(b"BARQ\x01"));
    }
}

//! Feedback of the agent to a program about its declarations: how many are refused, and which
//! values.

use super::super::layout::{header, refused_bits};
use super::IngestFile;
use crate::StreamError;

impl IngestFile {
    /// Stores how many declarations of the file are currently refused, of whatever kind. Nothing is
    /// written while the number does not change.
    pub fn set_refusals(&mut self, count: u64) -> Result<(), StreamError> {
        self.tell(header::REFUSED, count)
    }

    /// Stores whether the value with this number is currently refused; the program reads it by
    /// [`Producer::is_refused`]. Values beyond the map have no bit, and are counted by
    /// [`Self::set_refusals`] alone. Nothing is written while the bit does not change, so that an
    /// agent may call this for every value that it takes.
    ///
    /// [`Producer::is_refused`]: super::super::Producer::is_refused
    pub fn set_refused(&mut self, value: u32, is_refused: bool) -> Result<(), StreamError> {
        let Some((at, bit)) = refused_bits::place(value) else {
            return Ok(());
        };
        let before = self.told(at)?;
        let word = if is_refused {
            before | bit
        } else {
            before & !bit
        };
        self.tell(at, word)
    }

    pub(in super::super) fn tell(&mut self, at: usize, word: u64) -> Result<(), StreamError> {
        if self.told(at)? == word {
            return Ok(());
        }
        self.write_word(at, word)?;
        self.told.insert(at, word);
        Ok(())
    }

    /// The word in the file, as this agent or one before it has written it.
    pub(in super::super) fn told(&mut self, at: usize) -> Result<u64, StreamError> {
        if let Some(word) = self.told.get(&at) {
            return Ok(*word);
        }
        let word = self.read_word(at)?;
        self.told.insert(at, word);
        Ok(word)
    }
}

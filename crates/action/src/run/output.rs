//! The output of a program: all of it is read, so that the program never waits, and its end kept.

use std::io::{ErrorKind, Read};

/// Bytes that one read takes.
const PIECE_BYTES: usize = 64 << 10;

/// One of the two outputs of a program.
pub(super) struct OutputEnd<R> {
    pipe: Option<R>,
    end: Vec<u8>,
    bytes_max: usize,
}

impl<R: Read> OutputEnd<R> {
    pub(super) fn new(pipe: Option<R>, bytes_max: usize) -> Self {
        Self {
            pipe,
            end: Vec::new(),
            bytes_max,
        }
    }

    /// The pipe, until its end was read.
    pub(super) fn pipe(&self) -> Option<&R> {
        self.pipe.as_ref()
    }

    /// Reads once; to be called when the pipe is readable. An error ends the output as its end
    /// does.
    pub(super) fn step(&mut self, piece: &mut [u8]) {
        let Some(pipe) = &mut self.pipe else { return };
        match pipe.read(piece) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => self.pipe = None,
            Ok(count) => {
                self.end.extend_from_slice(&piece[..count]);
                if self.end.len() > 2 * self.bytes_max.max(PIECE_BYTES) {
                    self.cut();
                }
            }
        }
    }

    fn cut(&mut self) {
        self.end
            .drain(..self.end.len().saturating_sub(self.bytes_max));
    }

    /// The end of the output.
    pub(super) fn into_end(mut self) -> Vec<u8> {
        self.cut();
        self.end
    }
}

/// Room for one read.
pub(super) fn piece() -> Vec<u8> {
    vec![0; PIECE_BYTES]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_kept() {
        let check = |bytes: usize, bytes_max: usize| {
            let text: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
            let mut end = OutputEnd::new(Some(&text[..]), bytes_max);
            let mut piece = piece();
            while end.pipe().is_some() {
                end.step(&mut piece);
                assert!(end.end.len() <= 2 * bytes_max.max(PIECE_BYTES));
            }
            assert_eq!(end.into_end(), text[bytes.saturating_sub(bytes_max)..]);
        };
        check(0, 10);
        check(10, 10);
        check(11, 10);
        check(1 << 20, 16 << 10);
        check(1 << 20, 0);
        check(100_000, 90_000);
    }
}

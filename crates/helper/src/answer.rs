//! Writes the answer without waiting for a requester that does not read it.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::PollFlags;

use crate::run::{Deadline, ready};

/// Number of bytes that a pipe or a socket accepts at once when it is ready for writing.
const PIECE_BYTES: usize = 4096;

/// Writes the line `ok` and the output, or the line `error: REASON`. Returns whether all of it was
/// accepted in time.
pub fn write(to: impl AsFd, answer: &Result<Vec<u8>, String>, within: Duration) -> bool {
    let deadline = Deadline::after(within);
    match answer {
        Ok(output) => {
            piece_by_piece(&to, b"ok\n", deadline) && piece_by_piece(&to, output, deadline)
        }
        Err(reason) => piece_by_piece(&to, format!("error: {reason}\n").as_bytes(), deadline),
    }
}

fn piece_by_piece(to: &impl AsFd, bytes: &[u8], deadline: Deadline) -> bool {
    let mut rest = bytes;
    while !rest.is_empty() {
        if ready(to, PollFlags::OUT, deadline) != Ok(true) {
            return false;
        }
        match rustix::io::write(to, &rest[..rest.len().min(PIECE_BYTES)]) {
            Ok(n) => rest = &rest[n..],
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
    true
}

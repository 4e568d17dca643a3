//! Writes the answer without waiting for a requester that does not read it.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

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

/// Sends the line `ok`, a text and a descriptor as one message. Returns whether it was accepted in
/// time.
///
/// # Errors
///
/// The requester is not at a socket, or did not take it.
pub(crate) fn hand_over(
    to: impl AsFd,
    descriptor: BorrowedFd<'_>,
    text: &str,
    within: Duration,
) -> Result<(), String> {
    let deadline = Deadline::after(within);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let descriptors = [descriptor];
    let message = format!("ok\n{text}");
    loop {
        if !ready(&to, PollFlags::OUT, deadline)? {
            return Err("the requester does not take the descriptor".to_owned());
        }
        let mut attached = SendAncillaryBuffer::new(&mut space);
        if !attached.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err("there is no room for a descriptor".to_owned());
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        // The text is short: a socket takes all of it or nothing.
        match rustix::net::sendmsg(
            &to,
            &[IoSlice::new(message.as_bytes())],
            &mut attached,
            flags,
        ) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(Errno::NOTSOCK) => {
                return Err("a descriptor is handed over on a socket only".to_owned());
            }
            Err(errno) => return Err(format!("the descriptor cannot be handed over: {errno}")),
        }
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

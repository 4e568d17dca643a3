//! Reads any bytes as those that a fanotify group gives: each event is read or refused, and the
//! next one is found.
//!
//! The first byte of the input decides: if it is even, the rest is the whole buffer; if it is odd,
//! the rest is a list of edits of a valid one.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/event/tests/it/exercise.rs"]
#[expect(dead_code, reason = "other targets use the rest")]
mod exercise;

fuzz_target!(|input: &[u8]| {
    match input.split_first() {
        Some((choice, rest)) if choice % 2 == 0 => exercise::fanotify_buffer(rest),
        Some((_, rest)) => {
            exercise::fanotify_buffer(&exercise::overlay(&exercise::whole_buffer(), rest, true));
        }
        None => {}
    }
});

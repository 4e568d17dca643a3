//! Reads any bytes as the record of a file event: they are refused, or the event has these bytes
//! and no others.
//!
//! The first byte of the input decides: if it is even, the rest is the whole record; if it is odd,
//! the rest is a list of edits of a valid one.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/event/tests/it/exercise.rs"]
#[expect(dead_code, reason = "other targets use the rest")]
mod exercise;

fuzz_target!(|input: &[u8]| {
    match input.split_first() {
        Some((choice, rest)) if choice % 2 == 0 => exercise::event_record(rest),
        Some((_, rest)) => {
            exercise::event_record(&exercise::overlay(&exercise::whole_record(), rest, true));
        }
        None => {}
    }
});

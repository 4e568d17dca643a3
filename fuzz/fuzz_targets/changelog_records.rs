//! Reads any bytes as binary records of a Lustre ChangeLog, and has a collector take them from a
//! device.
//!
//! The first byte of the input decides: if it is even, the rest is the whole log; if it is odd, the
//! rest is a list of edits of a valid one.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/event/tests/it/exercise.rs"]
#[expect(dead_code, reason = "other targets use the rest")]
mod exercise;

fuzz_target!(|input: &[u8]| {
    match input.split_first() {
        Some((choice, rest)) if choice % 2 == 0 => exercise::changelog_records(rest),
        Some((_, rest)) => {
            exercise::changelog_records(&exercise::overlay(&exercise::whole_log(), rest, true));
        }
        None => {}
    }
});

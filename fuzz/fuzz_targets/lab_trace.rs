//! Any bytes as a trace: ours, `sadf -d`'s, Apollo's, packed or not. Refused, or read, written, read again and replayed.
//!
//! The first byte of the input chooses: the rest is the whole file, or edits of a good one of some format.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/lab/tests/it/exercise.rs"]
mod exercise;

fuzz_target!(|input: &[u8]| {
    let Some((choice, rest)) = input.split_first() else {
        return;
    };
    match exercise::SPECIMENS.get(usize::from(*choice)) {
        Some(good) => exercise::read(&exercise::overlay(good, rest)),
        None => exercise::read(rest),
    }
});

//! Reads any bytes as a trace: in our format, that of `sadf -d`, or Apollo's, compressed or not. It
//! is refused, or read, written, read again and replayed.
//!
//! The first byte of the input decides: the rest is the whole file, or a list of edits of a valid
//! file in one of the formats.
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

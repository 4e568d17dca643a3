//! Reads any bytes as weights of Delphi: they are refused, or read the same again and used.
//!
//! Hardly any random text has the right checksum. So the first byte of the input decides: if it is
//! even, the rest is the whole text; if it is odd, the rest is a list of edits of a valid one,
//! whose checksum is then made to match.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/forecast/tests/it/exercise.rs"]
mod exercise;

fuzz_target!(|input: &[u8]| {
    let Some((choice, rest)) = input.split_first() else {
        return;
    };
    if choice % 2 == 0 {
        exercise::read(rest);
    } else {
        exercise::read(&exercise::overlay(rest));
    }
});

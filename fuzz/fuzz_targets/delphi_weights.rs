//! Any bytes as weights of Delphi: refused, or read the same again and used.
//!
//! Hardly any random text has the right checksum. So the first byte of the input chooses: even, the rest is the whole
//! text; odd, the rest is edits of a good one, whose checksum is then made to hold again.
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

//! Reads any text as a rule on file events, as its condition and as its action: what is read is
//! read again the same, evaluated and explained.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/rule/tests/it/exercise.rs"]
#[expect(dead_code, reason = "another target uses the rest")]
mod exercise;

fuzz_target!(|text: &str| {
    exercise::statement(text);
});

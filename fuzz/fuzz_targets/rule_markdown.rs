//! Reads any text as a Markdown document of rules with their tests, and as the table of a rule.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/rule/tests/it/exercise.rs"]
#[expect(dead_code, reason = "another target uses the rest")]
mod exercise;

fuzz_target!(|text: &str| {
    exercise::document(text);
});

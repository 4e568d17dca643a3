//! Has a node take in any bytes as a message of another one: a subscription, an acknowledgement, a
//! question, an answer, or anything else.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/fabric/tests/it/exercise.rs"]
#[expect(dead_code, reason = "another target uses the rest")]
mod exercise;

fuzz_target!(|input: &[u8]| {
    exercise::receive(input);
});

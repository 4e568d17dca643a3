//! Reads any bytes as the body of a frame between nodes, and takes the frame in.
//!
//! The header and its checksum are made to match, since random bytes would end there.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/fabric/tests/it/exercise.rs"]
#[expect(dead_code, reason = "another target uses the rest")]
mod exercise;

fuzz_target!(|body: &[u8]| {
    exercise::take_in(body);
});

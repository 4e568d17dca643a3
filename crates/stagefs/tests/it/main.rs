//! Integration tests: real mounts of servers in this process.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests, which wait for real sockets and mounts"
)]

mod alone;
mod common;
mod random;
mod together;

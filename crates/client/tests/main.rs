//! Tests of the client as programs use it, over segments that the tests write.

#![expect(
    clippy::disallowed_methods,
    reason = "tests wait for real threads, programs and disks"
)]
#![expect(clippy::unwrap_used, reason = "tests")]

mod expected;
mod node;
mod nodes;
mod present;
mod publishing;
mod restart;
mod scopes;
mod sql;
mod watching;

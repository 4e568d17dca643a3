//! Tests of the client as programs use it, over segments that the tests write.

#![expect(clippy::unwrap_used, reason = "tests")]

mod expected;
mod node;
mod present;
mod publishing;
mod restart;
mod scopes;
mod sql;
mod watching;

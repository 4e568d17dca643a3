//! The archive as its users meet it.

#![expect(clippy::unwrap_used, reason = "tests")]

mod crash;
mod failing;
mod journal;
mod log;
mod parquet;
mod support;
mod view;

//! The archive as its users meet it.

#![expect(clippy::unwrap_used, reason = "tests")]

mod crash;
#[path = "../exercise.rs"]
mod exercise;
mod export;
mod failing;
mod journal;
mod log;
mod marks;
mod model;
mod parquet;
mod retain;
mod seal;
mod stall;
mod support;
mod target;
mod verify;
mod view;

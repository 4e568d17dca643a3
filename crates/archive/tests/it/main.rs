//! Tests of the archive through its public interface.

#![expect(
    clippy::disallowed_methods,
    reason = "tests wait for real threads, programs and disks"
)]
#![expect(clippy::unwrap_used, reason = "tests")]

mod bound;
mod crash;
mod damage;
#[path = "../exercise.rs"]
mod exercise;
mod export;
mod failing;
mod journal;
mod log;
mod marks;
mod model;
mod neighbours;
mod parquet;
mod power;
mod retain;
mod seal;
mod series;
mod shards;
mod stall;
mod support;
mod swap;
mod target;
mod verify;
mod view;

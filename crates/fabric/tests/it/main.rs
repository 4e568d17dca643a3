//! Tests of the fabric.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bounds;
mod cluster;
mod exercise;
mod feeds;
mod frames;
mod histories;
mod transport;

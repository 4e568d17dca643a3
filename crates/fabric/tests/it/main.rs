//! Tests of the fabric.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod feeds;
mod frames;

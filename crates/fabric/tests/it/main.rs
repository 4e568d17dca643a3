//! Tests of the fabric.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::ops::RangeInclusive;

mod bounds;
mod catch_up;
mod cluster;
mod demand;
mod exercise;
mod feed_past;
mod feeds;
mod frames;
mod given_up;
mod histories;
mod loopback;
mod questions;
mod scopes;
mod transport;

/// The seeds of a simulation: the one in `BAROGRAPH_SEED` (a failure names it), or else the first
/// ones, as many as `BAROGRAPH_SEEDS` says, or as usual.
fn seeds(usual: u64) -> RangeInclusive<u64> {
    let number = |name: &str| std::env::var(name).ok()?.parse().ok();
    match number("BAROGRAPH_SEED") {
        Some(seed) => seed..=seed,
        None => 1..=number("BAROGRAPH_SEEDS").unwrap_or(usual),
    }
}

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

/// The seeds of a simulation: the one in `BAROGRAPH_SEED` (a failure names it), or else those of
/// `BAROGRAPH_SEEDS`, as `FROM-TO` or as the number of the first ones, or as many as usual.
fn seeds(usual: u64) -> RangeInclusive<u64> {
    let named = |name: &str| std::env::var(name).ok();
    if let Some(seed) = named("BAROGRAPH_SEED").and_then(|text| text.parse().ok()) {
        return seed..=seed;
    }
    let many = named("BAROGRAPH_SEEDS");
    let range = many.as_deref().and_then(|text| {
        let (from, to) = text.split_once('-').unwrap_or(("1", text));
        Some(from.parse().ok()?..=to.parse().ok()?)
    });
    range.unwrap_or(1..=usual)
}

//! Integration tests: the queue against a model, crashes, full disks, and hostile actions.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(
    clippy::disallowed_methods,
    reason = "tests wait until something holds"
)]

mod bounds;
mod crash;
mod damage;
mod full;
mod model;
mod programs;
mod support;
mod webhooks;
mod workers;

//! Tests of the collectors on real trees of files.

#![expect(
    clippy::disallowed_methods,
    reason = "tests wait for what the kernel tells of real files"
)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod conformance;
mod fanotify;
mod fanotify_gaps;
mod inotify;
mod operations;
mod replica;
mod scan;

//! Tests of the collectors on real trees of files, and of foreign bytes.

#![expect(
    clippy::disallowed_methods,
    reason = "tests wait for what the kernel tells of real files"
)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod conformance;
mod exercise;
mod fanotify;
mod fanotify_gaps;
mod hostile;
mod inotify;
mod operations;
mod replica;
mod scan;

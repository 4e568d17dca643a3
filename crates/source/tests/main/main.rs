//! Tests of sources on fixture trees and on the real machine, and of the poller on a manual clock.

#![expect(
    clippy::disallowed_methods,
    reason = "tests wait for real threads, programs and disks"
)]
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests fail as tests do; clippy sees only functions marked as tests"
)]

mod allocation;
mod config;
mod control_groups;
mod fuse;
mod golden;
mod health;
mod hostile;
mod hotplug;
mod identity;
mod jobs;
mod lustre;
mod lustre_jobs;
mod mounts;
mod oracle;
mod policies;
mod poller;
mod positions;
mod power;
mod processes;
mod prolog;
mod raid;
mod shared_storage;
mod support;
mod trace;
mod wanted;

//! Integration tests: plans over many steps, leases of weights on trees of plain files and on the
//! machine's own control groups, and changes of a map of servers under faults.
#![expect(clippy::unwrap_used, reason = "tests")]

mod augment;
mod crash;
mod epoch_model;
mod epoch_system;
mod epochs;
mod leadership;
mod leases;
mod probes;
mod random;
mod recovery;
mod schedule;
mod scheduler;
mod slow;
mod tree;
mod users;
mod volume;

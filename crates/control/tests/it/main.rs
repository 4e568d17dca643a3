//! Integration tests: plans over many steps, and leases of weights on trees of plain files and on
//! the machine's own control groups.
#![expect(clippy::unwrap_used, reason = "tests")]

mod augment;
mod crash;
mod leases;
mod probes;
mod recovery;
mod tree;

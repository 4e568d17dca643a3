//! Integration tests: stores on real and failing disks, servers and clients over sockets and shared
//! memory, stores of objects that fail or forget, servers that are killed, and bytes of strangers.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests, which wait for real sockets and processes"
)]

mod common;
mod disk;
mod epochs;
mod guest;
mod hostile;
mod kill;
mod locate;
#[cfg(feature = "s3")]
mod objects;
mod redis;
mod replicas;
mod serving;
mod store;
mod tmpfs;
mod wire;

//! A file system on staging, mounted through FUSE: programs that know files alone read and write
//! blocks of the servers of staging.
//!
//! * A file is one small block, its entry, and the blocks of its bytes. The blocks have numbers
//!   that are used once; the entry names them. So a file is replaced by one put, of its entry, and
//!   a reader sees the old file or the new one.
//! * [`Mount`] mounts it. What is written is in memory until a block is full, the file is closed or
//!   synced; a close returns when the file is on its servers.
//! * [`clean`] removes blocks that no file has.
//!
//! `docs/guide/staging-mount.md` has what programs may rely on, `docs/design/0013-placement.md` the
//! reasons.

mod cache;
mod complaints;
mod entry;
mod file;
mod kernel;
mod keys;
mod mount;
mod operations;
mod table;
#[cfg(test)]
mod tests;
mod volume;

pub use mount::{Mount, MountConfig, MountError, Stopped, clean};
pub use volume::Servers;

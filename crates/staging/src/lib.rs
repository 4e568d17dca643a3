//! Staging: blocks of datasets in the memory of a node and in faster tiers below it (NVMe, burst
//! buffer, parallel file system), with versions and checksums.
//!
//! * [`BlockStore`] keeps blocks: memory first, then directories, then stores of objects
//!   ([`remote`]), with bounds for each user and for all, asynchronous flush, back-pressure and
//!   eviction by score.
//! * [`wire`] has the frames between clients and servers, as pure functions over bytes.
//! * [`StagingServer`] serves a store over a unix socket and TCP. It refuses epochs before its
//!   fence (`barograph_control::ToldEpochs`).
//! * [`StagingClient`] puts and gets over several servers, with replicas, and reads blocks of a
//!   server on its own node from shared memory.
//!
//! Every user is a stranger to every other: blocks have an owner, who alone sees them, and a memory
//! file of shared memory has the blocks of one user.

mod block;
mod bytes;
pub mod client;
mod error;
mod key;
mod memory;
mod read_times;
pub mod remote;
pub mod server;
mod status;
mod store;
mod tier;
mod transport;
pub mod wire;

pub use block::{BlockInfo, UserId, checksum};
pub use client::StagingClient;
pub use error::{FaultCode, StagingError};
pub use key::{BlockKey, BlockName, DATASET_BYTES_MAX, KeyFault, NAME_BYTES_MAX};
pub use memory::MappedBlock;
pub use read_times::ReadCost;
pub use server::StagingServer;
pub use status::{ServerCounts, ServerStatus, TierStatus};
pub use store::{
    BlockReader, BlockStore, Flusher, ListPage, ListQuery, MemoryConfig, PutHead, PutTarget,
    PutWriter, ServerMembership, StoreConfig, StoreCounts, TierUse,
};
pub use tier::{DirectoryConfig, Disk, DiskFile, Durability, RealDisk, RemoteConfig, TierBounds};

/// Bytes of the largest block: 1 GiB.
pub const BLOCK_BYTES_MAX: u64 = 1 << 30;

//! The configuration of a store.

use crate::tier::{DirectoryConfig, RemoteConfig, TierBounds};

/// Bytes of memory for blocks, unless configured: 256 MiB.
const MEMORY_BYTES_DEFAULT: u64 = 256 << 20;
/// Blocks in memory, unless configured.
const MEMORY_BLOCKS_DEFAULT: u64 = 1 << 16;
/// The longest time that a put waits for room, unless configured: 10 s.
const WAIT_NS_DEFAULT: i64 = 10_000_000_000;

/// The memory tier.
#[derive(Clone, Copy, Debug)]
pub struct MemoryConfig {
    /// What may be held in memory. Each block takes a multiple of 64 bytes.
    pub bounds: TierBounds,
    /// The bytes of blocks that are on no durable tier yet, in all tiers. Puts beyond it wait.
    pub dirty_bytes_max: u64,
}

/// A store.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// The memory tier.
    pub memory: MemoryConfig,
    /// The directories below memory, the fastest first. There may be none.
    pub directories: Vec<DirectoryConfig>,
    /// The stores of objects below the directories, the fastest first. There may be none.
    pub remotes: Vec<RemoteConfig>,
    /// The longest time that a put waits for room, in nanoseconds, whatever its client asks.
    pub wait_ns_max: i64,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            memory: MemoryConfig {
                bounds: TierBounds::shared(MEMORY_BYTES_DEFAULT, MEMORY_BLOCKS_DEFAULT),
                dirty_bytes_max: MEMORY_BYTES_DEFAULT / 2,
            },
            directories: Vec::new(),
            remotes: Vec::new(),
            wait_ns_max: WAIT_NS_DEFAULT,
        }
    }
}

impl StoreConfig {
    /// The bounds of dirty bytes: users share them as they share memory.
    pub(crate) fn dirty_bounds(&self) -> TierBounds {
        let (memory, bytes) = (self.memory.bounds, self.memory.dirty_bytes_max);
        match memory.user_bytes_max < memory.bytes_max {
            true => TierBounds {
                user_blocks_max: u64::MAX,
                ..TierBounds::shared(bytes, u64::MAX)
            },
            false => TierBounds::single(bytes, u64::MAX),
        }
    }
}

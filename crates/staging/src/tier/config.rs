//! The configuration of tiers below memory: directories, and stores of objects below these.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::bounds::TierBounds;
use crate::remote::ObjectStore;

/// The time for which a tier that failed is passed over, unless configured: 5 s.
const RETRY_NS_DEFAULT: i64 = 5_000_000_000;

/// What a copy on a tier survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Nothing: a block there counts as not flushed, as in memory.
    Scratch,
    /// The end of the server. Files are written and renamed, not synced; a store of objects has
    /// acknowledged them.
    Written,
    /// The loss of power: files are synced before they are renamed, and their directory after.
    Synced,
}

/// A tier of files.
#[derive(Clone, Debug)]
pub struct DirectoryConfig {
    /// The directory, which must be there.
    pub path: PathBuf,
    /// What files there survive.
    pub durability: Durability,
    /// What may be held there, headers not counted.
    pub bounds: TierBounds,
    /// The time that reading 1 MiB takes, in microseconds: what it costs to fetch a block from
    /// here that was evicted from a faster tier.
    pub read_us_per_mib: u32,
    /// The time after a failure in which the tier is passed over, in nanoseconds.
    pub retry_ns: i64,
}

impl DirectoryConfig {
    /// A tier whose files survive the end of the server, on a disk of 1 GB/s.
    pub fn new(path: impl Into<PathBuf>, bounds: TierBounds) -> Self {
        Self {
            path: path.into(),
            durability: Durability::Written,
            bounds,
            read_us_per_mib: 1_000,
            retry_ns: RETRY_NS_DEFAULT,
        }
    }
}

/// A tier of objects in a store, which belongs to one server.
#[derive(Clone)]
pub struct RemoteConfig {
    /// Its address as people know it.
    pub name: String,
    /// The store, below the prefix of this server.
    pub store: Arc<dyn ObjectStore>,
    /// What objects there survive: [`Durability::Synced`] means no more than
    /// [`Durability::Written`], since the store decides when it acknowledges.
    pub durability: Durability,
    /// What may be held there, headers not counted.
    pub bounds: TierBounds,
    /// The time that reading 1 MiB takes, in microseconds.
    pub read_us_per_mib: u32,
    /// The time after a failure in which the tier is passed over, in nanoseconds.
    pub retry_ns: i64,
}

impl RemoteConfig {
    /// A tier whose objects survive the end of the server, at 100 MB/s.
    pub fn new(name: impl Into<String>, store: Arc<dyn ObjectStore>, bounds: TierBounds) -> Self {
        Self {
            name: name.into(),
            store,
            durability: Durability::Written,
            bounds,
            read_us_per_mib: 10_000,
            retry_ns: RETRY_NS_DEFAULT,
        }
    }
}

impl fmt::Debug for RemoteConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RemoteConfig")
            .field("name", &self.name)
            .field("durability", &self.durability)
            .field("bounds", &self.bounds)
            .finish_non_exhaustive()
    }
}

//! Tiers: their bounds, and the directories below memory.

mod bounds;
mod directory;
mod disk;
mod header;
mod lock;

pub use bounds::TierBounds;
pub(crate) use bounds::{BoundFault, Budget};
pub use directory::{DirectoryConfig, Durability};
pub(crate) use directory::{DirectoryTier, FileCopy, FileWriter, TierFault};
pub use disk::{Disk, DiskFile, RealDisk};
pub(crate) use header::FileHead;
pub(crate) use lock::DirectoryLock;

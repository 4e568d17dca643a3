//! Tiers below memory: their bounds, and the media on which they are: directories, and stores of
//! objects.

mod bounds;
mod config;
mod copy;
mod directory;
mod disk;
mod found;
mod header;
mod leftovers;
mod lock;
mod lower;
mod medium;
mod objects;

pub use bounds::TierBounds;
pub(crate) use bounds::{BoundFault, Budget};
pub use config::{DirectoryConfig, Durability, RemoteConfig};
pub(crate) use copy::FileCopy;
pub use disk::{Disk, DiskFile, RealDisk};
pub(crate) use header::FileHead;
pub(crate) use lock::DirectoryLock;
pub(crate) use lower::{FileWriter, LowerTier, TierFault, is_lost};
pub(crate) use medium::CopyReader;

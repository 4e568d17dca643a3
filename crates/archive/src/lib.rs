//! The history of all streams on disk: every sample goes to a checksummed log, sealed log segments
//! become Parquet files and tiers, and a [`View`] is all of them at one moment.
//!
//! This crate stands alone because it owns the files of an archive: their formats, their durability
//! and their deletion. The map and the reasons are in `docs/design/0003-history.md`, the bytes in
//! `docs/reference/archive-format.md`.

#[doc(hidden)]
pub mod aggregate;
mod believe;
mod compose;
mod config;
mod context;
mod copier;
mod copies;
mod error;
mod export;
mod flusher;
mod freed;
mod handles;
mod held;
mod holding;
mod hours;
mod journal;
mod keeper;
mod layout;
mod log;
mod loops;
mod losses;
mod manifest;
mod merge;
mod neighbours;
mod open;
mod order;
mod output;
#[doc(hidden)]
pub mod parquet;
mod part;
mod recover;
mod reduce;
mod release;
mod retain;
mod scan;
mod seal;
mod series;
mod sets;
mod shards;
mod snapshot;
mod sources;
mod storage;
mod swap;
mod sweep;
mod target;
#[cfg(feature = "testing")]
pub mod testing;
mod tier;
mod unit;
mod verify;
mod view;

pub use config::{ArchiveConfig, KeepConfig};
pub use error::ArchiveError;
pub use export::{ArchiveExport, ExportTo, scope_path};
pub use journal::{Journal, JournalEntry, JournalPosition};
pub use keeper::{ArchiveStatus, Keeper, SealRequest};
pub use layout::ArchiveLayout;
pub use log::RingMark;
#[doc(hidden)] // For tests and fuzzing: a reader of archives uses `View`.
pub use log::{LogPart, LogSeries};

pub use loops::KeeperLoops;
pub use losses::ArchiveLosses;
pub use neighbours::{ArchiveRank, Neighbours};
pub use parquet::{EventFields, EventReader};
pub use recover::marks_of;
pub use series::{ArchivedSeries, ArchivedUpTo, DeclaredStream};
pub use shards::{MergedArchives, merge_archives};
pub use storage::{DiskStorage, FileAccess, OutFile, Storage};
pub use target::CopyTarget;
#[cfg(feature = "target")]
pub use target::ObjectTarget;
pub use tier::Tier;
pub use verify::{Finding, Verified, verify};
pub use view::{ArchiveReader, NodeFault, PartInfo, PartKind, SampleChunk, View, ViewScan};

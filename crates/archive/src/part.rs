//! The Parquet files of an archive: their identity, their place, and what the manifest says of
//! each.

use std::cmp::Ordering;
use std::path::PathBuf;

use barograph_model::Span;

use crate::layout::{first_hour, first_of_several};
use crate::{ArchiveLayout, Tier};

/// The identity of a Parquet file: no two files of a tier and hour hold the same log segment. The
/// order is that in which samples were appended; the files of one sealing are ordered by hour,
/// finest tier first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PartKey {
    pub(crate) first: u64,
    /// The file's place: the hour of its partition, since the epoch, or a number that stands for
    /// several hours ([`crate::layout::several`]).
    pub(crate) hour: i64,
    pub(crate) last: u64,
    pub(crate) tier: Tier,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FilePart {
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    /// Times of its samples; for buckets, of the samples that they were computed from.
    pub(crate) span: Span,
    /// Whether the file is in the object store.
    pub(crate) copied: bool,
    /// CRC-32 of the whole file; `None` for files of earlier versions, and if the manifest was
    /// rebuilt.
    pub(crate) crc32: Option<u32>,
}

/// A new file, still at its temporary path.
#[derive(Clone, Debug)]
pub(crate) struct NewFile {
    pub(crate) key: PartKey,
    pub(crate) part: FilePart,
    pub(crate) tmp: PathBuf,
    /// The path to which it belongs.
    pub(crate) path: PathBuf,
}

impl Ord for PartKey {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = |key: &Self| {
            let begins = first_hour(key.hour);
            (key.first, begins, key.hour, key.last, key.tier)
        };
        order(self).cmp(&order(other))
    }
}

impl PartialOrd for PartKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartKey {
    fn file_name(&self) -> String {
        let several = first_of_several(self.hour).map(|first| format!("-{first}"));
        let several = several.unwrap_or_default();
        format!("{:016}-{:016}{several}.parquet", self.first, self.last)
    }

    /// Returns the path of the file, relative to the archive's directory.
    pub(crate) fn relative(&self, layout: &ArchiveLayout) -> PathBuf {
        layout
            .partition(self.tier, self.hour)
            .join(self.file_name())
    }

    /// Returns the path where the file may wait until it is moved to its place.
    pub(crate) fn waiting(&self, layout: &ArchiveLayout) -> PathBuf {
        layout
            .waiting_dir(self.tier, self.hour)
            .join(self.file_name())
    }

    pub(crate) fn path(&self, layout: &ArchiveLayout) -> PathBuf {
        layout.root().join(self.relative(layout))
    }

    /// Whether this file holds everything that the other one does.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        (self.tier, self.hour) == (other.tier, other.hour)
            && self.first <= other.first
            && other.last <= self.last
    }

    /// Returns the key of the same set's file of another tier.
    pub(crate) fn of(self, tier: Tier) -> Self {
        Self { tier, ..self }
    }
}

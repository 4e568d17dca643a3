//! The settings of the writer of an archive. `agent` fills them in from its configuration.

use std::path::PathBuf;
use std::sync::Arc;

use barograph_model::{NS_PER_S, Selector};

use crate::parquet::EventReader;
use crate::{ArchiveRank, Neighbours};

/// Default bound of the bytes that series take: some 150,000 series. With it the index of the
/// series fits a file (64 MiB), and the manifest stays below the size that readers accept.
const SERIES_BYTES_MAX: u64 = 32 << 20;
const DAY_NS: i64 = 86_400 * NS_PER_S;

/// Settings of an archive: how it is written and how much of it is kept.
#[derive(Clone, Debug)]
pub struct ArchiveConfig {
    /// Path of the archive's directory.
    pub root: PathBuf,
    /// Name of the node.
    pub node: String,
    /// Streams whose samples are synced in groups.
    pub durable: Vec<Selector>,
    /// Streams whose samples are not archived.
    pub leave_out: Vec<Selector>,
    /// Longest time that a durable sample waits for its sync, in ns.
    pub commit_ns: i64,
    /// Longest time that other samples wait before they are in the page cache, in ns.
    pub flush_ns: i64,
    /// Size at which a log segment is sealed, in bytes.
    pub segment_bytes_max: u64,
    /// Age at which a log segment is sealed, in ns.
    pub segment_ns_max: i64,
    /// Most bytes that wait for the writer; samples beyond that are lost and counted.
    pub buffer_bytes_max: usize,
    /// Most bytes of all files of this node; beyond that the oldest files are deleted. While the
    /// sealer is late there may be a quarter more, or four log segments if these are more.
    pub bytes_max: u64,
    /// Most bytes of the descriptions of all series: whoever may publish can create series, and all
    /// of them are kept in memory. Beyond that the oldest history is deleted, with the series that
    /// ended then.
    pub series_bytes_max: u64,
    /// Bytes of the file system that stay free: if there are fewer, the oldest history is deleted.
    pub free_bytes_min: u64,
    /// The time for which each tier is kept.
    pub keep: KeepConfig,
    /// Rank of this archive: when space runs out, history of guests is deleted before that of the
    /// node.
    pub rank: ArchiveRank,
    /// The archives that are written beside this one.
    pub neighbours: Neighbours,
    /// Most bytes of the files of all guests together; beyond that the largest guest loses its
    /// oldest files.
    pub guests_bytes_max: u64,
    /// The reader of file events: with it, sealed files have columns for them.
    pub events: Option<Arc<dyn EventReader>>,
}

/// The retention of each tier, in ns; `i64::MAX` is for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepConfig {
    /// Raw samples, in ns.
    pub raw_ns: i64,
    /// Buckets of a second, in ns.
    pub second_ns: i64,
    /// Buckets of a minute, in ns.
    pub minute_ns: i64,
    /// Buckets of an hour, in ns.
    pub hour_ns: i64,
}

impl KeepConfig {
    /// No tier is deleted by age.
    pub const FOREVER: Self = Self {
        raw_ns: i64::MAX,
        second_ns: i64::MAX,
        minute_ns: i64::MAX,
        hour_ns: i64::MAX,
    };
}

impl Default for KeepConfig {
    fn default() -> Self {
        Self {
            raw_ns: 30 * DAY_NS,
            second_ns: 30 * DAY_NS,
            minute_ns: 400 * DAY_NS,
            hour_ns: 4_000 * DAY_NS,
        }
    }
}

impl ArchiveConfig {
    /// Returns how many bytes closed files may have beyond `bytes_max` while the sealer is late.
    /// From half of it on the sealer deletes before it seals the next segment; beyond it the writer
    /// of the log waits. The segment that is open then, and its last batch, come on top.
    pub(crate) fn late_bytes_max(&self) -> u64 {
        (self.bytes_max / 4).max(self.segment_bytes_max.saturating_mul(4))
    }

    /// Returns the defaults for the archive of `node` in the directory `root`.
    pub fn new(root: impl Into<PathBuf>, node: impl Into<String>) -> Self {
        Self {
            root: root.into(),
            node: node.into(),
            durable: Vec::new(),
            leave_out: Vec::new(),
            commit_ns: NS_PER_S / 100,
            flush_ns: NS_PER_S,
            segment_bytes_max: 64 << 20,
            segment_ns_max: 3_600 * NS_PER_S,
            buffer_bytes_max: 8 << 20,
            bytes_max: 10 << 30,
            series_bytes_max: SERIES_BYTES_MAX,
            free_bytes_min: 1 << 30,
            keep: KeepConfig::default(),
            rank: ArchiveRank::Own,
            neighbours: Neighbours::default(),
            guests_bytes_max: 10 << 30,
            events: None,
        }
    }
}

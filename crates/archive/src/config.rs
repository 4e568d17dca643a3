//! What the writer of an archive is told. `agent` fills it in from its configuration.

use std::path::PathBuf;

use barograph_model::{NS_PER_S, Selector};

use crate::{Neighbours, Rank};

/// Most bytes of what is known of the series of an archive: some 150,000 series. Their index fits a file then
/// (64 MiB), and the manifest what readers take of one.
const SERIES_BYTES_MAX: u64 = 32 << 20;
const DAY_NS: i64 = 86_400 * NS_PER_S;

/// How an archive is written and how much of it is kept.
#[derive(Clone, Debug)]
pub struct ArchiveConfig {
    /// The archive's directory.
    pub root: PathBuf,
    /// The node's name.
    pub node: String,
    /// Streams whose samples are synced in groups.
    pub durable: Vec<Selector>,
    /// Streams that are not archived.
    pub leave_out: Vec<Selector>,
    /// Longest wait of a durable sample for its sync, in ns.
    pub commit_ns: i64,
    /// Longest wait of other samples for the page cache, in ns.
    pub flush_ns: i64,
    /// A log segment is sealed at this size…
    pub segment_bytes_max: u64,
    /// …or at this age, in ns.
    pub segment_ns_max: i64,
    /// Most bytes that wait for the writer; what is beyond is lost and counted.
    pub buffer_bytes_max: usize,
    /// Most bytes of all files of this node; the oldest go first.
    pub bytes_max: u64,
    /// Most bytes of what is known of series: who may publish makes series, and all of them are in memory. Beyond it
    /// the oldest history is shed, with the series that ended then.
    pub series_bytes_max: u64,
    /// Bytes of the file system that are left free: below it the oldest history is shed.
    pub free_bytes_min: u64,
    /// For how long each tier is kept.
    pub keep: KeepConfig,
    /// Whose history it is: where there is too little room, guests give way before the node.
    pub rank: Rank,
    /// The archives that are written beside it.
    pub neighbours: Neighbours,
    /// Most bytes of the files of all guests together; the largest of them gives way.
    pub guests_bytes_max: u64,
}

/// For how long the tiers are kept, in ns; `i64::MAX` is for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepConfig {
    /// Every sample.
    pub raw_ns: i64,
    /// Buckets of a second.
    pub second_ns: i64,
    /// Buckets of a minute.
    pub minute_ns: i64,
    /// Buckets of an hour.
    pub hour_ns: i64,
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
    /// The defaults, for a node below `root`.
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
            rank: Rank::Own,
            neighbours: Neighbours::default(),
            guests_bytes_max: 10 << 30,
        }
    }
}

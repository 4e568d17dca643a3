//! The manifest: which Parquet files count, up to which log segment, and what was lost.

use serde::{Deserialize, Serialize};

/// What was lost, counted since the archive began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Losses {
    /// Samples that found the buffer full.
    pub overflow_samples: u64,
    /// Samples whose write failed, or that came while nothing could be written.
    pub failed_samples: u64,
    /// Bytes of torn tails that were cut after crashes.
    pub torn_bytes: u64,
    /// Samples that were shed before their time because the disk or the bound was full.
    pub shed_samples: u64,
    /// Files whose checksums do not hold, set aside.
    pub corrupt_files: u64,
}

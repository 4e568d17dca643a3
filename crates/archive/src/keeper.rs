//! The writer of an archive: its threads, and what it says of itself.

use std::sync::Arc;

use barograph_model::Clock;

use crate::{ArchiveConfig, ArchiveError, Journal, Losses, Storage};

/// How the writer is doing; the agent makes streams of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// Samples written to the log since the start.
    pub samples: u64,
    /// Bytes of all files of this node.
    pub bytes: u64,
    /// Bytes of them that are log segments.
    pub log_bytes: u64,
    /// Parquet files.
    pub files: u64,
    /// Bytes that wait for the writer.
    pub waiting_bytes: u64,
    /// Time of the oldest sample kept at any tier, ns since the epoch; 0 when there is none.
    pub oldest_ts: i64,
    /// Age of the last sync or flush, in ns.
    pub flushed_age_ns: i64,
    /// What was lost, since the archive began.
    pub losses: Losses,
    /// Why nothing is written just now, and what to do about it; empty when all is well.
    pub trouble: String,
}

/// The writer. Dropping it flushes, syncs and ends its threads.
#[derive(Debug)]
pub struct Keeper {}

impl Keeper {
    /// Takes the lock, recovers what a crash left (torn tails are cut and counted), and starts the
    /// threads. An archive that cannot be opened is an error: the agent then goes on without one.
    pub fn start(
        _config: ArchiveConfig,
        _storage: Arc<dyn Storage>,
        _clock: Arc<dyn Clock>,
    ) -> Result<Self, ArchiveError> {
        unimplemented!()
    }

    /// The sampler's side.
    pub fn journal(&self) -> Journal {
        unimplemented!()
    }

    /// How the writer is doing.
    pub fn status(&self) -> Status {
        unimplemented!()
    }

    /// Seals the log segment of now and all before it, and waits for it: afterwards everything that
    /// was submitted before is Parquet.
    pub fn seal(&self) -> Result<(), ArchiveError> {
        unimplemented!()
    }

    /// Seals, then merges the files of each hour into one, and waits for it. Returns how many files
    /// were replaced.
    pub fn compact(&self) -> Result<usize, ArchiveError> {
        unimplemented!()
    }
}

//! From log segments to Parquet and tiers, and from many Parquet files of an hour to one.

use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Mutex};

use barograph_model::Clock;

use crate::{ArchiveConfig, ArchiveError, Layout, Losses, Storage};

/// What the writer asks of the sealer.
#[derive(Debug)]
pub(crate) struct Sealing {
    /// The last segment to seal; all up to it are closed.
    pub(crate) through: u64,
    /// Whether to merge the files of each hour afterwards.
    pub(crate) merge: bool,
    /// Told how many files were replaced, when it is done.
    pub(crate) reply: Option<SyncSender<Result<usize, ArchiveError>>>,
}

/// What the sealer says of itself; the writer's status is made of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SealStatus {
    /// Segments up to here are sealed.
    pub(crate) through: u64,
    /// Bytes of the Parquet files.
    pub(crate) bytes: u64,
    /// How many there are.
    pub(crate) files: u64,
    /// Time of the oldest sample in them, ns since the epoch; 0 when there is none.
    pub(crate) oldest_ts: i64,
    /// What the manifest said at the start, and what the sealer itself lost since: not what it took
    /// over from log segments, which the writer has counted.
    pub(crate) losses: Losses,
    /// Why nothing is sealed just now; empty when all is well.
    pub(crate) trouble: String,
}

/// What is sealed already, before anything is written: called once, with the lock held.
pub(crate) fn begin(_layout: &Layout, _storage: &dyn Storage) -> Result<SealStatus, ArchiveError> {
    Ok(SealStatus::default())
}

/// The sealer's thread: serves requests until the writer has gone.
pub(crate) fn run(
    _config: ArchiveConfig,
    _storage: Arc<dyn Storage>,
    _clock: Arc<dyn Clock>,
    requests: Receiver<Sealing>,
    status: Arc<Mutex<SealStatus>>,
) {
    for request in requests {
        if let Ok(mut status) = status.lock() {
            status.trouble.clear();
        }
        tracing::trace!(through = request.through, merge = request.merge, "sealing");
        if let Some(reply) = request.reply {
            let _ = reply.send(Ok(0));
        }
    }
}

//! The messages to the sealer, from the writer of the log and from the copier.

use std::sync::mpsc::SyncSender;

use crate::ArchiveError;

/// A message that wakes the sealer.
#[derive(Debug)]
pub(crate) enum SealerMessage {
    /// A request of the writer.
    Seal(SealingRequest),
    /// The copier has finished its jobs.
    Copied,
}

/// A request of the writer to the sealer.
#[derive(Debug)]
pub(crate) struct SealingRequest {
    /// The last segment to seal; all segments up to it are closed.
    pub(crate) through: u64,
    /// Whether to merge the files of each hour afterwards.
    pub(crate) merge: bool,
    /// Receives the number of replaced files when the request is done.
    pub(crate) reply: Option<SyncSender<Result<usize, ArchiveError>>>,
}

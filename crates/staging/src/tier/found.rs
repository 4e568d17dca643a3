//! What a look at a tier at the start finds.

use super::header::FileHead;

/// A copy that was there at the start.
pub(crate) struct FoundCopy {
    pub(crate) name: Box<str>,
    pub(crate) head: FileHead,
    pub(crate) header_bytes: u64,
}

/// What the look at a medium at the start has found.
#[derive(Default)]
pub(crate) struct Scan {
    pub(crate) copies: Vec<FoundCopy>,
    /// Copies that were not complete, or have no valid header. They are removed.
    pub(crate) torn: u64,
    /// If the server before stopped in order: the epoch in which it had come into the map.
    pub(crate) clean_epoch: Option<u64>,
}

//! A copy that is being written to a tier below memory.

use std::sync::Arc;

use super::copy::FileCopy;
use super::header::FileHead;
use super::lower::{LowerTier, TierFault};
use super::medium::{Draft, FoundCopy};

/// A copy that is being written. Dropped before its end, it leaves nothing, and gives its room
/// back.
pub(crate) struct FileWriter {
    tier: Arc<LowerTier>,
    index: usize,
    head: FileHead,
    name: Box<str>,
    /// `None` when it is finished, or its end failed.
    draft: Option<Draft>,
    /// Whether its room is still to be given back.
    has_room: bool,
}

impl FileWriter {
    pub(super) fn new(
        tier: &Arc<LowerTier>,
        index: usize,
        head: FileHead,
        name: Box<str>,
        draft: Draft,
    ) -> Self {
        Self {
            tier: Arc::clone(tier),
            index,
            head,
            name,
            draft: Some(draft),
            has_room: true,
        }
    }

    /// The tier on which it is.
    pub(crate) fn tier(&self) -> &Arc<LowerTier> {
        &self.tier
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), TierFault> {
        let draft = self.draft.as_mut();
        let draft = draft.expect("a writer has its draft until it is finished");
        let written = draft.append(bytes);
        written.map_err(|error| TierFault::Disk(self.tier.said(&error)))
    }

    /// Makes it a copy of the tier. The caller has written all bytes, with their checksum.
    pub(crate) fn finish(mut self) -> Result<FileCopy, TierFault> {
        let draft = self.draft.take();
        let draft = draft.expect("a writer is finished once");
        if let Err(error) = self.tier.medium.finish(&self.name, draft) {
            if self.tier.medium.is_remote() {
                // The store may have taken it all the same.
                self.has_room = false;
                let (user, bytes) = (self.head.user, self.head.bytes);
                self.tier.leave(self.name.clone(), user, bytes);
            }
            return Err(TierFault::Disk(self.tier.said(&error)));
        }
        self.has_room = false;
        let found = FoundCopy {
            name: self.name.clone(),
            header_bytes: self.head.encode().len() as u64,
            head: self.head.clone(),
        };
        Ok(self.tier.copy(self.index, found, true))
    }
}

impl Drop for FileWriter {
    fn drop(&mut self) {
        if let Some(draft) = self.draft.take() {
            self.tier.medium.abandon(draft);
        }
        if self.has_room {
            self.tier.budget().give(self.head.user, self.head.bytes);
        }
    }
}

//! Deletions.

use super::get::absent;
use super::stock::BlockStore;
use crate::block::UserId;
use crate::error::{FaultCode, StagingError};
use crate::key::BlockKey;

impl BlockStore {
    /// Deletes a block of a user, if its version is not above the given one. Returns the version
    /// that was deleted. Nothing of it is kept: a put that is late makes the block anew.
    ///
    /// # Errors
    ///
    /// [`FaultCode::NotFound`] or [`FaultCode::NotKnown`]; [`FaultCode::OldVersion`] if a newer
    /// version is stored; [`FaultCode::Disk`] if a copy cannot be removed: the block may come back
    /// with the next start.
    pub fn delete(
        &self,
        user: UserId,
        key: &BlockKey,
        version_max: u64,
    ) -> Result<u64, StagingError> {
        let entry = {
            let mut state = self.lock();
            let knows_all = state.knows_all();
            let entry = state
                .entry(user, key)
                .ok_or_else(|| absent(key, knows_all))?;
            let stored = entry.version;
            if stored > version_max {
                let text = format!("{key}: version {stored} is stored, which is newer");
                return Err(StagingError::numbered(FaultCode::OldVersion, stored, text));
            }
            let entry = state.remove(user, key);
            entry.expect("it was there, under this lock")
        };
        if let Some(block) = &entry.memory {
            block.retire();
        }
        let files = entry.files.iter().chain(&entry.previous);
        let mut fault = None;
        // The lowest tier first: what remains after a failure is not older than what was there.
        let now_ns = self.clock.monotonic_ns();
        for copy in files.rev() {
            let tier = &self.lower[copy.tier];
            let removed = tier.remove(copy, now_ns);
            let removed = removed.and_then(|()| tier.sync_names(user));
            fault = fault.or(removed.err());
        }
        self.tell_room();
        match fault {
            None => Ok(entry.version),
            Some(error) => {
                let text = format!("{key}: a copy could not be removed: {error}");
                Err(StagingError::fault(FaultCode::Disk, text))
            }
        }
    }
}

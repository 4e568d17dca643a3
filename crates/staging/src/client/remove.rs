//! Deletions on all replicas.

use super::StagingClient;
use super::{is_later, nonsense};
use crate::error::{FaultCode, StagingError};
use crate::key::BlockKey;
use crate::wire::{Answer, Request};

impl StagingClient {
    /// Deletes a block on all its replicas, if its version is not above the given one. Returns
    /// whether some replica had it.
    ///
    /// # Errors
    ///
    /// [`FaultCode::TooFew`] if a replica could not be reached, or could not delete it: it may come
    /// back from there. [`FaultCode::OldVersion`] if a newer version is stored.
    pub fn delete(&self, key: &BlockKey, version_max: u64) -> Result<bool, StagingError> {
        self.in_epoch(|map| {
            let (mut was_there, mut failed) = (false, Vec::new());
            for server in self.replicas(key, map) {
                let request = Request::Delete {
                    epoch: map.epoch,
                    key: key.clone(),
                    version_max,
                };
                let error = match self.simple(map, server, &request) {
                    Ok(Answer::Deleted { .. }) => {
                        was_there = true;
                        continue;
                    }
                    Ok(_) => nonsense(),
                    Err(error) => error,
                };
                match error.code() {
                    Some(FaultCode::NotFound | FaultCode::NotKnown) => {}
                    Some(FaultCode::OldVersion) => return Err(error),
                    _ if is_later(&error, map.epoch) => return Err(error),
                    _ => failed.push(format!("server {server}: {error}")),
                }
            }
            match failed.is_empty() {
                true => Ok(was_there),
                false => {
                    let text = format!("{key}: not deleted everywhere: {}", failed.join("; "));
                    Err(StagingError::fault(FaultCode::TooFew, text))
                }
            }
        })
    }
}

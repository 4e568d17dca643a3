//! The fence: which epochs are served.

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use barograph_control::{ServerAnswer, ToldEpochs};

use crate::error::{FaultCode, StagingError};

/// What was told of the map of servers. Who changes blocks holds it until the change is done, so
/// that a fence that was told holds for all that comes after.
#[derive(Debug, Default)]
pub(crate) struct Fence(RwLock<Option<ToldEpochs>>);

/// The right to change blocks in an epoch: the fence does not move while it is held.
pub(crate) struct FencePass<'a> {
    _told: RwLockReadGuard<'a, Option<ToldEpochs>>,
}

impl Fence {
    /// Takes in what is told; returns the fence, which never goes back.
    pub(crate) fn tell(&self, told: ToldEpochs) -> u64 {
        let mut now = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let before = now.unwrap_or_default();
        let fence = told.fence.max(before.fence);
        *now = Some(ToldEpochs { fence, ..told });
        fence
    }

    pub(crate) fn fence(&self) -> u64 {
        let told = self.0.read().unwrap_or_else(PoisonError::into_inner);
        told.unwrap_or_default().fence
    }

    /// Lets an operation of an epoch pass, or refuses it.
    pub(crate) fn pass(&self, epoch: u64) -> Result<FencePass<'_>, StagingError> {
        let told = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let (code, fence, text) = match &*told {
            None if epoch == 0 => return Ok(FencePass { _told: told }),
            None => {
                let text = format!("epoch {epoch}: this server was told of no map of servers yet");
                (FaultCode::Fenced, 0, text)
            }
            Some(epochs) => match epochs.serve(epoch) {
                ServerAnswer::Served => return Ok(FencePass { _told: told }),
                ServerAnswer::Fenced { fence } => {
                    let text = format!("epoch {epoch} is over: the fence is at {fence}");
                    (FaultCode::Fenced, fence, text)
                }
            },
        };
        Err(StagingError::numbered(code, fence, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_that_was_told_never_goes_back() {
        let fence = Fence::default();
        let served = |epoch| fence.pass(epoch).map(drop).map_err(|error| error.number());
        assert_eq!((served(0), served(1)), (Ok(()), Err(0)));
        let told = |fence| ToldEpochs {
            prepare: 0,
            epoch: fence,
            fence,
        };
        assert_eq!(fence.tell(told(5)), 5);
        assert_eq!(fence.tell(told(3)), 5);
        assert_eq!((served(4), served(5), served(6)), (Err(5), Ok(()), Ok(())));
    }
}

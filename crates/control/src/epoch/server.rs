//! A server: it serves operations of its fence's epoch and of later ones.

use super::{ControllerMessage, ControllerWord, ProcessWord, ServerAnswer, ToldEpochs};

/// The fence of a server. It has to be on disk before a fence is answered: one that was
/// forgotten by a restart would let old operations pass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct EpochServer {
    term: u64,
    fence: u64,
}

impl EpochServer {
    /// A server with the fence that it has kept, or, if it was given up as gone, with the epoch of
    /// the map in the store.
    pub fn new(fence: u64) -> Self {
        Self { term: 0, fence }
    }

    /// The first epoch that is served.
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// Takes in a message of a controller, and returns the answer. If the fence has moved, it is
    /// saved before the answer is sent.
    pub fn hear(&mut self, message: &ControllerMessage) -> Option<ProcessWord> {
        if message.term < self.term {
            return None;
        }
        self.term = message.term;
        match &message.what {
            ControllerWord::Fence { epoch } => {
                self.fence = self.fence.max(*epoch);
                // A fence that is further answers as well: nothing before it is served.
                Some(ProcessWord::Fenced { epoch: *epoch })
            }
            ControllerWord::Switch { map } => {
                self.fence = self.fence.max(map.epoch);
                None
            }
            ControllerWord::Prepare { .. } | ControllerWord::Abort { .. } => None,
        }
    }

    /// Decides about an operation.
    pub fn serve(&self, epoch: u64) -> ServerAnswer {
        let told = ToldEpochs {
            fence: self.fence,
            ..ToldEpochs::default()
        };
        told.serve(epoch)
    }
}

//! What all threads of a server share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use barograph_control::ToldEpochs;

use super::admission::Admission;
use super::config::ServerConfig;
use super::fence::Fence;
use crate::store::{BlockStore, ServerMembership};

/// What all threads of a server share.
pub(crate) struct Shared {
    pub(crate) store: Arc<BlockStore>,
    pub(crate) config: ServerConfig,
    pub(crate) admission: Admission,
    pub(crate) fence: Fence,
    is_stopping: AtomicBool,
}

impl Shared {
    pub(crate) fn new(store: Arc<BlockStore>, config: ServerConfig) -> Self {
        Self {
            store,
            config,
            admission: Admission::default(),
            fence: Fence::default(),
            is_stopping: AtomicBool::new(false),
        }
    }

    pub(crate) fn tell(&self, told: ToldEpochs, membership: ServerMembership) {
        // Blocks are unconfirmed before the first operation of the new epoch is served.
        self.store.note_epoch(told.epoch, membership);
        let fence = self.fence.tell(told);
        self.store.memory.set_fence(fence);
    }

    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::SeqCst)
    }
}

//! What all threads of a server share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use barograph_control::ToldEpochs;

use super::admission::Admission;
use super::config::ServerConfig;
use super::costs::{SocketKind, TierCosts};
use super::fence::Fence;
use crate::block::UserId;
use crate::status::{ServerStatus, TierStatus};
use crate::store::{BlockStore, ServerMembership};
use crate::wire::LocatedTier;

/// What all threads of a server share.
pub(crate) struct Shared {
    pub(crate) store: Arc<BlockStore>,
    pub(crate) config: ServerConfig,
    pub(crate) admission: Arc<Admission>,
    pub(crate) fence: Fence,
    pub(super) costs: TierCosts,
    is_stopping: AtomicBool,
}

impl Shared {
    pub(crate) fn new(store: Arc<BlockStore>, config: ServerConfig) -> Self {
        Self {
            store,
            config,
            admission: Arc::default(),
            fence: Fence::default(),
            costs: TierCosts::default(),
            is_stopping: AtomicBool::new(false),
        }
    }

    pub(crate) fn tell(&self, told: ToldEpochs, membership: ServerMembership) {
        // Blocks are unconfirmed before the first operation of the new epoch is served.
        self.store.note_epoch(told.epoch, membership);
        let fence = self.fence.tell(told);
        self.store.memory.set_fence(fence);
    }

    pub(crate) fn status(&self) -> ServerStatus {
        let paths = self.store.lower.iter();
        let paths = paths.map(|tier| Some(tier.name.clone()));
        let tiers = std::iter::once(None).chain(paths).zip(self.store.tiers());
        ServerStatus {
            fence: self.fence.fence(),
            dirty_bytes: self.store.dirty_bytes(),
            store: self.store.counts(),
            server: self.admission.counts(),
            tiers: tiers
                .map(|(path, held)| TierStatus { path, held })
                .collect(),
        }
    }

    /// The tiers with what their reads cost, for a user who asks over a kind of socket.
    pub(super) fn located_tiers(&self, user: UserId, socket: SocketKind) -> Vec<LocatedTier> {
        let paths = self.store.lower.iter().map(|tier| tier.name.clone());
        let paths = paths.map(|path| Self::tells_status(user).then_some(path));
        let tiers = std::iter::once(None).chain(paths).enumerate();
        tiers
            .map(|(tier, path)| LocatedTier {
                path,
                cost: u8::try_from(tier)
                    .ok()
                    .and_then(|tier| self.costs.cost(tier, socket)),
            })
            .collect()
    }

    /// Whether a user is told what the server holds for all: its own user and root.
    pub(crate) fn tells_status(user: UserId) -> bool {
        [0, rustix::process::geteuid().as_raw()].contains(&user)
    }

    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::SeqCst)
    }
}

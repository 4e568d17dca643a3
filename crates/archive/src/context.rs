//! Settings and file access of the sealer, for the modules that make and delete its files.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use crate::{ArchiveConfig, ArchiveLayout, Storage};

/// Settings and file access of the sealer.
pub(crate) struct SealerContext {
    pub(crate) config: ArchiveConfig,
    pub(crate) layout: ArchiveLayout,
    pub(crate) storage: Arc<dyn Storage>,
    /// Set when the writer ends: unfinished files are abandoned.
    pub(crate) stop: Arc<AtomicBool>,
    /// The last log segment that is not written any more, as the writer of the log tells it.
    pub(crate) closed: Arc<AtomicU64>,
}

impl SealerContext {
    pub(crate) fn new(
        config: ArchiveConfig,
        storage: Arc<dyn Storage>,
        stop: Arc<AtomicBool>,
    ) -> Self {
        Self {
            layout: ArchiveLayout::new(&config.root, &config.node),
            config,
            storage,
            stop,
            closed: Arc::default(),
        }
    }
}

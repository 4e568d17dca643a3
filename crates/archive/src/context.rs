//! Settings and file access of the sealer, for the modules that make and delete its files.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::{ArchiveConfig, Layout, Storage};

/// Settings and file access of the sealer.
pub(crate) struct Context {
    pub(crate) config: ArchiveConfig,
    pub(crate) layout: Layout,
    pub(crate) storage: Arc<dyn Storage>,
    /// Set when the writer ends: unfinished files are abandoned.
    pub(crate) stop: Arc<AtomicBool>,
}

impl Context {
    pub(crate) fn new(
        config: ArchiveConfig,
        storage: Arc<dyn Storage>,
        stop: Arc<AtomicBool>,
    ) -> Self {
        Self {
            layout: Layout::new(&config.root, &config.node),
            config,
            storage,
            stop,
        }
    }
}

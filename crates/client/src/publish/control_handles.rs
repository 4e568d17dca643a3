//! The handles of a publisher's control events. They stand alone because the publisher holds them,
//! and events are published through it.

use std::sync::atomic::AtomicU64;

/// The handles of a publisher's control events; 0 before they are declared.
#[derive(Debug, Default)]
pub(super) struct ControlHandles {
    pub(super) publication: AtomicU64,
    pub(super) record: AtomicU64,
}

//! The bounds of a mirror, and the room that several mirrors share.
//!
//! The mirrors of a node's scopes are many, and a user who publishes much in one of them must not
//! make another node keep more than its configuration says.

use std::sync::Mutex;

/// The bounds of one node's mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirrorBounds {
    /// Most streams.
    pub streams_max: usize,
    /// Most samples of a stream; the owner's ring may hold more.
    pub depth_max: u32,
    /// Most bytes of all rings.
    pub ring_bytes_max: usize,
}

/// The room of several mirrors together.
#[derive(Debug)]
pub(crate) struct MirrorRoom {
    bounds: MirrorBounds,
    /// Number of streams, and bytes of their rings.
    taken: Mutex<(usize, usize)>,
}

impl MirrorRoom {
    /// Room for what these bounds allow.
    pub(crate) fn new(bounds: MirrorBounds) -> Self {
        Self {
            bounds,
            taken: Mutex::new((0, 0)),
        }
    }

    /// Takes room for a stream; `None` if there is none.
    pub(crate) fn take(&self, bytes: usize) -> Option<()> {
        let mut taken = self.taken.lock().ok()?;
        let (streams, all) = (taken.0 + 1, taken.1.saturating_add(bytes));
        if streams > self.bounds.streams_max || all > self.bounds.ring_bytes_max {
            return None;
        }
        *taken = (streams, all);
        Some(())
    }

    /// Gives the room of a stream back.
    pub(crate) fn give_back(&self, bytes: usize) {
        if let Ok(mut taken) = self.taken.lock() {
            *taken = (taken.0.saturating_sub(1), taken.1.saturating_sub(bytes));
        }
    }
}

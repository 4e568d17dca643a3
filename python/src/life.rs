//! The state of a publication, which its values and knobs share: one that is held alone keeps the
//! publication open.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use barograph_client::publish::Publisher;

/// The state of a publication.
pub(crate) struct PublicationLife {
    name: String,
    /// Also false if nothing can be published.
    is_open: AtomicBool,
    // Locked only under the GIL and never while waiting, as in `Stream`.
    publisher: Mutex<Option<Publisher>>,
    lost_at_close: AtomicU64,
}

impl PublicationLife {
    /// The state of a publication that is being declared, and not open yet.
    pub(crate) fn new(name: String, publisher: Publisher) -> Self {
        Self {
            name,
            is_open: AtomicBool::new(false),
            publisher: Mutex::new(Some(publisher)),
            lost_at_close: AtomicU64::new(0),
        }
    }

    /// Opens the publication.
    pub(crate) fn open(&self) {
        self.is_open.store(true, Ordering::Relaxed);
    }

    /// Closes the publication, and returns its publisher if it was not closed before.
    pub(crate) fn close(&self) -> Option<Publisher> {
        self.lost_at_close.store(self.lost(), Ordering::Relaxed);
        self.is_open.store(false, Ordering::Relaxed);
        self.publisher().take()
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// The publisher, until the publication is closed.
    pub(crate) fn publisher(&self) -> MutexGuard<'_, Option<Publisher>> {
        self.publisher
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of values that were lost so far.
    pub(crate) fn lost(&self) -> u64 {
        match &*self.publisher() {
            Some(publisher) => publisher.lost(),
            None => self.lost_at_close.load(Ordering::Relaxed),
        }
    }
}

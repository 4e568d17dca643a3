//! What the readers of this process hold open although it was unlinked: a file takes its place on the disk until
//! the last of them closes it, so the writer asks them to.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A reader that keeps files open between reads.
pub(crate) trait Release: Send + Sync {
    /// Closes those that were unlinked, where that does not mean to wait.
    fn release(&self);
}

static READERS: Mutex<Vec<Weak<dyn Release>>> = Mutex::new(Vec::new());

/// Makes a reader known until it is dropped.
pub(crate) fn register(reader: &Arc<impl Release + 'static>) {
    let mut readers = READERS.lock().unwrap_or_else(PoisonError::into_inner);
    readers.retain(|reader| reader.strong_count() > 0);
    let reader: Weak<dyn Release> = Arc::downgrade(reader) as _;
    readers.push(reader);
}

/// Has every reader close what was unlinked. Views that are in use go on holding theirs.
pub(crate) fn release() {
    // Held meanwhile, so that two writers do not find each other's readers busy.
    let readers = READERS.lock().unwrap_or_else(PoisonError::into_inner);
    for reader in readers.iter().filter_map(Weak::upgrade) {
        reader.release();
    }
}

/// Whether no name leads to the file any more.
pub(crate) fn is_unlinked(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.nlink() == 0)
}

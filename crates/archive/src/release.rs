//! The readers of this process that keep files open: an unlinked file takes space on the disk until
//! the last reader closes it, so the writer asks them to.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A reader that keeps files open between reads.
pub(crate) trait FileRelease: Send + Sync {
    /// Closes files that were unlinked, unless that would have to wait.
    fn release(&self);
}

static READERS: Mutex<Vec<Weak<dyn FileRelease>>> = Mutex::new(Vec::new());

/// Registers a reader until it is dropped.
pub(crate) fn register(reader: &Arc<impl FileRelease + 'static>) {
    let mut readers = READERS.lock().unwrap_or_else(PoisonError::into_inner);
    readers.retain(|reader| reader.strong_count() > 0);
    let reader: Weak<dyn FileRelease> = Arc::downgrade(reader) as _;
    readers.push(reader);
}

/// Makes every reader close its unlinked files. Views that are in use keep theirs.
pub(crate) fn release() {
    // The lock is held meanwhile, so that two writers do not find each other's readers busy.
    let readers = READERS.lock().unwrap_or_else(PoisonError::into_inner);
    for reader in readers.iter().filter_map(Weak::upgrade) {
        reader.release();
    }
}

/// Whether no name leads to the file any more.
pub(crate) fn is_unlinked(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.nlink() == 0)
}

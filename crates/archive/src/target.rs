//! Where a copy of what is sealed goes.
//!
//! It stands alone because readers of an archive need none of it: the one implementation brings an
//! HTTP client and TLS along, and is behind the feature `target`.

use std::path::Path;
use std::sync::atomic::AtomicBool;

#[cfg(feature = "target")]
mod list;
#[cfg(feature = "target")]
mod object;

#[cfg(feature = "target")]
pub use object::ObjectTarget;

/// Takes copies of sealed files. It is called from a thread of its own, and may take its time: nothing waits for it
/// but a stop of the writer, some seconds. Soon after `stop` is set it is to give up, with an error.
pub trait Target: Send {
    /// Copies the file `local` to `relative`, a path relative to the archive's root. When it returns, the copy
    /// is whole. An error says what to do, and the copy can be tried again.
    fn copy(&mut self, local: &Path, relative: &Path, stop: &AtomicBool) -> Result<(), String>;

    /// Removes a copy whose rows are in that of another file now; one that is gone, or never was there, is
    /// fine. An error says what to do, and the removal is tried again. A target that cannot remove keeps both.
    fn remove(&mut self, _relative: &Path, _stop: &AtomicBool) -> Result<(), String> {
        Ok(())
    }
}

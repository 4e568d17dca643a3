//! The target to which sealed files are copied.
//!
//! This module stands alone because readers of an archive need none of it: its one implementation
//! brings an HTTP client and TLS along, and is behind the feature `target`.

use std::path::Path;
use std::sync::atomic::AtomicBool;

#[cfg(feature = "target")]
mod list;
#[cfg(feature = "target")]
mod object;

#[cfg(feature = "target")]
pub use object::ObjectTarget;

/// A store that takes copies of sealed files. Its functions are called from a thread of their own
/// and may be slow: only a stop of the writer waits for them, for some seconds. Soon after `stop`
/// is set they should give up with an error.
pub trait CopyTarget: Send {
    /// Copies the file `local` to `relative`, a path relative to the archive's root. When the
    /// function returns, the copy is complete. An error says what to do, and the copy can be tried
    /// again.
    fn copy(&mut self, local: &Path, relative: &Path, stop: &AtomicBool) -> Result<(), String>;

    /// Deletes a copy whose rows are now in the copy of another file; a copy that does not exist is
    /// not an error. An error says what to do, and the removal is tried again. A target that cannot
    /// delete keeps both copies.
    fn remove(&mut self, _relative: &Path, _stop: &AtomicBool) -> Result<(), String> {
        Ok(())
    }
}

//! The lock of a directory, so that two servers do not take each other's files for their own.

use std::fs::File;
use std::path::Path;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::error::StagingError;

/// The lock of a directory. The kernel gives it back when the process ends, however it does.
#[derive(Debug)]
pub(crate) struct DirectoryLock(#[expect(dead_code, reason = "held for its lock")] File);

impl DirectoryLock {
    /// Takes the lock. A file system without locks counts as nobody's: it is not refused.
    pub(crate) fn take(path: &Path) -> Result<Self, StagingError> {
        let failed = |source| StagingError::Path {
            what: "use the tier",
            path: path.to_owned(),
            source,
        };
        let directory = File::open(path).map_err(failed)?;
        match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => {
                let why = "another server has it: give each server a directory of its own";
                Err(failed(std::io::Error::other(why)))
            }
            Ok(()) | Err(_) => Ok(Self(directory)),
        }
    }
}

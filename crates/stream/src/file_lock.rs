//! The lock by which one process at a time owns a directory.
//!
//! It is a module of its own because of how it must end. The kernel ties the lock (`flock`,
//! flock(2)) to the open file, not to the descriptor: a child that another thread forked shares the
//! open file until it executes its program, which closes all descriptors marked close-on-exec. If
//! only our descriptor were closed, the directory would stay locked for that long, and the next
//! owner would be refused.

use std::fs::File;
use std::io;

use rustix::fs::{FlockOperation, flock};

/// An exclusive lock on a file. It is freed when this value is dropped, even if another process
/// still has the open file; the kernel frees it when the process ends.
#[derive(Debug)]
pub struct FileLock {
    file: File,
}

impl FileLock {
    /// Takes the lock without waiting; `None` if someone else has it.
    pub fn try_take(file: File) -> io::Result<Option<Self>> {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self { file })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The file that is locked.
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // If this fails, the close that follows is all that can be done.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// The child has the open file itself, as every child has between fork and exec.
    #[test]
    fn a_lock_is_free_when_its_owner_is_dropped_whoever_has_the_file_open() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let take = || FileLock::try_take(File::open(path.path()).unwrap()).unwrap();
        let lock = take().unwrap();
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::from(lock.file().try_clone().unwrap()))
            .spawn()
            .unwrap();
        assert!(take().is_none());
        drop(lock);
        let again = take();
        // The child ends when its input ends.
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(again.is_some());
    }
}

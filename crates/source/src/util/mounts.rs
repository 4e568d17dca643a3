//! The sign that the mount table has changed, which costs one system call.

use std::fs::File;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::util::file::SysRoot;

/// A file of the kernel that becomes ready when a file system is mounted or unmounted (proc(5),
/// `/proc/PID/mounts`). The file of a fixture tree never does.
pub(crate) struct MountSign(Option<File>);

impl MountSign {
    pub(crate) fn new(root: &SysRoot) -> Self {
        Self(File::open(root.path("proc/self/mountinfo")).ok())
    }

    /// Whether the mount table has changed since the last call.
    pub(crate) fn has_changed(&self) -> bool {
        let Some(file) = &self.0 else {
            return false;
        };
        let mut files = [PollFd::new(file, PollFlags::PRI)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut files, Some(&now)).is_ok_and(|ready| ready > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_table_that_stays_the_same_gives_no_sign() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("proc/self")).unwrap();
        let file = dir.path().join("proc/self/mountinfo");
        std::fs::write(&file, "").unwrap();
        for root in [dir.path(), Path::new("/nowhere")] {
            let sign = MountSign::new(&SysRoot::new(root));
            assert!(!sign.has_changed(), "{root:?}");
            assert!(!sign.has_changed(), "{root:?}");
        }
    }
}

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
    #[expect(clippy::disallowed_methods, reason = "it asks and does not wait")]
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
    use std::process::Command;

    use super::*;

    /// Set in the process of a test that has mounts of its own, to a directory for them.
    const MOUNT_AT: &str = "BAROGRAPH_TEST_MOUNT_AT";

    fn is_done(command: &mut Command) -> bool {
        command.status().is_ok_and(|status| status.success())
    }

    /// Runs itself in a process whose mounts nobody else sees.
    #[test]
    fn a_mount_and_its_end_give_a_sign_each() {
        let Some(dir) = std::env::var_os(MOUNT_AT) else {
            let dir = tempfile::tempdir().unwrap();
            if !is_done(Command::new("unshare").args(["-m", "true"])) {
                return eprintln!("SKIPPED: this process may have no mounts of its own");
            }
            let mut again = Command::new("unshare");
            again.arg("-m").arg(std::env::current_exe().unwrap());
            again.args([
                "--exact",
                "util::mounts::tests::a_mount_and_its_end_give_a_sign_each",
            ]);
            let output = again.env(MOUNT_AT, dir.path()).output().unwrap();
            let told = String::from_utf8_lossy(&output.stdout);
            assert!(
                output.status.success() && told.contains("1 passed"),
                "{output:?}"
            );
            return;
        };
        let sign = MountSign::new(&SysRoot::new(Path::new("/")));
        assert!(!sign.has_changed());
        let mut mount = Command::new("mount");
        assert!(is_done(mount.args(["-t", "tmpfs", "none"]).arg(&dir)));
        assert!(sign.has_changed());
        assert!(!sign.has_changed());
        assert!(is_done(Command::new("umount").arg(&dir)));
        assert!(sign.has_changed());
        assert!(!sign.has_changed());
    }

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

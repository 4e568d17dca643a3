//! The process at the other end of a socket: it is held by a descriptor, so that the number of one
//! that has ended and was given to another is never taken for it, and its control groups are those
//! that the kernel tells, never those that it names.

use std::os::fd::OwnedFd;

use barograph_control::cgroup::ProcessGroups;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::device::{KernelTrees, text};

/// A reader's process.
#[derive(Debug)]
pub(super) struct ReaderProcess {
    pub pid: u32,
    handle: OwnedFd,
    pub groups: ProcessGroups,
}

impl ReaderProcess {
    /// Takes hold of a process and reads its groups, or says why not.
    pub(super) fn open(
        trees: &KernelTrees,
        pid: Option<u32>,
        uid: Option<u32>,
    ) -> Result<Self, String> {
        let (Some(pid), Some(uid)) = (pid, uid) else {
            return Err("the process is not known over TCP: ask by a unix socket".into());
        };
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let handle = number.map(|pid| pidfd_open(pid, PidfdFlags::empty()));
        let Some(Ok(handle)) = handle else {
            return Err(format!(
                "process {pid} cannot be followed: it has ended, or is not visible to the agent"
            ));
        };
        let dir = trees.process(pid);
        let status = text(&dir.join("status")).unwrap_or_default();
        if effective_user(&status) != Some(uid) {
            return Err(format!("process {pid} is not one of user {uid} any more"));
        }
        let Some(groups) = text(&dir.join("cgroup")) else {
            return Err(format!(
                "the control groups of process {pid} cannot be read"
            ));
        };
        let process = Self {
            pid,
            handle,
            groups: ProcessGroups::parse(&groups),
        };
        // What was read is that of this process only if it lives now.
        match process.is_alive() {
            true => Ok(process),
            false => Err(format!("process {pid} has ended")),
        }
    }

    /// Whether it has not ended.
    #[expect(
        clippy::disallowed_methods,
        reason = "it does not wait: the time to wait is zero"
    )]
    pub(super) fn is_alive(&self) -> bool {
        let mut ended = [PollFd::new(&self.handle, PollFlags::IN)];
        let now = Timespec::default();
        matches!(rustix::event::poll(&mut ended, Some(&now)), Ok(0))
    }
}

/// The effective user in the text of `/proc/PID/status`.
fn effective_user(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_is_held_and_its_end_is_seen() {
        let trees = KernelTrees::new(Path::new("/"));
        let ours = rustix::process::geteuid().as_raw();
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let process = ReaderProcess::open(&trees, Some(child.id()), Some(ours)).unwrap();
        assert!(process.is_alive());
        let foreign = ReaderProcess::open(&trees, Some(child.id()), Some(ours + 1));
        assert!(foreign.unwrap_err().contains("not one of user"));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!process.is_alive());
        let gone = ReaderProcess::open(&trees, Some(child.id()), Some(ours)).unwrap_err();
        assert!(gone.contains("cannot be followed"), "{gone}");
        let unknown = ReaderProcess::open(&trees, None, Some(ours)).unwrap_err();
        assert!(unknown.contains("unix socket"), "{unknown}");
    }

    #[test]
    fn the_effective_user_is_the_second_number() {
        assert_eq!(effective_user("Name:\tx\nUid:\t1\t2\t3\t4\n"), Some(2));
        assert_eq!(effective_user("Uid:\t1\n"), None);
        assert_eq!(effective_user(""), None);
    }
}

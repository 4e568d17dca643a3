//! Opening a fanotify group with a mark on a whole file system.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags};
use rustix::fs::{Mode, OFlags};

use crate::collector::CollectorFault;
use crate::fanotify::parse::mask;

/// `FAN_REPORT_DFID_NAME_TARGET`: handles of the directory and of the object, and the name. Linux
/// has all of them since 5.17.
const REPORT_DFID_NAME_TARGET: u32 = 0x400 | 0x800 | 0x200 | 0x1000;

/// The events that are asked for.
const WANTED: u64 = mask::CREATE
    | mask::DELETE
    | mask::RENAME
    | mask::MODIFY
    | mask::CLOSE_WRITE
    | mask::ATTRIB
    | mask::ONDIR
    | mask::FS_ERROR;

/// What is not asked for where the kernel refuses it, and what is then said. Renames are in no such
/// table: `FAN_RENAME` and the handles of objects came with the same version of Linux.
const REFUSABLE: [(u64, &str); 1] = [(
    mask::FS_ERROR,
    "errors of the file system are not seen: it does not tell them",
)];

/// The queue of events that wait in the kernel to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FanotifyQueue {
    /// It grows as needed: some 900 bytes of kernel memory for each event.
    Unlimited,
    /// It has `fs.fanotify.max_queued_events` events at most. Where it runs over, there is a gap.
    Limited,
}

/// An open group with a mark, and the directory by which the file system was named. Opening it
/// needs CAP_SYS_ADMIN; using it needs nothing.
#[derive(Debug)]
pub struct FanotifyGroup {
    /// The group, from which events are read.
    pub group: OwnedFd,
    /// The directory.
    pub base: OwnedFd,
    /// What the group lacks, as texts; empty if it has everything.
    pub lacks: Vec<String>,
}

impl FanotifyGroup {
    /// Opens a group with a mark on the file system of the directory `base`, and an unlimited
    /// queue.
    ///
    /// # Errors
    ///
    /// The directory cannot be opened, or the kernel refuses; the text says what to do.
    pub fn open(base: &Path) -> Result<Self, CollectorFault> {
        Self::open_with(base, FanotifyQueue::Unlimited)
    }

    /// Opens a group with this queue.
    ///
    /// # Errors
    ///
    /// As of [`Self::open`].
    pub fn open_with(base: &Path, queue: FanotifyQueue) -> Result<Self, CollectorFault> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(base, flags, Mode::empty());
        let descriptor = opened.map_err(|errno| CollectorFault::Io {
            what: "open the directory",
            path: base.to_owned(),
            source: errno.into(),
        })?;
        let mut lacks = Vec::new();
        let group = init(queue, &mut lacks)?;
        mark(&group, &descriptor, WANTED, base, &mut lacks)?;
        Ok(Self {
            group: group.into(),
            base: descriptor,
            lacks,
        })
    }

    /// A group that another process has opened and handed over.
    pub fn from_parts(group: OwnedFd, base: OwnedFd) -> Self {
        Self {
            group,
            base,
            lacks: Vec::new(),
        }
    }
}

fn init(queue: FanotifyQueue, lacks: &mut Vec<String>) -> Result<Fanotify, CollectorFault> {
    let limited = InitFlags::FAN_CLASS_NOTIF
        | InitFlags::FAN_CLOEXEC
        | InitFlags::FAN_NONBLOCK
        | InitFlags::from_bits_retain(REPORT_DFID_NAME_TARGET);
    let files = EventFFlags::O_RDONLY | EventFFlags::O_CLOEXEC | EventFFlags::O_LARGEFILE;
    let wanted = match queue {
        FanotifyQueue::Unlimited => limited | InitFlags::FAN_UNLIMITED_QUEUE,
        FanotifyQueue::Limited => limited,
    };
    let group = match Fanotify::init(wanted, files) {
        Err(Errno::EPERM) if queue == FanotifyQueue::Unlimited => {
            lacks.push(
                "the queue of events is limited by fs.fanotify.max_queued_events: an unlimited \
                 one needs CAP_SYS_ADMIN"
                    .to_owned(),
            );
            Fanotify::init(limited, files)
        }
        outcome => outcome,
    };
    group.map_err(|errno| {
        CollectorFault::Unusable(match errno {
            Errno::EINVAL => {
                "fanotify lacks FAN_REPORT_TARGET_FID here: use Linux 5.17 or later, or watch the \
                 directories by inotify"
                    .to_owned()
            }
            Errno::ENOSYS => {
                "the kernel is built without fanotify (CONFIG_FANOTIFY): watch the directories by \
                 inotify"
                    .to_owned()
            }
            Errno::EPERM => "fanotify needs CAP_SYS_ADMIN: grant it, run as root, or have the \
                             privileged helper open the group"
                .to_owned(),
            Errno::EMFILE => "there are too many fanotify groups or open files: raise \
                              fs.fanotify.max_user_groups or the limit of open files"
                .to_owned(),
            errno => format!("cannot open a fanotify group: {}", io::Error::from(errno)),
        })
    })
}

fn mark(
    group: &Fanotify,
    base: &OwnedFd,
    wanted: u64,
    path: &Path,
    lacks: &mut Vec<String>,
) -> Result<(), CollectorFault> {
    let flags = MarkFlags::FAN_MARK_ADD | MarkFlags::FAN_MARK_FILESYSTEM;
    let mut wanted = wanted;
    let mut refusable = REFUSABLE.iter();
    loop {
        let mask = MaskFlags::from_bits_retain(wanted);
        match group.mark(flags, mask, base.as_fd(), None::<&Path>) {
            Ok(()) => return Ok(()),
            Err(Errno::EINVAL) => {}
            Err(errno) => return Err(CollectorFault::Unusable(refusal(errno, path))),
        }
        let Some((without, text)) = refusable.next() else {
            return Err(CollectorFault::Unusable(refusal(Errno::EINVAL, path)));
        };
        wanted &= !without;
        lacks.push((*text).to_owned());
    }
}

/// Why a file system cannot be marked, and what to do.
fn refusal(errno: Errno, path: &Path) -> String {
    let path = path.display();
    match errno {
        Errno::EPERM => format!(
            "marking the file system of {path} needs CAP_SYS_ADMIN in the initial user namespace: \
             grant it, or have the privileged helper open the group"
        ),
        Errno::ENODEV => format!(
            "the file system of {path} has no fsid (FUSE and some others have none), so that \
             fanotify cannot tell its events: watch it by inotify, or compare it at an interval"
        ),
        Errno::EXDEV => format!(
            "{path} is in a btrfs subvolume other than the file system's root, which fanotify \
             cannot mark: name a directory of the top-level subvolume, or watch it by inotify"
        ),
        Errno::EOPNOTSUPP => format!(
            "the file system of {path} has no file handles, so that fanotify cannot tell its \
             events: watch it by inotify, or compare it at an interval"
        ),
        Errno::ENOSPC => format!(
            "there are too many fanotify marks to mark the file system of {path}: raise \
             fs.fanotify.max_user_marks"
        ),
        Errno::EINVAL => format!(
            "the kernel refuses all masks for the file system of {path}: use Linux 5.17 or later, \
             or watch it by inotify"
        ),
        errno => format!(
            "cannot mark the file system of {path}: {}",
            io::Error::from(errno)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_say_what_to_do() {
        for (errno, part) in [
            (Errno::EPERM, "CAP_SYS_ADMIN"),
            (Errno::ENODEV, "no fsid"),
            (Errno::EXDEV, "btrfs subvolume"),
            (Errno::EOPNOTSUPP, "no file handles"),
            (Errno::ENOSPC, "max_user_marks"),
            (Errno::EINVAL, "5.17"),
            (Errno::EIO, "cannot mark"),
        ] {
            let text = refusal(errno, Path::new("/mnt"));
            assert!(text.contains(part) && text.contains("/mnt"), "{text}");
        }
    }

    #[test]
    fn a_file_system_without_file_handles_is_refused_with_a_remedy() {
        let fault = FanotifyGroup::open(Path::new("/proc/self")).unwrap_err();
        let text = fault.to_string();
        let is_said = text.contains("watch it by inotify") || text.contains("CAP_SYS_ADMIN");
        assert!(is_said, "{text}");
    }

    #[test]
    fn what_is_no_directory_is_refused() {
        let fault = FanotifyGroup::open(Path::new("/proc/self/status")).unwrap_err();
        assert!(fault.to_string().contains("open the directory"));
    }
}

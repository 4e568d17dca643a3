//! The verb `fanotify`: opens a fanotify group with a mark on a whole file system, and hands it to
//! the requester.
//!
//! Whoever reads the group learns the names of everything that happens in the file system, also in
//! directories that only others may read. Root gives this right for single file systems, by a list
//! of mount points. The request names a file system by its device number, so that nothing that the
//! requester could prepare is ever opened: what is opened and marked is a mount point of the list.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags};
use rustix::fs::{Mode, OFlags};

/// The first word of the request; the second one is a device number, such as `8:1`.
pub(crate) const VERB: &str = "fanotify";
/// The description for `--verbs`.
pub(crate) const HELP: &str = "fanotify MAJOR:MINOR: names of what happens in a listed file system
    a descriptor of a group, with a mark on a mount point that /etc/barograph/fanotify lists
";
/// Most bytes of the list.
const LIST_BYTES_MAX: u64 = 64 << 10;
/// Most bytes of the kernel's table of mounts.
const MOUNTS_BYTES_MAX: u64 = 4 << 20;

/// `FAN_REPORT_DFID_NAME_TARGET`: handles of the directory and of the object, and the name.
const REPORT_DFID_NAME_TARGET: u32 = 0x400 | 0x800 | 0x200 | 0x1000;
/// Creates, deletes, renames, changes, closing after writing, and attributes, also of directories.
const WANTED: u64 = 0x100 | 0x200 | 0x1000_0000 | 0x2 | 0x8 | 0x4 | 0x4000_0000;
/// Errors of the file system, which not all file systems tell.
const FS_ERROR: u64 = 0x8000;

/// A group that is to be handed over.
#[derive(Debug)]
pub(crate) struct MarkedGroup {
    pub(crate) group: OwnedFd,
    /// What the group lacks, as lines of text.
    pub(crate) lacks: String,
}

/// A function that fails if others than root could put something else in the place of a file.
pub type PlaceVet = fn(&Path) -> Result<(), String>;

/// The files that decide about requests.
#[derive(Clone, Debug)]
pub struct MarkPlaces {
    /// The list of mount points of the file systems that may be marked: one a line.
    pub list: PathBuf,
    /// `/proc/self/mountinfo`.
    pub mounts: PathBuf,
    /// Decides whether the list can be believed.
    pub vet_list: PlaceVet,
    /// Decides whether a listed mount point can be believed.
    pub vet_mount: PlaceVet,
}

impl MarkPlaces {
    /// Opens a group with a mark on the file system of this device number.
    pub(crate) fn open(&self, device: &str) -> Result<MarkedGroup, String> {
        let device = parse_device(device).ok_or("that is no device number like 8:1")?;
        let listed = self.listed()?;
        let mounts = read(&self.mounts, MOUNTS_BYTES_MAX);
        let mounts = mounts.map_err(|e| format!("{}: {e}", self.mounts.display()))?;
        let mounts: Vec<Mount> = mounts
            .split(|b| *b == b'\n')
            .filter_map(parse_mount)
            .collect();
        // Of mounts at one place, the last one covers the others. Where only a part of a file
        // system is mounted, the line of the list does not mean the whole of it.
        let is_of_device = |path: &&PathBuf| {
            let of_path = mounts.iter().rfind(|mount| mount.point == **path);
            of_path.is_some_and(|mount| mount.device == device && mount.is_whole)
        };
        let Some(path) = listed.iter().find(is_of_device) else {
            return Err(self.unlisted(device, &mounts));
        };
        (self.vet_mount)(path)?;
        let shown = path.as_os_str().as_bytes().escape_ascii();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::open(path, flags, Mode::empty());
        let opened = opened.map_err(|errno| format!("{shown}: {errno}"))?;
        let stat = rustix::fs::fstat(&opened).map_err(|errno| format!("{shown}: {errno}"))?;
        let found = (
            rustix::fs::major(stat.st_dev),
            rustix::fs::minor(stat.st_dev),
        );
        if found != device {
            return Err(format!("{shown} was just mounted anew: ask again"));
        }
        marked(&opened).map_err(|reason| format!("the file system of {shown} {reason}"))
    }

    /// The mount points of the list.
    fn listed(&self) -> Result<Vec<PathBuf>, String> {
        let shown = self.list.display();
        let bytes = match read(&self.list, LIST_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(format!("{shown}: {e}")),
        };
        (self.vet_list)(&self.list)?;
        Ok(parse_list(&bytes))
    }

    /// Why a file system may not be marked, and what to do.
    fn unlisted(&self, device: (u32, u32), mounts: &[Mount]) -> String {
        let whole = mounts
            .iter()
            .filter(|one| one.device == device && one.is_whole);
        let points = whole.map(|mount| mount.point.as_os_str().as_bytes());
        let list = self.list.display();
        match points.min_by_key(|point| point.len()) {
            Some(point) => format!(
                "names of this file system are not given: root can allow it by a line `{}` in \
                 {list}",
                point.escape_ascii()
            ),
            None => format!(
                "file system {}:{} is not mounted as a whole where the helper sees it, so that no \
                 line of {list} can mean it",
                device.0, device.1
            ),
        }
    }
}

/// A mounted file system.
struct Mount {
    device: (u32, u32),
    point: PathBuf,
    /// Whether it is mounted from its root on.
    is_whole: bool,
}

/// Reads a file up to a number of bytes.
fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(bytes_max + 1)
        .read_to_end(&mut bytes)?;
    match bytes.len() as u64 > bytes_max {
        true => Err(io::Error::other(format!(
            "it has more than {bytes_max} bytes"
        ))),
        false => Ok(bytes),
    }
}

/// The mount points of a list: absolute paths, one a line; `#` begins a line that is a comment.
fn parse_list(bytes: &[u8]) -> Vec<PathBuf> {
    let lines = bytes.split(|b| *b == b'\n').map(<[u8]>::trim_ascii);
    let paths = lines.filter(|line| line.first() == Some(&b'/'));
    paths
        .map(|line| PathBuf::from(OsStr::from_bytes(line)))
        .collect()
}

/// Reads a device number: `8:1`.
fn parse_device(text: &str) -> Option<(u32, u32)> {
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        text.parse().ok().filter(|_| is_number)
    };
    let (major, minor) = text.split_once(':')?;
    Some((number(major)?, number(minor)?))
}

/// Reads a line of `/proc/self/mountinfo` (`proc_pid_mountinfo(5)`).
fn parse_mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|b| *b == b' ').skip(2);
    let device = parse_device(std::str::from_utf8(fields.next()?).ok()?)?;
    let (root, point) = (fields.next()?, fields.next()?);
    let point = unescaped(point);
    Some(Mount {
        device,
        point: PathBuf::from(OsStr::from_bytes(&point)),
        is_whole: root == b"/",
    })
}

/// A path of the kernel's, which writes some bytes as a backslash and three octal digits.
fn unescaped(path: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

/// A new group with a mark on the file system of this directory.
fn marked(directory: &OwnedFd) -> Result<MarkedGroup, String> {
    let flags = InitFlags::FAN_CLASS_NOTIF
        | InitFlags::FAN_CLOEXEC
        | InitFlags::FAN_NONBLOCK
        | InitFlags::FAN_UNLIMITED_QUEUE
        | InitFlags::from_bits_retain(REPORT_DFID_NAME_TARGET);
    let files = EventFFlags::O_RDONLY | EventFFlags::O_CLOEXEC | EventFFlags::O_LARGEFILE;
    let group = Fanotify::init(flags, files).map_err(|errno| refusal(errno).to_owned())?;
    let mark = |mask: u64| {
        let flags = MarkFlags::FAN_MARK_ADD | MarkFlags::FAN_MARK_FILESYSTEM;
        let mask = MaskFlags::from_bits_retain(mask);
        // A descriptor that was opened as a path alone is marked by a name in it.
        group.mark(flags, mask, directory.as_fd(), Some("."))
    };
    let mut lacks = String::new();
    let mut outcome = mark(WANTED | FS_ERROR);
    if outcome == Err(Errno::EINVAL) {
        lacks.push_str("errors of the file system are not seen: it does not tell them\n");
        outcome = mark(WANTED);
    }
    outcome.map_err(|errno| refusal(errno).to_owned())?;
    Ok(MarkedGroup {
        group: group.into(),
        lacks,
    })
}

/// Why a file system cannot be marked, behind the words "the file system of PATH".
fn refusal(errno: Errno) -> &'static str {
    match errno {
        Errno::EPERM => "cannot be marked: the helper needs CAP_SYS_ADMIN",
        Errno::ENODEV => "has no fsid, so that fanotify cannot tell its events",
        Errno::EXDEV => "is a btrfs subvolume, which fanotify cannot mark",
        Errno::EOPNOTSUPP => "has no file handles, so that fanotify cannot tell its events",
        Errno::ENOSPC => "cannot be marked: raise fs.fanotify.max_user_marks",
        Errno::EMFILE => "cannot be marked: raise fs.fanotify.max_user_groups",
        Errno::EINVAL => "cannot be marked by this kernel: it takes Linux 5.17",
        Errno::ENOSYS => "cannot be marked: the kernel is built without fanotify",
        _ => "cannot be marked: the kernel refuses",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers() {
        for (text, expected) in [
            ("8:1", Some((8, 1))),
            ("0:4294967295", Some((0, u32::MAX))),
            ("0:4294967296", None),
            ("8", None),
            (":1", None),
            ("8:", None),
            ("+8:1", None),
            ("8:1 ", None),
            ("8:1:2", None),
            ("/data", None),
        ] {
            assert_eq!(parse_device(text), expected, "{text}");
        }
    }

    #[test]
    fn lists() {
        for (text, expected) in [
            ("", &[][..]),
            ("/data\n/a b\n", &["/data", "/a b"]),
            ("# all\n\n  /data  \ndata\n../x\n/last", &["/data", "/last"]),
        ] {
            let expected: Vec<PathBuf> = expected.iter().map(PathBuf::from).collect();
            assert_eq!(parse_list(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn mounts() {
        let read = |line: &str| {
            let mount = parse_mount(line.as_bytes())?;
            Some((
                mount.device,
                mount.point.to_str()?.to_owned(),
                mount.is_whole,
            ))
        };
        let line = r"36 35 98:0 / /mnt\040two\134\0 rw,noatime master:1 - ext3 /dev/root rw";
        assert_eq!(read(line), Some(((98, 0), r"/mnt two\\0".to_owned(), true)));
        let part = "36 35 98:0 /part /mnt rw - ext3 /dev/root rw";
        assert_eq!(read(part), Some(((98, 0), "/mnt".to_owned(), false)));
        for line in [
            "",
            "36 35",
            "36 35 98 / /mnt",
            "36 35 98:0 /",
            "\u{fe} 1 x:0 / /",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }

    /// The places of a test: mounts of this machine, and a list.
    fn places(list: &Path) -> MarkPlaces {
        MarkPlaces {
            list: list.to_owned(),
            mounts: PathBuf::from("/proc/self/mountinfo"),
            vet_list: |_| Ok(()),
            vet_mount: |_| Ok(()),
        }
    }

    fn device_of(path: &str) -> String {
        let stat = rustix::fs::stat(path).unwrap();
        let device = stat.st_dev;
        format!(
            "{}:{}",
            rustix::fs::major(device),
            rustix::fs::minor(device)
        )
    }

    #[test]
    fn what_is_not_listed_is_refused_with_the_line_that_would_allow_it() {
        let directory = tempfile::tempdir().unwrap();
        let list = directory.path().join("list");
        let refused = |device: &str| places(&list).open(device).unwrap_err();
        assert!(refused("x").contains("device number"));
        let proc = device_of("/proc");
        assert!(
            refused(&proc).contains("by a line `/proc` in"),
            "{}",
            refused(&proc)
        );
        assert!(refused("4000000:1").contains("not mounted"));
        // A directory of the file system is not its mount point.
        std::fs::write(&list, "/proc/self\n/prod\n").unwrap();
        let reason = refused(&proc);
        assert!(reason.contains("by a line `/proc` in"), "{reason}");
        // What is listed is tried, and the kernel has a word in it as well.
        std::fs::write(&list, "/proc\n").unwrap();
        let reason = refused(&proc);
        assert!(reason.starts_with("the file system of /proc "), "{reason}");
        let mut vetted = places(&list);
        vetted.vet_list = |_| Err("others may write it".to_owned());
        assert_eq!(vetted.open(&proc).unwrap_err(), "others may write it");
        vetted.vet_list = |_| Ok(());
        vetted.vet_mount = |path| Err(path.display().to_string());
        assert_eq!(vetted.open(&proc).unwrap_err(), "/proc");
        std::fs::write(&list, vec![b'#'; LIST_BYTES_MAX as usize + 1]).unwrap();
        assert!(refused(&proc).contains("more than"));
    }
}

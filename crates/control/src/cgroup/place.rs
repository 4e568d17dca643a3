//! Control groups as directories: they are entered name by name from an open root, and their files
//! are read and written relative to an open directory.
//!
//! Names of groups come from configurations and users, and groups may belong to strangers. So no
//! name leads out of the root, and no symbolic link is followed below it. An open directory stays
//! the same group: one that is removed and made again under its name is not taken for it.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use barograph_model::cut;
use rustix::fs::{CWD, FileType, Mode, OFlags, fchown, fstat, openat};
use rustix::io::Errno;
use rustix::process::Uid;

use crate::ControlError;
use crate::cgroup::membership::{CgroupMounts, Hierarchy};

/// Most bytes of the name of a group.
pub(crate) const GROUP_BYTES_MAX: usize = 1_024;
/// Most directories between the root and a group.
const GROUP_DEPTH_MAX: usize = 32;
/// Most bytes of the table of mounts that are read: thousands of them fit in.
const MOUNTS_BYTES_MAX: u64 = 4 << 20;
/// Most bytes that are read of a file of a group.
const FILE_BYTES_MAX: usize = 64 << 10;
/// Most bytes of a name that an error repeats.
const NAME_SHOWN_BYTES_MAX: usize = 100;

/// The places where control groups and block devices are described.
#[derive(Debug)]
pub struct CgroupRoots {
    v1: Option<CgroupRoot>,
    v2: Option<CgroupRoot>,
    block: PathBuf,
}

impl CgroupRoots {
    /// Opens the roots that are there: `v1` is where blkio is mounted (`/sys/fs/cgroup/blkio`),
    /// `v2` where version 2 is (`/sys/fs/cgroup`), and `block` has the block devices
    /// (`/sys/block`).
    ///
    /// # Errors
    ///
    /// The path of a root that is there and cannot be opened.
    pub fn open(v1: &Path, v2: &Path, block: &Path) -> Result<Self, ControlError> {
        Ok(Self {
            v1: CgroupRoot::open(v1)?,
            v2: CgroupRoot::open(v2)?,
            block: block.to_owned(),
        })
    }

    /// Opens the roots that are mounted below `root`, which is `/` but in tests and for trees of
    /// recorded machines.
    ///
    /// # Errors
    ///
    /// The path of a root that is mounted and cannot be opened.
    pub fn mounted(root: &Path) -> Result<Self, ControlError> {
        let table = root.join("proc/self/mountinfo");
        let mut text = String::new();
        let file = File::open(&table);
        // Without a table nothing is mounted, as far as is known.
        let _ = file.and_then(|file| file.take(MOUNTS_BYTES_MAX).read_to_string(&mut text));
        let mounts = CgroupMounts::parse(&text);
        let below = |mount: Option<PathBuf>| {
            // No path stands for a hierarchy that is not mounted.
            let mount = mount.unwrap_or_default();
            mount
                .strip_prefix("/")
                .map_or_else(|_| mount.clone(), |path| root.join(path))
        };
        Self::open(
            &below(mounts.v1),
            &below(mounts.v2),
            &root.join("sys/block"),
        )
    }

    /// The directory of block devices.
    pub fn block(&self) -> &Path {
        &self.block
    }

    /// The root of a hierarchy, if it is there.
    pub fn hierarchy(&self, hierarchy: Hierarchy) -> Option<&CgroupRoot> {
        match hierarchy {
            Hierarchy::V1 => self.v1.as_ref(),
            Hierarchy::V2 => self.v2.as_ref(),
        }
    }
}

/// The root of a hierarchy of control groups, open.
#[derive(Debug)]
pub struct CgroupRoot {
    dir: OwnedFd,
    path: PathBuf,
}

/// A control group, open. It is this group for as long as the value lives, whatever its path means
/// by then.
#[derive(Debug)]
pub struct Group {
    dir: OwnedFd,
    path: PathBuf,
    name: String,
    id: u64,
}

impl CgroupRoot {
    /// Opens a root; `None` if it is not there. Links on the way to it are followed: its path is
    /// the administrator's.
    fn open(path: &Path) -> Result<Option<Self>, ControlError> {
        match openat(CWD, path, directory(), Mode::empty()) {
            Ok(dir) => Ok(Some(Self {
                dir,
                path: path.to_owned(),
            })),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(failed("open", path, errno)),
        }
    }

    /// The path by which the root was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the group with this name, which is relative to the root, such as `slurm/job_7`.
    ///
    /// # Errors
    ///
    /// [`ControlError::Name`] if the name is absolute, empty, too long, has a part `.` or `..`, or
    /// leads through a symbolic link; [`ControlError::Vanished`] if there is no such group.
    pub fn group(&self, name: &str) -> Result<Group, ControlError> {
        let parts = parts(name)?;
        let mut path = self.path.clone();
        let mut dir = None;
        for part in parts {
            path.push(part);
            let above = dir.as_ref().unwrap_or(&self.dir);
            let flags = directory() | OFlags::NOFOLLOW;
            let opened = openat(above, part, flags, Mode::empty());
            dir = Some(opened.map_err(|errno| match errno {
                Errno::NOTDIR | Errno::LOOP => {
                    no_group(name, "a part of it is a symbolic link or a file")
                }
                errno => failed("open", &path, errno),
            })?);
        }
        let dir = dir.ok_or_else(|| no_group(name, "it is empty"))?;
        let stat = fstat(&dir).map_err(|errno| failed("look at", &path, errno))?;
        Ok(Group {
            dir,
            path,
            name: name.to_owned(),
            id: stat.st_ino,
        })
    }

    /// Reads a file of the root itself; `None` if it is not there.
    pub(crate) fn read(&self, file: &str) -> Result<Option<String>, ControlError> {
        let path = self.path.join(file);
        match read(&self.dir, file, &path) {
            Err(ControlError::Vanished { .. }) => Ok(None),
            text => text.map(Some),
        }
    }
}

impl Group {
    /// The name of the group, relative to its root.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of the group's directory, by which one that was made again is told apart.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The path of one of its files, for messages.
    pub fn path_of(&self, file: &str) -> PathBuf {
        self.path.join(file)
    }

    /// Reads a file of the group.
    pub(crate) fn read(&self, file: &str) -> Result<String, ControlError> {
        read(&self.dir, file, &self.path_of(file))
    }

    /// Writes a file of the group in one call, as the kernel wants it.
    pub(crate) fn write(&self, file: &str, text: &str) -> Result<(), ControlError> {
        let path = self.path_of(file);
        let flags = OFlags::WRONLY | OFlags::TRUNC | special();
        let opened = openat(&self.dir, file, flags, Mode::empty());
        let opened = opened.map_err(|errno| failed("open", &path, errno))?;
        let written = rustix::io::write(&opened, text.as_bytes());
        match written.map_err(|errno| failed("write", &path, errno))? {
            bytes if bytes == text.len() => Ok(()),
            _ => Err(failed("write all of", &path, Errno::IO)),
        }
    }

    /// Gives one of its files to a user.
    pub(crate) fn give(&self, file: &str, uid: u32) -> Result<(), ControlError> {
        let path = self.path_of(file);
        let opened = openat(&self.dir, file, OFlags::RDONLY | special(), Mode::empty());
        let given = opened.and_then(|file| fchown(&file, Some(Uid::from_raw(uid)), None));
        given.map_err(|errno| failed("change the owner of", &path, errno))
    }

    /// Opens a file for writing and writes nothing.
    pub(crate) fn try_writing(&self, file: &str) -> Result<(), ControlError> {
        let flags = OFlags::WRONLY | special();
        let opened = openat(&self.dir, file, flags, Mode::empty());
        let opened = opened.map(drop);
        opened.map_err(|errno| failed("write", &self.path_of(file), errno))
    }
}

/// The parts of the name of a group.
fn parts(name: &str) -> Result<Vec<&str>, ControlError> {
    let refused = |reason| Err(no_group(name, reason));
    if name.is_empty() {
        return refused("it is empty");
    }
    if name.len() > GROUP_BYTES_MAX {
        return refused("it has more than 1024 bytes");
    }
    if name.contains('\0') {
        return refused("it has a byte 0");
    }
    if name.starts_with('/') {
        return refused("it is absolute: give it relative to the root of control groups");
    }
    let parts: Vec<&str> = name.split('/').collect();
    if parts.iter().any(|part| matches!(*part, "" | "." | "..")) {
        return refused("a part of it is empty, . or ..");
    }
    match parts.len() > GROUP_DEPTH_MAX {
        true => refused("it has more than 32 parts"),
        false => Ok(parts),
    }
}

fn read(dir: &OwnedFd, file: &str, path: &Path) -> Result<String, ControlError> {
    let flags = OFlags::RDONLY | special();
    let opened = openat(dir, file, flags, Mode::empty());
    let opened = opened.map_err(|errno| failed("open", path, errno))?;
    let stat = fstat(&opened).map_err(|errno| failed("look at", path, errno))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(failed("read", path, Errno::INVAL));
    }
    let mut bytes = vec![0; FILE_BYTES_MAX];
    let mut length = 0;
    while length < FILE_BYTES_MAX {
        match rustix::io::read(&opened, &mut bytes[length..]) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(failed("read", path, errno)),
        }
    }
    bytes.truncate(length);
    String::from_utf8(bytes).map_err(|_| failed("read", path, Errno::ILSEQ))
}

fn directory() -> OFlags {
    OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC
}

/// Flags for a file that may not be what it should: no link, no waiting for a pipe.
fn special() -> OFlags {
    OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC
}

/// The error of a call. A group that is removed under an open descriptor gives ENODEV or ENOENT.
pub(crate) fn failed(what: &'static str, path: &Path, errno: Errno) -> ControlError {
    let path = path.to_owned();
    match errno {
        Errno::NOENT | Errno::NODEV => ControlError::Vanished { path },
        errno => ControlError::Io {
            what,
            path,
            source: io::Error::from(errno),
        },
    }
}

fn no_group(name: &str, reason: &'static str) -> ControlError {
    ControlError::Name {
        what: "name of a control group",
        name: shown(name),
        reason,
    }
}

/// A text as an error repeats it.
pub(crate) fn shown(text: &str) -> String {
    cut(text.to_owned(), NAME_SHOWN_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_groups_do_not_lead_out_of_their_root() {
        let long = "a/".repeat(600) + "a";
        let deep = vec!["a"; GROUP_DEPTH_MAX + 1].join("/");
        let table = [
            ("a", Some(1)),
            ("slurm/uid_1000/job_7", Some(3)),
            ("user.slice/a b/ä", Some(3)),
            ("..a/b..", Some(2)),
            ("", None),
            ("/", None),
            ("/a", None),
            ("a/", None),
            ("a//b", None),
            (".", None),
            ("..", None),
            ("a/../b", None),
            ("a/./b", None),
            ("a\0b", None),
            (&long, None),
            (&deep, None),
        ];
        for (name, expect) in table {
            let parts = parts(name).ok().map(|it| it.len());
            assert_eq!(parts, expect, "{name:?}");
        }
    }
}

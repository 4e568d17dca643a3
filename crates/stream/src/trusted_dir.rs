//! A directory that was opened once and checked: its owner is known, and nobody else may write to
//! it.
//!
//! It is a module of its own because all data of an agent is read through it. `/dev/shm` is open to
//! all, so the name of a run directory proves nothing: whoever created the directory can truncate
//! its files under the processes that map them (a SIGBUS for each), and receives what callers send.
//! Files are opened relative to the checked directory, whatever its path means by then, and no link
//! is followed.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat};
use rustix::io::Errno;

use crate::StreamError;

/// Largest document that a reader takes.
pub const DOCUMENT_BYTES_MAX: u64 = 16 << 20;

/// The right of group or others to write.
const OTHERS_WRITE: u32 = 0o022;
const ROOT: u32 = 0;

/// The way in which a directory was chosen: it decides who may own the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DirTrust {
    /// The user named it (`--run-dir`, `BAROGRAPH_RUN_DIR`, an argument): anyone may own it, since
    /// agents also run as ordinary users.
    Named,
    /// A directory that was found under a name that anyone could have taken: this user or root must
    /// own it.
    Found,
    /// A directory that was found in one in which only root creates directories: anyone may own it,
    /// since root has given it to its owner.
    GivenByRoot,
}

/// A directory, opened and checked.
#[derive(Debug)]
pub struct TrustedDir {
    dir: OwnedFd,
    owner: u32,
    path: PathBuf,
}

impl TrustedDir {
    /// Opens a directory and checks it. [`StreamError::NoAgent`] if there is none.
    pub(crate) fn open(path: &Path, trust: DirTrust) -> Result<Self, StreamError> {
        let failed = |errno| not_opened(path, errno);
        let dir = match trust {
            DirTrust::Named => openat(CWD, path, directory(), Mode::empty()).map_err(failed)?,
            DirTrust::Found => open_found(path)?,
            DirTrust::GivenByRoot => open_given(path)?,
        };
        let stat = fstat(&dir).map_err(failed)?;
        if trust == DirTrust::Found {
            check_owner(path, &stat, &trusted_users(), USER_OR_ROOT)?;
        }
        check_mode(path, &stat)?;
        Ok(Self {
            dir,
            owner: stat.st_uid,
            path: path.to_owned(),
        })
    }

    /// The uid of the directory's owner.
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// Opens a directory in this one, which the same owner or root must own.
    pub(crate) fn below(&self, name: &str) -> Result<Self, StreamError> {
        let path = self.path.join(name);
        let flags = directory() | OFlags::NOFOLLOW;
        let dir = openat(&self.dir, name, flags, Mode::empty());
        let dir = dir.map_err(|errno| not_opened(&path, errno))?;
        let stat = fstat(&dir).map_err(|errno| not_opened(&path, errno))?;
        check_owner(&path, &stat, &[self.owner, ROOT], OWNER_OF_ALL)?;
        check_mode(&path, &stat)?;
        let owner = stat.st_uid;
        Ok(Self { dir, owner, path })
    }

    /// Opens a file in this directory for reading; `None` if there is none. The directory's owner
    /// or root must own it, and nobody else may write to it. Opening a pipe does not block.
    pub fn file(&self, name: impl AsRef<Path>) -> Result<Option<File>, StreamError> {
        let name = name.as_ref();
        let path = self.path.join(name);
        let failed = |errno: Errno| StreamError::Io {
            what: "open",
            path: path.clone(),
            source: errno.into(),
        };
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = match openat(&self.dir, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            opened => opened.map_err(failed)?,
        };
        let stat = fstat(&opened).map_err(failed)?;
        check_owner(&path, &stat, &[self.owner, ROOT], OWNER_OF_ALL)?;
        check_mode(&path, &stat)?;
        Ok(Some(File::from(opened)))
    }

    /// Reads a document in this directory; `None` if there is none.
    pub fn document(&self, name: &str) -> Result<Option<Vec<u8>>, StreamError> {
        let Some(file) = self.file(name)? else {
            return Ok(None);
        };
        let failed = |source| StreamError::Io {
            what: "read",
            path: self.path.join(name),
            source,
        };
        let mut bytes = Vec::new();
        let read = file.take(DOCUMENT_BYTES_MAX + 1).read_to_end(&mut bytes);
        read.map_err(failed)?;
        if bytes.len() as u64 > DOCUMENT_BYTES_MAX {
            let why = "the document is larger than any agent writes";
            return Err(failed(io::Error::other(why)));
        }
        Ok(Some(bytes))
    }

    /// The names of the directory's entries, in order.
    pub(crate) fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        for entry in Dir::new(openat(&self.dir, c".", flags, Mode::empty())?)? {
            let name = entry?.file_name().to_str().ok().map(str::to_owned);
            names.extend(name.filter(|name| !matches!(&**name, "." | "..")));
        }
        names.sort();
        Ok(names)
    }
}

fn directory() -> OFlags {
    OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC
}

/// Opens a directory where anyone may have put a link: of a link, both the link and its target are
/// checked.
fn open_found(path: &Path) -> Result<OwnedFd, StreamError> {
    let failed = |errno| not_opened(path, errno);
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let entry = openat(CWD, path, flags, Mode::empty()).map_err(failed)?;
    let stat = fstat(&entry).map_err(failed)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Ok(entry),
        FileType::Symlink => {
            check_owner(path, &stat, &trusted_users(), USER_OR_ROOT)?;
            // The target is read from the very link that was checked.
            let link = readlinkat(&entry, c"", Vec::new()).map_err(failed)?;
            let target = link.into_string().map_err(|_| failed(Errno::ILSEQ))?;
            let target = path.parent().unwrap_or(Path::new("/")).join(target);
            openat(CWD, target, directory(), Mode::empty()).map_err(failed)
        }
        _ => Err(failed(Errno::NOTDIR)),
    }
}

/// Opens a directory in one that only root may write to.
fn open_given(path: &Path) -> Result<OwnedFd, StreamError> {
    let failed = |errno| not_opened(path, errno);
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(failed(Errno::INVAL));
    };
    let given = openat(CWD, above, directory(), Mode::empty()).map_err(failed)?;
    let stat = fstat(&given).map_err(failed)?;
    check_owner(above, &stat, &[ROOT], "root")?;
    check_mode(above, &stat)?;
    let flags = directory() | OFlags::NOFOLLOW;
    openat(&given, name, flags, Mode::empty()).map_err(failed)
}

/// The users that may have created a found directory: the user for whom this program acts, and
/// root.
fn trusted_users() -> [u32; 2] {
    [rustix::process::geteuid().as_raw(), ROOT]
}

const USER_OR_ROOT: &str = "this user or root";
const OWNER_OF_ALL: &str = "the owner of its run directory or root";

fn check_owner(
    path: &Path,
    stat: &Stat,
    owners: &[u32],
    whose: &'static str,
) -> Result<(), StreamError> {
    match owners.contains(&stat.st_uid) {
        true => Ok(()),
        false => Err(StreamError::Untrusted {
            path: path.to_owned(),
            owner: stat.st_uid,
            whose,
        }),
    }
}

fn check_mode(path: &Path, stat: &Stat) -> Result<(), StreamError> {
    match stat.st_mode & OTHERS_WRITE {
        0 => Ok(()),
        _ => Err(StreamError::Exposed {
            path: path.to_owned(),
            mode: stat.st_mode & 0o7777,
        }),
    }
}

fn not_opened(path: &Path, errno: Errno) -> StreamError {
    match errno {
        Errno::NOENT => StreamError::NoAgent {
            path: path.to_owned(),
        },
        errno => StreamError::Io {
            what: "open",
            path: path.to_owned(),
            source: errno.into(),
        },
    }
}

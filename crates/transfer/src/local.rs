//! Files of this machine: directories that are entered one by one, sources, and targets that
//! appear when they are complete.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use barograph_model::{NS_PER_S, fnv1a};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Stat, Timespec, Timestamps, fchmod, fstat, fsync,
    futimens, mkdirat, openat, readlinkat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::TransferFault;

/// Most symbolic links that are followed on the way to a file.
const LINKS_MAX: u32 = 16;
/// Most bytes of a path.
const PATH_BYTES_MAX: usize = 4_096;
/// The permissions of a file that comes from a service.
const NEW_MODE: u32 = 0o640;
/// The permissions that a target takes from its source: none of those that lend rights.
const MODE_BITS: u32 = 0o777;

/// A place below a directory of this machine.
pub(crate) struct LocalPlace {
    /// Names of the directories, from the root on, and of the file.
    dirs: Vec<Vec<u8>>,
    name: Vec<u8>,
}

/// A source that is open.
pub(crate) struct LocalSource {
    pub(crate) file: File,
    dir: OwnedFd,
    stat: Stat,
}

/// A target that is being written, under a name of its own.
pub(crate) struct LocalTarget {
    pub(crate) file: File,
    dir: OwnedFd,
    part: Vec<u8>,
}

/// The parts of the path of a store that is a directory.
pub(crate) fn root(root: &str) -> Result<Vec<Vec<u8>>, TransferFault> {
    match root.starts_with('/') {
        true => parts(root.as_bytes()),
        false => Err(TransferFault::Lasting(format!(
            "file://{root}: the path of a directory is absolute, like file:///archive"
        ))),
    }
}

fn parts(path: &[u8]) -> Result<Vec<Vec<u8>>, TransferFault> {
    let lasting = |text: &str| Err(TransferFault::Lasting(text.to_owned()));
    if path.len() > PATH_BYTES_MAX || path.contains(&0) {
        return lasting("a path has at most 4096 bytes, none of them 0");
    }
    let all = path.split(|byte| *byte == b'/');
    let parts: Vec<Vec<u8>> = all
        .filter(|part| !matches!(*part, b"" | b"."))
        .map(<[u8]>::to_vec)
        .collect();
    match parts.iter().any(|part| part == b"..") {
        true => lasting("a path with .. is not taken"),
        false => Ok(parts),
    }
}

impl LocalPlace {
    pub(crate) fn of_path(path: &[u8]) -> Result<Self, TransferFault> {
        if !path.starts_with(b"/") {
            return Err(TransferFault::Lasting("the path is not absolute".into()));
        }
        Self::new(parts(path)?)
    }

    /// A file below the directory of a store.
    pub(crate) fn below(dir: &str, name: &[u8]) -> Result<Self, TransferFault> {
        let mut all = root(dir)?;
        let own = parts(name)?;
        if own.is_empty() {
            return Err(TransferFault::Lasting("the name is empty".into()));
        }
        all.extend(own);
        Self::new(all)
    }

    fn new(mut dirs: Vec<Vec<u8>>) -> Result<Self, TransferFault> {
        let name = dirs.pop();
        let name = name.ok_or_else(|| TransferFault::Lasting("it is the root".into()))?;
        Ok(Self { dirs, name })
    }

    /// The directory of the file. If it is to be made, so are those above it that are missing.
    fn dir(&self, is_made: bool) -> Result<OwnedFd, Errno> {
        let mut dir = openat(CWD, "/", dir_flags(), Mode::empty())?;
        let mut links = LINKS_MAX;
        for name in &self.dirs {
            dir = enter(&dir, name, is_made, &mut links)?;
        }
        Ok(dir)
    }

    /// Opens the file as a source; `None` if there is none.
    pub(crate) fn source(&self) -> Result<Option<LocalSource>, TransferFault> {
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = match self.dir(false) {
            Ok(dir) => match openat(&dir, os(&self.name), flags, Mode::empty()) {
                Err(Errno::LOOP) => {
                    return Err(TransferFault::Lasting("it is a symbolic link".into()));
                }
                opened => opened.map(|file| (dir, file)),
            },
            Err(error) => Err(error),
        };
        let (dir, file) = match opened {
            Err(Errno::NOENT) => return Ok(None),
            opened => opened.map_err(fault)?,
        };
        let stat = fstat(&file).map_err(fault)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(TransferFault::Lasting("it is not a regular file".into()));
        }
        Ok(Some(LocalSource {
            file: File::from(file),
            dir,
            stat,
        }))
    }

    /// Begins a target under a name of its own, which `key` makes the same each time.
    pub(crate) fn target(&self, key: &str) -> Result<LocalTarget, TransferFault> {
        let dir = self.dir(true).map_err(fault)?;
        let part = format!(".baro-{:016x}.part", fnv1a(key.as_bytes())).into_bytes();
        // What an earlier attempt has left.
        match unlinkat(&dir, os(&part), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(fault(error)),
        }
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&dir, os(&part), flags, Mode::RUSR | Mode::WUSR);
        let file = file.map_err(|error| match error {
            Errno::EXIST => beside(),
            error => fault(error),
        })?;
        Ok(LocalTarget {
            file: File::from(file),
            dir,
            part,
        })
    }

    /// Gives a complete target its name.
    pub(crate) fn put(&self, target: LocalTarget) -> Result<(), TransferFault> {
        let put = fsync(&target.file).and_then(|()| {
            // An attempt that nobody waits for any more may still run beside this one.
            let (own, there) = (
                fstat(&target.file)?,
                statat(&target.dir, os(&target.part), AtFlags::SYMLINK_NOFOLLOW)?,
            );
            if (own.st_dev, own.st_ino) != (there.st_dev, there.st_ino) {
                return Err(Errno::BUSY);
            }
            renameat(&target.dir, os(&target.part), &target.dir, os(&self.name))?;
            sync_dir(&target.dir)
        });
        put.map_err(|error| match error {
            Errno::BUSY | Errno::NOENT => beside(),
            error => {
                target.abandon();
                fault(error)
            }
        })
    }

    /// Renames the file of `from` to this place. `None`: the two are in different file systems.
    pub(crate) fn take(
        &self,
        from: &Self,
        source: &LocalSource,
    ) -> Result<Option<()>, TransferFault> {
        let dir = self.dir(true).map_err(fault)?;
        match renameat(&source.dir, os(&from.name), &dir, os(&self.name)) {
            Err(Errno::XDEV) => Ok(None),
            renamed => {
                let kept = renamed
                    .and_then(|()| sync_dir(&dir))
                    .and_then(|()| sync_dir(&source.dir));
                kept.map(Some).map_err(fault)
            }
        }
    }

    /// Deletes a source of which there is a copy, if it is the file that was copied.
    pub(crate) fn delete_copied(&self, source: &LocalSource) -> Result<(), TransferFault> {
        let now = match statat(&source.dir, os(&self.name), AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(()),
            now => now.map_err(fault)?,
        };
        if !is_same(&source.stat, &now) {
            return Err(changed());
        }
        unlinkat(&source.dir, os(&self.name), AtFlags::empty())
            .and_then(|()| sync_dir(&source.dir))
            .map_err(fault)
    }

    pub(crate) fn delete(&self) -> Result<bool, TransferFault> {
        let deleted = self.dir(false).and_then(|dir| {
            unlinkat(&dir, os(&self.name), AtFlags::empty())?;
            sync_dir(&dir)
        });
        match deleted {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(Errno::ISDIR) => Err(TransferFault::Lasting("it is a directory".into())),
            Err(error) => Err(fault(error)),
        }
    }

    /// When the file got its name or its contents, in ns since the epoch; `None` if there is none.
    pub(crate) fn arrived_ns(&self) -> Result<Option<i64>, TransferFault> {
        let stat = self
            .dir(false)
            .and_then(|dir| statat(&dir, os(&self.name), AtFlags::SYMLINK_NOFOLLOW));
        match stat {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
                // A rename changes the time of the last change of an inode, and a copy is new.
                let seconds_ns = stat.st_ctime.saturating_mul(NS_PER_S);
                Ok(Some(seconds_ns.saturating_add(stat.st_ctime_nsec as i64)))
            }
            Ok(_) | Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(fault(error)),
        }
    }
}

impl LocalSource {
    /// Size of the file when it was opened, in bytes.
    pub(crate) fn size(&self) -> u64 {
        u64::try_from(self.stat.st_size).unwrap_or_default()
    }

    /// Checks that nobody has written to the file since it was opened.
    pub(crate) fn check_same(&self) -> Result<(), TransferFault> {
        let now = fstat(&self.file).map_err(fault)?;
        match is_same(&self.stat, &now) {
            true => Ok(()),
            false => Err(changed()),
        }
    }
}

impl LocalTarget {
    /// Gives the target the permissions and the times of its source.
    pub(crate) fn resemble(&self, source: &LocalSource) -> Result<(), TransferFault> {
        let stat = &source.stat;
        let times = Timestamps {
            last_access: Timespec {
                tv_sec: stat.st_atime,
                tv_nsec: stat.st_atime_nsec as _,
            },
            last_modification: Timespec {
                tv_sec: stat.st_mtime,
                tv_nsec: stat.st_mtime_nsec as _,
            },
        };
        fchmod(&self.file, Mode::from_raw_mode(stat.st_mode & MODE_BITS))
            .and_then(|()| futimens(&self.file, &times))
            .map_err(fault)
    }

    /// Gives the target the permissions of a new file.
    pub(crate) fn permit(&self) -> Result<(), TransferFault> {
        fchmod(&self.file, Mode::from_raw_mode(NEW_MODE)).map_err(fault)
    }

    /// Removes what was written.
    pub(crate) fn abandon(&self) {
        // The next attempt removes it otherwise.
        let _ = unlinkat(&self.dir, os(&self.part), AtFlags::empty());
    }
}

fn beside() -> TransferFault {
    TransferFault::Passing("another attempt at it is under way".into())
}

fn changed() -> TransferFault {
    TransferFault::Passing("the file was changed meanwhile".into())
}

/// Whether two looks saw the same file with the same contents.
fn is_same(then: &Stat, now: &Stat) -> bool {
    let of = |stat: &Stat| {
        (
            (stat.st_dev, stat.st_ino, stat.st_size),
            (stat.st_mtime, stat.st_mtime_nsec),
            (stat.st_ctime, stat.st_ctime_nsec),
        )
    };
    of(then) == of(now)
}

fn os(name: &[u8]) -> &OsStr {
    OsStr::from_bytes(name)
}

fn dir_flags() -> OFlags {
    OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC
}

/// Opens a directory in another one. A symbolic link is followed only if root or the user of this
/// process has made it.
fn enter(dir: &OwnedFd, name: &[u8], is_made: bool, links: &mut u32) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || openat(dir, os(name), flags, Mode::empty());
    let found = match open() {
        Err(Errno::NOENT) if is_made => {
            match mkdirat(dir, os(name), Mode::RWXU | Mode::RWXG | Mode::RWXO) {
                Ok(()) | Err(Errno::EXIST) => open()?,
                Err(error) => return Err(error),
            }
        }
        found => found?,
    };
    let stat = fstat(&found)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Ok(found),
        FileType::Symlink => {
            let is_trusted = stat.st_uid == 0 || stat.st_uid == geteuid().as_raw();
            if !is_trusted || *links == 0 {
                return Err(Errno::LOOP);
            }
            *links -= 1;
            let target = readlinkat(&found, "", Vec::new())?.into_bytes();
            let mut at = match target.starts_with(b"/") {
                true => openat(CWD, "/", dir_flags(), Mode::empty())?,
                false => openat(dir, ".", dir_flags(), Mode::empty())?,
            };
            for part in target
                .split(|byte| *byte == b'/')
                .filter(|it| !it.is_empty())
            {
                at = enter(&at, part, false, links)?;
            }
            Ok(at)
        }
        _ => Err(Errno::NOTDIR),
    }
}

/// Makes the names of a directory durable, if it may be read.
fn sync_dir(dir: impl AsFd) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat(dir, ".", flags, Mode::empty()) {
        Ok(dir) => match fsync(&dir) {
            // Some file systems have nothing to sync in a directory.
            Err(Errno::INVAL | Errno::ROFS) => Ok(()),
            synced => synced,
        },
        Err(Errno::ACCESS) => Ok(()),
        Err(error) => Err(error),
    }
}

pub(crate) fn fault(error: Errno) -> TransferFault {
    let text = io::Error::from(error).to_string();
    match error {
        Errno::LOOP => TransferFault::Lasting(
            "a symbolic link that is neither root's nor this user's is in the way".into(),
        ),
        Errno::NOENT
        | Errno::NOTDIR
        | Errno::ISDIR
        | Errno::NAMETOOLONG
        | Errno::INVAL
        | Errno::ACCESS
        | Errno::PERM
        | Errno::NOTEMPTY
        | Errno::EXIST
        | Errno::FBIG
        | Errno::OPNOTSUPP => TransferFault::Lasting(text),
        _ => TransferFault::Passing(text),
    }
}

/// The fault of an input or output.
pub(crate) fn io_fault(error: &io::Error) -> TransferFault {
    match error.raw_os_error() {
        Some(code) => fault(Errno::from_raw_os_error(code)),
        None => TransferFault::Passing(error.to_string()),
    }
}

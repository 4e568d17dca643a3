//! The journal: what has to be restored if this process is killed. It is a directory with one small
//! file for each group whose setting is changed, which is on disk before the change is made.
//!
//! Its files are read as foreign bytes: an entry names a group relative to the root that the reader
//! gives, and settings out of range are refused, so that a forged entry cannot lead elsewhere.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use barograph_model::fnv1a;
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, fsync, openat, renameat, unlinkat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::ControlError;
use crate::cgroup::backend::{IoSetting, WeightBackend};
use crate::cgroup::place::{GROUP_BYTES_MAX, Group};

/// The version of entries. An entry of another version is left alone.
const VERSION: u32 = 1;
/// Most bytes of an entry: the name of the group, each byte of which may take six in JSON, and the
/// rest.
const ENTRY_BYTES_MAX: usize = 6 * GROUP_BYTES_MAX + 2_048;
/// Most entries that one recovery reads; the next one reads the others.
const ENTRIES_MAX: usize = 1_024;
const PREFIX: &str = "weight-";
const SUFFIX: &str = ".json";
/// The end of the name of an entry that is being written.
const UNFINISHED: &str = ".new";

/// What was in a file, and what was written to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct JournalEntry {
    pub(crate) version: u32,
    pub(crate) group: String,
    pub(crate) group_id: u64,
    pub(crate) backend: WeightBackend,
    /// The setting to be restored.
    pub(crate) old: IoSetting,
    /// The settings that the file may have from us: the one that is about to be written, and the
    /// one before it, which is still there if the process was killed before it wrote.
    pub(crate) written: Vec<IoSetting>,
}

impl JournalEntry {
    pub(crate) fn new(group: &Group, backend: WeightBackend, old: IoSetting) -> Self {
        Self {
            version: VERSION,
            group: group.name().to_owned(),
            group_id: group.id(),
            backend,
            old,
            written: Vec::new(),
        }
    }
}

/// The directory of the journal. One agent uses it at a time, as for its state directory.
#[derive(Debug)]
pub struct WeightJournal {
    dir: OwnedFd,
    path: PathBuf,
}

/// An entry as it was found.
pub(crate) enum FoundEntry {
    Whole(JournalEntry),
    /// A file from which nothing can be restored, with the reason.
    Damaged(String),
    /// An entry of another version of this program.
    Other(u32),
}

impl WeightJournal {
    /// Opens the directory, which must be there.
    ///
    /// # Errors
    ///
    /// [`ControlError::Io`] with its path.
    pub fn open(path: &Path) -> Result<Self, ControlError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(CWD, path, flags, Mode::empty());
        Ok(Self {
            dir: dir.map_err(|errno| failed("open", path, errno))?,
            path: path.to_owned(),
        })
    }

    /// The path of the entry for a group, and whether there is one.
    pub(crate) fn find(&self, group: &str, backend: WeightBackend) -> (PathBuf, bool) {
        let name = entry_name(group, backend);
        let found = rustix::fs::statat(&self.dir, &*name, AtFlags::SYMLINK_NOFOLLOW);
        (self.path.join(name), found.is_ok())
    }

    /// Keeps an entry, in place of an earlier one for the same group. It is on disk, whole, when
    /// this returns; until then the earlier one is.
    pub(crate) fn put(&self, entry: &JournalEntry) -> Result<(), ControlError> {
        let name = entry_name(&entry.group, entry.backend);
        let new = format!(".{name}{UNFINISHED}");
        let text = serde_json::to_vec(entry).expect("an entry has names and numbers only");
        let kept = self.write(&new, &text).and_then(|()| {
            renameat(&self.dir, &*new, &self.dir, &*name)?;
            fsync(&self.dir)
        });
        kept.map_err(|errno| failed("write", &self.path.join(name), errno))
    }

    fn write(&self, name: &str, text: &[u8]) -> Result<(), Errno> {
        let flags = OFlags::WRONLY
            | OFlags::CREATE
            | OFlags::TRUNC
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::CLOEXEC;
        let file = openat(&self.dir, name, flags, Mode::RUSR | Mode::WUSR)?;
        let mut rest = text;
        while !rest.is_empty() {
            match rustix::io::write(&file, rest) {
                Ok(0) => return Err(Errno::IO),
                Ok(written) => rest = &rest[written..],
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        fsync(&file)
    }

    /// Removes the entry for a group, if there is one.
    pub(crate) fn remove(&self, group: &str, backend: WeightBackend) -> Result<(), ControlError> {
        self.remove_file(&entry_name(group, backend))
    }

    /// Removes a file of the journal, if it is there.
    pub(crate) fn remove_file(&self, name: &str) -> Result<(), ControlError> {
        match unlinkat(&self.dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(failed("remove", &self.path.join(name), errno)),
        }
    }

    /// All entries with the names of their files, in the order of these. What a killed process was
    /// writing is removed.
    pub(crate) fn entries(&self) -> Result<Vec<(String, FoundEntry)>, ControlError> {
        let names = self.names();
        let names = names.map_err(|errno| failed("read", &self.path, errno))?;
        let found = names.into_iter().map(|name| {
            let entry = self.read(&name);
            (name, entry)
        });
        Ok(found.collect())
    }

    fn names(&self) -> Result<Vec<String>, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut names = Vec::new();
        for entry in Dir::new(openat(&self.dir, c".", flags, Mode::empty())?)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            if name.starts_with(PREFIX) && name.ends_with(SUFFIX) {
                names.push(name.to_owned());
            } else if name.strip_prefix('.').is_some_and(is_unfinished) {
                unlinkat(&self.dir, name, AtFlags::empty())?;
            }
        }
        names.sort();
        names.truncate(ENTRIES_MAX);
        Ok(names)
    }

    fn read(&self, name: &str) -> FoundEntry {
        let bytes = match self.bytes(name) {
            Ok(bytes) => bytes,
            Err(errno) => return FoundEntry::Damaged(io::Error::from(errno).to_string()),
        };
        let value: Result<serde_json::Value, _> = serde_json::from_slice(&bytes);
        let version = value.as_ref().ok().and_then(|it| it["version"].as_u64());
        match (value, version) {
            (Ok(value), Some(version)) if version == u64::from(VERSION) => {
                match serde_json::from_value::<JournalEntry>(value) {
                    Ok(entry) if entry_name(&entry.group, entry.backend) != name => {
                        FoundEntry::Damaged("its name is that of another group".into())
                    }
                    Ok(entry) => FoundEntry::Whole(entry),
                    Err(error) => FoundEntry::Damaged(error.to_string()),
                }
            }
            (Ok(_), Some(version)) => FoundEntry::Other(u32::try_from(version).unwrap_or(u32::MAX)),
            (Ok(_), None) => FoundEntry::Damaged("it has no version".into()),
            (Err(error), _) => FoundEntry::Damaged(error.to_string()),
        }
    }

    fn bytes(&self, name: &str) -> Result<Vec<u8>, Errno> {
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = openat(&self.dir, name, flags, Mode::empty())?;
        let mut bytes = vec![0; ENTRY_BYTES_MAX + 1];
        let mut length = 0;
        while length < bytes.len() {
            match rustix::io::read(&file, &mut bytes[length..]) {
                Ok(0) => break,
                Ok(read) => length += read,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        bytes.truncate(length);
        match length > ENTRY_BYTES_MAX {
            true => Err(Errno::FBIG),
            false => Ok(bytes),
        }
    }
}

fn is_unfinished(name: &str) -> bool {
    name.starts_with(PREFIX) && name.ends_with(UNFINISHED)
}

/// The name of the file of an entry: that of one group and one file of it.
fn entry_name(group: &str, backend: WeightBackend) -> String {
    let device = match backend {
        WeightBackend::V2Max { device } => device.to_string(),
        _ => String::new(),
    };
    let key = format!("{} {device} {group}", backend.file());
    format!("{PREFIX}{:016x}{SUFFIX}", fnv1a(key.as_bytes()))
}

fn failed(what: &'static str, path: &Path, errno: Errno) -> ControlError {
    ControlError::Io {
        what,
        path: path.to_owned(),
        source: errno.into(),
    }
}

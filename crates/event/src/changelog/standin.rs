//! A stand-in of the ChangeLog of a metadata target, in a directory: for tests and demonstrations
//! where no Lustre is.
//!
//! The file `records` has the binary records; the directory `users` has a file for each registered
//! user with the index up to which the user has cleared; the file `purged` has the index up to
//! which records are no longer handed out. The rules of registering, clearing and purging are those
//! of a metadata target. Nothing is cut off the file, so that a long demonstration needs its space.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::device::{ChangelogDevice, ChangelogUser};
use super::fid::Fid;
use super::places::FidLink;
use super::record::{ChangelogFault, ChangelogRecord, HEADER_BYTES};
use super::resolver::{FidPaths, FidPlace};

/// The writing side of a stand-in: what the metadata target would do.
#[derive(Debug)]
pub struct StandInLog {
    directory: PathBuf,
    records: File,
    /// Bytes to be written.
    pending: Vec<u8>,
    last: u64,
}

impl StandInLog {
    /// Makes a stand-in in a directory, or goes on with the one that is there.
    ///
    /// # Errors
    ///
    /// The directory cannot be written, or its records make no sense.
    pub fn open(directory: impl Into<PathBuf>) -> io::Result<Self> {
        let directory = directory.into();
        std::fs::create_dir_all(directory.join("users"))?;
        let path = directory.join("records");
        let records = OpenOptions::new().create(true).append(true).open(&path)?;
        let last = last_index(&std::fs::read(&path)?)?;
        Ok(Self {
            directory,
            records,
            pending: Vec::new(),
            last,
        })
    }

    /// Index of the last record.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Adds a record and gives its index, which follows that of the last one. It can be read after
    /// [`Self::flush`].
    pub fn append(&mut self, record: &ChangelogRecord<'_>) -> u64 {
        self.last += 1;
        let record = ChangelogRecord {
            index: self.last,
            ..*record
        };
        record.encode(&mut self.pending);
        self.last
    }

    /// Takes an index without writing its record.
    pub fn skip(&mut self) {
        self.last += 1;
    }

    /// Writes the records that were added.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.records.write_all(&self.pending)?;
        self.pending.clear();
        Ok(())
    }

    /// Registers a user, which has to clear the records from the next one on.
    ///
    /// # Errors
    ///
    /// The directory cannot be read or written.
    pub fn register(&self) -> io::Result<ChangelogUser> {
        let users = users(&self.directory)?;
        let user = ChangelogUser(users.keys().last().map_or(1, |last| last + 1));
        write_number(&user_path(&self.directory, user), self.last)?;
        Ok(user)
    }

    /// Removes a user, as a metadata target does with one that clears nothing for too long, and
    /// purges what only that user needed.
    ///
    /// # Errors
    ///
    /// There is no such user, or the directory cannot be written.
    pub fn remove(&self, user: ChangelogUser) -> io::Result<()> {
        std::fs::remove_file(user_path(&self.directory, user))?;
        purge(&self.directory, self.last)
    }

    /// Index up to which a user has cleared; `None` if there is no such user.
    ///
    /// # Errors
    ///
    /// The directory cannot be read.
    pub fn cleared(&self, user: ChangelogUser) -> io::Result<Option<u64>> {
        Ok(users(&self.directory)?.get(&user.0).copied())
    }
}

/// The reading side of a stand-in.
#[derive(Debug)]
pub struct StandInDevice {
    directory: PathBuf,
    file: Option<File>,
    /// Index of the first record that is wanted.
    from: u64,
    /// Place in the file, and the index of the record before it.
    offset: u64,
    before: u64,
}

impl StandInDevice {
    /// The device of the stand-in in this directory.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            file: None,
            from: 0,
            offset: 0,
            before: 0,
        }
    }

    /// Removes the records before the first one that is wanted from what was read, and gives the
    /// number of bytes that are left.
    fn keep_wanted(&mut self, buffer: &mut [u8], filled: usize) -> io::Result<(usize, usize)> {
        let (mut at, mut kept) = (0, 0);
        loop {
            match ChangelogRecord::parse(&buffer[at..filled]) {
                Ok((record, length)) => {
                    let index = record.index;
                    if index >= self.from {
                        buffer.copy_within(at..at + length, kept);
                        kept += length;
                    }
                    self.before = index;
                    at += length;
                }
                // The rest of the record is read with the next bytes.
                Err(ChangelogFault::Short) => return Ok((at, kept)),
                Err(fault) => return Err(io::Error::new(ErrorKind::InvalidData, fault)),
            }
        }
    }
}

impl ChangelogDevice for StandInDevice {
    fn scan(&mut self, index: u64) -> io::Result<()> {
        let purged = number(&self.directory.join("purged"))?.unwrap_or(0);
        self.file = Some(File::open(self.directory.join("records"))?);
        self.from = index.max(purged + 1);
        if self.from <= self.before {
            (self.offset, self.before) = (0, 0);
        }
        Ok(())
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let file = self.file.as_ref();
            let file = file.ok_or_else(|| io::Error::other("no scan has been begun"))?;
            let filled = file.read_at(buffer, self.offset)?;
            let (passed, kept) = self.keep_wanted(buffer, filled)?;
            self.offset += passed as u64;
            if kept > 0 || passed == 0 {
                return Ok(kept);
            }
        }
    }

    fn clear(&mut self, user: ChangelogUser, index: u64) -> io::Result<()> {
        let last = last_index(&std::fs::read(self.directory.join("records"))?)?;
        let cleared = users(&self.directory)?.get(&user.0).copied();
        let index = if index == 0 { last } else { index };
        match cleared {
            _ if index > last => Err(ErrorKind::InvalidInput.into()),
            Some(cleared) if index >= cleared => {
                write_number(&user_path(&self.directory, user), index)?;
                purge(&self.directory, last)
            }
            _ => Err(ErrorKind::NotFound.into()),
        }
    }

    fn readable(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn path(&self) -> &Path {
        &self.directory
    }
}

/// Index of the last record of a file.
fn last_index(bytes: &[u8]) -> io::Result<u64> {
    let (mut rest, mut last) = (bytes, 0);
    while rest.len() >= HEADER_BYTES {
        match ChangelogRecord::parse(rest) {
            Ok((record, length)) => {
                last = record.index;
                rest = &rest[length..];
            }
            Err(ChangelogFault::Short) => break,
            Err(fault) => return Err(io::Error::new(ErrorKind::InvalidData, fault)),
        }
    }
    Ok(last)
}

/// The users, each with the index up to which it has cleared.
fn users(directory: &Path) -> io::Result<BTreeMap<u32, u64>> {
    let mut users = BTreeMap::new();
    for entry in std::fs::read_dir(directory.join("users"))? {
        let entry = entry?;
        let user = entry.file_name().to_str().and_then(ChangelogUser::parse);
        if let (Some(user), Some(cleared)) = (user, number(&entry.path())?) {
            users.insert(user.0, cleared);
        }
    }
    Ok(users)
}

fn user_path(directory: &Path, user: ChangelogUser) -> PathBuf {
    directory.join("users").join(format!("cl{}", user.0))
}

/// Purges what no user needs.
fn purge(directory: &Path, last: u64) -> io::Result<()> {
    let purged = users(directory)?.values().copied().min().unwrap_or(last);
    write_number(&directory.join("purged"), purged)
}

fn number(path: &Path) -> io::Result<Option<u64>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text.trim().parse().ok()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn write_number(path: &Path, number: u64) -> io::Result<()> {
    let new = path.with_extension("new");
    std::fs::write(&new, number.to_string())?;
    std::fs::rename(&new, path)
}

/// A stand-in of the file system that tells the places of files: a map that a test changes.
#[derive(Clone, Debug, Default)]
pub struct StandInPaths(Arc<Mutex<StandInPlaces>>);

#[derive(Debug, Default)]
struct StandInPlaces {
    links: BTreeMap<Fid, Vec<FidLink>>,
    is_refusing: bool,
    asked: Vec<Fid>,
}

impl StandInPaths {
    /// Sets the links of a file; without links it is gone.
    pub fn set(&self, fid: Fid, links: Vec<FidLink>) {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match links.is_empty() {
            true => places.links.remove(&fid),
            false => places.links.insert(fid, links),
        };
    }

    /// Sets whether all questions fail.
    pub fn refuse(&self, is_refusing: bool) {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        places.is_refusing = is_refusing;
    }

    /// Takes the FIDs that were asked for.
    pub fn take_asked(&self) -> Vec<Fid> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut places.asked)
    }
}

impl FidPaths for StandInPaths {
    fn places(&mut self, fids: &[Fid]) -> Vec<FidPlace> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        places.asked.extend(fids);
        let place = |fid: &Fid| match places.links.get(fid) {
            _ if places.is_refusing => FidPlace::Refused(ErrorKind::TimedOut.into()),
            Some(links) => FidPlace::Links(links.clone()),
            None => FidPlace::Gone,
        };
        fids.iter().map(place).collect()
    }
}

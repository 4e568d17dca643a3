//! Copies as files in a directory: `u<uid>/<number>.block`, one for each version of a block.
//!
//! A file is written under another name and renamed when it is complete. Numbers are not used
//! again, so nothing is ever overwritten and a reader that has a file open keeps it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::config::Durability;
use super::disk::{Disk, DiskFile};
use super::found::{FoundCopy, Scan};
use super::header::FileHead;
use crate::block::UserId;

/// The name of the file that says that the server stopped in order.
const CLEAN: &str = "clean";
const BLOCK: &str = "block";
const DRAFT: &str = "draft";

/// A directory of files.
pub(crate) struct DirectoryMedium {
    path: PathBuf,
    disk: Arc<dyn Disk>,
    /// Whether files and their names are synced.
    is_synced: bool,
}

/// A file that is being written.
pub(crate) struct DraftFile {
    path: PathBuf,
    /// `None` when it is closed.
    file: Option<Box<dyn DiskFile>>,
}

impl DirectoryMedium {
    pub(crate) fn new(path: PathBuf, disk: Arc<dyn Disk>, durability: Durability) -> Self {
        Self {
            path,
            disk,
            is_synced: durability == Durability::Synced,
        }
    }

    /// Begins a file.
    pub(crate) fn create(&self, number: u64, head: &FileHead) -> io::Result<(Box<str>, DraftFile)> {
        let name = format!("u{}/{number:016x}.{BLOCK}", head.user);
        let path = self.path.join(&name).with_extension(DRAFT);
        let made = self
            .disk
            .make_directory(&self.user_directory(head.user))
            .and_then(|()| self.disk.create(&path));
        let mut draft = DraftFile {
            path,
            file: Some(made.map_err(|error| said(&self.path.join(&name), &error))?),
        };
        match draft.append(&head.encode()) {
            Ok(()) => Ok((name.into(), draft)),
            Err(error) => {
                self.abandon(draft);
                Err(error)
            }
        }
    }

    /// Gives a file its name. The caller has written all bytes, with their checksum.
    pub(crate) fn finish(&self, name: &str, mut draft: DraftFile) -> io::Result<()> {
        let finished = self.complete(name, &mut draft);
        finished.map_err(|error| {
            let error = said(&draft.path, &error);
            self.abandon(draft);
            error
        })
    }

    fn complete(&self, name: &str, draft: &mut DraftFile) -> io::Result<()> {
        let mut file = draft.file.take();
        if self.is_synced
            && let Some(file) = &mut file
        {
            file.sync()?;
        }
        let path = self.path.join(name);
        self.disk.rename(&draft.path, &path)?;
        let directory = path.parent().unwrap_or(&self.path);
        if self.is_synced
            && let Err(error) = self.disk.sync_directory(directory)
        {
            // Its name may be gone after a loss of power: it is no copy.
            let _ = self.disk.remove(&path);
            return Err(error);
        }
        Ok(())
    }

    /// Removes a file that is not finished. A draft that stays is removed by the next start.
    pub(crate) fn abandon(&self, mut draft: DraftFile) {
        draft.file = None;
        let _ = self.disk.remove(&draft.path);
    }

    pub(crate) fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.disk.open(&self.path.join(name))
    }

    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        match self.disk.remove(&self.path.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Makes the removal of files of a user durable, where the tier is synced.
    pub(crate) fn sync_names(&self, user: UserId) -> io::Result<()> {
        match self.is_synced {
            true => self.disk.sync_directory(&self.user_directory(user)),
            false => Ok(()),
        }
    }

    fn user_directory(&self, user: UserId) -> PathBuf {
        self.path.join(format!("u{user}"))
    }

    /// Looks at what is there. Returns it with the first number that is not in use.
    pub(crate) fn scan(&self) -> io::Result<(Scan, u64)> {
        let mut scan = Scan::default();
        let mut next = 0;
        for name in self.disk.names(&self.path)? {
            if name == CLEAN {
                let path = self.path.join(name);
                let mut epoch = [0; 8];
                let read = self.disk.open(&path);
                let read = read.and_then(|file| file.read_at(&mut epoch, 0));
                scan.clean_epoch = read.is_ok().then(|| u64::from_le_bytes(epoch));
                self.disk.remove(&path)?;
                continue;
            }
            let user = name
                .to_str()
                .and_then(|name| name.strip_prefix('u')?.parse().ok());
            let Some(user) = user else { continue };
            let directory = self.path.join(name);
            for name in self.disk.names(&directory)? {
                let path = directory.join(name);
                let Some(number) = number_of(&path) else {
                    continue;
                };
                next = next.max(number + 1);
                match self.found(user, &path) {
                    Some(copy) => scan.copies.push(copy),
                    None => {
                        scan.torn += 1;
                        self.disk.remove(&path)?;
                    }
                }
            }
        }
        Ok((scan, next))
    }

    /// A file, if it is complete and has a valid header.
    fn found(&self, user: UserId, path: &Path) -> Option<FoundCopy> {
        if path.extension().is_none_or(|extension| extension != BLOCK) {
            return None;
        }
        let file = self.disk.open(path).ok()?;
        let mut start = [0; 10];
        file.read_at(&mut start, 0).ok()?;
        let mut header = vec![0; FileHead::length(&start)?];
        file.read_at(&mut header, 0).ok()?;
        let head = FileHead::decode(&header).ok()?;
        let header_bytes = header.len() as u64;
        let is_whole = file.bytes().ok()? == header_bytes.checked_add(head.bytes)?;
        if !is_whole || head.user != user || head.bytes > crate::BLOCK_BYTES_MAX {
            return None;
        }
        Some(FoundCopy {
            name: path.strip_prefix(&self.path).ok()?.to_str()?.into(),
            head,
            header_bytes,
        })
    }

    /// Notes that the server stops in order: everything that was acknowledged is on tiers.
    pub(crate) fn mark_clean(&self, joined_epoch: u64) -> io::Result<()> {
        let path = self.path.join(CLEAN);
        let mut file = match self.disk.create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
            made => made?,
        };
        file.append(&joined_epoch.to_le_bytes())?;
        if self.is_synced {
            file.sync()?;
            self.disk.sync_directory(&self.path)?;
        }
        Ok(())
    }
}

impl DraftFile {
    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let file = self.file.as_mut();
        let appended = file.ok_or(io::ErrorKind::InvalidInput.into());
        let appended = appended.and_then(|file| file.append(bytes));
        appended.map_err(|error| said(&self.path, &error))
    }
}

/// The error with its file.
fn said(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// The number of a file of ours.
fn number_of(path: &Path) -> Option<u64> {
    let is_ours = path
        .extension()
        .is_some_and(|it| it == BLOCK || it == DRAFT);
    let stem = path.file_stem()?.to_str()?;
    u64::from_str_radix(stem, 16)
        .ok()
        .filter(|number| is_ours && *number < u64::MAX)
}

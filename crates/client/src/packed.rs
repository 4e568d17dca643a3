//! Packed arrays as files: read in part, and written so that a file appears when it is complete.
//!
//! The crate `progressive` reads no file itself; what is here is all that readers in Rust, Python
//! and C and the command `baro data` need of files.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use barograph_progressive::{ArrayHeader, ArrayListing, ByteSource, ProgressiveError};
use thiserror::Error;

use crate::tiered::index_of;

/// The bytes of an open file, which are read where they are asked for.
#[derive(Debug)]
pub struct FileBytes {
    file: File,
    bytes: u64,
}

impl FileBytes {
    /// Opens a file for reading.
    ///
    /// # Errors
    ///
    /// It cannot be opened, or is no regular file.
    pub fn open(path: &Path) -> io::Result<Self> {
        // The opening of a pipe would wait for a writer.
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path)?;
        Self::of(file)
    }

    fn of(file: File) -> io::Result<Self> {
        let seen = file.metadata()?;
        match seen.is_file() {
            true => Ok(Self {
                file,
                bytes: seen.len(),
            }),
            false => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is no regular file",
            )),
        }
    }

    /// The file itself.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

impl ByteSource for FileBytes {
    fn byte_count(&self) -> u64 {
        self.bytes
    }

    fn fetch(&self, place: Range<u64>) -> io::Result<Cow<'_, [u8]>> {
        let count = usize::try_from(place.end.saturating_sub(place.start));
        let count = count.map_err(|_| io::ErrorKind::OutOfMemory)?;
        let mut bytes = Vec::new();
        // A file with holes may tell of more bytes than there is memory.
        bytes.try_reserve_exact(count)?;
        bytes.resize(count, 0);
        self.file.read_exact_at(&mut bytes, place.start)?;
        Ok(Cow::Owned(bytes))
    }
}

/// Writes a file of these parts, and returns its size in bytes. It is written under another name
/// beside, synced and renamed: until then the file before is as it was, also when the disk is full.
///
/// # Errors
///
/// It cannot be written, or there is something of the name that is no regular file.
pub fn replace_file(path: &Path, parts: &[&[u8]]) -> io::Result<u64> {
    if std::fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        let text = "something is there that is no regular file: choose another name";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    let part = beside(path)?;
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&part)
        .and_then(|mut file| {
            parts.iter().try_for_each(|bytes| file.write_all(bytes))?;
            file.sync_all()
        })
        .and_then(|()| std::fs::rename(&part, path));
    if written.is_err() {
        // What is left of it would only take room.
        let _ = std::fs::remove_file(&part);
    }
    written.map(|()| parts.iter().map(|bytes| bytes.len() as u64).sum())
}

/// Appends an array to a file, or begins the file with it, and returns its size in bytes. Nobody
/// else may append meanwhile.
///
/// The header is written last: a reader sees the array when it is whole. What an append that was
/// killed has left is written over by the next one.
///
/// # Errors
///
/// The file is no file of packed arrays, has an array of this name and step, is being appended to,
/// or cannot be written; then the arrays before are as they were.
pub fn append_array(
    path: &Path,
    header: &ArrayHeader,
    buckets: &[Vec<u8>],
) -> Result<u64, AppendError> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true);
    let file = options.custom_flags(libc::O_NONBLOCK).open(path)?;
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => AppendError::Busy,
        TryLockError::Error(error) => AppendError::Io(error),
    })?;
    let there = FileBytes::of(file)?;
    let end = match there.bytes {
        0 => 0,
        _ if index_of(&there)?.is_some() => return Err(AppendError::Tiered),
        _ => {
            let listing = ArrayListing::read(&there)?;
            if listing.has(&header.name, header.step) {
                return Err(AppendError::Same);
            }
            listing.end()
        }
    };
    let written = put_array(&there.file, end, &header.encode(), buckets);
    if written.is_err() {
        let _ = there.file.set_len(end);
    }
    written?;
    Ok(header.array_bytes())
}

/// Why an array was not appended.
#[derive(Debug, Error)]
pub enum AppendError {
    /// The file has one of the same name and step.
    #[error("the file has an array of this name and step already")]
    Same,
    /// The file lies over several tiers.
    #[error("the file lies over several tiers: join it first")]
    Tiered,
    /// Somebody else appends.
    #[error("somebody else is writing to the file: try again")]
    Busy,
    /// It is no file of packed arrays.
    #[error(transparent)]
    NoArrays(#[from] ProgressiveError),
    /// It cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

fn put_array(file: &File, end: u64, head: &[u8], buckets: &[Vec<u8>]) -> io::Result<()> {
    file.set_len(end)?;
    let mut at = end + head.len() as u64;
    for bucket in buckets {
        file.write_all_at(bucket, at)?;
        at += bucket.len() as u64;
    }
    file.sync_data()?;
    file.write_all_at(head, end)?;
    file.sync_all()
}

/// A name in the same directory that no other thread or process uses.
fn beside(path: &Path) -> io::Result<PathBuf> {
    static WRITES: AtomicU32 = AtomicU32::new(0);
    let number = WRITES.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name();
    let mut name: OsString = name.ok_or(io::ErrorKind::IsADirectory)?.to_owned();
    name.push(format!(".{}.{number}.part", std::process::id()));
    Ok(path.with_file_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_read_in_part() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.baro");
        std::fs::write(&path, "before").unwrap();
        assert_eq!(replace_file(&path, &[b"abc", b"", b"defg"]).unwrap(), 7);
        let file = FileBytes::open(&path).unwrap();
        assert_eq!(file.byte_count(), 7);
        assert_eq!(&*file.fetch(2..5).unwrap(), b"cde");
        assert!(file.fetch(5..9).is_err());
        assert!(file.fetch(0..u64::MAX / 2).is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_no_file_is_neither_replaced_nor_read() {
        let folder = tempfile::tempdir().unwrap();
        assert!(replace_file(folder.path(), &[b"abc"]).is_err());
        assert!(replace_file(Path::new("/"), &[]).is_err());
        assert!(replace_file(&folder.path().join("none/a"), &[]).is_err());
        assert!(FileBytes::open(folder.path()).is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

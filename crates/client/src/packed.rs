//! Packed arrays as files, written so that a file appears when it is complete.
//!
//! The crate `progressive` writes no file itself; what is here is all that Rust, Python and the
//! command `baro data` need of files that are written.

mod spool;

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use barograph_progressive::{ArrayHeader, ArrayListing, ByteSource as _, ProgressiveError};
use thiserror::Error;

pub use self::spool::SpoolFile;
use crate::file_bytes::FileBytes;
use crate::tiered::{OldParts, index_of};

/// Writes a file of these parts, and returns its size in bytes: see [`ReplacementFile`].
///
/// # Errors
///
/// It cannot be written, or there is something of the name that is no regular file.
pub fn replace_file(path: &Path, parts: &[&[u8]]) -> io::Result<u64> {
    let new = ReplacementFile::create(path)?;
    let mut file = new.file();
    parts.iter().try_for_each(|bytes| file.write_all(bytes))?;
    new.finish()
}

/// A file that is written under another name beside, synced and renamed: until then the file before
/// is as it was, also when the disk is full. If it is not finished, nothing of it is left.
#[derive(Debug)]
pub struct ReplacementFile {
    file: File,
    path: PathBuf,
    /// The other name; `None` once the file has its own.
    part: Option<PathBuf>,
}

impl ReplacementFile {
    /// Creates an empty file that is to replace the one of this path, if there is one.
    ///
    /// # Errors
    ///
    /// It cannot be created, or there is something of the name that is no regular file.
    pub fn create(path: &Path) -> io::Result<Self> {
        if std::fs::metadata(path).is_ok_and(|there| !there.is_file()) {
            let text = "something is there that is no regular file: choose another name";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        let part = beside(path)?;
        Ok(Self {
            file: OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(&part)?,
            path: path.to_owned(),
            part: Some(part),
        })
    }

    /// The file to write to.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Lets it replace the file before, and returns its size in bytes.
    ///
    /// # Errors
    ///
    /// It cannot be synced or renamed.
    pub fn finish(mut self) -> io::Result<u64> {
        self.file.sync_all()?;
        let bytes = self.file.metadata()?.len();
        let before = OldParts::of(&self.path);
        if let Some(part) = &self.part {
            std::fs::rename(part, &self.path)?;
        }
        self.part = None;
        before.remove();
        Ok(bytes)
    }
}

impl Drop for ReplacementFile {
    fn drop(&mut self) {
        if let Some(part) = &self.part {
            // What is left of it would only take room.
            let _ = std::fs::remove_file(part);
        }
    }
}

/// Appends an array to a file, or begins the file with it, and returns its size in bytes: see
/// [`AppendedArray`].
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
    let new = AppendedArray::begin(path, header)?;
    let mut file = new.file();
    buckets.iter().try_for_each(|bytes| file.write_all(bytes))?;
    Ok(new.finish()?)
}

/// An array that is written after those that a file has. Nobody else may append meanwhile.
///
/// The header is written last: a reader sees the array when it is whole. What an append that was
/// killed has left is written over by the next one. If it is not finished, the arrays before are as
/// they were.
#[derive(Debug)]
pub struct AppendedArray {
    file: File,
    /// Where the array begins.
    start: u64,
    header: Vec<u8>,
    bytes: u64,
    is_finished: bool,
}

impl AppendedArray {
    /// Begins to write an array. If there is no file, it is created.
    ///
    /// # Errors
    ///
    /// The file is no file of packed arrays, has an array of this name and step, is being appended
    /// to, or cannot be written.
    pub fn begin(path: &Path, header: &ArrayHeader) -> Result<Self, AppendError> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true);
        let file = options.custom_flags(libc::O_NONBLOCK).open(path)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => AppendError::Busy,
            TryLockError::Error(error) => AppendError::Io(error),
        })?;
        let there = FileBytes::of(file)?;
        let start = match there.byte_count() {
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
        let new = Self {
            file: there.into_file(),
            start,
            header: header.encode(),
            bytes: header.array_bytes(),
            is_finished: false,
        };
        new.file.set_len(start)?;
        let buckets = start + new.header.len() as u64;
        (&new.file).seek(SeekFrom::Start(buckets))?;
        Ok(new)
    }

    /// The file to write the buckets to, from its present position on.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Writes the header, and returns the bytes of the array.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn finish(mut self) -> io::Result<u64> {
        self.file.sync_data()?;
        self.file.write_all_at(&self.header, self.start)?;
        self.file.sync_all()?;
        self.is_finished = true;
        Ok(self.bytes)
    }
}

impl Drop for AppendedArray {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = self.file.set_len(self.start);
        }
    }
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

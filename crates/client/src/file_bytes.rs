//! The bytes of a file, for readers of packed arrays.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use barograph_progressive::ByteSource;

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

    pub(crate) fn of(file: File) -> io::Result<Self> {
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

    /// Gives the file back.
    pub(crate) fn into_file(self) -> File {
        self.file
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

//! The file system below a tier, as a seam: tests fail its n-th operation.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// The operations on files that tiers need.
pub trait Disk: Send + Sync {
    /// Makes a directory, which only this user may enter, if it is not there.
    ///
    /// # Errors
    ///
    /// The answer of the system, as for all operations here.
    fn make_directory(&self, path: &Path) -> io::Result<()>;
    /// Makes a new file, which only this user may read, for writing.
    ///
    /// # Errors
    ///
    /// It is there already, or the system refuses.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Opens a file for reading.
    ///
    /// # Errors
    ///
    /// The answer of the system.
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Gives a file another name in its directory.
    ///
    /// # Errors
    ///
    /// The answer of the system.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    ///
    /// # Errors
    ///
    /// The answer of the system.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;
    /// Removes a file.
    ///
    /// # Errors
    ///
    /// The answer of the system.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// The names in a directory, sorted.
    ///
    /// # Errors
    ///
    /// The answer of the system; or others may write to the directory, so that what is there cannot
    /// be trusted.
    fn names(&self, path: &Path) -> io::Result<Vec<OsString>>;
}

/// An open file of a [`Disk`].
pub trait DiskFile: Send + Sync {
    /// Appends all bytes.
    ///
    /// # Errors
    ///
    /// The answer of the system, as for all operations here.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Makes what was written durable.
    ///
    /// # Errors
    ///
    /// The answer of the system.
    fn sync(&mut self) -> io::Result<()>;
    /// Fills the buffer from an offset on.
    ///
    /// # Errors
    ///
    /// The file ends before, or the system refuses.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;
    /// The length of the file, in bytes.
    ///
    /// # Errors
    ///
    /// The answer of the system.
    fn bytes(&self) -> io::Result<u64>;
}

/// The file system of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn make_directory(&self, path: &Path) -> io::Result<()> {
        match std::fs::DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        }
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        let file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        Ok(Box::new(RealFile(file)))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let no_follow = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let flags = no_follow.bits().cast_signed();
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(path)?;
        match file.metadata()?.is_file() {
            true => Ok(Box::new(RealFile(file))),
            false => Err(io::Error::new(io::ErrorKind::InvalidData, "not a file")),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn names(&self, path: &Path) -> io::Result<Vec<OsString>> {
        let found = std::fs::metadata(path)?;
        let own = rustix::process::geteuid().as_raw();
        if ![0, own].contains(&found.uid()) || found.mode() & 0o022 != 0 {
            let why = "others may write to it: chmod go-w, and chown it to the user of the server";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let entries = std::fs::read_dir(path)?;
        let names = entries.map(|entry| entry.map(|entry| entry.file_name()));
        let mut names: Vec<_> = names.collect::<io::Result<_>>()?;
        names.sort();
        Ok(names)
    }
}

struct RealFile(File);

impl DiskFile for RealFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_all()
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(bytes, offset)
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}

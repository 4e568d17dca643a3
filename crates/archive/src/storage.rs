//! The file-system operations of the writer: a seam, so that tests can make the n-th operation
//! fail.
//!
//! Readers map and read files as any process does; they need no seam.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};

/// Mode of shared files: whoever may read the segment may read its history.
const SHARED_MODE: u32 = 0o644;
/// Mode of private files.
const PRIVATE_MODE: u32 = 0o600;
/// Mode of directories.
const DIR_MODE: u32 = 0o755;

/// The readers of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAccess {
    /// Whoever may enter its directory.
    Shared,
    /// This user alone.
    Private,
}

/// The file-system operations that the writer uses.
pub trait Storage: Send + Sync {
    /// Creates a directory and its parents; an existing one is not an error.
    fn make_dir(&self, path: &Path) -> io::Result<()>;
    /// Creates a new file; an existing one is an error.
    fn create(&self, path: &Path, access: FileAccess) -> io::Result<Box<dyn OutFile>>;
    /// Writes `bytes` over the beginning of a small file, which is created if it does not exist.
    fn overwrite(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Cuts a file to `bytes` bytes and syncs it.
    fn truncate(&self, path: &Path, bytes: u64) -> io::Result<()>;
    /// Renames a file and replaces an existing one.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Gives a file a second name; an existing file of that name is an error.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Exchanges two directories in one step.
    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()>;
    /// Deletes a file; a missing one is not an error.
    fn unlink(&self, path: &Path) -> io::Result<()>;
    /// Deletes an empty directory; one that is missing or not empty is left alone without an error.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Syncs a directory: files that were created, renamed or deleted in it stay so after a power
    /// failure.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Returns the paths in a directory, sorted; none if the directory does not exist.
    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>>;
    /// Returns how many bytes this user can still write on the file system of `path`.
    fn free_bytes(&self, path: &Path) -> io::Result<u64>;

    /// Creates a directory and its parents as [`make_dir`](Self::make_dir) does. Those that are new
    /// stay after a power failure.
    fn make_lasting_dir(&self, path: &Path) -> io::Result<()> {
        let new: Vec<&Path> = path.ancestors().take_while(|dir| !dir.exists()).collect();
        let sync = |parent: &Path| {
            let is_here = parent.as_os_str().is_empty();
            match self.sync_dir(if is_here { Path::new(".") } else { parent }) {
                // The parent may not be read, or its file system syncs no directories: no later
                // call can sync it either.
                Err(error) if is_lasting(error.kind()) => Ok(()),
                synced => synced,
            }
        };
        let made = self.make_dir(path);
        let made = made.and_then(|()| new.iter().filter_map(|dir| dir.parent()).try_for_each(sync));
        if made.is_err() {
            // The next call makes them again, since it would not sync directories that exist.
            new.iter().for_each(|dir| drop(self.remove_dir(dir)));
        }
        made
    }
}

/// Whether a directory that gave this error when it was synced will give it again.
fn is_lasting(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    matches!(kind, PermissionDenied | InvalidInput | Unsupported)
}

/// A file that is written from its beginning.
pub trait OutFile: Send {
    /// Appends all of `bytes`.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Syncs the file: what was written survives a power failure.
    fn sync(&mut self) -> io::Result<()>;
    /// Cuts the file to `bytes` bytes, where the next write appends: used after a write that failed
    /// half way.
    fn rewind(&mut self, bytes: u64) -> io::Result<()>;
}

/// The real file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskStorage;

impl Storage for DiskStorage {
    fn make_dir(&self, path: &Path) -> io::Result<()> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(DIR_MODE)
            .create(path)
    }

    fn create(&self, path: &Path, access: FileAccess) -> io::Result<Box<dyn OutFile>> {
        let mode = match access {
            FileAccess::Shared => SHARED_MODE,
            FileAccess::Private => PRIVATE_MODE,
        };
        let mut options = OpenOptions::new();
        options.append(true).create_new(true).mode(mode);
        Ok(Box::new(options.open(path)?))
    }

    fn overwrite(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        let mut file = options.mode(SHARED_MODE).open(path)?;
        OutFile::write_all(&mut file, bytes)
    }

    fn truncate(&self, path: &Path, bytes: u64) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(path)?;
        file.set_len(bytes)?;
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        Ok(renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        gone_is_fine(fs::remove_file(path))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        match fs::remove_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            result => gone_is_fine(result),
        }
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let entries = match fs::read_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut paths = entries
            .map(|entry| Ok(entry?.path()))
            .collect::<io::Result<Vec<_>>>()?;
        paths.sort();
        Ok(paths)
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(path)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

impl OutFile for File {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        io::Write::write_all(self, bytes)?;
        self.flush()
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn rewind(&mut self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }
}

fn gone_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

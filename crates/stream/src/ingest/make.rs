//! Creating an ingest file: its size, its access rights, and how it gets its name.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FallocateFlags, FlockOperation, OFlags, fallocate, flock, linkat};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::OverflowPolicy;
use super::layout::{
    HEADER_BYTES, RING_RECORDS_DEFAULT, RING_RECORDS_MAX, RING_RECORDS_MIN, RINGS_DEFAULT_MIN,
    RINGS_MAX, file_bytes,
};
use crate::acl::{AccessList, Grantee};
use crate::map::uninterrupted;
use crate::{Incarnation, StreamError};

/// Bytes of a ring's records that are allocated at a time.
const STEP_BYTES: usize = 1 << 20;
/// Rings of a file that may not have its full size: first their number is lowered to this…
const RINGS_WANTED: u32 = 16;
/// …then the records of each ring to this number, before either is lowered further.
const RECORDS_WANTED: u64 = 1 << 12;
/// The file takes at most this part (a sixteenth) of the address space that the process may have.
const ADDRESSES_PARTS: u64 = 16;

/// The directory with this process's open files, by descriptor number.
const OWN_FILES: &str = "/proc/self/fd";

/// The configuration of an ingest file.
#[derive(Clone, Copy, Debug)]
pub struct ProducerConfig {
    /// Most threads that may put at the same time; lowered to the format's limit. 0: the default
    /// for this machine.
    pub rings_max: u32,
    /// Records of each ring; rounded up to a power of two.
    pub ring_records: u64,
    /// The effect of a put into a full ring.
    pub overflow: OverflowPolicy,
    /// Identity of the file; `None` draws it from the system.
    pub incarnation: Option<Incarnation>,
}

impl Default for ProducerConfig {
    fn default() -> Self {
        Self {
            rings_max: 0,
            ring_records: RING_RECORDS_DEFAULT,
            overflow: OverflowPolicy::default(),
            incarnation: None,
        }
    }
}

/// Number of rings of a file unless configured: twice the number of processors on which the process
/// may run, within the limits.
pub(super) fn rings_default() -> u32 {
    let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let rings = u32::try_from(processors.saturating_mul(2)).unwrap_or(u32::MAX);
    rings.clamp(RINGS_DEFAULT_MIN, RINGS_MAX)
}

/// Clamps the configuration to the limits of the format, and further to the limits of this process:
/// creating a larger file would raise a signal, which ends the program.
pub(super) fn shape(
    wanted: ProducerConfig,
    directory: &Path,
) -> Result<ProducerConfig, StreamError> {
    let file_bytes_max = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
    let addresses_max = getrlimit(Resource::As).current.unwrap_or(u64::MAX) / ADDRESSES_PARTS;
    let rings_max = match wanted.rings_max {
        0 => rings_default(),
        wanted => wanted.min(RINGS_MAX),
    };
    let records = wanted
        .ring_records
        .clamp(RING_RECORDS_MIN, RING_RECORDS_MAX);
    let shape = ProducerConfig {
        rings_max,
        ring_records: records.next_power_of_two(),
        ..wanted
    };
    let shape = smaller(shape, file_bytes_max.min(addresses_max));
    let needed = bytes_of(&shape);
    if needed > file_bytes_max {
        return Err(StreamError::FileSize {
            path: directory.to_owned(),
            needed,
            max: file_bytes_max,
        });
    }
    Ok(shape)
}

/// Halves the shape until it takes at most `bytes_max` bytes, or cannot be made smaller.
fn smaller(mut shape: ProducerConfig, bytes_max: u64) -> ProducerConfig {
    while bytes_of(&shape) > bytes_max {
        let (rings, records) = (shape.rings_max, shape.ring_records);
        match () {
            () if rings > RINGS_WANTED => shape.rings_max = rings / 2,
            () if records > RECORDS_WANTED => shape.ring_records = records / 2,
            () if rings > 1 => shape.rings_max = rings / 2,
            () if records > RING_RECORDS_MIN => shape.ring_records = records / 2,
            () => break,
        }
    }
    shape
}

fn bytes_of(shape: &ProducerConfig) -> u64 {
    file_bytes(shape.rings_max, shape.ring_records) as u64
}

/// An open file without the name under which an agent finds it.
pub(super) struct UnnamedFile {
    pub file: File,
    /// Path to remove if the file does not get its name; `None` if it has no name at all.
    temporary: Option<PathBuf>,
}

impl UnnamedFile {
    /// Creates a file of the right length that only this user and the directory's owner (who runs
    /// the agent) can open, and locks it.
    pub(super) fn make(
        directory: &Path,
        incarnation: Incarnation,
        shape: &ProducerConfig,
    ) -> Result<Self, StreamError> {
        let made = Self::open(directory, incarnation);
        let unnamed = made.map_err(io_error("make a file in", directory))?;
        unnamed.let_agent_in(directory)?;
        let prepare = || -> io::Result<()> {
            unnamed.file.set_len(bytes_of(shape))?;
            allocate(&unnamed.file, 0, HEADER_BYTES)?;
            // On a file system without locks, the agent uses the process id.
            let _ = flock(&unnamed.file, FlockOperation::NonBlockingLockExclusive);
            Ok(())
        };
        prepare().map_err(io_error("make a file in", directory))?;
        Ok(unnamed)
    }

    fn open(directory: &Path, incarnation: Incarnation) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        // A file without any name is linked later through its descriptor number.
        if Path::new(OWN_FILES).exists() {
            let flags = OFlags::TMPFILE.bits() as i32;
            if let Ok(file) = options.clone().custom_flags(flags).open(directory) {
                let temporary = None;
                return Ok(Self { file, temporary });
            }
        }
        // Agents ignore files with this extension.
        let path = directory.join(format!("{incarnation}.new"));
        let file = options.create_new(true).open(&path)?;
        let temporary = Some(path);
        Ok(Self { file, temporary })
    }

    fn let_agent_in(&self, directory: &Path) -> Result<(), StreamError> {
        let failed = |source| io_error("make a file in", directory)(source);
        let owner = fs::metadata(directory).map_err(failed)?.uid();
        // Set whatever the umask and the directory's own list were.
        let mode = fs::Permissions::from_mode(0o600);
        self.file.set_permissions(mode).map_err(failed)?;
        let us = rustix::process::geteuid().as_raw();
        if owner == us || owner == 0 {
            return Ok(());
        }
        const READ_WRITE: u16 = 6;
        let list = AccessList {
            owner: READ_WRITE,
            grantee: Grantee::User(owner),
            rights: READ_WRITE,
        };
        match list.set_on(&self.file) {
            Ok(true) => Ok(()),
            Ok(false) => Err(StreamError::NoAccessLists {
                path: directory.to_owned(),
                owner,
            }),
            Err(source) => Err(failed(source)),
        }
    }

    /// Gives the file its name, which must not exist yet.
    pub(super) fn name(mut self, path: &Path) -> io::Result<()> {
        match &self.temporary {
            None => {
                let at = format!("{OWN_FILES}/{}", self.file.as_raw_fd());
                linkat(CWD, &*at, CWD, path, AtFlags::SYMLINK_FOLLOW)?;
            }
            Some(temporary) => {
                linkat(CWD, temporary, CWD, path, AtFlags::empty())?;
                fs::remove_file(temporary)?;
                self.temporary = None;
            }
        }
        Ok(())
    }
}

impl Drop for UnnamedFile {
    fn drop(&mut self) {
        if let Some(path) = &self.temporary {
            let _ = fs::remove_file(path);
        }
    }
}

/// Makes the file system allocate bytes of an open file. A file system that cannot do so (ENOTSUP)
/// is trusted to have them.
pub(super) fn allocate(file: &File, at: usize, bytes: usize) -> io::Result<()> {
    // A signal (the timer of a profiler) ends the call early and undoes it, so it is made in steps
    // that are short enough to fit between two signals.
    for step in (at..at + bytes).step_by(STEP_BYTES) {
        let length = STEP_BYTES.min(at + bytes - step) as u64;
        let one = || fallocate(file, FallocateFlags::empty(), step as u64, length);
        match uninterrupted(one) {
            Ok(()) | Err(Errno::NOTSUP) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Time when a process began, in clock ticks since boot: it distinguishes the process from a later
/// one with the same number.
pub(super) fn start_ticks(pid: &str) -> Option<u64> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain anything, parentheses too: fields are counted after the last one.
    let end = text.iter().rposition(|b| *b == b')')?;
    let rest = std::str::from_utf8(text.get(end + 1..)?).ok()?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

pub(super) fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StreamError {
    let path = path.to_owned();
    move |source| StreamError::Io { what, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_as_large_as_it_may_be() {
        let wanted = ProducerConfig {
            rings_max: 256,
            ring_records: 1 << 16,
            ..ProducerConfig::default()
        };
        let fits = |bytes_max: u64| {
            let shape = smaller(wanted, bytes_max);
            let is_within = bytes_of(&shape) <= bytes_max;
            (shape.rings_max, shape.ring_records, is_within)
        };
        assert_eq!(fits(u64::MAX), (256, 1 << 16, true));
        assert_eq!(fits(100 << 20), (64, 1 << 16, true));
        assert_eq!(fits(20 << 20), (16, 1 << 15, true));
        assert_eq!(fits(2 << 20), (8, 1 << 12, true));
        assert_eq!(fits(1_100_000), (1, 1 << 10, true));
        assert_eq!(fits(1 << 20), (1, 1 << 8, false));
    }
}

//! A file system in its place, until it is stopped or unmounted.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use barograph_model::Clock;
use barograph_staging::client::{GetOptions, PutOptions};
use barograph_staging::{PutTarget, StagingError};
use fuser::{BackgroundSession, MountOption, Session, SessionACL};
use rustix::io::Errno as SystemError;
use rustix::mount::UnmountFlags;
use thiserror::Error;

use crate::entry::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN};
use crate::kernel::Kernel;
use crate::keys::{Datasets, VOLUME_BYTES_MAX};
use crate::operations::Operations;
use crate::volume::{Servers, Volume, VolumeParts};

/// Requests of the kernel that are answered at a time.
const THREADS: usize = 4;
/// Bytes of a block, unless configured: 4 MiB.
const BLOCK_BYTES_DEFAULT: u64 = 4 << 20;
/// Bytes of files in memory, unless configured: 64 MiB.
const BUFFER_BYTES_DEFAULT: u64 = 64 << 20;

/// How a file system is mounted.
#[derive(Clone, Debug)]
pub struct MountConfig {
    /// The name of the file system among those of the user.
    pub volume: String,
    /// Bytes of the blocks of new files.
    pub block_bytes: u64,
    /// Bytes that are held in memory: half for what is written and not put, half for blocks that
    /// were read of late.
    pub buffer_bytes: u64,
    /// Whether nothing may be written.
    pub is_read_only: bool,
    /// Whether what is put has to be on a durable tier before it counts as put.
    pub is_durable: bool,
    /// How many replicas have to have what is put.
    pub acks: usize,
    /// Whether entries are taken that may be older than ones that were acknowledged.
    pub accept_unconfirmed: bool,
    /// The longest wait for room on a server, in nanoseconds.
    pub wait_ns: i64,
}

impl MountConfig {
    /// The configuration of a file system of this name.
    pub fn new(volume: impl Into<String>) -> Self {
        Self {
            volume: volume.into(),
            block_bytes: BLOCK_BYTES_DEFAULT,
            buffer_bytes: BUFFER_BYTES_DEFAULT,
            is_read_only: false,
            is_durable: false,
            acks: 1,
            accept_unconfirmed: false,
            wait_ns: barograph_model::NS_PER_S,
        }
    }
}

/// Why a file system is not mounted, or not cleaned.
#[derive(Debug, Error)]
pub enum MountError {
    /// The configuration contradicts itself.
    #[error("{0}")]
    Config(String),
    /// The servers do not answer.
    #[error(transparent)]
    Servers(#[from] StagingError),
    /// The place cannot be used.
    #[error("{path}: {why}", path = path.display())]
    Place {
        /// Where.
        path: PathBuf,
        /// Why, and what helps.
        why: String,
    },
    /// Something else that the system refuses.
    #[error("cannot mount at {path}: {source}{help}", path = path.display())]
    System {
        /// Where.
        path: PathBuf,
        /// The answer of the system.
        source: io::Error,
        /// What helps.
        help: &'static str,
    },
}

/// How a file system was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Open files whose last changes could not be stored.
    pub files_failed: usize,
    /// Whether programs still used it: it has no name any more, and they get errors.
    pub was_busy: bool,
}

/// A mounted file system.
pub struct Mount {
    operations: Arc<Operations>,
    session: BackgroundSession,
    place: PathBuf,
}

/// A file system that is not mounted.
fn volume(
    config: &MountConfig,
    servers: Arc<dyn Servers>,
    clock: Arc<dyn Clock>,
) -> Result<Volume, MountError> {
    let Some(datasets) = Datasets::new(&config.volume) else {
        let text = format!(
            "the name of a file system has 1 to {VOLUME_BYTES_MAX} letters, digits, dots, - and _"
        );
        return Err(MountError::Config(text));
    };
    if !(BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&config.block_bytes) {
        return Err(MountError::Config("a block has 4 KiB to 64 MiB".into()));
    }
    if config.buffer_bytes < config.block_bytes.saturating_mul(2) {
        let text = "the buffer has room for two blocks at least";
        return Err(MountError::Config(text.into()));
    }
    let parts = VolumeParts {
        servers,
        datasets,
        clock,
        put: PutOptions {
            acks: Some(config.acks),
            target: match config.is_durable {
                true => PutTarget::Durable,
                false => PutTarget::Fast,
            },
            refetch_us: 0,
            wait_ns: config.wait_ns,
        },
        get: GetOptions {
            accept_unconfirmed: config.accept_unconfirmed,
        },
        block_bytes: config.block_bytes,
        cache_bytes: config.buffer_bytes / 2,
    };
    let volume = Volume::new(parts);
    volume.map_err(|error| MountError::Config(format!("no random number: {error}")))
}

/// Removes the blocks of a file system that no file has: those of mounts that were killed. Returns
/// how many these were. Nobody may write to the file system meanwhile.
///
/// # Errors
///
/// The servers do not answer, or an entry cannot be read: then nothing is removed.
pub fn clean(
    config: &MountConfig,
    servers: Arc<dyn Servers>,
    clock: Arc<dyn Clock>,
) -> Result<u64, MountError> {
    Ok(volume(config, servers, clock)?.clean()?)
}

impl Mount {
    /// Mounts a file system at a directory, for its user alone.
    ///
    /// # Errors
    ///
    /// The servers do not answer, the kernel has no FUSE, or this user may not mount.
    pub fn new(
        config: &MountConfig,
        servers: Arc<dyn Servers>,
        clock: Arc<dyn Clock>,
        place: &Path,
    ) -> Result<Self, MountError> {
        let volume = volume(config, servers, clock)?;
        volume.check()?;
        let place = checked(place)?;
        let mut options = fuser::Config::default();
        options.acl = SessionACL::Owner;
        options.n_threads = Some(THREADS);
        options.mount_options = vec![
            MountOption::FSName(format!("baro-stage:{}", config.volume)),
            MountOption::Subtype("baro-stage".into()),
            MountOption::DefaultPermissions,
            MountOption::NoAtime,
            match config.is_read_only {
                true => MountOption::RO,
                false => MountOption::RW,
            },
        ];
        let operations = Arc::new(Operations::new(volume, config.buffer_bytes / 2));
        let kernel = Kernel(Arc::clone(&operations));
        let session = Session::new(kernel, &place, &options).and_then(Session::spawn);
        match session {
            Ok(session) => Ok(Self {
                operations,
                session,
                place,
            }),
            Err(error) => Err(refused(place, error)),
        }
    }

    /// Where it is mounted.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// Whether somebody has unmounted it.
    pub fn is_over(&self) -> bool {
        self.session.guard.is_finished()
    }

    /// Stores what programs have written, refuses to take more, and unmounts.
    ///
    /// # Errors
    ///
    /// It cannot be unmounted.
    pub fn stop(self) -> io::Result<Stopped> {
        let files_failed = self.operations.stop();
        let mut was_busy = false;
        if self.is_over() {
            self.session.join()?;
        } else {
            match rustix::mount::unmount(&self.place, UnmountFlags::empty()) {
                Ok(()) => {
                    // The kernel's side lives on where another mount namespace has a copy of the
                    // mount, so its end is not waited for.
                    self.operations.end();
                    std::mem::forget(self.session);
                }
                Err(SystemError::BUSY) => {
                    was_busy = true;
                    rustix::mount::unmount(&self.place, UnmountFlags::DETACH)?;
                    // The session ends when the last program has closed its files, or with this
                    // process.
                    std::mem::forget(self.session);
                }
                // A user who is not root unmounts by fusermount, which does not wait for programs.
                Err(SystemError::PERM) => {
                    was_busy = !self.operations.table().open_files().is_empty();
                    drop(self.session);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Stopped {
            files_failed,
            was_busy,
        })
    }
}

fn checked(place: &Path) -> Result<PathBuf, MountError> {
    let wrong = |why: String| MountError::Place {
        path: place.to_owned(),
        why,
    };
    let path = place.canonicalize().map_err(|error| {
        let help = match error.raw_os_error() {
            Some(code) if code == SystemError::NOTCONN.raw_os_error() => {
                ": a mount that was killed is still there: unmount it, by `fusermount3 -u` or `umount`"
            }
            _ => "",
        };
        wrong(format!("{error}{help}"))
    })?;
    if !path.is_dir() {
        return Err(wrong("a file system is mounted at a directory".into()));
    }
    Ok(path)
}

/// Why the system refuses a mount, and what helps.
fn refused(path: PathBuf, source: io::Error) -> MountError {
    let device = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse");
    let help = match device.map_err(|error| error.kind()) {
        Err(io::ErrorKind::NotFound) => {
            "; the kernel has no FUSE here: load its module (`modprobe fuse`), or give the container the device /dev/fuse"
        }
        Err(io::ErrorKind::PermissionDenied) => {
            "; this user may not open /dev/fuse: ask for read and write access to it"
        }
        _ if !rustix::process::geteuid().is_root() => {
            "; users mount by the program fusermount3: install the package fuse3"
        }
        _ => "; this process may not mount: it needs the capability CAP_SYS_ADMIN",
    };
    MountError::System { path, source, help }
}

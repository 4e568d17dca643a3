//! The run directory: where an agent puts its segment, sockets and documents, and who holds it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::{FileLock, Incarnation, StreamError};

/// Largest document that a reader takes.
pub const DOCUMENT_BYTES_MAX: u64 = 16 << 20;

/// Most scopes that a reader follows.
pub const SCOPES_MAX: usize = 64;

/// The paths in a run directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDir {
    path: PathBuf,
}

impl RunDir {
    /// A run directory that may or may not exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// `/dev/shm/barograph-<uid>` of this user.
    pub fn default_path() -> PathBuf {
        Self::path_of_user(rustix::process::getuid().as_raw())
    }

    /// Where readers look when they are not told: `BAROGRAPH_RUN_DIR`, then this user's agent, then
    /// root's (the node's own).
    pub fn find() -> Self {
        if let Some(named) = std::env::var_os("BAROGRAPH_RUN_DIR") {
            return Self::new(named);
        }
        let own = Self::new(Self::default_path());
        let node = Self::new(Self::path_of_user(0));
        if !own.segment().exists() && node.segment().exists() {
            node
        } else {
            own
        }
    }

    fn path_of_user(uid: u32) -> PathBuf {
        PathBuf::from(format!("/dev/shm/barograph-{uid}"))
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The public segment.
    pub fn segment(&self) -> PathBuf {
        self.path.join("segment")
    }

    /// HTTP, read side.
    pub fn read_socket(&self) -> PathBuf {
        self.path.join("read.sock")
    }

    /// HTTP, control side.
    pub fn control_socket(&self) -> PathBuf {
        self.path.join("control.sock")
    }

    /// The token for control over TCP.
    pub fn control_token(&self) -> PathBuf {
        self.path.join("control.token")
    }

    /// Where applications put their ingest files.
    pub fn ingest_dir(&self) -> PathBuf {
        self.path.join("ingest")
    }

    /// The ingest file of a process.
    pub fn ingest_file(&self, incarnation: Incarnation) -> PathBuf {
        self.ingest_dir().join(format!("{incarnation}.ingest"))
    }

    /// Where applications knock when the agent sleeps: datagrams, each the incarnation of the sender.
    pub fn ingest_socket(&self) -> PathBuf {
        self.path.join("ingest.sock")
    }

    /// The run directory of a scope: of publications that the same may read (`u1000`, `g100`, `all`).
    pub fn scope(&self, scope: &str) -> Self {
        Self::new(self.path.join("applications").join(scope))
    }

    /// The scopes whose segments this process may read, by name. Others are not there for it.
    pub fn scopes(&self) -> Vec<(String, Self)> {
        let Ok(found) = fs::read_dir(self.path.join("applications")) else {
            return Vec::new();
        };
        let readable = |name: String| {
            let scope = self.scope(&name);
            let opened = OpenOptions::new()
                .read(true)
                .custom_flags(OFlags::NONBLOCK.bits() as i32) // As in `SegmentReader::open`.
                .open(scope.segment());
            opened.is_ok().then_some((name, scope))
        };
        let names = found.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
            .into_iter()
            .filter_map(readable)
            .take(SCOPES_MAX)
            .collect()
    }

    /// Makes the directory if needed, checks that it is ours, and takes its lock. A second agent is
    /// refused while the first lives; the lock of a dead one is free.
    pub fn occupy(&self) -> Result<AgentLock, StreamError> {
        let io_error = |what, path: &Path| {
            let path = path.to_owned();
            move |source| StreamError::Io { what, path, source }
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(&self.path)
            .map_err(io_error("make", &self.path))?;
        self.check_ours()?;
        let path = self.path.join("lock");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(io_error("open", &path))?;
        let Some(lock) = FileLock::try_take(file).map_err(io_error("lock", &path))? else {
            let mut pid = String::new();
            let _ = File::open(&path).and_then(|file| file.take(32).read_to_string(&mut pid));
            let pid = match pid.trim() {
                "" => "unknown", // It has the lock and is about to write its number.
                pid => pid,
            };
            return Err(StreamError::Occupied {
                path: self.path.clone(),
                pid: pid.into(),
            });
        };
        let mut file = lock.file();
        file.set_len(0)
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(io_error("write", &path))?;
        Ok(AgentLock { _lock: lock })
    }

    /// /dev/shm is open to all: never settle in a directory that someone else has laid out, or where
    /// anyone may put files of ours' names. A link and what it leads to must both be ours.
    fn check_ours(&self) -> Result<(), StreamError> {
        let us = rustix::process::getuid().as_raw();
        let link = fs::symlink_metadata(&self.path);
        let directory = fs::metadata(&self.path);
        let (link, directory) = link
            .and_then(|link| Ok((link, directory?)))
            .map_err(|source| StreamError::Io {
                what: "look at",
                path: self.path.clone(),
                source,
            })?;
        for owner in [link.uid(), directory.uid()] {
            if owner != us {
                return Err(StreamError::Foreign {
                    path: self.path.clone(),
                    owner,
                    us,
                });
            }
        }
        let mode = directory.mode() & 0o7777;
        if mode & 0o002 != 0 {
            return Err(StreamError::Exposed {
                path: self.path.clone(),
                mode,
            });
        }
        Ok(())
    }

    /// Replaces a document in one step; readers see the old or the new one whole.
    pub fn publish(&self, name: &str, bytes: &[u8], mode: u32) -> Result<(), StreamError> {
        let path = self.path.join(name);
        let temporary = self.path.join(format!("{name}.new"));
        let write = || -> io::Result<()> {
            let _ = fs::remove_file(&temporary);
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(mode)
                .open(&temporary)?;
            file.write_all(bytes)?;
            fs::rename(&temporary, &path)
        };
        write().map_err(|source| {
            let _ = fs::remove_file(&temporary);
            StreamError::Io {
                what: "write",
                path: path.clone(),
                source,
            }
        })
    }

    /// Reads a document; `None` when there is none.
    pub fn document(&self, name: &str) -> Result<Option<Vec<u8>>, StreamError> {
        let path = self.path.join(name);
        let read = || -> io::Result<Option<Vec<u8>>> {
            let opened = OpenOptions::new()
                .read(true)
                .custom_flags(OFlags::NONBLOCK.bits() as i32) // As in `SegmentReader::open`.
                .open(&path);
            let file = match opened {
                Ok(file) => file,
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(e) => return Err(e),
            };
            let mut bytes = Vec::new();
            file.take(DOCUMENT_BYTES_MAX + 1).read_to_end(&mut bytes)?;
            if bytes.len() as u64 > DOCUMENT_BYTES_MAX {
                return Err(io::Error::other(
                    "the document is larger than any agent writes",
                ));
            }
            Ok(Some(bytes))
        };
        read().map_err(|source| StreamError::Io {
            what: "read",
            path: path.clone(),
            source,
        })
    }
}

/// Held while an agent serves a run directory; the kernel frees it when the process ends.
#[derive(Debug)]
pub struct AgentLock {
    _lock: FileLock,
}

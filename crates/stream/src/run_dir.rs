//! The run directory: where an agent puts its segment, sockets and documents, and who holds it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::net::sockopt::socket_peercred;

use crate::place::{Place, Trust};
use crate::{FileLock, Incarnation, StreamError, environment};

/// Most scopes that a reader follows.
pub const SCOPES_MAX: usize = 64;

/// The public segment's name.
pub(crate) const SEGMENT: &str = "segment";
/// Where the run directories of users are.
const SHARED_MEMORY: &str = "/dev/shm";
/// Where services have theirs, made by root for each.
const SERVICES: &str = "/run";
/// What the packaged service calls its own.
const SERVICE: &str = "barograph";
/// The directory of scopes in a run directory.
const SCOPES: &str = "applications";

/// A run directory: its paths, and the way to what an agent has put there. What is read goes through
/// [`RunDir::open`], which checks whose the directory is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDir {
    path: PathBuf,
    trust: Trust,
    /// The scope that it is of, when it is one in a run directory.
    scope: Option<String>,
}

/// A socket on which an agent answers HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// The read side.
    Read,
    /// The control side.
    Control,
}

impl RunDir {
    /// A run directory that may or may not exist, and that somebody named: it may be anyone's.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self::by(path.into(), Trust::Named)
    }

    fn by(path: PathBuf, trust: Trust) -> Self {
        Self {
            path,
            trust,
            scope: None,
        }
    }

    /// `/dev/shm/barograph-<uid>` of this user.
    pub fn default_path() -> PathBuf {
        path_of_user(Path::new(SHARED_MEMORY), this_user())
    }

    /// That which the environment names (`BAROGRAPH_RUN_DIR`); none in a program that has more rights
    /// than its caller.
    pub fn named() -> Option<Self> {
        environment("BAROGRAPH_RUN_DIR").map(Self::new)
    }

    /// Where readers look when they are not told: `BAROGRAPH_RUN_DIR`, then this user's agent, then the
    /// node's: the packaged service's, or root's.
    pub fn find() -> Self {
        let find = || Self::find_in(Path::new(SHARED_MEMORY), Path::new(SERVICES));
        Self::named().unwrap_or_else(find)
    }

    /// The same without the environment, with other directories in place of `/dev/shm` and `/run`. A directory
    /// counts only if an agent has been there that can be trusted; this user's own is the answer when there
    /// is none.
    pub fn find_in(shared_memory: &Path, services: &Path) -> Self {
        let of_user = |uid| Self::by(path_of_user(shared_memory, uid), Trust::Found);
        let own = of_user(this_user());
        let service = Self::by(services.join(SERVICE), Trust::GivenByRoot);
        let all = [&own, &service, &of_user(0)];
        let served = all.into_iter().find(|run_dir| run_dir.has_segment());
        served.unwrap_or(&own).clone()
    }

    /// Opens the directory once, and checks it: nobody but its owner may write there, and one that was
    /// found and not named is this user's, root's, or given by root. [`StreamError::NoAgent`] when there is
    /// none.
    pub fn open(&self) -> Result<Place, StreamError> {
        let Some(scope) = &self.scope else {
            return Place::open(&self.path, self.trust);
        };
        // Two directories above, by construction.
        let root = self.path.ancestors().nth(2).unwrap_or(&self.path);
        let root = Place::open(root, self.trust)?;
        root.below(SCOPES)?.below(scope)
    }

    fn has_segment(&self) -> bool {
        let segment = self.open().and_then(|place| place.file(SEGMENT));
        matches!(segment, Ok(Some(_)))
    }

    /// Connects to the agent, once the kernel has said that the directory's owner or root listens there.
    pub fn connect(&self, door: Door) -> io::Result<UnixStream> {
        let refused = |error: StreamError| match error {
            StreamError::NoAgent { .. } => io::Error::from(io::ErrorKind::NotFound),
            StreamError::Io { source, .. } => source,
            other => io::Error::new(io::ErrorKind::PermissionDenied, other),
        };
        let place = self.open().map_err(refused)?;
        let socket = match door {
            Door::Read => self.read_socket(),
            Door::Control => self.control_socket(),
        };
        let stream = UnixStream::connect(&socket)?;
        let peer = socket_peercred(&stream)?.uid.as_raw();
        match peer == place.owner() || peer == 0 {
            true => Ok(stream),
            false => Err(refused(StreamError::Untrusted {
                path: socket,
                owner: peer,
                whose: "the owner of its run directory or root",
            })),
        }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The public segment.
    pub fn segment(&self) -> PathBuf {
        self.path.join(SEGMENT)
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
        Self {
            path: self.path.join(SCOPES).join(scope),
            trust: self.trust,
            scope: Some(scope.to_owned()),
        }
    }

    /// The names of all scopes, whether this process may read them or not: names are no secret.
    pub fn scope_names(&self) -> Vec<String> {
        let above = self.open().and_then(|place| place.below(SCOPES));
        let names = above.map(|above| above.names().unwrap_or_default());
        let names = names.unwrap_or_default().into_iter();
        names
            .filter(|name| is_scope(name))
            .take(SCOPES_MAX)
            .collect()
    }

    /// The scopes whose segments this process may read, by name. Others are not there for it.
    pub fn scopes(&self) -> Vec<(String, Self)> {
        let Ok(above) = self.open().and_then(|place| place.below(SCOPES)) else {
            return Vec::new();
        };
        let is_readable = |name: &String| {
            let segment = above.below(name).and_then(|scope| scope.file(SEGMENT));
            matches!(segment, Ok(Some(_)))
        };
        let names = above.names().unwrap_or_default();
        let readable = names.into_iter().filter(is_readable).take(SCOPES_MAX);
        readable
            .map(|name| (name.clone(), self.scope(&name)))
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
    /// others may put files of ours' names. A link and what it leads to must both be ours.
    fn check_ours(&self) -> Result<(), StreamError> {
        let us = this_user();
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
        if mode & 0o022 != 0 {
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
            // Whatever the umask was.
            file.set_permissions(fs::Permissions::from_mode(mode))?;
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
        match self.open() {
            Err(StreamError::NoAgent { .. }) => Ok(None),
            place => place?.document(name),
        }
    }
}

/// Whose rights this program has.
fn this_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether a scope may be called so: `all`, a user's `u1000`, a group's `g100`.
pub fn is_scope(name: &str) -> bool {
    let is_number = |id: &str| id.parse::<u32>().is_ok_and(|n| n.to_string() == id);
    let id = name.strip_prefix('u').or_else(|| name.strip_prefix('g'));
    name == "all" || id.is_some_and(is_number)
}

fn path_of_user(shared_memory: &Path, uid: u32) -> PathBuf {
    shared_memory.join(format!("barograph-{uid}"))
}

/// Held while an agent serves a run directory; the kernel frees it when the process ends.
#[derive(Debug)]
pub struct AgentLock {
    _lock: FileLock,
}

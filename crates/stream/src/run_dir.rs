//! The run directory: the place of an agent's segment, sockets and documents, and the lock on it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::net::sockopt::socket_peercred;

use crate::trusted_dir::{DirTrust, TrustedDir};
use crate::{FileLock, Incarnation, StreamError, environment};

/// Most scopes that a reader follows.
pub const SCOPES_MAX: usize = 64;

/// Most mirrored nodes that a reader follows.
pub const MIRRORS_MAX: usize = 1_024;

/// Name of the public segment.
pub(crate) const SEGMENT: &str = "segment";
/// Parent of the run directories of users.
const SHARED_MEMORY: &str = "/dev/shm";
/// Parent of the run directories of services; root makes one for each.
const SERVICES: &str = "/run";
/// Name of the packaged service's run directory.
const SERVICE: &str = "barograph";
/// Name of the directory of scopes in a run directory and in a state directory.
pub const SCOPES_DIR: &str = "applications";
/// Name of the directory of mirrors of other nodes in a run directory.
pub const NODES_DIR: &str = "nodes";
/// Most bytes of the name of a node of a cluster.
pub const NODE_NAME_BYTES_MAX: usize = 64;
/// Name of the scope that everyone may read.
pub const SCOPE_OF_ALL: &str = "all";

/// A run directory: the paths of its files, and access to what an agent has put there. All reads go
/// through [`RunDir::open`], which checks who owns the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDir {
    path: PathBuf,
    trust: DirTrust,
    /// If this is the directory of a scope or of a mirror in a run directory, or that of a scope in
    /// a mirror: the way to it from the run directory, each step with the directory above and the
    /// name.
    below: Vec<(&'static str, String)>,
}

/// A socket on which an agent answers HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentSocket {
    /// The socket for reading, `read.sock`.
    Read,
    /// The socket for control, `control.sock`.
    Control,
}

/// Most looks at a lock whose owner is gone, 10 ms apart.
const LEFT_LOCK_LOOKS_MAX: u32 = 300;

#[expect(
    clippy::disallowed_methods,
    reason = "a start waits for a moment, for the child of an agent that was killed"
)]
fn pause() {
    std::thread::sleep(std::time::Duration::from_millis(10));
}

/// Whether no process has this number.
fn is_gone(pid: &str) -> bool {
    pid.parse::<u32>()
        .is_ok_and(|pid| !Path::new("/proc").join(pid.to_string()).exists())
}

impl RunDir {
    /// Creates a run directory from a path that the user chose. It need not exist, and anyone may
    /// own it.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self::by(path.into(), DirTrust::Named)
    }

    fn by(path: PathBuf, trust: DirTrust) -> Self {
        Self {
            path,
            trust,
            below: Vec::new(),
        }
    }

    /// The path `/dev/shm/barograph-<uid>` of this user.
    pub fn default_path() -> PathBuf {
        path_of_user(Path::new(SHARED_MEMORY), this_user())
    }

    /// The run directory in the environment variable `BAROGRAPH_RUN_DIR`; `None` in a program that
    /// has more rights than its caller.
    pub fn named() -> Option<Self> {
        environment("BAROGRAPH_RUN_DIR").map(Self::new)
    }

    /// Finds the run directory for readers that were given none: `BAROGRAPH_RUN_DIR`, then that of
    /// this user's agent, then that of the node's agent (the packaged service or root's).
    pub fn find() -> Self {
        let find = || Self::find_in(Path::new(SHARED_MEMORY), Path::new(SERVICES));
        Self::named().unwrap_or_else(find)
    }

    /// Finds the run directory without the environment, with other directories in place of
    /// `/dev/shm` and `/run`. A directory counts only if it has a segment of a trusted agent; this
    /// user's own directory is the result if none does.
    pub fn find_in(shared_memory: &Path, services: &Path) -> Self {
        let of_user = |uid| Self::by(path_of_user(shared_memory, uid), DirTrust::Found);
        let own = of_user(this_user());
        let service = Self::by(services.join(SERVICE), DirTrust::GivenByRoot);
        let all = [&own, &service, &of_user(0)];
        let served = all.into_iter().find(|run_dir| run_dir.has_segment());
        served.unwrap_or(&own).clone()
    }

    /// Opens the directory once, and checks it: only its owner may write there, and a directory
    /// that was found (not chosen by the user) must belong to this user or root, or be given by
    /// root. [`StreamError::NoAgent`] if there is none.
    pub fn open(&self) -> Result<TrustedDir, StreamError> {
        // Each step is two levels, by construction.
        let root = self.path.ancestors().nth(2 * self.below.len());
        let root = TrustedDir::open(root.unwrap_or(&self.path), self.trust)?;
        let mut steps = self.below.iter();
        steps.try_fold(root, |dir, (above, name)| dir.below(above)?.below(name))
    }

    fn has_segment(&self) -> bool {
        let segment = self.open().and_then(|place| place.file(SEGMENT));
        matches!(segment, Ok(Some(_)))
    }

    /// Connects to the agent, and checks through the kernel that the directory's owner or root
    /// listens there.
    pub fn connect(&self, door: AgentSocket) -> io::Result<UnixStream> {
        let refused = |error: StreamError| match error {
            StreamError::NoAgent { .. } => io::Error::from(io::ErrorKind::NotFound),
            StreamError::Io { source, .. } => source,
            other => io::Error::new(io::ErrorKind::PermissionDenied, other),
        };
        let place = self.open().map_err(refused)?;
        let socket = match door {
            AgentSocket::Read => self.read_socket(),
            AgentSocket::Control => self.control_socket(),
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

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Path of the public segment.
    pub fn segment(&self) -> PathBuf {
        self.path.join(SEGMENT)
    }

    /// Path of the HTTP socket for reading.
    pub fn read_socket(&self) -> PathBuf {
        self.path.join("read.sock")
    }

    /// Path of the HTTP socket for control.
    pub fn control_socket(&self) -> PathBuf {
        self.path.join("control.sock")
    }

    /// Path of the token for control over TCP.
    pub fn control_token(&self) -> PathBuf {
        self.path.join("control.token")
    }

    /// Path of the directory in which applications put their ingest files.
    pub fn ingest_dir(&self) -> PathBuf {
        self.path.join("ingest")
    }

    /// Path of the ingest file of a process.
    pub fn ingest_file(&self, incarnation: Incarnation) -> PathBuf {
        self.ingest_dir().join(format!("{incarnation}.ingest"))
    }

    /// Path of the socket that wakes a sleeping agent: applications send datagrams, each with the
    /// incarnation of its sender.
    pub fn ingest_socket(&self) -> PathBuf {
        self.path.join("ingest.sock")
    }

    /// Path of the socket on which programs tell that a phase of I/O is to be looked at now, in
    /// datagrams as for [`Self::ingest_socket`].
    pub fn phases_socket(&self) -> PathBuf {
        self.path.join("phases.sock")
    }

    /// The run directory of a scope: of the publications that one set of readers may see (`u1000`,
    /// `g100`, `all`).
    pub fn scope(&self, scope: &str) -> Self {
        self.step(SCOPES_DIR, scope)
    }

    /// The directory of the mirror of another node: its segment has the streams of that node that
    /// the agent has mirrored here.
    pub fn mirror(&self, node: &str) -> Self {
        self.step(NODES_DIR, node)
    }

    fn step(&self, above: &'static str, name: &str) -> Self {
        let mut below = self.below.clone();
        below.push((above, name.to_owned()));
        Self {
            path: self.path.join(above).join(name),
            trust: self.trust,
            below,
        }
    }

    /// If this is the directory of a mirror ([`RunDir::mirror`]) or of a scope in it, the name of
    /// the mirrored node.
    pub fn mirrored_node(&self) -> Option<&str> {
        let (above, name) = self.below.first()?;
        (*above == NODES_DIR).then_some(name.as_str())
    }

    /// The mirrors of other nodes, by name.
    pub fn mirrors(&self) -> Vec<(String, Self)> {
        let Ok(above) = self.open().and_then(|place| place.below(NODES_DIR)) else {
            return Vec::new();
        };
        let names = above.names().unwrap_or_default();
        let nodes = names.into_iter().filter(|name| is_node_name(name));
        nodes
            .take(MIRRORS_MAX)
            .map(|name| (name.clone(), self.mirror(&name)))
            .collect()
    }

    /// The names of all scopes, including those that this process may not read: names are no
    /// secret.
    pub fn scope_names(&self) -> Vec<String> {
        let above = self.open().and_then(|place| place.below(SCOPES_DIR));
        let names = above.map(|above| above.names().unwrap_or_default());
        let names = names.unwrap_or_default().into_iter();
        names
            .filter(|name| is_scope(name))
            .take(SCOPES_MAX)
            .collect()
    }

    /// The scopes whose segments this process may read, by name. All others are left out.
    pub fn scopes(&self) -> Vec<(String, Self)> {
        let Ok(above) = self.open().and_then(|place| place.below(SCOPES_DIR)) else {
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

    /// Creates the directory if needed, checks that this user owns it, and takes its lock. A second
    /// agent is refused while the first lives; the lock of a dead one is free.
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
        let open = || {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            options.mode(0o600).open(&path)
        };
        let mut looks = 0;
        let lock = loop {
            let file = open().map_err(io_error("open", &path))?;
            if let Some(lock) = FileLock::try_take(file).map_err(io_error("lock", &path))? {
                break lock;
            }
            let mut pid = String::new();
            let _ = File::open(&path).and_then(|file| file.take(32).read_to_string(&mut pid));
            let pid = match pid.trim() {
                "" => "unknown", // The owner has the lock and is about to write its number.
                pid => pid,
            };
            // A child that a killed agent had just forked has the lock until it runs its program.
            looks += 1;
            if looks > LEFT_LOCK_LOOKS_MAX || !is_gone(pid) {
                return Err(StreamError::Occupied {
                    path: self.path.clone(),
                    pid: pid.into(),
                });
            }
            pause();
        };
        let mut file = lock.file();
        file.set_len(0)
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(io_error("write", &path))?;
        Ok(AgentLock { _lock: lock })
    }

    /// Checks the owner. `/dev/shm` is open to all: an agent must never use a directory that
    /// someone else has created, or in which others may create files under our names. This user
    /// must own both a link and its target.
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

    /// Replaces a document in one step; readers see either the old or the new document, complete.
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
            // Set whatever the umask was.
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

    /// Reads a document; `None` if there is none.
    pub fn document(&self, name: &str) -> Result<Option<Vec<u8>>, StreamError> {
        match self.open() {
            Err(StreamError::NoAgent { .. }) => Ok(None),
            place => place?.document(name),
        }
    }
}

/// The effective user of this program.
fn this_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether `name` is a valid name of a scope: `all`, a user's `u1000`, a group's `g100`.
pub fn is_scope(name: &str) -> bool {
    let is_number = |id: &str| id.parse::<u32>().is_ok_and(|n| n.to_string() == id);
    let id = name.strip_prefix('u').or_else(|| name.strip_prefix('g'));
    name == SCOPE_OF_ALL || id.is_some_and(is_number)
}

/// Whether `name` can name a node of a cluster, or a cluster: it becomes part of paths and keys.
pub fn is_node_name(name: &str) -> bool {
    let is_inner = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    let begins = name.bytes().next();
    begins.is_some_and(|b| b.is_ascii_alphanumeric())
        && name.len() <= NODE_NAME_BYTES_MAX
        && name.bytes().all(is_inner)
}

fn path_of_user(shared_memory: &Path, uid: u32) -> PathBuf {
    shared_memory.join(format!("barograph-{uid}"))
}

/// The lock that an agent holds while it serves a run directory; the kernel frees it when the
/// process ends.
#[derive(Debug)]
pub struct AgentLock {
    _lock: FileLock,
}

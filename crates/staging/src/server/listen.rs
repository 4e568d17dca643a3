//! The sockets on which a server listens, and the threads that accept.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::config::UserFilter;
use super::session;
use super::shared::Shared;
use crate::block::UserId;
use crate::error::StagingError;
use crate::transport::Socket;

/// The time after a failure to accept, such as too many open files, before the next try.
const PAUSE: Duration = Duration::from_millis(50);

/// A socket that listens.
#[derive(Debug)]
enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// All sockets on which a server listens.
pub(super) struct Listeners {
    sockets: Vec<Arc<Listener>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    unix: Option<PathBuf>,
}

impl Listeners {
    pub(super) fn start(shared: &Arc<Shared>) -> Result<Self, StagingError> {
        let mut listeners = Self {
            sockets: Vec::new(),
            threads: Mutex::new(Vec::new()),
            unix: None,
        };
        let config = &shared.config;
        if let Some(path) = &config.unix {
            let socket = bind_unix(path, &config.users).map_err(|source| StagingError::Path {
                what: "listen at",
                path: path.clone(),
                source,
            })?;
            listeners.unix = Some(path.clone());
            listeners.sockets.push(Arc::new(Listener::Unix(socket)));
        }
        if let Some(address) = config.tcp {
            let failed = |error| StagingError::Config(format!("listen at {address}: {error}"));
            let socket = TcpListener::bind(address).map_err(failed)?;
            listeners.sockets.push(Arc::new(Listener::Tcp(socket)));
        }
        for socket in &listeners.sockets {
            let (socket, shared) = (Arc::clone(socket), Arc::clone(shared));
            let thread = std::thread::Builder::new().name("staging-accept".into());
            let thread = thread.spawn(move || run(&socket, &shared));
            let failed = |error| StagingError::Config(format!("no thread to accept: {error}"));
            let thread = thread.map_err(failed)?;
            let mut threads = listeners
                .threads
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            threads.push(thread);
        }
        Ok(listeners)
    }

    pub(super) fn tcp_address(&self) -> Option<SocketAddr> {
        self.sockets.iter().find_map(|socket| match &**socket {
            Listener::Tcp(socket) => socket.local_addr().ok(),
            Listener::Unix(_) => None,
        })
    }

    /// Accepts nothing any more. Called again, it does nothing.
    pub(super) fn stop(&self) {
        let threads = {
            let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *threads)
        };
        if threads.is_empty() {
            return;
        }
        for socket in &self.sockets {
            // Linux wakes a thread that accepts.
            let _ = rustix::net::shutdown(socket.descriptor(), rustix::net::Shutdown::Both);
        }
        for thread in threads {
            // A thread that has panicked has said so.
            let _ = thread.join();
        }
        if let Some(path) = &self.unix {
            // Whoever comes next removes it otherwise.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Listener {
    fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(socket) => socket.as_fd(),
            Self::Tcp(socket) => socket.as_fd(),
        }
    }

    fn accept(&self) -> io::Result<(Socket, Option<UserId>)> {
        match self {
            Self::Unix(socket) => {
                let (socket, _) = socket.accept()?;
                let peer = rustix::net::sockopt::socket_peercred(&socket)?;
                Ok((Socket::Unix(socket), Some(peer.uid.as_raw())))
            }
            Self::Tcp(socket) => {
                let (socket, _) = socket.accept()?;
                Ok((Socket::Tcp(socket), None))
            }
        }
    }
}

/// Binds a socket, in place of one that nobody serves any more.
fn bind_unix(path: &Path, users: &UserFilter) -> io::Result<UnixListener> {
    let socket = match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if UnixStream::connect(path).is_ok() {
                return Err(error);
            }
            std::fs::remove_file(path)?;
            UnixListener::bind(path)?
        }
        bound => bound?,
    };
    let mode = match users {
        UserFilter::Own => 0o600,
        UserFilter::These(_) | UserFilter::All => 0o666,
    };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    Ok(socket)
}

fn run(listener: &Listener, shared: &Arc<Shared>) {
    while !shared.is_stopping() {
        match listener.accept() {
            Ok((socket, user)) => admit(socket, user, shared),
            Err(_) if shared.is_stopping() => return,
            Err(_) => pause(),
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a failure to accept would come again at once, as fast as the processor is"
)]
fn pause() {
    std::thread::sleep(PAUSE);
}

fn admit(socket: Socket, user: Option<UserId>, shared: &Arc<Shared>) {
    if user.is_some_and(|user| !shared.config.serves(user)) {
        shared.admission.count(|counts| counts.refused += 1);
        return;
    }
    let Ok(handle) = socket.handle() else { return };
    let Some(id) = shared.admission.enter(handle, user, &shared.config) else {
        return;
    };
    let (inside, admission) = (Arc::clone(shared), Arc::clone(&shared.admission));
    let thread = std::thread::Builder::new().name("staging-session".into());
    let spawned = thread.spawn(move || {
        session::run(socket, user, id, &inside);
        // Who waits for the end of all connections may then open the store anew.
        drop(inside);
        admission.leave(id);
    });
    if spawned.is_err() {
        shared.admission.leave(id);
    }
}

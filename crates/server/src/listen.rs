//! The three listeners (TCP, `read.sock`, `control.sock`), and the serving of connections within
//! their bounds.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use barograph_stream::RunDir;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::ServerError;
use crate::app::App;
use crate::peer;
use crate::rights::{AccessWay, PeerPid};
use crate::share::{ClientPlaces, ClientShare};
use crate::stall::Stalling;

/// Most bytes of a request's head.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Most headers of a request.
const HEADERS_MAX: usize = 64;
const READ_SOCKET_MODE: u32 = 0o666;
const CONTROL_SOCKET_MODE: u32 = 0o600;
/// The answer to a client beyond the bound.
const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n\
    content-length: 77\r\nconnection: close\r\n\r\n\
    {\"error\":{\"kind\":\"busy\",\"message\":\"too many connections at once: try again\"}}";

/// The open listeners.
#[derive(Debug)]
pub(crate) struct Listeners {
    pub tcp: Option<TcpListener>,
    pub read: UnixListener,
    pub control: UnixListener,
}

impl Listeners {
    /// Opens all listeners. Must be called within the runtime's context.
    pub(crate) fn open(http: Option<SocketAddr>, run_dir: &RunDir) -> Result<Self, ServerError> {
        let tcp = http.map(open_tcp).transpose()?;
        let read = open_socket(&run_dir.read_socket(), READ_SOCKET_MODE)?;
        let control = open_socket(&run_dir.control_socket(), CONTROL_SOCKET_MODE)?;
        Ok(Self { tcp, read, control })
    }
}

fn open_tcp(address: SocketAddr) -> Result<TcpListener, ServerError> {
    if !address.ip().is_loopback() {
        return Err(ServerError::NotLoopback { address });
    }
    let open = || -> io::Result<TcpListener> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener)
    };
    open().map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => ServerError::InUse { address },
        _ => ServerError::Listen { address, source },
    })
}

/// Binds the socket under a temporary name, sets its mode, then renames it: nobody can connect
/// while it has another mode, and the socket of a dead agent is replaced.
fn open_socket(path: &Path, mode: u32) -> Result<UnixListener, ServerError> {
    let temporary: PathBuf = path.with_extension("new");
    let open = || -> io::Result<UnixListener> {
        let _ = fs::remove_file(&temporary);
        let listener = UnixListener::bind(&temporary)?;
        fs::set_permissions(&temporary, fs::Permissions::from_mode(mode))?;
        fs::rename(&temporary, path)?;
        Ok(listener)
    };
    open().map_err(|source| ServerError::Socket {
        path: path.into(),
        source,
    })
}

/// The user id of the client.
pub(crate) fn user_over_unix(socket: &UnixStream) -> Option<u32> {
    socket.peer_cred().ok().map(|peer| peer.uid())
}

/// The process id of the client, if the kernel knows it.
pub(crate) fn pid_over_unix(socket: &UnixStream) -> PeerPid {
    let pid = socket.peer_cred().ok().and_then(|peer| peer.pid());
    PeerPid(pid.and_then(|pid| u32::try_from(pid).ok()))
}

/// The user id of the client, if the kernel knows it.
pub(crate) fn user_over_tcp(socket: &TcpStream) -> Option<u32> {
    peer::user(socket.peer_addr().ok()?, socket.local_addr().ok()?)
}

/// Accepts connections until the server stops. `look` is called once for each new connection and
/// returns its way and its client.
pub(crate) async fn accept<L: Listener>(
    mut listener: L,
    app: Arc<App>,
    router: Router,
    room: Arc<ClientPlaces>,
    look: impl Fn(&L::Io) -> (AccessWay, ClientShare, PeerPid) + Send,
) {
    let mut stopped = pin!(app.stopped());
    loop {
        let mut socket = tokio::select! {
            (socket, _) = listener.accept() => socket,
            () = &mut stopped => return,
        };
        let seen = look(&socket);
        let Ok(place) = room.take(seen.1, "connections") else {
            app.counters
                .refused_connections
                .fetch_add(1, Ordering::Relaxed);
            refuse(&mut socket).await;
            continue;
        };
        let (app, router) = (Arc::clone(&app), router.clone());
        tokio::spawn(async move {
            serve(socket, seen, &app, router).await;
            drop(place);
        });
    }
}

/// Sends the 503 without waiting: a new socket has room for it, and one without room is not worth a
/// wait.
async fn refuse<T: AsyncWrite + Unpin>(socket: &mut T) {
    std::future::poll_fn(|context| {
        let _ = Pin::new(&mut *socket).poll_write(context, BUSY);
        std::task::Poll::Ready(())
    })
    .await;
}

async fn serve<T>(
    socket: T,
    (way, client, pid): (AccessWay, ClientShare, PeerPid),
    app: &App,
    router: Router,
) where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(way);
        request.extensions_mut().insert(client);
        request.extensions_mut().insert(pid);
        router.call(request)
    });
    let socket = TokioIo::new(Stalling::new(socket, app.limits.stall_time_max));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(app.limits.head_time_max)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(socket, service);
    let mut connection = pin!(connection);
    // A client that breaks the protocol or disconnects is no error to report.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = app.stopped() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

/// Waits until all connections have ended, at most `time_max`; returns whether they have.
pub(crate) async fn drained(room: &ClientPlaces, all: usize, time_max: Duration) -> bool {
    let drained = tokio::time::timeout(time_max, room.all(all)).await;
    drained.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busy_answer_has_its_length() {
        let text = std::str::from_utf8(BUSY).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(
            head.contains(&format!("content-length: {}\r\n", body.len())),
            "{}",
            body.len()
        );
        assert!(serde_json::from_str::<serde_json::Value>(body).is_ok());
    }
}

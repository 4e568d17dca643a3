//! What a server is made with, its limits by name, and what can go wrong at its start.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use barograph_model::SqlLimits;
use barograph_stream::StreamError;
use thiserror::Error;

use crate::ingest::Ingesting;

/// Where to listen, and how much to give away.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The TCP address, a loopback one; `None` leaves only the unix sockets.
    pub http: Option<SocketAddr>,
    /// Bounds.
    pub limits: Limits,
    /// Who takes what other protocols write; `None` refuses all of it.
    pub ingest: Option<Ingesting>,
}

/// Every bound of the server.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Most connections at once on each way in, a quarter of them of one user; one more is answered
    /// 503 and closed.
    pub connections_max: usize,
    /// Most watchers (`/api/v1/watch`) at once, a quarter of them of one user; keep it below
    /// `connections_max`.
    pub watchers_max: usize,
    /// Most streams that one watcher follows.
    pub watch_streams_max: usize,
    /// Most bytes of a request body.
    pub body_bytes_max: usize,
    /// Most bytes of the body of a write, before and after it is unpacked.
    pub ingest_bytes_max: usize,
    /// Most answers of SQL and history that are made or delivered at once.
    pub large_answers_max: usize,
    /// Longest wait for a place among these; then the answer is 503.
    pub place_time_max: Duration,
    /// Most bytes that all answers, what they are made of, and the bodies of requests hold at once.
    /// One user has three eighths of it at most; an eighth is for those who may control.
    pub memory_bytes_max: usize,
    /// Most samples in one answer of history.
    pub history_samples_max: usize,
    /// Longest wait for the head of a request, also between two requests of a connection.
    pub head_time_max: Duration,
    /// Longest time from the head of a request to the head of its answer.
    pub request_time_max: Duration,
    /// Longest time in which a client takes less than 64 KiB of what waits to be written to it.
    pub stall_time_max: Duration,
    /// A watcher that had nothing else for so long is sent a comment, so that whoever stands between
    /// keeps the connection open.
    pub keep_alive_every: Duration,
    /// Longest wait for open connections when the server stops.
    pub stop_time_max: Duration,
    /// Bounds of one SQL statement; `time_ns_max` should be below `request_time_max`.
    pub sql: SqlLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 256,
            watchers_max: 32,
            watch_streams_max: 4_096,
            body_bytes_max: 1 << 20,
            ingest_bytes_max: 4 << 20,
            large_answers_max: 8,
            place_time_max: Duration::from_secs(2),
            memory_bytes_max: 128 << 20,
            history_samples_max: 1_000_000,
            head_time_max: Duration::from_secs(10),
            request_time_max: Duration::from_secs(30),
            stall_time_max: Duration::from_secs(20),
            keep_alive_every: Duration::from_secs(15),
            stop_time_max: Duration::from_secs(2),
            sql: SqlLimits::default(),
        }
    }
}

/// What the agent says of itself.
#[derive(Clone, Debug)]
pub struct NodeInfo {
    /// Version of the program.
    pub version: String,
    /// When it was started, ns since the epoch.
    pub started_ns: i64,
}

/// Why a server does not start.
#[derive(Debug, Error)]
pub enum ServerError {
    /// An address that others can reach.
    #[error(
        "{address} can be reached from other machines, and there is no TLS yet: \
         use --http 127.0.0.1:{}", address.port()
    )]
    NotLoopback {
        /// The refused address.
        address: SocketAddr,
    },
    /// Someone else listens there.
    #[error("{address} is in use: stop the other program or choose another --http")]
    InUse {
        /// The address.
        address: SocketAddr,
    },
    /// The system refuses the address.
    #[error("cannot listen on {address}: {source} (choose another --http)")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// A unix socket cannot be made.
    #[error("cannot make the socket {}: {source} (choose a --run-dir that this user may write \
             and whose path is short)", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// No random bytes for the control token.
    #[error("cannot read /dev/urandom: {source}")]
    Random {
        /// What the system said.
        source: io::Error,
    },
    /// The threads cannot be started.
    #[error("cannot start the threads of the server: {source}")]
    Threads {
        /// What the system said.
        source: io::Error,
    },
    /// A receiver of exports that is not to be used.
    #[error("the export's {what} is refused: {reason}")]
    Export {
        /// What of it.
        what: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The run directory refuses.
    #[error(transparent)]
    RunDir(#[from] StreamError),
}

//! The server's configuration, its limits by name, and its errors at start.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use barograph_bridge::Ingest;
use barograph_model::SqlLimits;
use barograph_stream::StreamError;
use thiserror::Error;

use crate::event_feed::EventFeeds;

/// Configuration of a server: its address, its limits, and its intake from other protocols.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The TCP address, which must be a loopback address; `None` leaves only the unix sockets.
    pub http: Option<SocketAddr>,
    /// Bounds of all requests and connections.
    pub limits: ServerLimits,
    /// Receiver of samples that other protocols write; `None` refuses all of them.
    pub ingest: Option<IngestConfig>,
    /// The file events of the node; `None` if none are recorded.
    pub events: Option<Arc<dyn EventFeeds>>,
}

/// The receiver of writes, and the ways on which they may come.
#[derive(Clone, Debug)]
pub struct IngestConfig {
    /// The receiver of the points.
    pub to: Arc<dyn Ingest>,
    /// Whether writes are accepted over TCP too; over the unix sockets they always are.
    pub over_tcp: bool,
}

/// All bounds of the server that can be configured.
#[derive(Clone, Debug)]
pub struct ServerLimits {
    /// Most connections at once for each listener; one user gets at most a quarter of them. One
    /// more is answered with 503 and closed.
    pub connections_max: usize,
    /// Most watchers (`/api/v1/watch`, `/api/v1/events`) at once; one user gets at most a quarter
    /// of them. Keep it below `connections_max`.
    pub watchers_max: usize,
    /// Most streams that one watcher follows.
    pub watch_streams_max: usize,
    /// Most bytes of a request body.
    pub body_bytes_max: usize,
    /// Most bytes of the body of a write by another protocol, before and after it is unpacked.
    pub ingest_bytes_max: usize,
    /// Most answers of SQL and history that are made or delivered at once.
    pub large_answers_max: usize,
    /// Longest wait for one of these places; after it the answer is 503.
    pub place_time_max: Duration,
    /// Most bytes that all answers, the data they are made from, and the bodies of requests hold at
    /// once. One user gets at most three eighths of it; an eighth is reserved for control.
    pub memory_bytes_max: usize,
    /// Most samples in one answer of history.
    pub history_samples_max: usize,
    /// Longest wait for the head of a request, also between two requests of a connection.
    pub head_time_max: Duration,
    /// Longest time from the head of a request to the head of its answer.
    pub request_time_max: Duration,
    /// Longest time in which a client takes less than 64 KiB of the data that waits to be written
    /// to it.
    pub stall_time_max: Duration,
    /// Time without a message after which a watcher is sent a comment, so that proxies keep the
    /// connection open.
    pub keep_alive_every: Duration,
    /// Longest wait for open connections when the server stops.
    pub stop_time_max: Duration,
    /// Bounds of one SQL statement; `time_ns_max` should be below `request_time_max`.
    pub sql: SqlLimits,
}

impl Default for ServerLimits {
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

/// Facts about the agent that the status reports.
#[derive(Clone, Debug)]
pub struct NodeInfo {
    /// Version of the program.
    pub version: String,
    /// Start time of the agent, ns since the epoch.
    pub started_ns: i64,
}

/// The reasons why a server does not start.
#[derive(Debug, Error)]
pub enum ServerError {
    /// The TCP address can be reached from other machines.
    #[error(
        "{address} can be reached from other machines, and there is no TLS yet: \
         use --http 127.0.0.1:{}", address.port()
    )]
    NotLoopback {
        /// The refused address.
        address: SocketAddr,
    },
    /// Another program listens on the address.
    #[error("{address} is in use: stop the other program or choose another --http")]
    InUse {
        /// The address that is in use.
        address: SocketAddr,
    },
    /// The system does not let the server listen on the address.
    #[error("cannot listen on {address}: {source} (choose another --http)")]
    Listen {
        /// The address of the listener.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// A unix socket cannot be made.
    #[error("cannot make the socket {}: {source} (choose a --run-dir that this user may write \
             and whose path is short)", path.display())]
    Socket {
        /// Path of the socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// There are no random bytes for the control token.
    #[error("cannot read /dev/urandom: {source}")]
    Random {
        /// The system's error.
        source: io::Error,
    },
    /// The server's threads cannot be started.
    #[error("cannot start the threads of the server: {source}")]
    Threads {
        /// The system's error.
        source: io::Error,
    },
    /// The configuration of an export's receiver is invalid.
    #[error("the export's {what} is refused: {reason}")]
    Export {
        /// The invalid part.
        what: String,
        /// The reason why it is invalid, and the remedy.
        reason: String,
    },
    /// The run directory could not be read or written.
    #[error(transparent)]
    RunDir(#[from] StreamError),
}

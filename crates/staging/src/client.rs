//! The client: puts and gets over several servers, with replicas.
//!
//! The caller hands in a map of servers with its epoch ([`StagingMap`]), and a new one when it
//! changes. Blocks are placed by a function ([`rendezvous`] unless configured). The client sends
//! each block to its replicas itself; a read takes the first replica that has the block for
//! certain, and repairs those before it that have not.

mod address;
mod buffer;
mod config;
mod connection;
mod dial;
mod get;
mod guest;
mod list;
mod locate;
mod placement;
mod pool;
mod put;
mod remove;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use barograph_model::Clock;

pub use config::{
    ClientConfig, ClientCounts, GetOptions, MappedCheck, PutOptions, PutOrder, PutReport,
    ServerAddress, StagingMap,
};
pub use guest::GuestClient;
pub use list::ListCursor;
pub use locate::{BlockReplica, LocateAnswer};
pub use placement::{Placement, rendezvous};

use crate::block::BlockInfo;
use crate::error::{FaultCode, StagingError};
use crate::key::BlockKey;
use crate::status::ServerStatus;
use crate::wire::{Answer, Request};
use locate::ServerTimes;
use pool::Pool;

/// The longest time between two looks whether a newer map has come.
const LOOK: Duration = Duration::from_millis(20);

/// A client of a set of servers. All functions may be called by many threads; each call has a
/// connection for itself.
pub struct StagingClient {
    config: ClientConfig,
    clock: Arc<dyn Clock>,
    map: Mutex<Arc<StagingMap>>,
    /// Told when there is a new map.
    has_map: Condvar,
    pool: Pool,
    counts: Mutex<ClientCounts>,
    times: Mutex<ServerTimes>,
}

impl StagingClient {
    /// A client of the servers of a map. Connections are made when they are needed.
    pub fn new(config: ClientConfig, map: StagingMap, clock: Arc<dyn Clock>) -> Self {
        Self {
            config,
            clock,
            map: Mutex::new(Arc::new(map)),
            has_map: Condvar::new(),
            pool: Pool::default(),
            counts: Mutex::default(),
            times: Mutex::default(),
        }
    }

    /// Takes a newer map. One of an earlier epoch changes nothing.
    pub fn set_map(&self, map: StagingMap) {
        let mut now = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        if map.epoch >= now.epoch {
            self.pool.keep(&map);
            self.keep_times(&map);
            *now = Arc::new(map);
        }
        self.has_map.notify_all();
    }

    /// The map that is used.
    pub fn map(&self) -> Arc<StagingMap> {
        Arc::clone(&self.map.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What has happened since the start.
    pub fn counts(&self) -> ClientCounts {
        *self.counted()
    }

    /// What a server knows of a block: the answer of the first replica that has it.
    ///
    /// # Errors
    ///
    /// [`FaultCode::NotFound`], [`FaultCode::NotKnown`] or [`FaultCode::Unreachable`], of the last
    /// replica that was asked.
    pub fn stat(&self, key: &BlockKey) -> Result<BlockInfo, StagingError> {
        self.in_epoch(|map| {
            let mut last = no_servers();
            for server in self.replicas(key, map) {
                let epoch = map.epoch;
                let request = Request::Stat {
                    epoch,
                    key: key.clone(),
                };
                match self.simple(map, server, &request) {
                    Ok(Answer::Info(info)) => return Ok(info),
                    Ok(_) => last = nonsense(),
                    Err(error) if is_later(&error, epoch) => return Err(error),
                    Err(error) => last = error,
                }
            }
            Err(last)
        })
    }

    /// What a server tells of itself.
    ///
    /// # Errors
    ///
    /// [`FaultCode::Denied`] unless this is the user of the server, or root;
    /// [`FaultCode::Unreachable`].
    pub fn server_status(&self, server: u64) -> Result<ServerStatus, StagingError> {
        match self.simple(&self.map(), server, &Request::Status)? {
            Answer::Status(status) => Ok(*status),
            _ => Err(nonsense()),
        }
    }

    /// The servers of a block: the first ones by its placement.
    fn replicas(&self, key: &BlockKey, map: &StagingMap) -> Vec<u64> {
        let mut order = self.order(key, map);
        order.truncate(self.config.replicas.max(1));
        order
    }

    fn order(&self, key: &BlockKey, map: &StagingMap) -> Vec<u64> {
        let servers: Vec<u64> = map.servers.keys().copied().collect();
        let mut order = (self.config.placement)(key, &servers);
        order.retain(|server| map.servers.contains_key(server));
        order
    }

    /// Does something with the map in force. If a server says that its epoch is over, a newer map
    /// is waited for, up to the time that is configured for that.
    fn in_epoch<T>(
        &self,
        mut act: impl FnMut(&StagingMap) -> Result<T, StagingError>,
    ) -> Result<T, StagingError> {
        let now_ns = self.clock.monotonic_ns();
        let until_ns = now_ns.saturating_add(self.config.map_wait_ns);
        loop {
            let map = self.map();
            match act(&map) {
                Err(error) if is_later(&error, map.epoch) => {
                    self.counted().fenced += 1;
                    if !self.wait_for_map(error.number(), until_ns) {
                        return Err(error);
                    }
                }
                done => return done,
            }
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "an operation of an epoch that is over waits for the next map, for a bounded time"
    )]
    fn wait_for_map(&self, epoch: u64, until_ns: i64) -> bool {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        while map.epoch < epoch {
            if self.clock.monotonic_ns() >= until_ns {
                return false;
            }
            let waited = self.has_map.wait_timeout(map, LOOK);
            map = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// A request that is answered by one frame.
    fn simple(
        &self,
        map: &StagingMap,
        server: u64,
        request: &Request,
    ) -> Result<Answer, StagingError> {
        self.on_server(map, server, 0, |connection, until_ns| {
            connection.ask(request, until_ns)
        })
    }

    /// The time by which an operation on so many bytes has to be through.
    fn until(&self, bytes: u64) -> i64 {
        let now_ns = self.clock.monotonic_ns();
        now_ns.saturating_add(self.config.call_ns(bytes))
    }

    fn counted(&self) -> MutexGuard<'_, ClientCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a server has refused an epoch for a later one.
fn is_later(error: &StagingError, epoch: u64) -> bool {
    error.code() == Some(FaultCode::Fenced) && error.number() > epoch
}

fn no_servers() -> StagingError {
    StagingError::fault(FaultCode::Unreachable, "the map has no servers")
}

/// The error for an answer that does not fit its request.
fn nonsense() -> StagingError {
    StagingError::fault(FaultCode::Unreachable, "the server answers something else")
}

//! The server: it serves a store over a unix socket and TCP, one thread for each connection.
//!
//! `listen.rs` accepts, `admission.rs` bounds connections, `session.rs` runs one of them and
//! `serve.rs` answers its requests. Threads block: one request at a time is what a connection has,
//! and blocks go from sockets into their place in memory without a copy between.

mod admission;
mod config;
mod costs;
mod fence;
mod listen;
mod serve;
mod session;
mod shared;
mod tokens;

use std::net::SocketAddr;
use std::sync::Arc;

pub use barograph_control::ToldEpochs;

pub use config::{ServerConfig, TcpReach, UserFilter};

use crate::error::StagingError;
use crate::status::{ServerCounts, ServerStatus};
use crate::store::{BlockStore, Flusher, ServerMembership};
use listen::Listeners;
use shared::Shared;

/// A server that runs. Dropped, it stops without waiting for flushes.
pub struct StagingServer {
    shared: Arc<Shared>,
    listeners: Listeners,
    flusher: Flusher,
}

impl StagingServer {
    /// Starts to serve a store.
    ///
    /// # Errors
    ///
    /// The configuration contradicts itself, or a socket cannot be bound.
    pub fn start(store: Arc<BlockStore>, config: ServerConfig) -> Result<Self, StagingError> {
        config.check()?;
        let flusher = Flusher::start(&store, config.flush_threads)?;
        let told = config.told;
        let shared = Arc::new(Shared::new(store, config));
        if let Some((told, membership)) = told {
            shared.tell(told, membership);
        }
        let listeners = Listeners::start(&shared)?;
        Ok(Self {
            shared,
            listeners,
            flusher,
        })
    }

    /// The address of TCP that is bound, if it serves TCP.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.listeners.tcp_address()
    }

    /// Takes in what is newest of the map of servers. When this returns, no operation of an epoch
    /// before the fence is served any more. A server that was never told serves epoch 0 alone; a
    /// fence that was told is never lowered.
    pub fn tell(&self, told: ToldEpochs, membership: ServerMembership) {
        self.shared.tell(told, membership);
    }

    /// The first epoch that is served.
    pub fn fence(&self) -> u64 {
        self.shared.fence.fence()
    }

    /// What has happened since the start.
    pub fn counts(&self) -> ServerCounts {
        self.shared.admission.counts()
    }

    /// What the server tells of itself.
    pub fn status(&self) -> ServerStatus {
        self.shared.status()
    }

    /// Stops in order: no new connections, the end of requests that run, flushes, and a note in
    /// each directory that nothing was lost. All of it takes at most this time, in nanoseconds.
    ///
    /// # Errors
    ///
    /// Blocks could not be flushed in time; the next start will take what it finds as unconfirmed.
    pub fn stop(self, within_ns: i64) -> Result<(), StagingError> {
        let clock = &self.shared.store.clock;
        let until_ns = clock.monotonic_ns().saturating_add(within_ns);
        self.shared.stop();
        self.listeners.stop();
        self.shared.admission.wait_for_end(&**clock, until_ns);
        self.flusher
            .drain(until_ns.saturating_sub(clock.monotonic_ns()));
        self.shared.store.mark_clean()
    }
}

impl Drop for StagingServer {
    fn drop(&mut self) {
        self.shared.stop();
        self.listeners.stop();
        self.shared.admission.shut_all();
    }
}

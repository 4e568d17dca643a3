//! A client in a program that does not know of it: it may fork at any moment.
//!
//! A child gets a client of its own at its first call: two processes on one connection would take
//! each other's answers, and a lock that another thread had during the fork is never unlocked in
//! the child. Descriptors that the program closes are the matter of `transport.rs`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, TryLockError};

use barograph_model::Clock;

use super::StagingClient;
use super::config::{ClientConfig, PutOrder, StagingMap};
use crate::error::{FaultCode, StagingError};

/// A client that goes on in the children of its process.
pub struct GuestClient {
    config: ClientConfig,
    clock: Arc<dyn Clock>,
    first: Box<ProcessClient>,
    /// The newest version that [`GuestClient::next_version`] has given.
    version: AtomicU64,
}

/// The client of one process.
struct ProcessClient {
    process: u32,
    /// `None` when it ends.
    client: Option<Box<StagingClient>>,
    /// That of the child, in a child.
    next: OnceLock<Box<ProcessClient>>,
}

impl GuestClient {
    /// A client of the servers of a map. It starts no threads: replicas are put in turn.
    pub fn new(config: ClientConfig, map: StagingMap, clock: Arc<dyn Clock>) -> Self {
        let config = ClientConfig {
            put_order: PutOrder::InTurn,
            ..config
        };
        let client = StagingClient::new(config.clone(), map, Arc::clone(&clock));
        Self {
            config,
            clock,
            first: ProcessClient::new(client),
            version: AtomicU64::new(0),
        }
    }

    /// The client of this process.
    ///
    /// # Errors
    ///
    /// [`FaultCode::Busy`] in a child whose parent changed its map of servers in the moment of the
    /// fork, in another thread.
    pub fn client(&self) -> Result<&StagingClient, StagingError> {
        let mut newest = &*self.first;
        while let Some(next) = newest.next.get() {
            newest = next;
        }
        if newest.process != process() {
            newest = self.of_child(newest)?;
        }
        let client = newest.client.as_deref();
        Ok(client.expect("a client is taken out only when it is dropped"))
    }

    /// A version for a put that has none: the time, in nanoseconds since the epoch, or one more
    /// than the last one if the clock has not gone on.
    pub fn next_version(&self) -> u64 {
        let now = u64::try_from(self.clock.now_ns()).unwrap_or(0);
        let later = |last: u64| now.max(last.saturating_add(1));
        let order = Ordering::Relaxed;
        let last = self
            .version
            .fetch_update(order, order, |last| Some(later(last)));
        later(last.unwrap_or_else(|last| last))
    }

    fn of_child<'a>(&self, parent: &'a ProcessClient) -> Result<&'a ProcessClient, StagingError> {
        let of_parent = parent.client.as_deref();
        let map = of_parent.map(|client| match client.map.try_lock() {
            Ok(map) => Ok(StagingMap::clone(&map)),
            Err(TryLockError::Poisoned(poisoned)) => Ok(StagingMap::clone(&poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => {
                let text = "the process was forked while its map of servers changed: open a client";
                Err(StagingError::fault(FaultCode::Busy, text))
            }
        });
        let map = map.transpose()?.unwrap_or_default();
        if let Some(client) = of_parent {
            client.pool.abandon();
        }
        let client = StagingClient::new(self.config.clone(), map, Arc::clone(&self.clock));
        // If another thread was first, its client is the one.
        Ok(parent.next.get_or_init(|| ProcessClient::new(client)))
    }
}

impl ProcessClient {
    fn new(client: StagingClient) -> Box<Self> {
        Box::new(Self {
            process: process(),
            client: Some(Box::new(client)),
            next: OnceLock::new(),
        })
    }
}

impl Drop for ProcessClient {
    fn drop(&mut self) {
        if self.process != process()
            && let Some(client) = self.client.take()
        {
            // What another thread was changing in the moment of the fork is not touched.
            client.pool.abandon();
            std::mem::forget(client);
        }
    }
}

fn process() -> u32 {
    std::process::id()
}

#[cfg(test)]
mod tests {
    use barograph_model::ManualClock;

    use super::*;

    #[test]
    fn versions_only_grow() {
        let clock = Arc::new(ManualClock::at(1_000));
        let map = StagingMap::default();
        let client = GuestClient::new(ClientConfig::default(), map, clock);
        assert_eq!(
            [(); 3].map(|()| client.next_version()),
            [1_000, 1_001, 1_002]
        );
    }
}

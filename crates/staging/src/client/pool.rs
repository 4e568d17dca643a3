//! Connections that wait for their next request, and requests that are tried again.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::StagingClient;
use super::config::{ServerAddress, StagingMap};
use super::connection::Connection;
use super::no_servers;
use crate::error::{FaultCode, StagingError};

/// Connections that wait, by server.
#[derive(Default)]
pub(super) struct Pool(Mutex<BTreeMap<u64, Idle>>);

struct Idle {
    address: ServerAddress,
    connections: Vec<Connection>,
}

impl Pool {
    /// Closes connections to servers that are not in a map, or listen elsewhere.
    pub(super) fn keep(&self, map: &StagingMap) {
        let mut idle = self.lock();
        idle.retain(|server, idle| map.servers.get(server) == Some(&idle.address));
    }

    fn take(&self, server: u64, address: &ServerAddress) -> Option<Connection> {
        let mut idle = self.lock();
        let idle = idle.get_mut(&server).filter(|it| it.address == *address);
        let connections = &mut idle?.connections;
        // The program around the client may have closed descriptors that are not its own.
        std::iter::from_fn(|| connections.pop()).find(Connection::has_socket)
    }

    /// Closes this process's copies of the connections of the process that it was forked from. They
    /// stay open if a thread of that one was about to take one: nobody unlocks them here.
    pub(super) fn abandon(&self) {
        if let Ok(mut idle) = self.0.try_lock() {
            idle.clear();
        }
    }

    fn give(&self, server: u64, address: &ServerAddress, connection: Connection, max: usize) {
        let mut idle = self.lock();
        let idle = idle.entry(server).or_insert_with(|| Idle {
            address: address.clone(),
            connections: Vec::new(),
        });
        if idle.address == *address && idle.connections.len() < max {
            idle.connections.push(connection);
        }
    }

    /// Closes all connections to a server that wait: the server has ended one.
    fn forget(&self, server: u64) {
        self.lock().remove(&server);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Idle>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StagingClient {
    /// Does something on a connection to a server. It is tried again if the connection fails or
    /// the server's disk does: another tier may take the block then.
    pub(super) fn on_server<T>(
        &self,
        map: &StagingMap,
        server: u64,
        bytes: u64,
        mut act: impl FnMut(&mut Connection, i64) -> Result<T, StagingError>,
    ) -> Result<T, StagingError> {
        let address = map.servers.get(&server).ok_or_else(no_servers)?;
        let until_ns = self.until(bytes);
        let mut tries_left = self.config.tries.max(1);
        loop {
            let done = self.once(server, address, until_ns, &mut act);
            tries_left -= 1;
            let code = done.as_ref().err().and_then(StagingError::code);
            let may_pass = matches!(code, Some(FaultCode::Unreachable | FaultCode::Disk));
            let is_over = tries_left == 0 || self.clock.monotonic_ns() >= until_ns;
            if !may_pass || is_over {
                return done;
            }
            self.counted().retries += 1;
        }
    }

    fn once<T>(
        &self,
        server: u64,
        address: &ServerAddress,
        until_ns: i64,
        act: &mut impl FnMut(&mut Connection, i64) -> Result<T, StagingError>,
    ) -> Result<T, StagingError> {
        let mut connection = match self.pool.take(server, address) {
            Some(connection) => connection,
            None => {
                self.counted().connections += 1;
                Connection::open(address, &self.config, &self.clock, until_ns)?
            }
        };
        let done = act(&mut connection, until_ns);
        match connection.is_sound {
            true => {
                let max = self.config.idle_connections_max;
                self.pool.give(server, address, connection, max);
            }
            // Others that wait were broken by the same end of the server.
            false => self.pool.forget(server),
        }
        done
    }
}

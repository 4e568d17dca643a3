//! How many connections there are, and whose.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use barograph_model::Clock;

use super::config::ServerConfig;
use crate::block::UserId;
use crate::status::ServerCounts;
use crate::transport::Socket;

/// The longest time between two looks whether all connections have ended.
const LOOK: Duration = Duration::from_millis(50);

/// A connection.
pub(crate) type SessionId = u64;

/// The connections of a server.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    inner: Mutex<AdmissionInner>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct AdmissionInner {
    counts: ServerCounts,
    next: SessionId,
    users: BTreeMap<UserId, usize>,
    sessions: BTreeMap<SessionId, Session>,
}

#[derive(Debug)]
struct Session {
    /// Whose it is, once that is known.
    user: Option<UserId>,
    socket: Socket,
}

impl Admission {
    pub(crate) fn counts(&self) -> ServerCounts {
        self.lock().counts
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut ServerCounts)) {
        change(&mut self.lock().counts);
    }

    /// Takes in a connection. That of a stranger may end the oldest other one.
    pub(crate) fn enter(
        &self,
        socket: Socket,
        user: Option<UserId>,
        config: &ServerConfig,
    ) -> Option<SessionId> {
        let mut inner = self.lock();
        let admitted = match user {
            Some(user) => inner.admit(user, config),
            None => inner.make_place_for_stranger(config),
        };
        if !admitted {
            inner.counts.refused += 1;
            return None;
        }
        let id = inner.next;
        inner.next += 1;
        inner.sessions.insert(id, Session { user, socket });
        Some(id)
    }

    /// Notes whose a connection is; `false` if that user has no place for it.
    pub(crate) fn identify(&self, id: SessionId, user: UserId, config: &ServerConfig) -> bool {
        let mut inner = self.lock();
        let is_open = inner.sessions.contains_key(&id) && inner.admit(user, config);
        if !is_open {
            inner.counts.refused += 1;
            return false;
        }
        if let Some(session) = inner.sessions.get_mut(&id) {
            session.user = Some(user);
        }
        true
    }

    pub(crate) fn leave(&self, id: SessionId) {
        let mut inner = self.lock();
        let user = inner.sessions.remove(&id).and_then(|session| session.user);
        if let Some(user) = user
            && let Some(count) = inner.users.get_mut(&user)
        {
            *count -= 1;
            if *count == 0 {
                inner.users.remove(&user);
            }
        }
        self.ended.notify_all();
    }

    /// Waits until all connections have ended, and ends them at a monotonic time.
    #[expect(clippy::disallowed_methods, reason = "the end of a server waits")]
    pub(crate) fn wait_for_end(&self, clock: &dyn Clock, until_ns: i64) {
        let mut inner = self.lock();
        while !inner.sessions.is_empty() {
            if clock.monotonic_ns() >= until_ns {
                inner.shut_all();
                return;
            }
            let waited = self.ended.wait_timeout(inner, LOOK);
            inner = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(crate) fn shut_all(&self) {
        self.lock().shut_all();
    }

    fn lock(&self) -> MutexGuard<'_, AdmissionInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AdmissionInner {
    fn admit(&mut self, user: UserId, config: &ServerConfig) -> bool {
        let all: usize = self.users.values().sum();
        let own = self.users.get(&user).copied().unwrap_or_default();
        let is_open = all < config.connections_max && own < config.user_connections_max;
        if is_open {
            self.users.insert(user, own + 1);
            self.counts.admitted += 1;
        }
        is_open
    }

    fn make_place_for_stranger(&mut self, config: &ServerConfig) -> bool {
        let strangers = self.sessions.iter().filter(|(_, it)| it.user.is_none());
        let strangers: Vec<_> = strangers.map(|(id, _)| *id).collect();
        if strangers.len() >= config.strangers_max.max(1)
            && let Some(oldest) = strangers.first()
            && let Some(session) = self.sessions.remove(oldest)
        {
            // Its thread finds that it has no place any more.
            session.socket.shut();
            self.counts.unknown += 1;
        }
        true
    }

    fn shut_all(&self) {
        for session in self.sessions.values() {
            session.socket.shut();
        }
    }
}

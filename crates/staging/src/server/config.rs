//! The configuration of a server.

use std::net::SocketAddr;
use std::path::PathBuf;

use barograph_control::ToldEpochs;
use barograph_model::NS_PER_S;

use crate::block::UserId;
use crate::error::StagingError;
use crate::store::ServerMembership;

/// Connections of all users, unless configured.
const CONNECTIONS_DEFAULT: usize = 128;
/// Connections of one user, unless configured.
const USER_CONNECTIONS_DEFAULT: usize = 32;
/// Connections over TCP of which it is not known yet whose they are, unless configured.
const STRANGERS_DEFAULT: usize = 16;
/// The time after which a connection without requests is closed, unless configured: 5 minutes.
const IDLE_NS_DEFAULT: i64 = 300 * NS_PER_S;
/// The time for a frame without data, unless configured: 10 s.
const FRAME_NS_DEFAULT: i64 = 10 * NS_PER_S;
/// The least rate of data, unless configured: 1 MiB/s.
const RATE_DEFAULT: u64 = 1 << 20;

/// Who may connect over TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpReach {
    /// Programs of this machine.
    Loopback,
    /// Programs of other machines, too. Tokens and blocks are not encrypted: the network has to be
    /// one that strangers cannot listen to.
    Network,
}

/// Which users are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserFilter {
    /// The user of the server.
    Own,
    /// These users.
    These(Vec<UserId>),
    /// All users.
    All,
}

/// A server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The unix socket. Its directory decides who could put another one in its place.
    pub unix: Option<PathBuf>,
    /// The address of TCP. A port of 0 means one of the system's choice.
    pub tcp: Option<SocketAddr>,
    /// Who may connect over TCP.
    pub reach: TcpReach,
    /// The directory with the tokens of TCP: a file for each user, named by the uid, which only its
    /// owner may read, with at least 16 bytes.
    pub tokens: Option<PathBuf>,
    /// Which users are served.
    pub users: UserFilter,
    /// Connections of all users.
    pub connections_max: usize,
    /// Connections of one user.
    pub user_connections_max: usize,
    /// Connections over TCP of which it is not known yet whose they are. One more ends the oldest.
    pub strangers_max: usize,
    /// The time after which a connection without requests is closed, in nanoseconds.
    pub idle_ns: i64,
    /// The time for a frame without data, from its first byte on, in nanoseconds.
    pub frame_ns: i64,
    /// The least rate of data, in bytes per second, in addition to `frame_ns`.
    pub rate_min: u64,
    /// Threads that flush.
    pub flush_threads: usize,
    /// What is known of the map of servers before the first connection.
    pub told: Option<(ToldEpochs, ServerMembership)>,
}

impl Default for ServerConfig {
    /// A server of its own user that listens nowhere yet.
    fn default() -> Self {
        Self {
            unix: None,
            tcp: None,
            reach: TcpReach::Loopback,
            tokens: None,
            users: UserFilter::Own,
            connections_max: CONNECTIONS_DEFAULT,
            user_connections_max: USER_CONNECTIONS_DEFAULT,
            strangers_max: STRANGERS_DEFAULT,
            idle_ns: IDLE_NS_DEFAULT,
            frame_ns: FRAME_NS_DEFAULT,
            rate_min: RATE_DEFAULT,
            flush_threads: 1,
            told: None,
        }
    }
}

impl ServerConfig {
    pub(super) fn check(&self) -> Result<(), StagingError> {
        let refuse = |why: &str| Err(StagingError::Config(why.into()));
        if self.unix.is_none() && self.tcp.is_none() {
            return refuse("the server listens nowhere: set `unix` or `tcp`");
        }
        if self.tcp.is_some() && self.tokens.is_none() {
            return refuse("TCP needs a directory of tokens: set `tokens`");
        }
        let is_remote = self.tcp.is_some_and(|address| !address.ip().is_loopback());
        if is_remote && self.reach == TcpReach::Loopback {
            return refuse("`tcp` is not a loopback address: set `reach` if the network is closed");
        }
        Ok(())
    }

    /// Whether a user is served.
    pub(super) fn serves(&self, user: UserId) -> bool {
        match &self.users {
            UserFilter::Own => user == rustix::process::geteuid().as_raw(),
            UserFilter::These(users) => users.contains(&user),
            UserFilter::All => true,
        }
    }

    /// The time for a frame with data behind it, in nanoseconds.
    pub(super) fn data_ns(&self, bytes: u64) -> i64 {
        let ns = u128::from(bytes) * NS_PER_S as u128 / u128::from(self.rate_min.max(1));
        self.frame_ns
            .saturating_add(i64::try_from(ns).unwrap_or(i64::MAX))
    }
}

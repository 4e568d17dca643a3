//! The words about maps of servers.

use barograph_stream::ingest::ServerSet;
use serde::{Deserialize, Serialize};

/// Most bytes of the name of a map that is kept.
pub(crate) const MAP_NAME_BYTES_MAX: usize = 96;
/// Servers that a map may have, and hexadecimal digits of their set.
pub(crate) const SERVERS_MAX: u32 = 1_024;
const DIGITS: usize = SERVERS_MAX as usize / 4;

/// A map: its user, and the name that the user's programs have given it.
pub(crate) type MapKey = (u32, String);

/// What a node says of a map.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MapWord {
    /// The user, and the name of the map.
    pub user: u32,
    pub name: String,
    /// The application of the first process that used it.
    pub application: String,
    /// Processes that are members, and their operations that run.
    pub members: u64,
    pub running: u64,
    /// The epoch that the node has been told.
    pub epoch: u64,
    /// The epoch for which all of its members suspend operations; 0 for none.
    pub prepared: u64,
    /// Whether none of an epoch before that one runs.
    pub is_drained: bool,
    /// The greatest fence with which a server has refused a member.
    pub refused: u64,
    /// The servers that the programs of the members have declared.
    pub declared: String,
    /// Operations of its members that have ended since its agent knows of the map.
    #[serde(default)]
    pub operations: u64,
    /// The servers of this node.
    pub servers: Vec<ServerWord>,
    /// Servers whose processes have certainly ended, with these.
    pub gone: Vec<(u32, String)>,
    /// Requests that were measured: the server, bytes times one more than the requests before it,
    /// seconds, and the number of requests that the server has served so far.
    pub samples: Vec<(u32, u64, f64, u64)>,
}

/// A server of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerWord {
    pub number: u32,
    pub process: String,
    /// It serves nothing of epochs before this one any more; 0 if it has not said that.
    pub fence: u64,
}

/// What the leader says of a map.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MapOrder {
    pub user: u32,
    pub name: String,
    /// The epoch that is being prepared; 0 for none.
    pub prepare: u64,
    /// The epoch in force.
    pub epoch: u64,
    /// The first epoch that is served.
    pub fence: u64,
    /// The servers of the epoch in force.
    pub servers: String,
    /// The servers whose home is this node, in the store: they may be told this.
    pub homes: String,
}

/// How a map is to be changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct MapChange {
    /// Servers that are added and taken out.
    pub add: Vec<u32>,
    pub remove: Vec<u32>,
    /// Servers of which the asker says that no process that was told of the map runs any more.
    pub gone: Vec<u32>,
    /// Whether the map is removed, which no program uses.
    pub forget: bool,
}

/// A map, for those who look at it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LedMapRow {
    pub user: u32,
    pub name: String,
    pub application: String,
    pub epoch: u64,
    pub servers: Vec<u32>,
    /// The epoch of the change that is under way.
    pub next_epoch: Option<u64>,
    /// What it waits for.
    pub stage: String,
    pub nodes: usize,
    pub members: u64,
    pub running: u64,
    /// Servers that are there, and those that have certainly ended.
    pub running_servers: Vec<u32>,
    pub gone_servers: Vec<u32>,
    /// Servers that are there on other nodes than before, and have not certainly ended where they
    /// were: they serve nothing. With these nodes, and with those before as far as they are known.
    #[serde(default)]
    pub moved_servers: Vec<(u32, String, Option<String>)>,
    /// The server that is slower than its peers: its number, how many times, and the rate of false
    /// alarms in a window.
    pub slow: Option<(u64, f64, f64)>,
    /// Servers that were taken out since they were slow, and not added again.
    #[serde(default)]
    pub out_servers: Vec<u32>,
    /// Operations/s that its members end, in a window of the last minute; `None` if too few windows
    /// had any.
    #[serde(default)]
    pub operations_s: Option<f64>,
    pub changes: Vec<MapEnd>,
    /// What its servers do.
    #[serde(default)]
    pub loads: Vec<ServerLoad>,
}

/// What a server does, for those who look at it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ServerLoad {
    pub server: u32,
    /// Requests/s in the last window of a second.
    pub requests_s: f64,
    /// The median of the times of the requests in the newest window with any, in seconds.
    pub service_s: Option<f64>,
    /// The medians of the last windows, newest last; `None` for one without a request.
    pub recent: Vec<Option<f64>>,
}

/// What came of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MapEnd {
    /// The epoch that was begun.
    pub epoch: u64,
    /// Time since it ended, in ns.
    pub age_ns: i64,
    /// Time from its begin to that, in ns.
    pub took_ns: i64,
    /// Why it was aborted; `None` if its map holds.
    pub reason: Option<String>,
    /// Why it was begun, if the leader began it by itself.
    #[serde(default)]
    pub why: Option<String>,
}

/// A set of servers as text: hexadecimal digits, of which the first has the servers 0 to 3.
pub(crate) fn servers_text(servers: &ServerSet) -> String {
    let mut digits = vec![0_u32; DIGITS];
    for server in servers.iter() {
        digits[server as usize / 4] |= 1 << (server % 4);
    }
    let text = digits
        .iter()
        .filter_map(|digit| char::from_digit(*digit, 16));
    let text: String = text.collect();
    text.trim_end_matches('0').to_owned()
}

/// The set of a text; `None` if it is none.
pub(crate) fn servers_of(text: &str) -> Option<ServerSet> {
    let mut servers = ServerSet::EMPTY;
    if text.len() > DIGITS {
        return None;
    }
    for (at, digit) in (0_u32..).zip(text.chars()) {
        let digit = digit.to_digit(16)?;
        let bits = (0..4).filter(|bit| digit >> bit & 1 == 1);
        bits.for_each(|bit| {
            servers.insert(at * 4 + bit);
        });
    }
    Some(servers)
}

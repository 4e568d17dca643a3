//! The servers of a command: their addresses, their map, and the way to them.

use std::collections::BTreeMap;
use std::net::ToSocketAddrs as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use barograph_client::SystemClock;
use barograph_model::NS_PER_S;
use barograph_staging::client::{
    ClientConfig, ClientCounts, MappedCheck, ServerAddress, StagingMap,
};
use barograph_staging::{FaultCode, StagingClient, StagingError};
use clap::Args;

use super::member::Member;
use super::{Target, TryAgain, Usage, places};

/// Most replicas of a block.
const REPLICAS_MAX: i64 = 64;
/// Longest timeout that may be given, in seconds: a day.
const TIMEOUT_S_MAX: i64 = 86_400;
/// Most bytes of a file with a token.
const TOKEN_FILE_BYTES_MAX: usize = 4_096;

/// The servers of a command.
#[derive(Args)]
pub(super) struct Servers {
    /// A server: the path of its socket, or HOST:PORT; may be given several times. The numbers of
    /// servers decide where blocks are: 0, 1, … in this order, or NUMBER=ADDRESS [default: this
    /// user's server on this node]
    #[arg(long, value_name = "ADDRESS")]
    server: Vec<String>,
    /// Use the servers that this map has now, with its epoch; those of other nodes need
    /// --server NUMBER=ADDRESS (docs/guide/staging.md)
    #[arg(long, value_name = "NAME")]
    map: Option<String>,
    /// How many servers have each block
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=REPLICAS_MAX))]
    replicas: u16,
    /// Longest wait for an answer, beside the time for the data
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=TIMEOUT_S_MAX))]
    timeout: u32,
    /// File with the token of the user, for servers that are reached over TCP
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Number of the user, for servers that are reached over TCP [default: you]
    #[arg(long, value_name = "UID")]
    user: Option<u32>,
    #[command(flatten)]
    target: Target,
}

/// The way to the servers.
pub(super) struct Session {
    client: StagingClient,
    addresses: BTreeMap<u64, ServerAddress>,
    member: Option<Member>,
}

impl Servers {
    /// Whether the output is JSON.
    pub(super) fn json(&self) -> bool {
        self.target.json
    }

    /// How many servers have each block.
    pub(super) fn replicas(&self) -> u16 {
        self.replicas
    }

    pub(super) fn session(&self) -> anyhow::Result<Session> {
        let addresses = self.addresses()?;
        let member = match &self.map {
            Some(map) => Some(self.member(map, &addresses)?),
            None => {
                self.check_replicas(addresses.len())?;
                None
            }
        };
        let mut config = ClientConfig {
            replicas: self.replicas.into(),
            timeout_ns: i64::from(self.timeout) * NS_PER_S,
            // A newer map comes with the next operation, not to a waiting one.
            map_wait_ns: 0,
            mapped: Some(MappedCheck::Checksum),
            ..ClientConfig::default()
        };
        config.user = self.user.unwrap_or(config.user);
        if let Some(path) = &self.token_file {
            config.token = read_token(path)?;
        }
        let map = StagingMap {
            epoch: 0,
            servers: addresses.clone(),
        };
        let clock = Arc::new(SystemClock::new());
        Ok(Session {
            client: StagingClient::new(config, map, clock),
            addresses,
            member,
        })
    }

    fn check_replicas(&self, servers: usize) -> anyhow::Result<()> {
        if usize::from(self.replicas) > servers {
            let replicas = self.replicas;
            let text = format!(
                "{replicas} replicas need {replicas} servers, and {servers} are known: give --server for each"
            );
            return Err(Usage(text).into());
        }
        Ok(())
    }

    fn addresses(&self) -> anyhow::Result<BTreeMap<u64, ServerAddress>> {
        let mut addresses = BTreeMap::new();
        for (at, text) in (0..).zip(&self.server) {
            let (number, address) = numbered(text);
            let address = address_of(address)?;
            if addresses.insert(number.unwrap_or(at), address).is_some() {
                let text = format!("--server {text}: there is another server of this number");
                return Err(Usage(text).into());
            }
        }
        let given = self.target.run_dir.as_deref();
        let dir = places::dir_of_clients(given);
        if let Some(map) = &self.map {
            // Those that are given may be on other nodes; the rest is in the run directory.
            let Ok(dir) = dir else {
                return Ok(addresses);
            };
            for number in places::servers_of(&dir, map) {
                let socket = places::socket(&dir, Some((map, number)));
                let address = ServerAddress::Unix(socket);
                addresses.entry(number.into()).or_insert(address);
            }
        } else if addresses.is_empty() {
            let socket = places::socket(&dir?, None);
            anyhow::ensure!(
                socket.exists(),
                "no server has its socket at {}: start one with `baro stage serve`, or name servers by --server",
                socket.display()
            );
            addresses.insert(0, ServerAddress::Unix(socket));
        }
        Ok(addresses)
    }

    fn member(
        &self,
        map: &str,
        addresses: &BTreeMap<u64, ServerAddress>,
    ) -> anyhow::Result<Member> {
        let numbers = addresses.keys().map(|number| u32::try_from(*number));
        let numbers: Vec<u32> = numbers
            .collect::<Result<_, _>>()
            .map_err(|_| Usage("the numbers of servers of a map are 0 to 1,023".into()))?;
        if numbers.is_empty() {
            let text = format!(
                "no server of {map} is known here: start one with `baro stage serve --map {map} --server 0`, or give --server NUMBER=ADDRESS"
            );
            return Err(Usage(text).into());
        }
        Member::new(map, numbers, self.target.run_dir.as_deref())
    }
}

impl Session {
    /// Does something with the servers: those that are named, or those of the map in force.
    pub(super) fn run<T>(
        &self,
        act: impl FnMut(&StagingClient) -> Result<T, StagingError>,
    ) -> anyhow::Result<T> {
        self.in_map(act)?.map_err(failure)
    }

    /// Does something with the servers; the outer error is that there are none in force.
    pub(super) fn in_map<T>(
        &self,
        mut act: impl FnMut(&StagingClient) -> Result<T, StagingError>,
    ) -> anyhow::Result<Result<T, StagingError>> {
        match &self.member {
            None => Ok(act(&self.client)),
            Some(member) => member.run(&self.client, &self.addresses, act),
        }
    }

    pub(super) fn counts(&self) -> ClientCounts {
        self.client.counts()
    }

    /// The numbers and addresses of all servers that are known.
    pub(super) fn addresses(&self) -> impl Iterator<Item = (u64, String)> {
        let addresses = self.addresses.iter();
        addresses.map(|(number, address)| (*number, shown(address)))
    }

    /// What a server tells of itself, whatever its epoch is.
    pub(super) fn client(&self) -> &StagingClient {
        &self.client
    }
}

/// The error of a command; what may work at another time has an exit code of its own.
pub(super) fn failure(error: StagingError) -> anyhow::Error {
    match error.code() {
        Some(
            FaultCode::Unreachable | FaultCode::Busy | FaultCode::Stopping | FaultCode::TooFew,
        ) => TryAgain(error.to_string()).into(),
        _ => error.into(),
    }
}

/// The number of a server, if one is given, and its address.
fn numbered(text: &str) -> (Option<u64>, &str) {
    let number = text.split_once('=').and_then(|(number, address)| {
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
        let number = number.parse().ok().filter(|_| is_number)?;
        Some((Some(number), address))
    });
    number.unwrap_or((None, text))
}

fn address_of(text: &str) -> anyhow::Result<ServerAddress> {
    if text.contains('/') {
        return Ok(ServerAddress::Unix(text.into()));
    }
    let wrong = |why: &dyn std::fmt::Display| {
        Usage(format!(
            "--server {text}: it is neither a path with a slash nor HOST:PORT: {why}"
        ))
    };
    let mut found = text.to_socket_addrs().map_err(|error| wrong(&error))?;
    let address = found.next().ok_or_else(|| wrong(&"no such host"))?;
    Ok(ServerAddress::Tcp(address))
}

fn shown(address: &ServerAddress) -> String {
    match address {
        ServerAddress::Unix(path) => path.display().to_string(),
        ServerAddress::Tcp(address) => address.to_string(),
    }
}

/// The token in a file, without white space at its end.
fn read_token(path: &Path) -> anyhow::Result<Vec<u8>> {
    let read = std::fs::read(path);
    let mut token = read.with_context(|| format!("cannot read {}", path.display()))?;
    anyhow::ensure!(
        token.len() <= TOKEN_FILE_BYTES_MAX,
        "{} is too long for a token",
        path.display()
    );
    token.truncate(token.trim_ascii_end().len());
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_have_the_numbers_that_they_are_given() {
        assert_eq!(numbered("7=/a/s.sock"), (Some(7), "/a/s.sock"));
        assert_eq!(numbered("/a=b/s.sock"), (None, "/a=b/s.sock"));
        assert_eq!(numbered("=x"), (None, "=x"));
        assert_eq!(numbered("+1=x"), (None, "+1=x"));
        let unix = address_of("./s").unwrap();
        assert_eq!(unix, ServerAddress::Unix("./s".into()));
        let tcp = address_of("127.0.0.1:70").unwrap();
        assert_eq!(shown(&tcp), "127.0.0.1:70");
        assert!(address_of("s.sock").is_err());
    }
}

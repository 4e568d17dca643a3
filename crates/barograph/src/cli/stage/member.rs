//! A command as a member of a map of servers: it does what it does in the epoch in force.

use std::collections::BTreeMap;
use std::path::Path;

use barograph_client::RunDir;
use barograph_client::publish::{MAP_WAIT_DEFAULT, PublishConfig, Publisher, ServerMap};
use barograph_staging::client::{ServerAddress, StagingMap};
use barograph_staging::{FaultCode, StagingClient, StagingError};

use super::Usage;

/// Most operations that are begun again because their epoch was over.
const TRIES_MAX: u32 = 8;
/// Threads that publish.
const RINGS: u32 = 8;

/// A member of a map.
pub(super) struct Member {
    name: String,
    map: ServerMap,
}

impl Member {
    pub(super) fn new(name: &str, servers: Vec<u32>, dir: Option<&Path>) -> anyhow::Result<Self> {
        let publisher = publisher(dir);
        let map = publisher.server_map(name, servers);
        Ok(Self {
            name: name.to_owned(),
            map: map.map_err(|error| Usage(error.to_string()))?,
        })
    }

    /// Does something with the servers of the epoch in force. If servers say that the epoch is
    /// over, it is done again in the one that comes then.
    pub(super) fn run<T>(
        &self,
        client: &StagingClient,
        addresses: &BTreeMap<u64, ServerAddress>,
        mut act: impl FnMut(&StagingClient) -> Result<T, StagingError>,
    ) -> anyhow::Result<Result<T, StagingError>> {
        let mut tries_left = TRIES_MAX;
        loop {
            tries_left -= 1;
            let operation = self.map.begin(MAP_WAIT_DEFAULT);
            let epoch = operation.epoch();
            let mut servers = BTreeMap::new();
            for server in operation.servers().iter() {
                let address = addresses.get(&server.into()).ok_or_else(|| {
                    let name = &self.name;
                    Usage(format!(
                        "server {server} of {name} is not on this node: give --server {server}=ADDRESS"
                    ))
                })?;
                servers.insert(server.into(), address.clone());
            }
            client.set_map(StagingMap { epoch, servers });
            match act(client) {
                Err(error) if is_over(&error, epoch) && tries_left > 0 => {
                    operation.refused(error.number());
                }
                done => return Ok(done),
            }
        }
    }
}

/// Whether a server has refused the epoch for a later one.
fn is_over(error: &StagingError, epoch: u64) -> bool {
    error.code() == Some(FaultCode::Fenced) && error.number() > epoch
}

/// What a command or a server publishes by, to the agent of a run directory.
pub(super) fn publisher(dir: Option<&Path>) -> Publisher {
    Publisher::open(PublishConfig {
        run_dir: dir.map(RunDir::new),
        rings_max: RINGS,
        ..PublishConfig::of("stage")
    })
}

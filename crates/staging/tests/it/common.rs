//! What the tests share: a clock, stores, servers, and clients of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use barograph_model::{Clock, NS_PER_S};
use barograph_staging::client::{ClientConfig, ServerAddress, StagingMap};
use barograph_staging::server::ServerConfig;
use barograph_staging::{
    BlockKey, BlockStore, DirectoryConfig, MemoryConfig, PutHead, PutTarget, StagingClient,
    StagingError, StagingServer, StoreConfig, TierBounds, checksum,
};
use tempfile::TempDir;

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const USER: u32 = 7;
/// How long a busy machine may take for anything.
pub(crate) const PATIENCE_NS: i64 = 120 * NS_PER_S;
/// The time for which a tier is passed over that has failed.
pub(crate) const RETRY_NS: i64 = NS_PER_S / 20;

pub(crate) struct TestClock(Instant);

impl Clock for TestClock {
    fn now_ns(&self) -> i64 {
        self.monotonic_ns()
    }

    fn monotonic_ns(&self) -> i64 {
        self.0.elapsed().as_nanos() as i64
    }
}

pub(crate) fn clock() -> Arc<dyn Clock> {
    Arc::new(TestClock(Instant::now()))
}

pub(crate) fn key(number: u64) -> BlockKey {
    BlockKey::numbered("data", number).unwrap()
}

/// Bytes that differ from block to block.
pub(crate) fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}

pub(crate) fn memory(bytes: u64) -> MemoryConfig {
    MemoryConfig {
        bounds: TierBounds::single(bytes, 10_000),
        dirty_bytes_max: bytes / 2,
    }
}

pub(crate) fn config(memory_bytes: u64, directories: &[&Path]) -> StoreConfig {
    let bounds = TierBounds::single(1 << 40, 100_000);
    let directories = directories.iter();
    StoreConfig {
        memory: memory(memory_bytes),
        directories: directories
            .map(|path| DirectoryConfig {
                retry_ns: RETRY_NS,
                ..DirectoryConfig::new(*path, bounds)
            })
            .collect(),
        remotes: Vec::new(),
        wait_ns_max: PATIENCE_NS,
    }
}

pub(crate) fn open(config: StoreConfig) -> Arc<BlockStore> {
    BlockStore::open(config, clock()).unwrap()
}

pub(crate) fn head(key: &BlockKey, version: u64, data: &[u8]) -> PutHead {
    PutHead {
        key: key.clone(),
        version,
        bytes: data.len() as u64,
        checksum: checksum(data),
        epoch: 0,
        refetch_us: 0,
        target: PutTarget::Fast,
        wait_ns: 0,
    }
}

pub(crate) fn put_as(
    store: &BlockStore,
    user: u32,
    head: PutHead,
    data: &[u8],
) -> Result<(), StagingError> {
    let mut writer = store.put(user, head)?;
    writer.write(data)?;
    writer.finish().map(drop)
}

pub(crate) fn put(
    store: &BlockStore,
    number: u64,
    version: u64,
    data: &[u8],
) -> Result<(), StagingError> {
    put_as(store, USER, head(&key(number), version, data), data)
}

pub(crate) fn get(store: &BlockStore, number: u64) -> Result<Vec<u8>, StagingError> {
    let reader = store.get(USER, &key(number), false)?;
    let mut out = vec![0; reader.info().bytes as usize];
    reader.read_at(0, &mut out)?;
    Ok(out)
}

/// A server with its store, and the directory in which it is.
pub(crate) struct Served {
    pub(crate) directory: TempDir,
    pub(crate) store: Arc<BlockStore>,
    pub(crate) server: StagingServer,
}

/// A server on a unix socket, with 64 MiB of memory and one tier of files.
pub(crate) fn serve() -> Served {
    serve_with(|_| ())
}

pub(crate) fn serve_with(change: impl FnOnce(&mut ServerConfig)) -> Served {
    let directory = tempfile::tempdir().unwrap();
    let tier = directory.path().join("tier");
    std::fs::create_dir(&tier).unwrap();
    let store = open(config(64 * MIB, &[&tier]));
    let mut config = ServerConfig {
        unix: Some(directory.path().join("socket")),
        ..ServerConfig::default()
    };
    change(&mut config);
    let server = StagingServer::start(Arc::clone(&store), config).unwrap();
    Served {
        directory,
        store,
        server,
    }
}

impl Served {
    pub(crate) fn address(&self) -> ServerAddress {
        ServerAddress::Unix(self.directory.path().join("socket"))
    }
}

pub(crate) fn map(epoch: u64, servers: &[&Served]) -> StagingMap {
    let servers = servers.iter().enumerate();
    let servers: BTreeMap<_, _> = servers.map(|(at, it)| (at as u64, it.address())).collect();
    StagingMap { epoch, servers }
}

pub(crate) fn client(replicas: usize, servers: &[&Served]) -> StagingClient {
    let config = ClientConfig {
        replicas,
        timeout_ns: PATIENCE_NS,
        ..ClientConfig::default()
    };
    StagingClient::new(config, map(0, servers), clock())
}

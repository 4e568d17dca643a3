//! What the tests share: servers, clients of them, and mounts.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use barograph_model::{Clock, NS_PER_S};
use barograph_stagefs::{Mount, MountConfig, Stopped};
use barograph_staging::client::{ClientConfig, ListCursor, ServerAddress, StagingMap};
use barograph_staging::server::ServerConfig;
use barograph_staging::{
    BlockStore, DirectoryConfig, ListQuery, MemoryConfig, StagingClient, StagingServer,
    StoreConfig, TierBounds,
};
use tempfile::TempDir;

pub(crate) const KIB: usize = 1 << 10;
/// Bytes of a block of the tests.
pub(crate) const BLOCK: usize = 4 * KIB;
/// How long a busy machine may take for anything.
const PATIENCE_NS: i64 = 120 * NS_PER_S;

/// Whether file systems can be mounted here. With CI=true that is a must.
pub(crate) fn can_mount() -> bool {
    let device = fs::File::options().read(true).write(true).open("/dev/fuse");
    let why = match device {
        Ok(_) if rustix::process::geteuid().is_root() => return true,
        Ok(_) => "only root mounts without fusermount3".to_owned(),
        Err(error) => format!("/dev/fuse: {error}"),
    };
    let ci = std::env::var("CI").unwrap_or_default();
    assert!(
        !["1", "true", "yes"].contains(&ci.as_str()),
        "no mount is possible, and CI needs one: {why}"
    );
    eprintln!("skipped: no mount is possible: {why}");
    false
}

struct TestClock(Instant);

impl Clock for TestClock {
    fn now_ns(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        since.as_nanos() as i64
    }

    fn monotonic_ns(&self) -> i64 {
        self.0.elapsed().as_nanos() as i64
    }
}

pub(crate) fn clock() -> Arc<dyn Clock> {
    Arc::new(TestClock(Instant::now()))
}

/// A server with 64 MiB of memory and one tier of files.
pub(crate) struct Served {
    pub(crate) directory: TempDir,
    config: StoreConfig,
    server: Option<StagingServer>,
}

impl Served {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let tier = directory.path().join("tier");
        fs::create_dir(&tier).unwrap();
        let bounds = TierBounds::single(1 << 30, 16 << 10);
        let config = StoreConfig {
            memory: memory(64 << 20),
            directories: vec![DirectoryConfig::new(tier, bounds)],
            ..StoreConfig::default()
        };
        Self::with(directory, config)
    }

    /// A server of memory alone.
    pub(crate) fn small(bytes: u64) -> Self {
        let config = StoreConfig {
            memory: memory(bytes),
            ..StoreConfig::default()
        };
        Self::with(tempfile::tempdir().unwrap(), config)
    }

    fn with(directory: TempDir, config: StoreConfig) -> Self {
        let mut served = Self {
            directory,
            config,
            server: None,
        };
        served.start();
        served
    }

    /// Starts the server, with what its former life has left on a directory.
    pub(crate) fn start(&mut self) {
        let store = BlockStore::open(self.config.clone(), clock()).unwrap();
        let config = ServerConfig {
            unix: Some(self.socket()),
            ..ServerConfig::default()
        };
        self.server = Some(StagingServer::start(store, config).unwrap());
    }

    /// Ends it as a kill does: what is in memory alone is lost.
    pub(crate) fn end(&mut self) {
        self.server = None;
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }
}

fn memory(bytes: u64) -> MemoryConfig {
    MemoryConfig {
        bounds: TierBounds::single(bytes, 16 << 10),
        dirty_bytes_max: bytes,
    }
}

pub(crate) fn client(servers: &[&Served], replicas: usize) -> Arc<StagingClient> {
    let numbered = (0..).zip(servers);
    let addresses = numbered.map(|(number, served)| (number, ServerAddress::Unix(served.socket())));
    let map = StagingMap {
        epoch: 0,
        servers: addresses.collect::<BTreeMap<_, _>>(),
    };
    let config = ClientConfig {
        replicas,
        timeout_ns: PATIENCE_NS,
        ..ClientConfig::default()
    };
    Arc::new(StagingClient::new(config, map, clock()))
}

/// How many entries and blocks of files there are.
pub(crate) fn stored(servers: &[&Served]) -> (usize, usize) {
    let client = client(servers, 1);
    let mut cursor = ListCursor::new(ListQuery::default());
    let (mut names, mut blocks) = (0, 0);
    while let Some((key, _)) = cursor.next(&client).unwrap() {
        match key.dataset().contains("/data/") {
            true => blocks += 1,
            false => names += 1,
        }
    }
    (names, blocks)
}

/// Waits until something holds, which the kernel or a mount does a moment later.
pub(crate) fn eventually(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        let waited = begun.elapsed().as_nanos() as i64;
        assert!(waited < PATIENCE_NS, "{what}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// A mounted file system, in a directory of its own.
pub(crate) struct Mounted {
    pub(crate) mount: Option<Mount>,
    pub(crate) place: TempDir,
}

pub(crate) fn config() -> MountConfig {
    MountConfig {
        block_bytes: BLOCK as u64,
        buffer_bytes: 16 * BLOCK as u64,
        ..MountConfig::new("test")
    }
}

impl Mounted {
    pub(crate) fn new(servers: &[&Served]) -> Self {
        Self::with(servers, 1, &config())
    }

    pub(crate) fn with(servers: &[&Served], replicas: usize, config: &MountConfig) -> Self {
        let place = tempfile::tempdir().unwrap();
        let client = client(servers, replicas);
        let mount = Mount::new(config, client, clock(), place.path()).unwrap();
        Self {
            mount: Some(mount),
            place,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    pub(crate) fn stop(mut self) -> Stopped {
        self.mount.take().unwrap().stop().unwrap()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(mount) = self.mount.take() {
            // A test that has failed may have left files open.
            let _ = mount.stop();
        }
    }
}

/// Bytes that differ from seed to seed.
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

/// All names below a directory with what is there, sorted.
pub(crate) fn tree(root: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let kind = fs::symlink_metadata(&path).unwrap();
            let what = match kind.file_type() {
                kind if kind.is_dir() => {
                    waiting.push(path.clone());
                    "directory".to_owned()
                }
                kind if kind.is_symlink() => {
                    format!("-> {}", fs::read_link(&path).unwrap().display())
                }
                _ => {
                    let content = fs::read(&path).unwrap();
                    assert_eq!(content.len() as u64, kind.len(), "{}", path.display());
                    format!(
                        "{} {:08x}",
                        content.len(),
                        barograph_staging::checksum(&content)
                    )
                }
            };
            found.push((path.strip_prefix(root).unwrap().to_owned(), what));
        }
    }
    found.sort();
    found
}

//! A server of staging, run by hand: `stage_server SOCKET MEMORY_BYTES [DIRECTORY…]`.
//!
//! It serves its own user alone, who has all of the memory. Commands come on its standard input:
//! `epoch N joined` or `epoch N stayed` tells a map of servers, `counts` prints what has happened,
//! and `stop`, or the end of the input, stops it in order.
#![expect(
    clippy::disallowed_methods,
    reason = "an example has the clock of the machine"
)]

use std::io::BufRead as _;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use barograph_control::ToldEpochs;
use barograph_model::{Clock, NS_PER_S};
use barograph_staging::server::ServerConfig;
use barograph_staging::{
    BlockStore, DirectoryConfig, MemoryConfig, ServerMembership, StagingServer, StoreConfig,
    TierBounds,
};

/// Bytes that each directory may hold: 1 TiB.
const DIRECTORY_BYTES: u64 = 1 << 40;
/// Blocks of a tier.
const BLOCKS: u64 = 1 << 20;

struct MachineClock(Instant);

impl Clock for MachineClock {
    fn now_ns(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| since.as_nanos() as i64)
    }

    fn monotonic_ns(&self) -> i64 {
        self.0.elapsed().as_nanos() as i64
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let usage = "stage_server SOCKET MEMORY_BYTES [DIRECTORY…]";
    let socket = words.next().ok_or(usage)?;
    let bytes: u64 = words.next().ok_or(usage)?.parse()?;
    let bounds = TierBounds::single(DIRECTORY_BYTES, BLOCKS);
    let config = StoreConfig {
        memory: MemoryConfig {
            bounds: TierBounds::single(bytes, BLOCKS),
            dirty_bytes_max: bytes / 2,
        },
        directories: words
            .map(|path| DirectoryConfig::new(path, bounds))
            .collect(),
        ..StoreConfig::default()
    };
    let store = BlockStore::open(config, Arc::new(MachineClock(Instant::now())))?;
    let config = ServerConfig {
        unix: Some(socket.into()),
        ..ServerConfig::default()
    };
    let server = StagingServer::start(Arc::clone(&store), config)?;
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["epoch", epoch, how] => {
                let epoch = epoch.parse()?;
                let membership = match how {
                    "joined" => ServerMembership::Joined,
                    _ => ServerMembership::Stayed,
                };
                let told = ToldEpochs {
                    prepare: 0,
                    epoch,
                    fence: epoch,
                };
                server.tell(told, membership);
                println!("told {epoch}");
            }
            ["counts"] => println!("{:?} {:?}", store.counts(), server.counts()),
            ["stop"] => break,
            _ => println!("epoch N joined, epoch N stayed, counts or stop"),
        }
    }
    server.stop(60 * NS_PER_S)?;
    println!("stopped");
    Ok(())
}

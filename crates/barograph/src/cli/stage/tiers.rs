//! The tiers of a server on the command line: memory, directories below it, and stores of objects
//! below these.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use barograph_model::{Clock, Level};
use barograph_staging::remote::{RemoteAddress, RemoteOptions};
use barograph_staging::server::UserFilter;
use barograph_staging::{
    DirectoryConfig, Durability, MemoryConfig, RemoteConfig, StagingError, StoreConfig, TierBounds,
};
use clap::Args;

use super::{Usage, room};

/// Least bytes of memory for blocks.
const MEMORY_BYTES_MIN: u64 = 1 << 20;
/// Bytes of memory for each block that may be there: so many small ones fit that nobody counts
/// them, and what is known of all of them is bounded.
const MEMORY_BYTES_PER_BLOCK: u64 = 4 << 10;
/// Most blocks of a directory or a store of objects.
const LOWER_BLOCKS_MAX: u64 = 1 << 20;
/// Where the URL of a server of S3 is, unless it is an argument.
const ENDPOINT_VARIABLES: [&str; 3] = ["AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_S3_ENDPOINT"];
/// Where the password of Redis is, as its own command line takes it.
const PASSWORD_VARIABLE: &str = "REDISCLI_AUTH";

/// The tiers of a server.
#[derive(Args)]
pub(super) struct Tiers {
    /// Memory for blocks; each user gets a half at most if several are served
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    memory: String,
    /// A directory on a tier below memory, the fastest first, with the most that is kept there: a
    /// size (/nvme/stage=100GB) or a share of what is available (/nvme/stage=10%) [default: all
    /// but 5 % of the file system]. With ",sync" files survive a loss of power, with ",scratch"
    /// they count for no more than memory. The last ones may be stores of objects, which belong to
    /// this server alone: s3://BUCKET/PREFIX=100GB (credentials from AWS_ACCESS_KEY_ID and
    /// AWS_SECRET_ACCESS_KEY, a profile, or the machine's role), or Redis and Valkey,
    /// redis://[USER@]HOST[:PORT][/DB[/PREFIX]]=1GB (password from REDISCLI_AUTH)
    #[arg(long, value_name = "DIR[=ROOM][,sync|,scratch]")]
    tier: Vec<String>,
    /// The server of S3 [default: $AWS_ENDPOINT_URL, or AWS]
    #[arg(long, value_name = "URL")]
    s3_endpoint: Option<String>,
    /// The region of S3 [default: $AWS_REGION, or us-east-1]
    #[arg(long, value_name = "NAME")]
    s3_region: Option<String>,
    /// Stores of objects on other machines may be reached by http:// and redis://: blocks and
    /// credentials are not encrypted then, so nobody else may listen to that network
    #[arg(long)]
    unencrypted: bool,
    /// Most bytes that are on no durable tier yet; puts beyond it wait [default: half of --memory]
    #[arg(long, value_name = "SIZE")]
    dirty: Option<String>,
}

impl Tiers {
    /// The store for these users.
    pub(super) fn config(
        &self,
        users: &UserFilter,
        clock: &Arc<dyn Clock>,
    ) -> anyhow::Result<StoreConfig> {
        let memory = size("--memory", &self.memory)?;
        if memory < MEMORY_BYTES_MIN {
            return Err(Usage("--memory: it is 1 MiB at least".into()).into());
        }
        let dirty = self.dirty.as_deref().map(|text| size("--dirty", text));
        let is_single = match users {
            UserFilter::Own => true,
            UserFilter::These(users) => users.len() < 2,
            UserFilter::All => false,
        };
        let bounds = |bytes, blocks| match is_single {
            true => TierBounds::single(bytes, blocks),
            false => TierBounds::shared(bytes, blocks),
        };
        let is_remote = |text: &String| RemoteAddress::is_address(text);
        let first = self.tier.iter().position(is_remote);
        let (upper, remotes) = self.tier.split_at(first.unwrap_or(self.tier.len()));
        if let Some(text) = remotes.iter().find(|text| !is_remote(text)) {
            let why = "a directory comes before all stores of objects: it is faster";
            return Err(Usage(format!("--tier {text}: {why}")).into());
        }
        let directories = upper.iter().map(|text| directory(text, bounds));
        let remotes = remotes.iter().map(|text| self.remote(text, bounds, clock));
        Ok(StoreConfig {
            memory: MemoryConfig {
                bounds: bounds(memory, memory / MEMORY_BYTES_PER_BLOCK),
                dirty_bytes_max: dirty.transpose()?.unwrap_or(memory / 2),
            },
            directories: directories.collect::<anyhow::Result<_>>()?,
            remotes: remotes.collect::<anyhow::Result<_>>()?,
            ..StoreConfig::default()
        })
    }

    /// Reads `ADDRESS=ROOM[,scratch]`, and opens the store.
    fn remote(
        &self,
        text: &str,
        bounds: impl Fn(u64, u64) -> TierBounds,
        clock: &Arc<dyn Clock>,
    ) -> anyhow::Result<RemoteConfig> {
        let wrong = |why: &dyn std::fmt::Display| Usage(format!("--tier {text}: {why}"));
        let (place, durability) = split_durability(text);
        if durability == Durability::Synced {
            let why = "what it survives is decided by its server: leave ,sync out";
            return Err(wrong(&why).into());
        }
        let (name, room) = place.rsplit_once('=').unwrap_or((place, ""));
        let bytes = match Level::parse(room) {
            Ok(Level::Absolute(bytes)) if (1.0..=1e18).contains(&bytes) => bytes as u64,
            _ => return Err(wrong(&format!("say how much may be there: {name}=100GB")).into()),
        };
        let password = std::env::var(PASSWORD_VARIABLE).unwrap_or_default();
        let address = RemoteAddress::parse(name, &password).map_err(|why| wrong(&why))?;
        let endpoint = || {
            let mut variables = ENDPOINT_VARIABLES.iter();
            variables.find_map(|name| std::env::var(name).ok())
        };
        let options = RemoteOptions {
            endpoint: self
                .s3_endpoint
                .clone()
                .or_else(endpoint)
                .unwrap_or_default(),
            region: self.s3_region.clone().unwrap_or_default(),
            allow_unencrypted: self.unencrypted,
            ..RemoteOptions::default()
        };
        let is_kept = durability != Durability::Scratch;
        let opened = address.open(&options, Arc::clone(clock), is_kept);
        let store = match opened {
            Err(StagingError::Config(why)) => return Err(wrong(&why).into()),
            opened => opened.with_context(|| format!("--tier {text}"))?,
        };
        Ok(RemoteConfig {
            durability,
            ..RemoteConfig::new(name, store, bounds(bytes, LOWER_BLOCKS_MAX))
        })
    }
}

/// A size in bytes.
pub(super) fn size(option: &str, text: &str) -> anyhow::Result<u64> {
    match Level::parse(text) {
        Ok(Level::Absolute(bytes)) if (0.0..=1e18).contains(&bytes) => Ok(bytes as u64),
        _ => Err(Usage(format!("{option} {text}: it is a size, like 4GiB")).into()),
    }
}

/// Takes `,sync` or `,scratch` off.
fn split_durability(text: &str) -> (&str, Durability) {
    match text.rsplit_once(',') {
        Some((place, "sync")) => (place, Durability::Synced),
        Some((place, "scratch")) => (place, Durability::Scratch),
        _ => (text, Durability::Written),
    }
}

/// Reads `DIR[=ROOM][,sync|,scratch]`.
fn directory(
    text: &str,
    bounds: impl Fn(u64, u64) -> TierBounds,
) -> anyhow::Result<DirectoryConfig> {
    let wrong = |why: &dyn std::fmt::Display| Usage(format!("--tier {text}: {why}"));
    let (place, durability) = split_durability(text);
    let (dir, room) = room::split(place);
    let real = Path::new(dir)
        .canonicalize()
        .map_err(|error| wrong(&error))?;
    if !real.is_dir() {
        return Err(wrong(&"it is no directory").into());
    }
    let bytes = room::bytes(&real, room, held(&real)).map_err(|why| wrong(&why))?;
    if bytes == 0 {
        return Err(wrong(&"there is no room").into());
    }
    Ok(DirectoryConfig {
        durability,
        ..DirectoryConfig::new(real, bounds(bytes, LOWER_BLOCKS_MAX))
    })
}

/// Bytes of the blocks that a former life of the server has left: their room is its own.
fn held(dir: &Path) -> u64 {
    let entries = |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().flatten();
    let files = entries(dir).flat_map(|user| entries(&user.path()));
    files
        .filter_map(|file| file.metadata().ok())
        .map(|file| file.len())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock() -> Arc<dyn Clock> {
        Arc::new(barograph_model::ManualClock::default())
    }

    fn tiers(lower: &[&str]) -> Tiers {
        Tiers {
            memory: "8MiB".into(),
            tier: lower.iter().map(|&text| text.into()).collect(),
            s3_endpoint: Some("http://127.0.0.1:9".into()),
            s3_region: None,
            unencrypted: false,
            dirty: Some("1MB".into()),
        }
    }

    #[test]
    fn stores_of_objects_come_last_and_have_rooms() {
        let read = |lower: &[&str]| tiers(lower).config(&UserFilter::Own, &clock());
        let read = read(&["s3://bucket/a=1GB", "s3://bucket/b=2GB,scratch"]).unwrap();
        let seen = read.remotes.iter().map(|it| {
            let bytes = it.bounds.bytes_max;
            (&*it.name, bytes, it.durability)
        });
        let expect = [
            ("s3://bucket/a", 1_000_000_000, Durability::Written),
            ("s3://bucket/b", 2_000_000_000, Durability::Scratch),
        ];
        assert_eq!(seen.collect::<Vec<_>>(), expect);
        let check = |lower: &[&str], why: &str| {
            let error = tiers(lower).config(&UserFilter::Own, &clock()).unwrap_err();
            let error = format!("{error:#}");
            assert!(error.contains(why), "{error}");
        };
        check(&["s3://bucket/a=1GB", "/tmp"], "a directory comes before");
        check(&["s3://bucket/a"], "s3://bucket/a=100GB");
        check(&["s3://bucket/a=10%"], "say how much");
        check(&["s3://bucket/a=1GB,sync"], "leave ,sync out");
        check(&["s3:///a=1GB"], "names no bucket");
        check(&["redis://me:secret@h=1GB"], "REDISCLI_AUTH");
        check(&["memcached://h=1GB"], "redis://HOST:PORT/DB");
        check(&["redis://example.org=1GB"], "--unencrypted");
    }

    #[test]
    fn directories_have_rooms_and_say_what_they_survive() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let shown = dir.display();
        let read = |text: &str| directory(text, TierBounds::single);
        let sync = read(&format!("{shown}=4MiB,sync")).unwrap();
        assert_eq!(
            (sync.durability, sync.bounds.bytes_max, sync.path),
            (Durability::Synced, 4 << 20, dir.clone())
        );
        let plain = read(&shown.to_string()).unwrap();
        assert_eq!(plain.durability, Durability::Written);
        for (wrong, why) in [
            (format!("{shown}/none"), "No such file"),
            (format!("{shown}=much"), "much"),
            (format!("{shown}=0"), "there is no room"),
        ] {
            let error = read(&wrong).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn users_who_are_strangers_share_memory() {
        let tiers = tiers(&[]);
        let own = tiers.config(&UserFilter::Own, &clock()).unwrap();
        assert_eq!(own.memory.bounds, TierBounds::single(8 << 20, 2_048));
        assert_eq!(own.memory.dirty_bytes_max, 1_000_000);
        let all = tiers.config(&UserFilter::All, &clock()).unwrap();
        assert_eq!(all.memory.bounds, TierBounds::shared(8 << 20, 2_048));
    }
}

//! The tiers of a server on the command line: memory, and directories below it.

use std::path::Path;

use barograph_model::Level;
use barograph_staging::server::UserFilter;
use barograph_staging::{DirectoryConfig, Durability, MemoryConfig, StoreConfig, TierBounds};
use clap::Args;

use super::{Usage, room};

/// Least bytes of memory for blocks.
const MEMORY_BYTES_MIN: u64 = 1 << 20;
/// Bytes of memory for each block that may be there: so many small ones fit that nobody counts
/// them, and what is known of all of them is bounded.
const MEMORY_BYTES_PER_BLOCK: u64 = 4 << 10;
/// Most blocks of a directory.
const DIRECTORY_BLOCKS_MAX: u64 = 1 << 20;

/// The tiers of a server.
#[derive(Args)]
pub(super) struct Tiers {
    /// Memory for blocks; each user gets a half at most if several are served
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    memory: String,
    /// A directory on a tier below memory, the fastest first, with the most that is kept there: a
    /// size (/nvme/stage=100GB) or a share of what is available (/nvme/stage=10%) [default: all
    /// but 5 % of the file system]. With ",sync" files survive a loss of power, with ",scratch"
    /// they count for no more than memory
    #[arg(long, value_name = "DIR[=ROOM][,sync|,scratch]")]
    tier: Vec<String>,
    /// Most bytes that are on no durable tier yet; puts beyond it wait [default: half of --memory]
    #[arg(long, value_name = "SIZE")]
    dirty: Option<String>,
}

impl Tiers {
    /// The store for these users.
    pub(super) fn config(&self, users: &UserFilter) -> anyhow::Result<StoreConfig> {
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
        let directories = self.tier.iter().map(|text| directory(text, bounds));
        Ok(StoreConfig {
            memory: MemoryConfig {
                bounds: bounds(memory, memory / MEMORY_BYTES_PER_BLOCK),
                dirty_bytes_max: dirty.transpose()?.unwrap_or(memory / 2),
            },
            directories: directories.collect::<anyhow::Result<_>>()?,
            ..StoreConfig::default()
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

/// Reads `DIR[=ROOM][,sync|,scratch]`.
fn directory(
    text: &str,
    bounds: impl Fn(u64, u64) -> TierBounds,
) -> anyhow::Result<DirectoryConfig> {
    let wrong = |why: &dyn std::fmt::Display| Usage(format!("--tier {text}: {why}"));
    let (place, durability) = match text.rsplit_once(',') {
        Some((place, "sync")) => (place, Durability::Synced),
        Some((place, "scratch")) => (place, Durability::Scratch),
        _ => (text, Durability::Written),
    };
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
        ..DirectoryConfig::new(real, bounds(bytes, DIRECTORY_BLOCKS_MAX))
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
        let tiers = Tiers {
            memory: "8MiB".into(),
            tier: Vec::new(),
            dirty: Some("1MB".into()),
        };
        let own = tiers.config(&UserFilter::Own).unwrap();
        assert_eq!(own.memory.bounds, TierBounds::single(8 << 20, 2_048));
        assert_eq!(own.memory.dirty_bytes_max, 1_000_000);
        let all = tiers.config(&UserFilter::All).unwrap();
        assert_eq!(all.memory.bounds, TierBounds::shared(8 << 20, 2_048));
    }
}

//! Archives beside one another on a disk that fills up: guests lose their history first.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use barograph_archive::{ArchiveConfig, ArchiveRank, Keeper, Neighbours};
use barograph_model::NS_PER_S;

use crate::retain::Full;
use crate::seal::append;
use crate::support::{TwoClocks, config, parquet_files};

const HOUR_NS: i64 = 3_600 * NS_PER_S;
const NEEDED: u64 = 1 << 20;

struct Fixture {
    dir: tempfile::TempDir,
    disk: Arc<Full>,
    clock: Arc<TwoClocks>,
    neighbours: Neighbours,
}

impl Fixture {
    fn new() -> Self {
        let clock = Arc::new(TwoClocks::default());
        clock.wall.store(1_700_000_000 * NS_PER_S, Ordering::SeqCst);
        Self {
            dir: tempfile::tempdir().unwrap(),
            disk: Arc::default(),
            clock,
            neighbours: Neighbours::default(),
        }
    }

    fn root(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    /// Makes an archive with files of so many hours.
    fn archive(&self, name: &str, rank: ArchiveRank, hours: u64, guests_bytes_max: u64) -> Keeper {
        let config = ArchiveConfig {
            rank,
            neighbours: self.neighbours.clone(),
            free_bytes_min: NEEDED,
            guests_bytes_max,
            ..config(&self.root(name))
        };
        let disk = Arc::clone(&self.disk) as _;
        let keeper = Keeper::start(config, disk, Arc::clone(&self.clock) as _).unwrap();
        append(&keeper, 1, 1..=hours, HOUR_NS);
        keeper.seal().unwrap();
        keeper
    }

    fn files(&self, name: &str) -> usize {
        let root: &Path = &self.root(name);
        parquet_files(root).len()
    }
}

#[test]
fn guests_give_way_before_the_node() {
    let fixture = Fixture::new();
    let own = fixture.archive("own", ArchiveRank::Own, 4, u64::MAX);
    let small = fixture.archive("small", ArchiveRank::Guest, 4, u64::MAX);
    let large = fixture.archive("large", ArchiveRank::Guest, 8, u64::MAX);
    let files = || ["own", "small", "large"].map(|name| fixture.files(name));
    let look = || [&own, &small, &large].map(|keeper| keeper.seal().unwrap());
    let before = files();
    // One byte is missing: one file of the largest guest is deleted, although the node's sealer
    // runs first.
    fixture.disk.set_free(NEEDED - 1);
    look();
    let after = files();
    assert_eq!(after[..2], before[..2]);
    assert!(after[2] < before[2] && after[2] > 0, "{after:?}");
    // Much is missing: all files of both guests are deleted, and only then the node's.
    fixture.disk.set_free(0);
    while fixture.files("own") == before[0] {
        look();
    }
    assert_eq!(files()[1..], [0, 0]);
    look();
    assert_eq!(files(), [0, 0, 0]);
    let shed = [&own, &small, &large].map(|keeper| keeper.status().losses.shed_samples);
    assert_eq!(shed, [4, 4, 8].map(|hours| hours * 3));
}

#[test]
fn guests_together_take_no_more_than_their_bound() {
    let fixture = Fixture::new();
    let small = fixture.archive("small", ArchiveRank::Guest, 2, u64::MAX);
    let bytes_max = small.status().bytes * 3;
    let large = fixture.archive("large", ArchiveRank::Guest, 12, bytes_max);
    // The largest runs again, after it has reported all of its own bytes.
    large.seal().unwrap();
    let together = small.status().bytes + large.status().bytes;
    assert!(together <= bytes_max, "{together} of {bytes_max}");
    assert!(large.status().losses.shed_samples > 0);
    assert_eq!(small.status().losses.shed_samples, 0);
}

//! What kills leave between the steps of an operation, on a real server and without a mount.

use std::collections::BTreeMap;
use std::sync::Arc;

use barograph_model::ManualClock;
use barograph_staging::client::{ClientConfig, GetOptions, PutOptions, ServerAddress, StagingMap};
use barograph_staging::server::ServerConfig;
use barograph_staging::{BlockStore, StagingClient, StagingServer, StoreConfig};
use fuser::Errno;
use tempfile::TempDir;

use crate::entry::Kind;
use crate::file::{Budget, FileState};
use crate::keys::Datasets;
use crate::volume::{Found, Volume, VolumeParts};

struct Place {
    volume: Volume,
    budget: Arc<Budget>,
    _server: StagingServer,
    _directory: TempDir,
}

fn place() -> Place {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let clock = Arc::new(ManualClock::at(1_000_000_000_000));
    let store = BlockStore::open(StoreConfig::default(), clock.clone()).unwrap();
    let config = ServerConfig {
        unix: Some(socket.clone()),
        ..ServerConfig::default()
    };
    let server = StagingServer::start(store, config).unwrap();
    let map = StagingMap {
        epoch: 0,
        servers: BTreeMap::from([(0, ServerAddress::Unix(socket))]),
    };
    let client = StagingClient::new(ClientConfig::default(), map, clock.clone());
    let parts = VolumeParts {
        servers: Arc::new(client),
        datasets: Datasets::new("test").unwrap(),
        clock,
        put: PutOptions::default(),
        get: GetOptions::default(),
        block_bytes: 4_096,
        cache_bytes: 4_096,
    };
    Place {
        volume: Volume::new(parts).unwrap(),
        budget: Arc::new(Budget::new(1 << 20)),
        _server: server,
        _directory: directory,
    }
}

impl Place {
    fn write(&self, path: &[u8], text: &[u8]) -> FileState {
        let entry = self.volume.new_entry(Kind::File, 0o600);
        let mut file = FileState::created(path, entry, &self.budget);
        file.write(&self.volume, 0, text).unwrap();
        file.commit(&self.volume).unwrap();
        file
    }

    fn read(&self, path: &[u8]) -> Option<Vec<u8>> {
        let found = self.volume.find(path).unwrap();
        let mut file = FileState::stored(path, found.entry?, found.version, &self.budget);
        Some(file.read(&self.volume, 0, 1_000).unwrap())
    }

    fn names(&self) -> Vec<Vec<u8>> {
        let names = self.volume.list(b"").unwrap();
        names.into_iter().map(|(name, _)| name).collect()
    }

    /// The steps of a rename before a kill: one or two of three.
    fn rename_in_part(&self, from: &[u8], to: &[u8], steps: usize) {
        let moved = self.volume.find(from).unwrap();
        let replaced = self.volume.find(to).unwrap();
        let mut entry = moved.entry.clone().unwrap();
        entry.moving_to = to.to_vec();
        self.volume.put_entry(from, &moved, &entry).unwrap();
        if steps == 2 {
            entry.moving_to.clear();
            entry.moved_from = from.to_vec();
            self.volume.put_entry(to, &replaced, &entry).unwrap();
        }
    }
}

#[test]
fn a_rename_that_is_killed_leaves_one_file() {
    let place = place();
    place.write(b"from", b"moved");
    place.write(b"to", b"replaced");
    place.rename_in_part(b"from", b"to", 1);
    assert_eq!(place.read(b"from"), Some(b"moved".to_vec()));
    assert_eq!(place.read(b"to"), Some(b"replaced".to_vec()));
    place.rename_in_part(b"from", b"to", 2);
    assert_eq!(place.read(b"to"), Some(b"moved".to_vec()));
    // Who looks at the old name puts it in order.
    assert_eq!(place.names().len(), 2);
    assert_eq!(place.read(b"from"), None);
    assert_eq!(place.names(), [b"to"]);
}

#[test]
fn the_old_name_of_a_killed_rename_never_comes_back() {
    let place = place();
    place.write(b"from", b"moved");
    place.rename_in_part(b"from", b"to", 2);
    // The file goes on to another name: the first one would have its blocks otherwise.
    let moved = place.volume.find(b"to").unwrap();
    let none = place.volume.find(b"third").unwrap();
    place
        .volume
        .move_entry(b"to", &moved, b"third", &none)
        .unwrap();
    assert_eq!(place.names(), [b"third"]);
    assert_eq!(place.read(b"third"), Some(b"moved".to_vec()));
    // And so it is when it is written to.
    place.rename_in_part(b"third", b"last", 2);
    let found = place.volume.find(b"last").unwrap();
    let mut file = FileState::stored(b"last", found.entry.unwrap(), found.version, &place.budget);
    file.write(&place.volume, 0, b"M").unwrap();
    file.commit(&place.volume).unwrap();
    assert_eq!(place.names(), [b"last"]);
    assert_eq!(place.read(b"last"), Some(b"Moved".to_vec()));
}

#[test]
fn an_entry_that_another_has_changed_is_not_replaced() {
    let place = place();
    let mut first = place.write(b"file", b"text");
    let found = place.volume.find(b"file").unwrap();
    let entry = found.entry.clone().unwrap();
    let mut second = FileState::stored(b"file", entry.clone(), found.version, &place.budget);
    first.write(&place.volume, 0, b"TE").unwrap();
    second.write(&place.volume, 2, b"ST").unwrap();
    first.commit(&place.volume).unwrap();
    assert_eq!(second.commit(&place.volume), Err(Errno::ESTALE));
    assert_eq!(
        place.volume.put_entry(b"file", &found, &entry),
        Err(Errno::ESTALE)
    );
    second.discard(&place.volume);
    assert_eq!(place.read(b"file"), Some(b"TExt".to_vec()));
    // Its blocks are gone with the entry that had them: a reader of that is told so.
    let old =
        FileState::stored(b"file", entry, found.version, &place.budget).read(&place.volume, 0, 9);
    assert_eq!(old, Err(Errno::ESTALE));
    // A removed file is not brought back by who has it open.
    let version = place.volume.find(b"file").unwrap().version;
    place.volume.remove_entry(b"file", version).unwrap();
    first.truncate(&place.volume, 0).unwrap();
    assert_eq!(first.commit(&place.volume), Err(Errno::ESTALE));
    assert_eq!(place.names(), Vec::<Vec<u8>>::new());
}

#[test]
fn what_is_held_in_memory_is_bounded_and_counted() {
    let place = place();
    let budget = Arc::new(Budget::new(3 * 4_096));
    let entry = place.volume.new_entry(Kind::File, 0o600);
    let mut files: Vec<_> = (0..9)
        .map(|number| FileState::created(&[b'a' + number], entry.clone(), &budget))
        .collect();
    for file in &mut files {
        for at in [0, 10_000, 20_000] {
            file.write(&place.volume, at, &[7; 2_500]).unwrap();
            assert!(budget.held() <= budget.bytes_max, "{} bytes", budget.held());
        }
    }
    for file in &mut files {
        let read = file.read(&place.volume, 10_000, 3_000).unwrap();
        assert_eq!(read, [vec![7; 2_500], vec![0; 500]].concat());
        file.commit(&place.volume).unwrap();
    }
    drop(files);
    assert_eq!(budget.held(), 0);
}

#[test]
fn a_trace_of_a_removed_entry_has_no_file() {
    let place = place();
    place.write(b"file", b"text");
    let version = place.volume.find(b"file").unwrap().version;
    place.volume.remove_entry(b"file", version).unwrap();
    let Found { version, entry } = place.volume.find(b"file").unwrap();
    assert_eq!((version, entry), (0, None));
    assert!(!place.volume.has_names(b"").unwrap());
    place.write(b"file", b"again");
    assert_eq!(place.read(b"file"), Some(b"again".to_vec()));
}

//! Tiers in a store of objects, which is in the memory of opendal, and which fails.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use barograph_model::ManualClock;
use barograph_staging::remote::{ObjectStore, ObjectWriter, OpendalStore};
use barograph_staging::{
    BlockKey, BlockStore, Durability, FaultCode, Flusher, ListQuery, PutHead, PutTarget,
    RemoteConfig, StagingError, StoreConfig, TierBounds,
};
use opendal::Operator;
use opendal::services::Memory;

use crate::common::{
    MIB, PATIENCE_NS, RETRY_NS, USER, bytes, clock, config, get, head, key, put, put_as,
};

/// Stores over one bucket, of which operations fail.
#[derive(Clone)]
struct Bucket {
    store: Arc<dyn ObjectStore>,
    /// Operations that still work.
    left: Arc<AtomicI64>,
    /// Operations that fail after these.
    failures: i64,
    /// Whether an object whose end fails is there all the same.
    takes_failed: bool,
}

struct Object {
    bucket: Bucket,
    object: Box<dyn ObjectWriter>,
}

impl Bucket {
    fn new() -> Self {
        let operator = Operator::new(Memory::default()).unwrap();
        Self {
            store: Arc::new(OpendalStore::new(operator, Duration::from_secs(60)).unwrap()),
            left: Arc::new(AtomicI64::new(i64::MAX)),
            failures: i64::MAX,
            takes_failed: false,
        }
    }

    fn count(&self) -> io::Result<()> {
        let left = self.left.fetch_sub(1, Ordering::SeqCst);
        match left <= 0 && left > self.failures.saturating_neg() {
            true => Err(io::Error::other("the store is gone")),
            false => Ok(()),
        }
    }

    fn is_gone(&self, is_gone: bool) {
        let left = if is_gone { 0 } else { i64::MAX };
        self.left.store(left, Ordering::SeqCst);
    }

    fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        let named = self.store.list(&mut |name, _| names.push(name.to_owned()));
        named.unwrap();
        names.sort();
        names
    }

    /// Changes an object behind the back of its server.
    fn change(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut length = 0;
        let mut find = |it: &str, bytes| {
            if it == name {
                length = bytes;
            }
        };
        self.store.list(&mut find).unwrap();
        let mut bytes = vec![0; length as usize];
        self.store.read_at(name, &mut bytes, 0).unwrap();
        change(&mut bytes);
        let mut object = self.store.create(name, bytes.len() as u64).unwrap();
        object.append(&bytes).unwrap();
        object.finish().unwrap();
    }

    fn config(&self, memory_bytes: u64) -> StoreConfig {
        let bounds = TierBounds::single(1 << 40, 100_000);
        StoreConfig {
            remotes: vec![RemoteConfig {
                retry_ns: RETRY_NS,
                ..RemoteConfig::new("s3://bucket/a", Arc::new(self.clone()), bounds)
            }],
            ..config(memory_bytes, &[])
        }
    }

    fn open(&self, memory_bytes: u64) -> Arc<BlockStore> {
        BlockStore::open(self.config(memory_bytes), clock()).unwrap()
    }
}

impl ObjectStore for Bucket {
    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn ObjectWriter>> {
        self.count()?;
        Ok(Box::new(Object {
            bucket: self.clone(),
            object: self.store.create(name, bytes)?,
        }))
    }

    fn read_at(&self, name: &str, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.count()?;
        self.store.read_at(name, bytes, offset)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.count()?;
        self.store.remove(name)
    }

    fn list(&self, found: &mut dyn FnMut(&str, u64)) -> io::Result<()> {
        self.count()?;
        self.store.list(found)
    }
}

impl ObjectWriter for Object {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bucket.count()?;
        self.object.append(bytes)
    }

    fn finish(self: Box<Self>) -> io::Result<()> {
        let counted = self.bucket.count();
        match counted.is_ok() || self.bucket.takes_failed {
            true => self.object.finish().and(counted),
            false => counted,
        }
    }
}

fn flushed(store: &Arc<BlockStore>) {
    let flusher = Flusher::start(store, 2).unwrap();
    assert!(
        flusher.drain(PATIENCE_NS),
        "not flushed: {:?}",
        store.counts()
    );
}

/// Waits until the flushers have removed what is in force no longer.
fn swept(store: &Arc<BlockStore>, bucket: &Bucket, objects: usize) {
    let flusher = Flusher::start(store, 1).unwrap();
    let clock = clock();
    while bucket.names().len() != objects {
        assert!(clock.monotonic_ns() < PATIENCE_NS, "{:?}", bucket.names());
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(flusher);
}

fn code(error: StagingError) -> FaultCode {
    error.code().unwrap()
}

#[test]
fn a_store_of_opendal_conforms() {
    crate::redis::conforms(&*Bucket::new().store);
}

/// Whatever operation fails, nothing that was acknowledged is lost or wrong, now and later.
#[test]
fn any_single_failure_loses_nothing() {
    let mut failed = 0;
    for n in 1..60 {
        let mut bucket = Bucket::new();
        bucket.failures = 1;
        bucket.takes_failed = n % 2 == 0;
        let mut config = bucket.config(MIB);
        config.remotes[0].retry_ns = 1;
        let store = BlockStore::open(config, clock()).unwrap();
        bucket.left.store(n, Ordering::SeqCst);
        let flusher = Flusher::start(&store, 1).unwrap();
        let mut acknowledged: Vec<(u64, u64, Vec<u8>)> = Vec::new();
        for (number, version) in [(0, 1), (1, 1), (2, 1), (0, 2), (1, 2), (3, 1)] {
            // Every second block is too large for memory and goes to the store itself.
            let length = if number % 2 == 0 { 1 << 17 } else { 3 << 19 };
            let data = bytes(number + version, length);
            match put(&store, number, version, &data) {
                Ok(()) => {
                    acknowledged.retain(|(old, ..)| *old != number);
                    acknowledged.push((number, version, data));
                }
                Err(error) => {
                    let expect = [FaultCode::Disk, FaultCode::Full, FaultCode::Busy];
                    assert!(expect.contains(&error.code().unwrap()), "{n}: {error}");
                    failed += 1;
                }
            }
        }
        assert!(
            flusher.drain(PATIENCE_NS),
            "{n}: not flushed after one failure"
        );
        for (number, _, data) in &acknowledged {
            let read = get(&store, *number).or_else(|_| get(&store, *number));
            assert!(read.is_ok_and(|read| read == *data), "{n}: block {number}");
        }
        drop((flusher, store));
        bucket.is_gone(false);
        // After a kill, what is there is at least what was acknowledged.
        let store = bucket.open(MIB);
        for (number, version, data) in &acknowledged {
            let reader = store.get(USER, &key(*number), true).unwrap();
            let mut read = vec![0; reader.info().bytes as usize];
            reader.read_at(0, &mut read).unwrap();
            let is_newer = reader.info().version > *version;
            assert!(is_newer || read == *data, "{n}: block {number}");
        }
    }
    assert!(failed > 0, "no operation failed");
}

#[test]
fn a_killed_server_finds_its_blocks_and_a_stopped_one_trusts_them() {
    let bucket = Bucket::new();
    let long = BlockKey::named("data", &[0xff; 4_096]).unwrap();
    let data = bytes(9, 100_000);
    let store = bucket.open(8 * MIB);
    put(&store, 1, 1, &data).unwrap();
    put(&store, 2, 1, b"old").unwrap();
    put(&store, 3, 1, b"gone").unwrap();
    put_as(&store, USER, head(&long, 1, b"long"), b"long").unwrap();
    put_as(&store, USER + 1, head(&key(2), 5, b"other"), b"other").unwrap();
    put(&store, 4, 1, b"").unwrap();
    flushed(&store);
    assert_eq!(store.counts().flushed, 6);
    put(&store, 2, 2, b"new").unwrap();
    flushed(&store);
    assert_eq!(store.delete(USER, &key(3), u64::MAX).unwrap(), 1);
    swept(&store, &bucket, 5);
    drop(store);

    let store = bucket.open(8 * MIB);
    assert_eq!((store.counts().found, store.counts().torn), (5, 0));
    assert_eq!(code(get(&store, 1).unwrap_err()), FaultCode::Unconfirmed);
    assert_eq!(code(get(&store, 3).unwrap_err()), FaultCode::NotKnown);
    // The same blocks are put again: they were the newest.
    put(&store, 1, 1, &data).unwrap();
    assert!(get(&store, 1).unwrap() == data);
    assert_eq!((store.counts().promoted, store.counts().gets_file), (1, 1));
    assert_eq!(store.stat(USER, &key(2)).unwrap().version, 2);
    for (user, key, expect) in [
        (USER, &long, &b"long"[..]),
        (USER, &key(2), b"new"),
        (USER + 1, &key(2), b"other"),
        (USER, &key(4), b""),
    ] {
        let reader = store.get(user, key, true).unwrap();
        let mut read = vec![0; reader.info().bytes as usize];
        reader.read_at(0, &mut read).unwrap();
        assert_eq!(read, expect);
    }
    assert_eq!(
        code(store.get(USER + 2, &key(2), true).err().unwrap()),
        FaultCode::NotKnown
    );
    assert!(store.delete(USER + 1, &key(1), u64::MAX).is_err());
    // A server after a kill leaves no note, since it does not know what was lost.
    store.mark_clean().unwrap();
    assert_eq!(bucket.names().len(), 5);
    for (user, number) in [(USER, 1), (USER, 2), (USER, 4), (USER + 1, 2)] {
        store.delete(user, &key(number), u64::MAX).unwrap();
    }
    store.delete(USER, &long, u64::MAX).unwrap();
    assert_eq!((bucket.names().len(), store.tiers()[1].bytes), (0, 0));
    drop(store);

    let store = bucket.open(8 * MIB);
    put(&store, 1, 1, &data).unwrap();
    flushed(&store);
    store.mark_clean().unwrap();
    drop(store);
    let store = bucket.open(8 * MIB);
    assert!(get(&store, 1).unwrap() == data);
    assert_eq!(code(get(&store, 2).unwrap_err()), FaultCode::NotFound);
    assert_eq!(bucket.names().len(), 1, "the note is used once");
}

#[test]
fn a_corrupt_object_is_never_given() {
    // Without room in memory the same is found.
    for memory_bytes in [8 * MIB, 64] {
        let bucket = Bucket::new();
        let store = bucket.open(8 * MIB);
        for number in 0..2 {
            put(&store, number, 1, &bytes(number, 1_000)).unwrap();
        }
        flushed(&store);
        drop(store);
        // One has another byte, and another one is too short; both have whole names.
        let names = bucket.names();
        bucket.change(&names[0], |bytes| *bytes.last_mut().unwrap() ^= 1);
        bucket.change(&names[1], |bytes| bytes.truncate(bytes.len() - 1));
        let store = bucket.open(memory_bytes);
        assert_eq!((store.counts().found, store.counts().torn), (1, 1));
        let page = store.list(USER, &ListQuery::default());
        let read = store.get(USER, &page.blocks[0].0, true);
        assert_eq!(code(read.err().unwrap()), FaultCode::Corrupt);
        assert_eq!(store.counts().corrupt, 1);
        swept(&store, &bucket, 0);
    }
}

#[test]
fn a_store_that_is_gone_is_passed_over_and_everything_arrives_when_it_is_back() {
    let bucket = Bucket::new();
    let clock = Arc::new(ManualClock::default());
    let store = BlockStore::open(bucket.config(8 * MIB), clock.clone()).unwrap();
    put(&store, 100, 1, b"before").unwrap();
    let flusher = Flusher::start(&store, 1).unwrap();
    let until = |is_so: &dyn Fn() -> bool| {
        let real = crate::common::clock();
        while !is_so() {
            assert!(real.monotonic_ns() < PATIENCE_NS, "{:?}", store.tiers());
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    until(&|| store.dirty_bytes() == 0);
    bucket.is_gone(true);
    // Half of the memory may be dirty; what comes then is refused, and nothing else.
    let data = bytes(1, MIB as usize);
    let taken = (0..16).take_while(|number| put(&store, *number, 1, &data).is_ok());
    assert_eq!(taken.count(), 4);
    until(&|| store.tiers()[1].is_passed_over);
    let error = put(&store, 50, 1, &data).unwrap_err();
    assert!(
        error.to_string().contains("s3://bucket/a: failed"),
        "{error}"
    );
    assert_eq!(code(error), FaultCode::Busy);
    let faults = store.tiers()[1].faults;
    assert!(faults >= 1);
    // A durable put is refused at once, what is in memory is read, and what is removed goes later.
    let durable = PutHead {
        target: PutTarget::Durable,
        ..head(&key(60), 1, b"durable")
    };
    let error = put_as(&store, USER, durable, b"durable").unwrap_err();
    assert_eq!(code(error), FaultCode::Full);
    assert!(get(&store, 3).unwrap() == data);
    let error = store.delete(USER, &key(100), u64::MAX).unwrap_err();
    assert_eq!(code(error), FaultCode::Disk);
    assert!(store.mark_clean().is_err());
    bucket.is_gone(false);
    clock.advance(RETRY_NS * 100);
    until(&|| store.dirty_bytes() == 0 && !store.tiers()[1].is_passed_over);
    until(&|| bucket.names().len() == 4);
    for number in 10..26 {
        let head = PutHead {
            wait_ns: PATIENCE_NS,
            ..head(&key(number), 1, &data)
        };
        put_as(&store, USER, head, &data).unwrap();
    }
    until(&|| store.dirty_bytes() == 0);
    store.mark_clean().unwrap();
    drop((flusher, store));
    let store = bucket.open(64 * MIB);
    assert_eq!(store.counts().found, 20);
    for number in (0..4).chain(10..26) {
        assert!(get(&store, number).unwrap() == data);
    }
}

#[test]
fn readers_do_not_wait_one_after_the_other_for_a_store_that_is_gone() {
    let bucket = Bucket::new();
    let store = bucket.open(8 * MIB);
    put(&store, 1, 1, b"here").unwrap();
    flushed(&store);
    store.mark_clean().unwrap();
    drop(store);
    let clock = Arc::new(ManualClock::default());
    let store = BlockStore::open(bucket.config(8 * MIB), clock.clone()).unwrap();
    bucket.is_gone(true);
    for _ in 0..3 {
        assert_eq!(code(get(&store, 1).unwrap_err()), FaultCode::Disk);
    }
    assert_eq!(store.tiers()[1].faults, 1, "it was asked once");
    bucket.is_gone(false);
    clock.advance(RETRY_NS);
    assert_eq!(get(&store, 1).unwrap(), b"here");
}

/// What a store has taken without acknowledging it does not come back after a deletion.
#[test]
fn an_object_whose_end_failed_is_removed() {
    let mut bucket = Bucket::new();
    bucket.failures = 1;
    bucket.takes_failed = true;
    let mut config = bucket.config(8 * MIB);
    config.remotes[0].retry_ns = 1;
    let store = BlockStore::open(config, clock()).unwrap();
    put(&store, 1, 1, b"once").unwrap();
    // Creation, header and bytes; then the end.
    bucket.left.store(3, Ordering::SeqCst);
    flushed(&store);
    swept(&store, &bucket, 1);
    assert_eq!((store.counts().flushed, store.tiers()[1].faults), (1, 1));
    assert_eq!((store.tiers()[1].blocks, store.tiers()[1].bytes), (1, 4));
    store.delete(USER, &key(1), u64::MAX).unwrap();
    store.mark_clean().unwrap();
    assert_eq!(bucket.names(), ["clean"]);
}

#[test]
fn users_have_shares_and_blocks_that_can_be_had_again_make_room() {
    let bucket = Bucket::new();
    let mut config = bucket.config(8 * MIB);
    config.remotes[0].bounds = TierBounds::shared(4_000, 100);
    let store = BlockStore::open(config, clock()).unwrap();
    let data = bytes(1, 1_000);
    let put_durable = |user: u32, number: u64, refetch_us: u32| {
        let head = PutHead {
            target: PutTarget::Durable,
            refetch_us,
            ..head(&key(number), 1, &data)
        };
        put_as(&store, user, head, &data)
    };
    put_durable(1, 1, 0).unwrap();
    put_durable(1, 2, 1_000).unwrap();
    // The share of the user is used up: the block that can be had again goes.
    put_durable(1, 3, 0).unwrap();
    assert_eq!(code(put_durable(1, 4, 0).unwrap_err()), FaultCode::Full);
    put_durable(2, 1, 0).unwrap();
    assert_eq!(
        (store.tiers()[1].bytes, store.tiers()[1].blocks),
        (3_000, 3)
    );
    assert_eq!(bucket.names().len(), 3);
    assert!(store.get(1, &key(2), false).is_err());
}

#[test]
fn a_directory_comes_before_a_store_of_objects() {
    let directory = tempfile::tempdir().unwrap();
    let bucket = Bucket::new();
    let open = |durability: Durability| {
        let mut config = bucket.config(8 * MIB);
        config.directories = crate::common::config(MIB, &[directory.path()]).directories;
        config.directories[0].durability = durability;
        config.directories[0].bounds = TierBounds::single(4_000, 100);
        BlockStore::open(config, clock()).unwrap()
    };
    // A scratch directory makes nothing durable: blocks go on to the store.
    let store = open(Durability::Scratch);
    put(&store, 1, 1, b"one").unwrap();
    flushed(&store);
    assert_eq!((store.tiers()[1].blocks, store.tiers()[2].blocks), (0, 1));
    drop(store);
    // A durable one does, and hands down what it has no room for.
    let store = open(Durability::Written);
    for number in 2..10 {
        put(&store, number, 1, &bytes(number, 1_000)).unwrap();
    }
    flushed(&store);
    let tiers = store.tiers();
    assert!(tiers[1].blocks >= 1 && tiers[2].blocks > 1, "{tiers:?}");
    assert_eq!(store.dirty_bytes(), 0);
}

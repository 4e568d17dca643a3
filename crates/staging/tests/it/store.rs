//! A store by itself: versions, tiers, bounds, eviction and restarts.

use std::sync::Arc;

use barograph_model::NS_PER_S;
use barograph_staging::{
    BlockKey, BlockStore, DirectoryConfig, Durability, FaultCode, Flusher, ListQuery, MemoryConfig,
    PutHead, PutTarget, StoreConfig, TierBounds,
};

use crate::common::{
    MIB, PATIENCE_NS, USER, bytes, clock, config, get, head, key, memory, open, put, put_as,
};

#[test]
fn blocks_come_back_as_they_were_put() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(config(8 * MIB, &[directory.path()]));
    for length in [0, 1, 63, 64, 65, 4_096, 1 << 20] {
        let data = bytes(length as u64, length);
        put(&store, length as u64, 1, &data).unwrap();
        assert!(get(&store, length as u64).unwrap() == data, "{length}");
    }
    // A block beyond the bound of memory goes to the tier below.
    let data = bytes(9, 9 << 20);
    put(&store, 9, 1, &data).unwrap();
    assert!(get(&store, 9).unwrap() == data);
    assert_eq!(store.tiers()[1].blocks, 1);
}

#[test]
fn versions_only_grow() {
    let store = open(config(MIB, &[]));
    put(&store, 1, 5, b"five").unwrap();
    for (version, data, expect) in [
        (4, &b"four"[..], Err(5)),
        (5, b"other", Err(5)),
        (5, b"five", Ok(())),
        (7, b"seven", Ok(())),
        (5, b"five", Err(7)),
    ] {
        let done = put(&store, 1, version, data);
        assert_eq!(done.map_err(|error| error.number()), expect, "{version}");
    }
    assert_eq!(get(&store, 1).unwrap(), b"seven");
    assert_eq!(store.delete(USER, &key(1), 6).unwrap_err().number(), 7);
    assert_eq!(store.delete(USER, &key(1), 7).unwrap(), 7);
    assert_eq!(
        get(&store, 1).unwrap_err().code(),
        Some(FaultCode::NotFound)
    );
    assert_eq!(store.tiers()[0].bytes, 0);
}

#[test]
fn a_put_whose_bytes_lack_their_checksum_leaves_nothing() {
    let store = open(config(MIB, &[]));
    let error = put_as(&store, USER, head(&key(1), 1, b"abc"), b"abd").unwrap_err();
    assert_eq!(error.code(), Some(FaultCode::Corrupt));
    let error = put_as(&store, USER, head(&key(1), 1, b"abc"), b"ab").unwrap_err();
    assert_eq!(error.code(), Some(FaultCode::BadRequest));
    assert_eq!(store.tiers()[0].blocks, 0);
}

#[test]
fn dirty_blocks_are_flushed_and_clean_ones_evicted() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(config(8 * MIB, &[directory.path()]));
    let flusher = Flusher::start(&store, 2).unwrap();
    let data = bytes(1, 1 << 20);
    for number in 0..40 {
        let mut head = head(&key(number), 1, &data);
        head.wait_ns = PATIENCE_NS;
        put_as(&store, USER, head, &data).unwrap();
    }
    assert!(flusher.drain(PATIENCE_NS));
    let counts = store.counts();
    assert_eq!((store.tiers()[1].blocks, store.dirty_bytes()), (40, 0));
    assert!(
        counts.evicted >= 32 && store.tiers()[0].bytes <= 8 * MIB,
        "{counts:?}"
    );
    for number in 0..40 {
        assert!(get(&store, number).unwrap() == data, "{number}");
    }
}

#[test]
fn what_is_dirty_is_never_dropped_and_puts_wait_then_fail() {
    let directory = tempfile::tempdir().unwrap();
    // Nothing flushes.
    let store = open(config(4 * MIB, &[directory.path()]));
    let data = bytes(1, 1 << 20);
    put(&store, 1, 1, &data).unwrap();
    put(&store, 2, 1, &data).unwrap();
    let mut third = head(&key(3), 1, &data);
    third.wait_ns = NS_PER_S / 50;
    let error = put_as(&store, USER, third.clone(), &data).unwrap_err();
    assert_eq!(error.code(), Some(FaultCode::Busy), "{error}");
    assert!(
        error
            .to_string()
            .contains("flushing to lower tiers is behind"),
        "{error}"
    );
    assert_eq!(
        (get(&store, 1).unwrap() == data, store.counts().puts_waited),
        (true, 1)
    );
    // A put that asks for a durable tier does not wait for it.
    third.target = PutTarget::Durable;
    put_as(&store, USER, third, &data).unwrap();
    // With a flusher, one that waits comes through.
    let _flusher = Flusher::start(&store, 1).unwrap();
    let mut fourth = head(&key(4), 1, &data);
    fourth.wait_ns = PATIENCE_NS;
    put_as(&store, USER, fourth, &data).unwrap();
}

#[test]
fn blocks_without_a_lower_tier_stay_unless_their_owner_can_fetch_them() {
    let store = open(config(4 * MIB, &[]));
    let data = bytes(1, 1 << 20);
    let refetched = |number| PutHead {
        refetch_us: 100,
        ..head(&key(number), 1, &data)
    };
    for number in 0..3 {
        put(&store, number, 1, &data).unwrap();
    }
    for number in 3..6 {
        put_as(&store, USER, refetched(number), &data).unwrap();
    }
    assert_eq!(
        put(&store, 6, 1, &data).map_err(|error| error.code()),
        Ok(())
    );
    let error = put(&store, 7, 1, &data).unwrap_err();
    assert_eq!(error.code(), Some(FaultCode::Full), "{error}");
    let here = (0..8).filter(|number| get(&store, *number).is_ok());
    assert_eq!(here.collect::<Vec<_>>(), [0, 1, 2, 6]);
}

#[test]
fn strangers_cannot_take_each_others_room_or_blocks() {
    let memory = MemoryConfig {
        bounds: TierBounds::shared(8 * MIB, 1_000),
        dirty_bytes_max: 8 * MIB,
    };
    let store = open(StoreConfig {
        memory,
        ..StoreConfig::default()
    });
    let data = bytes(1, 1 << 20);
    let mut taken = [0; 2];
    for number in 0..10 {
        for (at, user) in [1, 2].into_iter().enumerate() {
            let head = head(&key(number), 1, &data);
            taken[at] += u32::from(put_as(&store, user, head, &data).is_ok());
        }
    }
    // Who was first has as much as remained free by then, and the other one no more than that.
    assert_eq!(taken, [3, 2]);
    let error = store.get(3, &key(0), true).err().unwrap();
    assert_eq!(error.code(), Some(FaultCode::NotFound));
    assert!(store.list(3, &ListQuery::default()).blocks.is_empty());
    assert_eq!(
        store.delete(3, &key(0), 9).unwrap_err().code(),
        Some(FaultCode::NotFound)
    );
    assert!(put_as(&store, 3, head(&key(0), 1, b"x"), b"x").is_ok());
}

#[test]
fn full_tiers_hand_blocks_down() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let tier = |at: usize, bytes| {
        DirectoryConfig::new(directories[at].path(), TierBounds::single(bytes, 1_000))
    };
    let store = open(StoreConfig {
        memory: memory(4 * MIB),
        directories: vec![tier(0, 4 * MIB), tier(1, 100 * MIB)],
        ..StoreConfig::default()
    });
    let flusher = Flusher::start(&store, 1).unwrap();
    let data = bytes(1, 1 << 20);
    for number in 0..20 {
        let mut head = head(&key(number), 1, &data);
        head.wait_ns = PATIENCE_NS;
        put_as(&store, USER, head, &data).unwrap();
    }
    assert!(flusher.drain(PATIENCE_NS));
    let tiers = store.tiers();
    assert!(
        tiers[1].bytes <= 4 * MIB && tiers[2].blocks >= 16,
        "{tiers:?}"
    );
    for number in 0..20 {
        assert!(get(&store, number).unwrap() == data, "{number}");
    }
}

#[test]
fn a_restart_finds_blocks_and_refuses_torn_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let config = || config(4 * MIB, &[path]);
    {
        let store = open(config());
        let flusher = Flusher::start(&store, 1).unwrap();
        for number in 0..6 {
            put(&store, number, 3, &bytes(number, 5_000)).unwrap();
        }
        assert!(flusher.drain(PATIENCE_NS));
        store.mark_clean().unwrap();
    }
    let files = path.join(format!("u{USER}"));
    let file = |number: u64| files.join(format!("{number:016x}.block"));
    // One is cut, one has a header that is none, one was never finished.
    let whole = std::fs::read(file(0)).unwrap();
    std::fs::write(file(0), &whole[..whole.len() - 1]).unwrap();
    std::fs::write(file(1), [7; 5_000]).unwrap();
    std::fs::write(files.join("00000000000000ff.draft"), &whole).unwrap();
    std::fs::write(files.join("somebody-elses"), b"x").unwrap();
    // One has a bad byte, which only a reader can find.
    let mut bad = std::fs::read(file(2)).unwrap();
    *bad.last_mut().unwrap() ^= 1;
    std::fs::write(file(2), bad).unwrap();
    let store = open(config());
    assert_eq!((store.counts().found, store.counts().torn), (4, 3));
    let mut codes: Vec<_> = (0..6)
        .map(|it| get(&store, it).map_err(|it| it.code()))
        .collect();
    codes.sort_by_key(|it| it.is_ok());
    let faults: Vec<_> = codes.iter().filter_map(|it| it.as_ref().err()).collect();
    let expect = [FaultCode::NotFound, FaultCode::NotFound, FaultCode::Corrupt].map(Some);
    assert!(
        expect.iter().all(|code| faults.contains(&code)),
        "{faults:?}"
    );
    assert_eq!((faults.len(), store.counts().corrupt), (3, 1));
    // The bad one may be put again, with its version.
    let corrupt = (0..6).find(|it| get(&store, *it).is_err_and(|it| it.code() == expect[2]));
    let number = corrupt.unwrap();
    put(&store, number, 3, &bytes(number, 5_000)).unwrap();
    assert!(get(&store, number).is_ok());
}

#[test]
fn what_is_found_after_a_kill_is_not_taken_for_the_newest() {
    let directory = tempfile::tempdir().unwrap();
    let config = || config(4 * MIB, &[directory.path()]);
    {
        let store = open(config());
        let flusher = Flusher::start(&store, 1).unwrap();
        put(&store, 1, 1, b"old").unwrap();
        assert!(flusher.drain(PATIENCE_NS));
        drop(flusher);
        // The new version is acknowledged, and lost with the memory.
        put(&store, 1, 2, b"new").unwrap();
    }
    let store = open(config());
    let error = get(&store, 1).unwrap_err();
    assert_eq!(
        (error.code(), error.number()),
        (Some(FaultCode::Unconfirmed), 1)
    );
    assert_eq!(
        get(&store, 2).unwrap_err().code(),
        Some(FaultCode::NotKnown)
    );
    assert_eq!(store.get(USER, &key(1), true).unwrap().info().version, 1);
    // Whoever knows that it is the newest puts it again.
    put(&store, 1, 1, b"old").unwrap();
    assert_eq!(get(&store, 1).unwrap(), b"old");
}

#[test]
fn lists_are_paged_by_prefix() {
    let store = open(config(4 * MIB, &[]));
    let mut expect = Vec::new();
    for dataset in ["a", "ab", "b"] {
        for number in 0..7 {
            let key = BlockKey::numbered(dataset, number).unwrap();
            put_as(&store, USER, head(&key, 1, b"x"), b"x").unwrap();
            expect.push(key);
        }
        let key = BlockKey::named(dataset, b"name").unwrap();
        put_as(&store, USER, head(&key, 1, b"x"), b"x").unwrap();
        expect.push(key);
    }
    let all = |store: &Arc<BlockStore>, dataset: &str, name: &[u8]| {
        let mut query = ListQuery {
            dataset: dataset.into(),
            name: name.to_vec(),
            after: None,
            blocks_max: 3,
        };
        let mut keys = Vec::new();
        loop {
            let page = store.list(USER, &query);
            keys.extend(page.blocks.into_iter().map(|(key, _)| key));
            query.after = page.next;
            if query.after.is_none() {
                return keys;
            }
        }
    };
    assert_eq!(all(&store, "", b""), expect);
    assert_eq!(all(&store, "a", b""), expect[..16]);
    assert_eq!(all(&store, "", b"na").len(), 3);
    assert_eq!(all(&store, "c", b""), []);
}

#[test]
fn scratch_does_not_count_as_flushed() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let bounds = TierBounds::single(100 * MIB, 1_000);
    let mut tiers: Vec<_> = directories
        .iter()
        .map(|it| DirectoryConfig::new(it.path(), bounds))
        .collect();
    tiers[0].durability = Durability::Scratch;
    tiers[1].durability = Durability::Synced;
    let config = StoreConfig {
        memory: memory(2 * MIB),
        directories: tiers,
        ..StoreConfig::default()
    };
    let store = BlockStore::open(config, clock()).unwrap();
    let data = bytes(1, 3 << 19);
    put(&store, 1, 1, &data[..1 << 20]).unwrap();
    let flusher = Flusher::start(&store, 1).unwrap();
    assert!(flusher.drain(PATIENCE_NS));
    assert_eq!((store.tiers()[1].blocks, store.tiers()[2].blocks), (0, 1));
    // It does not fit into the dirty bytes, so it goes to the durable tier at once.
    put(&store, 2, 1, &data).unwrap();
    assert_eq!((store.tiers()[2].blocks, store.dirty_bytes()), (2, 0));
    assert!(get(&store, 2).unwrap() == data);
}

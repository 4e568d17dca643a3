//! The journal and the keeper: what is submitted is archived, and what is not is counted.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use barograph_archive::{ArchiveLosses, DiskStorage, Journal, JournalEntry, Keeper, LogPart};
use barograph_model::{Sample, StreamKey, Value, ValueType};

use crate::failing::{Failing, Failure};
use crate::support::{
    SOON, SteppedArchive, TwoClocks, awkward, config, declare, everything, losses, sample,
    segments, start, start_on, told,
};

fn commit(journal: &Journal, mut entries: Vec<JournalEntry>) {
    let position = journal.submit(&mut entries);
    assert!(entries.is_empty());
    assert!(journal.wait_durable(position, SOON));
}

#[test]
fn what_is_acknowledged_is_there_while_the_writer_lives() {
    let dir = tempfile::tempdir().unwrap();
    let keeper = start(config(dir.path())).unwrap();
    let mut entries = vec![
        declare(0, "durable.float", ValueType::Float, 1),
        declare(1, "durable.text", ValueType::Text, 1),
        declare(2, "durable.bool", ValueType::Bool, 1),
        declare(3, "durable.int", ValueType::Int, 1),
    ];
    let mut expect = Vec::new();
    for (number, awkward) in (1..).zip(awkward()) {
        expect.push((number, told(&awkward)));
        entries.push(JournalEntry::Sample(StreamKey(0), number, awkward));
    }
    let long = Value::Text(Arc::from("é".repeat(40_000)));
    entries.push(sample(1, 1, 5, Value::text("")));
    entries.push(sample(1, 7, 5, long));
    entries.push(sample(2, 1, 5, true));
    entries.push(sample(2, 2, 5, false));
    entries.push(sample(3, 1, 5, i64::MIN));
    commit(&keeper.journal(), entries);
    let found = everything(dir.path());
    let of = |name: &str| found[&(name.to_owned(), 1)].clone();
    assert_eq!(of("durable.float"), expect);
    let cut = Sample::measured(5, Value::Text("é".repeat(32 << 10).into()));
    let empty = Sample::measured(5, Value::text(""));
    assert_eq!(of("durable.text"), [(1, told(&empty)), (7, told(&cut))]);
    assert_eq!(of("durable.bool").len(), 2);
    assert!(of("durable.int")[0].1.contains(&i64::MIN.to_string()));
    let status = keeper.status();
    assert_eq!(
        (status.trouble.as_str(), status.losses),
        ("", ArchiveLosses::default())
    );
    assert!(status.log_bytes > 0 && status.oldest_ts == i64::MIN);
}

#[test]
fn what_is_not_durable_follows_with_the_flush_and_with_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut archive = SteppedArchive::start(config(dir.path()), Arc::new(DiskStorage)).unwrap();
    assert!(archive.commit(vec![
        declare(0, "other", ValueType::Int, 1),
        declare(1, "unwanted.thing", ValueType::Int, 1),
        sample(0, 1, 1, 1),
        sample(1, 1, 1, 1),
    ]));
    archive.until(|_| !everything(dir.path()).is_empty());
    let mut slow = config(dir.path());
    drop(archive);
    slow.flush_ns = SOON.as_nanos() as i64;
    let keeper = start(slow).unwrap();
    let journal = keeper.journal();
    journal.submit(&mut vec![
        declare(0, "other", ValueType::Int, 2),
        sample(0, 1, 1, 1),
    ]);
    drop(keeper);
    let found = everything(dir.path());
    let names: Vec<_> = found.keys().map(|(n, life)| (n.as_str(), *life)).collect();
    assert_eq!(names, [("other", 1), ("other", 2)]);
    assert!(!journal.wait_durable(
        journal.submit(&mut vec![
            declare(9, "durable", ValueType::Int, 9),
            sample(9, 1, 1, 1)
        ]),
        SOON
    ));
}

#[test]
fn the_log_follows_before_a_ring_is_lapped() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    config.flush_ns = i64::MAX;
    let mut archive = SteppedArchive::start(config, Arc::new(DiskStorage)).unwrap();
    let JournalEntry::Declare(key, mut declared) = declare(0, "other", ValueType::Int, 1) else {
        unreachable!()
    };
    declared.depth = 8;
    let mut entries = vec![JournalEntry::Declare(key, declared)];
    entries.extend((1..=5).map(|n| sample(0, n, 1, 1)));
    archive.keeper().journal().submit(&mut entries);
    archive.until(|_| {
        let found = everything(dir.path());
        found.values().any(|samples| samples.len() == 5)
    });
}

#[test]
fn what_finds_no_room_is_counted_and_the_count_survives() {
    let dir = tempfile::tempdir().unwrap();
    let mut small = config(dir.path());
    small.buffer_bytes_max = 10 * 32;
    let mut archive = SteppedArchive::start(small, Arc::new(DiskStorage)).unwrap();
    let journal = archive.keeper().journal();
    let mut entries = vec![declare(0, "durable", ValueType::Int, 1)];
    entries.extend((1..=25).map(|n| sample(0, n, 1, 1)));
    let position = journal.submit(&mut entries);
    assert!(!journal.wait_durable(position, SOON), "15 of them are lost");
    // Samples that come when there is room again are acknowledged.
    archive.until(|keeper| keeper.status().waiting_bytes == 0);
    assert!(archive.commit(vec![sample(0, 26, 1, 1)]));
    assert!(archive.commit(vec![
        declare(1, "durable.too", ValueType::Int, 1),
        sample(1, 1, 1, 1),
    ]));
    let expect = ArchiveLosses {
        overflow_samples: 15,
        ..ArchiveLosses::default()
    };
    assert_eq!(archive.keeper().status().losses, expect);
    drop(archive);
    assert_eq!(losses(dir.path()), expect);
    let keeper = start(config(dir.path())).unwrap();
    assert_eq!(keeper.status().losses, expect);
    let found = everything(dir.path());
    let numbers: Vec<u64> = found[&("durable".to_owned(), 1)]
        .iter()
        .map(|s| s.0)
        .collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 26]);
    assert_eq!(found.len(), 2);
}

#[test]
fn what_is_no_sample_of_its_stream_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let keeper = start(config(dir.path())).unwrap();
    keeper.journal().submit(&mut vec![
        declare(0, "other", ValueType::Int, 1),
        sample(0, 2, 1, 1),
        sample(0, 2, 1, 1),
        sample(0, 3, 1, 1.5),
        sample(0, 0, 1, 1),
        sample(0, 1 << 48, 1, 1),
        sample(7, 1, 1, 1),
        JournalEntry::Retire(StreamKey(7)),
    ]);
    drop(keeper);
    assert_eq!(losses(dir.path()).failed_samples, 5);
    assert_eq!(everything(dir.path())[&("other".to_owned(), 1)].len(), 1);
}

#[test]
fn keys_are_used_again_and_segments_declare_who_lives() {
    let dir = tempfile::tempdir().unwrap();
    let keeper = start(config(dir.path())).unwrap();
    let journal = keeper.journal();
    // Within one batch and over several: a key is used for one stream after the other.
    commit(
        &journal,
        vec![
            declare(0, "durable.a", ValueType::Int, 1),
            sample(0, 1, 1, 1),
            JournalEntry::Retire(StreamKey(0)),
            declare(0, "durable.b", ValueType::Int, 2),
            sample(0, 1, 1, 1),
            declare(0, "durable.a", ValueType::Int, 3),
            sample(0, 1, 1, 1),
            declare(1, "durable.never", ValueType::Int, 3),
            JournalEntry::Retire(StreamKey(1)),
            declare(1, "durable.silent", ValueType::Int, 3),
        ],
    );
    keeper.seal().unwrap();
    commit(&journal, vec![sample(0, 2, 2, 2)]);
    let paths = segments(dir.path());
    let part = LogPart::open(paths.last().unwrap()).unwrap();
    let mut told: Vec<_> = part
        .series()
        .iter()
        .map(|s| {
            (
                s.descriptor.name.as_str(),
                s.life,
                s.before,
                s.archived,
                s.rows,
            )
        })
        .collect();
    told.sort_unstable();
    assert_eq!(
        told,
        [("durable.a", 3, 1, 2, 1), ("durable.silent", 3, 0, 0, 0)]
    );
}

#[test]
fn segments_grow_old_by_monotonic_time_alone() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(TwoClocks::default());
    let hour = config(dir.path()).segment_ns_max;
    let journal = Journal::new(&config(dir.path()));
    let (_keeper, mut loops) = Keeper::start_stepped(
        config(dir.path()),
        Arc::new(DiskStorage),
        Arc::clone(&clock) as _,
        None,
        journal.clone(),
    )
    .unwrap();
    let (mut number, mut now_ns) = (0, 0);
    // Returns the segment that is written after a commit.
    let mut append = |mut entries: Vec<JournalEntry>| {
        number += 1;
        entries.push(sample(0, number, clock.wall.load(Ordering::SeqCst), 1));
        let position = journal.submit(&mut entries);
        while !journal.wait_durable(position, Duration::ZERO) {
            now_ns = loops.step(now_ns).max(now_ns);
        }
        segments(dir.path()).pop()
    };
    let first = append(vec![declare(0, "durable", ValueType::Int, 1)]);
    assert!(first.is_some());
    for wall in [100 * hour, -100 * hour, i64::MAX, i64::MIN, 0] {
        clock.wall.store(wall, Ordering::SeqCst);
        assert_eq!(append(vec![]), first, "{wall}");
    }
    clock.monotonic.fetch_add(hour, Ordering::SeqCst);
    append(vec![]);
    let second = append(vec![]);
    assert!(second.is_some() && second != first, "{first:?} {second:?}");
    let found = everything(dir.path());
    assert_eq!(found[&("durable".to_owned(), 1)].len(), 8, "{found:?}");
}

#[test]
fn an_empty_segment_is_not_rolled_and_a_full_one_is() {
    let dir = tempfile::tempdir().unwrap();
    let mut small = config(dir.path());
    small.segment_bytes_max = 1;
    let keeper = start(small).unwrap();
    let journal = keeper.journal();
    journal.submit(&mut vec![
        declare(0, "durable", ValueType::Int, 1),
        declare(1, "durable.too", ValueType::Int, 1),
        JournalEntry::Retire(StreamKey(1)),
    ]);
    keeper.seal().unwrap();
    assert_eq!(segments(dir.path()).len(), 0);
    // A loss is written, but is nothing to seal.
    journal.submit(&mut vec![sample(9, 1, 1, 1)]);
    keeper.seal().unwrap();
    keeper.seal().unwrap();
    assert_eq!(segments(dir.path()).len(), 1);
    commit(&journal, vec![sample(0, 1, 1, 1)]);
    let first = segments(dir.path()).pop();
    commit(&journal, vec![sample(0, 2, 1, 1)]);
    // The first segment may be sealed and gone by now.
    let second = segments(dir.path()).pop();
    assert!(second.is_some() && second != first, "{first:?} {second:?}");
}

#[test]
fn a_second_writer_is_refused_until_the_first_has_gone() {
    let dir = tempfile::tempdir().unwrap();
    let keeper = start(config(dir.path())).unwrap();
    let refused = start(config(dir.path())).unwrap_err().to_string();
    assert!(refused.contains("held by another agent"), "{refused}");
    drop(keeper);
    start(config(dir.path())).unwrap();
}

/// The failure is at each step: creating the segment, its header, its declarations, the batch, the
/// sync, and the reaction to it.
#[test]
fn a_full_disk_is_said_and_what_waits_is_written_when_there_is_room() {
    for at in 0..5 {
        let dir = tempfile::tempdir().unwrap();
        let disk = Arc::new(Failing::of_log(at, Failure::Twice));
        let storage = Arc::clone(&disk) as _;
        let mut archive = SteppedArchive::start(config(dir.path()), storage).unwrap();
        assert!(archive.commit(vec![
            declare(0, "durable", ValueType::Int, 1),
            sample(0, 1, 1, 1),
        ]));
        assert!(disk.count() > at + 2, "{at}: {}", disk.count());
        archive.until(|keeper| keeper.status().trouble.is_empty());
        drop(archive);
        let found = everything(dir.path());
        assert_eq!(found[&("durable".to_owned(), 1)].len(), 1, "{at}");
    }
}

#[test]
fn a_disk_that_stays_full_blocks_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let mut small = config(dir.path());
    small.buffer_bytes_max = 100 * 32;
    let healthy = Arc::new(Failing::new(u64::MAX, Failure::Once));
    drop(start_on(config(dir.path()), Arc::clone(&healthy) as _).unwrap());
    let disk = Arc::new(Failing::new(healthy.count() + 1, Failure::ForEver));
    let mut archive = SteppedArchive::start(small, disk).unwrap();
    let journal = archive.keeper().journal();
    journal.submit(&mut vec![
        declare(0, "durable", ValueType::Int, 1),
        sample(0, 1, 1, 1),
    ]);
    // A start does fewer operations than a start and a stop: entries are added until something
    // fails. Other failures on that disk are reported too, and may be reported first.
    let number = std::cell::Cell::new(1);
    let next = || {
        number.set(number.get() + 1);
        number.get()
    };
    archive.until(|keeper| {
        journal.submit(&mut vec![sample(0, next(), 1, 1)]);
        let trouble = keeper.status().trouble;
        trouble.contains("samples wait in memory")
    });
    assert!(archive.seal().is_err());
    for life in 2..=1_000 {
        let mut entries = vec![sample(0, next(), 1, 1)];
        // Streams that come and go meanwhile do not accumulate: they use the keys of earlier ones.
        entries.push(declare(1, "durable.too", ValueType::Int, life));
        entries.push(sample(1, 1, 1, 1));
        journal.submit(&mut entries);
    }
    let status = archive.keeper().status();
    assert!(status.waiting_bytes <= 2 * 100 * 32, "{status:?}");
    assert!(status.losses.failed_samples >= 1_999 - 200, "{status:?}");
}

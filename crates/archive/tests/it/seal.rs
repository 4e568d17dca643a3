//! Sealing and merging: every sample from before is there afterwards, once, whatever fails in
//! between.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use barograph_archive::{
    ArchiveReader, DiskStorage, JournalEntry, Keeper, PartInfo, PartKind, Storage, Tier,
};
use barograph_model::{NS_PER_S, Span, StreamKey, Value, ValueType};

use crate::failing::{Failing, Failure};
use crate::support::{
    SOON, SteppedArchive, TwoClocks, assert_once, assert_sound, config, declare, dir_in_memory,
    everything, everything_of, export_all, parquet_files, sample, segments, start,
};

const HOUR_NS: i64 = 3_600 * NS_PER_S;
/// The start of a full hour, so that the same files are made at any time.
const BEGIN: i64 = 1_700_000_000 / 3_600 * HOUR_NS;

/// Appends samples of three streams, one each `step_ns`, and waits until they are on disk.
pub(crate) fn append(
    keeper: &Keeper,
    life: i64,
    numbers: std::ops::RangeInclusive<u64>,
    step_ns: i64,
) {
    let position = keeper
        .journal()
        .submit(&mut entries(life, numbers, step_ns));
    assert!(keeper.journal().wait_durable(position, SOON));
}

/// Returns samples of three streams, one each `step_ns`, which then retire.
pub(crate) fn entries(
    life: i64,
    numbers: std::ops::RangeInclusive<u64>,
    step_ns: i64,
) -> Vec<JournalEntry> {
    let mut entries = vec![
        declare(0, "durable.int", ValueType::Int, life),
        declare(1, "durable.float", ValueType::Float, life),
        declare(2, "durable.text", ValueType::Text, life),
    ];
    for number in numbers {
        let ts = BEGIN + number as i64 * step_ns;
        entries.push(sample(0, number, ts, number as i64 * 3));
        // Without a pattern that compresses.
        let noise = (number + life as u64 * 1_000_003).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 12;
        entries.push(sample(1, number, ts, noise as f64 / 3.0));
        entries.push(sample(
            2,
            number,
            ts,
            Value::text(&format!("t{}", number / 7)),
        ));
    }
    entries.extend((0..3).map(|key| JournalEntry::Retire(StreamKey(key))));
    entries
}

#[test]
fn what_is_sealed_is_parquet_and_the_log_is_gone() {
    let dir = dir_in_memory();
    let keeper = start(config(dir.path())).unwrap();
    append(&keeper, 1, 1..=500, 20 * NS_PER_S);
    let before = everything(dir.path());
    let archive = ArchiveReader::open(dir.path());
    let series = archive.view().unwrap().series().to_vec();
    keeper.seal().unwrap();
    assert_eq!(everything(dir.path()), before);
    assert_eq!(archive.view().unwrap().series(), series);
    assert_eq!(segments(dir.path()), [] as [std::path::PathBuf; 0]);
    // Three hours; none of the series has more than two samples a second.
    let files = parquet_files(dir.path());
    let names = files
        .iter()
        .map(|path| path.strip_prefix(dir.path()).unwrap());
    let names: Vec<String> = names.map(|path| path.display().to_string()).collect();
    insta::assert_snapshot!(names.join("\n"), @"
    1h/node=n1/date=2023-11-14/hour=22/0000000000000001-0000000000000001.parquet
    1h/node=n1/date=2023-11-14/hour=23/0000000000000001-0000000000000001.parquet
    1h/node=n1/date=2023-11-15/hour=00/0000000000000001-0000000000000001.parquet
    1min/node=n1/date=2023-11-14/hour=22/0000000000000001-0000000000000001.parquet
    1min/node=n1/date=2023-11-14/hour=23/0000000000000001-0000000000000001.parquet
    1min/node=n1/date=2023-11-15/hour=00/0000000000000001-0000000000000001.parquet
    raw/node=n1/date=2023-11-14/hour=22/0000000000000001-0000000000000001.parquet
    raw/node=n1/date=2023-11-14/hour=23/0000000000000001-0000000000000001.parquet
    raw/node=n1/date=2023-11-15/hour=00/0000000000000001-0000000000000001.parquet
    ");
    assert_sound(dir.path());
    let status = keeper.status();
    assert_eq!(status.files, files.len() as u64);
    assert_eq!(
        (status.oldest_ts, &*status.trouble),
        (BEGIN + 20 * NS_PER_S, "")
    );
}

#[test]
fn what_is_merged_is_one_file_of_each_tier_and_hour() {
    let dir = dir_in_memory();
    let keeper = start(config(dir.path())).unwrap();
    // One more would be merged without a request.
    for part in 0..4 {
        append(&keeper, 1 + part, 1..=200, NS_PER_S / 5);
        keeper.seal().unwrap();
    }
    let before = everything(dir.path());
    let view = ArchiveReader::open(dir.path()).view().unwrap();
    assert_eq!(view.parts().len(), 16);
    assert_eq!(keeper.compact().unwrap(), 16);
    assert_eq!(parquet_files(dir.path()).len(), 4);
    assert_eq!(everything(dir.path()), before);
    // The old view reads files that are unlinked.
    assert_eq!(everything_of(&view, Span::ALL), before);
    assert_eq!(keeper.compact().unwrap(), 0);
    assert_sound(dir.path());
}

#[test]
fn hours_that_are_over_are_merged_unasked() {
    let dir = dir_in_memory();
    let clock = TwoClocks {
        wall: AtomicI64::new(BEGIN + 2 * HOUR_NS),
        ..TwoClocks::default()
    };
    let keeper = Keeper::start(config(dir.path()), Arc::new(DiskStorage), Arc::new(clock));
    let keeper = keeper.unwrap();
    for part in 0..5 {
        append(&keeper, 1 + part, 1..=20, NS_PER_S);
        keeper.seal().unwrap();
    }
    // The merge comes after the answer to the fifth request, and before anything that is requested
    // next.
    keeper.seal().unwrap();
    // Five samples a second get a tier of seconds.
    assert_eq!(parquet_files(dir.path()).len(), 4);
    assert_sound(dir.path());
}

#[test]
fn clocks_that_are_set_about_make_few_files() {
    let dir = dir_in_memory();
    let mut archive = SteppedArchive::start(config(dir.path()), Arc::new(DiskStorage)).unwrap();
    assert!(archive.commit(entries(1, 1..=2_000, 5 * 24 * HOUR_NS)));
    let before = everything(dir.path());
    archive.seal().unwrap();
    assert_eq!(everything(dir.path()), before);
    assert!(parquet_files(dir.path()).len() <= 1_024 * 3);
    assert_sound(dir.path());
    let view = ArchiveReader::open(dir.path()).view().unwrap();
    let stretches = view.stretches(Span::ALL);
    assert!(stretches.len() < 200_000);
    assert!(stretches.windows(2).all(|pair| pair[0].to < pair[1].from));
}

#[test]
fn a_segment_larger_than_a_pass_is_sealed_in_several() {
    let dir = dir_in_memory();
    let mut archive = SteppedArchive::start(config(dir.path()), Arc::new(DiskStorage)).unwrap();
    for life in 1..=3 {
        for from in (0..150_000).step_by(10_000) {
            assert!(archive.commit(entries(life, from + 1..=from + 10_000, NS_PER_S / 1_000)));
        }
    }
    let before = everything(dir.path());
    archive.seal().unwrap();
    assert_once(&everything(dir.path()));
    assert!(everything(dir.path()) == before);
    assert_sound(dir.path());
    let view = ArchiveReader::open(dir.path()).view().unwrap();
    let parts = view.parts();
    let rows = |tier| {
        parts
            .iter()
            .find(|p| p.kind == PartKind::Parquet(tier))
            .map(|p| p.rows)
    };
    assert_eq!(rows(Tier::Raw), Some(3 * 3 * 150_000));
    assert_eq!(rows(Tier::Second), Some(3 * 151));
}

/// Makes an archive with log segments and with Parquet files to merge.
fn prepare(root: &Path) {
    let keeper = start(config(root)).unwrap();
    for life in 1..=2 {
        append(&keeper, life, 1..=30, 100 * NS_PER_S);
        keeper.seal().unwrap();
    }
    append(&keeper, 3, 1..=30, NS_PER_S / 4);
    drop(keeper);
    let keeper = start(config(root)).unwrap();
    append(&keeper, 4, 1..=30, 100 * NS_PER_S);
}

pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}

/// Seals and merges on a disk that fails at operation `at`; then a start on a disk that does not
/// fail finds everything once, and leaves no other files. Returns the number of operations.
fn on_failing(from: &Path, at: u64, failure: Failure) -> u64 {
    let dir = dir_in_memory();
    let root = dir.path();
    copy(from, root);
    let before = everything(root);
    let what = format!("operation {at} fails {failure:?}");
    let disk = Arc::new(Failing::new(at, failure));
    let storage = Arc::clone(&disk) as Arc<dyn Storage>;
    if let Ok(mut archive) = SteppedArchive::start(config(root), storage) {
        // Either may fail: that is reported, and nothing is lost.
        let sealed = archive.seal();
        let merged = archive.compact();
        let view = ArchiveReader::open(root).view().unwrap();
        assert_eq!(
            everything_of(&view, Span::ALL),
            before,
            "{what}: {sealed:?} {merged:?}"
        );
        if failure == Failure::Once && disk.count().saturating_sub(at) > 2 {
            archive.compact().unwrap();
        }
    }
    assert_eq!(everything(root), before, "{what}: after the end");
    let mut archive = SteppedArchive::start(config(root), Arc::new(DiskStorage)).unwrap();
    assert_eq!(everything(root), before, "{what}: after the start");
    archive.compact().unwrap();
    assert_eq!(everything(root), before, "{what}: after the merge");
    drop(archive);
    assert_sound(root);
    assert_eq!(segments(root).len(), 0, "{what}");
    disk.count()
}

fn on_every(failure: Failure) {
    let dir = dir_in_memory();
    prepare(dir.path());
    let operations = on_failing(dir.path(), u64::MAX, failure);
    assert!(operations > 100, "{operations}");
    for at in 0..operations {
        on_failing(dir.path(), at, failure);
    }
}

#[test]
fn each_operation_of_a_seal_and_a_merge_fails_once() {
    on_every(Failure::Once);
}

#[test]
fn each_operation_of_a_seal_and_a_merge_fails_and_the_next() {
    on_every(Failure::Twice);
}

#[test]
fn each_operation_of_a_seal_and_a_merge_says_that_it_failed_but_was_done() {
    on_every(Failure::DoneNevertheless);
}

/// As at a power failure: nothing after the n-th operation is done.
#[test]
fn a_crash_at_each_operation_of_a_seal_and_a_merge_loses_nothing() {
    on_every(Failure::ForEver);
}

#[test]
fn directories_that_are_not_ours_are_refused_and_nothing_in_them_is_touched() {
    for path in [
        "nodes/n1",
        "nodes/n1/log",
        "nodes/n1/tmp",
        "raw/node=n1",
        "1h/node=n1",
    ] {
        let foreign = |dir: &Path, how: &str| {
            let path = dir.join(path);
            let elsewhere = dir.join("elsewhere");
            match how {
                "link" => {
                    fs::rename(&path, &elsewhere).unwrap();
                    std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
                }
                "open to all" => {
                    let mode = fs::Permissions::from_mode(0o777);
                    fs::set_permissions(&path, mode).unwrap();
                }
                // Only root may give a directory away.
                _ if std::os::unix::fs::chown(&path, Some(12_345), None).is_err() => return false,
                _ => {}
            }
            true
        };
        for how in ["link", "open to all", "another's"] {
            let dir = dir_in_memory();
            prepare(dir.path());
            let tmp = dir.path().join("nodes/n1/tmp/precious");
            fs::write(&tmp, "precious").unwrap();
            if !foreign(dir.path(), how) {
                continue;
            }
            let error = start(config(dir.path())).unwrap_err().to_string();
            let named = error.contains(path) && error.contains(" is refused: ");
            assert!(named, "{how} {path}: {error}");
            assert!(tmp.exists(), "{how} {path}");
            // A reader accepts such directories, but skips an entry that is not the directory of a
            // node.
            let is_node = (how, path) != ("link", "nodes/n1");
            assert_eq!(!everything(dir.path()).is_empty(), is_node, "{how} {path}");
        }
    }
}

#[test]
fn a_damaged_manifest_is_made_anew_from_the_files() {
    for damage in [0, 20, 60, 10_000] {
        let dir = dir_in_memory();
        prepare(dir.path());
        let before = everything(dir.path());
        let series = ArchiveReader::open(dir.path())
            .view()
            .unwrap()
            .series()
            .to_vec();
        let path = barograph_archive::ArchiveLayout::new(dir.path(), "n1").manifest();
        let mut bytes = fs::read(&path).unwrap();
        match bytes.get_mut(damage) {
            Some(byte) => *byte ^= 1,
            None => bytes.truncate(bytes.len() / 2),
        }
        fs::write(&path, bytes).unwrap();
        let error = ArchiveReader::open(dir.path()).view().unwrap_err();
        assert!(error.to_string().contains("manifest.json"), "{error}");
        let verified = barograph_archive::verify(dir.path(), &mut |_, _| {}).unwrap();
        assert_eq!(verified.findings.len(), 1, "{verified:?}");
        let keeper = start(config(dir.path())).unwrap();
        assert_eq!(keeper.status().losses.corrupt_files, 1);
        assert_eq!(everything(dir.path()), before, "{damage}");
        assert_eq!(
            ArchiveReader::open(dir.path()).view().unwrap().series(),
            series
        );
        assert!(path.with_extension("json.bad").exists());
    }
}

#[test]
fn a_damaged_part_is_set_aside_and_the_others_stay() {
    let dir = dir_in_memory();
    let keeper = start(config(dir.path())).unwrap();
    for life in 1..=3 {
        append(&keeper, life, 1..=30, NS_PER_S);
        keeper.seal().unwrap();
    }
    let raw: Vec<_> = parquet_files(dir.path())
        .into_iter()
        .filter(|path| path.starts_with(dir.path().join("raw")))
        .collect();
    assert_eq!(raw.len(), 3);
    let mut before = everything(dir.path());
    before.retain(|(_, life), _| *life != 2);
    let mut bytes = fs::read(&raw[1]).unwrap();
    bytes[100] ^= 0xFF;
    fs::write(&raw[1], bytes).unwrap();
    keeper.compact().unwrap();
    assert_eq!(everything(dir.path()), before);
    assert_eq!(keeper.status().losses.corrupt_files, 1);
    let verified = barograph_archive::verify(dir.path(), &mut |_, _| {}).unwrap();
    let what: Vec<&str> = verified.findings.iter().map(|f| &*f.what).collect();
    insta::assert_snapshot!(what.join("\n"), @"was damaged and set aside: remove it when you have looked at it");
    // Its tiers still have the rest.
    let view = ArchiveReader::open(dir.path()).view().unwrap();
    let all: Vec<usize> = (0..view.series().len()).collect();
    let cancel = std::sync::atomic::AtomicBool::new(false);
    let buckets = view
        .buckets(&all, Span::ALL, 60 * NS_PER_S, 2, &cancel)
        .unwrap();
    assert!(buckets.values().all(|b| b.count.iter().sum::<u64>() == 90));
}

/// Checks that each file's samples are of the hour of its directory; returns how many files are of
/// several hours.
fn files_without_an_hour(root: &Path) -> usize {
    let parts = ArchiveReader::open(root).view().unwrap().parts();
    let parts = parts.iter().filter(|part| part.kind != PartKind::Log);
    let claims_none = |part: &&PartInfo| {
        let path = part.path.display().to_string();
        if path.contains("/date=0001-01-01/hour=99/") {
            return true;
        }
        let hour = part.span.from.div_euclid(HOUR_NS);
        assert_eq!(hour, part.span.to.div_euclid(HOUR_NS), "{path}");
        let claimed = format!("/hour={:02}/", hour.rem_euclid(24));
        assert!(path.contains(&claimed), "{path}");
        false
    };
    parts.filter(claims_none).count()
}

/// As when weeks are filled in late: each sample is in a file of its hour, also when more samples
/// of it come.
#[test]
fn old_values_are_in_files_of_their_own_hours() {
    let dir = dir_in_memory();
    let mut archive = SteppedArchive::start(config(dir.path()), Arc::new(DiskStorage)).unwrap();
    for life in 1..=2 {
        assert!(archive.commit(entries(life, 1..=200, HOUR_NS)));
        archive.seal().unwrap();
        assert_eq!(files_without_an_hour(dir.path()), 0);
    }
    let before = everything(dir.path());
    archive.compact().unwrap();
    assert_eq!(everything(dir.path()), before);
    assert_eq!(files_without_an_hour(dir.path()), 0);
    assert_sound(dir.path());
}

/// If there are more hours than one sealing makes files for, files hold several each and name none;
/// exports keep them, and a rebuilt manifest finds them.
#[test]
fn files_of_several_hours_claim_none() {
    let dir = dir_in_memory();
    let mut archive = SteppedArchive::start(config(dir.path()), Arc::new(DiskStorage)).unwrap();
    assert!(archive.commit(entries(1, 1..=1_100, HOUR_NS)));
    archive.seal().unwrap();
    let before = everything(dir.path());
    assert!(files_without_an_hour(dir.path()) > 1_000);
    assert_sound(dir.path());
    let out = dir.path().join("out");
    export_all(dir.path(), barograph_archive::ExportTo::Parquet(&out));
    assert_eq!(everything(&out), before);
    assert_sound(&out);
    drop(archive);
    std::fs::remove_file(dir.path().join("nodes/n1/manifest.json")).unwrap();
    drop(start(config(dir.path())).unwrap());
    assert_eq!(everything(dir.path()), before);
}

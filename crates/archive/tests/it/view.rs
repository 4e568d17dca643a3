//! Views of samples in memory: the reference with which views of files are compared.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::sync_channel;

use barograph_archive::aggregate::{BucketBudget, FoldRequest, aggregate};
use barograph_archive::parquet::{IndexSeries, ParquetPart};
use barograph_archive::{ArchiveError, ArchiveLayout, ArchiveReader, PartKind, Tier, View};
use barograph_model::{NS_PER_S, Span, ValueType};

use crate::seal::append;
use crate::support::{
    SOON, config, declare, dir_in_memory, everything, everything_of, parquet_files, sample,
    segments, start,
};

#[test]
fn an_empty_view_has_nothing() {
    let view = View::default();
    assert!(view.series().is_empty() && view.stretches(Span::ALL).is_empty());
    let cancel = AtomicBool::new(false);
    assert_eq!(view.scan(&[], Span::ALL, &cancel).count(), 0);
}

#[test]
fn nobody_waits_for_a_pipe_in_place_of_a_file() {
    let (told, done) = sync_channel(1);
    std::thread::spawn(move || {
        in_place_of_each();
        told.send(()).unwrap();
    });
    assert_eq!(done.recv_timeout(SOON), Ok(()));
}

fn in_place_of_each() {
    for (which, corrupt_files) in [("log", 1), ("manifest", 1), ("raw", 1)] {
        let dir = dir_in_memory();
        let root = dir.path();
        let keeper = start(config(root)).unwrap();
        for life in 1..=2 {
            append(&keeper, life, 1..=10, NS_PER_S);
            keeper.seal().unwrap();
        }
        append(&keeper, 3, 1..=10, NS_PER_S);
        drop(keeper);
        let raw = |path: &Path| path.starts_with(root.join("raw"));
        let path = match which {
            "log" => segments(root).pop().unwrap(),
            "manifest" => ArchiveLayout::new(root, "n1").manifest(),
            _ => parquet_files(root).into_iter().find(|p| raw(p)).unwrap(),
        };
        std::fs::remove_file(&path).unwrap();
        assert!(
            Command::new("mkfifo")
                .arg(&path)
                .status()
                .unwrap()
                .success()
        );
        let fault = match ArchiveReader::open(root).view() {
            Err(error) => Some(error),
            Ok(view) => {
                let all: Vec<usize> = (0..view.series().len()).collect();
                let cancel = AtomicBool::new(false);
                view.scan(&all, Span::ALL, &cancel).find_map(Result::err)
            }
        };
        let told = fault.is_some_and(|error| error.to_string().contains("no regular file"));
        // A log without a header may just be being created.
        assert_eq!(told, which != "log", "{which}");
        barograph_archive::verify(root, &mut |_, _| {}).unwrap();
        let keeper = start(config(root)).unwrap();
        keeper.compact().unwrap();
        let status = keeper.status();
        assert_eq!(
            (status.losses.corrupt_files, &*status.trouble),
            (corrupt_files, "")
        );
    }
}
/// As many buckets as samples, in Parquet and in a log: the budget bounds them while they are made.
#[test]
fn buckets_are_bounded_while_they_are_made() {
    const SAMPLES: usize = 3_000;
    let dir = dir_in_memory();
    for life in [1, 2] {
        let keeper = start(config(dir.path())).unwrap();
        let mut entries = vec![declare(1, "a", ValueType::Int, life)];
        let samples = (1..).take(SAMPLES / 2);
        entries.extend(samples.map(|i| sample(1, i, life * 10_000 * NS_PER_S + i as i64, 1)));
        let position = keeper.journal().submit(&mut entries);
        assert!(keeper.journal().wait_durable(position, SOON));
        if life == 1 {
            keeper.seal().unwrap();
        }
    }
    let view = ArchiveReader::open(dir.path()).view().unwrap();
    let cancel = AtomicBool::new(false);
    let read = |budget: &BucketBudget<'_>| {
        let found = view.folds_within(&[0], Span::ALL, 1, 2, &cancel, budget)?;
        Ok(found[&0].len())
    };
    assert_eq!(read(&BucketBudget::of(SAMPLES)).unwrap(), SAMPLES);
    for max in [SAMPLES - 1, SAMPLES / 2 - 1] {
        let refused: Result<usize, ArchiveError> = read(&BucketBudget::of(max));
        assert!(matches!(refused, Err(ArchiveError::TooManyBuckets)));
    }
}

#[test]
fn a_node_that_cannot_be_read_is_left_out_and_named() {
    let dir = dir_in_memory();
    let keeper = start(config(dir.path())).unwrap();
    let mut entries = vec![declare(1, "a", ValueType::Int, 1), sample(1, 1, 1, 1)];
    let position = keeper.journal().submit(&mut entries);
    assert!(keeper.journal().wait_durable(position, SOON));
    // Everything is written and synced by now.
    drop(keeper);
    let before = everything(dir.path());
    let nodes = dir.path().join("nodes");
    // A directory whose name no node has, and a file, are ignored.
    for foreign in ["lost+found", ".snapshot", "bad"] {
        std::fs::create_dir(nodes.join(foreign)).unwrap();
        std::fs::write(nodes.join(foreign).join("manifest.json"), "{").unwrap();
    }
    std::fs::write(nodes.join("notes"), "").unwrap();
    let archive = ArchiveReader::open(dir.path());
    for _ in 0..2 {
        let view = archive.view().unwrap();
        assert_eq!(everything_of(&view, Span::ALL), before);
        let [fault] = view.faults() else {
            panic!("{:?}", view.faults());
        };
        assert_eq!((&*fault.node, &fault.path), ("bad", &nodes.join("bad")));
        assert!(fault.reason.contains("manifest.json"), "{}", fault.reason);
    }
    std::fs::remove_dir_all(nodes.join("bad")).unwrap();
    let view = archive.view().unwrap();
    assert_eq!(view.faults(), []);
    assert_eq!(everything_of(&view, Span::ALL), before);
}

/// The archive that an agent names must belong to that agent's user or root; one that a person
/// names may belong to anybody.
#[test]
fn an_agent_names_no_archive_but_its_own() {
    let dir = dir_in_memory();
    let keeper = start(config(dir.path())).unwrap();
    append(&keeper, 1, 1..=20, NS_PER_S);
    keeper.seal().unwrap();
    drop(keeper);
    let us = rustix::process::geteuid();
    let dirs = ["nodes/n1", "nodes/n1/log", "nodes/n1/tmp", "raw/node=n1"];
    let dirs = dirs.map(|name| dir.path().join(name));
    // A directory of root is accepted for every user.
    let owner = if us.is_root() { 12_345 } else { us.as_raw() };
    let give = |path: &Path, user: u32| {
        if us.is_root() {
            std::os::unix::fs::chown(path, Some(user), None).unwrap();
        }
    };
    for tier in ["raw", "1s", "1min", "1h"] {
        let part = dir.path().join(tier).join("node=n1");
        if part.exists() {
            give(&part, owner);
        }
    }
    dirs.iter().for_each(|path| give(path, owner));
    let rows = |archive: ArchiveReader| archive.view().map(|view| view.parts().len());
    let all = rows(ArchiveReader::open(dir.path())).unwrap();
    assert!(all > 0);
    assert_eq!(
        rows(ArchiveReader::of_user(dir.path(), owner)).unwrap(),
        all
    );
    let error = rows(ArchiveReader::of_user(dir.path(), owner + 1)).unwrap_err();
    let expect = format!("it belongs to user {owner}, not to {}", owner + 1);
    assert!(error.to_string().contains(&expect), "{error}");
    for path in &dirs {
        fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
        let error = rows(ArchiveReader::of_user(dir.path(), owner)).unwrap_err();
        assert!(error.to_string().contains("everybody may write"), "{error}");
        assert_eq!(rows(ArchiveReader::open(dir.path())).unwrap(), all);
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }
    assert_eq!(
        rows(ArchiveReader::of_user(dir.path(), owner)).unwrap(),
        all
    );
}

/// An archive from before buckets recorded for how long values held.
#[test]
fn old_tiers_stand_where_nothing_else_is_left() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/archive-v1");
    let view = ArchiveReader::open(&root).view().unwrap();
    let all: Vec<usize> = (0..view.series().len()).collect();
    let cancel = AtomicBool::new(false);
    let minute = 60 * NS_PER_S;
    let of_samples = view.buckets(&all, Span::ALL, minute, 1, &cancel).unwrap();
    assert!(of_samples.len() > 3);
    let held: Vec<u64> = of_samples
        .values()
        .flat_map(|b| b.held_ns.clone())
        .collect();
    assert!(held.iter().any(|ns| *ns > NS_PER_S as u64), "{held:?}");

    let tier = view.parts().into_iter();
    let mut tier = tier.filter(|part| part.kind == PartKind::Parquet(Tier::Minute));
    let part = ParquetPart::open(&tier.next().unwrap().path).unwrap();
    assert!(part.check().unwrap() > 3);
    let budget = BucketBudget::of(1 << 10);
    let ask = FoldRequest {
        span: Span::ALL,
        read: Span::ALL,
        step_ns: minute,
        threads: 1,
        cancel: &cancel,
        budget: &budget,
    };
    let key = |_: usize, series: &IndexSeries| Some(series.first_row as usize);
    for fold in aggregate(&[&part], &key, &ask).unwrap().into_values() {
        let buckets = fold.finish();
        assert!(buckets.held_ns.iter().all(|ns| *ns == 0));
        let means = buckets.mean.iter().zip(&buckets.sample_mean);
        assert!(means.into_iter().all(|(a, b)| a == b || a.is_nan()));
    }
}

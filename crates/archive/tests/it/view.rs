//! Views over memory: the reference that those over files are compared with.

use std::sync::atomic::AtomicBool;

use barograph_archive::aggregate::Budget;
use barograph_archive::{Archive, ArchiveError, View};
use barograph_model::{NS_PER_S, Span, ValueType};

use crate::support::{SOON, config, declare, everything, everything_of, sample, start};

#[test]
fn an_empty_view_has_nothing() {
    let view = View::in_memory(Vec::new(), Vec::new());
    assert!(view.series().is_empty() && view.stretches(Span::ALL).is_empty());
    let cancel = AtomicBool::new(false);
    assert_eq!(view.scan(&[], Span::ALL, &cancel).count(), 0);
}

/// As many buckets as samples, in Parquet and in a log: the budget bounds them while they are made.
#[test]
fn buckets_are_bounded_while_they_are_made() {
    const SAMPLES: usize = 3_000;
    let dir = tempfile::tempdir().unwrap();
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
    let view = Archive::open(dir.path()).view().unwrap();
    let cancel = AtomicBool::new(false);
    let read = |budget: &Budget| {
        let found = view.buckets_within(&[0], Span::ALL, 1, 2, &cancel, budget)?;
        Ok(found[&0].len())
    };
    assert_eq!(read(&Budget::of(SAMPLES)).unwrap(), SAMPLES);
    for max in [SAMPLES - 1, SAMPLES / 2 - 1] {
        let refused: Result<usize, ArchiveError> = read(&Budget::of(max));
        assert!(matches!(refused, Err(ArchiveError::TooManyBuckets)));
    }
}

#[test]
fn a_node_that_cannot_be_read_is_left_out_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let keeper = start(config(dir.path())).unwrap();
    let mut entries = vec![declare(1, "a", ValueType::Int, 1), sample(1, 1, 1, 1)];
    let position = keeper.journal().submit(&mut entries);
    assert!(keeper.journal().wait_durable(position, SOON));
    let before = everything(dir.path());
    let nodes = dir.path().join("nodes");
    // What no node is named, and what is no directory, is nobody's.
    for foreign in ["lost+found", ".snapshot", "bad"] {
        std::fs::create_dir(nodes.join(foreign)).unwrap();
        std::fs::write(nodes.join(foreign).join("manifest.json"), "{").unwrap();
    }
    std::fs::write(nodes.join("notes"), "").unwrap();
    let archive = Archive::open(dir.path());
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

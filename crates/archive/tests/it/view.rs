//! Views over memory: the reference that those over files are compared with.

use std::sync::atomic::AtomicBool;

use barograph_archive::aggregate::Budget;
use barograph_archive::{Archive, ArchiveError, View};
use barograph_model::{NS_PER_S, Span, ValueType};

use crate::support::{SOON, config, declare, sample, start};

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

//! Archives of several nodes, or of several keepers of one node, become one.

use std::path::Path;
use std::sync::Arc;

use barograph_archive::{
    ArchiveConfig, ArchiveReader, JournalEntry, MergedArchives, merge_archives,
};
use barograph_model::{Clock, NS_PER_S, Quality, Sample, StreamKey, ValueType};
use barograph_stream::SystemClock;

use crate::support::{assert_once, assert_sound, config, declare, everything, sample, start};

const START_NS: i64 = 1_700_000_000 * NS_PER_S;

/// Writes an archive of a node.
fn write(root: &Path, node: &str, mut entries: Vec<JournalEntry>) {
    let config = ArchiveConfig {
        node: node.into(),
        ..config(root)
    };
    let keeper = start(config).unwrap();
    keeper.journal().submit(&mut entries);
    drop(keeper);
}

fn samples(numbers: impl Iterator<Item = u64>) -> Vec<JournalEntry> {
    let at = |number: u64| {
        sample(
            0,
            number,
            START_NS + number as i64 * NS_PER_S,
            number as i64,
        )
    };
    numbers.map(at).collect()
}

fn merge(inputs: &[&Path], out: &Path) -> MergedArchives {
    let inputs: Vec<ArchiveReader> = inputs
        .iter()
        .map(|root| ArchiveReader::open(*root))
        .collect();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    merge_archives(&inputs, out, &clock, &mut |_| {}).unwrap()
}

#[test]
fn two_keepers_of_one_node_make_one_history_without_doubles() {
    let dir = tempfile::tempdir().unwrap();
    let [first, second, out] = ["first", "second", "out"].map(|name| dir.path().join(name));
    let began = || vec![declare(0, "durable.a", ValueType::Int, 5)];
    // The first has missed 100 to 149, and says so in place of number 100.
    let mut of_first = began();
    of_first.extend(samples(1..100));
    let ended = Sample {
        quality: Quality::Ended,
        ..Sample::measured(START_NS + 99 * NS_PER_S, 99_i64)
    };
    of_first.push(JournalEntry::Sample(StreamKey(0), 100, ended));
    of_first.extend(samples(150..200));
    write(&first, "n1", of_first);
    // The second has missed the beginning, and a later life is in it alone.
    let mut of_second = began();
    of_second.extend(samples(60..180));
    of_second.push(declare(0, "durable.a", ValueType::Int, 9));
    of_second.extend(samples(1..4));
    write(&second, "n1", of_second);
    let mut of_other = vec![declare(0, "durable.a", ValueType::Int, 7)];
    of_other.extend(samples(1..11));
    write(&second, "n2", of_other);

    let merged = merge(&[&first, &second], &out);
    let expect = MergedArchives {
        nodes: 2,
        series: 2,
        samples: 199 + 3 + 10,
        // 60 to 99, the mark at 100, and 150 to 179.
        doubles: 40 + 1 + 30,
    };
    assert_eq!(merged, expect);
    assert_sound(&out);
    let found = everything(&out);
    assert_once(&found);
    assert_eq!(found.values().map(Vec::len).sum::<usize>(), 212);
    assert!(
        !found
            .values()
            .flatten()
            .any(|(_, told)| told.contains("ended"))
    );

    // Merged again with one of its parts, it stays the same.
    let again = dir.path().join("again");
    assert_eq!(merge(&[&out, &first], &again).samples, 212);
    assert_eq!(everything(&again), found);
    // A directory that holds an archive is not written to.
    let inputs = [ArchiveReader::open(&first)];
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let refused = merge_archives(&inputs, &again, &clock, &mut |_| {}).unwrap_err();
    assert!(refused.to_string().contains("merge into"), "{refused}");
}

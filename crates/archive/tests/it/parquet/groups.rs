//! Row groups as other programs read them: by their statistics a name is found in few of them.

use std::fs::File;

use parquet::file::reader::{FileReader as _, SerializedFileReader};

use super::*;

/// Returns the rows, and the least and the greatest name, of each row group.
fn groups(path: &Path) -> Vec<(i64, String, String)> {
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let metadata = reader.metadata().clone();
    let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap().to_vec()).unwrap();
    let group = |group: &parquet::file::metadata::RowGroupMetaData| {
        let statistics = group.column(1).statistics().unwrap();
        let (least, greatest) = (statistics.min_bytes_opt(), statistics.max_bytes_opt());
        (group.num_rows(), text(least), text(greatest))
    };
    metadata.row_groups().iter().map(group).collect()
}

fn check(names: &[(&str, u64)], expect: &[(i64, &str, &str)]) {
    let part = |(name, rows): &(&str, u64)| {
        let samples = (1..=*rows).map(|n| (n, n as i64, Value::Int(7)));
        Part {
            descriptor: descriptor(name, "vda", ValueType::Int),
            life: 1,
            columns: columns(ValueType::Int, samples),
        }
    };
    let dir = tempfile::tempdir().unwrap();
    let path = place(&dir);
    write(&path, &names.iter().map(part).collect::<Vec<_>>());
    let expect = expect
        .iter()
        .map(|(rows, least, greatest)| (*rows, (*least).to_owned(), (*greatest).to_owned()));
    assert_eq!(groups(&path), expect.collect::<Vec<_>>());
}

#[test]
fn a_group_that_is_large_enough_ends_with_its_name() {
    check(&[("a", 10), ("b", 10)], &[(20, "a", "b")]);
    let many = [("a", 40_000), ("b", 40_000), ("c", 70_000), ("d", 5)];
    let groups = [(80_000, "a", "b"), (70_000, "c", "c"), (5, "d", "d")];
    check(&many, &groups);
    // A name that is larger than a group continues in the next one, which may have others.
    let large = [("a", 262_144 + 9), ("b", 9)];
    check(&large, &[(262_144, "a", "a"), (18, "a", "b")]);
}

//! Tests of the table of directories.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn id(n: u64) -> ObjectId {
    ObjectId::of(7 + n % 3, n)
}

fn whole(path: &str) -> PathOf {
    PathOf::Whole(path.into())
}

#[test]
fn a_renamed_directory_is_one_change() {
    let mut table = DirectoryTable::new(100);
    table.insert_root(id(1), b"/mnt").unwrap();
    table.insert(id(2), id(1), b"a").unwrap();
    table.insert(id(3), id(2), b"b").unwrap();
    assert_eq!(table.path(id(3)), whole("/mnt/a/b"));
    assert_eq!(table.path_in(id(3), b"f"), whole("/mnt/a/b/f"));
    table.insert(id(2), id(1), b"other").unwrap();
    assert_eq!(table.path_in(id(3), b"f"), whole("/mnt/other/b/f"));
    assert_eq!(table.below(id(1)).len(), 2);
    assert!(table.remove(id(2)) && !table.remove(id(2)));
    assert_eq!(table.path(id(3)), PathOf::From(id(2), b"b".into()));
    assert_eq!(table.path(id(9)), PathOf::From(id(9), Vec::new()));
    assert_eq!((table.len(), table.below(id(1)).len()), (2, 0));
    table.insert(id(2), id(1), b"back").unwrap();
    assert_eq!(table.path(id(3)), whole("/mnt/back/b"));
    assert_eq!(table.get(id(1)), Some((None, &b"/mnt"[..])));
}

#[test]
fn a_child_may_come_before_its_parent_and_the_root_may_be_the_whole_file_system() {
    let mut table = DirectoryTable::new(100);
    table.insert(id(3), id(2), b"b").unwrap();
    assert!(!table.has(id(2)));
    assert_eq!(table.path(id(3)), PathOf::From(id(2), b"b".into()));
    table.insert_root(id(2), b"/").unwrap();
    assert_eq!(table.path_in(id(3), b"c"), whole("/b/c"));
}

#[test]
fn circles_and_long_ways_end() {
    let mut table = DirectoryTable::new(10_000);
    table.insert(id(1), id(2), b"a").unwrap();
    table.insert(id(2), id(1), b"b").unwrap();
    assert!(matches!(table.path(id(1)), PathOf::From(..)));
    assert_eq!(table.below(id(9)).len(), 0);
    for n in 10..5_000 {
        table.insert(id(n), id(n + 1), b"xxxxxxxx").unwrap();
    }
    let PathOf::From(_, path) = table.path(id(10)) else {
        panic!("it has no root");
    };
    assert!(path.len() <= PATH_BYTES_MAX + 300);
}

#[test]
fn there_is_a_maximum_and_what_is_known_may_move_still() {
    let mut table = DirectoryTable::new(2);
    table.insert_root(id(1), b"/").unwrap();
    table.insert(id(2), id(1), b"a").unwrap();
    assert_eq!(table.insert(id(3), id(1), b"b"), Err(PathFault::Full));
    table.insert(id(2), id(1), b"c").unwrap();
    assert_eq!(table.path(id(2)), whole("/c"));
    assert_eq!(
        table.insert(id(2), id(1), &[b'x'; PATH_BYTES_MAX + 1]),
        Err(PathFault::Name)
    );
}

#[test]
fn places_and_names_are_used_again() {
    let mut table = DirectoryTable::new(1 << 20);
    table.insert_root(id(0), b"/").unwrap();
    let mut most = 0;
    for n in 1..2_000_000u64 {
        table.insert(id(n), id(0), b"a name of some bytes").unwrap();
        table.remove(id(n));
        most = most.max(table.bytes());
    }
    assert_eq!(table.len(), 1);
    assert!(most < 8 << 20, "{most}");
}

#[test]
fn a_million_directories_take_thirty_eight_megabytes() {
    let mut table = DirectoryTable::new(2 << 20);
    table.insert_root(id(0), b"/").unwrap();
    for n in 1..=1_000_000u64 {
        let name = format!("run-{n:07}");
        table.insert(id(n), id(n / 8), name.as_bytes()).unwrap();
    }
    assert_eq!(table.len(), 1_000_001);
    assert!(table.bytes() <= 38_000_000, "{}", table.bytes());
    let PathOf::Whole(path) = table.path(id(1_000_000)) else {
        panic!("the root is known");
    };
    assert_eq!(path.iter().filter(|byte| **byte == b'/').count(), 7);
}

/// More first halves than a slot can number, as the sequences of a large Lustre file system.
#[test]
fn ids_with_many_first_halves() {
    let id = |n: u64| ObjectId::of(n / 2, n % 2);
    let mut table = DirectoryTable::new(1 << 20);
    table.insert_root(id(0), b"/").unwrap();
    for n in 1..200_000 {
        table
            .insert(id(n), id(n / 2), n.to_string().as_bytes())
            .unwrap();
    }
    assert_eq!(table.len(), 200_000);
    assert_eq!(
        table.path(id(150_000)),
        table.path_in(id(75_000), b"150000")
    );
    assert_eq!(
        table.get(id(199_999)),
        Some((Some(id(99_999)), &b"199999"[..]))
    );
    for n in 100_000..200_000 {
        assert!(table.remove(id(n)));
    }
    for n in 300_000..400_000 {
        table
            .insert(id(n), id(n / 4), n.to_string().as_bytes())
            .unwrap();
    }
    assert!(!table.has(id(150_000)));
    assert_eq!(
        table.get(id(399_999)),
        Some((Some(id(99_999)), &b"399999"[..]))
    );
    assert_eq!(table.below(id(0)).len(), table.len() - 1);
}

proptest! {
    #[test]
    fn it_is_as_a_map_of_paths(changes in proptest::collection::vec(
        (1u64..12, 0u64..12, "[a-c]{1,3}", any::<bool>()), 0..60,
    )) {
        let mut table = DirectoryTable::new(1_000);
        let mut model: BTreeMap<u64, (u64, String)> = BTreeMap::new();
        table.insert_root(id(0), b"/r").unwrap();
        for (of, parent, name, is_removed) in changes {
            if is_removed {
                prop_assert_eq!(table.remove(id(of)), model.remove(&of).is_some());
            } else if of != parent {
                table.insert(id(of), id(parent), name.as_bytes()).unwrap();
                model.insert(of, (parent, name));
            }
        }
        prop_assert_eq!(table.len(), model.len() + 1);
        for of in 1..12 {
            let (mut at, mut parts) = (of, Vec::new());
            while let Some((parent, name)) = model.get(&at) {
                if parts.len() > 20 {
                    break;
                }
                parts.push(name.clone());
                at = *parent;
            }
            match table.path(id(of)) {
                PathOf::Whole(path) => {
                    parts.push("/r".into());
                    parts.reverse();
                    prop_assert_eq!(path, parts.join("/").into_bytes());
                    prop_assert_eq!(at, 0);
                }
                PathOf::From(..) => prop_assert_ne!(at, 0),
            }
        }
    }
}

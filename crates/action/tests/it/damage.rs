//! Damaged files, files of others, and files that others have open.

use std::sync::Arc;

use barograph_action::{ActionQueue, Enqueued, QueueConfig, QueueFault};
use barograph_model::ManualClock;

use crate::support::{open, request};

#[test]
fn a_damaged_file_is_set_aside_and_said() {
    let check = |name: &str, damage: fn(&mut Vec<u8>), reason: &str| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("queue");
        let clock = Arc::new(ManualClock::at(5));
        let queue = open(&path, &QueueConfig::default(), &clock);
        let batch: Vec<_> = (0..500).map(|index| request("r", index)).collect();
        queue.enqueue(&batch).unwrap();
        drop(queue);
        let mut bytes = std::fs::read(&path).unwrap();
        damage(&mut bytes);
        std::fs::write(&path, &bytes).unwrap();
        let queue = open(&path, &QueueConfig::default(), &clock);
        let (place, said) = queue.status().set_aside.expect(name);
        assert!(said.contains(reason), "{name}: {said}");
        assert_eq!(
            std::fs::read(&place).unwrap(),
            bytes,
            "{name}: the evidence is changed"
        );
        let taken = queue.enqueue(&batch).unwrap();
        assert_eq!(taken.accepted, 500, "{name}");
    };
    check(
        "no database",
        |bytes| bytes[..16].fill(b'x'),
        "not a database",
    );
    check(
        "pages overwritten",
        |bytes| bytes[4_096 * 4..4_096 * 12].fill(0xa5),
        "",
    );
    check("cut", |bytes| bytes.truncate(4_096 * 6 + 100), "");
}

#[test]
fn so_many_files_are_set_aside_and_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("queue");
    let config = QueueConfig {
        set_aside_max: 2,
        ..QueueConfig::default()
    };
    let open = || ActionQueue::open(&path, config.clone(), Arc::new(ManualClock::at(5)));
    for _ in 0..2 {
        std::fs::write(&path, vec![7; 8_192]).unwrap();
        assert!(open().unwrap().status().set_aside.is_some());
    }
    std::fs::write(&path, vec![7; 8_192]).unwrap();
    assert!(matches!(
        open(),
        Err(QueueFault::SetAsideFull { count: 2, .. })
    ));
    assert_eq!(std::fs::read(&path).unwrap(), vec![7; 8_192]);
}

#[test]
fn a_file_that_is_in_use_or_newer_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("queue");
    let clock = Arc::new(ManualClock::at(5));
    let queue = open(&path, &QueueConfig::default(), &clock);
    let again = ActionQueue::open(&path, QueueConfig::default(), clock.clone());
    assert!(matches!(again, Err(QueueFault::InUse { .. })));
    queue.enqueue(&[request("r", 1)]).unwrap();
    drop(queue);
    let newer = rusqlite::Connection::open(&path).unwrap();
    newer.pragma_update(None, "user_version", 2).unwrap();
    drop(newer);
    let refused = ActionQueue::open(&path, QueueConfig::default(), clock.clone());
    assert!(matches!(
        refused,
        Err(QueueFault::Newer {
            found: 2,
            known: 1,
            ..
        })
    ));
    let older = rusqlite::Connection::open(&path).unwrap();
    older.pragma_update(None, "user_version", 1).unwrap();
    drop(older);
    let queue = open(&path, &QueueConfig::default(), &clock);
    let expect = Enqueued {
        duplicates: 1,
        ..Enqueued::default()
    };
    assert_eq!(queue.enqueue(&[request("r", 1)]).unwrap(), expect);
}

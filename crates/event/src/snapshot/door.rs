//! Doors to snapshots for tests and fuzzing. An agent has snapshots through its collectors alone.

use std::path::Path;

use super::block::{EntryKind, Item, TreeEntry};
use super::{Snapshot, SnapshotFault, SnapshotWriter};
use crate::event::ObjectId;

/// Names in each directory of a snapshot that [`write`] makes.
const NAMES: u64 = 20;

/// Writes a snapshot of this many entries.
///
/// # Errors
///
/// The file cannot be written; the text says why.
pub fn write(path: &Path, entries: u64) -> Result<(), String> {
    let text = |fault: SnapshotFault| fault.to_string();
    let mut writer = SnapshotWriter::create(path, 7).map_err(text)?;
    for n in 0..entries {
        let name = format!("name {:02}", n % NAMES);
        let entry = TreeEntry {
            id: ObjectId::of(2, n),
            kind: [EntryKind::File, EntryKind::Directory][(n % 2) as usize],
            size: n,
            mtime_ns: 1,
            ctime_ns: 2,
            born_ns: 3,
            mode: 0o644,
            uid: 4,
            gid: 5,
            is_open: n.is_multiple_of(4),
        };
        let item = Item {
            dir: ObjectId::of(1, n / NAMES),
            name: name.as_bytes(),
            entry,
        };
        writer.push(item).map_err(text)?;
    }
    writer.finish().map(drop).map_err(text)
}

/// Reads a snapshot in all ways and returns the number of its entries; `None` if it is refused.
///
/// # Panics
///
/// An entry of a snapshot that was not refused is not found again.
pub fn read(path: &Path) -> Option<usize> {
    let mut entries = Vec::new();
    let opened = Snapshot::open(path, |item| {
        entries.push((item.dir, item.name.to_vec(), item.entry));
    });
    let mut snapshot = opened.ok()??;
    for (dir, name, entry) in &entries {
        let found = snapshot.get(*dir, name).ok().flatten();
        assert_eq!(found.as_ref(), Some(entry), "an entry is found by its name");
    }
    let mut count = 0;
    let all = snapshot.after(ObjectId::NONE, None, |_| {
        count += 1;
        true
    });
    assert!(all.is_ok() && count == entries.len(), "all entries follow");
    let _ = (snapshot.index_next(), snapshot.made_ns());
    Some(count)
}

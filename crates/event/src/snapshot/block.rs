//! The bytes of entries in a block of a snapshot.

use crate::event::{EventFlags, EventKind, ObjectId, PATH_BYTES_MAX};

/// What is remembered of a name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TreeEntry {
    pub(crate) id: ObjectId,
    pub(crate) kind: EntryKind,
    pub(crate) size: u64,
    pub(crate) mtime_ns: i64,
    pub(crate) ctime_ns: i64,
    /// Time at which the object was made, 0 if its file system does not know: it tells an object
    /// from a later one that has got the same number.
    pub(crate) born_ns: i64,
    /// Permissions.
    pub(crate) mode: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Whether the file was told as written, and not as closed since. If events are lost, the end
    /// of writing may be among them, and a look at the file does not show it.
    pub(crate) is_open: bool,
}

/// Permissions of an entry that an event has told, and no look: its times are that of the event.
pub(crate) const MODE_UNKNOWN: u16 = u16::MAX;

impl TreeEntry {
    /// Whether the file was written since this entry.
    pub(crate) fn is_written(&self, new: &Self) -> bool {
        let is_later = match self.mode {
            MODE_UNKNOWN => new.mtime_ns > self.mtime_ns,
            _ => new.mtime_ns != self.mtime_ns,
        };
        self.size != new.size || is_later
    }

    /// Whether anything of the file was changed since this entry.
    pub(crate) fn is_touched(&self, new: &Self) -> bool {
        match self.mode {
            MODE_UNKNOWN => new.ctime_ns > self.ctime_ns,
            _ => new.ctime_ns != self.ctime_ns,
        }
    }

    /// Whether the file has another owner or other permissions since this entry.
    pub(crate) fn is_given(&self, new: &Self) -> bool {
        let is_other_mode = self.mode != MODE_UNKNOWN && self.mode != new.mode;
        is_other_mode || (self.uid, self.gid) != (new.uid, new.gid)
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.kind == EntryKind::Directory
    }

    /// Takes in what an event says of the end of writing. `before` is what was known of the name.
    pub(crate) fn note(&mut self, kind: EventKind, flags: EventFlags, before: Option<&Self>) {
        self.is_open = match kind {
            EventKind::Create | EventKind::Write => {
                let is_whole = flags.has(EventFlags::RECONCILED) || flags.has(EventFlags::BEYOND);
                self.kind == EntryKind::File && !is_whole
            }
            EventKind::CloseWrite => false,
            _ => before.is_some_and(|before| before.is_open && before.id == self.id),
        };
    }

    /// Whether a later entry is of the same object. A file system gives the number of an object
    /// that is gone to another one, which was made later.
    pub(crate) fn is_same(&self, later: &Self) -> bool {
        let is_born = match (self.born_ns, self.mode) {
            (_, _) if later.born_ns == 0 => true,
            (0, MODE_UNKNOWN) => later.born_ns <= self.ctime_ns,
            (0, _) => true,
            (born_ns, _) => born_ns == later.born_ns,
        };
        self.id == later.id && self.kind == later.kind && is_born
    }
}

/// Type of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum EntryKind {
    File = 1,
    Directory = 2,
    Symlink = 3,
    Other = 4,
}

/// An entry with its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item<'a> {
    pub(crate) dir: ObjectId,
    pub(crate) name: &'a [u8],
    pub(crate) entry: TreeEntry,
}

/// Bit of the first byte: the directory is that of the entry before.
const SAME_DIR: u8 = 1 << 7;
/// Bit of the first byte: the file was written and not closed.
const OPEN: u8 = 1 << 6;

/// Appends an entry to a block.
pub(super) fn put(to: &mut Vec<u8>, item: Item<'_>, is_same_dir: bool) {
    let Item { dir, name, entry } = item;
    let same_dir = if is_same_dir { SAME_DIR } else { 0 };
    let open = if entry.is_open { OPEN } else { 0 };
    to.push(entry.kind as u8 | same_dir | open);
    if !is_same_dir {
        to.extend(dir.0);
    }
    to.extend((name.len() as u16).to_le_bytes());
    to.extend(name);
    to.extend(entry.id.0);
    to.extend(entry.size.to_le_bytes());
    for time in [entry.mtime_ns, entry.ctime_ns, entry.born_ns] {
        to.extend(time.to_le_bytes());
    }
    to.extend(entry.mode.to_le_bytes());
    to.extend(entry.uid.to_le_bytes());
    to.extend(entry.gid.to_le_bytes());
}

/// The entries of a block. They end early where the bytes make no sense.
pub(super) struct Items<'a> {
    rest: &'a [u8],
    dir: Option<ObjectId>,
}

impl<'a> Items<'a> {
    pub(super) fn new(block: &'a [u8]) -> Self {
        Self {
            rest: block,
            dir: None,
        }
    }

    /// Whether all bytes were entries.
    pub(super) fn is_done(&self) -> bool {
        self.rest.is_empty()
    }

    fn array<const N: usize>(rest: &mut &'a [u8]) -> Option<[u8; N]> {
        let (taken, after) = rest.split_first_chunk()?;
        *rest = after;
        Some(*taken)
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Item<'a>;

    fn next(&mut self) -> Option<Item<'a>> {
        let mut rest = self.rest;
        let [first] = Self::array(&mut rest)?;
        let kind = match first & !(SAME_DIR | OPEN) {
            1 => EntryKind::File,
            2 => EntryKind::Directory,
            3 => EntryKind::Symlink,
            4 => EntryKind::Other,
            _ => return None,
        };
        let dir = match first & SAME_DIR != 0 {
            true => self.dir?,
            false => ObjectId(Self::array(&mut rest)?),
        };
        let length = usize::from(u16::from_le_bytes(Self::array(&mut rest)?));
        if length > PATH_BYTES_MAX {
            return None;
        }
        let (name, after) = rest.split_at_checked(length)?;
        rest = after;
        let entry = TreeEntry {
            id: ObjectId(Self::array(&mut rest)?),
            kind,
            size: u64::from_le_bytes(Self::array(&mut rest)?),
            mtime_ns: i64::from_le_bytes(Self::array(&mut rest)?),
            ctime_ns: i64::from_le_bytes(Self::array(&mut rest)?),
            born_ns: i64::from_le_bytes(Self::array(&mut rest)?),
            mode: u16::from_le_bytes(Self::array(&mut rest)?),
            uid: u32::from_le_bytes(Self::array(&mut rest)?),
            gid: u32::from_le_bytes(Self::array(&mut rest)?),
            is_open: first & OPEN != 0,
        };
        (self.rest, self.dir) = (rest, Some(dir));
        Some(Item { dir, name, entry })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_told_from_a_later_one_with_its_number() {
        let entry = |n: u64, born_ns: i64, ctime_ns: i64, mode: u16| TreeEntry {
            id: ObjectId::of(1, n),
            kind: EntryKind::File,
            size: 0,
            mtime_ns: ctime_ns,
            ctime_ns,
            born_ns,
            mode,
            uid: 0,
            gid: 0,
            is_open: false,
        };
        let check = |old: TreeEntry, later: TreeEntry, expect: bool| {
            assert_eq!(old.is_same(&later), expect, "{old:?} {later:?}");
        };
        check(entry(1, 5, 9, 0o644), entry(1, 5, 20, 0o644), true);
        check(entry(1, 5, 9, 0o644), entry(2, 5, 20, 0o644), false);
        check(entry(1, 5, 9, 0o644), entry(1, 6, 20, 0o644), false);
        // A file system that does not know when objects were made.
        check(entry(1, 0, 9, 0o644), entry(1, 6, 20, 0o644), true);
        check(entry(1, 5, 9, 0o644), entry(1, 0, 20, 0o644), true);
        // What an event has told existed at the time of the event.
        check(entry(1, 0, 9, MODE_UNKNOWN), entry(1, 9, 20, 0o644), true);
        check(entry(1, 0, 9, MODE_UNKNOWN), entry(1, 10, 20, 0o644), false);
        check(entry(1, 0, 9, MODE_UNKNOWN), entry(1, 0, 20, 0o644), true);
    }
}

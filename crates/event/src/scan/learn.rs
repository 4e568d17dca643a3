//! What an earlier life of a collector has told since the snapshot: its recorded events are taken
//! into what is known, without a word. So a kill costs no more than what has happened meanwhile.
//!
//! An event says less than a look at the file: times and permissions are not in it. Such an entry
//! counts as changed only if its file was changed after the event.

use super::Unwatched;
use super::tree::Tree;
use super::walk::Walk;
use crate::event::{EventFlags, EventKind, FileEvent, ObjectId, name_of};
use crate::snapshot::{EntryKind, MODE_UNKNOWN, TreeEntry};

/// Takes in an event that was told and recorded before.
pub(crate) fn learn(tree: &mut Tree, event: &FileEvent) {
    tree.index_next = tree.index_next.max(event.index.saturating_add(1));
    let is_whole = !event.flags.has(EventFlags::PATH_INCOMPLETE);
    if event.path.is_empty() || !is_whole {
        return;
    }
    let (dir, name) = place_of(event.parent, &event.path);
    match event.kind {
        kind if kind.makes_name() => {
            // A directory that nobody has seen has no number. As one, it would be that in which
            // the roots are.
            if kind == EventKind::Mkdir && !event.target.is_none() {
                tree.known.clear(event.target);
                tree.place(event.target, dir, name);
            }
            tree.known
                .put(dir, name, entry_of(event, kind_of(kind), None));
        }
        EventKind::Unlink | EventKind::Rmdir => {
            if event.flags.has(EventFlags::DIRECTORY) && !event.target.is_none() {
                Walk::forget_all(tree, &mut Unwatched, event.target);
            }
            tree.known.remove(dir, name);
        }
        EventKind::Rename => renamed(tree, event, (dir, name)),
        EventKind::Write | EventKind::CloseWrite | EventKind::Truncate | EventKind::Attrib => {
            if let Some(old) = tree
                .known
                .get(dir, name)
                .filter(|old| old.id == event.target)
            {
                tree.known
                    .put(dir, name, entry_of(event, old.kind, Some(&old)));
            }
        }
        _ => {}
    }
}

fn renamed(tree: &mut Tree, event: &FileEvent, (dir, name): (ObjectId, &[u8])) {
    let is_directory = event.flags.has(EventFlags::DIRECTORY);
    let mut kind = match is_directory {
        true => EntryKind::Directory,
        false => EntryKind::File,
    };
    let mut before = None;
    if let Some((old_dir, old_name)) = find(tree, &event.old_path) {
        before = tree.known.get(old_dir, &old_name);
        kind = before.map_or(kind, |old| old.kind);
        tree.known.remove(old_dir, &old_name);
    }
    if is_directory && !event.target.is_none() {
        tree.place(event.target, dir, name);
    }
    tree.known
        .put(dir, name, entry_of(event, kind, before.as_ref()));
}

/// The directory and the name of a path, as [`Tree`] has them: a root is in no directory, and its
/// name is its path.
fn place_of(parent: ObjectId, path: &[u8]) -> (ObjectId, &[u8]) {
    match parent.is_none() {
        true => (parent, path),
        false => (parent, name_of(path)),
    }
}

/// The place of a path that was known before.
fn find(tree: &mut Tree, path: &[u8]) -> Option<(ObjectId, Box<[u8]>)> {
    let roots: Vec<(Box<[u8]>, TreeEntry)> = tree.known.names(ObjectId::NONE, None, usize::MAX).0;
    let is_below = |root: &[u8]| {
        let rest = path.strip_prefix(root)?;
        let rest = match root.last() {
            Some(b'/') => rest,
            _ => rest.strip_prefix(b"/")?,
        };
        (!rest.is_empty()).then_some(rest)
    };
    let (root, rest) = roots
        .iter()
        .find_map(|(root, entry)| Some((entry, is_below(root)?)))?;
    let mut dir = root.id;
    let mut parts = rest.split(|byte| *byte == b'/').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return Some((dir, part.into()));
        }
        dir = tree.known.get(dir, part)?.id;
    }
    None
}

fn kind_of(kind: EventKind) -> EntryKind {
    match kind {
        EventKind::Mkdir => EntryKind::Directory,
        EventKind::Symlink => EntryKind::Symlink,
        EventKind::Mknod => EntryKind::Other,
        _ => EntryKind::File,
    }
}

/// What an event tells of an entry: its times are that of the event, and more is not known.
/// `before` is what was known of it.
pub(crate) fn entry_of(
    event: &FileEvent,
    kind: EntryKind,
    before: Option<&TreeEntry>,
) -> TreeEntry {
    let mut entry = TreeEntry {
        id: event.target,
        kind,
        size: event.size.unwrap_or(0),
        mtime_ns: event.ts,
        ctime_ns: event.ts,
        born_ns: 0,
        mode: MODE_UNKNOWN,
        uid: event.uid.unwrap_or(0),
        gid: event.gid.unwrap_or(0),
        is_open: false,
    };
    entry.note(event.kind, event.flags, before);
    entry
}

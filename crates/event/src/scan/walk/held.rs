//! Objects that have moved: names that are found and names that are missed are held until the other
//! half comes, or all is read.

use super::{Action, Walk};
use crate::event::{EventFlags, ObjectId};
use crate::scan::place::Seen;
use crate::scan::tree::{Name, Tree};
use crate::snapshot::{EntryKind, TreeEntry};

impl Walk {
    /// Has a known directory told as removed if it has this number.
    pub(super) fn drop_former(&mut self, tree: &mut Tree, old: &Name, id: ObjectId) -> bool {
        let entry = tree.known.get(old.dir, &old.name);
        let Some(entry) = entry.filter(|entry| entry.is_directory() && entry.id == id) else {
            return false;
        };
        self.lost.remove(&id);
        self.actions.push_back(Action::Drop(old.clone(), entry));
        true
    }

    /// Tells that an object has moved if the old name is still that of the object.
    pub(super) fn moves(&mut self, tree: &mut Tree, old: &Name, new: &Name, seen: &Seen) -> bool {
        let Some(entry) = tree.known.get(old.dir, &old.name) else {
            return false;
        };
        let is_taken = tree.known.get(new.dir, &new.name).is_some();
        if !entry.is_same(&seen.entry) || is_taken {
            return false;
        }
        let old_path = tree.path(old.dir, &old.name);
        if seen.entry.is_directory() && !tree.place(seen.entry.id, new.dir, &new.name) {
            return false;
        }
        tree.tell_renamed(old, old_path, new, Some(entry), EventFlags::RECONCILED);
        tree.tell_differences(new.dir, &new.name, &entry, seen, EventFlags::RECONCILED);
        true
    }

    pub(super) fn hold(&mut self, tree: &mut Tree, name: Name, seen: Seen) {
        if seen.links > 1 && self.found.contains_key(&seen.entry.id) {
            tree.tell_made(name.dir, &name.name, Some(&seen), EventFlags::RECONCILED);
            return;
        }
        self.found.insert(seen.entry.id, (name, seen));
        self.bound();
    }

    pub(super) fn match_found(&mut self, tree: &mut Tree, old: &Name, entry: &TreeEntry) -> bool {
        let Some((new, seen)) = self.found.remove(&entry.id) else {
            return false;
        };
        let is_moved = self.moves(tree, old, &new, &seen);
        if !is_moved {
            self.found.insert(entry.id, (new, seen));
        }
        is_moved
    }

    /// Tells what is held if it is too much.
    pub(super) fn bound(&mut self) {
        if self.lost.len() + self.found.len() >= self.held_max {
            self.release_all();
        }
    }

    pub(super) fn release_all(&mut self) {
        for (id, name) in std::mem::take(&mut self.lost) {
            let mut entry = NOTHING;
            entry.id = id;
            self.actions.push_back(Action::Drop(name, entry));
        }
        for (_, (name, seen)) in std::mem::take(&mut self.found) {
            self.actions.push_back(Action::Made(name, seen.entry));
        }
    }
}

/// The entry of a name of which only the object is known.
const NOTHING: TreeEntry = TreeEntry {
    id: ObjectId::NONE,
    kind: EntryKind::Other,
    size: 0,
    mtime_ns: 0,
    ctime_ns: 0,
    born_ns: 0,
    mode: 0,
    uid: 0,
    gid: 0,
    is_open: false,
};

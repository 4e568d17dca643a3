//! Directories that are new in their places: what was known of them is forgotten, and they are
//! read.

use super::{Mode, Task, Walk, Watcher};
use crate::event::{EventFlags, EventKind, ObjectId, PATH_BYTES_MAX};
use crate::scan::config::Mounts;
use crate::scan::place::Seen;
use crate::scan::tree::{Name, Tree};
use crate::snapshot::EntryKind;

/// Most levels of directories: more are a circle.
const DEPTH_MAX: usize = PATH_BYTES_MAX / 2;

impl Walk {
    /// Forgets a directory and what is below it, without a word.
    pub(crate) fn forget_all(tree: &mut Tree, watcher: &mut dyn Watcher, dir: ObjectId) {
        for below in tree.table.below(dir) {
            forget(tree, watcher, below);
        }
        forget(tree, watcher, dir);
    }

    /// Takes in a directory that is new, and tells it.
    pub(crate) fn take_in(
        &mut self,
        tree: &mut Tree,
        watcher: &mut dyn Watcher,
        name: &Name,
        seen: &Seen,
        mode: Mode,
    ) {
        let id = seen.entry.id;
        if is_within(tree, name.dir, id) {
            // It was moved into a directory that was found in it before.
            self.is_unsure = true;
            return;
        }
        Self::reset(tree, watcher, id);
        tree.tell_made(name.dir, &name.name, Some(seen), mode.flags());
        self.go_below(tree, name, seen, mode.below());
    }

    /// Forgets what is known of a directory that is about to be read as a new one. If it was known
    /// in another place, a later event tells that it is gone from there. What is below it is found
    /// again, so that events of before do not count.
    fn reset(tree: &mut Tree, watcher: &mut dyn Watcher, dir: ObjectId) {
        match tree.table.has(dir) {
            true => Self::forget_all(tree, watcher, dir),
            false => tree.known.clear(dir),
        }
    }

    /// Takes in what is at a name that was told without being seen.
    pub(crate) fn complete(
        &mut self,
        tree: &mut Tree,
        watcher: &mut dyn Watcher,
        name: &Name,
        seen: &Seen,
    ) {
        if seen.entry.is_directory() && is_within(tree, name.dir, seen.entry.id) {
            self.is_unsure = true;
            return;
        }
        tree.known.put(name.dir, &name.name, seen.entry);
        if seen.entry.is_directory() {
            Self::reset(tree, watcher, seen.entry.id);
            self.go_below(tree, name, seen, Mode::Found(EventFlags::RECONCILED));
        } else if seen.entry.kind == EntryKind::File && seen.entry.size > 0 {
            let (entry, flags) = (Some(&seen.entry), EventFlags::default());
            tree.tell_changed(EventKind::Write, name.dir, &name.name, entry, flags);
        }
    }

    /// Notes where a directory is, and has it read.
    pub(super) fn go_below(&mut self, tree: &mut Tree, name: &Name, seen: &Seen, mode: Mode) {
        let id = seen.entry.id;
        if is_within(tree, name.dir, id) {
            self.is_unsure = true;
            return;
        }
        if !tree.place(id, name.dir, &name.name) {
            return;
        }
        // The device is the first half of the id.
        let is_other = seen.is_mount || id.0[..8] != name.dir.0[..8];
        if name.dir.is_none() || !is_other || self.mounts == Mounts::Cross {
            self.stack.push(Task::Directory(id, mode));
        }
    }
}

/// Whether a directory is another one, or is known to be below it.
pub(crate) fn is_within(tree: &Tree, dir: ObjectId, top: ObjectId) -> bool {
    let mut at = Some(dir);
    for _ in 0..DEPTH_MAX {
        let Some(dir) = at else {
            return false;
        };
        if dir == top {
            return true;
        }
        at = tree.table.get(dir).and_then(|(parent, _)| parent);
    }
    true
}

/// Forgets a directory.
pub(crate) fn forget(tree: &mut Tree, watcher: &mut dyn Watcher, dir: ObjectId) {
    tree.table.remove(dir);
    tree.known.clear(dir);
    watcher.forget(dir);
}

//! What each event of the kernel means for the tree.
//!
//! Events tell names, and what is there now is looked at later. So a name may be gone or belong to
//! another object already; then a later event in the queue says so, and what is told until then is
//! what the events say.

use rustix::fs::inotify::ReadFlags;
use rustix::io::Errno;

use super::moves::{Moved, Moves};
use super::queue::RawEvent;
use super::watches::Watches;
use crate::event::{EventFlags, EventKind, ObjectId};
use crate::scan::{Core, Mode, Name, Walk, Watcher, forget, is_root, is_within};
use crate::snapshot::TreeEntry;

/// Time for which the other half of a move is waited for, in ns.
const MOVE_WAIT_NS: i64 = 20_000_000;

/// Everything that an event may change.
pub(super) struct Handler<'a> {
    pub(super) core: &'a mut Core,
    pub(super) watches: &'a mut Watches,
    pub(super) moves: &'a mut Moves,
    pub(super) monotonic_ns: i64,
}

impl Handler<'_> {
    /// Tells an event of the kernel.
    pub(super) fn handle(&mut self, raw: &RawEvent) {
        if raw.mask.contains(ReadFlags::QUEUE_OVERFLOW) {
            return self.overflow();
        }
        let Some(dir) = self.watches.table.directory(raw.wd) else {
            return;
        };
        let is_of_itself = [ReadFlags::IGNORED, ReadFlags::UNMOUNT, ReadFlags::MOVE_SELF];
        if raw.name.is_empty() || is_of_itself.iter().any(|flag| raw.mask.contains(*flag)) {
            return self.of_itself(dir, raw.mask);
        }
        let name = Name::new(dir, &raw.name);
        let is_directory = raw.mask.contains(ReadFlags::ISDIR);
        if let Some(moved) = self.moves.take_name(&name) {
            self.left(moved);
        }
        let held = self
            .watches
            .fresh(dir)
            .and_then(|names| names.get(&name.name));
        if let Some(id) = held {
            self.core
                .walk
                .release(&mut self.core.tree, dir, &name.name, id);
        }
        let flags = EventFlags::DIRECTORY.when(is_directory);
        let kinds = [
            (ReadFlags::MODIFY, EventKind::Write),
            (ReadFlags::ATTRIB, EventKind::Attrib),
            (ReadFlags::CLOSE_WRITE, EventKind::CloseWrite),
            (ReadFlags::OPEN, EventKind::Open),
            (ReadFlags::CLOSE_NOWRITE, EventKind::Close),
        ];
        if raw.mask.contains(ReadFlags::CREATE) {
            self.made(&name, flags);
        } else if raw.mask.contains(ReadFlags::MOVED_TO) {
            match self.moves.take(raw.cookie) {
                Some(moved) => self.moved(moved, &name),
                None => self.made(&name, flags.with(EventFlags::BEYOND)),
            }
        } else if raw.mask.contains(ReadFlags::MOVED_FROM) {
            let moved = Moved {
                cookie: raw.cookie,
                path: self.core.tree.path(dir, &name.name),
                name,
                is_directory,
                until_ns: self.monotonic_ns.saturating_add(MOVE_WAIT_NS),
            };
            if let Some(moved) = self.moves.push(moved) {
                self.left(moved);
            }
        } else if raw.mask.contains(ReadFlags::DELETE) {
            self.removed(&name, flags);
        } else if let Some((_, kind)) = kinds.iter().find(|(flag, _)| raw.mask.contains(*flag)) {
            self.changed(*kind, &name, is_directory);
        }
    }

    /// A name was moved out of the tree.
    pub(super) fn left(&mut self, moved: Moved) {
        if !self.core.tree.table.has(moved.name.dir) {
            // Its directory was moved out too, or is told as gone.
            return;
        }
        let flags = EventFlags::BEYOND.with(EventFlags::DIRECTORY.when(moved.is_directory));
        self.removed(&moved.name, flags);
    }

    /// A name was moved from its place, and no event tells where to: it was moved out of the tree,
    /// unless a directory that was read since has it there again.
    pub(super) fn overdue(&mut self, moved: Moved) {
        let tree = &mut self.core.tree;
        let known = tree.known.get(moved.name.dir, &moved.name.name);
        let seen = tree.look(moved.name.dir, &moved.name.name).ok();
        let is_there = |known: TreeEntry| seen.is_some_and(|seen| seen.entry.is_same(&known));
        if !known.is_some_and(is_there) {
            self.left(moved);
        }
    }

    /// Looks again at names that could not be seen. Those whose directory is not where it is known
    /// stay: a move is told later.
    pub(super) fn look_again(&mut self) {
        let mut after = None;
        while let Some(name) = self.watches.next_unseen(after.take()) {
            self.watches.before_work();
            after = Some(name.clone());
            let tree = &mut self.core.tree;
            let seen = match tree.look(name.dir, &name.name) {
                Ok(seen) => seen,
                Err(error) => {
                    if !tree.table.has(name.dir) || self.is_gone(&name, error) {
                        self.watches.unseen.remove(&name);
                    }
                    continue;
                }
            };
            self.watches.unseen.remove(&name);
            let flags = EventFlags::default();
            match tree.known.get(name.dir, &name.name) {
                Some(old) if old.is_same(&seen.entry) => {
                    tree.tell_differences(name.dir, &name.name, &old, &seen, flags);
                }
                // An event that is still to come says what it is.
                Some(old) if old.is_directory() != seen.entry.is_directory() => {}
                // Another object was there for a moment, and was taken for this one.
                Some(old) if old.is_directory() => {
                    self.remove(&name, flags);
                    let (tree, mode) = (&mut self.core.tree, Mode::Found(flags));
                    self.core
                        .walk
                        .take_in(tree, self.watches, &name, &seen, mode);
                }
                _ => {
                    let tree = &mut self.core.tree;
                    self.core.walk.complete(tree, self.watches, &name, &seen);
                }
            }
        }
    }

    /// Whether a name could not be seen because it is not in its directory any more. Then a later
    /// event says so, and nothing has to be looked at again.
    fn is_gone(&mut self, name: &Name, error: Errno) -> bool {
        let tree = &mut self.core.tree;
        error == Errno::NOENT && tree.handles.get(&tree.table, name.dir).is_ok()
    }

    /// The kernel had no room for events.
    fn overflow(&mut self) {
        while let Some(moved) = self.moves.overdue(i64::MAX) {
            self.left(moved);
        }
        let mode = Mode::Compare { is_deep: true };
        let detail = "the queue of the kernel was full";
        self.core
            .walk
            .begin(&mut self.core.tree, mode, Some(detail));
    }

    /// An event of a watched directory itself. Its parent tells it also, unless it is a root.
    fn of_itself(&mut self, dir: ObjectId, mask: ReadFlags) {
        if !is_root(&self.core.tree, dir) {
            return;
        }
        if mask.contains(ReadFlags::ATTRIB) {
            let path = self
                .core
                .tree
                .table
                .get(dir)
                .map(|(_, path)| Name::new(ObjectId::NONE, path));
            if let Some(path) = path {
                self.changed(EventKind::Attrib, &path, true);
            }
            return;
        }
        if !mask.intersects(ReadFlags::IGNORED | ReadFlags::UNMOUNT | ReadFlags::MOVE_SELF) {
            return;
        }
        let path = self.core.tree.table.get(dir).map(|(_, path)| path);
        let root = self
            .core
            .walk
            .roots
            .iter()
            .position(|root| Some(&**root) == path);
        if let Some(root) = root {
            self.core.walk.check_root(root);
        }
    }

    /// A name was made, or came from outside.
    fn made(&mut self, name: &Name, flags: EventFlags) {
        let looked = self.core.tree.look(name.dir, &name.name);
        let is_directory = flags.has(EventFlags::DIRECTORY);
        let seen = looked.ok();
        let seen = seen.filter(|seen| seen.entry.is_directory() == is_directory);
        let fresh = self.watches.fresh(name.dir);
        if let Some(told) = fresh.as_ref().and_then(|names| names.get(&name.name))
            && seen.is_none_or(|seen| seen.entry.id == told)
        {
            return;
        }
        if let Some(names) = fresh {
            names.insert(
                &name.name,
                seen.map_or(ObjectId::NONE, |seen| seen.entry.id),
            );
        }
        match &seen {
            Some(seen) if is_directory => {
                let beyond = EventFlags::BEYOND.when(flags.has(EventFlags::BEYOND));
                let (tree, mode) = (&mut self.core.tree, Mode::Found(beyond));
                let watches = &mut *self.watches;
                self.core.walk.take_in(tree, watches, name, seen, mode);
            }
            _ => {
                let is_gone = looked.is_err_and(|error| self.is_gone(name, error));
                if seen.is_none() && !is_gone {
                    self.watches.unseen.insert(name.clone());
                }
                let tree = &mut self.core.tree;
                tree.tell_made(name.dir, &name.name, seen.as_ref(), flags);
            }
        }
    }

    /// A name was removed, or went outside.
    fn removed(&mut self, name: &Name, flags: EventFlags) {
        if let Some(names) = self.watches.fresh(name.dir) {
            if names.get(&name.name).is_none() {
                // It was gone when the directory was read.
                return;
            }
            names.remove(&name.name);
        }
        self.remove(name, flags);
    }

    fn remove(&mut self, name: &Name, flags: EventFlags) {
        self.watches.unseen.remove(name);
        let old = self.core.tree.known.get(name.dir, &name.name);
        while let Some(moved) = old.and_then(|old| self.moves.take_from(old.id)) {
            self.left(moved);
        }
        let tree = &mut self.core.tree;
        tree.tell_removed(name.dir, &name.name, flags);
        let Some(old) = old.filter(|old| old.is_directory()) else {
            return;
        };
        if !tree.is_at(old.id, name.dir, &name.name) {
            return;
        }
        match flags.has(EventFlags::BEYOND) {
            true => Walk::forget_all(tree, self.watches, old.id),
            false => forget(tree, self.watches, old.id),
        }
    }

    /// A name was moved within the tree.
    fn moved(&mut self, from: Moved, to: &Name) {
        let (old_path, is_directory) = (from.path, from.is_directory);
        let from = from.name;
        let flags = EventFlags::DIRECTORY.when(is_directory);
        let entry = self.core.tree.known.get(from.dir, &from.name);
        let looked = self.core.tree.look(to.dir, &to.name);
        let seen = looked.ok();
        let seen = seen.filter(|seen| seen.entry.is_directory() == is_directory);
        let id = entry
            .map(|entry| entry.id)
            .or(seen.map(|seen| seen.entry.id));
        let is_from_told = match self.watches.fresh(from.dir) {
            Some(names) => names.get(&from.name).is_some(),
            None => true,
        };
        let found = self
            .watches
            .fresh(to.dir)
            .and_then(|names| names.get(&to.name));
        if found.is_some() && found == id {
            // It was there already when its new directory was read.
            if is_from_told && from != *to {
                self.removed(&from, flags);
            }
            return;
        }
        if !is_from_told {
            return self.made(to, flags);
        }
        if let Some(names) = self.watches.fresh(from.dir) {
            names.remove(&from.name);
        }
        if let Some(names) = self.watches.fresh(to.dir) {
            names.insert(&to.name, id.unwrap_or(ObjectId::NONE));
        }
        // What is there now may be another object already.
        let now = match (entry, seen) {
            (Some(entry), Some(seen)) if !entry.is_same(&seen.entry) => Some(entry),
            (entry, seen) => seen.map(|seen| seen.entry).or(entry),
        };
        self.replace(to, id);
        self.watches.unseen.remove(&from);
        let is_seen = seen.is_some_and(|seen| Some(seen.entry.id) == id);
        match is_seen || looked.is_err_and(|error| self.is_gone(to, error)) {
            true => self.watches.unseen.remove(to),
            false => self.watches.unseen.insert(to.clone()),
        };
        if !is_directory {
            let tree = &mut self.core.tree;
            return tree.tell_renamed(&from, old_path, to, now, flags);
        }
        self.move_directory(
            &from,
            old_path,
            to,
            now.map(|now| (now.id, entry.is_some())),
            flags,
        );
        if let Some(now) = now {
            self.core.tree.known.put(to.dir, &to.name, now);
        }
    }

    /// Tells that a directory was moved. `target` is the directory, and whether it was told.
    fn move_directory(
        &mut self,
        from: &Name,
        old_path: crate::directories::PathOf,
        to: &Name,
        target: Option<(ObjectId, bool)>,
        flags: EventFlags,
    ) {
        let tree = &mut self.core.tree;
        let Some((id, is_told)) = target else {
            return tree.tell_renamed(from, old_path, to, None, flags);
        };
        if is_told && !tree.is_at(id, from.dir, &from.name) {
            // It has been found in another place already.
            tree.tell_removed(from.dir, &from.name, flags);
            return self.made(to, flags);
        }
        let entry = tree.known.get(from.dir, &from.name);
        if is_within(tree, to.dir, id) {
            // The directory into which it was moved was found in it already.
            tree.tell_removed(from.dir, &from.name, flags);
            Walk::forget_all(tree, self.watches, id);
            self.core.walk.is_unsure = true;
            return;
        }
        if !is_told {
            Walk::forget_all(tree, self.watches, id);
        }
        let is_placed = tree.place(id, to.dir, &to.name);
        tree.tell_renamed(from, old_path, to, entry, flags);
        if is_placed && (!is_told || self.watches.table.watch(id).is_none()) {
            self.core
                .walk
                .read(tree, id, Mode::Found(EventFlags::RECONCILED));
        }
    }

    /// Forgets a directory that a rename has replaced.
    fn replace(&mut self, to: &Name, by: Option<ObjectId>) {
        let tree = &mut self.core.tree;
        let old = tree.known.get(to.dir, &to.name);
        let old = old.filter(|old| old.is_directory() && Some(old.id) != by);
        if let Some(old) = old.filter(|old| tree.is_at(old.id, to.dir, &to.name)) {
            forget(tree, self.watches, old.id);
        }
    }

    /// Contents or attributes of a name were changed.
    fn changed(&mut self, kind: EventKind, name: &Name, is_directory: bool) {
        // Directories are opened by the walk itself.
        if is_directory && kind != EventKind::Attrib {
            return;
        }
        let told = self
            .watches
            .fresh(name.dir)
            .map(|names| names.get(&name.name));
        if told == Some(None) {
            return;
        }
        let tree = &mut self.core.tree;
        let flags = EventFlags::DIRECTORY.when(is_directory);
        let old = tree.known.get(name.dir, &name.name);
        let looked = tree.look(name.dir, &name.name);
        let seen = looked.ok().map(|seen| seen.entry);
        let entry = match (old, seen) {
            (Some(old), Some(mut seen)) if old.is_same(&seen) => {
                seen.note(kind, flags, Some(&old));
                tree.known.put(name.dir, &name.name, seen);
                Some(seen)
            }
            (old, _) => {
                if !looked.is_err_and(|error| self.is_gone(name, error)) {
                    self.watches.unseen.insert(name.clone());
                }
                old
            }
        };
        let tree = &mut self.core.tree;
        tree.tell_changed(kind, name.dir, &name.name, entry.as_ref(), flags);
    }
}

//! Renames of files and directories, which are told as they fit what was told before.

use crate::event::{EventFlags, EventKind, FileEvent, ObjectId};
use crate::fanotify::parse::RawPlace;
use crate::fanotify::roots::Relation;
use crate::fanotify::tell::{Teller, describe, is_inside, kind_of, removal, told_of};
use crate::fanotify::told::{NameState, Place, ToldName};
use crate::fanotify::tree::TreePath;

impl Teller {
    /// Tells a rename of the present file from the first place to the second, of which one may be
    /// unknown.
    pub(super) fn rename_file(
        &mut self,
        [old, new]: [Option<RawPlace<'_>>; 2],
        flags: EventFlags,
        out: &mut Vec<FileEvent>,
    ) {
        let target = self.target;
        let from = self.path(old).filter(is_inside);
        let to = self.path(new).filter(is_inside);
        let old_state = old.map_or(NameState::Unknown, |old| self.state(&old));
        let new_state = new.map_or(NameState::Unknown, |new| self.state(&new));
        if let (Some(_), Some(old)) = (&from, &old)
            && !old_state.may_be(target)
            && !old_state.is_looked_at()
        {
            self.told.doubt(old, target, false);
        }
        let from = from.filter(|_| old_state.may_be(target));
        if let Some(new) = new {
            self.follow(target, &new);
        }
        let mut event = FileEvent::new(EventKind::Rename, 0, self.ts);
        (event.flags, event.target) = (flags, target);
        if let Some(old) = old.filter(|_| from.is_some()) {
            let told = told_of(&event);
            let is_there = false;
            self.told.note(&old, ToldName { is_there, ..told });
        }
        match (from, to.zip(new)) {
            (from, Some((to, new))) if self.has_passed(&to, &new, new_state, false) => {
                if let (Some(from), Some(old)) = (from, old) {
                    self.tell_left(&event, from, &old, out);
                }
            }
            (Some(from), Some((to, new))) => {
                self.make_room(&new, new_state, false, out);
                if let NameState::There(told) = old_state {
                    event.size = told.size;
                }
                self.told.note(&new, told_of(&event));
                if let Some(old) = &old {
                    self.keep_move(old, &new, &event);
                }
                event.size = None;
                event.parent = new.directory;
                (event.path, event.old_path) = (to.path, from.path);
                if event.path != event.old_path {
                    self.push(event, out);
                }
            }
            (Some(from), None) => {
                event.flags = event.flags.with(EventFlags::BEYOND);
                if let Some(old) = &old {
                    self.tell_left(&event, from, old, out);
                }
            }
            (None, Some((to, new))) => {
                self.make_room(&new, new_state, true, out);
                event.flags = event.flags.with(EventFlags::BEYOND);
                event.parent = new.directory;
                self.tell_arrived(event, to.path, &new, out);
            }
            (None, None) => {}
        }
    }

    /// Tells a rename of the present directory.
    pub(super) fn rename_directory(
        &mut self,
        [old, new]: [Option<RawPlace<'_>>; 2],
        flags: EventFlags,
        out: &mut Vec<FileEvent>,
    ) {
        let target = self.target;
        let from = self.path(old);
        let to = self.path(new);
        let mut source = from.zip(old.as_ref().map(Place::of));
        // A directory was told where the table has it.
        if let Some(known) = self.tree.place(target)
            && source.as_ref().is_none_or(|(_, old)| *old != known)
            && let Some(path) = self.path(Some(known.as_raw()))
            && path.relation != Relation::Beside
        {
            let state = self.state(&known.as_raw());
            if let Some((_, old)) = source.as_ref().filter(|(path, _)| is_inside(path)) {
                self.told.doubt(&old.as_raw(), target, true);
            }
            if let Some(new) = new.filter(|_| to.as_ref().is_some_and(is_inside)) {
                self.told.doubt(&new, target, true);
            }
            if state.is(target) && state.is_looked_at() {
                // A look has told it where later events will bring it.
                return;
            }
            self.told.doubt(&known.as_raw(), target, true);
            source = Some((path, known));
        }
        let relation = |path: Option<&TreePath>| path.map_or(Relation::Beside, |p| p.relation);
        let after = relation(to.as_ref());
        if let (Some(to), Some(new)) = (&to, new)
            && after == Relation::Inside
        {
            let state = self.state(&new);
            let is_same = source.as_ref().is_some_and(|(_, old)| old.as_raw() == new);
            if is_same || (!state.is(target) && self.has_passed(to, &new, state, true)) {
                return;
            }
            self.make_room(&new, state, false, out);
        }
        let is_told = match &source {
            Some((path, old)) if is_inside(path) => self.state(&old.as_raw()).may_be(target),
            Some((path, _)) => path.relation == Relation::Above,
            None => false,
        };
        self.move_directory(source.filter(|_| is_told), to.zip(new), flags, out);
    }

    /// Moves the present directory in the table, and tells it.
    fn move_directory(
        &mut self,
        source: Option<(TreePath, Place)>,
        goal: Option<(TreePath, RawPlace<'_>)>,
        flags: EventFlags,
        out: &mut Vec<FileEvent>,
    ) {
        let target = self.target;
        let before = source
            .as_ref()
            .map_or(Relation::Beside, |(p, _)| p.relation);
        let goal = goal.filter(|(path, _)| path.relation != Relation::Beside);
        let after = goal.as_ref().map_or(Relation::Beside, |(p, _)| p.relation);
        let is_in_itself = match (&source, &goal) {
            (Some((from, _)), Some((to, _))) => is_below(&to.path, &from.path),
            _ => false,
        };
        if let (true, Some((_, new))) = (is_in_itself, &goal) {
            // What was told of its new place is not what holds.
            self.told.doubt(new, target, true);
        }
        let goal = goal.filter(|_| !is_in_itself);
        let stays = before == Relation::Inside && after == Relation::Inside;
        match &goal {
            Some((_, new)) if stays && self.tree.has_path(target) => self.tree.insert(target, new),
            Some((_, new)) => self.take_in(target, new),
            None => self.tree.move_out(target),
        }
        let mut event = FileEvent::new(EventKind::Rename, 0, self.ts);
        (event.flags, event.target) = (flags, target);
        if let Some((_, old)) = source.as_ref().filter(|_| before == Relation::Inside) {
            let (told, is_there) = (told_of(&event), false);
            self.told.note(&old.as_raw(), ToldName { is_there, ..told });
        }
        match (source, goal) {
            (Some((from, old)), Some((to, new))) if stays => {
                self.told.note(&new, told_of(&event));
                self.keep_move(&old.as_raw(), &new, &event);
                event.parent = new.directory;
                (event.path, event.old_path) = (to.path, from.path);
                self.push(event, out);
            }
            (source, goal) => {
                event.flags = event.flags.with(EventFlags::BEYOND);
                if let Some((from, old)) = source {
                    self.tell_left(&event, from, &old.as_raw(), out);
                }
                if let Some((to, new)) = goal.filter(|_| after == Relation::Inside) {
                    event.parent = new.directory;
                    self.tell_arrived(event, to.path, &new, out);
                }
            }
        }
    }

    /// Takes in that a directory is at a place, and has all in it told as new.
    pub(super) fn take_in(&mut self, directory: ObjectId, place: &RawPlace<'_>) {
        self.tree.forget_tree(directory);
        self.drop_forgotten();
        self.told.begin(directory);
        self.keep_empty(directory);
        self.tree.insert(directory, place);
        self.tree.walk(directory, true);
    }

    /// Whether a look at a name has told what came after the present object, or the object itself.
    fn has_passed(
        &mut self,
        to: &TreePath,
        place: &RawPlace<'_>,
        state: NameState,
        is_directory: bool,
    ) -> bool {
        if state.is(self.target) {
            if !state.is_looked_at() {
                self.told.doubt(place, self.target, is_directory);
            }
            return true;
        }
        let is_seen = state.is_looked_at() && matches!(state, NameState::There(_));
        if !is_seen || self.tree.is_at(&to.path, self.target) {
            return false;
        }
        self.told.doubt(place, self.target, is_directory);
        true
    }

    /// Tells that something has left what is watched.
    pub(super) fn tell_left(
        &mut self,
        event: &FileEvent,
        from: TreePath,
        old: &RawPlace<'_>,
        out: &mut Vec<FileEvent>,
    ) {
        let is_directory = event.flags.has(EventFlags::DIRECTORY);
        self.keep_gone(old, event.target, event.flags);
        let paths = match from.relation {
            Relation::Inside => vec![from.path],
            Relation::Above if is_directory => self.tree.roots_within(&from.path),
            Relation::Above | Relation::Beside => Vec::new(),
        };
        for path in paths {
            let told = FileEvent {
                kind: removal(is_directory),
                parent: old.directory,
                path,
                ..event.clone()
            };
            self.push(told, out);
        }
    }

    /// Tells that something has come from where nothing is watched.
    pub(super) fn tell_arrived(
        &mut self,
        event: FileEvent,
        path: Vec<u8>,
        place: &RawPlace<'_>,
        out: &mut Vec<FileEvent>,
    ) {
        let is_directory = event.flags.has(EventFlags::DIRECTORY);
        let stat = self.looks_at_files.then(|| self.stat(&path, is_directory));
        let stat = stat.flatten();
        let mut event = FileEvent { path, ..event };
        event.kind = match is_directory {
            true => EventKind::Mkdir,
            false => stat.as_ref().map_or(EventKind::Create, kind_of),
        };
        if self.looks_at_files && stat.is_none() && !is_directory {
            self.look_later(place);
        }
        describe(&mut event, stat.as_ref());
        self.told.note(place, told_of(&event));
        self.keep(place, &event, stat.as_ref());
        self.push(event, out);
    }
}

/// Whether a path is below another one.
pub(super) fn is_below(path: &[u8], top: &[u8]) -> bool {
    path.strip_prefix(top)
        .is_some_and(|rest| rest.first() == Some(&b'/'))
}

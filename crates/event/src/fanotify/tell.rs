//! What the kernel tells, as file events with paths.

use std::collections::BTreeMap;

use rustix::fs::{FileType, Stat};

use crate::event::{EventFlags, EventKind, FileEvent, ObjectId, name_of};
use crate::fanotify::FanotifyConfig;
use crate::fanotify::parse::{RawEvent, RawPlace, mask};
use crate::fanotify::roots::Relation;
use crate::fanotify::told::{LateFile, NameState, Told, ToldName};
use crate::fanotify::tree::{FoundEntry, Tree, TreePath};
use crate::scan::Core;

/// Most removed directories that are told as removed later.
const DYING_MAX: usize = 4_096;

/// Events that have a kind and need nothing else, in the order in which merged ones are told.
const PLAIN: [(u64, EventKind); 5] = [
    (mask::OPEN, EventKind::Open),
    (mask::MODIFY, EventKind::Write),
    (mask::ATTRIB, EventKind::Attrib),
    (mask::CLOSE_WRITE, EventKind::CloseWrite),
    (mask::CLOSE_NOWRITE, EventKind::Close),
];
/// Events for which a file is looked at.
const LOOKED_AT: u64 = mask::CREATE | mask::ATTRIB | mask::CLOSE_WRITE;

/// A maker of file events.
pub(super) struct Teller {
    pub(super) tree: Tree,
    /// What was told of the tree, if it is kept.
    pub(super) core: Option<Core>,
    /// Whether the tree is compared with all that was told of it.
    pub(super) compares: bool,
    pub(super) told: Told,
    /// Directories whose removal was merged into an earlier event. What happened in them and out of
    /// them is still to be read, so that they are removed when something else is made in their
    /// place, or when the queue is empty.
    dying: BTreeMap<ObjectId, Dying>,
    /// Files that could not be looked at where they had been, since they were moved meanwhile.
    pub(super) late: BTreeMap<ObjectId, LateFile>,
    pub(super) index_next: u64,
    pub(super) looks_at_files: bool,
    ignored_pids: Vec<i32>,
    /// Time of the events, and the process of those of the present raw event.
    pub(super) ts: i64,
    pub(super) pid: i32,
    /// The object of the present raw event, and the low half of its inode number.
    pub(super) target: ObjectId,
    pub(super) inode: Option<u32>,
    is_muted: bool,
    /// Time of the monotonic clock before which doubtful names cannot be looked at.
    pub(super) retry_ns: i64,
    pub(super) events: u64,
    pub(super) unresolved: u64,
    pub(super) senseless: u64,
    pub(super) reconciled: u64,
}

/// The removal of a directory that is told later.
#[derive(Default)]
struct Dying {
    /// The event that it was merged into, if it is to be told.
    event: Option<FileEvent>,
    pid: i32,
}

impl Teller {
    pub(super) fn new(tree: Tree, core: Option<Core>, config: &FanotifyConfig) -> Self {
        Self {
            tree,
            compares: core.as_ref().is_some_and(Core::is_known),
            core,
            told: Told::default(),
            dying: BTreeMap::new(),
            late: BTreeMap::new(),
            index_next: config.index_next,
            looks_at_files: config.looks_at_files,
            ignored_pids: config.ignored_pids.clone(),
            ts: 0,
            pid: 0,
            target: ObjectId::NONE,
            inode: None,
            is_muted: false,
            retry_ns: 0,
            events: 0,
            unresolved: 0,
            senseless: 0,
            reconciled: 0,
        }
    }

    /// Gives an event its number, and appends it.
    pub(super) fn push(&mut self, mut event: FileEvent, out: &mut Vec<FileEvent>) {
        if self.is_muted {
            return;
        }
        event.index = self.index_next;
        self.index_next += 1;
        self.events += 1;
        if event.flags.has(EventFlags::RECONCILED) {
            self.reconciled += 1;
        }
        if self.pid != 0 {
            event.detail = format!("pid={}", self.pid).into();
        }
        out.push(event);
    }

    /// Appends an event that is of no process.
    pub(super) fn push_own(&mut self, event: FileEvent, out: &mut Vec<FileEvent>) {
        self.set_pid(0);
        self.push(event, out);
    }

    /// Sets the process of the events that follow.
    pub(super) fn set_pid(&mut self, pid: i32) {
        self.pid = pid;
        self.is_muted = pid != 0 && self.ignored_pids.contains(&pid);
    }

    /// Forgets everything about the events so far, of which some were lost.
    pub(super) fn begin_anew(&mut self, out: &mut Vec<FileEvent>) {
        self.bury_all(out);
        self.told.clear();
        self.late.clear();
        if self.core.is_none() {
            // Without comparing, what is there now is all that is known.
            self.tree.learn_anew();
        }
    }

    /// Appends what a walk has found in directories that have moved in.
    pub(super) fn tell_found(&mut self, found: Vec<FoundEntry>, out: &mut Vec<FileEvent>) {
        self.drop_forgotten();
        for entry in found {
            self.set_pid(0);
            let place = RawPlace {
                directory: entry.parent,
                name: name_of(&entry.path),
            };
            let state = self.state(&place);
            let is_same = entry.target.is_none() && matches!(state, NameState::There(_));
            if state.is(entry.target) || is_same {
                continue;
            }
            self.make_room(&place, state, true, out);
            let mut event = FileEvent::new(kind_of(&entry.stat), 0, self.ts);
            let is_directory = event.kind == EventKind::Mkdir;
            if is_directory {
                self.told.begin(entry.target);
                self.keep_empty(entry.target);
            }
            event.flags = EventFlags::BEYOND.with(EventFlags::DIRECTORY.when(is_directory));
            (event.parent, event.target) = (entry.parent, entry.target);
            describe(&mut event, Some(&entry.stat));
            let told = ToldName {
                is_looked_at: true,
                ..told_of(&event)
            };
            self.told.note(&place, told);
            self.keep(&place, &event, Some(&entry.stat));
            event.path = entry.path;
            self.push(event, out);
        }
    }

    /// Appends the file events of an event of the kernel.
    pub(super) fn tell(&mut self, raw: &RawEvent<'_>, out: &mut Vec<FileEvent>) {
        self.release(raw, out);
        self.set_pid(raw.pid);
        self.target = raw.target.unwrap_or_default();
        self.inode = self.tree.inode(raw.handle);
        let kinds = raw.mask & !mask::ONDIR;
        let flags = EventFlags::DIRECTORY
            .when(raw.has(mask::ONDIR))
            .with(EventFlags::MERGED.when(kinds.count_ones() > 1));
        match (raw.old, raw.new, raw.place, raw.target) {
            (None, None, None, Some(target)) => self.told.note_change(target),
            (None, None, Some(place), _) => self.tell_in_place(raw, &place, flags, out),
            (Some(_), _, _, _) | (_, Some(_), _, _) => {
                match flags.has(EventFlags::DIRECTORY) {
                    true => self.rename_directory([raw.old, raw.new], flags, out),
                    false => self.rename_file([raw.old, raw.new], flags, out),
                }
                self.drop_forgotten();
            }
            (None, None, None, None) => self.senseless += 1,
        }
    }

    fn tell_in_place(
        &mut self,
        raw: &RawEvent<'_>,
        place: &RawPlace<'_>,
        flags: EventFlags,
        out: &mut Vec<FileEvent>,
    ) {
        let is_directory = flags.has(EventFlags::DIRECTORY);
        let found = self.path(Some(*place));
        if found.is_none() && self.tree.is_hidden(place.directory) {
            self.tell_hidden(raw, place, flags, out);
        }
        let relation = found.as_ref().map(|found| found.relation);
        let is_directory_made = is_directory && raw.has(mask::CREATE) && !self.target.is_none();
        if is_directory_made && matches!(relation, Some(Relation::Inside | Relation::Above)) {
            if self.is_seen_elsewhere(place) {
                self.told.doubt(place, self.target, true);
            } else {
                self.tree.insert(self.target, place);
                self.drop_forgotten();
            }
        }
        if let Some(TreePath { path, .. }) = found.filter(is_inside) {
            self.tell_inside(raw, place, flags, path, out);
        } else if is_directory && raw.has(mask::DELETE) {
            self.dying.entry(self.target).or_default();
        }
        if self.dying.len() >= DYING_MAX {
            self.bury_all(out);
        }
    }

    /// Tells what has happened to a name in a directory that this process could not read, so that
    /// its path is not known. Nothing is kept of it.
    fn tell_hidden(
        &mut self,
        raw: &RawEvent<'_>,
        place: &RawPlace<'_>,
        flags: EventFlags,
        out: &mut Vec<FileEvent>,
    ) {
        let is_directory = flags.has(EventFlags::DIRECTORY);
        let made = match is_directory {
            true => EventKind::Mkdir,
            false => EventKind::Create,
        };
        let kinds = [(mask::CREATE, made)].into_iter().chain(PLAIN);
        for (bit, kind) in kinds.chain([(mask::DELETE, removal(is_directory))]) {
            if raw.has(bit) {
                let mut event = FileEvent::new(kind, 0, self.ts);
                event.flags = flags.with(EventFlags::PATH_INCOMPLETE);
                (event.target, event.parent) = (self.target, place.directory);
                if !is_itself(place) {
                    event.path = place.name.to_vec();
                }
                self.push(event, out);
            }
        }
    }

    /// Tells what has happened to a name below a root.
    fn tell_inside(
        &mut self,
        raw: &RawEvent<'_>,
        place: &RawPlace<'_>,
        flags: EventFlags,
        path: Vec<u8>,
        out: &mut Vec<FileEvent>,
    ) {
        let is_directory = flags.has(EventFlags::DIRECTORY);
        let looks = self.looks_at_files && raw.has(LOOKED_AT);
        let stat = looks.then(|| self.stat(&path, is_directory)).flatten();
        // One that was made and deleted has no other place; one that was only deleted may have.
        let is_brief = raw.has(mask::CREATE) && raw.has(mask::DELETE);
        if looks && stat.is_none() && !is_directory && !is_brief {
            self.look_later(place);
        }
        let is_deleted_first = is_brief && !is_directory && self.tree.is_at(&path, self.target);
        let mut event = FileEvent::new(EventKind::Create, 0, self.ts);
        (event.flags, event.target, event.path) = (flags, self.target, path);
        event.parent = match is_itself(place) {
            true => self.tree.parent(place.directory).unwrap_or_default(),
            false => place.directory,
        };
        describe(&mut event, stat.as_ref());
        if is_deleted_first {
            self.tell_delete(&event, place, out);
        }
        if raw.has(mask::CREATE) {
            self.tell_create(&event, place, stat.as_ref(), out);
        }
        self.tell_plain(raw, &event, place, stat.as_ref(), out);
        if raw.has(mask::DELETE) && is_directory && flags.has(EventFlags::MERGED) {
            let (event, pid) = (Some(event), self.pid);
            self.dying.insert(self.target, Dying { event, pid });
        } else if raw.has(mask::DELETE) && !is_deleted_first {
            self.tell_delete(&event, place, out);
            if is_directory {
                self.tree.remove(self.target);
                self.told.forget(self.target);
            }
        }
    }

    /// Tells the changes of an object that is at a name.
    fn tell_plain(
        &mut self,
        raw: &RawEvent<'_>,
        event: &FileEvent,
        place: &RawPlace<'_>,
        stat: Option<&Stat>,
        out: &mut Vec<FileEvent>,
    ) {
        let kinds = PLAIN.iter().filter(|(bit, _)| raw.has(*bit));
        let kinds = kinds.map(|(_, kind)| *kind);
        let Some(kind) = kinds.clone().next_back() else {
            return;
        };
        let state = self.state(place);
        if !state.may_be(event.target) {
            if state.is_looked_at() {
                // It had gone when the name was looked at.
                return;
            }
            let is_directory = event.flags.has(EventFlags::DIRECTORY);
            self.told.doubt(place, event.target, is_directory);
        } else if stat.is_some() && !is_itself(place) {
            let event = event.clone();
            self.keep(place, &FileEvent { kind, ..event }, stat);
        }
        self.told.note_size(place, event.size);
        for kind in kinds {
            let event = event.clone();
            self.push(FileEvent { kind, ..event }, out);
        }
    }

    pub(super) fn tell_create(
        &mut self,
        event: &FileEvent,
        place: &RawPlace<'_>,
        stat: Option<&Stat>,
        out: &mut Vec<FileEvent>,
    ) {
        let is_directory = event.flags.has(EventFlags::DIRECTORY);
        let state = self.state(place);
        if state.is_looked_at() && matches!(state, NameState::There(_)) {
            // A look has told what came later.
            if !state.is(event.target) {
                self.told.doubt(place, event.target, is_directory);
            }
            return;
        }
        if state.is(event.target) {
            return self.told.doubt(place, event.target, is_directory);
        }
        if is_directory && self.is_seen_elsewhere(place) {
            return;
        }
        self.make_room(place, state, true, out);
        let kind = match is_directory {
            true => EventKind::Mkdir,
            false => stat.map_or(EventKind::Create, kind_of),
        };
        self.told.note(place, told_of(event));
        let event = FileEvent {
            kind,
            ..event.clone()
        };
        if is_directory {
            self.keep_empty(event.target);
        }
        self.keep(place, &event, stat);
        self.push(event, out);
    }

    pub(super) fn tell_delete(
        &mut self,
        event: &FileEvent,
        place: &RawPlace<'_>,
        out: &mut Vec<FileEvent>,
    ) {
        let is_directory = event.flags.has(EventFlags::DIRECTORY);
        let state = self.state(place);
        if !state.may_be(event.target) {
            if !state.is_looked_at() {
                self.told.doubt(place, event.target, is_directory);
            }
            return;
        }
        let told = ToldName {
            is_there: false,
            ..told_of(event)
        };
        self.told.note(place, told);
        self.keep_gone(place, event.target, event.flags);
        let event = FileEvent {
            kind: removal(is_directory),
            flags: event.flags.with(EventFlags::LAST_LINK.when(is_directory)),
            size: None,
            ..event.clone()
        };
        self.push(event, out);
    }

    /// Whether a look has told the directory of the present event at another place: the event is
    /// older than the look, and later ones bring the directory there.
    fn is_seen_elsewhere(&self, place: &RawPlace<'_>) -> bool {
        let Some(known) = self.tree.place(self.target) else {
            return false;
        };
        let state = self.told.state(&known.as_raw());
        known.as_raw() != *place && state.is(self.target) && state.is_looked_at()
    }

    /// Has a directory removed that was told at a name where something else comes.
    pub(super) fn make_room(
        &mut self,
        place: &RawPlace<'_>,
        state: NameState,
        tells: bool,
        out: &mut Vec<FileEvent>,
    ) {
        let NameState::There(told) = state else {
            return;
        };
        if !told.is_directory || told.object.is_none() || told.object == self.target {
            return;
        }
        if let Some(dying) = self.dying.remove(&told.object) {
            return self.bury(told.object, dying, out);
        }
        // It was replaced, or has gone elsewhere.
        self.told.doubt(place, told.object, true);
        if tells && let Some(found) = self.path(Some(*place)).filter(is_inside) {
            let mut event = FileEvent::new(EventKind::Rmdir, 0, self.ts);
            event.flags = EventFlags::DIRECTORY.with(EventFlags::RECONCILED);
            (event.target, event.path) = (told.object, found.path);
            event.parent = place.directory;
            self.push(event, out);
        }
        self.keep_gone(place, told.object, EventFlags::DIRECTORY);
        self.tree.move_out(told.object);
        self.drop_forgotten();
    }

    /// Tells that a directory was removed, and before it those in it.
    fn bury(&mut self, directory: ObjectId, dying: Dying, out: &mut Vec<FileEvent>) {
        let below = self.dying.keys().copied();
        let below = below.filter(|below| self.tree.parent(*below) == Some(directory));
        for below in below.collect::<Vec<_>>() {
            if let Some(dying) = self.dying.remove(&below) {
                self.bury(below, dying, out);
            }
        }
        self.bury_one(directory, dying, out);
    }

    fn bury_one(&mut self, directory: ObjectId, dying: Dying, out: &mut Vec<FileEvent>) {
        if let (Some(place), Some(mut event)) = (self.tree.place(directory), dying.event)
            && let Some(found) = self.path(Some(place.as_raw())).filter(is_inside)
        {
            let pid = self.pid;
            self.set_pid(dying.pid);
            (event.path, event.parent, event.ts) = (found.path, place.directory, self.ts);
            self.tell_delete(&event, &place.as_raw(), out);
            self.set_pid(pid);
        }
        self.tree.remove(directory);
        self.told.forget(directory);
    }

    /// Tells that all directories were removed of which it was put off.
    pub(super) fn bury_all(&mut self, out: &mut Vec<FileEvent>) {
        let dying = std::mem::take(&mut self.dying).into_iter();
        let mut dying: Vec<_> = dying
            .map(|(directory, dying)| (self.tree.path_bytes(directory), directory, dying))
            .collect();
        // Those in others first.
        dying.sort_by_key(|(bytes, ..)| std::cmp::Reverse(*bytes));
        for (_, directory, dying) in dying {
            self.bury_one(directory, dying, out);
        }
    }

    /// Takes in which directories the tree has forgotten.
    pub(super) fn drop_forgotten(&mut self) {
        for directory in self.tree.take_forgotten() {
            self.told.forget(directory);
            self.keep_empty(directory);
        }
    }

    /// The path of a place, if it is known.
    pub(super) fn path(&mut self, place: Option<RawPlace<'_>>) -> Option<TreePath> {
        let place = place?;
        let path = match self.tree.has(place.directory) {
            true => self.tree.path(&place),
            false => None,
        };
        if path.is_none() && self.tree.is_partial() {
            self.unresolved += 1;
        }
        path
    }

    /// The attributes of the object of the present raw event, if it is still at this path.
    pub(super) fn stat(&self, path: &[u8], is_directory: bool) -> Option<Stat> {
        let is_it = |stat: &Stat| {
            let is_such =
                (FileType::from_raw_mode(stat.st_mode) == FileType::Directory) == is_directory;
            is_such
                && match self.inode {
                    Some(inode) => inode == stat.st_ino as u32,
                    None => self.tree.is_at(path, self.target),
                }
        };
        self.tree.stat(path).filter(is_it)
    }
}

/// Whether a place is the directory itself.
fn is_itself(place: &RawPlace<'_>) -> bool {
    place.name.is_empty() || place.name == b"."
}

pub(super) fn is_inside(path: &TreePath) -> bool {
    path.relation == Relation::Inside
}

pub(super) fn removal(is_directory: bool) -> EventKind {
    match is_directory {
        true => EventKind::Rmdir,
        false => EventKind::Unlink,
    }
}

/// What an event tells of its name, if it makes it.
pub(super) fn told_of(event: &FileEvent) -> ToldName {
    ToldName {
        object: event.target,
        is_there: true,
        is_directory: event.flags.has(EventFlags::DIRECTORY),
        size: event.size,
        is_looked_at: false,
        misses: 0,
    }
}

/// Takes size and owner into an event.
pub(super) fn describe(event: &mut FileEvent, stat: Option<&Stat>) {
    let Some(stat) = stat else {
        return;
    };
    (event.uid, event.gid) = (Some(stat.st_uid), Some(stat.st_gid));
    if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
        event.size = u64::try_from(stat.st_size).ok();
    }
}

/// The kind of the event that tells a new object with these attributes.
pub(super) fn kind_of(stat: &Stat) -> EventKind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => EventKind::Mkdir,
        FileType::Symlink => EventKind::Symlink,
        FileType::RegularFile if stat.st_nlink > 1 => EventKind::Link,
        FileType::RegularFile => EventKind::Create,
        _ => EventKind::Mknod,
    }
}

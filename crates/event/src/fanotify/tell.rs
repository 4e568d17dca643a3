//! What the kernel tells, as file events with paths.

use std::collections::{HashSet, VecDeque};

use rustix::fs::{FileType, Stat};

use crate::event::{EventFlags, EventKind, FileEvent, ObjectId, name_of};
use crate::fanotify::FanotifyConfig;
use crate::fanotify::parse::{RawEvent, RawPlace, mask};
use crate::fanotify::roots::Relation;
use crate::fanotify::run::{Run, RunObject};
use crate::fanotify::tree::{FoundEntry, PlaceState, Tree, TreePath, kind_of};

/// Most removed directories whose paths are still known, for events that were merged into earlier
/// ones.
const DYING_MAX: usize = 4_096;
/// Most names that a walk has told and that the events of the time of the walk may tell again.
const TOLD_MAX: usize = 100_000;
/// Most files that are looked at later, when the queue is empty.
const LATE_MAX: usize = 4_096;

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
    run: Run,
    dying: VecDeque<ObjectId>,
    /// Names that walks have told since the queue was last empty, and the directories of them.
    told: HashSet<(ObjectId, Box<[u8]>)>,
    told_directories: HashSet<ObjectId>,
    /// Files that could not be looked at where they had been, since they were moved meanwhile.
    late: Vec<LateFile>,
    index_next: u64,
    looks_at_files: bool,
    ignored_pids: Vec<i32>,
    /// Time of the events, and the process of those of the present raw event.
    pub(super) ts: i64,
    pid: i32,
    /// The object of the present raw event, and the low half of its inode number.
    target: ObjectId,
    inode: Option<u32>,
    is_muted: bool,
    pub(super) events: u64,
    pub(super) unresolved: u64,
    pub(super) senseless: u64,
    pub(super) reconciled: u64,
}

/// A file that is to be looked at when the queue is empty.
struct LateFile {
    target: ObjectId,
    directory: ObjectId,
    name: Box<[u8]>,
}

impl Teller {
    pub(super) fn new(tree: Tree, config: &FanotifyConfig) -> Self {
        Self {
            tree,
            run: Run::default(),
            dying: VecDeque::new(),
            told: HashSet::new(),
            told_directories: HashSet::new(),
            late: Vec::new(),
            index_next: config.index_next,
            looks_at_files: config.looks_at_files,
            ignored_pids: config.ignored_pids.clone(),
            ts: 0,
            pid: 0,
            target: ObjectId::NONE,
            inode: None,
            is_muted: false,
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
        (self.pid, self.is_muted) = (0, false);
        self.push(event, out);
    }

    /// Forgets everything about the events so far, of which some were lost.
    pub(super) fn begin_anew(&mut self) {
        self.run.end();
        self.dying.clear();
        self.told.clear();
        self.told_directories.clear();
        self.late.clear();
        self.tree.learn_anew();
    }

    /// Appends what a walk has found in directories that have moved in.
    pub(super) fn tell_found(&mut self, found: Vec<FoundEntry>, out: &mut Vec<FileEvent>) {
        for entry in found {
            let told = (entry.parent, Box::from(name_of(&entry.path)));
            if self.told.contains(&told) {
                continue;
            }
            if self.told.len() < TOLD_MAX {
                self.told.insert(told);
            }
            let mut event = FileEvent::new(kind_of(&entry.stat), 0, self.ts);
            let is_directory = event.kind == EventKind::Mkdir;
            if is_directory && self.told_directories.len() < TOLD_MAX {
                self.told_directories.insert(entry.target);
            }
            event.flags = EventFlags::BEYOND.with(EventFlags::DIRECTORY.when(is_directory));
            (event.parent, event.path, event.target) = (entry.parent, entry.path, entry.target);
            describe(&mut event, Some(&entry.stat));
            self.push_own(event, out);
        }
    }

    /// Appends the file events of an event of the kernel.
    pub(super) fn tell(&mut self, raw: &RawEvent<'_>, out: &mut Vec<FileEvent>) {
        self.pid = raw.pid;
        self.is_muted = raw.pid != 0 && self.ignored_pids.contains(&raw.pid);
        self.target = raw.target.unwrap_or_default();
        self.inode = self.tree.inode(raw.handle);
        let kinds = raw.mask & !mask::ONDIR;
        let flags = EventFlags::DIRECTORY
            .when(raw.has(mask::ONDIR))
            .with(EventFlags::MERGED.when(kinds.count_ones() > 1));
        match (raw.old, raw.new, raw.place, raw.target) {
            (None, None, None, Some(target)) => self.run.note_change(target),
            (None, None, Some(place), _) => self.tell_in_place(raw, &place, flags, out),
            (Some(_), _, _, _) | (_, Some(_), _, _) => {
                self.rename(raw.target, [raw.old, raw.new], flags, out);
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
        if is_directory && raw.has(mask::DELETE) {
            self.dying.extend(raw.target);
        }
        let Some(TreePath { path, relation }) = self.path(Some(*place)) else {
            return;
        };
        let is_inside = relation == Relation::Inside;
        let mut told_at = None;
        if is_directory
            && raw.has(mask::CREATE)
            && relation != Relation::Beside
            && let Some(target) = raw.target
        {
            told_at = self.told_directory(target, place);
            self.tree.insert(target, place);
        }
        if !is_inside {
            return;
        }
        let looks = self.looks_at_files && raw.has(LOOKED_AT);
        let stat = looks.then(|| self.stat(&path, is_directory)).flatten();
        // One that was made and deleted has no other place; one that was only deleted may have.
        let is_brief = raw.has(mask::CREATE) && raw.has(mask::DELETE);
        if looks && stat.is_none() && !is_directory && !is_brief {
            self.look_later(place);
        }
        let mut event = FileEvent::new(EventKind::Create, 0, self.ts);
        event.flags = flags;
        event.target = raw.target.unwrap_or_default();
        let is_itself = place.name.is_empty() || place.name == b".";
        event.parent = match is_itself {
            true => self.tree.parent(place.directory).unwrap_or_default(),
            false => place.directory,
        };
        event.path = path;
        describe(&mut event, stat.as_ref());
        let is_deleted_first = raw.has(mask::CREATE) && raw.has(mask::DELETE) && {
            let target = event.target;
            self.tree.state(place, target) == PlaceState::Same
        };
        if is_deleted_first {
            self.tell_delete(&event, place, out);
        }
        if let Some(old_path) = told_at {
            let moved = FileEvent {
                kind: EventKind::Rename,
                flags: flags.with(EventFlags::RECONCILED),
                old_path,
                ..event.clone()
            };
            self.push(moved, out);
        } else if raw.has(mask::CREATE) {
            self.tell_create(&event, place, stat.as_ref(), out);
        }
        for (bit, kind) in PLAIN {
            if raw.has(bit) {
                let told = FileEvent {
                    kind,
                    ..event.clone()
                };
                self.push(told, out);
            }
        }
        if raw.has(mask::DELETE) && !is_deleted_first {
            self.tell_delete(&event, place, out);
        }
    }

    fn tell_create(
        &mut self,
        event: &FileEvent,
        place: &RawPlace<'_>,
        stat: Option<&Stat>,
        out: &mut Vec<FileEvent>,
    ) {
        let is_directory = event.flags.has(EventFlags::DIRECTORY);
        self.run.note(event.target, place, is_directory, true);
        if self.is_told(place) {
            return;
        }
        let kind = match is_directory {
            true => EventKind::Mkdir,
            false => stat.map_or(EventKind::Create, kind_of),
        };
        let told = FileEvent {
            kind,
            ..event.clone()
        };
        self.push(told, out);
    }

    fn tell_delete(&mut self, event: &FileEvent, place: &RawPlace<'_>, out: &mut Vec<FileEvent>) {
        let is_directory = event.flags.has(EventFlags::DIRECTORY);
        self.run.note(event.target, place, is_directory, false);
        self.untell(place);
        let told = FileEvent {
            kind: removal(is_directory),
            flags: event.flags.with(EventFlags::LAST_LINK.when(is_directory)),
            size: None,
            ..event.clone()
        };
        self.push(told, out);
    }

    /// Tells a rename from the first place to the second, of which one may be unknown.
    fn rename(
        &mut self,
        target: Option<ObjectId>,
        places: [Option<RawPlace<'_>>; 2],
        flags: EventFlags,
        out: &mut Vec<FileEvent>,
    ) {
        let is_directory = flags.has(EventFlags::DIRECTORY);
        let [mut from, to] = places.map(|place| self.path(place));
        if let (true, Some(target)) = (is_directory, target) {
            let old = places[0].unwrap_or(RawPlace {
                directory: ObjectId::NONE,
                name: b"",
            });
            if let Some(path) = self.told_directory(target, &old) {
                let relation = Relation::Inside;
                from = Some(TreePath { path, relation });
            }
        }
        let [before, after] =
            [&from, &to].map(|path| path.as_ref().map_or(Relation::Beside, |path| path.relation));
        let stays = before == Relation::Inside && after == Relation::Inside;
        if let (true, Some(directory)) = (is_directory, target) {
            match places[1].filter(|_| after != Relation::Beside) {
                Some(place) => {
                    let is_known = self.tree.has(directory) && before != Relation::Beside;
                    if self.tree.has(directory) && !is_known {
                        // It has moved out before. What was known below it was told as gone.
                        self.tree.forget_outside();
                    }
                    self.tree.insert(directory, &place);
                    // One that is not known has come since a walk looked at where it was.
                    if !(stays && is_known) {
                        self.tree.walk(directory, true);
                    }
                }
                None => self.tree.move_out(directory),
            }
        }
        if before == Relation::Beside && after == Relation::Beside {
            return;
        }
        let mut event = FileEvent::new(EventKind::Rename, 0, self.ts);
        (event.flags, event.target) = (flags, target.unwrap_or_default());
        for (place, is_there) in [(&places[0], false), (&places[1], true)] {
            if let (Some(place), Some(target)) = (place, target) {
                self.run.note(target, place, is_directory, is_there);
            }
        }
        if let Some(place) = &places[0] {
            self.untell(place);
        }
        let parents = places.map(|place| place.map_or(ObjectId::NONE, |place| place.directory));
        match (from, to) {
            (Some(from), Some(to)) if stays => {
                event.parent = parents[1];
                (event.path, event.old_path) = (to.path, from.path);
                if event.path != event.old_path {
                    self.push(event, out);
                }
            }
            (from, to) => {
                event.flags = event.flags.with(EventFlags::BEYOND);
                if let Some(from) = from {
                    event.parent = parents[0];
                    self.tell_left(&event, from, out);
                }
                if let (Some(to), Relation::Inside, Some(place)) = (to, after, places[1]) {
                    event.parent = parents[1];
                    self.tell_arrived(event, to.path, &place, out);
                }
            }
        }
    }

    /// Tells that something has left what is watched.
    fn tell_left(&mut self, event: &FileEvent, from: TreePath, out: &mut Vec<FileEvent>) {
        let is_directory = event.flags.has(EventFlags::DIRECTORY);
        if is_directory {
            // What was told of things below it holds no more.
            self.told.clear();
        }
        let paths = match from.relation {
            Relation::Inside => vec![from.path],
            Relation::Above if is_directory => self.tree.roots_within(&from.path),
            Relation::Above | Relation::Beside => Vec::new(),
        };
        for path in paths {
            let told = FileEvent {
                kind: removal(is_directory),
                path,
                ..event.clone()
            };
            self.push(told, out);
        }
    }

    /// Tells that something has come from where nothing is watched.
    fn tell_arrived(
        &mut self,
        event: FileEvent,
        path: Vec<u8>,
        place: &RawPlace<'_>,
        out: &mut Vec<FileEvent>,
    ) {
        if self.is_told(place) {
            return;
        }
        let is_directory = event.flags.has(EventFlags::DIRECTORY);
        let stat = self.looks_at_files.then(|| self.stat(&path, is_directory));
        let stat = stat.flatten();
        let mut event = FileEvent { path, ..event };
        event.kind = match is_directory {
            true => EventKind::Mkdir,
            false => stat.as_ref().map_or(EventKind::Create, kind_of),
        };
        describe(&mut event, stat.as_ref());
        self.push(event, out);
    }

    /// Ends a run: the queue is empty. Tells what merging has hidden.
    pub(super) fn settle(&mut self, out: &mut Vec<FileEvent>) {
        (self.pid, self.is_muted) = (0, false);
        self.tell_late(out);
        for object in self.run.end() {
            self.settle_object(&object, out);
        }
        self.forget_dying(0);
        self.tree.walk_astray();
        if !self.tree.is_walking() {
            self.told.clear();
            self.told_directories.clear();
        }
    }

    /// Forgets removed directories but the last `kept`.
    fn forget_dying(&mut self, kept: usize) {
        while self.dying.len() > kept {
            if let Some(directory) = self.dying.pop_front() {
                self.tree.remove(directory);
            }
        }
    }

    /// Compares where an object is with where the events say that it is.
    fn settle_object(&mut self, object: &RunObject, out: &mut Vec<FileEvent>) {
        let (mut missing, mut surplus) = (Vec::new(), Vec::new());
        for place in &object.places {
            match self.tree.state(&place.as_raw(), object.target) {
                PlaceState::Empty if place.is_there => missing.push(place.as_raw()),
                PlaceState::Same if !place.is_there => surplus.push(place.as_raw()),
                _ => {}
            }
        }
        let flags = EventFlags::RECONCILED
            .with(EventFlags::MERGED)
            .with(EventFlags::DIRECTORY.when(object.is_directory));
        let mut surplus = surplus.into_iter();
        for place in missing {
            let target = Some(object.target);
            match surplus.next() {
                Some(real) => self.rename(target, [Some(place), Some(real)], flags, out),
                None => {
                    if let Some(path) = self.path(Some(place)).filter(is_inside) {
                        let event = self.settled(object, &place, flags, path.path);
                        self.tell_delete(&event, &place, out);
                    }
                }
            }
        }
        for place in surplus {
            if let Some(path) = self.path(Some(place)).filter(is_inside) {
                (self.target, self.inode) = (object.target, None);
                let stat = self.stat(&path.path, object.is_directory);
                let event = self.settled(object, &place, flags, path.path);
                self.tell_create(&event, &place, stat.as_ref(), out);
            }
        }
        // These were no events of the kernel.
        self.run.end();
    }

    fn settled(
        &self,
        object: &RunObject,
        place: &RawPlace<'_>,
        flags: EventFlags,
        path: Vec<u8>,
    ) -> FileEvent {
        let mut event = FileEvent::new(EventKind::Create, 0, self.ts);
        (event.flags, event.target) = (flags, object.target);
        (event.parent, event.path) = (place.directory, path);
        event
    }

    /// The path of a place, if it is known.
    fn path(&mut self, place: Option<RawPlace<'_>>) -> Option<TreePath> {
        let place = place?;
        self.forget_dying(DYING_MAX);
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
    fn stat(&self, path: &[u8], is_directory: bool) -> Option<Stat> {
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

    fn look_later(&mut self, place: &RawPlace<'_>) {
        if self.late.len() < LATE_MAX {
            self.late.push(LateFile {
                target: self.target,
                directory: place.directory,
                name: place.name.into(),
            });
        }
    }

    /// Tells size and owner of files that could not be looked at before.
    fn tell_late(&mut self, out: &mut Vec<FileEvent>) {
        let mut late = std::mem::take(&mut self.late);
        late.sort_by_key(|file| file.target);
        // The last of a file is the one that counts.
        late.reverse();
        late.dedup_by_key(|file| file.target);
        for file in late {
            let target = file.target;
            let (directory, name) = self
                .run
                .place(target)
                .unwrap_or((file.directory, file.name));
            let place = RawPlace {
                directory,
                name: &name,
            };
            let Some(found) = self.path(Some(place)).filter(is_inside) else {
                continue;
            };
            (self.target, self.inode) = (target, None);
            if let Some(stat) = self.stat(&found.path, false) {
                let flags = EventFlags::RECONCILED.with(EventFlags::MERGED);
                let mut event = FileEvent::new(EventKind::Attrib, 0, self.ts);
                (event.flags, event.target) = (flags, target);
                (event.parent, event.path) = (directory, found.path);
                describe(&mut event, Some(&stat));
                self.push(event, out);
            }
        }
    }

    /// The path at which a walk has told a directory, if that is another place than the one of an
    /// event. The event is older than the walk then, and later ones bring the directory there.
    fn told_directory(&self, directory: ObjectId, place: &RawPlace<'_>) -> Option<Vec<u8>> {
        if !self.told_directories.contains(&directory) {
            return None;
        }
        let (parent, name) = self.tree.place(directory)?;
        if parent == place.directory && name == place.name {
            return None;
        }
        let path = self.tree.path(&RawPlace {
            directory: parent,
            name: &name,
        });
        path.filter(is_inside).map(|path| path.path)
    }

    fn is_told(&self, place: &RawPlace<'_>) -> bool {
        let told = || (place.directory, Box::from(place.name));
        !self.told.is_empty() && self.told.contains(&told())
    }

    fn untell(&mut self, place: &RawPlace<'_>) {
        if !self.told.is_empty() {
            self.told.remove(&(place.directory, Box::from(place.name)));
        }
    }
}

fn is_inside(path: &TreePath) -> bool {
    path.relation == Relation::Inside
}

fn removal(is_directory: bool) -> EventKind {
    match is_directory {
        true => EventKind::Rmdir,
        false => EventKind::Unlink,
    }
}

/// Takes size and owner into an event.
fn describe(event: &mut FileEvent, stat: Option<&Stat>) {
    let Some(stat) = stat else {
        return;
    };
    (event.uid, event.gid) = (Some(stat.st_uid), Some(stat.st_gid));
    if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
        event.size = u64::try_from(stat.st_size).ok();
    }
}

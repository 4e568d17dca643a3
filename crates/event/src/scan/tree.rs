//! A tree as far as it was told: what is known of it, where its directories are, and the events
//! that change both.

use std::collections::VecDeque;

use super::config::EventKinds;
use super::place::{Handles, Seen};
use crate::directories::{DirectoryTable, PathOf};
use crate::event::{EventFlags, EventKind, FileEvent, ObjectId};
use crate::snapshot::{EntryKind, Known, TreeEntry};

/// How much later than the clock of the call a change may be, in ns, that the call has seen: the
/// clock is read before the call looks.
const CALL_NS_MAX: i64 = 10_000_000_000;
/// Files that were told last, by which a file is told from another name of it.
const RECENT_MAX: usize = 4_096;

/// A name in a directory; the directory of a root is [`ObjectId::NONE`] and its name is its path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    pub(crate) dir: ObjectId,
    pub(crate) name: Box<[u8]>,
}

impl Name {
    pub(crate) fn new(dir: ObjectId, name: &[u8]) -> Self {
        Self {
            dir,
            name: name.into(),
        }
    }
}

/// What was told, and the events that are to be handed out.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) table: DirectoryTable,
    pub(crate) known: Known,
    pub(crate) handles: Handles,
    pub(crate) out: Vec<FileEvent>,
    pub(crate) kinds: EventKinds,
    /// Path of the root, if there is one alone: marks have it.
    pub(crate) root: Box<[u8]>,
    pub(crate) index_next: u64,
    pub(crate) now_ns: i64,
    /// Time of the last event, in ns since the epoch.
    told_ns: i64,
    pub(crate) counts: Counts,
    /// Files that were told last, with the times at which they were made.
    recent: VecDeque<(ObjectId, i64)>,
    recent_since_ns: i64,
}

/// What is counted of the events.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) events: u64,
    pub(crate) gaps: u64,
    pub(crate) reconciled: u64,
    pub(crate) unresolved: u64,
    /// Directories that cannot be read, or have no room in the table.
    pub(crate) unreadable: u64,
}

impl Tree {
    pub(crate) fn new(
        table: DirectoryTable,
        known: Known,
        kinds: EventKinds,
        index_next: u64,
    ) -> Self {
        Self {
            table,
            known,
            handles: Handles::default(),
            out: Vec::new(),
            kinds,
            root: Box::default(),
            index_next,
            now_ns: 0,
            told_ns: i64::MIN,
            counts: Counts::default(),
            recent: VecDeque::new(),
            recent_since_ns: i64::MAX,
        }
    }

    /// From now on every file that is made is told, so that one of several names that was made
    /// since and was not told is a new file.
    pub(crate) fn begin(&mut self) {
        self.recent_since_ns = self.recent_since_ns.min(self.now_ns);
    }

    /// Events were lost: from now on a file may have been made without being told.
    pub(crate) fn pause(&mut self) {
        self.recent_since_ns = i64::MAX;
        self.recent.clear();
    }

    /// What is at a name now.
    pub(crate) fn look(&mut self, dir: ObjectId, name: &[u8]) -> rustix::io::Result<Seen> {
        match dir.is_none() {
            true => self.handles.look(rustix::fs::CWD, name),
            false => self.handles.look_in(&self.table, dir, name),
        }
    }

    /// Whether a directory is where the table has it.
    pub(crate) fn is_at(&self, id: ObjectId, dir: ObjectId, name: &[u8]) -> bool {
        let parent = (!dir.is_none()).then_some(dir);
        self.table.get(id) == Some((parent, name))
    }

    /// Whether events have told a directory at another place, to which others will bring it from
    /// there.
    pub(crate) fn is_told_elsewhere(&self, id: ObjectId, name: &Name) -> bool {
        self.handles.identify.is_some()
            && self.table.has(id)
            && !self.is_at(id, name.dir, &name.name)
    }

    /// Takes in where a directory is; false if there is no room.
    pub(crate) fn place(&mut self, id: ObjectId, dir: ObjectId, name: &[u8]) -> bool {
        let placed = match dir.is_none() {
            true => self.table.insert_root(id, name),
            false => self.table.insert(id, dir, name),
        };
        self.counts.unreadable += u64::from(placed.is_err());
        placed.is_ok()
    }

    /// Tells that a name was made.
    pub(crate) fn tell_made(
        &mut self,
        dir: ObjectId,
        name: &[u8],
        seen: Option<&Seen>,
        flags: EventFlags,
    ) {
        let Some(seen) = seen else {
            let is_directory = flags.has(EventFlags::DIRECTORY);
            let kind = if is_directory {
                EventKind::Mkdir
            } else {
                EventKind::Create
            };
            let event = self.event(kind, flags, dir, name, None);
            return self.tell(event);
        };
        let kind = match seen.entry.kind {
            EntryKind::Directory => EventKind::Mkdir,
            _ if seen.links > 1 && !self.is_first_name(&seen.entry) => EventKind::Link,
            EntryKind::File => EventKind::Create,
            EntryKind::Symlink => EventKind::Symlink,
            EntryKind::Other => EventKind::Mknod,
        };
        if kind != EventKind::Link && kind != EventKind::Mkdir {
            if self.recent.len() >= RECENT_MAX {
                self.recent.pop_front();
            }
            self.recent.push_back((seen.entry.id, seen.entry.born_ns));
        }
        let mut entry = seen.entry;
        entry.note(kind, flags, None);
        self.known.put(dir, name, entry);
        let event = self.event(kind, flags, dir, name, Some(&entry));
        self.tell(event);
    }

    /// Whether a file with several names was made while every file was told, and was not told yet.
    fn is_first_name(&self, entry: &TreeEntry) -> bool {
        let since_ns = match self.recent.front() {
            Some((_, born_ns)) if self.recent.len() >= RECENT_MAX => *born_ns,
            _ => self.recent_since_ns,
        };
        entry.born_ns > since_ns && self.recent.iter().all(|(id, _)| *id != entry.id)
    }

    /// Tells that a name was removed.
    pub(crate) fn tell_removed(&mut self, dir: ObjectId, name: &[u8], flags: EventFlags) {
        let old = self.known.get(dir, name);
        let is_directory = match old {
            Some(old) => old.is_directory(),
            None => flags.has(EventFlags::DIRECTORY),
        };
        let kind = if is_directory {
            EventKind::Rmdir
        } else {
            EventKind::Unlink
        };
        let is_last = is_directory && !flags.has(EventFlags::BEYOND);
        let flags = flags.with(EventFlags::LAST_LINK.when(is_last));
        let flags = flags.with(EventFlags::DIRECTORY.when(is_directory));
        let mut event = self.event(kind, flags, dir, name, old.as_ref());
        event.size = None;
        self.known.remove(dir, name);
        self.tell(event);
    }

    /// Tells that an object has got another name. `old_path` is that before; of the target,
    /// `entry` is what is known.
    pub(crate) fn tell_renamed(
        &mut self,
        from: &Name,
        old_path: PathOf,
        to: &Name,
        entry: Option<TreeEntry>,
        flags: EventFlags,
    ) {
        let replaced = self.known.get(to.dir, &to.name);
        self.known.remove(from.dir, &from.name);
        match entry {
            Some(entry) => self.known.put(to.dir, &to.name, entry),
            None => self.known.remove(to.dir, &to.name),
        }
        let flags = flags.with(EventFlags::REPLACED.when(replaced.is_some()));
        let mut event = self.event(EventKind::Rename, flags, to.dir, &to.name, entry.as_ref());
        let is_whole = matches!(old_path, PathOf::Whole(_));
        event.flags = event
            .flags
            .with(EventFlags::OLD_PATH_INCOMPLETE.when(!is_whole));
        let (PathOf::Whole(path) | PathOf::From(_, path)) = old_path;
        event.old_path = path;
        self.tell(event);
    }

    /// Tells that contents or attributes were changed.
    pub(crate) fn tell_changed(
        &mut self,
        kind: EventKind,
        dir: ObjectId,
        name: &[u8],
        entry: Option<&TreeEntry>,
        flags: EventFlags,
    ) {
        let event = self.event(kind, flags, dir, name, entry);
        self.tell(event);
    }

    /// Tells what differs between an entry and what is there now, and takes it in. After a gap a
    /// file whose end of writing was not told is told as closed.
    pub(crate) fn tell_differences(
        &mut self,
        dir: ObjectId,
        name: &[u8],
        old: &TreeEntry,
        seen: &Seen,
        flags: EventFlags,
    ) {
        let mut new = seen.entry;
        let is_found = flags.has(EventFlags::RECONCILED);
        new.is_open = old.is_open && !is_found;
        let new = &new;
        let kind = match new.kind {
            EntryKind::File if old.is_written(new) => Some(EventKind::Write),
            EntryKind::File if old.is_open && is_found => Some(EventKind::CloseWrite),
            // Names that come and go change it also.
            EntryKind::File if old.is_touched(new) && seen.links == 1 => Some(EventKind::Attrib),
            _ => None,
        };
        if old != new {
            self.known.put(dir, name, *new);
        }
        if let Some(kind) = kind {
            self.tell_changed(kind, dir, name, Some(new), flags);
        }
        if old.is_given(new) && kind != Some(EventKind::Attrib) {
            self.tell_changed(EventKind::Attrib, dir, name, Some(new), flags);
        }
    }

    /// Tells that events were lost, or that all of them are told again.
    pub(crate) fn tell_mark(&mut self, kind: EventKind, detail: &str) {
        let mut event = FileEvent::new(kind, 0, self.now_ns);
        event.detail = detail.into();
        event.path = self.root.to_vec();
        self.counts.gaps += u64::from(kind == EventKind::Gap);
        self.tell(event);
    }

    /// The path of a name.
    pub(crate) fn path(&self, dir: ObjectId, name: &[u8]) -> PathOf {
        match dir.is_none() {
            true => PathOf::Whole(name.into()),
            false => self.table.path_in(dir, name),
        }
    }

    fn event(
        &self,
        kind: EventKind,
        flags: EventFlags,
        dir: ObjectId,
        name: &[u8],
        entry: Option<&TreeEntry>,
    ) -> FileEvent {
        let mut event = FileEvent::new(kind, 0, self.now_ns);
        let path = self.path(dir, name);
        let is_whole = matches!(path, PathOf::Whole(_));
        let (PathOf::Whole(path) | PathOf::From(_, path)) = path;
        event.path = path;
        event.parent = dir;
        event.flags = flags.with(EventFlags::PATH_INCOMPLETE.when(!is_whole));
        if let Some(entry) = entry {
            // An event is not earlier than what was seen of its file.
            if entry.ctime_ns.saturating_sub(self.now_ns) < CALL_NS_MAX {
                event.ts = event.ts.max(entry.ctime_ns);
            }
            event.target = entry.id;
            event.flags = event
                .flags
                .with(EventFlags::DIRECTORY.when(entry.is_directory()));
            event.size = (entry.kind == EntryKind::File).then_some(entry.size);
            (event.uid, event.gid) = (Some(entry.uid), Some(entry.gid));
        }
        event
    }

    fn tell(&mut self, mut event: FileEvent) {
        if !self.kinds.has(event.kind) {
            return;
        }
        // Times ascend, unless the clock was set back.
        if self.told_ns.saturating_sub(event.ts) < CALL_NS_MAX {
            event.ts = event.ts.max(self.told_ns);
        }
        self.told_ns = event.ts;
        event.index = self.index_next;
        self.index_next += 1;
        self.counts.events += 1;
        self.counts.reconciled += u64::from(event.flags.has(EventFlags::RECONCILED));
        let incomplete = [EventFlags::PATH_INCOMPLETE, EventFlags::OLD_PATH_INCOMPLETE];
        let is_unresolved = incomplete.iter().any(|flag| event.flags.has(*flag));
        self.counts.unresolved += u64::from(is_unresolved);
        self.out.push(event);
    }
}

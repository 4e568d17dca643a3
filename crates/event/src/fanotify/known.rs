//! What was told of the tree, kept so that what was lost can be found: each event that is told is
//! taken into the snapshot's changes, and after a gap the tree is compared with both.
//!
//! Comparing is done by the walk that other collectors of trees use too. The table of directories
//! is lent to it for each step, so that paths are those that were told.

use std::os::fd::BorrowedFd;

use rustix::fs::{FileType, Stat};

use crate::collector::{Collected, CollectorFault};
use crate::event::{EventFlags, EventKind, FileEvent, ObjectId, name_of};
use crate::fanotify::FanotifyConfig;
use crate::fanotify::handles::HandleReader;
use crate::fanotify::parse::{RawEvent, RawPlace};
use crate::fanotify::tell::{Teller, told_of};
use crate::fanotify::told::{NameState, ToldName};
use crate::scan::{Core, Mode, Names, TreeConfig, Walked, Watcher, entry_of};
use crate::snapshot::{EntryKind, MODE_UNKNOWN, TreeEntry};

/// Directories that a step of comparing has forgotten.
#[derive(Default)]
struct Forgotten(Vec<ObjectId>);

impl Watcher for Forgotten {
    fn watch(&mut self, _: ObjectId, _: BorrowedFd<'_>) {}

    fn was_read(&mut self, _: ObjectId, _: Names) {}

    fn forget(&mut self, directory: ObjectId) {
        self.0.push(directory);
    }
}

/// Opens what is known of the tree below the base.
///
/// # Errors
///
/// There are other roots, or the snapshot cannot be read.
pub(super) fn open(
    config: &FanotifyConfig,
    tree: &TreeConfig,
    reader: HandleReader,
) -> Result<Core, CollectorFault> {
    let is_base = config.roots.iter().all(|root| *root == config.base);
    let base = config.base.canonicalize();
    let base = base.map_err(|source| CollectorFault::Io {
        what: "find",
        path: config.base.clone(),
        source,
    })?;
    if !is_base || base != config.base {
        return Err(CollectorFault::Unusable(format!(
            "what was lost can be found only where the root is the watched directory itself, by a \
             path without symbolic links: watch {} alone",
            base.display()
        )));
    }
    let mut tree = tree.clone();
    tree.index_next = config.index_next;
    tree.directories_max = config.directories_max;
    let mut core = Core::open(std::slice::from_ref(&base), tree)?;
    core.tree.handles.identify = Some(Box::new(reader));
    Ok(core)
}

impl Teller {
    /// Begins a call.
    pub(super) fn begin_call(&mut self, now: (i64, i64), out: &mut Vec<FileEvent>) {
        self.with_known(out, |core, _| core.begin(now));
    }

    /// Ends a call: the snapshot is written on.
    pub(super) fn end_call(&mut self) -> Collected {
        let Some(core) = &mut self.core else {
            return Collected::All;
        };
        core.tree.index_next = self.index_next;
        core.end(&mut Vec::new())
    }

    /// Compares a little with what was told, and tells what is found. `false` if nothing more can
    /// be done by this call.
    pub(super) fn compare_more(&mut self, out: &mut Vec<FileEvent>) -> bool {
        let walked = self.with_known(out, |core, forgotten| match core.walk.is_busy() {
            true => core.step(forgotten),
            false => Walked::All,
        });
        self.compares &= self.core.as_ref().is_some_and(|core| core.walk.is_busy());
        walked == Some(Walked::More)
    }

    /// The state of a name, as far as it was told. While the tree is compared, what is known of the
    /// name counts, since events that would have changed it may be lost.
    pub(super) fn state(&mut self, place: &RawPlace<'_>) -> NameState {
        let state = self.told.state(place);
        let is_itself = place.name.is_empty() || place.name == b".";
        let Some(core) = self.core.as_mut().filter(|_| self.compares) else {
            return state;
        };
        if state != NameState::Unknown || is_itself {
            return state;
        }
        let told = match core.tree.known.get(place.directory, place.name) {
            Some(entry) => ToldName {
                object: entry.id,
                is_there: true,
                is_directory: entry.is_directory(),
                size: (entry.kind == EntryKind::File).then_some(entry.size),
                is_looked_at: false,
                misses: 0,
            },
            None => ToldName {
                object: ObjectId::NONE,
                is_there: false,
                is_directory: false,
                size: None,
                is_looked_at: false,
                misses: 0,
            },
        };
        self.told.note(place, told);
        match told.is_there {
            true => NameState::There(told),
            false => NameState::Gone(false),
        }
    }

    /// Whether a directory is partly compared, so that it has to go on before further events.
    pub(super) fn is_within_directory(&self) -> bool {
        self.core.as_ref().is_some_and(|core| core.walk.is_within())
    }

    /// Takes in that events were lost; false if nothing is known to compare with.
    pub(super) fn begin_comparing(&mut self, detail: &str, out: &mut Vec<FileEvent>) -> bool {
        let mode = Mode::Compare { is_deep: true };
        let begun = self.with_known(out, |core, _| {
            // Where the first walk is not over, not all is known yet.
            let is_known = !core.walk.is_passing();
            core.walk.begin(&mut core.tree, mode, Some(detail));
            is_known
        });
        self.compares |= begun == Some(true);
        begun.is_some()
    }

    /// Tells what comparing holds of the names of an event, since the event follows it.
    pub(super) fn release(&mut self, raw: &RawEvent<'_>, out: &mut Vec<FileEvent>) {
        let is_comparing = |core: &Core| core.walk.is_passing();
        let Some(target) = raw
            .target
            .filter(|_| self.core.as_ref().is_some_and(is_comparing))
        else {
            return;
        };
        self.with_known(out, |core, _| {
            for place in [raw.place, raw.old, raw.new].into_iter().flatten() {
                let (dir, name) = (place.directory, place.name);
                core.walk.release(&mut core.tree, dir, name, target);
            }
        });
    }

    /// Lends the table of directories to what compares, and tells what it has found.
    fn with_known<T>(
        &mut self,
        out: &mut Vec<FileEvent>,
        act: impl FnOnce(&mut Core, &mut Forgotten) -> T,
    ) -> Option<T> {
        let core = self.core.as_mut()?;
        let mut forgotten = Forgotten::default();
        self.tree.exchange_table(&mut core.tree.table);
        core.tree.now_ns = self.ts;
        let outcome = act(core, &mut forgotten);
        self.tree.exchange_table(&mut core.tree.table);
        let found = std::mem::take(&mut core.tree.out);
        for directory in forgotten.0 {
            self.told.forget(directory);
        }
        for event in found {
            self.note_found(&event);
            self.push_own(event, out);
        }
        Some(outcome)
    }

    /// Notes what comparing has found, so that events from before are recognised.
    fn note_found(&mut self, event: &FileEvent) {
        let place = RawPlace {
            directory: event.parent,
            name: name_of(&event.path),
        };
        let told = ToldName {
            is_there: !event.kind.removes_name(),
            is_looked_at: true,
            ..told_of(event)
        };
        let is_of_name = event.kind.makes_name() || event.kind.removes_name();
        if event.kind == EventKind::Mkdir {
            self.told.begin(event.target);
        }
        if is_of_name || event.kind == EventKind::Rename {
            self.told.note(&place, told);
        } else {
            self.told.note_size(&place, event.size);
        }
    }

    /// Keeps what was told of a name that is there.
    pub(super) fn keep(&mut self, place: &RawPlace<'_>, event: &FileEvent, stat: Option<&Stat>) {
        let Some(core) = &mut self.core else {
            return;
        };
        let mut entry = match stat {
            Some(stat) => seen_entry(event.target, stat),
            None => told_entry(event),
        };
        let known = &mut core.tree.known;
        let before = known.get(place.directory, place.name);
        entry.note(event.kind, event.flags, before.as_ref());
        known.put(place.directory, place.name, entry);
    }

    /// Keeps that an object was moved from one name to another.
    pub(super) fn keep_move(&mut self, old: &RawPlace<'_>, new: &RawPlace<'_>, event: &FileEvent) {
        let Some(core) = &mut self.core else {
            return;
        };
        let known = &mut core.tree.known;
        let entry = known.get(old.directory, old.name);
        let mut entry = match entry.filter(|entry| entry.id == event.target) {
            Some(entry) => entry,
            None => told_entry(event),
        };
        // The rename itself has changed the file's time of change.
        (entry.mode, entry.ctime_ns) = (MODE_UNKNOWN, event.ts);
        known.remove(old.directory, old.name);
        known.put(new.directory, new.name, entry);
    }

    /// Keeps that nothing is at a name.
    pub(super) fn keep_gone(&mut self, place: &RawPlace<'_>, object: ObjectId, flags: EventFlags) {
        if let Some(core) = &mut self.core {
            core.tree.known.remove(place.directory, place.name);
        }
        if flags.has(EventFlags::DIRECTORY) {
            self.keep_empty(object);
        }
    }

    /// Keeps that nothing was told of a directory.
    pub(super) fn keep_empty(&mut self, directory: ObjectId) {
        // The names of no directory are those of the roots.
        if let Some(core) = self.core.as_mut().filter(|_| !directory.is_none()) {
            core.tree.known.clear(directory);
        }
    }
}

/// An entry by attributes.
fn seen_entry(id: ObjectId, stat: &Stat) -> TreeEntry {
    let time = |second: i64, ns: i64| second.saturating_mul(1_000_000_000).saturating_add(ns);
    TreeEntry {
        id,
        kind: match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => EntryKind::File,
            FileType::Directory => EntryKind::Directory,
            FileType::Symlink => EntryKind::Symlink,
            _ => EntryKind::Other,
        },
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mtime_ns: time(stat.st_mtime, stat.st_mtime_nsec as i64),
        ctime_ns: time(stat.st_ctime, stat.st_ctime_nsec as i64),
        born_ns: 0,
        mode: (stat.st_mode & 0o7777) as u16,
        uid: stat.st_uid,
        gid: stat.st_gid,
        is_open: false,
    }
}

/// An entry by an event, whose times are that of the event.
fn told_entry(event: &FileEvent) -> TreeEntry {
    let kind = match event.kind {
        _ if event.flags.has(EventFlags::DIRECTORY) => EntryKind::Directory,
        EventKind::Symlink => EntryKind::Symlink,
        EventKind::Mknod => EntryKind::Other,
        _ => EntryKind::File,
    };
    entry_of(event, kind, None)
}

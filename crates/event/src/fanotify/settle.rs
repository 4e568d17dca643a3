//! What is done when the queue is empty: files are looked at that were elsewhere before, and
//! doubtful names are compared with what is there.

use rustix::fs::{FileType, Stat};

use crate::event::{EventFlags, EventKind, FileEvent, ObjectId};
use crate::fanotify::parse::RawPlace;
use crate::fanotify::rename::is_below;
use crate::fanotify::tell::{Teller, describe, is_inside, kind_of, removal, told_of};
use crate::fanotify::told::{LateFile, NameState, Place, ToldName};
use crate::fanotify::tree::PathState;

/// Most files that are looked at later, when the queue is empty.
const LATE_MAX: usize = 4_096;
/// Most doubtful names that are looked at by one call.
const DOUBTFUL_AT_ONCE: usize = 4_096;
/// Time after which doubtful names are looked at again that could not be looked at, in ns.
const RETRY_NS: i64 = 10_000_000;
/// Times that a file is looked for.
const LATE_MISSES_MAX: u8 = 10;
/// Times that a name is looked at which cannot be.
const MISSES_MAX: u8 = 100;

/// An object that was found at a name where it was not told.
struct Surplus {
    place: Place,
    object: ObjectId,
    stat: Stat,
}

/// An object that was found at a name and was told at another one.
struct Moved {
    from: Place,
    to: Surplus,
}

impl Surplus {
    fn is_directory(&self) -> bool {
        is_directory(&self.stat)
    }
}

impl Teller {
    /// Ends the time in which the queue was not empty. Tells what merging has hidden.
    pub(super) fn settle(&mut self, out: &mut Vec<FileEvent>, monotonic_ns: i64) {
        self.set_pid(0);
        self.bury_all(out);
        let mut doubtful = Vec::new();
        if monotonic_ns >= self.retry_ns {
            self.tell_late(out, monotonic_ns);
            self.told.spread();
            doubtful = self.told.take_doubtful(DOUBTFUL_AT_ONCE);
        }
        if !self.told.has_doubt() && !self.tree.is_walking() && !self.tree.is_astray() {
            self.told.clear();
        }
        self.compare(doubtful, out, monotonic_ns);
        self.tree.walk_astray();
    }

    /// Time of the monotonic clock from which doubtful names can be looked at.
    pub(super) fn due_ns(&self) -> i64 {
        match self.told.has_doubt() || !self.late.is_empty() {
            true => self.retry_ns,
            false => i64::MAX,
        }
    }

    pub(super) fn look_later(&mut self, place: &RawPlace<'_>) {
        if self.late.len() < LATE_MAX || self.late.contains_key(&self.target) {
            let (place, misses) = (Place::of(place), 0);
            self.late.insert(self.target, LateFile { place, misses });
        }
    }

    /// Takes in that a file is at another place.
    pub(super) fn follow(&mut self, file: ObjectId, place: &RawPlace<'_>) {
        if let Some(late) = self.late.get_mut(&file) {
            late.place = Place::of(place);
        }
    }

    /// Tells size and owner of files that could not be looked at before.
    fn tell_late(&mut self, out: &mut Vec<FileEvent>, monotonic_ns: i64) {
        for (target, LateFile { place, misses }) in std::mem::take(&mut self.late) {
            let Some(found) = self.path(Some(place.as_raw())).filter(is_inside) else {
                continue;
            };
            (self.target, self.inode) = (target, None);
            if let Some(stat) = self.stat(&found.path, false) {
                self.tell_attributes(target, &place, found.path, &stat, out);
                continue;
            }
            // It has gone, or something above it has moved a moment ago.
            if self.state(&place.as_raw()).is(target) {
                self.told.doubt(&place.as_raw(), target, false);
            }
            let misses = misses + 1;
            if misses < LATE_MISSES_MAX {
                self.retry_ns = monotonic_ns.saturating_add(RETRY_NS);
                self.late.insert(target, LateFile { place, misses });
            }
        }
    }

    fn tell_attributes(
        &mut self,
        target: ObjectId,
        place: &Place,
        path: Vec<u8>,
        stat: &Stat,
        out: &mut Vec<FileEvent>,
    ) {
        let mut event = FileEvent::new(EventKind::Attrib, 0, self.ts);
        event.flags = EventFlags::RECONCILED.with(EventFlags::MERGED);
        (event.target, event.parent, event.path) = (target, place.directory, path);
        describe(&mut event, Some(stat));
        self.told.note_size(&place.as_raw(), event.size);
        self.keep(&place.as_raw(), &event, Some(stat));
        self.push(event, out);
    }

    /// Compares what was told of names with what is there.
    fn compare(
        &mut self,
        mut doubtful: Vec<(Place, ToldName)>,
        out: &mut Vec<FileEvent>,
        monotonic_ns: i64,
    ) {
        doubtful.sort_by_key(|(place, _)| place.directory);
        let (mut missing, mut surplus) = (Vec::new(), Vec::new());
        for names in doubtful.chunk_by(|(a, _), (b, _)| a.directory == b.directory) {
            let directory = names[0].0.directory;
            if self.path(Some(names[0].0.as_raw())).is_none() {
                continue;
            }
            let wanted: Vec<_> = names.iter().map(|(place, _)| &*place.name).collect();
            let Ok(Some(states)) = self.tree.look_in(directory, &wanted) else {
                self.put_off(names, monotonic_ns);
                continue;
            };
            for ((place, told), state) in names.iter().zip(states) {
                let is_looked_at = true;
                self.told.note(
                    &place.as_raw(),
                    ToldName {
                        is_looked_at,
                        ..*told
                    },
                );
                self.compare_name(place, *told, state, &mut missing, &mut surplus, out);
            }
        }
        self.put_right(missing, surplus, out);
    }

    /// Has names looked at once more, a little later.
    fn put_off(&mut self, names: &[(Place, ToldName)], monotonic_ns: i64) {
        self.retry_ns = monotonic_ns.saturating_add(RETRY_NS);
        for (place, told) in names {
            let misses = told.misses + 1;
            if misses < MISSES_MAX {
                self.told
                    .note(&place.as_raw(), ToldName { misses, ..*told });
                self.told
                    .doubt(&place.as_raw(), told.object, told.is_directory);
            }
        }
    }

    fn compare_name(
        &mut self,
        place: &Place,
        told: ToldName,
        state: PathState,
        missing: &mut Vec<(Place, ToldName)>,
        surplus: &mut Vec<Surplus>,
        out: &mut Vec<FileEvent>,
    ) {
        match state {
            PathState::Empty if told.is_there => missing.push((place.clone(), told)),
            PathState::There(id, stat) if told.is_there && told.object == id => {
                let size = u64::try_from(stat.st_size).ok().filter(|_| is_file(&stat));
                if told.size.is_some()
                    && size.is_some()
                    && told.size != size
                    && let Some(found) = self.path(Some(place.as_raw())).filter(is_inside)
                {
                    self.tell_attributes(id, place, found.path, &stat, out);
                }
            }
            PathState::There(object, stat) if told.is_there && told.object.is_none() => {
                // What is there was told before the name was doubtful, unless it is a directory
                // that was told elsewhere.
                if is_directory(&stat) && self.tree.place(object).as_ref() != Some(place) {
                    let is_there = false;
                    self.told
                        .note(&place.as_raw(), ToldName { is_there, ..told });
                    let place = place.clone();
                    surplus.push(Surplus {
                        place,
                        object,
                        stat,
                    });
                }
            }
            PathState::There(object, stat) => {
                let place = place.clone();
                if told.is_there {
                    missing.push((place.clone(), told));
                }
                surplus.push(Surplus {
                    place,
                    object,
                    stat,
                });
            }
            PathState::Empty | PathState::Hidden => {}
        }
    }

    /// Tells names that are missing, and objects that are at names where they were not told.
    fn put_right(
        &mut self,
        mut missing: Vec<(Place, ToldName)>,
        surplus: Vec<Surplus>,
        out: &mut Vec<FileEvent>,
    ) {
        let (mut moved, mut arrived) = (Vec::new(), Vec::new());
        for to in surplus {
            let from = match to.is_directory() {
                true => self.place_of_directory(&to),
                false => {
                    let is_it = |(_, told): &(Place, ToldName)| told.object == to.object;
                    missing
                        .iter()
                        .find(|it| is_it(it))
                        .map(|(place, _)| place.clone())
                }
            };
            match from {
                Some(from) => {
                    missing.retain(|(place, _)| *place != from);
                    moved.push(Moved { from, to });
                }
                None => arrived.push(to),
            }
        }
        // Those in others first.
        missing.sort_by_cached_key(|(place, _)| {
            std::cmp::Reverse(self.tree.path_bytes(place.directory))
        });
        for (place, told) in missing {
            self.tell_missing(&place, told.object, told.is_directory, out);
        }
        while !moved.is_empty() {
            let before = moved.len();
            let mut rest = Vec::new();
            for one in moved {
                if let Some(one) = self.tell_moved(one, out) {
                    rest.push(one);
                }
            }
            moved = rest;
            if moved.len() == before
                && let Some(Moved { from, to }) = moved.pop()
            {
                // They have changed places.
                self.tell_missing(&from, to.object, to.is_directory(), out);
                arrived.push(to);
            }
        }
        arrived.sort_by_cached_key(|to| self.tree.path_bytes(to.place.directory));
        for to in arrived {
            self.tell_surplus(to, out);
        }
    }

    /// The place at which a directory was told, if it is another one.
    fn place_of_directory(&mut self, to: &Surplus) -> Option<Place> {
        let from = self.tree.place(to.object)?;
        self.path(Some(from.as_raw())).filter(is_inside)?;
        let is_told = self.state(&from.as_raw()).may_be(to.object);
        (is_told && from != to.place).then_some(from)
    }

    fn tell_missing(
        &mut self,
        place: &Place,
        object: ObjectId,
        is_directory: bool,
        out: &mut Vec<FileEvent>,
    ) {
        let Some(found) = self.path(Some(place.as_raw())).filter(is_inside) else {
            return;
        };
        let mut event = FileEvent::new(removal(is_directory), 0, self.ts);
        event.flags = compared(is_directory);
        (event.target, event.parent, event.path) = (object, place.directory, found.path);
        let told = ToldName {
            is_there: false,
            is_looked_at: true,
            ..told_of(&event)
        };
        self.told.note(&place.as_raw(), told);
        self.keep_gone(&place.as_raw(), object, event.flags);
        if is_directory && self.tree.place(object).as_ref() == Some(place) {
            self.tree.move_out(object);
            self.drop_forgotten();
        }
        self.push(event, out);
    }

    /// Tells a move; it comes back if something else has to be told before.
    fn tell_moved(&mut self, moved: Moved, out: &mut Vec<FileEvent>) -> Option<Moved> {
        let Moved { from, to } = &moved;
        let (old, new) = (from.as_raw(), to.place.as_raw());
        let is_directory = to.is_directory();
        let from_path = self.path(Some(old)).filter(is_inside);
        let to_path = self.path(Some(new)).filter(is_inside);
        let (Some(from_path), Some(to_path)) = (from_path, to_path) else {
            self.tell_missing(from, to.object, is_directory, out);
            self.tell_surplus(moved.to, out);
            return None;
        };
        let is_taken = matches!(self.state(&new), NameState::There(_));
        if is_taken || is_below(&to_path.path, &from_path.path) {
            return Some(moved);
        }
        let mut event = FileEvent::new(EventKind::Rename, 0, self.ts);
        event.flags = compared(is_directory);
        (event.target, event.parent) = (to.object, to.place.directory);
        (event.path, event.old_path) = (to_path.path, from_path.path);
        describe(&mut event, Some(&to.stat));
        let told = ToldName {
            is_looked_at: true,
            ..told_of(&event)
        };
        self.told.note(&new, told);
        let is_there = false;
        self.told.note(&old, ToldName { is_there, ..told });
        self.keep_gone(&old, ObjectId::NONE, EventFlags::default());
        self.keep(&new, &event, Some(&to.stat));
        if is_directory {
            self.tree.insert(to.object, &new);
            self.drop_forgotten();
        } else {
            self.follow(to.object, &new);
        }
        self.push(event, out);
        None
    }

    /// Tells that an object is at a name.
    fn tell_surplus(&mut self, to: Surplus, out: &mut Vec<FileEvent>) {
        let place = to.place.as_raw();
        let Some(found) = self.path(Some(place)).filter(is_inside) else {
            return;
        };
        let mut event = FileEvent::new(kind_of(&to.stat), 0, self.ts);
        event.flags = compared(to.is_directory());
        (event.target, event.parent, event.path) = (to.object, place.directory, found.path);
        describe(&mut event, Some(&to.stat));
        let told = ToldName {
            is_looked_at: true,
            ..told_of(&event)
        };
        if to.is_directory() {
            self.take_in(to.object, &place);
        }
        self.told.note(&place, told);
        self.keep(&place, &event, Some(&to.stat));
        self.push(event, out);
    }
}

/// The flags of an event that comparing has found.
fn compared(is_directory: bool) -> EventFlags {
    EventFlags::RECONCILED
        .with(EventFlags::MERGED)
        .with(EventFlags::DIRECTORY.when(is_directory))
}

fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

fn is_directory(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

//! What was told of names since the queue was last empty, so that an event that is out of order, or
//! older than a look at its directory, is recognised.
//!
//! The kernel merges an event into an earlier one of the same process, object, directory and name
//! that still waits in the queue. If a process renames `a` to `b`, back to `a`, and to `b` again,
//! the third event is merged into the first, and what can be read says that the name is `a`. A walk
//! of a directory that has moved in tells what is there now, and the events that led to it are read
//! afterwards. So each event is held against what was told of its names, and names for which the
//! two disagree are doubtful: they are looked at when the queue is empty.

use std::collections::{HashMap, HashSet};

use crate::event::ObjectId;
use crate::fanotify::parse::RawPlace;

/// Most names that are noted until the queue is empty. With further ones, what merging hides stays
/// hidden, and what a walk has told may be told again.
pub(super) const NAMES_MAX: usize = 1 << 17;

/// A file that is to be looked at when the queue is empty: where it is as far as the events say,
/// and how often it was not there.
pub(super) struct LateFile {
    pub(super) place: Place,
    pub(super) misses: u8,
}

/// What was told of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ToldName {
    /// The object at the name or, if none is there, the last one that was; [`ObjectId::NONE`] if
    /// it is not known.
    pub(super) object: ObjectId,
    pub(super) is_there: bool,
    pub(super) is_directory: bool,
    /// Size of a file in bytes, if it was told.
    pub(super) size: Option<u64>,
    /// Whether a look at the name was told, which is newer than the events that are still read
    /// before the queue is empty.
    pub(super) is_looked_at: bool,
    /// How often the name could not be looked at.
    pub(super) misses: u8,
}

/// The state of a name, as far as it was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameState {
    /// Nothing was told of the name since the queue was last empty.
    Unknown,
    /// Nothing is at the name. The value is [`ToldName::is_looked_at`].
    Gone(bool),
    /// An object is at the name.
    There(ToldName),
}

impl NameState {
    /// Whether this object may be at the name.
    pub(super) fn may_be(&self, object: ObjectId) -> bool {
        match self {
            Self::Unknown => true,
            Self::Gone(_) => object.is_none(),
            Self::There(told) => told.object == object || told.object.is_none() || object.is_none(),
        }
    }

    /// Whether it was told that this object is at the name.
    pub(super) fn is(&self, object: ObjectId) -> bool {
        matches!(self, Self::There(told) if told.object == object && !object.is_none())
    }

    /// Whether a look at the name was told.
    pub(super) fn is_looked_at(&self) -> bool {
        match self {
            Self::Unknown => false,
            Self::Gone(is_looked_at) => *is_looked_at,
            Self::There(told) => told.is_looked_at,
        }
    }
}

/// A place that owns its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) directory: ObjectId,
    pub(super) name: Box<[u8]>,
}

impl Place {
    pub(super) fn of(place: &RawPlace<'_>) -> Self {
        Self {
            directory: place.directory,
            name: place.name.into(),
        }
    }

    pub(super) fn as_raw(&self) -> RawPlace<'_> {
        RawPlace {
            directory: self.directory,
            name: &self.name,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Noted {
    told: ToldName,
    is_doubtful: bool,
}

/// The names of a directory.
#[derive(Debug, Default)]
struct Directory {
    /// Whether everything that was told of the directory is noted, so that a name that is not
    /// noted was not told.
    is_whole: bool,
    names: HashMap<Box<[u8]>, Noted>,
}

/// What was told of names since the queue was last empty.
#[derive(Debug, Default)]
pub(super) struct Told {
    directories: HashMap<ObjectId, Directory>,
    count: usize,
    doubtful: Vec<Place>,
    /// Objects of which some event is doubtful.
    suspects: HashSet<ObjectId>,
    /// Objects whose number of links, or something else without a name, has changed.
    changed: HashSet<ObjectId>,
    /// Whether there was no room for a name.
    is_full: bool,
}

impl Told {
    /// The state of a name.
    pub(super) fn state(&self, place: &RawPlace<'_>) -> NameState {
        if place.name.is_empty() || place.name == b"." {
            // It is the directory itself.
            return NameState::Unknown;
        }
        let Some(directory) = self.directories.get(&place.directory) else {
            return NameState::Unknown;
        };
        match directory.names.get(place.name) {
            Some(noted) if noted.told.is_there => NameState::There(noted.told),
            Some(noted) => NameState::Gone(noted.told.is_looked_at),
            None if directory.is_whole && !self.is_full => NameState::Gone(true),
            None => NameState::Unknown,
        }
    }

    /// Takes in what was told of a name.
    pub(super) fn note(&mut self, place: &RawPlace<'_>, told: ToldName) {
        if let Some(noted) = self.find(place) {
            noted.told = told;
            // A name that comes back may have gone once more, which merging would hide.
            if told.is_there && !told.is_looked_at {
                self.doubt_name(place);
            }
            return;
        }
        if self.count >= NAMES_MAX {
            self.is_full = true;
            return;
        }
        self.count += 1;
        let noted = Noted {
            told,
            is_doubtful: false,
        };
        let directory = self.directories.entry(place.directory).or_default();
        directory.names.insert(place.name.into(), noted);
    }

    /// Takes in the size that was told of a file.
    pub(super) fn note_size(&mut self, place: &RawPlace<'_>, size: Option<u64>) {
        if let (Some(noted), Some(size)) = (self.find(place), size) {
            noted.told.size = Some(size);
        }
    }

    /// Takes in that the number of links of an object has changed, or something else that has no
    /// place: a name may have come back that the events do not say.
    pub(super) fn note_change(&mut self, object: ObjectId) {
        if self.changed.len() < NAMES_MAX {
            self.changed.insert(object);
        }
    }

    /// Takes in that an event does not fit what was told of a name. If nothing is noted of it, it
    /// may have what was replaced there without a word.
    pub(super) fn doubt(&mut self, place: &RawPlace<'_>, object: ObjectId, is_directory: bool) {
        if self.state(place) == NameState::Unknown {
            let unknown = ToldName {
                object: ObjectId::NONE,
                is_there: true,
                is_directory,
                size: None,
                is_looked_at: false,
                misses: 0,
            };
            self.note(place, unknown);
        } else if self.find(place).is_none() {
            let gone = ToldName {
                object,
                is_there: false,
                is_directory,
                size: None,
                is_looked_at: true,
                misses: 0,
            };
            self.note(place, gone);
        }
        if self.suspects.len() < NAMES_MAX && !object.is_none() {
            self.suspects.insert(object);
        }
        self.doubt_name(place);
    }

    fn doubt_name(&mut self, place: &RawPlace<'_>) {
        if let Some(noted) = self.find(place)
            && !noted.is_doubtful
        {
            noted.is_doubtful = true;
            self.doubtful.push(Place::of(place));
        }
    }

    fn find(&mut self, place: &RawPlace<'_>) -> Option<&mut Noted> {
        let directory = self.directories.get_mut(&place.directory)?;
        directory.names.get_mut(place.name)
    }

    /// Takes in that nothing of a directory was told so far.
    pub(super) fn begin(&mut self, directory: ObjectId) {
        self.forget(directory);
        let directory = self.directories.entry(directory).or_default();
        directory.is_whole = true;
    }

    /// Forgets the names of a directory.
    pub(super) fn forget(&mut self, directory: ObjectId) {
        if let Some(directory) = self.directories.remove(&directory) {
            self.count -= directory.names.len();
        }
    }

    /// Whether some names are to be looked at.
    pub(super) fn has_doubt(&self) -> bool {
        !self.doubtful.is_empty()
    }

    /// Marks all names of doubtful objects as doubtful.
    pub(super) fn spread(&mut self) {
        if self.doubtful.is_empty() && self.changed.is_empty() {
            return;
        }
        let mut objects = std::mem::take(&mut self.suspects);
        for place in std::mem::take(&mut self.doubtful) {
            if let Some(noted) = self.find(&place.as_raw()) {
                objects.insert(noted.told.object);
                self.doubtful.push(place);
            }
        }
        let changed = std::mem::take(&mut self.changed);
        let mut names: HashMap<ObjectId, usize> = HashMap::new();
        let noted = self.directories.values().flat_map(|of| of.names.values());
        for object in noted.map(|noted| noted.told.object) {
            if changed.contains(&object) {
                *names.entry(object).or_default() += 1;
            }
        }
        // With one name, there is none that could have come back.
        let several = names.iter().filter(|(_, count)| **count > 1);
        objects.extend(several.map(|(object, _)| *object));
        objects.remove(&ObjectId::NONE);
        let all = self.directories.iter().flat_map(|(directory, of)| {
            let names = of.names.iter();
            names.map(|(name, noted)| (*directory, name, noted))
        });
        let found = all.filter(|(.., noted)| objects.contains(&noted.told.object));
        let mut found: Vec<_> = found
            .map(|(directory, name, _)| Place {
                directory,
                name: name.clone(),
            })
            .collect();
        found.sort();
        for place in found {
            self.doubt_name(&place.as_raw());
        }
    }

    /// Takes some of the doubtful names, with what was told of them.
    pub(super) fn take_doubtful(&mut self, max: usize) -> Vec<(Place, ToldName)> {
        let start = self.doubtful.len().saturating_sub(max);
        let places = self.doubtful.split_off(start);
        let mut taken = Vec::with_capacity(places.len());
        for place in places {
            if let Some(noted) = self.find(&place.as_raw()) {
                noted.is_doubtful = false;
                taken.push((place, noted.told));
            }
        }
        taken
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        if self.count > 0 || !self.directories.is_empty() || !self.changed.is_empty() {
            *self = Self::default();
        }
        self.is_full = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(directory: u64, name: &[u8]) -> RawPlace<'_> {
        RawPlace {
            directory: ObjectId::of(1, directory),
            name,
        }
    }

    fn told(object: u64, is_there: bool) -> ToldName {
        ToldName {
            object: ObjectId::of(2, object),
            is_there,
            is_directory: false,
            size: None,
            is_looked_at: false,
            misses: 0,
        }
    }

    fn doubtful(told: &mut Told) -> Vec<Vec<u8>> {
        told.spread();
        let taken = told.take_doubtful(usize::MAX);
        let mut names: Vec<_> = taken.iter().map(|(place, _)| place.name.to_vec()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_name_that_comes_back_is_doubtful_with_the_others_of_its_object() {
        let mut all = Told::default();
        for (name, object, is_there) in [
            (&b"x"[..], 1, true),
            (b"x", 1, false),
            (b"y", 1, true),
            (b"z", 2, true),
            (b"z", 2, false),
        ] {
            all.note(&place(1, name), told(object, is_there));
        }
        assert!(doubtful(&mut all).is_empty());
        all.note(&place(1, b"y"), told(1, false));
        all.note(&place(1, b"x"), told(1, true));
        assert_eq!(doubtful(&mut all), [b"x", b"y"]);
        // The number of links counts for objects with several names.
        all.note_change(ObjectId::of(2, 2));
        assert!(doubtful(&mut all).is_empty());
        all.note(&place(1, b"w"), told(2, true));
        all.note_change(ObjectId::of(2, 2));
        assert_eq!(doubtful(&mut all), [b"w", b"z"]);
        all.doubt(&place(1, b"v"), ObjectId::of(2, 1), false);
        assert_eq!(doubtful(&mut all), [b"v", b"x", b"y"]);
        all.clear();
        assert_eq!(all.state(&place(1, b"x")), NameState::Unknown);
    }

    #[test]
    fn states() {
        let mut all = Told::default();
        let [a, b] = [ObjectId::of(2, 1), ObjectId::of(2, 2)];
        let state = all.state(&place(1, b"x"));
        assert!(state == NameState::Unknown && state.may_be(a) && !state.is(a));
        all.begin(ObjectId::of(1, 1));
        let state = all.state(&place(1, b"x"));
        assert!(state == NameState::Gone(true) && !state.may_be(a));
        all.note(&place(1, b"x"), told(1, true));
        let state = all.state(&place(1, b"x"));
        assert!(state.is(a) && state.may_be(a) && !state.may_be(b) && !state.is_looked_at());
        all.note(&place(1, b"x"), told(1, false));
        assert_eq!(all.state(&place(1, b"x")), NameState::Gone(false));
        all.forget(ObjectId::of(1, 1));
        assert_eq!(all.state(&place(1, b"x")), NameState::Unknown);
        assert_eq!(all.count, 0);
    }

    #[test]
    fn there_is_a_maximum_beyond_which_nothing_is_taken_for_untold() {
        let mut all = Told::default();
        all.begin(ObjectId::of(1, 2));
        for n in 0..NAMES_MAX as u64 + 10 {
            all.note(&place(1, &n.to_le_bytes()), told(n, true));
        }
        assert_eq!(all.count, NAMES_MAX);
        assert_eq!(all.state(&place(2, b"x")), NameState::Unknown);
        all.clear();
        assert_eq!((all.count, all.is_full), (0, false));
    }
}

//! What the names of objects went through since the queue was last empty, to find what the kernel
//! has hidden.
//!
//! The kernel merges an event into an earlier one of the same process, object, directory and name
//! that still waits in the queue. If a process renames `a` to `b`, back to `a`, and to `b` again,
//! the third event is merged into the first, and what can be read says that the name is `a`. So an
//! object that comes back to a place is looked at when the queue is empty.

use std::collections::HashMap;

use crate::event::ObjectId;
use crate::fanotify::parse::RawPlace;

/// Most objects that are noted in a run. With further ones, what merging hides stays hidden.
const OBJECTS_MAX: usize = 8_192;
/// Most places of an object that are noted.
const PLACES_MAX: usize = 16;

/// The objects of a run.
#[derive(Default)]
pub(super) struct Run {
    objects: HashMap<ObjectId, RunObject>,
    doubtful: Vec<ObjectId>,
}

/// An object and the places that it had.
pub(super) struct RunObject {
    pub(super) target: ObjectId,
    pub(super) is_directory: bool,
    pub(super) places: Vec<RunPlace>,
    is_doubtful: bool,
}

/// A place, and whether the object is there as far as the events say.
pub(super) struct RunPlace {
    directory: ObjectId,
    name: Box<[u8]>,
    pub(super) is_there: bool,
}

impl RunPlace {
    pub(super) fn as_raw(&self) -> RawPlace<'_> {
        RawPlace {
            directory: self.directory,
            name: &self.name,
        }
    }
}

impl Run {
    /// Takes in that an object has come to a place, or has left it.
    pub(super) fn note(
        &mut self,
        target: ObjectId,
        place: &RawPlace<'_>,
        is_directory: bool,
        is_there: bool,
    ) {
        let is_full = self.objects.len() >= OBJECTS_MAX;
        if is_full && !self.objects.contains_key(&target) {
            return;
        }
        let object = self.objects.entry(target).or_insert_with(|| RunObject {
            target,
            is_directory,
            places: Vec::new(),
            is_doubtful: false,
        });
        let same = |known: &&mut RunPlace| known.as_raw() == *place;
        if let Some(known) = object.places.iter_mut().find(same) {
            // Leaving the place to which it came is what is to be expected.
            let is_back = known.is_there == is_there || is_there;
            known.is_there = is_there;
            if is_back && !object.is_doubtful {
                object.is_doubtful = true;
                self.doubtful.push(target);
            }
        } else if object.places.len() < PLACES_MAX {
            object.places.push(RunPlace {
                directory: place.directory,
                name: place.name.into(),
                is_there,
            });
        }
    }

    /// Takes in that the number of links of an object has changed, or something else that has no
    /// place: a name may have come back that the events do not say.
    pub(super) fn note_change(&mut self, target: ObjectId) {
        let Some(object) = self.objects.get_mut(&target) else {
            return;
        };
        if object.places.len() > 1 && !object.is_doubtful {
            object.is_doubtful = true;
            self.doubtful.push(target);
        }
    }

    /// The last place of an object, as far as the events say.
    pub(super) fn place(&self, target: ObjectId) -> Option<(ObjectId, Box<[u8]>)> {
        let places = &self.objects.get(&target)?.places;
        let place = places.iter().rev().find(|place| place.is_there)?;
        Some((place.directory, place.name.clone()))
    }

    /// Ends the run, and gives the objects whose places are doubtful.
    pub(super) fn end(&mut self) -> Vec<RunObject> {
        let doubtful = std::mem::take(&mut self.doubtful);
        let objects = &mut self.objects;
        let found = doubtful.iter().filter_map(|target| objects.remove(target));
        let found = found.collect();
        self.objects.clear();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &[u8]) -> RawPlace<'_> {
        RawPlace {
            directory: ObjectId::of(1, 1),
            name,
        }
    }

    #[test]
    fn an_object_that_comes_back_is_doubtful() {
        let [a, b] = [ObjectId::of(1, 2), ObjectId::of(1, 3)];
        let mut run = Run::default();
        for (target, name, is_there) in [
            (a, &b"x"[..], true),
            (a, b"x", false),
            (a, b"y", true),
            (b, b"x", true),
            (b, b"x", false),
        ] {
            run.note(target, &place(name), false, is_there);
        }
        run.note_change(b);
        assert!(run.end().is_empty());
        for (name, is_there) in [
            (&b"x"[..], false),
            (b"y", true),
            (b"y", false),
            (b"x", true),
        ] {
            run.note(a, &place(name), false, is_there);
        }
        run.note(b, &place(b"x"), false, true);
        run.note(b, &place(b"y"), false, true);
        run.note_change(b);
        let found = run.end();
        let targets: Vec<_> = found.iter().map(|object| object.target).collect();
        assert_eq!(targets, [a, b]);
        let there = found[0].places.iter().map(|place| place.is_there);
        assert_eq!(there.collect::<Vec<_>>(), [true, false]);
        assert!(run.end().is_empty());
    }

    #[test]
    fn there_are_maxima() {
        let mut run = Run::default();
        for n in 0..2 * OBJECTS_MAX as u64 {
            run.note(ObjectId::of(1, n), &place(b"x"), false, true);
        }
        assert_eq!(run.objects.len(), OBJECTS_MAX);
        for n in 0..100u8 {
            run.note(ObjectId::of(1, 0), &place(&[n]), false, true);
        }
        assert_eq!(run.objects[&ObjectId::of(1, 0)].places.len(), PLACES_MAX);
    }
}

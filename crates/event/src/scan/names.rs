//! The names of a directory that is read, in little memory.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use crate::event::ObjectId;

/// The names of one directory, each with its object, by the hashes of the names.
#[derive(Debug, Default)]
pub(crate) struct Names {
    objects: HashMap<u64, ObjectId>,
    state: RandomState,
}

impl Names {
    pub(crate) fn get(&self, name: &[u8]) -> Option<ObjectId> {
        self.objects.get(&self.state.hash_one(name)).copied()
    }

    pub(crate) fn insert(&mut self, name: &[u8], id: ObjectId) {
        self.objects.insert(self.state.hash_one(name), id);
    }

    pub(crate) fn remove(&mut self, name: &[u8]) {
        self.objects.remove(&self.state.hash_one(name));
    }

    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }
}

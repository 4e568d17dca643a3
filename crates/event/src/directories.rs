//! The places of directories: for each one its parent and its name, so that a path is found without
//! asking anybody, and renaming a directory is one change.
//!
//! A million directories take some 36 MB, which decides the layout: slots of 18 bytes that know
//! their parents by slot, names in blocks, and an index of slots.

mod index;
mod names;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use hashbrown::HashTable;

use crate::event::{ObjectId, PATH_BYTES_MAX};
use index::SlotIndex;
use names::{NAMELESS, Names};

/// Slots in a block. Blocks do not move, so that growing copies nothing.
const BLOCK: usize = 4_096;
/// The parent of a root.
const ROOT: u32 = u32::MAX;
/// Numbers of first halves from this one on have no room in a slot.
const FAR: u16 = u16::MAX;
/// Most components of a path: a longer way up is a circle.
const DEPTH_MAX: usize = PATH_BYTES_MAX / 2;

/// A directory by its slot, in words of 16 bits, so that it has no gaps.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Number of the first half of its id, or [`FAR`].
    high: u16,
    low: [u16; 4],
    parent: [u16; 2],
    name: [u16; 2],
}

const FREE: Slot = Slot {
    high: 0,
    low: [0; 4],
    parent: [0; 2],
    name: halved(NAMELESS),
};

impl Slot {
    fn parent(&self) -> u32 {
        joined(self.parent)
    }

    fn name(&self) -> u32 {
        joined(self.name)
    }
}

const fn halved(word: u32) -> [u16; 2] {
    [(word >> 16) as u16, word as u16]
}

const fn joined([high, low]: [u16; 2]) -> u32 {
    (high as u32) << 16 | low as u32
}

/// The way from a directory to the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathOf {
    /// The path from the root on.
    Whole(Vec<u8>),
    /// The end of the path, and the directory whose parent and name are not known.
    From(ObjectId, Vec<u8>),
}

/// The reason why a directory was not taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathFault {
    /// There are as many directories as allowed.
    Full,
    /// The name is longer than a path may be.
    Name,
}

/// Parents and names of directories, by id.
#[derive(Debug)]
pub struct DirectoryTable {
    blocks: Vec<Box<[Slot]>>,
    /// Slots that were used before, by their numbers.
    free: Vec<u32>,
    /// Number of slots that were ever used.
    used: u32,
    index: SlotIndex,
    /// The first halves of ids: device, file system or sequence, of which there are few.
    highs: Vec<u64>,
    high_index: HashTable<u32>,
    /// Numbers of the first halves of slots that have no room for them.
    far: HashMap<u32, u32>,
    names: Names,
    /// Number of directories whose place is known.
    known: usize,
    directories_max: usize,
}

impl DirectoryTable {
    /// An empty table of at most `directories_max` directories.
    pub fn new(directories_max: usize) -> Self {
        Self {
            blocks: Vec::new(),
            free: Vec::new(),
            used: 0,
            index: SlotIndex::default(),
            highs: Vec::new(),
            high_index: HashTable::new(),
            far: HashMap::new(),
            names: Names::default(),
            known: 0,
            directories_max: directories_max.min(ROOT as usize - 1),
        }
    }

    /// Number of directories whose place is known.
    pub fn len(&self) -> usize {
        self.known
    }

    /// Whether no directory is known.
    pub fn is_empty(&self) -> bool {
        self.known == 0
    }

    /// Bytes of memory of the table.
    pub fn bytes(&self) -> usize {
        self.blocks.len() * BLOCK * size_of::<Slot>()
            + self.free.capacity() * size_of::<u32>()
            + self.index.bytes()
            + self.far.capacity() * size_of::<(u32, u32)>()
            + self.highs.capacity() * size_of::<u64>()
            + self.high_index.allocation_size()
            + self.names.bytes()
    }

    /// Takes in a root with its path, such as the mount point.
    ///
    /// # Errors
    ///
    /// The table is full, or the path is too long.
    pub fn insert_root(&mut self, id: ObjectId, path: &[u8]) -> Result<(), PathFault> {
        self.place(id, None, path)
    }

    /// Takes in that a directory has this parent and name; if it had others, it was moved. The
    /// parent need not be known yet.
    ///
    /// # Errors
    ///
    /// The table is full, or the name is too long.
    pub fn insert(&mut self, id: ObjectId, parent: ObjectId, name: &[u8]) -> Result<(), PathFault> {
        self.place(id, Some(parent), name)
    }

    /// Parent and name of a directory; the parent of a root is `None`.
    pub fn get(&self, id: ObjectId) -> Option<(Option<ObjectId>, &[u8])> {
        let slot = self.slot(self.find(id)?);
        let name = self.names.get(slot.name())?;
        let parent = (slot.parent() != ROOT).then(|| self.id_of(slot.parent()));
        Some((parent, name))
    }

    /// Whether the place of a directory is known.
    pub fn has(&self, id: ObjectId) -> bool {
        self.get(id).is_some()
    }

    /// Forgets a directory. What is below it is known still, with an incomplete path.
    pub fn remove(&mut self, id: ObjectId) -> bool {
        let Some(at) = self.find(id) else {
            return false;
        };
        let slot = self.slot(at);
        if slot.name() == NAMELESS {
            return false;
        }
        self.names.give_back(slot.name());
        self.known -= 1;
        let slot = self.slot_mut(at);
        (slot.name, slot.parent) = (halved(NAMELESS), halved(ROOT));
        self.tidy();
        true
    }

    /// The path of a directory.
    pub fn path(&self, id: ObjectId) -> PathOf {
        self.path_of(id, &[])
    }

    /// The path of a name in a directory.
    pub fn path_in(&self, parent: ObjectId, name: &[u8]) -> PathOf {
        self.path_of(parent, name)
    }

    /// The directories below one, without itself. It looks at all directories.
    pub fn below(&self, id: ObjectId) -> Vec<ObjectId> {
        let Some(top) = self.find(id) else {
            return Vec::new();
        };
        let used = (0..self.used).filter(|at| self.slot(*at).name() != NAMELESS);
        let below = used.filter(|at| *at != top && self.is_below(*at, top));
        below.map(|at| self.id_of(at)).collect()
    }

    /// The directories whose path does not begin at a root. It looks at all directories.
    pub(crate) fn astray(&self) -> Vec<ObjectId> {
        let used = (0..self.used).filter(|at| self.slot(*at).name() != NAMELESS);
        let ids = used.map(|at| self.id_of(at));
        ids.filter(|id| matches!(self.path(*id), PathOf::From(..)))
            .collect()
    }

    fn place(
        &mut self,
        id: ObjectId,
        parent: Option<ObjectId>,
        name: &[u8],
    ) -> Result<(), PathFault> {
        if name.len() > PATH_BYTES_MAX {
            return Err(PathFault::Name);
        }
        let found = self.find(id);
        let is_known = found.is_some_and(|at| self.slot(at).name() != NAMELESS);
        if !is_known && self.known >= self.directories_max {
            return Err(PathFault::Full);
        }
        let at = found.unwrap_or_else(|| self.add(id));
        let parent = match parent {
            None => ROOT,
            Some(parent) => self.find(parent).unwrap_or_else(|| self.add(parent)),
        };
        let old = self.slot(at).name();
        if self.names.get(old) != Some(name) {
            let new = self.names.put(name).ok_or(PathFault::Full)?;
            self.slot_mut(at).name = halved(new);
            self.names.give_back(old);
        }
        self.slot_mut(at).parent = halved(parent);
        self.known += usize::from(!is_known);
        self.tidy();
        Ok(())
    }

    fn path_of(&self, id: ObjectId, name: &[u8]) -> PathOf {
        let mut parts = Vec::new();
        let mut bytes = 0;
        let mut id = id;
        if !name.is_empty() {
            parts.push(name);
            bytes += 1 + name.len();
        }
        let mut at = self.find(id);
        let mut is_whole = false;
        while let Some(slot) = at.map(|at| self.slot(at)) {
            let Some(part) = self.names.get(slot.name()) else {
                break;
            };
            parts.push(part);
            bytes += 1 + part.len();
            if slot.parent() == ROOT {
                is_whole = true;
                break;
            }
            id = self.id_of(slot.parent());
            if parts.len() > DEPTH_MAX || bytes > PATH_BYTES_MAX {
                break;
            }
            at = Some(slot.parent());
        }
        let mut path = Vec::with_capacity(bytes);
        for part in parts.iter().rev() {
            if !path.is_empty() && path.last() != Some(&b'/') {
                path.push(b'/');
            }
            path.extend(*part);
        }
        match is_whole {
            true => PathOf::Whole(path),
            false => PathOf::From(id, path),
        }
    }

    fn is_below(&self, at: u32, top: u32) -> bool {
        let mut at = at;
        for _ in 0..DEPTH_MAX {
            let parent = self.slot(at).parent();
            if parent == top {
                return true;
            }
            if parent == ROOT || self.slot(at).name() == NAMELESS {
                return false;
            }
            at = parent;
        }
        false
    }

    fn slot(&self, at: u32) -> Slot {
        self.blocks[at as usize / BLOCK][at as usize % BLOCK]
    }

    fn slot_mut(&mut self, at: u32) -> &mut Slot {
        &mut self.blocks[at as usize / BLOCK][at as usize % BLOCK]
    }

    fn find(&self, id: ObjectId) -> Option<u32> {
        let (high, low) = halves(id);
        let high = self.find_high(high)?;
        let (near, low_words) = (near(high), words(low));
        let is_it = |at: u32| {
            let slot = self.slot(at);
            let is_like = slot.high == near && slot.low == low_words;
            is_like && (near != FAR || self.far.get(&at) == Some(&high))
        };
        self.index.find(hash(high, low), is_it)
    }

    fn find_high(&self, high: u64) -> Option<u32> {
        let is_it = |at: &u32| self.highs[*at as usize] == high;
        let found = self.high_index.find(mix(high), is_it);
        found.copied()
    }

    /// Adds a directory of which only the id is known.
    fn add(&mut self, id: ObjectId) -> u32 {
        let (high, low) = halves(id);
        let high = self.find_high(high).unwrap_or_else(|| {
            let at = self.highs.len() as u32;
            self.highs.push(high);
            let highs = &self.highs;
            let hash_of = |at: &u32| mix(highs[*at as usize]);
            self.high_index.insert_unique(mix(high), at, hash_of);
            at
        });
        let at = self.free.pop().unwrap_or_else(|| {
            if self.used as usize == self.blocks.len() * BLOCK {
                self.blocks.push(vec![FREE; BLOCK].into());
            }
            self.used += 1;
            self.used - 1
        });
        *self.slot_mut(at) = Slot {
            high: near(high),
            low: words(low),
            parent: halved(ROOT),
            name: halved(NAMELESS),
        };
        if near(high) == FAR {
            self.far.insert(at, high);
        }
        let (blocks, far) = (&self.blocks, &self.far);
        let hash_of = |at: u32| {
            let slot = blocks[at as usize / BLOCK][at as usize % BLOCK];
            hash(high_of(&slot, at, far), number(slot.low))
        };
        self.index.insert(hash(high, low), at, hash_of);
        at
    }

    fn id_of(&self, at: u32) -> ObjectId {
        let slot = self.slot(at);
        let high = high_of(&slot, at, &self.far);
        ObjectId::of(self.highs[high as usize], number(slot.low))
    }

    /// Gives back the slots of directories of which only the id is known and which are no parents,
    /// when they are many, and the names that are no longer used.
    fn tidy(&mut self) {
        let slots = self.index.len();
        if slots > 2 * self.known + BLOCK {
            let mut is_parent = vec![false; self.used as usize];
            for slot in (0..self.used).map(|at| self.slot(at)) {
                if slot.name() != NAMELESS && slot.parent() != ROOT {
                    is_parent[slot.parent() as usize] = true;
                }
            }
            self.drop_slots(&is_parent);
        }
        if self.names.is_wasteful() {
            let mut names = Names::default();
            for at in 0..self.used {
                let old = self.slot(at).name();
                // They take no more room than before.
                if let Some(new) = self.names.get(old).and_then(|name| names.put(name)) {
                    self.slot_mut(at).name = halved(new);
                }
            }
            self.names = names;
        }
    }

    /// Gives back the slots of directories of which only the id is known, unless they are kept.
    fn drop_slots(&mut self, is_kept: &[bool]) {
        let mut is_free = vec![false; self.used as usize];
        self.free.iter().for_each(|at| is_free[*at as usize] = true);
        let mut index = SlotIndex::default();
        for at in 0..self.used {
            let slot = self.slot(at);
            if is_free[at as usize] {
                continue;
            }
            if slot.name() == NAMELESS && !is_kept[at as usize] {
                self.far.remove(&at);
                *self.slot_mut(at) = FREE;
                self.free.push(at);
                continue;
            }
            let (blocks, far) = (&self.blocks, &self.far);
            let hash_of = |at: u32| {
                let slot = blocks[at as usize / BLOCK][at as usize % BLOCK];
                hash(high_of(&slot, at, far), number(slot.low))
            };
            index.insert(hash_of(at), at, hash_of);
        }
        self.index = index;
    }
}

/// The number of a first half as a slot has it.
fn near(high: u32) -> u16 {
    u16::try_from(high).unwrap_or(FAR)
}

fn high_of(slot: &Slot, at: u32, far: &HashMap<u32, u32>) -> u32 {
    match slot.high {
        FAR => far.get(&at).copied().unwrap_or(0),
        high => u32::from(high),
    }
}

fn words(number: u64) -> [u16; 4] {
    [48, 32, 16, 0].map(|by| (number >> by) as u16)
}

fn number(words: [u16; 4]) -> u64 {
    words
        .iter()
        .fold(0, |number, word| number << 16 | u64::from(*word))
}

fn halves(id: ObjectId) -> (u64, u64) {
    let half = |at: usize| {
        let bytes = id.0[at..].first_chunk().copied();
        bytes.map_or(0, u64::from_be_bytes)
    };
    (half(0), half(8))
}

fn hash(high: u32, low: u64) -> u64 {
    mix(low ^ u64::from(high).rotate_left(40))
}

/// The finishing step of MurmurHash3.
fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let word = (word ^ word >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    word ^ word >> 33
}

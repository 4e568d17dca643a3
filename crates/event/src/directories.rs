//! The places of directories: for each one its parent and its name, so that a path is found without
//! asking anybody, and renaming a directory is one change.
//!
//! A million directories take some 45 MB, which decides the layout: slots of 20 bytes that know
//! their parents by slot, names in blocks, and an index of slots.

use hashbrown::HashTable;

use crate::event::{ObjectId, PATH_BYTES_MAX};

/// Slots in a block. Blocks do not move, so that growing copies nothing.
const BLOCK: usize = 4_096;
/// Bytes of a block of names.
const NAMES_BLOCK: usize = 64 << 10;
/// The parent of a root.
const ROOT: u32 = u32::MAX;
/// The name of a directory of which only the id is known.
const NAMELESS: u32 = u32::MAX;
/// Most components of a path: a longer way up is a circle.
const DEPTH_MAX: usize = PATH_BYTES_MAX / 2;
/// Bytes of names that are no longer used, from which on the names are written anew.
const WASTE_MIN: usize = 1 << 20;

/// A directory by its slot.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Number of the first half of its id.
    high: u32,
    low: [u32; 2],
    parent: u32,
    name: u32,
}

const FREE: Slot = Slot {
    high: u32::MAX,
    low: [0; 2],
    parent: 0,
    name: NAMELESS,
};

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
    index: HashTable<u32>,
    /// The first halves of ids: device, file system or sequence, of which there are few.
    highs: Vec<u64>,
    high_index: HashTable<u32>,
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
            index: HashTable::new(),
            highs: Vec::new(),
            high_index: HashTable::new(),
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
            + self.index.allocation_size()
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
        let name = self.names.get(slot.name)?;
        let parent = (slot.parent != ROOT).then(|| self.id_of(slot.parent));
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
        if slot.name == NAMELESS {
            return false;
        }
        self.names.give_back(slot.name);
        self.known -= 1;
        let slot = self.slot_mut(at);
        (slot.name, slot.parent) = (NAMELESS, ROOT);
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
        let used = (0..self.used).filter(|at| self.slot(*at).name != NAMELESS);
        let below = used.filter(|at| *at != top && self.is_below(*at, top));
        below.map(|at| self.id_of(at)).collect()
    }

    /// The directories whose path does not begin at a root. It looks at all directories.
    pub(crate) fn astray(&self) -> Vec<ObjectId> {
        let used = (0..self.used).filter(|at| self.slot(*at).name != NAMELESS);
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
        let is_known = found.is_some_and(|at| self.slot(at).name != NAMELESS);
        if !is_known && self.known >= self.directories_max {
            return Err(PathFault::Full);
        }
        let at = found.unwrap_or_else(|| self.add(id));
        let parent = match parent {
            None => ROOT,
            Some(parent) => self.find(parent).unwrap_or_else(|| self.add(parent)),
        };
        let old = self.slot(at).name;
        if self.names.get(old) != Some(name) {
            let new = self.names.put(name);
            self.slot_mut(at).name = new;
            self.names.give_back(old);
        }
        self.slot_mut(at).parent = parent;
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
            let Some(part) = self.names.get(slot.name) else {
                break;
            };
            parts.push(part);
            bytes += 1 + part.len();
            if slot.parent == ROOT {
                is_whole = true;
                break;
            }
            id = self.id_of(slot.parent);
            if parts.len() > DEPTH_MAX || bytes > PATH_BYTES_MAX {
                break;
            }
            at = Some(slot.parent);
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
            let parent = self.slot(at).parent;
            if parent == top {
                return true;
            }
            if parent == ROOT || self.slot(at).name == NAMELESS {
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
        let is_it = |at: &u32| {
            let slot = self.slot(*at);
            slot.high == high && slot.low == low
        };
        self.index.find(hash(high, low), is_it).copied()
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
            high,
            low,
            parent: ROOT,
            name: NAMELESS,
        };
        let blocks = &self.blocks;
        let hash_of = |at: &u32| {
            let slot = blocks[*at as usize / BLOCK][*at as usize % BLOCK];
            hash(slot.high, slot.low)
        };
        self.index.insert_unique(hash(high, low), at, hash_of);
        at
    }

    fn id_of(&self, at: u32) -> ObjectId {
        let slot = self.slot(at);
        let low = u64::from(slot.low[0]) << 32 | u64::from(slot.low[1]);
        ObjectId::of(self.highs[slot.high as usize], low)
    }

    /// Gives back the slots of directories of which only the id is known and which are no parents,
    /// when they are many, and the names that are no longer used.
    fn tidy(&mut self) {
        let slots = self.index.len();
        if slots > 2 * self.known + BLOCK {
            let used = 0..self.used;
            let mut is_parent = vec![false; self.used as usize];
            for slot in used.clone().map(|at| self.slot(at)) {
                if slot.name != NAMELESS && slot.parent != ROOT {
                    is_parent[slot.parent as usize] = true;
                }
            }
            let (blocks, free) = (&mut self.blocks, &mut self.free);
            self.index.retain(|at| {
                let slot = &mut blocks[*at as usize / BLOCK][*at as usize % BLOCK];
                let is_kept = slot.name != NAMELESS || is_parent[*at as usize];
                if !is_kept {
                    *slot = FREE;
                    free.push(*at);
                }
                is_kept
            });
        }
        if self.names.waste > WASTE_MIN && self.names.waste > self.names.written / 2 {
            let mut names = Names::default();
            for at in 0..self.used {
                let old = self.slot(at).name;
                if let Some(name) = self.names.get(old) {
                    self.slot_mut(at).name = names.put(name);
                }
            }
            self.names = names;
        }
    }
}

/// Names in blocks, each with its length before it.
#[derive(Debug, Default)]
struct Names {
    blocks: Vec<Box<[u8]>>,
    /// Bytes of the last block that are used.
    filled: usize,
    /// Bytes of all names, and of those that are no longer used.
    written: usize,
    waste: usize,
}

impl Names {
    fn bytes(&self) -> usize {
        self.blocks.len() * NAMES_BLOCK
    }

    /// A name; `None` for [`NAMELESS`].
    fn get(&self, at: u32) -> Option<&[u8]> {
        if at == NAMELESS {
            return None;
        }
        // Names begin at even places, so that their places fit into 32 bits twice as long.
        let at = at as usize * 2;
        let block = &self.blocks[at / NAMES_BLOCK];
        let at = at % NAMES_BLOCK;
        let length = usize::from(u16::from_le_bytes([block[at], block[at + 1]]));
        Some(&block[at + 2..at + 2 + length])
    }

    fn put(&mut self, name: &[u8]) -> u32 {
        let bytes = stored_bytes(name);
        if self.blocks.is_empty() || self.filled + bytes > NAMES_BLOCK {
            self.blocks.push(vec![0; NAMES_BLOCK].into());
            self.filled = 0;
        }
        let start = (self.blocks.len() - 1) * NAMES_BLOCK + self.filled;
        if let Some(block) = self.blocks.last_mut() {
            let at = self.filled;
            block[at..at + 2].copy_from_slice(&(name.len() as u16).to_le_bytes());
            block[at + 2..at + 2 + name.len()].copy_from_slice(name);
        }
        self.filled += bytes;
        self.written += bytes;
        (start / 2) as u32
    }

    fn give_back(&mut self, at: u32) {
        self.waste += self.get(at).map_or(0, stored_bytes);
    }
}

fn stored_bytes(name: &[u8]) -> usize {
    (2 + name.len()).next_multiple_of(2)
}

fn halves(id: ObjectId) -> (u64, [u32; 2]) {
    let word = |at: usize| u32::from_be_bytes([id.0[at], id.0[at + 1], id.0[at + 2], id.0[at + 3]]);
    let high = u64::from(word(0)) << 32 | u64::from(word(4));
    (high, [word(8), word(12)])
}

fn hash(high: u32, low: [u32; 2]) -> u64 {
    let low = u64::from(low[0]) << 32 | u64::from(low[1]);
    mix(low ^ u64::from(high).rotate_left(40))
}

/// The finishing step of MurmurHash3.
fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let word = (word ^ word >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    word ^ word >> 33
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn id(n: u64) -> ObjectId {
        ObjectId::of(7 + n % 3, n)
    }

    fn whole(path: &str) -> PathOf {
        PathOf::Whole(path.into())
    }

    #[test]
    fn a_renamed_directory_is_one_change() {
        let mut table = DirectoryTable::new(100);
        table.insert_root(id(1), b"/mnt").unwrap();
        table.insert(id(2), id(1), b"a").unwrap();
        table.insert(id(3), id(2), b"b").unwrap();
        assert_eq!(table.path(id(3)), whole("/mnt/a/b"));
        assert_eq!(table.path_in(id(3), b"f"), whole("/mnt/a/b/f"));
        table.insert(id(2), id(1), b"other").unwrap();
        assert_eq!(table.path_in(id(3), b"f"), whole("/mnt/other/b/f"));
        assert_eq!(table.below(id(1)).len(), 2);
        assert!(table.remove(id(2)) && !table.remove(id(2)));
        assert_eq!(table.path(id(3)), PathOf::From(id(2), b"b".into()));
        assert_eq!(table.path(id(9)), PathOf::From(id(9), Vec::new()));
        assert_eq!((table.len(), table.below(id(1)).len()), (2, 0));
        table.insert(id(2), id(1), b"back").unwrap();
        assert_eq!(table.path(id(3)), whole("/mnt/back/b"));
        assert_eq!(table.get(id(1)), Some((None, &b"/mnt"[..])));
    }

    #[test]
    fn a_child_may_come_before_its_parent_and_the_root_may_be_the_whole_file_system() {
        let mut table = DirectoryTable::new(100);
        table.insert(id(3), id(2), b"b").unwrap();
        assert!(!table.has(id(2)));
        assert_eq!(table.path(id(3)), PathOf::From(id(2), b"b".into()));
        table.insert_root(id(2), b"/").unwrap();
        assert_eq!(table.path_in(id(3), b"c"), whole("/b/c"));
    }

    #[test]
    fn circles_and_long_ways_end() {
        let mut table = DirectoryTable::new(10_000);
        table.insert(id(1), id(2), b"a").unwrap();
        table.insert(id(2), id(1), b"b").unwrap();
        assert!(matches!(table.path(id(1)), PathOf::From(..)));
        assert_eq!(table.below(id(9)).len(), 0);
        for n in 10..5_000 {
            table.insert(id(n), id(n + 1), b"xxxxxxxx").unwrap();
        }
        let PathOf::From(_, path) = table.path(id(10)) else {
            panic!("it has no root");
        };
        assert!(path.len() <= PATH_BYTES_MAX + 300);
    }

    #[test]
    fn there_is_a_maximum_and_what_is_known_may_move_still() {
        let mut table = DirectoryTable::new(2);
        table.insert_root(id(1), b"/").unwrap();
        table.insert(id(2), id(1), b"a").unwrap();
        assert_eq!(table.insert(id(3), id(1), b"b"), Err(PathFault::Full));
        table.insert(id(2), id(1), b"c").unwrap();
        assert_eq!(table.path(id(2)), whole("/c"));
        assert_eq!(
            table.insert(id(2), id(1), &[b'x'; PATH_BYTES_MAX + 1]),
            Err(PathFault::Name)
        );
    }

    #[test]
    fn places_and_names_are_used_again() {
        let mut table = DirectoryTable::new(1 << 20);
        table.insert_root(id(0), b"/").unwrap();
        let mut most = 0;
        for n in 1..2_000_000u64 {
            table.insert(id(n), id(0), b"a name of some bytes").unwrap();
            table.remove(id(n));
            most = most.max(table.bytes());
        }
        assert_eq!(table.len(), 1);
        assert!(most < 8 << 20, "{most}");
    }

    #[test]
    fn a_million_directories_take_forty_five_megabytes() {
        let mut table = DirectoryTable::new(2 << 20);
        table.insert_root(id(0), b"/").unwrap();
        for n in 1..=1_000_000u64 {
            let name = format!("run-{n:07}");
            table.insert(id(n), id(n / 8), name.as_bytes()).unwrap();
        }
        assert_eq!(table.len(), 1_000_001);
        assert!(table.bytes() <= 45_000_000, "{}", table.bytes());
        let PathOf::Whole(path) = table.path(id(1_000_000)) else {
            panic!("the root is known");
        };
        assert_eq!(path.iter().filter(|byte| **byte == b'/').count(), 7);
    }

    proptest! {
        #[test]
        fn it_is_as_a_map_of_paths(changes in proptest::collection::vec(
            (1u64..12, 0u64..12, "[a-c]{1,3}", any::<bool>()), 0..60,
        )) {
            let mut table = DirectoryTable::new(1_000);
            let mut model: BTreeMap<u64, (u64, String)> = BTreeMap::new();
            table.insert_root(id(0), b"/r").unwrap();
            for (of, parent, name, is_removed) in changes {
                if is_removed {
                    prop_assert_eq!(table.remove(id(of)), model.remove(&of).is_some());
                } else if of != parent {
                    table.insert(id(of), id(parent), name.as_bytes()).unwrap();
                    model.insert(of, (parent, name));
                }
            }
            prop_assert_eq!(table.len(), model.len() + 1);
            for of in 1..12 {
                let (mut at, mut parts) = (of, Vec::new());
                while let Some((parent, name)) = model.get(&at) {
                    if parts.len() > 20 {
                        break;
                    }
                    parts.push(name.clone());
                    at = *parent;
                }
                match table.path(id(of)) {
                    PathOf::Whole(path) => {
                        parts.push("/r".into());
                        parts.reverse();
                        prop_assert_eq!(path, parts.join("/").into_bytes());
                        prop_assert_eq!(at, 0);
                    }
                    PathOf::From(..) => prop_assert_ne!(at, 0),
                }
            }
        }
    }
}

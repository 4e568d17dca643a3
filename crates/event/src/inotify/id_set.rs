//! A set of directories by identity, in some 15 bytes each.

use hashbrown::HashTable;

use crate::event::ObjectId;

/// A member: the number of its device, and its inode number in two words, so that it has no gaps.
type Member = (u32, [u32; 2]);

/// A set of directories.
#[derive(Debug, Default)]
pub(super) struct IdSet {
    members: HashTable<Member>,
    devices: Vec<u64>,
}

impl IdSet {
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(super) fn insert(&mut self, id: ObjectId) {
        let (device, inode) = halves(id);
        let found = self.devices.iter().position(|of| *of == device);
        let at = found.unwrap_or_else(|| {
            self.devices.push(device);
            self.devices.len() - 1
        });
        let member = (at as u32, split(inode));
        let devices = &self.devices;
        let hash_of = |member: &Member| hash(id_of(devices, member));
        let entry = self.members.entry(hash(id), |of| *of == member, hash_of);
        entry.or_insert(member);
    }

    pub(super) fn remove(&mut self, id: ObjectId) {
        let (device, inode) = halves(id);
        let Some(at) = self.devices.iter().position(|of| *of == device) else {
            return;
        };
        let member = (at as u32, split(inode));
        if let Ok(entry) = self.members.find_entry(hash(id), |of| *of == member) {
            entry.remove();
        }
        if self.members.is_empty() {
            // There may have been many.
            *self = Self::default();
        }
    }

    /// All members, sorted.
    pub(super) fn sorted(&self) -> Vec<ObjectId> {
        let members = self.members.iter();
        let mut ids: Vec<_> = members.map(|member| id_of(&self.devices, member)).collect();
        ids.sort_unstable();
        ids
    }
}

fn split(inode: u64) -> [u32; 2] {
    [(inode >> 32) as u32, inode as u32]
}

fn id_of(devices: &[u64], (device, [high, low]): &Member) -> ObjectId {
    let inode = u64::from(*high) << 32 | u64::from(*low);
    ObjectId::of(devices[*device as usize], inode)
}

pub(super) fn halves(id: ObjectId) -> (u64, u64) {
    let half = |at: usize| {
        let bytes = id.0[at..].first_chunk().copied();
        bytes.map_or(0, u64::from_be_bytes)
    };
    (half(0), half(8))
}

/// The finishing step of MurmurHash3, of both halves.
pub(super) fn hash(id: ObjectId) -> u64 {
    let (high, low) = halves(id);
    let word = low ^ high.rotate_left(40);
    let word = (word ^ word >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let word = (word ^ word >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    word ^ word >> 33
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_as_a_set(changes in proptest::collection::vec((0u64..60, any::<bool>()), 0..300)) {
            let (mut set, mut model) = (IdSet::default(), BTreeSet::new());
            let id = |n: u64| ObjectId::of(n % 3, n << 30);
            for (n, is_removed) in changes {
                if is_removed {
                    set.remove(id(n));
                    model.remove(&id(n));
                } else {
                    set.insert(id(n));
                    model.insert(id(n));
                }
                prop_assert_eq!((set.len(), set.is_empty()), (model.len(), model.is_empty()));
            }
            prop_assert_eq!(set.sorted(), model.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn members_are_small() {
        let mut set = IdSet::default();
        (0..900_000).for_each(|n| set.insert(ObjectId::of(7, n)));
        assert!(
            set.members.allocation_size() <= 14_000_000,
            "{}",
            set.members.allocation_size()
        );
    }
}

//! What a store knows: the blocks of each user, where their copies are, and what is dirty.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::block::{BlockInfo, UserId};
use crate::bytes::{ByteReader, BytesFault};
use crate::key::BlockKey;
use crate::memory::MemoryBlock;
use crate::tier::{Budget, FileCopy};

/// What has happened in a store since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCounts {
    /// Blocks that were put.
    pub puts: u64,
    /// Puts that waited for room.
    pub puts_waited: u64,
    /// Puts that were refused because no tier had room.
    pub refused_full: u64,
    /// Puts that were refused after they had waited.
    pub refused_busy: u64,
    /// Reads from memory.
    pub gets_memory: u64,
    /// Reads from files.
    pub gets_file: u64,
    /// Blocks that came back to memory when they were read.
    pub promoted: u64,
    /// Copies that were dropped to make room.
    pub evicted: u64,
    /// Dirty blocks that were copied to a durable tier.
    pub flushed: u64,
    /// Blocks that were moved to a lower tier to make room.
    pub demoted: u64,
    /// Copies to lower tiers that failed and are tried again.
    pub copies_failed: u64,
    /// Copies whose bytes did not have their checksum. They were dropped.
    pub corrupt: u64,
    /// Copies that could not be read. They were dropped if the file is gone.
    pub unreadable: u64,
    /// Files that were found at the start.
    pub found: u64,
    /// Files that were torn, and removed at the start.
    pub torn: u64,
    /// Files of older versions that were removed at the start.
    pub superseded: u64,
    /// Files that are in force no longer and could not be removed.
    pub left_behind: u64,
}

/// What is held in a tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierUse {
    /// Bytes of all users.
    pub bytes: u64,
    /// Bytes that all users may hold.
    pub bytes_max: u64,
    /// Blocks of all users.
    pub blocks: u64,
    /// Blocks that all users may hold.
    pub blocks_max: u64,
    /// How often its disk has failed.
    pub faults: u64,
    /// Whether it is passed over because its disk has failed a short time ago.
    pub is_passed_over: bool,
}

impl StoreCounts {
    /// The counts with their names.
    pub fn named(&self) -> [(&'static str, u64); 17] {
        [
            ("puts", self.puts),
            ("puts_waited", self.puts_waited),
            ("refused_full", self.refused_full),
            ("refused_busy", self.refused_busy),
            ("gets_memory", self.gets_memory),
            ("gets_file", self.gets_file),
            ("promoted", self.promoted),
            ("evicted", self.evicted),
            ("flushed", self.flushed),
            ("demoted", self.demoted),
            ("copies_failed", self.copies_failed),
            ("corrupt", self.corrupt),
            ("unreadable", self.unreadable),
            ("found", self.found),
            ("torn", self.torn),
            ("superseded", self.superseded),
            ("left_behind", self.left_behind),
        ]
    }

    pub(crate) fn decode(reader: &mut ByteReader<'_>) -> Result<Self, BytesFault> {
        Ok(Self {
            puts: reader.u64()?,
            puts_waited: reader.u64()?,
            refused_full: reader.u64()?,
            refused_busy: reader.u64()?,
            gets_memory: reader.u64()?,
            gets_file: reader.u64()?,
            promoted: reader.u64()?,
            evicted: reader.u64()?,
            flushed: reader.u64()?,
            demoted: reader.u64()?,
            copies_failed: reader.u64()?,
            corrupt: reader.u64()?,
            unreadable: reader.u64()?,
            found: reader.u64()?,
            torn: reader.u64()?,
            superseded: reader.u64()?,
            left_behind: reader.u64()?,
        })
    }
}

/// One block of one user.
pub(crate) struct Entry {
    /// A number that no other entry has, so that work on an older one is recognised.
    pub(crate) serial: u64,
    pub(crate) version: u64,
    pub(crate) bytes: u64,
    pub(crate) checksum: u32,
    pub(crate) epoch: u64,
    pub(crate) refetch_us: u32,
    /// Whether it was found at a start after the server was killed.
    pub(crate) is_recovered: bool,
    /// Its place in the queue of dirty blocks.
    pub(crate) dirty: Option<u64>,
    /// Whether it is being copied to a lower tier.
    pub(crate) is_moving: bool,
    pub(crate) memory: Option<Arc<MemoryBlock>>,
    /// Its files, the fastest tier first.
    pub(crate) files: Vec<Arc<FileCopy>>,
    /// The durable file of the version before, which is kept until this one is durable.
    pub(crate) previous: Option<Arc<FileCopy>>,
    pub(crate) used_ns: i64,
    pub(crate) uses: u32,
}

impl Entry {
    pub(crate) fn has_copy(&self) -> bool {
        self.memory.is_some() || !self.files.is_empty()
    }

    /// The fastest tier that has it, as in [`BlockInfo::tier`].
    fn tier(&self) -> u8 {
        match (&self.memory, self.files.first()) {
            (None, Some(file)) => u8::try_from(file.tier + 1).unwrap_or(u8::MAX),
            _ => 0,
        }
    }

    pub(crate) fn add_file(&mut self, copy: Arc<FileCopy>) {
        let at = self.files.partition_point(|file| file.tier < copy.tier);
        self.files.insert(at, copy);
    }
}

/// The blocks of one user.
#[derive(Default)]
pub(crate) struct UserBlocks {
    pub(crate) blocks: BTreeMap<Arc<BlockKey>, Entry>,
    /// The blocks that are dirty, the oldest first.
    pub(crate) dirty: BTreeMap<u64, Arc<BlockKey>>,
    /// The monotonic time until which nothing of this user is flushed, since it failed.
    pub(crate) pause_until_ns: i64,
}

/// Everything that a store knows.
pub(crate) struct State {
    pub(crate) users: BTreeMap<UserId, UserBlocks>,
    /// Room for dirty bytes.
    pub(crate) dirty: Budget,
    /// The epoch in which this server came (back) into the map of servers.
    pub(crate) joined_epoch: u64,
    /// Whether a former life of the server may have acknowledged blocks that are lost.
    pub(crate) may_have_lost: bool,
    pub(crate) counts: StoreCounts,
    /// The user whose block was flushed last.
    pub(crate) flushed_user: UserId,
    next_serial: u64,
}

impl State {
    pub(crate) fn new(dirty: Budget) -> Self {
        Self {
            users: BTreeMap::new(),
            dirty,
            joined_epoch: 0,
            may_have_lost: false,
            counts: StoreCounts::default(),
            flushed_user: 0,
            next_serial: 0,
        }
    }

    pub(crate) fn serial(&mut self) -> u64 {
        self.next_serial += 1;
        self.next_serial
    }

    pub(crate) fn entry(&mut self, user: UserId, key: &BlockKey) -> Option<&mut Entry> {
        self.users.get_mut(&user)?.blocks.get_mut(key)
    }

    /// The entry, if it is still the one with this serial number.
    pub(crate) fn same(&mut self, user: UserId, key: &BlockKey, serial: u64) -> Option<&mut Entry> {
        self.entry(user, key).filter(|entry| entry.serial == serial)
    }

    /// What is told of a block.
    pub(crate) fn info(&self, entry: &Entry) -> BlockInfo {
        BlockInfo {
            version: entry.version,
            bytes: entry.bytes,
            checksum: entry.checksum,
            epoch: entry.epoch,
            is_confirmed: !entry.is_recovered && entry.epoch >= self.joined_epoch,
            is_dirty: entry.dirty.is_some(),
            tier: entry.tier(),
        }
    }

    /// Whether a block that is not here was never put here.
    pub(crate) fn knows_all(&self) -> bool {
        !self.may_have_lost && self.joined_epoch == 0
    }

    /// Takes a block out of the queue of dirty ones.
    pub(crate) fn make_clean(&mut self, user: UserId, key: &BlockKey) {
        let Some(blocks) = self.users.get_mut(&user) else {
            return;
        };
        let Some(entry) = blocks.blocks.get_mut(key) else {
            return;
        };
        if let Some(place) = entry.dirty.take() {
            blocks.dirty.remove(&place);
            self.dirty.give(user, entry.bytes);
        }
    }

    /// Puts a block at the end of the queue of dirty ones. Its bytes count already.
    pub(crate) fn queue_dirty(&mut self, user: UserId, key: &Arc<BlockKey>) {
        let place = self.serial();
        let Some(blocks) = self.users.get_mut(&user) else {
            return;
        };
        if let Some(entry) = blocks.blocks.get_mut(key) {
            if let Some(old) = entry.dirty.replace(place) {
                blocks.dirty.remove(&old);
            }
            blocks.dirty.insert(place, Arc::clone(key));
        }
    }

    /// Takes an entry out, with its place in the queue.
    pub(crate) fn remove(&mut self, user: UserId, key: &BlockKey) -> Option<Entry> {
        self.make_clean(user, key);
        let blocks = self.users.get_mut(&user)?;
        let entry = blocks.blocks.remove(key);
        if blocks.blocks.is_empty() {
            self.users.remove(&user);
        }
        entry
    }
}

//! Making room: copies are dropped by their score, and never the last one that counts.

use std::sync::Arc;

use super::score::{ScoreInput, score};
use super::state::{Entry, State};
use super::stock::BlockStore;
use crate::block::UserId;
use crate::key::BlockKey;
use crate::memory::{MemoryBlock, MemoryDraft};
use crate::tier::{BoundFault, FileCopy};

/// How often room is made for one block before its tier is given up: what is dropped may be in use,
/// or not in one piece.
const TRIES_MAX: usize = 4;

/// A copy that may be dropped.
struct Victim {
    score: f64,
    bytes: u64,
    key: Arc<BlockKey>,
}

impl BlockStore {
    /// Room in memory for a block. Copies with a worth of up to `score_max` for each byte are
    /// dropped for it.
    pub(crate) fn reserve_memory(
        &self,
        user: UserId,
        bytes: u64,
        score_max: f64,
    ) -> Result<MemoryDraft, BoundFault> {
        for _ in 0..TRIES_MAX {
            match self.memory.reserve(user, bytes) {
                Ok(draft) => return Ok(draft),
                Err(fault) => {
                    let from = victims_of(fault, user, self.memory.largest());
                    if !self.evict_memory(from, bytes, score_max) {
                        return Err(fault);
                    }
                }
            }
        }
        self.memory.reserve(user, bytes)
    }

    /// Drops memory copies of the first of these users who has some to drop.
    fn evict_memory(&self, users: [Option<UserId>; 2], bytes: u64, score_max: f64) -> bool {
        let now_ns = self.clock.monotonic_ns();
        for user in users.into_iter().flatten() {
            let mut state = self.lock();
            let victims = chosen(&state, user, bytes, score_max, |entry| {
                self.memory_refetch_us(entry)
                    .map(|refetch_us| (refetch_us, now_ns))
            });
            let mut dropped: Vec<Arc<MemoryBlock>> = Vec::new();
            for key in victims {
                let Some(entry) = state.entry(user, &key) else {
                    continue;
                };
                dropped.extend(entry.memory.take());
                if entry.files.is_empty() {
                    state.remove(user, &key);
                }
            }
            state.counts.evicted += dropped.len() as u64;
            drop(state);
            for block in &dropped {
                block.retire();
            }
            if !dropped.is_empty() {
                return true;
            }
        }
        false
    }

    /// What it would take to have a block in memory again, in microseconds; `None` if its copy in
    /// memory must stay.
    fn memory_refetch_us(&self, entry: &Entry) -> Option<u64> {
        entry.memory.as_ref()?;
        if entry.dirty.is_none()
            && let Some(file) = entry.files.first()
        {
            return Some(self.read_us(file));
        }
        // Blocks that their owner can fetch again need no copy here, but dirty ones stay until
        // they are flushed.
        let is_kept = entry.refetch_us == 0 || entry.dirty.is_some();
        (!is_kept).then_some(u64::from(entry.refetch_us))
    }

    fn read_us(&self, file: &FileCopy) -> u64 {
        let us_per_mib = self.lower[file.tier].read_us_per_mib;
        u64::from(us_per_mib) * (1 + (file.head.bytes >> 20))
    }

    /// Drops files of a tier that are in lower tiers as well, or of versions that are in force no
    /// longer, for a block of a user. Returns whether there is more room.
    pub(crate) fn evict_files(
        &self,
        tier: usize,
        user: UserId,
        bytes: u64,
        fault: BoundFault,
    ) -> bool {
        let largest = self.lower[tier].budget().largest();
        let now_ns = self.clock.monotonic_ns();
        for user in victims_of(fault, user, largest).into_iter().flatten() {
            let mut state = self.lock();
            let mut dropped = previous_files(&mut state, user, tier);
            if dropped.is_empty() {
                let victims = chosen(&state, user, bytes, f64::INFINITY, |entry| {
                    self.file_refetch_us(entry, tier)
                        .map(|refetch_us| (refetch_us, now_ns))
                });
                for key in victims {
                    dropped.extend(take_file(&mut state, user, &key, tier));
                }
            }
            state.counts.evicted += dropped.len() as u64;
            drop(state);
            if !dropped.is_empty() {
                // Their room is needed now. What cannot be removed keeps it for a while.
                let left = dropped.iter();
                let left = left.filter(|copy| self.lower[tier].remove(copy, now_ns).is_err());
                let left = left.count() as u64;
                self.lock().counts.left_behind += left;
                self.tell_room();
                return true;
            }
        }
        false
    }

    /// What it would take to have a block on this tier again; `None` if its file there must stay.
    fn file_refetch_us(&self, entry: &Entry, tier: usize) -> Option<u64> {
        if entry.is_moving || !entry.files.iter().any(|file| file.tier == tier) {
            return None;
        }
        let mut others = entry.files.iter().filter(|file| file.tier != tier);
        if let Some(other) = others.find(|file| self.makes_clean(file.tier)) {
            return Some(self.read_us(other));
        }
        let is_kept = entry.refetch_us == 0 || entry.dirty.is_some();
        (!is_kept).then_some(u64::from(entry.refetch_us))
    }
}

/// The users of whom copies are dropped, in order.
fn victims_of(fault: BoundFault, user: UserId, largest: Option<UserId>) -> [Option<UserId>; 2] {
    let other = largest.filter(|largest| *largest != user);
    match fault {
        BoundFault::User => [Some(user), other],
        BoundFault::Total => [largest, Some(user)],
    }
}

/// The blocks of a user whose copies are worth the least and give room for a block, and a little
/// more, so that this is not done again for each put.
fn chosen(
    state: &State,
    user: UserId,
    bytes: u64,
    score_max: f64,
    refetch_us: impl Fn(&Entry) -> Option<(u64, i64)>,
) -> Vec<Arc<BlockKey>> {
    let Some(blocks) = state.users.get(&user) else {
        return Vec::new();
    };
    let mut held = 0;
    let mut victims: Vec<Victim> = Vec::new();
    for (key, entry) in &blocks.blocks {
        let Some((refetch_us, now_ns)) = refetch_us(entry) else {
            continue;
        };
        held += entry.bytes;
        let score = score(ScoreInput {
            bytes: entry.bytes,
            age_ns: now_ns.saturating_sub(entry.used_ns),
            uses: entry.uses,
            refetch_us,
        });
        if score <= score_max {
            victims.push(Victim {
                score,
                bytes: entry.bytes,
                key: Arc::clone(key),
            });
        }
    }
    victims.sort_by(|a, b| a.score.total_cmp(&b.score));
    let wanted = bytes.max(1).saturating_add(held / 32);
    let mut freed = 0;
    let needed = victims.into_iter().take_while(|victim| {
        let is_needed = freed < wanted;
        freed += victim.bytes.max(1);
        is_needed
    });
    needed.map(|victim| victim.key).collect()
}

/// Takes the files of versions that are in force no longer out of a tier.
fn previous_files(state: &mut State, user: UserId, tier: usize) -> Vec<Arc<FileCopy>> {
    let Some(blocks) = state.users.get_mut(&user) else {
        return Vec::new();
    };
    let previous = blocks.blocks.values_mut().filter_map(|entry| {
        let is_here = entry
            .previous
            .as_ref()
            .is_some_and(|file| file.tier == tier);
        is_here.then(|| entry.previous.take()).flatten()
    });
    previous.collect()
}

/// Takes the file of a block out of a tier; the block goes with its last copy.
fn take_file(
    state: &mut State,
    user: UserId,
    key: &BlockKey,
    tier: usize,
) -> Option<Arc<FileCopy>> {
    let entry = state.entry(user, key)?;
    let at = entry.files.iter().position(|file| file.tier == tier)?;
    let file = entry.files.remove(at);
    if !entry.has_copy() {
        state.remove(user, key);
    }
    Some(file)
}

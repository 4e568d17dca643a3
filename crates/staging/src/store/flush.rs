//! Copies to lower tiers: dirty blocks, the oldest first and the users in turn; then blocks of
//! tiers that are nearly full.

use std::ops::Bound;
use std::sync::{Arc, MutexGuard};

use barograph_model::NS_PER_MS;

use super::score::{ScoreInput, score};
use super::state::{Entry, State};
use super::stock::BlockStore;
use crate::block::UserId;
use crate::key::BlockKey;
use crate::memory::MemoryBlock;
use crate::tier::{FileCopy, FileHead};

/// The time for which a user's blocks are not flushed after no tier took one, in nanoseconds.
const PAUSE_NS: i64 = 100 * NS_PER_MS;
/// A tier with less than a tenth of its bytes free hands blocks down.
const FREE_SHARE: u64 = 10;

/// A block that is to be copied to a lower tier.
pub(crate) struct CopyJob {
    user: UserId,
    key: Arc<BlockKey>,
    serial: u64,
    head: FileHead,
    source: CopySource,
    /// The tier that is to have room afterwards; none for a dirty block.
    relieved: Option<usize>,
}

enum CopySource {
    Memory(Arc<MemoryBlock>),
    File(Arc<FileCopy>),
}

impl BlockStore {
    /// The next copy to be made; or the state in which there was none.
    pub(crate) fn next_copy(&self) -> Result<CopyJob, MutexGuard<'_, State>> {
        let now_ns = self.clock.monotonic_ns();
        let mut state = self.lock();
        let job = self.next_flush(&mut state, now_ns);
        match job.or_else(|| self.next_demotion(&mut state, now_ns)) {
            Some(job) => Ok(job),
            None => Err(state),
        }
    }

    fn next_flush(&self, state: &mut State, now_ns: i64) -> Option<CopyJob> {
        let after = (Bound::Excluded(state.flushed_user), Bound::Unbounded);
        let users = state.users.range(after).chain(state.users.iter());
        let mut users = users.filter(|(_, blocks)| blocks.pause_until_ns <= now_ns);
        let (user, key) = users.find_map(|(user, blocks)| {
            let is_still = |key: &&Arc<BlockKey>| {
                let entry = blocks.blocks.get(*key);
                entry.is_some_and(|entry| !entry.is_moving && entry.has_copy())
            };
            let key = blocks.dirty.values().find(is_still)?;
            Some((*user, Arc::clone(key)))
        })?;
        state.flushed_user = user;
        start_copy(state, user, key, None)
    }

    /// The block of a nearly full tier that is worth the least there and is in no lower tier.
    fn next_demotion(&self, state: &mut State, now_ns: i64) -> Option<CopyJob> {
        let last = self.lower.len().checked_sub(1)?;
        for (tier, upper) in self.lower.iter().enumerate().take(last) {
            let bytes_max = upper.bounds.bytes_max;
            let held = upper.budget();
            let is_tight = held.total().bytes > bytes_max - bytes_max / FREE_SHARE;
            let largest = held.largest();
            drop(held);
            let below = &self.lower[tier + 1..];
            let is_open = below.iter().any(|tier| tier.is_usable(now_ns));
            let Some(user) = largest.filter(|_| is_tight && is_open) else {
                continue;
            };
            let blocks = state.users.get(&user)?;
            if blocks.pause_until_ns > now_ns {
                continue;
            }
            let is_only_here = |entry: &Entry| {
                !entry.is_moving && entry.files.last().is_some_and(|file| file.tier == tier)
            };
            let candidates = blocks
                .blocks
                .iter()
                .filter(|(_, entry)| is_only_here(entry));
            let worth = |entry: &Entry| {
                score(ScoreInput {
                    bytes: entry.bytes,
                    age_ns: now_ns.saturating_sub(entry.used_ns),
                    uses: entry.uses,
                    refetch_us: 1,
                })
            };
            let least = candidates.min_by(|(_, a), (_, b)| worth(a).total_cmp(&worth(b)));
            if let Some((key, _)) = least {
                let key = Arc::clone(key);
                return start_copy(state, user, key, Some(tier));
            }
        }
        None
    }

    /// Makes a copy.
    pub(crate) fn run_copy(&self, job: &CopyJob) {
        let first = job.relieved.map_or(0, |tier| tier + 1);
        for tier in first..self.lower.len() {
            if job.relieved.is_none() && !self.makes_clean(tier) {
                continue;
            }
            if let Some(copy) = self.copy_to(tier, job) {
                self.commit_copy(job, Arc::new(copy));
                return;
            }
        }
        self.give_up(job);
    }

    fn copy_to(&self, tier: usize, job: &CopyJob) -> Option<FileCopy> {
        let mut writer = self.create_file(tier, &job.head).ok()?;
        let written = match &job.source {
            CopySource::Memory(block) => writer.write(block.bytes()),
            CopySource::File(copy) => {
                let now_ns = self.clock.monotonic_ns();
                let source = self.lower[copy.tier].open(copy, now_ns).ok()?;
                let mut piece = vec![0; source.piece_bytes()];
                let mut hasher = crc32fast::Hasher::new();
                let mut at = 0;
                let mut written = Ok(());
                while at < job.head.bytes && written.is_ok() {
                    let bytes = (job.head.bytes - at).min(piece.len() as u64) as usize;
                    copy.read_at(&source, &mut piece[..bytes], at).ok()?;
                    hasher.update(&piece[..bytes]);
                    written = writer.write(&piece[..bytes]);
                    at += bytes as u64;
                }
                // A bad copy is found, and counted, by its next reader; it is not multiplied.
                let is_whole = hasher.finalize() == job.head.checksum;
                if written.is_ok() && !is_whole {
                    return None;
                }
                written
            }
        };
        match written.and_then(|()| writer.finish()) {
            Ok(copy) => Some(copy),
            Err(_) => {
                self.lower[tier].note_fault(self.clock.monotonic_ns());
                None
            }
        }
    }

    /// Takes a copy in, if its block is still the one in force.
    fn commit_copy(&self, job: &CopyJob, copy: Arc<FileCopy>) {
        let makes_clean = self.makes_clean(copy.tier);
        let mut garbage = Vec::new();
        let mut state = self.lock();
        match state.same(job.user, &job.key, job.serial) {
            None => garbage.push(copy),
            Some(entry) => {
                entry.is_moving = false;
                entry.add_file(copy);
                if makes_clean {
                    garbage.extend(entry.previous.take());
                }
                if let Some(tier) = job.relieved {
                    let at = entry.files.iter().position(|file| file.tier == tier);
                    // A durable copy stays if the lower one is not durable.
                    if let Some(at) = at.filter(|_| makes_clean) {
                        garbage.push(entry.files.remove(at));
                    }
                    state.counts.demoted += 1;
                }
                let is_dirty = state
                    .entry(job.user, &job.key)
                    .is_some_and(|it| it.dirty.is_some());
                if makes_clean && is_dirty {
                    state.make_clean(job.user, &job.key);
                    state.counts.flushed += 1;
                }
            }
        }
        drop(state);
        self.discard(garbage);
        self.tell_room();
    }

    /// Puts a block that no tier took back to the end of its queue.
    fn give_up(&self, job: &CopyJob) {
        let until_ns = self.clock.monotonic_ns().saturating_add(PAUSE_NS);
        let mut state = self.lock();
        state.counts.copies_failed += 1;
        if let Some(blocks) = state.users.get_mut(&job.user) {
            blocks.pause_until_ns = until_ns;
        }
        if let Some(entry) = state.same(job.user, &job.key, job.serial) {
            entry.is_moving = false;
            if job.relieved.is_none() {
                state.queue_dirty(job.user, &job.key);
            }
        }
    }
}

fn start_copy(
    state: &mut State,
    user: UserId,
    key: Arc<BlockKey>,
    relieved: Option<usize>,
) -> Option<CopyJob> {
    let entry = state.entry(user, &key)?;
    let source = match (&entry.memory, entry.files.first()) {
        (Some(block), _) => CopySource::Memory(Arc::clone(block)),
        (None, Some(file)) => CopySource::File(Arc::clone(file)),
        (None, None) => return None,
    };
    entry.is_moving = true;
    let head = FileHead {
        user,
        key: BlockKey::clone(&key),
        version: entry.version,
        epoch: entry.epoch,
        bytes: entry.bytes,
        checksum: entry.checksum,
        refetch_us: entry.refetch_us,
    };
    let serial = entry.serial;
    Some(CopyJob {
        user,
        key,
        serial,
        head,
        source,
        relieved,
    })
}

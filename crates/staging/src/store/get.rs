//! Reads: the fastest copy whose bytes have their checksum.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::score::{ScoreInput, score};
use super::state::Entry;
use super::stock::BlockStore;
use crate::block::{BlockInfo, UserId};
use crate::error::{FaultCode, StagingError};
use crate::key::BlockKey;
use crate::memory::{BlockPlace, MemoryBlock};
use crate::tier::{CopyReader, FileCopy, is_lost};

/// How often a block is looked up anew for one read, while its copies change.
const TRIES_MAX: usize = 8;

/// A block that is being read. It stays readable while it is evicted or replaced, unless it is read
/// from a store of objects since memory has no room for it.
pub struct BlockReader {
    info: BlockInfo,
    source: Source,
}

enum Source {
    Memory(Arc<MemoryBlock>),
    File(Arc<FileCopy>, CopyReader),
}

/// Copies of a block, as they were at one moment.
struct Copies {
    serial: u64,
    info: BlockInfo,
    memory: Option<Arc<MemoryBlock>>,
    files: Vec<Arc<FileCopy>>,
    score: f64,
}

impl BlockStore {
    /// Opens a block of a user. One that is unconfirmed is refused, unless `accept_unconfirmed`.
    ///
    /// # Errors
    ///
    /// [`FaultCode::NotFound`], [`FaultCode::NotKnown`] or [`FaultCode::Unconfirmed`];
    /// [`FaultCode::Corrupt`] if no copy has its checksum; [`FaultCode::Disk`] if none can be read
    /// now.
    pub fn get(
        &self,
        user: UserId,
        key: &BlockKey,
        accept_unconfirmed: bool,
    ) -> Result<BlockReader, StagingError> {
        let mut reason = String::new();
        for _ in 0..TRIES_MAX {
            let copies = self.copies(user, key)?;
            if !copies.info.is_confirmed && !accept_unconfirmed {
                return Err(unconfirmed(key, &copies.info));
            }
            let info = copies.info;
            if let Some(block) = copies.memory {
                self.lock().counts.gets_memory += 1;
                let source = Source::Memory(block);
                return Ok(BlockReader { info, source });
            }
            if copies.files.is_empty() {
                let text = format!("{key}: no copy has its checksum");
                return Err(StagingError::fault(FaultCode::Corrupt, text));
            }
            match self.get_file(user, key, &copies) {
                Ok(source) => return Ok(BlockReader { info, source }),
                Err(text) => reason = text,
            }
        }
        let text = format!("{key}: {reason}");
        Err(StagingError::fault(FaultCode::Disk, text))
    }

    /// What is known of a block.
    ///
    /// # Errors
    ///
    /// [`FaultCode::NotFound`] or [`FaultCode::NotKnown`].
    pub fn stat(&self, user: UserId, key: &BlockKey) -> Result<BlockInfo, StagingError> {
        let state = self.lock();
        let entry = state.users.get(&user).and_then(|it| it.blocks.get(key));
        let entry = entry.ok_or_else(|| absent(key, state.knows_all()))?;
        Ok(state.info(entry))
    }

    /// What is known of many blocks; `None` for one that is not here.
    pub fn locate(&self, user: UserId, keys: &[BlockKey]) -> Vec<Option<BlockInfo>> {
        let state = self.lock();
        let blocks = state.users.get(&user).map(|user| &user.blocks);
        let info = |key| Some(state.info(blocks?.get(key)?));
        keys.iter().map(info).collect()
    }

    fn copies(&self, user: UserId, key: &BlockKey) -> Result<Copies, StagingError> {
        let now_ns = self.clock.monotonic_ns();
        let mut state = self.lock();
        let knows_all = state.knows_all();
        let entry = state
            .entry(user, key)
            .ok_or_else(|| absent(key, knows_all))?;
        entry.used_ns = now_ns;
        entry.uses = entry.uses.saturating_add(1);
        let (uses, bytes) = (entry.uses, entry.bytes);
        let entry = &state.users[&user].blocks[key];
        Ok(Copies {
            serial: entry.serial,
            info: state.info(entry),
            memory: entry.memory.clone(),
            files: entry.files.clone(),
            score: score(ScoreInput {
                bytes,
                age_ns: 0,
                uses,
                refetch_us: u64::from(entry.refetch_us.max(1_000)),
            }),
        })
    }

    /// The first file that can be read and has its checksum; or what is wrong with all.
    fn get_file(&self, user: UserId, key: &BlockKey, copies: &Copies) -> Result<Source, String> {
        let mut reason = String::new();
        for copy in &copies.files {
            let tier = &self.lower[copy.tier];
            let checked = tier.open(copy, self.clock.monotonic_ns());
            let checked = checked.and_then(|file| {
                if let Some(block) = self.promote(user, key, copies, copy, &file)? {
                    return Ok(Some(Source::Memory(block)));
                }
                let is_whole = copy.check(&file)?;
                Ok(is_whole.then(|| Source::File(Arc::clone(copy), file)))
            });
            match checked {
                Ok(Some(source)) => {
                    self.lock().counts.gets_file += 1;
                    return Ok(source);
                }
                Ok(None) => {
                    self.lock().counts.corrupt += 1;
                    self.drop_file(user, key, copies.serial, copy);
                    reason = "a copy did not have its checksum".into();
                }
                Err(error) => {
                    self.lock().counts.unreadable += 1;
                    reason = format!("{}: {error}", tier.name);
                    tier.note_read_fault(&error, self.clock.monotonic_ns());
                    if is_lost(&error) {
                        self.drop_file(user, key, copies.serial, copy);
                    }
                }
            }
        }
        Err(reason)
    }

    /// Reads a file into memory, if there is room or what is there is worth less.
    fn promote(
        &self,
        user: UserId,
        key: &BlockKey,
        copies: &Copies,
        copy: &FileCopy,
        file: &CopyReader,
    ) -> io::Result<Option<Arc<MemoryBlock>>> {
        let draft = self.reserve_memory(user, copy.head.bytes, copies.score);
        let Ok(mut draft) = draft else {
            return Ok(None);
        };
        copy.read_at(file, draft.bytes_mut(), 0)?;
        if crc32fast::hash(draft.bytes_mut()) != copy.head.checksum {
            // The check that follows finds the same, and counts it.
            copy.is_checked.store(false, Ordering::Relaxed);
            return Ok(None);
        }
        let Some(block) = draft.publish().map(Arc::new) else {
            return Ok(None);
        };
        let mut state = self.lock();
        // A version that is no longer in force is read to its end, and goes.
        if let Some(entry) = state.same(user, key, copies.serial)
            && entry.memory.is_none()
        {
            entry.memory = Some(Arc::clone(&block));
            state.counts.promoted += 1;
        } else {
            block.retire();
        }
        Ok(Some(block))
    }

    /// Forgets a copy that is none.
    fn drop_file(&self, user: UserId, key: &BlockKey, serial: u64, copy: &Arc<FileCopy>) {
        let mut state = self.lock();
        let Some(entry) = state.same(user, key, serial) else {
            return;
        };
        let before = entry.files.len();
        entry.files.retain(|file| !Arc::ptr_eq(file, copy));
        let was_here = entry.files.len() < before;
        let (bytes, is_dirty) = (entry.bytes, entry.dirty.is_some());
        let is_lost = lost_durable(entry, |tier| self.makes_clean(tier));
        if was_here && is_lost && !is_dirty {
            // It is to be flushed again.
            state.dirty.add(user, bytes);
            let key = Arc::new(key.clone());
            state.queue_dirty(user, &key);
        }
        drop(state);
        if was_here {
            self.discard(vec![Arc::clone(copy)]);
            self.tell_work();
        }
    }
}

/// Whether a block has copies, of which none is durable.
fn lost_durable(entry: &Entry, makes_clean: impl Fn(usize) -> bool) -> bool {
    entry.has_copy() && !entry.files.iter().any(|file| makes_clean(file.tier))
}

fn unconfirmed(key: &BlockKey, info: &BlockInfo) -> StagingError {
    let version = info.version;
    let text = format!("{key}: version {version} may be older than one that was acknowledged");
    StagingError::numbered(FaultCode::Unconfirmed, version, text)
}

/// The error for a block that is not here.
pub(crate) fn absent(key: &BlockKey, knows_all: bool) -> StagingError {
    match knows_all {
        true => StagingError::fault(FaultCode::NotFound, format!("{key}: no such block")),
        false => {
            let text = format!("{key}: no such block here, but this server may have missed it");
            StagingError::fault(FaultCode::NotKnown, text)
        }
    }
}

impl BlockReader {
    /// What is known of the block.
    pub fn info(&self) -> &BlockInfo {
        &self.info
    }

    /// All bytes, if the block is in memory.
    pub fn bytes(&self) -> Option<&[u8]> {
        match &self.source {
            Source::Memory(block) => Some(block.bytes()),
            Source::File(..) => None,
        }
    }

    /// Where it is in its user's memory file, if it is in memory.
    pub(crate) fn place(&self) -> Option<BlockPlace> {
        match &self.source {
            Source::Memory(block) => Some(block.place()),
            Source::File(..) => None,
        }
    }

    /// Fills the buffer from an offset on.
    ///
    /// # Errors
    ///
    /// [`FaultCode::BadRequest`] if the block ends before; [`FaultCode::Disk`] if the file cannot
    /// be read.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), StagingError> {
        let end = offset.checked_add(out.len() as u64);
        if end.is_none_or(|end| end > self.info.bytes) {
            let text = format!("the block has {} bytes", self.info.bytes);
            return Err(StagingError::fault(FaultCode::BadRequest, text));
        }
        match &self.source {
            Source::Memory(block) => {
                let from = offset as usize;
                out.copy_from_slice(&block.bytes()[from..from + out.len()]);
                Ok(())
            }
            Source::File(copy, file) => copy
                .read_at(file, out, offset)
                .map_err(|error| StagingError::fault(FaultCode::Disk, error.to_string())),
        }
    }
}

//! A file that is open, or is changed for a moment: what is stored of it, and what has changed
//! since. Changed blocks are put under new numbers; the file becomes what it is by its entry.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fuser::Errno;

use crate::entry::{BlockRef, Entry, FILE_BLOCKS_MAX, FILE_BYTES_MAX, Kind};
use crate::volume::{Found, Volume};

/// Reads that begin within so many bytes of the end of the last one are taken as going on there:
/// the kernel reads ahead in several requests, in any order.
const NEAR_BYTES: u64 = 2 << 20;

/// Bytes that all files of a mount hold in memory and have not put.
#[derive(Default)]
pub(crate) struct Budget {
    held: AtomicU64,
    pub(crate) bytes_max: u64,
}

impl Budget {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self {
            held: AtomicU64::new(0),
            bytes_max,
        }
    }

    fn is_over(&self) -> bool {
        self.held.load(Ordering::Relaxed) > self.bytes_max
    }

    /// The bytes that are held now.
    #[cfg(test)]
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }
}

/// A file that is open, or is changed for a moment.
pub(crate) struct FileState {
    pub(crate) path: Vec<u8>,
    /// The file as it is for this mount.
    pub(crate) entry: Entry,
    /// The version that is stored, if one is.
    pub(crate) version: u64,
    /// Whether there is an entry of that version.
    pub(crate) is_stored: bool,
    /// Whether the file is another one than is stored.
    pub(crate) is_changed: bool,
    /// Whether it has no name any more.
    pub(crate) is_removed: bool,
    /// Blocks that are not put yet.
    dirty: BTreeMap<u64, Vec<u8>>,
    /// Blocks that were put, and are in no stored entry.
    fresh: BTreeSet<BlockRef>,
    /// Blocks of the stored entry that this file has no more.
    garbage: Vec<BlockRef>,
    /// Where the last read has ended.
    read_end: u64,
    budget: Arc<Budget>,
    /// What this file has of the budget.
    held: u64,
}

impl FileState {
    /// A file that is stored.
    pub(crate) fn stored(path: &[u8], entry: Entry, version: u64, budget: &Arc<Budget>) -> Self {
        Self {
            path: path.to_vec(),
            entry,
            version,
            is_stored: true,
            is_changed: false,
            is_removed: false,
            dirty: BTreeMap::new(),
            fresh: BTreeSet::new(),
            garbage: Vec::new(),
            read_end: 0,
            budget: Arc::clone(budget),
            held: 0,
        }
    }

    /// A file that is stored by its first commit.
    pub(crate) fn created(path: &[u8], entry: Entry, budget: &Arc<Budget>) -> Self {
        let mut file = Self::stored(path, entry, 0, budget);
        (file.is_stored, file.is_changed) = (false, true);
        file
    }

    /// The bytes of a range, which ends with the file.
    pub(crate) fn read(
        &mut self,
        volume: &Volume,
        from: u64,
        bytes: u64,
    ) -> Result<Vec<u8>, Errno> {
        let end = self.entry.size.min(from.saturating_add(bytes));
        let mut out = Vec::with_capacity(end.saturating_sub(from) as usize);
        let goes_on = from.abs_diff(self.read_end) <= NEAR_BYTES;
        let mut at = from;
        while at < end {
            let (index, offset) = self.place(at);
            let wanted = (end - at).min(self.entry.block_bytes - offset);
            self.read_in_block(volume, index, offset, wanted, goes_on, &mut out)?;
            at += wanted;
            // What a block does not have is zero.
            out.resize((at - from) as usize, 0);
        }
        self.read_end = end;
        Ok(out)
    }

    fn read_in_block(
        &self,
        volume: &Volume,
        index: u64,
        offset: u64,
        wanted: u64,
        goes_on: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        let mut take = |all: &[u8]| {
            let from = all.len().min(offset as usize);
            let end = all.len().min((offset + wanted) as usize);
            out.extend_from_slice(&all[from..end]);
        };
        if let Some(all) = self.dirty.get(&index) {
            take(all);
            return Ok(());
        }
        let Some(block) = self.entry.blocks.get(&index) else {
            return Ok(());
        };
        if goes_on || wanted * 2 >= self.entry.block_bytes {
            let all = volume.get_block(*block);
            take(&all.map_err(|error| self.lost(volume, error))?);
            return Ok(());
        }
        let part = volume.get_part(*block, offset, wanted);
        out.extend(part.map_err(|error| self.lost(volume, error))?);
        Ok(())
    }

    /// The error for a block that is not there: it went with the file as it was, if another mount
    /// has replaced that.
    fn lost(&self, volume: &Volume, error: Errno) -> Errno {
        if error != Errno::ENOENT {
            return error;
        }
        match volume.find(&self.path) {
            Ok(now) if now.version == self.version && now.entry.is_some() => Errno::EIO,
            Ok(_) => Errno::ESTALE,
            Err(error) => error,
        }
    }

    /// Writes bytes. Blocks that are full by that are put, and so are others while all files hold
    /// more than they may.
    ///
    /// # Errors
    ///
    /// That of a put; what was written before is kept, and is put again with the next commit.
    pub(crate) fn write(&mut self, volume: &Volume, from: u64, data: &[u8]) -> Result<(), Errno> {
        let end = from.checked_add(data.len() as u64);
        if end.is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(Errno::EFBIG);
        }
        let (mut at, mut rest) = (from, data);
        while !rest.is_empty() {
            // While puts fail, no more is taken in.
            self.keep_within(volume)?;
            let (index, offset) = self.place(at);
            let room = (self.entry.block_bytes - offset) as usize;
            let (now, later) = rest.split_at(rest.len().min(room));
            self.write_in_block(volume, index, offset as usize, now)?;
            (at, rest) = (at + now.len() as u64, later);
            self.entry.size = self.entry.size.max(at);
            self.is_changed = true;
            self.entry.mtime_ns = volume.now_ns();
            if now.len() == room {
                self.put_block(volume, index)?;
            }
        }
        self.keep_within(volume)
    }

    fn write_in_block(
        &mut self,
        volume: &Volume,
        index: u64,
        offset: usize,
        data: &[u8],
    ) -> Result<(), Errno> {
        let covers = offset == 0 && data.len() as u64 >= self.bytes_in(index);
        let before = self.dirty.get(&index).map_or(0, Vec::capacity);
        let bytes = self.dirty_block(volume, index, covers)?;
        let end = offset + data.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[offset..end].copy_from_slice(data);
        let after = bytes.capacity();
        self.hold(before, after);
        Ok(())
    }

    /// A block in memory, to be changed: what is stored of it, unless all of that is written over.
    fn dirty_block(
        &mut self,
        volume: &Volume,
        index: u64,
        is_covered: bool,
    ) -> Result<&mut Vec<u8>, Errno> {
        if !self.dirty.contains_key(&index) {
            let stored = self.entry.blocks.get(&index);
            let is_new = stored.is_none();
            if is_new && self.entry.blocks.len() as u64 >= FILE_BLOCKS_MAX {
                return Err(Errno::EFBIG);
            }
            let bytes = match stored.filter(|_| !is_covered) {
                Some(block) => {
                    let all = volume.get_block(*block);
                    all.map_err(|error| self.lost(volume, error))?.to_vec()
                }
                None => Vec::new(),
            };
            self.dirty.insert(index, bytes);
        }
        self.dirty.get_mut(&index).ok_or(Errno::EIO)
    }

    /// Makes the file shorter or longer.
    pub(crate) fn truncate(&mut self, volume: &Volume, size: u64) -> Result<(), Errno> {
        if size > FILE_BYTES_MAX {
            return Err(Errno::EFBIG);
        }
        let (index, offset) = self.place(size);
        let has = self.entry.blocks.contains_key(&index) || self.dirty.contains_key(&index);
        if size < self.entry.size && offset > 0 && has {
            let before = self.dirty.get(&index).map_or(0, Vec::capacity);
            let bytes = self.dirty_block(volume, index, false)?;
            bytes.truncate(offset as usize);
            let after = bytes.capacity();
            self.hold(before, after);
        }
        let behind = index + u64::from(offset > 0);
        for bytes in self.dirty.split_off(&behind).into_values() {
            self.hold(bytes.capacity(), 0);
        }
        let gone = self.entry.blocks.split_off(&behind);
        self.drop_refs(volume, gone.into_values());
        self.entry.size = size;
        self.entry.mtime_ns = volume.now_ns();
        self.is_changed = true;
        Ok(())
    }

    /// Puts what is in memory, and then the entry: the file is as it is here for everybody. Nothing
    /// is done for a file that has no name any more.
    ///
    /// # Errors
    ///
    /// That of a put; `ESTALE` if another mount has changed the file meanwhile. Then what is stored
    /// is as it was.
    pub(crate) fn commit(&mut self, volume: &Volume) -> Result<(), Errno> {
        if !self.is_changed || self.is_removed {
            return Ok(());
        }
        while let Some((index, _)) = self.dirty.first_key_value() {
            self.put_block(volume, *index)?;
        }
        let base = self.base(volume)?;
        volume.settle(&self.path, &mut self.entry)?;
        self.entry.moving_to.clear();
        self.version = volume.put_entry(&self.path, &base, &self.entry)?;
        self.is_stored = true;
        self.is_changed = false;
        self.fresh.clear();
        volume.delete_blocks(std::mem::take(&mut self.garbage));
        Ok(())
    }

    /// What the next entry replaces: what is stored of this file, or of one that another mount has
    /// created meanwhile, which is then over.
    fn base(&mut self, volume: &Volume) -> Result<Found, Errno> {
        let mut found = volume.find(&self.path)?;
        match &mut found.entry {
            Some(_) if self.is_stored && found.version == self.version => {}
            None if !self.is_stored => {}
            Some(other) if !self.is_stored && other.kind == Kind::File => {
                volume.settle(&self.path, other)?;
                self.garbage.extend(other.blocks.values());
            }
            _ => return Err(Errno::ESTALE),
        }
        Ok(found)
    }

    /// Removes what nobody needs when a file is not open any more: all blocks of one that has no
    /// name, and otherwise those that were never committed.
    pub(crate) fn discard(&mut self, volume: &Volume) {
        if self.is_removed {
            let all = std::mem::take(&mut self.entry.blocks).into_values();
            let all: BTreeSet<BlockRef> = all
                .chain(std::mem::take(&mut self.fresh))
                .chain(std::mem::take(&mut self.garbage))
                .collect();
            volume.delete_blocks(all);
        } else {
            volume.delete_blocks(std::mem::take(&mut self.fresh));
        }
    }

    /// Puts a block that is in memory.
    fn put_block(&mut self, volume: &Volume, index: u64) -> Result<(), Errno> {
        let Some(bytes) = self.dirty.get(&index) else {
            return Ok(());
        };
        let block = volume.put_block(bytes)?;
        let put = self
            .dirty
            .remove(&index)
            .map_or(0, |bytes| bytes.capacity());
        self.hold(put, 0);
        self.fresh.insert(block);
        let former = self.entry.blocks.insert(index, block);
        self.drop_refs(volume, former);
        Ok(())
    }

    fn drop_refs(&mut self, volume: &Volume, refs: impl IntoIterator<Item = BlockRef>) {
        let mut unused = Vec::new();
        for block in refs {
            match self.fresh.remove(&block) {
                true => unused.push(block),
                false => self.garbage.push(block),
            }
        }
        volume.delete_blocks(unused);
    }

    fn keep_within(&mut self, volume: &Volume) -> Result<(), Errno> {
        while self.budget.is_over() {
            let Some((index, _)) = self.dirty.first_key_value() else {
                return Ok(());
            };
            self.put_block(volume, *index)?;
        }
        Ok(())
    }

    /// The bytes of the file that are in a block.
    fn bytes_in(&self, index: u64) -> u64 {
        let from = index.saturating_mul(self.entry.block_bytes);
        let behind = self.entry.size.saturating_sub(from);
        behind.min(self.entry.block_bytes)
    }

    /// The block of a byte, and the place there.
    fn place(&self, at: u64) -> (u64, u64) {
        (at / self.entry.block_bytes, at % self.entry.block_bytes)
    }

    /// A block in memory has another size: `before` it was changed, and `after` that.
    fn hold(&mut self, before: usize, after: usize) {
        let (before, after) = (before as u64, after as u64);
        self.held = self.held.saturating_add(after).saturating_sub(before);
        self.budget.held.fetch_add(after, Ordering::Relaxed);
        self.budget.held.fetch_sub(before, Ordering::Relaxed);
    }
}

impl Drop for FileState {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.held, Ordering::Relaxed);
    }
}

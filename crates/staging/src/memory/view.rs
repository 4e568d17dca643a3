//! A server's memory file as the user's own processes see it: read-only, checked before and after.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix::fs::SealFlags;

use super::arena::{ArenaLayout, BlockPlace, FENCE_WORD, MAGIC, MAGIC_WORD, SLOT_WORD};
use super::map::SharedMap;
use crate::block::BlockInfo;

/// Bytes that [`MappedBlock::pieces`] hands over at a time: they stay in the processor's cache.
const PIECE_BYTES: usize = 32 << 10;

/// A memory file that was received from a server.
#[derive(Debug)]
pub(crate) struct MappedArena {
    map: SharedMap,
    layout: ArenaLayout,
}

impl MappedArena {
    /// Maps a file that a server has sent, if it is one that cannot become shorter.
    pub(crate) fn new(file: OwnedFd, layout: ArenaLayout) -> io::Result<Arc<Self>> {
        let wrong = |why| io::Error::new(io::ErrorKind::InvalidData, why);
        if !rustix::fs::fcntl_get_seals(&file)?.contains(SealFlags::SHRINK) {
            return Err(wrong("the memory file could become shorter"));
        }
        let size = rustix::fs::fstat(&file)?.st_size;
        if u64::try_from(size).is_ok_and(|size| size < layout.bytes) {
            return Err(wrong("the memory file is shorter than its server says"));
        }
        let bytes = usize::try_from(layout.bytes).map_err(|_| wrong("it is too large"))?;
        let map = SharedMap::read_only(file, bytes)?;
        let arena = Self { map, layout };
        match arena
            .word(MAGIC_WORD)
            .map(|word| word.load(Ordering::Relaxed))
        {
            Some(MAGIC) => Ok(Arc::new(arena)),
            _ => Err(wrong("the memory file is of another version")),
        }
    }

    /// A block at a place that the server has told; `None` if the place cannot be.
    pub(crate) fn block(
        self: &Arc<Self>,
        place: BlockPlace,
        info: BlockInfo,
        epoch: u64,
    ) -> Option<MappedBlock> {
        let (at, bytes) = (
            usize::try_from(place.at).ok()?,
            usize::try_from(info.bytes).ok()?,
        );
        let is_inside = self.map.words(at, bytes.div_ceil(8)).is_some();
        (is_inside && place.slot < self.layout.slots && place.generation != 0).then(|| {
            MappedBlock {
                arena: Arc::clone(self),
                at,
                bytes,
                slot: place.slot,
                generation: place.generation,
                info,
                epoch,
            }
        })
    }

    fn word(&self, index: usize) -> Option<&AtomicU64> {
        self.map.words(index * 8, 1)?.first()
    }
}

/// A block in the memory of a server on this node. Reading it takes no system call.
///
/// The server may take the memory back at any time, for a newer version or for other blocks. Each
/// function here says so: what it has read until then means nothing, and the block is to be asked
/// for again.
#[derive(Clone, Debug)]
pub struct MappedBlock {
    arena: Arc<MappedArena>,
    at: usize,
    bytes: usize,
    slot: u32,
    generation: u64,
    info: BlockInfo,
    epoch: u64,
}

impl MappedBlock {
    /// What is known of the block.
    pub fn info(&self) -> &BlockInfo {
        &self.info
    }

    /// Whether the block is still there, and its server still serves the epoch in which it was
    /// asked for. If this holds after a read, what was read is the block.
    pub fn is_current(&self) -> bool {
        fence(Ordering::Acquire);
        let is = |index, test: &dyn Fn(u64) -> bool| {
            let word = self.arena.word(index);
            word.is_some_and(|word| test(word.load(Ordering::Acquire)))
        };
        is(SLOT_WORD + self.slot as usize, &|word| {
            word == self.generation
        }) && is(FENCE_WORD, &|fence| fence <= self.epoch)
    }

    /// Copies bytes from an offset on. `None` if the block is gone, or shorter than that.
    #[must_use]
    pub fn copy_into(&self, from: usize, out: &mut [u8]) -> Option<()> {
        let end = from.checked_add(out.len())?;
        if end > self.bytes || !self.is_current() {
            return None;
        }
        self.arena.map.copy_out(self.at + from, out)?;
        self.is_current().then_some(())
    }

    /// Hands the block over in pieces of at most 32 KiB, without a copy of the whole. `None` if the
    /// block has gone meanwhile: what was done with the pieces is void.
    #[must_use]
    pub fn pieces(&self, mut each: impl FnMut(&[u8])) -> Option<()> {
        let mut piece = vec![0; PIECE_BYTES.min(self.bytes)];
        let mut from = 0;
        while from < self.bytes {
            let piece = &mut piece[..PIECE_BYTES.min(self.bytes - from)];
            self.copy_into(from, piece)?;
            each(piece);
            from += piece.len();
        }
        self.is_current().then_some(())
    }

    /// The memory itself, as words in the byte order of the machine; the last one is padded. Their
    /// values mean something only if [`MappedBlock::is_current`] holds after they were loaded.
    pub fn words(&self) -> &[AtomicU64] {
        let words = self.arena.map.words(self.at, self.bytes.div_ceil(8));
        words.unwrap_or_default()
    }
}

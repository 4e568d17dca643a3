//! The memory files of users, and the blocks in them: the server's side.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};

use super::extents::{UNIT_BYTES, rounded};
use super::map::{Region, RegionMap};
use crate::block::UserId;
use crate::tier::{BoundFault, Budget, TierBounds};

/// The first word of a memory file, which tells its layout.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"BAROMEM1");
/// The word that has the magic number.
pub(crate) const MAGIC_WORD: usize = 0;
/// The word that has the fence of the server.
pub(crate) const FENCE_WORD: usize = 1;
/// The first word of the table of slots.
pub(crate) const SLOT_WORD: usize = 8;
/// Most slots of a memory file: blocks of one user in memory.
const SLOTS_MAX: u64 = 1 << 20;

/// The lengths of a memory file, as its readers need them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArenaLayout {
    /// Bytes of the file.
    pub(crate) bytes: u64,
    /// Slots of its table.
    pub(crate) slots: u32,
}

/// Where a block is in its user's memory file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockPlace {
    pub(crate) at: u64,
    pub(crate) slot: u32,
    pub(crate) generation: u64,
}

/// The memory files of all users.
#[derive(Debug)]
pub(crate) struct MemoryTier {
    bounds: TierBounds,
    inner: Mutex<MemoryInner>,
    fence: AtomicU64,
}

#[derive(Debug)]
struct MemoryInner {
    budget: Budget,
    arenas: BTreeMap<UserId, Arc<Arena>>,
}

/// The memory file of one user.
#[derive(Debug)]
struct Arena {
    regions: Arc<RegionMap>,
    /// A descriptor that can only read.
    shared: OwnedFd,
    layout: ArenaLayout,
    slots: Mutex<Slots>,
}

#[derive(Debug)]
struct Slots {
    free: Vec<u32>,
    used: u32,
    generation: u64,
}

impl MemoryTier {
    pub(crate) fn new(bounds: TierBounds) -> Arc<Self> {
        Arc::new(Self {
            bounds,
            inner: Mutex::new(MemoryInner {
                budget: Budget::new(bounds),
                arenas: BTreeMap::new(),
            }),
            fence: AtomicU64::new(0),
        })
    }

    /// Room for a block of a user, to be filled.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        user: UserId,
        bytes: u64,
    ) -> Result<MemoryDraft, BoundFault> {
        let length = usize::try_from(bytes).map_err(|_| BoundFault::User)?;
        let charge = rounded(length) as u64;
        let arena = {
            let mut inner = self.lock();
            inner.budget.take(user, charge)?;
            self.arena(&mut inner, user)
        };
        // From here on, dropping the charge gives the room back.
        let charge = Charge {
            tier: Arc::clone(self),
            user,
            bytes: charge,
        };
        let arena = arena.map_err(|_| BoundFault::Total)?;
        // Free bytes that are in pieces are none.
        let region = arena.regions.carve(length).ok_or(BoundFault::User)?;
        let region = Some(region);
        Ok(MemoryDraft {
            region,
            arena,
            charge,
        })
    }

    /// The descriptor and layout of a user's memory file.
    pub(crate) fn shared(&self, user: UserId) -> io::Result<(SharedArena, ArenaLayout)> {
        let arena = self.arena(&mut self.lock(), user)?;
        let layout = arena.layout;
        Ok((SharedArena(arena), layout))
    }

    /// Writes the fence of the server, where readers of memory look at it.
    pub(crate) fn set_fence(&self, epoch: u64) {
        let inner = self.lock();
        self.fence.fetch_max(epoch, Ordering::SeqCst);
        for arena in inner.arenas.values() {
            let word = arena.regions.word(FENCE_WORD);
            word.fetch_max(epoch, Ordering::SeqCst);
        }
    }

    /// Bytes and blocks that are held by all users, and by one.
    pub(crate) fn held(&self, user: UserId) -> ([u64; 2], [u64; 2]) {
        let inner = self.lock();
        let (total, user) = (inner.budget.total(), inner.budget.user(user));
        ([total.bytes, total.blocks], [user.bytes, user.blocks])
    }

    /// The user who holds the most.
    pub(crate) fn largest(&self) -> Option<UserId> {
        self.lock().budget.largest()
    }

    fn arena(&self, inner: &mut MemoryInner, user: UserId) -> io::Result<Arc<Arena>> {
        if let Some(arena) = inner.arenas.get(&user) {
            return Ok(Arc::clone(arena));
        }
        let arena = Arc::new(Arena::new(&self.bounds)?);
        let fence = self.fence.load(Ordering::SeqCst);
        arena
            .regions
            .word(FENCE_WORD)
            .store(fence, Ordering::SeqCst);
        inner.arenas.insert(user, Arc::clone(&arena));
        Ok(arena)
    }

    fn lock(&self) -> MutexGuard<'_, MemoryInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Arena {
    fn new(bounds: &TierBounds) -> io::Result<Self> {
        let slots = bounds.user_blocks_max.clamp(1, SLOTS_MAX);
        let table_bytes = ((SLOT_WORD as u64 + slots) * 8).next_multiple_of(UNIT_BYTES as u64);
        let page = rustix::param::page_size() as u64;
        // Twice what may be used: free room that is in pieces hinders nobody. It is no memory.
        let room = bounds.user_bytes_max.saturating_mul(2);
        let bytes = table_bytes.saturating_add(room).next_multiple_of(page);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("barograph-staging", flags)?;
        rustix::fs::ftruncate(&file, bytes)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals)?;
        // A descriptor that cannot write, of a file that nobody else can open for writing.
        rustix::fs::fchmod(&file, Mode::RUSR)?;
        let path = format!("/proc/self/fd/{}", rustix::fd::AsRawFd::as_raw_fd(&file));
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let shared = rustix::fs::open(Path::new(&path), flags, Mode::empty())?;
        let fits = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let (length, table) = (usize::try_from(bytes).map_err(fits)?, table_bytes as usize);
        let regions = RegionMap::new(file, length, table)?;
        regions.word(MAGIC_WORD).store(MAGIC, Ordering::SeqCst);
        let layout = ArenaLayout {
            bytes,
            slots: slots as u32,
        };
        let slots = Mutex::new(Slots {
            free: Vec::new(),
            used: 0,
            generation: 0,
        });
        Ok(Self {
            regions,
            shared,
            layout,
            slots,
        })
    }

    /// A free slot and a number for it.
    fn slot(&self) -> Option<(u32, u64)> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = match slots.free.pop() {
            Some(slot) => slot,
            None if slots.used < self.layout.slots => {
                slots.used += 1;
                slots.used - 1
            }
            None => return None,
        };
        slots.generation += 1;
        Some((slot, slots.generation))
    }

    fn slot_word(&self, slot: u32) -> &AtomicU64 {
        self.regions.word(SLOT_WORD + slot as usize)
    }
}

/// The descriptor of a memory file, for sending.
pub(crate) struct SharedArena(Arc<Arena>);

impl AsFd for SharedArena {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.shared.as_fd()
    }
}

/// Room in the budget, until it is dropped.
#[derive(Debug)]
struct Charge {
    tier: Arc<MemoryTier>,
    user: UserId,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.tier.lock().budget.give(self.user, self.bytes);
    }
}

/// A block that is being filled. Nobody reads it yet.
#[derive(Debug)]
pub(crate) struct MemoryDraft {
    /// Before the charge: memory is free before its room is.
    region: Option<Region>,
    arena: Arc<Arena>,
    charge: Charge,
}

impl MemoryDraft {
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let region = self.region.as_mut();
        region
            .expect("a draft has its region until it is published")
            .bytes_mut()
    }

    /// Lets readers see the block; `None` if the memory file has no slot left.
    pub(crate) fn publish(mut self) -> Option<MemoryBlock> {
        let (slot, generation) = self.arena.slot()?;
        let region = self.region.take()?;
        self.arena
            .slot_word(slot)
            .store(generation, Ordering::Release);
        Some(MemoryBlock {
            slot,
            generation,
            region,
            arena: self.arena,
            _charge: self.charge,
        })
    }
}

/// A block in memory. It never changes; dropping it frees its part.
#[derive(Debug)]
pub(crate) struct MemoryBlock {
    slot: u32,
    generation: u64,
    /// Before the charge: memory is free before its room is.
    region: Region,
    arena: Arc<Arena>,
    _charge: Charge,
}

impl MemoryBlock {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.region.bytes()
    }

    pub(crate) fn place(&self) -> BlockPlace {
        BlockPlace {
            at: self.region.at() as u64,
            slot: self.slot,
            generation: self.generation,
        }
    }

    /// Tells processes that read the memory that the block is no longer the one in force.
    pub(crate) fn retire(&self) {
        let word = self.arena.slot_word(self.slot);
        word.store(0, Ordering::SeqCst);
        // Whoever sees a byte that is written after this sees the slot as well.
        fence(Ordering::SeqCst);
    }
}

impl Drop for MemoryBlock {
    fn drop(&mut self) {
        self.retire();
        let slots = self.arena.slots.lock();
        slots
            .unwrap_or_else(PoisonError::into_inner)
            .free
            .push(self.slot);
    }
}

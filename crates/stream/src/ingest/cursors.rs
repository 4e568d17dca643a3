//! The cursors of a file's threads, in memory of this process that no child inherits.
//!
//! The kernel hands a child that was forked in any way, `_Fork` and `clone` without handlers included, these
//! pages full of zeros (`MADV_WIPEONFORK`). A cursor of zeros takes no put: its owner is that of no handle, and
//! it has no room. So the comparison that every put makes anyway tells a child that it has no file, and what is
//! slower then finds out why by the mark in the first page.
#![expect(
    unsafe_code,
    reason = "memory that is shared with inline C; each block says why it is sound"
)]

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use super::Cursor;

/// Bytes from one cursor to the next: two cache lines, so that threads do not share one.
const STRIDE_BYTES: usize = 128;
const _: () = assert!(size_of::<Cursor>() <= STRIDE_BYTES);

/// Whether cursors and the file behind them may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// This is another process than the one that made them: a child, which has no such file.
    Wiped,
    /// They are this process's.
    Alive,
    /// They are this process's, and the file is given up: it was cut short, or agents do not see it any more.
    Retired,
}

const ALIVE: u64 = 1;
const RETIRED: u64 = 2;

/// The cursors, with the mark before them.
#[derive(Debug)]
pub(super) struct Cursors {
    start: NonNull<u8>,
    count: usize,
    is_wiped_on_fork: bool,
}

// SAFETY: the memory lives until `Drop`; what several threads touch in it are atomics, and each cursor's other
// words are its thread's own.
unsafe impl Send for Cursors {}
// SAFETY: as above.
unsafe impl Sync for Cursors {}

impl Cursors {
    pub fn new(count: u32) -> io::Result<Self> {
        let count = count as usize;
        let bytes = (count + 1) * STRIDE_BYTES;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing of ours.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                access,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        };
        // SAFETY: the mapping just made; a child sees zeros in it, which are a valid state.
        let wiped = unsafe { madvise(start, bytes, Advice::LinuxWipeOnFork) };
        let cursors = Self {
            start: NonNull::new(start.cast()).expect("mmap does not return null on success"),
            count,
            is_wiped_on_fork: wiped.is_ok(),
        };
        cursors.mark_word().store(ALIVE, Ordering::Release);
        Ok(cursors)
    }

    /// Whether the kernel wipes them in every child; else [`Self::wipe`] must, which handlers of forks call.
    pub fn is_wiped_on_fork(&self) -> bool {
        self.is_wiped_on_fork
    }

    pub fn mark(&self) -> Mark {
        match self.mark_word().load(Ordering::Acquire) {
            ALIVE => Mark::Alive,
            RETIRED => Mark::Retired,
            _ => Mark::Wiped,
        }
    }

    /// The cursor of a ring.
    pub fn of(&self, ring: u32) -> NonNull<Cursor> {
        let ring = ring as usize;
        assert!(ring < self.count, "a ring of the file");
        // SAFETY: inside the mapping, by the line before.
        unsafe { self.start.add((ring + 1) * STRIDE_BYTES).cast() }
    }

    /// So many of them are in use, from the first on.
    pub fn set_used(&self, rings: u32) {
        self.used_word().store(rings.into(), Ordering::Release);
    }

    /// Has every further put go the slow way, where it finds that the file is given up.
    pub fn retire(&self) {
        // SAFETY: `start` is that of cursors that are mapped.
        unsafe { retire(self.address()) };
    }

    /// Makes them what the kernel makes of them in a child.
    pub fn wipe(&self) {
        self.mark_word().store(0, Ordering::Release);
        // SAFETY: as in `retire`; the calling thread is the child's only one.
        unsafe { close(self.address()) };
    }

    /// Where they are, for [`retire`].
    pub fn address(&self) -> usize {
        self.start.as_ptr() as usize
    }

    fn mark_word(&self) -> &AtomicU64 {
        // SAFETY: the first word of the mapping, aligned; any bit pattern is valid.
        unsafe { self.start.cast().as_ref() }
    }

    fn used_word(&self) -> &AtomicU64 {
        // SAFETY: the second word of the mapping, aligned; any bit pattern is valid.
        unsafe { self.start.add(8).cast().as_ref() }
    }
}

impl Drop for Cursors {
    /// Of the process that made them: [`super::memory::Memory`] sees to it.
    fn drop(&mut self) {
        let bytes = (self.count + 1) * STRIDE_BYTES;
        // SAFETY: unmaps exactly what `new` mapped; no cursor outlives the file's memory, which owns this.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), bytes) };
    }
}

/// Whether cursors at an address are this process's.
///
/// # Safety
/// `address` is that of [`Cursors`], which are mapped.
pub(super) unsafe fn is_alive(address: usize) -> bool {
    // SAFETY: as this function's: the mark is the first word.
    let mark = unsafe { &*(address as *const AtomicU64) };
    mark.load(Ordering::Acquire) != 0
}

/// As [`Cursors::retire`]; may be called by a signal handler.
///
/// # Safety
/// As [`is_alive`].
pub(super) unsafe fn retire(address: usize) {
    // SAFETY: as this function's.
    let mark = unsafe { &*(address as *const AtomicU64) };
    mark.store(RETIRED, Ordering::Release);
    // SAFETY: as this function's.
    unsafe { close(address) };
}

/// Leaves no room in the cursors that were ever used, and no owner of handles. Pointers stay what they are: a
/// thread may be in the middle of a put.
///
/// # Safety
/// As [`is_alive`].
unsafe fn close(address: usize) {
    // SAFETY: as this function's: the second word.
    let used = unsafe { &*((address + 8) as *const AtomicU64) };
    let used = used.load(Ordering::Acquire) as usize;
    for ring in 0..used {
        let cursor = (address + (ring + 1) * STRIDE_BYTES) as *const Cursor;
        // SAFETY: one of `used` cursors, inside the mapping; both fields are atomic.
        let (limit, owner) = unsafe { (&(*cursor).limit, &(*cursor).owner) };
        owner.store(0, Ordering::Relaxed);
        limit.store(0, Ordering::Relaxed);
    }
}

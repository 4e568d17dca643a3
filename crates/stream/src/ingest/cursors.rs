//! The cursors of a file's threads, in memory of this process that no child inherits.
//!
//! The kernel gives a child, however it was forked (even by `_Fork` and `clone`, which run no
//! handlers), these pages full of zeros (`MADV_WIPEONFORK`). A cursor of zeros accepts no put: its
//! owner matches no handle, and it has no room. So the comparison that every put makes anyway
//! reveals to a child that it has no file; the slow path then finds the reason in the mark on the
//! first page.
#![expect(
    unsafe_code,
    reason = "memory that is shared with inline C; each block says why it is sound"
)]

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use super::RingCursor;

/// Bytes from one cursor to the next: two cache lines, so that threads do not share one.
const STRIDE_BYTES: usize = 128;
const _: () = assert!(size_of::<RingCursor>() <= STRIDE_BYTES);

/// Whether the cursors and the file behind them may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CursorsMark {
    /// Another process created them: this one is a child, which has no such file.
    Wiped,
    /// This process created them.
    Alive,
    /// This process created them, and has given up the file: it was cut short, or agents no longer
    /// see it.
    Retired,
}

const ALIVE: u64 = 1;
const RETIRED: u64 = 2;

/// The cursors, with the mark before them.
#[derive(Debug)]
pub(super) struct RingCursors {
    start: NonNull<u8>,
    count: usize,
    is_wiped_on_fork: bool,
}

// SAFETY: the memory lives until `Drop`; several threads access only its atomics, and the other
// words of each cursor belong to its thread.
unsafe impl Send for RingCursors {}
// SAFETY: as above.
unsafe impl Sync for RingCursors {}

impl RingCursors {
    pub(super) fn new(count: u32) -> io::Result<Self> {
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
        // SAFETY: the mapping was just created; a child sees zeros in it, which are a valid state.
        let wiped = unsafe { madvise(start, bytes, Advice::LinuxWipeOnFork) };
        let cursors = Self {
            start: NonNull::new(start.cast()).expect("mmap does not return null on success"),
            count,
            is_wiped_on_fork: wiped.is_ok(),
        };
        cursors.mark_word().store(ALIVE, Ordering::Release);
        Ok(cursors)
    }

    /// Whether the kernel wipes them in every child; otherwise fork handlers must call
    /// [`Self::wipe`].
    pub(super) fn is_wiped_on_fork(&self) -> bool {
        self.is_wiped_on_fork
    }

    pub(super) fn mark(&self) -> CursorsMark {
        match self.mark_word().load(Ordering::Acquire) {
            ALIVE => CursorsMark::Alive,
            RETIRED => CursorsMark::Retired,
            _ => CursorsMark::Wiped,
        }
    }

    /// Returns the cursor of a ring.
    pub(super) fn of(&self, ring: u32) -> NonNull<RingCursor> {
        let ring = ring as usize;
        assert!(ring < self.count, "a ring of the file");
        // SAFETY: inside the mapping, by the line before.
        unsafe { self.start.add((ring + 1) * STRIDE_BYTES).cast() }
    }

    /// Sets the number of cursors that are in use, from the first on.
    pub(super) fn set_used(&self, rings: u32) {
        self.used_word().store(rings.into(), Ordering::Release);
    }

    /// Sends every further put to the slow path, which finds that the file is given up.
    pub(super) fn retire(&self) {
        // SAFETY: `start` is the address of mapped cursors.
        unsafe { retire(self.address()) };
    }

    /// Wipes the cursors as the kernel does in a child.
    pub(super) fn wipe(&self) {
        self.mark_word().store(0, Ordering::Release);
        // SAFETY: as in `retire`; the calling thread is the only one of the child.
        unsafe { close(self.address()) };
    }

    /// Address of the cursors, for [`retire`].
    pub(super) fn address(&self) -> usize {
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

impl Drop for RingCursors {
    /// Only in the process that created them: [`super::memory::IngestMemory`] ensures that.
    fn drop(&mut self) {
        let bytes = (self.count + 1) * STRIDE_BYTES;
        // SAFETY: unmaps exactly what `new` mapped; no cursor outlives the file's memory, which
        // owns this.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), bytes) };
    }
}

/// Whether the cursors at an address belong to this process.
///
/// # Safety
/// `address` must be that of mapped [`RingCursors`].
pub(super) unsafe fn is_alive(address: usize) -> bool {
    // SAFETY: by this function's contract; the mark is the first word.
    let mark = unsafe { &*(address as *const AtomicU64) };
    mark.load(Ordering::Acquire) != 0
}

/// Like [`RingCursors::retire`]; a signal handler may call it.
///
/// # Safety
/// As for [`is_alive`].
pub(super) unsafe fn retire(address: usize) {
    // SAFETY: by this function's contract.
    let mark = unsafe { &*(address as *const AtomicU64) };
    mark.store(RETIRED, Ordering::Release);
    // SAFETY: by this function's contract.
    unsafe { close(address) };
}

/// Removes the room of all cursors that were ever used, and their owners. Pointers stay unchanged:
/// a thread may be in the middle of a put.
///
/// # Safety
/// As for [`is_alive`].
unsafe fn close(address: usize) {
    // SAFETY: by this function's contract; this is the second word.
    let used = unsafe { &*((address + 8) as *const AtomicU64) };
    let used = used.load(Ordering::Acquire) as usize;
    for ring in 0..used {
        let cursor = (address + (ring + 1) * STRIDE_BYTES) as *const RingCursor;
        // SAFETY: one of `used` cursors, inside the mapping; both fields are atomic.
        let (limit, owner) = unsafe { (&(*cursor).limit, &(*cursor).owner) };
        owner.store(0, Ordering::Relaxed);
        limit.store(0, Ordering::Relaxed);
    }
}

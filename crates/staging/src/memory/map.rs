//! A mapped memory file: the `unsafe` code of this crate.
//!
//! A process that may only read sees the file as atomic words, because its server may overwrite
//! them at any time. The server gives each part of the file to one [`Region`], which alone writes
//! or reads it.
#![expect(
    unsafe_code,
    reason = "mapping memory files; each block says why it is sound"
)]

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::FallocateFlags;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::extents::{Extents, rounded};

/// Freed bytes of one file that keep their memory, for the blocks that come next: 64 MiB.
const WARM_BYTES_MAX: usize = 64 << 20;

/// A memory file, mapped shared.
#[derive(Debug)]
pub(crate) struct SharedMap {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is plain memory that lives until `Drop`. It is reached through atomics, or
// through a `Region`, which has its part alone.
unsafe impl Send for SharedMap {}
// SAFETY: as above.
unsafe impl Sync for SharedMap {}

impl SharedMap {
    /// Maps a file read-only. The caller has checked that it cannot become shorter.
    pub(crate) fn read_only(file: impl AsFd, bytes: usize) -> io::Result<Self> {
        Self::new(file, bytes, ProtFlags::READ)
    }

    fn new(file: impl AsFd, bytes: usize, access: ProtFlags) -> io::Result<Self> {
        if bytes == 0 || !bytes.is_multiple_of(8) || isize::try_from(bytes).is_err() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let null = std::ptr::null_mut();
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing of ours.
        let start = unsafe { mmap(null, bytes, access, MapFlags::SHARED, file, 0)? };
        let start = NonNull::new(start.cast()).expect("mmap does not return null on success");
        Ok(Self { start, bytes })
    }

    /// The `count` words from byte `at`; `None` if they are not all inside.
    #[inline]
    pub(crate) fn words(&self, at: usize, count: usize) -> Option<&[AtomicU64]> {
        let end = count.checked_mul(8)?.checked_add(at)?;
        if end > self.bytes || !at.is_multiple_of(8) {
            return None;
        }
        // SAFETY: the range lies inside the mapping and is aligned (the start is that of a page);
        // any bit pattern is a valid AtomicU64; the mapping outlives the borrow. The server takes
        // words of its own table alone, which no `Region` covers.
        Some(unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(at).cast(), count) })
    }

    /// Copies bytes out; `None` if they are not all inside. They may be overwritten meanwhile:
    /// the caller finds out.
    pub(crate) fn copy_out(&self, at: usize, out: &mut [u8]) -> Option<()> {
        let skip = at % 8;
        // Checks the range, and has it as what it is: words that may change at any time.
        let words = self.words(at - skip, (skip + out.len()).div_ceil(8))?;
        copy_bytes(words, skip, out);
        Some(())
    }
}

/// Copies bytes from the `skip`th on, which may be overwritten meanwhile. The words have at least
/// as many.
///
/// It takes as long as `memcpy`; loads of one word after the other take 1.6 times that.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn copy_bytes(words: &[AtomicU64], skip: usize, out: &mut [u8]) {
    assert!(skip + out.len() <= words.len() * 8, "the range is checked");
    // SAFETY: the source has that many bytes behind `skip` (asserted), the target is ours alone,
    // and they do not overlap, since nobody here may write to the source. The instructions are no
    // accesses of this program, so that a concurrent write by the server is no data race of it;
    // the processor then copies any mix of old and new bytes, which the caller throws away.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") out.len() => _,
            inout("rsi") words.as_ptr().cast::<u8>().add(skip) => _,
            inout("rdi") out.as_mut_ptr() => _,
            options(nostack, preserves_flags),
        );
    }
}

/// Copies bytes from the `skip`th on, which may be overwritten meanwhile. The words have at least
/// as many.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn copy_bytes(mut words: &[AtomicU64], skip: usize, mut out: &mut [u8]) {
    let bytes = |word: &AtomicU64| {
        word.load(std::sync::atomic::Ordering::Relaxed)
            .to_ne_bytes()
    };
    if skip > 0 {
        let (first, rest) = words.split_first().expect("the range is checked");
        let (head, tail) = out.split_at_mut(out.len().min(8 - skip));
        head.copy_from_slice(&bytes(first)[skip..skip + head.len()]);
        (words, out) = (rest, tail);
    }
    let (whole, last) = out.as_chunks_mut::<8>();
    for (chunk, word) in whole.iter_mut().zip(words) {
        *chunk = bytes(word);
    }
    if let Some(word) = words.get(whole.len()) {
        last.copy_from_slice(&bytes(word)[..last.len()]);
    }
}

impl Drop for SharedMap {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `new` mapped; no borrow outlives `self`. A failure would
        // leave the mapping in place, which is harmless.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// The server's side of a memory file: a table of words, and behind it parts for blocks.
#[derive(Debug)]
pub(crate) struct RegionMap {
    map: SharedMap,
    file: OwnedFd,
    free: Mutex<FreeParts>,
}

#[derive(Debug)]
struct FreeParts {
    extents: Extents,
    /// Freed bytes that may still have memory.
    warm_bytes: usize,
}

impl RegionMap {
    /// Maps a file of this length whose first `table_bytes` are words. No other process may write
    /// to it.
    pub(crate) fn new(file: OwnedFd, bytes: usize, table_bytes: usize) -> io::Result<Arc<Self>> {
        let map = SharedMap::new(&file, bytes, ProtFlags::READ | ProtFlags::WRITE)?;
        let free = Mutex::new(FreeParts {
            extents: Extents::new(table_bytes, bytes),
            warm_bytes: 0,
        });
        Ok(Arc::new(Self { map, file, free }))
    }

    /// One word of the table.
    pub(crate) fn word(&self, index: usize) -> &AtomicU64 {
        let words = self.map.words(index * 8, 1);
        &words.expect("the table has its words: sized when it was made")[0]
    }

    /// A part of the file, with memory behind it; `None` if there is none in one piece, or if the
    /// system has no memory.
    pub(crate) fn carve(self: &Arc<Self>, bytes: usize) -> Option<Region> {
        let at = self.lock().extents.take(rounded(bytes))?;
        let map = Arc::clone(self);
        // From here on, dropping the region gives the part back.
        let region = Region { map, at, bytes };
        // Memory is taken now: a page that cannot be had later would be a signal and not an error.
        let (from, length) = (at as u64, rounded(bytes) as u64);
        let flags = FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&self.file, flags, from, length).ok()?;
        let mut free = self.lock();
        free.warm_bytes = free.warm_bytes.saturating_sub(rounded(bytes));
        drop(free);
        Some(region)
    }

    fn give(&self, at: usize, bytes: usize) {
        let mut free = self.lock();
        free.extents.give(at, rounded(bytes));
        free.warm_bytes += rounded(bytes);
        if free.warm_bytes <= WARM_BYTES_MAX {
            return;
        }
        free.warm_bytes = 0;
        let page = rustix::param::page_size();
        for (at, bytes) in free.extents.free() {
            let (first, end) = (at.next_multiple_of(page), (at + bytes) / page * page);
            if first < end {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let (from, length) = (first as u64, (end - first) as u64);
                // What is not given back to the system is used again.
                let _ = rustix::fs::fallocate(&self.file, flags, from, length);
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, FreeParts> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A part of a memory file that nothing else in this process has.
#[derive(Debug)]
pub(crate) struct Region {
    map: Arc<RegionMap>,
    at: usize,
    bytes: usize,
}

impl Region {
    /// Where it begins in the file.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Its bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the allocator gave this part of the mapping to this region alone, inside the
        // mapping and behind the table; it is written only through `bytes_mut`. Other processes
        // have a descriptor that cannot write. (One of the server's own user could get at the
        // file through /proc, as it could at all of the server's memory.)
        unsafe { std::slice::from_raw_parts(self.start(), self.bytes) }
    }

    /// Its bytes, to be written.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; `self` is borrowed exclusively. Readers in other processes see
        // the file through atomics, and find out by its slot that they have read too late.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.bytes) }
    }

    fn start(&self) -> *mut u8 {
        // SAFETY: the offset came from the allocator of this mapping, so it lies inside.
        unsafe { self.map.map.start.as_ptr().add(self.at) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.map.give(self.at, self.bytes);
    }
}

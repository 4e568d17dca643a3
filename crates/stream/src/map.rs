//! A mapped file as atomic words: the `unsafe` code of segments.
//!
//! Both sides access the file only as `&[AtomicU64]` (and the wake words as `&AtomicU32`), so that
//! a concurrent writer is a matter of protocol, never of undefined behaviour, and every offset from
//! the file is checked here before it is used.
#![expect(unsafe_code, reason = "mapping files; each block says why it is sound")]

use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

/// The access rights of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapAccess {
    /// Read-only; the kernel enforces it.
    Read,
    /// Read and write.
    Write,
}

/// A whole file, mapped shared.
#[derive(Debug)]
pub(crate) struct FileMap {
    start: NonNull<u8>,
    bytes: usize,
    access: MapAccess,
}

// SAFETY: the mapping is plain memory that lives until `Drop`; it is only reached through atomics.
unsafe impl Send for FileMap {}
// SAFETY: as above; shared access is by atomic loads and stores.
unsafe impl Sync for FileMap {}

impl FileMap {
    /// Maps the first `bytes` bytes (a multiple of 8) of `file`.
    pub(crate) fn new(file: &File, bytes: usize, access: MapAccess) -> io::Result<Self> {
        if bytes == 0 || !bytes.is_multiple_of(8) || isize::try_from(bytes).is_err() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let protection = match access {
            MapAccess::Read => ProtFlags::READ,
            MapAccess::Write => ProtFlags::READ | ProtFlags::WRITE,
        };
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing of ours.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                protection,
                MapFlags::SHARED,
                file,
                0,
            )?
        };
        let start = NonNull::new(start.cast()).expect("mmap does not return null on success");
        Ok(Self {
            start,
            bytes,
            access,
        })
    }

    /// Length of the mapping, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Address of the first byte.
    pub(crate) fn address(&self) -> usize {
        self.start.as_ptr() as usize
    }

    /// Makes the system find memory now for `bytes` bytes at offset `at`. Returns an error where a
    /// store into them would be a fault; EINVAL where the kernel cannot do this (before Linux
    /// 5.14).
    pub(crate) fn populate(&self, at: usize, bytes: usize) -> io::Result<()> {
        let page = rustix::param::page_size();
        let first = at / page * page;
        let end = (at + bytes).next_multiple_of(page).min(self.bytes);
        if first >= end {
            return Ok(());
        }
        let populate = || {
            // SAFETY: the pages belong to this mapping, which stays as it is: they only get memory.
            unsafe {
                let first = self.start.as_ptr().add(first).cast();
                madvise(first, end - at / page * page, Advice::LinuxPopulateWrite)
            }
        };
        Ok(uninterrupted(populate)?)
    }

    /// Keeps the mapping, and the lock of its file, from child processes and from core dumps. A
    /// child must not touch the mapping, nor unmap what has been mapped in its place.
    pub(crate) fn keep_from_children(&self) {
        for advice in [Advice::LinuxDontFork, Advice::LinuxDontDump] {
            // SAFETY: the advice covers the whole mapping, which stays as it is in this process; in
            // a child, its user finds out before any access (see `ingest::cursors`). A kernel that
            // knows neither advice changes nothing.
            let _ = unsafe { madvise(self.start.as_ptr().cast(), self.bytes, advice) };
        }
    }

    /// Replaces the file by anonymous memory: no other process sees what is stored from now on.
    pub(crate) fn replace(&self) {
        let _ = replace(self.address(), self.bytes);
    }

    /// The `count` words from byte offset `at`, or `None` if they are not all inside.
    #[inline(always)]
    pub(crate) fn words(&self, at: usize, count: usize) -> Option<&[AtomicU64]> {
        let end = count.checked_mul(8)?.checked_add(at)?;
        if end > self.bytes || !at.is_multiple_of(8) {
            return None;
        }
        // SAFETY: the range lies inside the mapping and is 8-byte aligned (page-aligned start, `at`
        // a multiple of 8); AtomicU64 has the layout of u64 and any bit pattern is valid; the
        // mapping outlives the borrow, and is at most isize::MAX long. Stores go only through
        // `Write` mappings (see `set`).
        Some(unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(at).cast(), count) })
    }

    /// One word at an offset that is known to be inside (header fields).
    #[inline(always)]
    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        &self
            .words(at, 1)
            .expect("header offsets are inside: checked at open")[0]
    }

    /// The 32-bit word at `at`, for futexes. A word that is accessed in this way is never accessed
    /// as 64 bits: racing accesses of two widths have no defined meaning in the memory model.
    pub(crate) fn half_word(&self, at: usize) -> &AtomicU32 {
        assert!(
            at + 4 <= self.bytes && at.is_multiple_of(4),
            "the futex word lies in the header"
        );
        // SAFETY: inside the mapping, 4-byte aligned, any bit pattern valid, as in `words`.
        unsafe { &*self.start.as_ptr().add(at).cast::<AtomicU32>() }
    }

    /// Stores one word; the mapping must be writable.
    pub(crate) fn set(&self, at: usize, value: u64, order: Ordering) {
        assert_eq!(self.access, MapAccess::Write, "only the writer stores");
        self.word(at).store(value, order);
    }

    /// Copies bytes out of the mapping, word by word; `None` if they are not all inside.
    pub(crate) fn copy_out(&self, at: usize, out: &mut [u8]) -> Option<()> {
        let words = self.words(at, out.len().div_ceil(8))?;
        for (chunk, word) in out.chunks_mut(8).zip(words) {
            let bytes = word.load(Ordering::Relaxed).to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
        Some(())
    }

    /// Copies words out of the mapping; none if they are not all inside.
    pub(crate) fn words_out(&self, at: usize, count: usize) -> impl Iterator<Item = u64> {
        let words = self.words(at, count).unwrap_or_default();
        words.iter().map(|word| word.load(Ordering::Relaxed))
    }

    /// Copies words into the mapping, which must be writable.
    pub(crate) fn words_in(&self, at: usize, from: impl ExactSizeIterator<Item = u64>) {
        assert_eq!(self.access, MapAccess::Write, "only the writer stores");
        let words = self
            .words(at, from.len())
            .expect("the writer knows its layout");
        for (word, value) in words.iter().zip(from) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Copies bytes into the mapping, word by word; the last word is filled up with zeros.
    pub(crate) fn copy_in(&self, at: usize, bytes: &[u8]) {
        assert_eq!(self.access, MapAccess::Write, "only the writer stores");
        let words = self
            .words(at, bytes.len().div_ceil(8))
            .expect("the writer knows its layout");
        for (chunk, word) in bytes.chunks(8).zip(words) {
            let mut padded = [0; 8];
            padded[..chunk.len()].copy_from_slice(chunk);
            word.store(u64::from_le_bytes(padded), Ordering::Relaxed);
        }
    }
}

/// Repeats a system call until no signal interrupts it.
pub(crate) fn uninterrupted<T>(call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    // The timer of a profiler may interrupt the call again and again.
    const TRIES_MAX: usize = 100;
    let mut tries = std::iter::repeat_with(call).take(TRIES_MAX);
    let is_done = |done: &Result<T, Errno>| !matches!(done, Err(Errno::INTR | Errno::AGAIN));
    tries.find(is_done).unwrap_or(Err(Errno::INTR))
}

/// Maps anonymous memory over a mapping of ours. A signal handler may call it.
pub(crate) fn replace(start: usize, bytes: usize) -> Result<(), Errno> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // Shared and not reserved memory counts towards no limit of this process.
    let flags = MapFlags::FIXED | MapFlags::SHARED | MapFlags::NORESERVE;
    // SAFETY: callers pass only ranges that they own; the words in them are atomics, whose values
    // anyone may change at any time.
    unsafe { mmap_anonymous(start as *mut _, bytes, access, flags) }.map(drop)
}

impl Drop for FileMap {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `new` mapped; no borrow outlives `self`.
        // A failure would leave the mapping in place, which is harmless.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

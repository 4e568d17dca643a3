//! A word that distinguishes a process from its children, however they were created.
#![expect(
    unsafe_code,
    reason = "memory that children do not inherit; each block says why it is sound"
)]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

/// The process id of the owner of this memory. A forked child finds 0 in its copy; a child that
/// shares the memory, as after `vfork`, finds the id of its parent.
#[derive(Debug)]
pub struct ForkMark {
    /// `None` if there is no memory for it, or the kernel does not wipe it (before Linux 4.14):
    /// then only the fork handlers notice a fork.
    page: Option<NonNull<AtomicU32>>,
    plain: AtomicU32,
}

// SAFETY: the page is mapped for good, and accessed only through its atomic.
unsafe impl Send for ForkMark {}
// SAFETY: as above.
unsafe impl Sync for ForkMark {}

impl ForkMark {
    /// Creates a mark with this process id. It must be kept for good: its page is never unmapped.
    pub fn new(pid: u32) -> Self {
        let mark = Self {
            page: page(),
            plain: AtomicU32::new(0),
        };
        mark.set(pid);
        mark
    }

    /// Process id of the memory's owner; 0 in a child that has a copy of it.
    pub fn pid(&self) -> u32 {
        self.word().load(Ordering::Acquire)
    }

    /// Sets the process id of the memory's owner.
    pub fn set(&self, pid: u32) {
        self.word().store(pid, Ordering::Release);
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: the page is mapped for good, and begins with the word.
        self.page
            .map_or(&self.plain, |page| unsafe { &*page.as_ptr() })
    }
}

fn page() -> Option<NonNull<AtomicU32>> {
    let bytes = rustix::param::page_size();
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing of ours; in a
    // child it is zeros, which are a valid word.
    unsafe {
        let start = mmap_anonymous(std::ptr::null_mut(), bytes, access, MapFlags::PRIVATE).ok()?;
        madvise(start, bytes, Advice::LinuxWipeOnFork).ok()?;
        NonNull::new(start.cast())
    }
}

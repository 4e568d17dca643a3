//! Return of unused memory to the system.
//!
//! Much memory is given back at once, little within some looks after it was freed, so that memory
//! that readers needed is not kept after they left.
//!
//! It stands alone because it controls glibc's allocator, which otherwise keeps the memory that a
//! few large answers freed: after six of them an idle agent held 978 MB where a fresh one holds 33.
//! Only the program that owns the process may decide this, so no library of ours does.
#![expect(
    unsafe_code,
    reason = "mallopt, mallinfo and malloc_trim have no safe wrapper; see the SAFETY arguments"
)]

/// Allocations from this size have pages of their own, which go back when they are freed. Since the
/// size is set here, it does not grow with the sizes that were freed. The memory that the archive's
/// sealer takes and frees all the time is in smaller pieces: with 128 KiB here, the kernel's part
/// of its time was 17 % of a core at a million values a second, not 5 %.
#[cfg(target_env = "gnu")]
const OWN_PAGES_BYTES: i32 = 4 << 20;
/// Free bytes at the end of a heap that are kept.
#[cfg(target_env = "gnu")]
const KEPT_BYTES: i32 = 8 << 20;
/// Heaps that threads share: each keeps free memory of its own.
#[cfg(target_env = "gnu")]
const HEAPS_MAX: i32 = 4;
/// Growth of resident memory since the last time at which memory is given back.
const GROWN_BYTES: u64 = 16 << 20;
/// Growth of resident and unused memory since the last time at which memory is also given back.
const UNUSED_BYTES: u64 = 2 << 20;
/// Looks between two measurements of unused memory, for which the allocator goes through all free
/// pieces.
const UNUSED_LOOKS: u32 = 10;
/// Looks after which memory is given back in any case: a small piece that is freed may free a whole
/// page around it, which no number shows.
const ANYWAY_LOOKS: u32 = 30;

/// Sets the allocator's limits. To be called first of all, while there is one thread.
pub(crate) fn settle() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two integers and changes settings of the allocator under its own lock.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, OWN_PAGES_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
        libc::mallopt(libc::M_ARENA_MAX, HEAPS_MAX);
    }
}

/// Gives free memory back when much has come since it last did.
#[derive(Debug, Default)]
pub(crate) struct Heap {
    resident_bytes: u64,
    /// Resident and unused after memory was last given back: stacks, and free pieces smaller than a page.
    unused_bytes: u64,
    looks: u32,
}

impl Heap {
    /// Measures the resident memory, and gives memory back if it has grown, or much of it is
    /// unused.
    pub(crate) fn look(&mut self) {
        let Some(now) = resident_bytes() else { return };
        self.looks = (self.looks + 1) % ANYWAY_LOOKS;
        let has_grown = now >= self.resident_bytes.saturating_add(GROWN_BYTES);
        let is_long = self.looks.is_multiple_of(UNUSED_LOOKS) && self.is_unused(now);
        let is_due = has_grown || is_long || self.looks == 0;
        if !is_due {
            self.resident_bytes = self.resident_bytes.min(now);
            return;
        }
        give_back();
        self.resident_bytes = resident_bytes().unwrap_or(now);
        self.unused_bytes = self.resident_bytes.saturating_sub(used_bytes());
    }

    /// Whether much more is unused than is left after memory was given back.
    fn is_unused(&self, resident_bytes: u64) -> bool {
        let unused = resident_bytes.saturating_sub(used_bytes());
        unused >= self.unused_bytes.saturating_add(UNUSED_BYTES)
    }
}

fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes an integer; it gives free pages of the heaps back under their
    // locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Bytes that the program holds of the allocator; 0 where it does not tell.
fn used_bytes() -> u64 {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: mallinfo takes nothing and gives plain numbers, read under the heaps' locks.
        let info = unsafe { libc::mallinfo() };
        // They are of 32 bits, and wrap around beyond 4 GiB: less seems used then, and a look more gives back.
        let bytes = |field: i32| u64::from(field.cast_unsigned());
        bytes(info.uordblks) + bytes(info.hblkhd)
    }
    #[cfg(not(target_env = "gnu"))]
    0
}

/// Bytes of the process's own memory, without mapped files.
fn resident_bytes() -> Option<u64> {
    const PAGE_BYTES: u64 = 4_096;
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = statm.split_whitespace().skip(1).map(str::parse::<u64>);
    let (resident, shared) = (pages.next()?.ok()?, pages.next()?.ok()?);
    Some(resident.saturating_sub(shared) * PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Held while a test runs, so that no test sees the memory of another.
    static ALONE: Mutex<()> = Mutex::new(());

    #[test]
    fn what_was_freed_goes_back() {
        let _alone = ALONE.lock().unwrap();
        settle();
        let mut heap = Heap::default();
        heap.look();
        // Small pieces, with one kept in each stretch so that no heap has a free end.
        let mut pieces: Vec<Vec<u8>> = (0..100_000).map(|_| vec![1; 1_000]).collect();
        let full = resident_bytes().unwrap();
        let mut number = 0;
        pieces.retain(|_| {
            number += 1;
            number % 1_000 == 0
        });
        heap.look();
        let after = resident_bytes().unwrap();
        assert!(after + (64 << 20) < full, "{after} bytes of {full}");
        drop(pieces);
    }

    /// An amount below the one that is given back at once, as a few answers leave it.
    #[test]
    fn a_little_that_was_freed_goes_back_too() {
        let _alone = ALONE.lock().unwrap();
        settle();
        let mut heap = Heap::default();
        heap.look();
        let mut pieces: Vec<Vec<u8>> = (0..12_000).map(|_| vec![1; 1_000]).collect();
        let full = resident_bytes().unwrap();
        let mut number = 0;
        pieces.retain(|_| {
            number += 1;
            number % 1_000 == 0
        });
        (0..UNUSED_LOOKS).for_each(|_| heap.look());
        let after = resident_bytes().unwrap();
        assert!(after + (6 << 20) < full, "{after} bytes of {full}");
        drop(pieces);
    }
}

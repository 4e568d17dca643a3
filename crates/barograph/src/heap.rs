//! Return of unused memory to the system.
//!
//! What readers took is not kept after they left. Memory is given back from time to time in any case:
//! a small piece that is freed may set a whole page around it free, which no number shows.
//!
//! It stands alone because it controls glibc's allocator, which otherwise keeps the memory that a
//! few large answers freed: after six of them an idle agent held 978 MB where a fresh one holds 33.
//! Only the program that owns the process may decide this, so no library of ours does.
#![expect(
    unsafe_code,
    reason = "mallopt and malloc_trim have no safe wrapper; see the SAFETY arguments"
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

/// Gives free memory back.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes an integer; it gives free pages of the heaps back under their
    // locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of memory that are the process's own, without what it maps of files.
    fn resident_bytes() -> u64 {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        let mut pages = statm
            .split_whitespace()
            .map(|field| field.parse::<u64>().unwrap());
        let (resident, shared) = (pages.nth(1).unwrap(), pages.next().unwrap());
        (resident - shared) * 4_096
    }

    #[test]
    fn what_was_freed_goes_back() {
        settle();
        // Small pieces, with one kept in each stretch so that no heap has a free end.
        let mut pieces: Vec<Vec<u8>> = (0..100_000).map(|_| vec![1; 1_000]).collect();
        let full = resident_bytes();
        let mut number = 0;
        pieces.retain(|_| {
            number += 1;
            number % 1_000 == 0
        });
        give_back();
        let after = resident_bytes();
        assert!(after + (64 << 20) < full, "{after} bytes of {full}");
        drop(pieces);
    }
}

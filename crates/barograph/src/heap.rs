//! Return of unused memory to the system: what was freed, and code that has not run lately.
//!
//! Memory that readers needed is not kept after they left. It is given back at even intervals,
//! whether or not much is free: a small piece that is freed may free a whole page around it, which
//! no number shows.
//!
//! It stands alone because it controls glibc's allocator, which otherwise keeps the memory that a
//! few large answers freed: after six of them an idle agent held 978 MB where a fresh one holds 33.
//! Only the program that owns the process may decide this, so no library of ours does.
//!
//! Code and constants are pages of the program's file. Those that were read once stay mapped: after
//! its start an agent has mapped what only starts need, and after a reader what only readers need.
//! They are unmapped too. What still runs is mapped again when it is needed next, which costs page
//! faults, so this is done more seldom, and even more seldom while nobody reads. The pages come
//! from the system's cache of files: no disk is read for them, unless the system has dropped one.
#![expect(
    unsafe_code,
    reason = "mallopt, malloc_trim and madvise have no safe wrapper; see the SAFETY arguments"
)]

use std::ffi::c_void;
use std::fs::File;
use std::io::Read as _;

use barograph_agent::RequestCounts;

/// Bytes of `/proc/self/smaps` that have the mappings of the program, which come first.
const MAPPINGS_BYTES: usize = 8 << 10;

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

/// Looks after which code is unmapped although nobody has read meanwhile: an agent does more by
/// itself than what it does every second, such as sealing an hour.
const QUIET_LOOKS: u32 = 10;

/// Decides, at even intervals, whether code is to be unmapped.
#[derive(Debug, Default)]
pub(crate) struct MappedCode {
    /// What the last look knew of requests.
    known: RequestCounts,
    /// The number of looks since code was unmapped; none before the first time.
    looks: Option<u32>,
}

impl MappedCode {
    /// Unmaps code that has not run lately, if somebody has read since the last look, with requests
    /// or by watching, or if it was not done for long.
    pub(crate) fn look(&mut self, requests: RequestCounts) {
        if self.is_due(requests) {
            unmap_code();
        }
    }

    fn is_due(&mut self, now: RequestCounts) -> bool {
        let watchers = now.watchers + self.known.watchers;
        let is_read = watchers > 0 || now.requests != self.known.requests;
        let looks = self.looks.map_or(QUIET_LOOKS, |looks| looks + 1);
        let is_due = is_read || looks >= QUIET_LOOKS;
        self.known = now;
        self.looks = Some(if is_due { 0 } else { looks });
        is_due
    }
}

/// Unmaps code that has not run lately.
fn unmap_code() {
    // Without /proc, code stays mapped.
    let mut begin = [0; MAPPINGS_BYTES];
    let begin = File::open("/proc/self/smaps").and_then(|mut smaps| {
        let bytes = smaps.read(&mut begin)?;
        Ok(String::from_utf8_lossy(&begin[..bytes]))
    });
    for (start, end) in begin.iter().flat_map(|text| constant_mappings(text)) {
        // SAFETY: these pages are mapped from the program's file, cannot be written and never were,
        // since none of them is the process's own: whoever reads them next finds the same bytes.
        unsafe {
            libc::madvise(start as *mut c_void, end - start, libc::MADV_DONTNEED);
        }
    }
}

/// The mappings of the program's file that are as in the file, from the beginning of
/// `/proc/self/smaps`. The program comes first there. Pages that were written once are the
/// process's own, such as addresses that the loader has filled in, or the code at which somebody
/// traces this program; mappings with such pages are left out.
fn constant_mappings(smaps: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut program = None;
    let mut mapping = None;
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        if let Some((start, end)) = first.split_once('-') {
            let range = usize::from_str_radix(start, 16)
                .ok()
                .zip(usize::from_str_radix(end, 16).ok());
            let may = words.next().unwrap_or_default();
            // Offset, device and inode come before the path.
            let file = words.nth(3);
            if *program.get_or_insert(file) != file {
                break;
            }
            mapping = range.filter(|_| file.is_some() && !may.contains('w'));
        } else if first == "Anonymous:" && words.next() == Some("0") {
            found.extend(mapping.take());
        }
    }
    found
}

/// Gives memory back that was freed.
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

    /// Bytes of files that are mapped and resident.
    fn mapped_bytes() -> u64 {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        let shared = statm.split_whitespace().nth(2).unwrap();
        shared.parse::<u64>().unwrap() * 4_096
    }

    /// Many constants, which are pages of the program's file.
    static CONSTANTS: [u64; 1 << 20] = {
        let mut constants = [0; 1 << 20];
        constants[7] = 7;
        constants
    };

    #[test]
    fn mappings_that_were_written_stay() {
        let smaps = "\
55d0a000-55d0c000 r--p 00000000 fe:00 99 /usr/bin/baro
Rss:                   8 kB
Anonymous:             0 kB
VmFlags: rd mr mw me sd
55d0c000-55d1c000 r-xp 00002000 fe:00 99 /usr/bin/baro
Anonymous:             4 kB
55d1c000-55d1d000 r--p 00012000 fe:00 99 /usr/bin/baro
Anonymous:             0 kB
55d1d000-55d1f000 rw-p 00013000 fe:00 99 /usr/bin/baro
Anonymous:             0 kB
55e00000-55e21000 rw-p 00000000 00:00 0 [heap]
Anonymous:             0 kB
7f000000-7f021000 r-xp 00000000 fe:00 98 /usr/lib/libc.so.6
Anonymous:             0 kB
";
        let expect = [(0x55d0_a000, 0x55d0_c000), (0x55d1_c000, 0x55d1_d000)];
        assert_eq!(constant_mappings(smaps), expect);
        assert_eq!(constant_mappings("no text\n-\nAnonymous: 0 kB"), []);
        assert_eq!(
            constant_mappings("1-2 r--p 0 0:0 0\nAnonymous: 0 kB"),
            [],
            "of no file"
        );
    }

    #[test]
    fn code_is_unmapped_after_readers_and_now_and_then() {
        let mut code = MappedCode::default();
        let mut check = |requests, watchers, expect| {
            let now = RequestCounts {
                requests,
                watchers,
                ..RequestCounts::default()
            };
            assert_eq!(code.is_due(now), expect, "{now:?}");
        };
        // What only the start needed.
        check(0, 0, true);
        for _ in 0..2 {
            (1..QUIET_LOOKS).for_each(|_| check(0, 0, false));
            check(0, 0, true);
        }
        check(0, 0, false);
        check(7, 0, true);
        check(7, 0, false);
        check(8, 1, true);
        // A page that is open makes no further requests.
        check(8, 1, true);
        check(8, 0, true);
        check(8, 0, false);
    }

    #[test]
    fn what_is_read_seldom_is_unmapped_and_still_there() {
        let sum = || std::hint::black_box(&CONSTANTS).iter().sum::<u64>();
        assert_eq!(sum(), 7);
        let read = mapped_bytes();
        unmap_code();
        let after = mapped_bytes();
        assert!(after + (4 << 20) < read, "{after} bytes of {read}");
        assert_eq!(sum(), 7);
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

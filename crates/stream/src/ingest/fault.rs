//! Faults of stores into an ingest file that its owner has cut short: the kernel answers with
//! SIGBUS, which would end a program that has nothing to do with it.
//!
//! No file in a shared directory can be sealed against that, so there is a signal handler. For an
//! address inside one of our mappings, and for no other, it replaces the file by anonymous memory
//! and gives up the file; it passes every other fault to the handler that was installed before. It
//! takes no lock and calls only functions that are allowed in a signal handler.
//!
//! If the program later installs a handler of its own, that one decides; and in a thread that
//! blocks the signal, the fault ends the program like any other.
#![expect(
    unsafe_code,
    reason = "a signal handler; each block says why it is sound"
)]

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::cursors;
use crate::map::replace;

/// Most mappings that are watched at a time. A process has one file, and one more for each time
/// that it closed it while its threads go on.
const REGIONS_MAX: usize = 64;

/// An entry of the table: free while `start` is 0.
struct Entry {
    start: AtomicUsize,
    end: AtomicUsize,
    /// Address of its [`cursors::RingCursors`].
    cursors: AtomicUsize,
}

/// Value of `start` while an entry is being filled.
const TAKEN: usize = 1;

static REGIONS: [Entry; REGIONS_MAX] = [const {
    Entry {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        cursors: AtomicUsize::new(0),
    }
}; REGIONS_MAX];

/// A mapping in the table, until it is dropped.
#[derive(Debug)]
pub(super) struct WatchedRegion(usize);

impl WatchedRegion {
    /// Watches a range of addresses whose cursors are at `cursors`; `None` if the table is full.
    pub(super) fn watch(addresses: Range<usize>, cursors: usize) -> Option<Self> {
        install();
        let take = |entry: &Entry| {
            let taken =
                entry
                    .start
                    .compare_exchange(0, TAKEN, Ordering::Acquire, Ordering::Relaxed);
            taken.is_ok()
        };
        let at = REGIONS.iter().position(take)?;
        let entry = &REGIONS[at];
        entry.end.store(addresses.end, Ordering::Relaxed);
        entry.cursors.store(cursors, Ordering::Relaxed);
        entry.start.store(addresses.start, Ordering::Release);
        Some(Self(at))
    }

    /// Stops watching.
    pub(super) fn free(&self) {
        REGIONS[self.0].start.store(0, Ordering::Release);
    }
}

impl Drop for WatchedRegion {
    fn drop(&mut self) {
        self.free();
    }
}

/// The action that was installed before our handler.
struct Previous(UnsafeCell<MaybeUninit<libc::sigaction>>);

// SAFETY: written once, by `install`, before the handler that reads it is there.
unsafe impl Sync for Previous {}

static PREVIOUS: Previous = Previous(UnsafeCell::new(MaybeUninit::zeroed()));

fn install() {
    static IS_INSTALLED: AtomicBool = AtomicBool::new(false);
    if IS_INSTALLED.swap(true, Ordering::AcqRel) {
        return;
    }
    // SAFETY: the calls read and write structs of ours; `PREVIOUS` is written before the handler is
    // installed, by the one thread that gets here. Zeros are a valid `sigaction`.
    unsafe {
        let previous = (*PREVIOUS.0.get()).as_mut_ptr();
        if libc::sigaction(libc::SIGBUS, std::ptr::null(), previous) != 0 {
            return;
        }
        let mut ours: libc::sigaction = MaybeUninit::zeroed().assume_init();
        ours.sa_sigaction = on_fault as *const () as usize;
        ours.sa_mask = (*previous).sa_mask;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        libc::sigaction(libc::SIGBUS, &raw const ours, std::ptr::null_mut());
    }
}

/// The signal handler for SIGBUS.
extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a complete `siginfo_t`; for a SIGBUS of a fault it has an address.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    if code == libc::BUS_ADRERR && mend(address) {
        return;
    }
    // SAFETY: the arguments are those that the kernel passed.
    unsafe { hand_on(signal, code, info, context) };
}

/// Replaces the file that contains an address by memory, if it is one of ours.
fn mend(address: usize) -> bool {
    for entry in &REGIONS {
        let start = entry.start.load(Ordering::Acquire);
        let end = entry.end.load(Ordering::Relaxed);
        if start <= TAKEN || !(start..end).contains(&address) {
            continue;
        }
        let cursors = entry.cursors.load(Ordering::Relaxed);
        // SAFETY: the thread that accesses the mapping keeps it alive, and with it its cursors,
        // which are unmapped after the entry is freed. In a child they are there as well, wiped:
        // the memory at the address is then not ours.
        if !unsafe { cursors::is_alive(cursors) } || replace(start, end - start).is_err() {
            return false;
        }
        // SAFETY: as above.
        unsafe { cursors::retire(cursors) };
        return true;
    }
    false
}

/// Does what would have happened without our handler.
///
/// # Safety
/// Only in a signal handler, with its arguments.
unsafe fn hand_on(signal: c_int, code: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: written once, before this handler was installed.
    let previous = unsafe { (*PREVIOUS.0.get()).assume_init_ref() };
    let is_sent = code <= 0;
    match previous.sa_sigaction {
        libc::SIG_IGN if is_sent => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: the action is the one before our handler; a fault happens again when this
            // returns.
            unsafe {
                libc::sigaction(signal, previous, std::ptr::null_mut());
                if is_sent {
                    libc::raise(signal);
                }
            }
        }
        handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: with this flag it is a function of these arguments.
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: without the flag it is a function of the signal alone.
            let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}

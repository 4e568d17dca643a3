//! What becomes of a store into an ingest file that its owner has cut short: the kernel answers it with SIGBUS,
//! which would end a program that has nothing to do with it.
//!
//! No file in a shared directory can be sealed against that, so a handler stands ready. For an address inside one
//! of our mappings, and for no other, it puts memory of nobody in the file's place, and gives the file up; whoever
//! was there before is handed every other fault. It takes no lock and calls nothing that may not be called there.
//!
//! A program that sets a handler of its own later has the last word, and so has a thread that blocks the signal:
//! then the fault ends the program as any other does.
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

/// Mappings that are watched at a time; one more is not. A process has one file, and one more for each time that
/// it closed it while threads of it go on.
const REGIONS_MAX: usize = 64;

/// An entry of the table: free while `start` is 0.
struct Entry {
    start: AtomicUsize,
    end: AtomicUsize,
    /// Of its [`cursors::Cursors`].
    cursors: AtomicUsize,
}

/// `start` while an entry is being filled.
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
pub(super) struct Region(usize);

impl Region {
    /// Watches addresses, whose cursors are at another; none when the table is full.
    pub fn watch(addresses: Range<usize>, cursors: usize) -> Option<Self> {
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

    /// Watches it no more.
    pub fn free(&self) {
        REGIONS[self.0].start.store(0, Ordering::Release);
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.free();
    }
}

/// What was there before the handler.
struct Previous(UnsafeCell<MaybeUninit<libc::sigaction>>);

// SAFETY: written once, by `install`, before the handler that reads it is there.
unsafe impl Sync for Previous {}

static PREVIOUS: Previous = Previous(UnsafeCell::new(MaybeUninit::zeroed()));

fn install() {
    static IS_INSTALLED: AtomicBool = AtomicBool::new(false);
    if IS_INSTALLED.swap(true, Ordering::AcqRel) {
        return;
    }
    // SAFETY: the calls read and write structs of ours; `PREVIOUS` is written before the handler is there, by the one
    // thread that comes here. Zeros are a valid `sigaction`.
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

/// The handler.
extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives a whole `siginfo_t`; for a SIGBUS of a fault it has an address.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    if code == libc::BUS_ADRERR && mend(address) {
        return;
    }
    // SAFETY: with what the kernel has given us.
    unsafe { hand_on(signal, code, info, context) };
}

/// Puts memory in the place of the file that an address is in, if it is one of ours.
fn mend(address: usize) -> bool {
    for entry in &REGIONS {
        let start = entry.start.load(Ordering::Acquire);
        let end = entry.end.load(Ordering::Relaxed);
        if start <= TAKEN || !(start..end).contains(&address) {
            continue;
        }
        let cursors = entry.cursors.load(Ordering::Relaxed);
        // SAFETY: who touches the mapping keeps it, and with it its cursors, which are unmapped after the entry is
        // free. In a child they are there as well, wiped: what is at the address is then not ours.
        if !unsafe { cursors::is_alive(cursors) } || replace(start, end - start).is_err() {
            return false;
        }
        // SAFETY: as above.
        unsafe { cursors::retire(cursors) };
        return true;
    }
    false
}

/// Does what would have happened without us.
///
/// # Safety
/// In a signal handler, with its arguments.
unsafe fn hand_on(signal: c_int, code: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: written once, before this handler was there.
    let previous = unsafe { (*PREVIOUS.0.get()).assume_init_ref() };
    let is_sent = code <= 0;
    match previous.sa_sigaction {
        libc::SIG_IGN if is_sent => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: as before our handler; a fault happens again when this returns.
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

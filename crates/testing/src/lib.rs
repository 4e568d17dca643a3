//! Tools that the tests of several crates share: an allocator that counts, for tests that a steady
//! state allocates nothing, and waits for other threads and processes.
//!
//! The crate stands alone because no product uses it.

mod wait;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

pub use wait::{wait_for, wait_until};

struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // At the end of a thread the cell may be gone; then nothing is counted any more.
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
}

#[expect(
    unsafe_code,
    reason = "an allocator is unsafe by its trait; it only counts and passes on"
)]
// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The number of allocations by `of` on this thread.
pub fn allocations(mut of: impl FnMut()) -> u64 {
    let before = COUNT.with(Cell::get);
    of();
    COUNT.with(Cell::get) - before
}

#[test]
fn the_counter_counts() {
    assert!(allocations(|| drop(std::hint::black_box(vec![1u8; 100]))) > 0);
}

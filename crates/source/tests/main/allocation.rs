//! A steady poll allocates nothing: counted by an allocator that counts, on this thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use crate::support::{MACHINES, Reader, Tree, source_names};

struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // At a thread's end the cell may be gone, and nobody counts any more.
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

fn allocations(mut of: impl FnMut()) -> u64 {
    let before = COUNT.with(Cell::get);
    of();
    COUNT.with(Cell::get) - before
}

#[test]
fn the_counter_counts() {
    assert!(allocations(|| drop(std::hint::black_box(vec![1u8; 100]))) > 0);
}

/// The container has no list of disks: there, each read looks into the directory, which allocates.
#[test]
fn a_steady_poll_allocates_nothing() {
    const STEP_NS: i64 = 50_000_000;
    for machine in MACHINES {
        let tree = Tree::of(machine);
        let mut readers: Vec<_> = source_names()
            .into_iter()
            .map(|name| (Reader::new(tree.source(&name)), name))
            // A slow source has a thread of its own; one that runs programs cannot but allocate.
            .filter(|(reader, name)| !reader.source.is_slow() || name == "filesystem")
            .collect();
        readers.retain_mut(|(reader, name)| {
            let absent = reader.read_after(STEP_NS).is_err() || reader.names.is_empty();
            !absent && (machine, &**name) != ("container", "disk")
        });
        tree.advance();
        for (mut reader, name) in readers {
            // Two seconds, in which the highest bandwidth becomes known.
            for _ in 0..40 {
                reader.read_after(STEP_NS).unwrap();
            }
            for _ in 0..20 {
                let at_ns = reader.reads * STEP_NS;
                reader.reads += 1;
                let made = allocations(|| {
                    reader.batch.begin(at_ns);
                    reader.source.read(at_ns, &mut reader.batch).unwrap();
                });
                assert_eq!(made, 0, "{name} on {machine}");
                // What `power` publishes is a reading a second, however often it is read.
                assert!(name == "power" || !reader.batch.samples().is_empty());
            }
        }
    }
}

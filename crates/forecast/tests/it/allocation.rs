//! No sample allocates: counted by an allocator that counts, on this thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

use barograph_forecast::predictors::{Holt, Kalman, Nlms, Persistence, Rls, Spectral};
use barograph_forecast::{Predictor, Random};

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

pub(crate) fn allocations(mut of: impl FnMut()) -> u64 {
    let before = COUNT.with(Cell::get);
    of();
    COUNT.with(Cell::get) - before
}

#[test]
fn the_counter_counts() {
    assert!(allocations(|| drop(black_box(vec![1u8; 100]))) > 0);
}

/// From the very first sample, over analyses of periods that are there and that are not, and gaps.
#[test]
fn predictors_allocate_nothing() {
    let mut all: Vec<Box<dyn Predictor>> = vec![
        Box::new(Persistence::default()),
        Box::new(Holt::default()),
        Box::new(Kalman::default()),
        Box::new(Nlms::<8>::default()),
        Box::new(Rls::<8>::default()),
        Box::new(Spectral::default()),
    ];
    for predictor in &mut all {
        let mut random = Random::new(1);
        let made = allocations(|| {
            let mut path = [0.0; 64];
            for step in 0..3000 {
                let period = [0.0, 0.0, 5.0, 1.0][step % 4];
                predictor.observe(if step < 1000 { period } else { random.normal() });
                black_box(predictor.predict(1) + predictor.predict(64));
                if step % 100 == 0 {
                    predictor.path(&mut path);
                    black_box(&path);
                }
                if step % 700 == 0 {
                    predictor.forget();
                }
            }
        });
        assert_eq!(made, 0, "{}", predictor.name());
    }
}

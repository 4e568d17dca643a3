//! Work on blocks, shared by threads. They start and end with each call, so that nobody else has to
//! know of them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Most threads.
const THREADS_MAX: usize = 256;

/// Does a piece of work for each item, by several threads, and returns the results in order.
pub(crate) fn shared<I: Send, R: Send>(
    threads: usize,
    items: Vec<I>,
    work: impl Fn(I) -> R + Sync,
) -> Vec<R> {
    let threads = threads.clamp(1, THREADS_MAX).min(items.len().max(1));
    if threads == 1 {
        return items.into_iter().map(work).collect();
    }
    let slots: Vec<Mutex<(Option<I>, Option<R>)>> = items
        .into_iter()
        .map(|item| Mutex::new((Some(item), None)))
        .collect();
    let next = AtomicUsize::new(0);
    let run = || {
        while let Some(slot) = slots.get(next.fetch_add(1, Ordering::Relaxed)) {
            let item = slot.lock().unwrap_or_else(PoisonError::into_inner).0.take();
            let result = item.map(&work);
            slot.lock().unwrap_or_else(PoisonError::into_inner).1 = result;
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(run);
        }
    });
    let results = slots
        .into_iter()
        .filter_map(|slot| slot.into_inner().unwrap_or_else(PoisonError::into_inner).1);
    results.collect()
}

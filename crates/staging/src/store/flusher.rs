//! The threads that flush a store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use barograph_model::NS_PER_MS;

use super::stock::BlockStore;
use crate::error::StagingError;

/// The longest time between two looks for work, in nanoseconds: pauses after failures end unheard.
const LOOK_NS_MAX: i64 = 100 * NS_PER_MS;
/// Most threads that flush one store.
const THREADS_MAX: usize = 16;

/// The threads that flush a store. Dropped, they end after the copies at which they are.
pub struct Flusher {
    store: Arc<BlockStore>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Flusher {
    /// Starts this many threads: at least one, at most 16.
    ///
    /// # Errors
    ///
    /// The system has no thread.
    pub fn start(store: &Arc<BlockStore>, threads: usize) -> Result<Self, StagingError> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut flusher = Self {
            store: Arc::clone(store),
            stop: Arc::clone(&stop),
            threads: Vec::new(),
        };
        if store.lower.is_empty() {
            return Ok(flusher);
        }
        for _ in 0..threads.clamp(1, THREADS_MAX) {
            let (store, stop) = (Arc::clone(store), Arc::clone(&stop));
            let thread = std::thread::Builder::new().name("staging-flush".into());
            let thread = thread.spawn(move || run(&store, &stop));
            let failed = |error| StagingError::Config(format!("no thread for flushing: {error}"));
            flusher.threads.push(thread.map_err(failed)?);
        }
        Ok(flusher)
    }

    /// Waits until nothing is dirty and no removal waits, up to a time in nanoseconds. Returns
    /// whether nothing is dirty.
    pub fn drain(&self, wait_ns: i64) -> bool {
        let clock = &self.store.clock;
        let until_ns = clock.monotonic_ns().saturating_add(wait_ns);
        while self.store.dirty_bytes() > 0 || self.store.has_leftovers() {
            if clock.monotonic_ns() >= until_ns {
                return self.store.dirty_bytes() == 0;
            }
            self.store.wait_for_room(until_ns);
        }
        true
    }
}

fn run(store: &BlockStore, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        match store.next_copy() {
            Ok(job) => {
                store.run_copy(&job);
                store.sweep();
            }
            Err(state) if store.has_leftovers() => {
                drop(state);
                store.sweep();
            }
            Err(state) => store.wait_for_work(state, LOOK_NS_MAX),
        }
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.store.tell_all_work();
        for thread in self.threads.drain(..) {
            // A thread that has panicked has said so.
            let _ = thread.join();
        }
    }
}

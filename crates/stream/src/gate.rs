//! Locks that survive a fork: no child finds one taken by a thread that it does not have.
//!
//! A thread that locks a mutex by [`lock`] holds the gate open as long as it has the lock; a fork
//! first closes the gate (see the client's fork handlers), and so waits until nobody has such a
//! lock. These locks must be held only for a short time.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static GATE: RwLock<()> = RwLock::new(());

thread_local! {
    /// Number of gated locks of this thread: with one, it need not pass the gate again.
    static HELD: Cell<u32> = const { Cell::new(0) };
}

/// A locked mutex, held behind the gate.
pub struct GatedGuard<'a, T> {
    // Dropped in this order: first the lock, then the pass.
    guard: MutexGuard<'a, T>,
    _pass: Pass,
}

struct Pass(#[expect(dead_code, reason = "held")] Option<RwLockReadGuard<'static, ()>>);

/// Locks a mutex whose data stays consistent after a panic elsewhere.
pub fn lock<T>(mutex: &Mutex<T>) -> GatedGuard<'_, T> {
    let held = HELD.get();
    let pass = (held == 0).then(|| GATE.read().unwrap_or_else(PoisonError::into_inner));
    HELD.set(held + 1);
    let pass = Pass(pass);
    GatedGuard {
        guard: mutex.lock().unwrap_or_else(PoisonError::into_inner),
        _pass: pass,
    }
}

/// Waits until nobody has a gated lock, and keeps all others out until the guard is dropped.
pub fn close() -> RwLockWriteGuard<'static, ()> {
    GATE.write().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Pass {
    fn drop(&mut self) {
        HELD.set(HELD.get().saturating_sub(1));
    }
}

impl<T> Deref for GatedGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for GatedGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_fork_waits_for_locks_and_locks_for_the_fork() {
        let mutex = Mutex::new(1);
        let (tell, told) = mpsc::sync_channel(2);
        std::thread::scope(|scope| {
            let held = lock(&mutex);
            scope.spawn(|| {
                let gate = close();
                tell.send("closed").unwrap();
                drop(gate);
            });
            // A lock inside a lock does not wait for a gate that is being closed.
            let other = Mutex::new(2);
            for _ in 0..100 {
                assert_eq!(*lock(&other) + *held, 3);
                std::thread::yield_now();
            }
            assert!(told.try_recv().is_err());
            drop(held);
            assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok("closed"));
        });
        *lock(&mutex) += 1;
        assert_eq!(*lock(&mutex), 2);
    }
}

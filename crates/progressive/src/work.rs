//! Work on blocks, shared by threads. They start and end with each call, so that nobody else has to
//! know of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

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

/// Most blocks for each thread that are begun and not handed on: the one whose turn it is may take
/// longer than those after it.
const AHEAD_MAX: usize = 2;

/// Does a piece of work for each number below `count`, by several threads, and hands the results on
/// in order. No more results than a few for each thread wait for their turn.
///
/// # Errors
///
/// That of the first number whose work has failed, or whose result was not taken.
pub(crate) fn in_order<R: Send, E: Send>(
    threads: usize,
    count: usize,
    work: impl Fn(usize) -> Result<R, E> + Sync,
    mut take: impl FnMut(R) -> Result<(), E> + Send,
) -> Result<(), E> {
    let threads = threads.clamp(1, THREADS_MAX).min(count.max(1));
    if threads == 1 {
        return (0..count).try_for_each(|at| take(work(at)?));
    }
    let line = Line {
        state: Mutex::new(LineState {
            started: 0,
            taken: 0,
            ready: BTreeMap::new(),
            take,
            outcome: None,
        }),
        changed: Condvar::new(),
    };
    let run = || {
        while let Some(at) = line.start(count, AHEAD_MAX * threads) {
            let _stop = StopOnPanic(&line);
            line.finish(at, work(at));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(run);
        }
    });
    let state = line.state.into_inner();
    let outcome = state.unwrap_or_else(PoisonError::into_inner).outcome;
    outcome.flatten().map_or(Ok(()), Err)
}

/// Results that wait for their turn.
struct Line<R, E, F> {
    state: Mutex<LineState<R, E, F>>,
    changed: Condvar,
}

struct LineState<R, E, F> {
    /// Numbers whose work was begun.
    started: usize,
    /// Numbers whose results were handed on.
    taken: usize,
    ready: BTreeMap<usize, Result<R, E>>,
    take: F,
    /// Set once no more work is to be begun; without an error if a thread has panicked.
    outcome: Option<Option<E>>,
}

impl<R, E, F: FnMut(R) -> Result<(), E>> Line<R, E, F> {
    /// The next number, once it is not too far ahead of the one whose turn it is.
    fn start(&self, count: usize, ahead: usize) -> Option<usize> {
        let mut state = self.locked();
        loop {
            let at = state.started;
            if state.outcome.is_some() || at == count {
                return None;
            }
            if at < state.taken + ahead {
                state.started += 1;
                return Some(at);
            }
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Hands on the results whose turn it is.
    fn finish(&self, at: usize, result: Result<R, E>) {
        let mut state = self.locked();
        let state = &mut *state;
        state.ready.insert(at, result);
        while let (None, Some(result)) = (&state.outcome, state.ready.remove(&state.taken)) {
            match result.and_then(&mut state.take) {
                Ok(()) => state.taken += 1,
                Err(error) => state.outcome = Some(Some(error)),
            }
        }
        self.changed.notify_all();
    }
}

impl<R, E, F> Line<R, E, F> {
    fn locked(&self) -> MutexGuard<'_, LineState<R, E, F>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets the other threads end if this one panics: its result will never come.
struct StopOnPanic<'a, R, E, F>(&'a Line<R, E, F>);

impl<R, E, F> Drop for StopOnPanic<'_, R, E, F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.locked().outcome.get_or_insert(None);
            self.0.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_up_to_the_first_error() {
        for threads in [1, 2, 7] {
            let mut taken = Vec::new();
            let work = |at: usize| match at {
                40 | 45 => Err(at),
                _ => Ok(at),
            };
            let take = |at| {
                taken.push(at);
                Ok(())
            };
            assert_eq!(in_order(threads, 100, work, take), Err(40));
            assert_eq!(taken, (0..40).collect::<Vec<_>>());
            let refuse = |at| if at == 3 { Err(at) } else { Ok(()) };
            assert_eq!(in_order(threads, 100, Ok, refuse), Err(3));
            assert_eq!(in_order::<usize, ()>(threads, 0, Ok, |_| Ok(())), Ok(()));
        }
    }

    #[test]
    fn a_panic_ends_all_threads() {
        let work = |at: usize| match at {
            5 => panic!("on purpose"),
            _ => Ok::<_, ()>(at),
        };
        let ended = std::panic::catch_unwind(|| in_order(3, 1_000, work, |_| Ok(())));
        assert!(ended.is_err());
    }
}

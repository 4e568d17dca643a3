//! Handles: the pointers that C programs hold are numbers, which are never dereferenced.
//!
//! Each handle is an index into a table and a use number. A handle that is closed, or was never
//! opened, is detected by a comparison, so a second close, or a call after it, is an error and not
//! a crash. A call pins its object: if another thread closes it meanwhile, the last user frees it.
//! No lock is taken that a fork could leave behind.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::guard::{E_ARGUMENT, E_BUSY, Failure};

/// Most objects that a program may have open at a time.
const THINGS_MAX: usize = 1 << 16;

/// Upper byte of every handle; no address of any program begins with it.
const FAMILY: u64 = 0xba << 56;
const KIND_SHIFT: u32 = 48;
const PLACE_SHIFT: u32 = 32;

/// Bits of a place's state, below its use number.
const OPEN: u64 = 1 << 31;
const USERS: u64 = OPEN - 1;
const USE_SHIFT: u32 = 32;

/// An object that is given to C programs.
pub(crate) trait HandleObject: 'static {
    /// A number that is different for each type.
    const KIND: u8;
    /// Name of the type in error messages.
    const NAME: &'static str;
    /// Whether only one thread at a time may use it.
    const IS_EXCLUSIVE: bool;
}

struct Place {
    /// Use number, open flag, and number of present users.
    state: AtomicU64,
    thing: AtomicPtr<()>,
    /// Index of the next free place, plus one.
    next: AtomicU32,
}

static PLACES: [Place; THINGS_MAX] = [const {
    Place {
        state: AtomicU64::new(0),
        thing: AtomicPtr::new(std::ptr::null_mut()),
        next: AtomicU32::new(0),
    }
}; THINGS_MAX];

/// Index of the first free place that was used before, plus one; the upper half is a number that
/// changes with every update.
static FREE: AtomicU64 = AtomicU64::new(0);
/// Index of the first place that was never used.
static USED: AtomicU32 = AtomicU32::new(0);

/// Stores an object and returns its handle.
pub(crate) fn give<T: HandleObject>(thing: T) -> Result<*mut T, Failure> {
    let Some(at) = take_place() else {
        let text = format!("{THINGS_MAX} things are open already: close some");
        return Err(Failure::new(E_BUSY, text));
    };
    let place = &PLACES[at as usize];
    let thing = Box::into_raw(Box::new(thing));
    place.thing.store(thing.cast(), Ordering::Relaxed);
    let number = place.state.load(Ordering::Relaxed) >> USE_SHIFT;
    place
        .state
        .store(number << USE_SHIFT | OPEN, Ordering::Release);
    let kind = u64::from(T::KIND) << KIND_SHIFT;
    let handle = FAMILY | kind | u64::from(at) << PLACE_SHIFT | number;
    Ok(handle as usize as *mut T)
}

/// Closes a handle; the object is freed when nobody uses it any more.
pub(crate) fn take_back<T: HandleObject>(handle: *mut T) -> Result<(), Failure> {
    if handle.is_null() {
        return Ok(());
    }
    let (at, number) = parse(handle).ok_or_else(gone::<T>)?;
    let place = &PLACES[at as usize];
    let close =
        |state: u64| (state >> USE_SHIFT == number && state & OPEN != 0).then_some(state & !OPEN);
    let closed = place
        .state
        .fetch_update(Ordering::AcqRel, Ordering::Relaxed, close);
    match closed {
        Ok(before) => {
            if before & USERS == 0 {
                free::<T>(at);
            }
            Ok(())
        }
        Err(_) => Err(gone::<T>()),
    }
}

/// Pins the object of a handle, for any thread.
pub(crate) fn thing<T: HandleObject>(handle: *const T) -> Result<HandleGuard<T>, Failure> {
    if handle.is_null() {
        return Err(Failure::new(E_ARGUMENT, format!("{} is null", T::NAME)));
    }
    let (at, number) = parse(handle).ok_or_else(gone::<T>)?;
    let mut is_busy = false;
    let pin = |state: u64| {
        let is_it = state >> USE_SHIFT == number && state & OPEN != 0;
        is_busy = is_it && T::IS_EXCLUSIVE && state & USERS != 0;
        (is_it && !is_busy && state & USERS < USERS).then(|| state + 1)
    };
    let place = &PLACES[at as usize];
    let pinned = place
        .state
        .fetch_update(Ordering::Acquire, Ordering::Relaxed, pin);
    match pinned {
        Ok(_) => Ok(HandleGuard {
            at,
            thing: place.thing.load(Ordering::Relaxed).cast(),
            of: PhantomData,
        }),
        Err(_) if is_busy => {
            let text = format!("{} is used by another thread at this moment", T::NAME);
            Err(Failure::new(E_BUSY, text))
        }
        Err(_) => Err(gone::<T>()),
    }
}

/// Like [`thing`], for a type that one thread at a time may use: to change the object.
pub(crate) fn thing_mut<T: HandleObject>(handle: *mut T) -> Result<HandleGuardMut<T>, Failure> {
    const { assert!(T::IS_EXCLUSIVE, "only one thread has it") };
    thing(handle.cast_const()).map(HandleGuardMut)
}

/// A pinned object.
pub(crate) struct HandleGuard<T: HandleObject> {
    at: u32,
    thing: *mut T,
    of: PhantomData<T>,
}

impl<T: HandleObject> Deref for HandleGuard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the pointer is from `give` and of this type, as the handle's kind shows; the
        // object is not freed while it is pinned.
        unsafe { &*self.thing }
    }
}

impl<T: HandleObject> Drop for HandleGuard<T> {
    fn drop(&mut self) {
        let state = &PLACES[self.at as usize].state;
        let before = state.fetch_sub(1, Ordering::AcqRel);
        if before & (OPEN | USERS) == 1 {
            // It was closed meanwhile, and this was its last user.
            free::<T>(self.at);
        }
    }
}

/// A pinned object that nobody else uses.
pub(crate) struct HandleGuardMut<T: HandleObject>(HandleGuard<T>);

impl<T: HandleObject> Deref for HandleGuardMut<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: HandleObject> DerefMut for HandleGuardMut<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `HandleGuard`; an object of such a type has one user at a time.
        unsafe { &mut *self.0.thing }
    }
}

fn gone<T: HandleObject>() -> Failure {
    let text = format!("{} was closed before, or was never opened", T::NAME);
    Failure::new(E_ARGUMENT, text)
}

/// Returns index and use number, if it is a handle of this type.
fn parse<T: HandleObject>(handle: *const T) -> Option<(u32, u64)> {
    let handle = handle as usize as u64;
    let begins = FAMILY | u64::from(T::KIND) << KIND_SHIFT;
    let place = u64::from(u16::MAX) << PLACE_SHIFT | u64::from(u32::MAX);
    let at = (handle >> PLACE_SHIFT) as u16;
    (handle & !place == begins).then_some((at.into(), handle & u64::from(u32::MAX)))
}

/// Frees an object that is closed and that nobody uses.
fn free<T: HandleObject>(at: u32) {
    let place = &PLACES[at as usize];
    let thing: *mut T = place
        .thing
        .swap(std::ptr::null_mut(), Ordering::Relaxed)
        .cast();
    let number = (place.state.load(Ordering::Relaxed) >> USE_SHIFT) as u32;
    let next = u64::from(number.wrapping_add(1)) << USE_SHIFT;
    place.state.store(next, Ordering::Release);
    leave_place(at);
    // SAFETY: the pointer is from `give`; the use number has changed, so nobody finds the object
    // again.
    drop(unsafe { Box::from_raw(thing) });
}

fn take_place() -> Option<u32> {
    let pop = |free: u64| {
        let first = (free as u32).checked_sub(1)?;
        let next = PLACES[first as usize].next.load(Ordering::Relaxed);
        Some(moved(free) | u64::from(next))
    };
    let popped = FREE.fetch_update(Ordering::Acquire, Ordering::Acquire, pop);
    if let Ok(free) = popped {
        return Some(free as u32 - 1);
    }
    let more = |used: u32| ((used as usize) < THINGS_MAX).then(|| used + 1);
    let fresh = USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    fresh.ok()
}

fn leave_place(at: u32) {
    let push = |free: u64| {
        let next = &PLACES[at as usize].next;
        next.store(free as u32, Ordering::Relaxed);
        Some(moved(free) | u64::from(at + 1))
    };
    let _ = FREE.fetch_update(Ordering::Release, Ordering::Relaxed, push);
}

/// The number above the first free place, increased, so that a thread that has seen another list
/// detects the change.
fn moved(free: u64) -> u64 {
    (free >> 32).wrapping_add(1) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counted(std::sync::Arc<()>);

    impl HandleObject for Counted {
        const KIND: u8 = 200;
        const NAME: &'static str = "the thing";
        const IS_EXCLUSIVE: bool = false;
    }

    struct Alone;

    impl HandleObject for Alone {
        const KIND: u8 = 201;
        const NAME: &'static str = "the other";
        const IS_EXCLUSIVE: bool = true;
    }

    #[test]
    fn what_is_closed_is_freed_once_and_known_to_be_gone() {
        let alive = std::sync::Arc::new(());
        let count = || std::sync::Arc::strong_count(&alive);
        let handle = give(Counted(alive.clone())).ok().unwrap();
        let held = thing(handle.cast_const()).ok().unwrap();
        assert_eq!(std::sync::Arc::strong_count(&held.0), 2);
        assert!(take_back(handle).is_ok());
        assert_eq!(count(), 2, "it is in use");
        assert!(thing(handle.cast_const()).is_err() && take_back(handle).is_err());
        drop(held);
        assert_eq!(count(), 1);
        // The place holds another object now, which the old handle does not refer to.
        let other = give(Counted(alive.clone())).ok().unwrap();
        assert!(take_back(handle).is_err());
        assert_eq!(count(), 2);
        assert!(take_back(other).is_ok());
        assert_eq!(count(), 1);
    }

    #[test]
    fn what_was_never_given_out_is_refused() {
        let handle = give(Alone).ok().unwrap();
        for wrong in [1_usize, 4_096, usize::MAX, handle as usize ^ 1] {
            assert!(thing(wrong as *const Alone).is_err(), "{wrong:x}");
        }
        assert!(thing(handle.cast::<Counted>().cast_const()).is_err());
        assert!(take_back(std::ptr::null_mut::<Alone>()).is_ok());
        let held = thing_mut(handle).ok().unwrap();
        assert_eq!(thing_mut(handle).err().unwrap().code, E_BUSY);
        drop(held);
        assert!(thing_mut(handle).is_ok());
        assert!(take_back(handle).is_ok());
    }

    #[test]
    fn threads_close_what_others_use() {
        let alive = std::sync::Arc::new(());
        for _ in 0..1_000 {
            let handle = give(Counted(alive.clone())).ok().unwrap() as usize;
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        while let Ok(held) = thing(handle as *const Counted) {
                            assert!(std::sync::Arc::strong_count(&held.0) >= 2);
                        }
                    });
                }
                scope.spawn(|| assert!(take_back(handle as *mut Counted).is_ok()));
            });
            assert_eq!(std::sync::Arc::strong_count(&alive), 1);
        }
    }
}

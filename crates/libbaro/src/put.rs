//! Puts that `baro.h` does not do inline, and the place where it finds the thread's cursor.
//!
//! Every translation unit that includes `baro.h` has a thread-local pointer to such a place. The
//! first put of a thread comes here and sets it: C code needs no thread-local symbol of this
//! library, which stable Rust cannot export.

use std::cell::{Cell, UnsafeCell};
use std::ffi::{c_char, c_int};
use std::ptr;

use barograph_client::publish::ValueHandle;
use barograph_client::publish::raw::{self, CallsSeen, RingCursor, kind};

use crate::guard::{OK, guarded, text, tried};

thread_local! {
    /// A cursor on which no put finds room, for a thread without a ring; it holds how far the
    /// thread has seen the calls.
    // There is nothing to drop: the address is valid as long as the thread lives.
    static NOWHERE: UnsafeCell<RingCursor> = const { UnsafeCell::new(RingCursor::nowhere()) };
    /// Null until the thread's first slow call.
    static PLACE: Cell<*const RingCursor> = const { Cell::new(ptr::null()) };
}

/// This thread's cursor while it has no ring.
fn nowhere() -> *mut RingCursor {
    NOWHERE.with(UnsafeCell::get)
}

/// Kinds of records, as in `baro.h`.
const INT: u64 = 1;
const FLOAT: u64 = 2;
const BOOL: u64 = 3;

/// Keeps the place of each thread up to date as its ring comes and goes.
pub(crate) fn follow_threads() {
    raw::on_cursor(|cursor| {
        let cursor = if cursor.is_null() {
            // It may be a child, which has seen no calls.
            // SAFETY: the cursor is the thread's own, and nothing else uses it meanwhile.
            unsafe { *(*nowhere()).calls.get() = CallsSeen::nothing() };
            nowhere()
        } else {
            cursor
        };
        PLACE.with(|place| place.set(cursor.cast_const()));
    });
}

/// Sets a translation unit's pointer to the place of this thread's cursor.
///
/// # Safety
/// `here` is null or valid for writes by this thread.
pub(crate) unsafe fn tell_place(here: *mut *const *const RingCursor) {
    if !here.is_null() {
        let place = PLACE.with(|place| {
            if place.get().is_null() {
                place.set(nowhere().cast_const());
            }
            place.as_ptr()
        });
        // SAFETY: the caller upholds the requirements of this function.
        unsafe { here.write(place.cast_const()) };
    }
}

/// See `baro.h`.
///
/// # Safety
/// `here` is null or valid for writes by this thread.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_put_slowly(
    value: u64,
    kind: u64,
    word: u64,
    here: *mut *const *const RingCursor,
) {
    let number = match kind {
        INT | FLOAT => word,
        BOOL => (word != 0).into(),
        _ => return,
    };
    if tried(|| raw::try_put(value, kind as u8, number)) {
        // SAFETY: the caller upholds the requirements of this function.
        unsafe { tell_place(here) };
        return;
    }
    guarded(
        |_| (),
        || {
            let handle = ValueHandle::from_raw(value);
            match kind {
                INT => handle.put_i64(number.cast_signed()),
                FLOAT => handle.put_f64(f64::from_bits(number)),
                _ => handle.put_bool(number != 0),
            }
            // SAFETY: the caller upholds the requirements of this function.
            unsafe { tell_place(here) };
            Ok(())
        },
    );
}

/// See `baro.h`.
///
/// # Safety
/// `here` is null or valid for writes by this thread.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_frame_slowly(
    publication: u64,
    number: u64,
    here: *mut *const *const RingCursor,
) {
    let (mut is_asleep, mut is_due) = (false, false);
    let has_ended = tried(|| match raw::try_frame(publication, number) {
        Some(told) => {
            (is_asleep, is_due) = told;
            true
        }
        None => false,
    });
    if has_ended {
        // SAFETY: the caller upholds the requirements of this function.
        unsafe { tell_place(here) };
        if is_asleep {
            baro_wake_agent();
        }
        // For callers that do not check inline.
        if is_due {
            guarded(
                |_| (),
                || {
                    raw::apply_now();
                    note_calls();
                    Ok(())
                },
            );
        }
        return;
    }
    guarded(
        |_| (),
        || {
            raw::frame(publication, number);
            // SAFETY: the caller upholds the requirements of this function.
            unsafe { tell_place(here) };
            Ok(())
        },
    );
}

/// Copies how far this thread has seen the calls to the cursor that inline code reads, if the
/// thread has no ring.
pub(crate) fn note_calls() {
    // SAFETY: the cursor is the thread's own, and nothing else uses it meanwhile.
    unsafe { *(*nowhere()).calls.get() = raw::calls_seen() };
}

/// See `baro.h`.
///
/// # Safety
/// `here` is null or valid for writes by this thread.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_apply_slowly(here: *mut *const *const RingCursor) {
    guarded(
        |_| (),
        || {
            raw::apply_now();
            note_calls();
            // SAFETY: the caller upholds the requirements of this function.
            unsafe { tell_place(here) };
            Ok(())
        },
    );
}

/// See `baro.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn baro_wake_agent() {
    guarded(
        |_| (),
        || {
            raw::tell_agent();
            Ok(())
        },
    );
}

/// See `baro.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn baro_commit() {
    guarded(
        |_| (),
        || {
            raw::commit();
            Ok(())
        },
    );
}

/// Puts bytes from the caller's memory; null counts as length 0.
///
/// # Safety
/// `bytes` is null, or valid for reads of `count` bytes.
unsafe fn put_from(handle: u64, kind: u8, bytes: *const u8, count: usize) -> c_int {
    guarded(
        |code| code,
        || {
            let bytes = if bytes.is_null() {
                &[][..]
            } else {
                // SAFETY: the caller upholds the requirements of this function.
                unsafe { std::slice::from_raw_parts(bytes, count) }
            };
            raw::put_bytes(handle, kind, bytes)?;
            Ok(OK)
        },
    )
}

/// See `baro.h`.
///
/// # Safety
/// `value` is null or a C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_put_text(handle: u64, value: *const c_char) -> c_int {
    if handle == 0 {
        return OK;
    }
    guarded(
        |code| code,
        || {
            // SAFETY: the caller upholds the requirements of this function.
            let value = unsafe { text(value, "the text") }?;
            raw::put_bytes(handle, kind::TEXT, value.as_bytes())?;
            Ok(OK)
        },
    )
}

/// See `baro.h`.
///
/// # Safety
/// `value` is null or a C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_put_json(handle: u64, value: *const c_char) -> c_int {
    if handle == 0 {
        return OK;
    }
    guarded(
        |code| code,
        || {
            // SAFETY: the caller upholds the requirements of this function.
            let value = unsafe { text(value, "the JSON") }?;
            raw::put_bytes(handle, kind::JSON, value.as_bytes())?;
            Ok(OK)
        },
    )
}

/// See `baro.h`.
///
/// # Safety
/// `bytes` is null, or valid for reads of `count` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_put_bytes(
    handle: u64,
    bytes: *const u8,
    count: usize,
) -> c_int {
    if handle == 0 {
        return OK;
    }
    // SAFETY: the caller upholds the requirements of this function.
    unsafe { put_from(handle, kind::BYTES, bytes, count) }
}

/// See `baro.h`.
///
/// # Safety
/// `values` is null, or valid for reads of `count` floats.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_put_floats(
    handle: u64,
    values: *const f64,
    count: usize,
) -> c_int {
    if handle == 0 {
        return OK;
    }
    let bytes = count.saturating_mul(size_of::<f64>());
    // Rings are little-endian, and so is every machine that this library is built for.
    // SAFETY: the caller upholds the requirements of this function; a float is eight bytes.
    unsafe { put_from(handle, kind::FLOATS, values.cast(), bytes) }
}

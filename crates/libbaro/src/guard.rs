//! Between C and Rust: texts, nulls, errors, panics.

use std::cell::{Cell, UnsafeCell};
use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use barograph_model::text_start;

/// Codes of `baro.h`; errors are negative.
pub(crate) const OK: c_int = 0;
pub(crate) const NOTHING: c_int = 1;
pub(crate) const E_ARGUMENT: c_int = -1;
pub(crate) const E_NO_AGENT: c_int = -2;
pub(crate) const E_UNKNOWN: c_int = -3;
pub(crate) const E_TYPE: c_int = -4;
pub(crate) const E_SQL: c_int = -5;
pub(crate) const E_REFUSED: c_int = -6;
pub(crate) const E_BUSY: c_int = -7;
pub(crate) const E_TOO_LONG: c_int = -8;
pub(crate) const E_INTERNAL: c_int = -9;

/// Texts of errors that a thread keeps: what [`baro_error`] has given stays as it is for so many errors less one.
const ERRORS_KEPT: usize = 4;
/// Longest text that is kept of one, with its zero byte.
const ERROR_BYTES_MAX: usize = 1_024;

/// A thread's errors: memory that lives as long as the thread and is written over in turn, never freed.
struct Errors {
    texts: UnsafeCell<[[u8; ERROR_BYTES_MAX]; ERRORS_KEPT]>,
    newest: Cell<usize>,
}

thread_local! {
    // It has nothing to drop: its address is good as long as the thread is.
    static ERRORS: Errors = const {
        Errors {
            texts: UnsafeCell::new([[0; ERROR_BYTES_MAX]; ERRORS_KEPT]),
            newest: Cell::new(0),
        }
    };
}

/// What went wrong: a code, and a text for [`baro_error`].
pub(crate) struct Failure {
    pub code: c_int,
    text: String,
}

impl Failure {
    pub fn new(code: c_int, text: impl ToString) -> Self {
        let text = text.to_string();
        Self { code, text }
    }

    fn null(what: &str) -> Self {
        Self::new(E_ARGUMENT, format!("{what} is null"))
    }
}

unsafe extern "C" {
    // Not among the `libc` crate's for Linux; the same in glibc and musl.
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE` on Linux.
const CANCEL_DISABLE: c_int = 1;

/// While it lives, `pthread_cancel` waits: it unwinds the thread from within a system call, and Rust ends
/// the process when it is unwound so.
struct Uncancelled(c_int);

impl Uncancelled {
    fn new() -> Self {
        let mut before = 0;
        // SAFETY: `before` is ours to be written.
        let _ = unsafe { pthread_setcancelstate(CANCEL_DISABLE, &raw mut before) };
        Self(before)
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        let mut unused = 0;
        // SAFETY: `unused` is ours to be written; the state is one that it has told.
        let _ = unsafe { pthread_setcancelstate(self.0, &raw mut unused) };
    }
}

/// Runs what a C program has asked for; a failure or a panic becomes `failed(code)`, and its text is kept.
pub(crate) fn guarded<T>(
    failed: impl FnOnce(c_int) -> T,
    run: impl FnOnce() -> Result<T, Failure>,
) -> T {
    let _uncancelled = Uncancelled::new();
    // What a panic leaves behind is not looked at again.
    let done = catch_unwind(AssertUnwindSafe(run));
    let failure = match done {
        Ok(Ok(value)) => return value,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            let text = text.unwrap_or("a panic");
            Failure::new(E_INTERNAL, format!("a defect in barograph: {text}"))
        }
    };
    remember(&failure.text);
    failed(failure.code)
}

/// Tries what makes no system call, without the cost of [`guarded`]; false when it was not done.
#[inline]
pub(crate) fn tried(run: impl FnOnce() -> bool) -> bool {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or(false)
}

/// Keeps a text for [`baro_error`].
pub(crate) fn remember(text: &str) {
    let text = text_start(text, ERROR_BYTES_MAX - 1);
    ERRORS.with(|errors| {
        let next = (errors.newest.get() + 1) % ERRORS_KEPT;
        let texts = errors.texts.get();
        // SAFETY: the thread's own, and nobody else is here; C code reads it in this thread, after this.
        let kept = unsafe { &mut (*texts)[next] };
        kept.fill(0);
        let bytes = kept.iter_mut().zip(text.bytes());
        bytes.for_each(|(to, from)| *to = if from == 0 { b' ' } else { from });
        errors.newest.set(next);
    });
}

/// See `baro.h`.
#[unsafe(no_mangle)]
pub extern "C" fn baro_error() -> *const c_char {
    ERRORS.with(|errors| {
        let texts = errors.texts.get().cast::<[u8; ERROR_BYTES_MAX]>();
        // SAFETY: one of its texts.
        unsafe { texts.add(errors.newest.get()).cast::<c_char>().cast_const() }
    })
}

/// A text of the caller.
///
/// # Safety
/// `text` is null, or ends with a zero byte and is not changed while `'a` lasts.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::null(what));
    }
    // SAFETY: not null, and the caller vouches for the rest.
    let text = unsafe { CStr::from_ptr(text) };
    let text = text.to_str();
    text.map_err(|_| Failure::new(E_ARGUMENT, format!("{what} is not UTF-8")))
}

/// As [`text`]; null is an empty one.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn text_or_empty<'a>(
    given: *const c_char,
    what: &str,
) -> Result<&'a str, Failure> {
    if given.is_null() {
        return Ok("");
    }
    // SAFETY: as this function's.
    unsafe { text(given, what) }
}

/// Writes an answer where the caller wants it, if anywhere.
///
/// # Safety
/// `place` is null or may be written.
pub(crate) unsafe fn set<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: not null, and the caller vouches for the rest.
        unsafe { place.write(value) };
    }
}

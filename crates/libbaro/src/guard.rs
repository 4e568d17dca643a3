//! The boundary between C and Rust: strings, nulls, errors, panics.

use std::cell::{Cell, UnsafeCell};
use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use barograph_model::text_start;

/// Return codes of `baro.h`; errors are negative.
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
pub(crate) const E_DATA: c_int = -10;
pub(crate) const E_UNREACHABLE: c_int = -11;
pub(crate) const E_FENCED: c_int = -12;

/// Number of error texts that a thread keeps: a text that [`baro_error`] has returned is unchanged
/// for one error fewer.
const ERRORS_KEPT: usize = 4;
/// Longest error text that is kept, in bytes, with its zero byte.
const ERROR_BYTES_MAX: usize = 1_024;

/// The error texts of a thread: memory that lives as long as the thread and is reused in turn,
/// never freed.
struct Errors {
    texts: UnsafeCell<[[u8; ERROR_BYTES_MAX]; ERRORS_KEPT]>,
    newest: Cell<usize>,
}

thread_local! {
    // There is nothing to drop: the address is valid as long as the thread lives.
    static ERRORS: Errors = const {
        Errors {
            texts: UnsafeCell::new([[0; ERROR_BYTES_MAX]; ERRORS_KEPT]),
            newest: Cell::new(0),
        }
    };
}

/// An error: a code, and a text for [`baro_error`].
pub(crate) struct Failure {
    pub code: c_int,
    text: String,
}

impl Failure {
    pub(crate) fn new(code: c_int, text: impl ToString) -> Self {
        let text = text.to_string();
        Self { code, text }
    }

    fn null(what: &str) -> Self {
        Self::new(E_ARGUMENT, format!("{what} is null"))
    }
}

unsafe extern "C" {
    // The `libc` crate lacks it for Linux; it is the same in glibc and musl.
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE` on Linux.
const CANCEL_DISABLE: c_int = 1;

/// Delays `pthread_cancel` while it lives: cancelling unwinds the thread from within a system call,
/// and Rust aborts the process when it is unwound that way.
struct Uncancelled(c_int);

impl Uncancelled {
    fn new() -> Self {
        let mut before = 0;
        // SAFETY: `before` is a local variable.
        let _ = unsafe { pthread_setcancelstate(CANCEL_DISABLE, &raw mut before) };
        Self(before)
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        let mut unused = 0;
        // SAFETY: `unused` is a local variable; the state is one that the same function has
        // returned.
        let _ = unsafe { pthread_setcancelstate(self.0, &raw mut unused) };
    }
}

/// Runs the body of a C function; a failure or a panic becomes `failed(code)`, and its text is
/// kept.
pub(crate) fn guarded<T>(
    failed: impl FnOnce(c_int) -> T,
    run: impl FnOnce() -> Result<T, Failure>,
) -> T {
    let _uncancelled = Uncancelled::new();
    // State that a panic leaves behind is not used again.
    let done = catch_unwind(AssertUnwindSafe(run));
    let failure = match done {
        Ok(Ok(value)) => return value,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let owned = panic.downcast_ref::<String>().map(String::as_str);
            let text = owned.or_else(|| panic.downcast_ref::<&str>().copied());
            let text = text.unwrap_or("a panic");
            Failure::new(E_INTERNAL, format!("a defect in barograph: {text}"))
        }
    };
    remember(&failure.text);
    failed(failure.code)
}

/// Runs a body that makes no system call, without the cost of [`guarded`]; false if it did not
/// succeed.
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
        // SAFETY: the memory is the thread's own, and nobody else uses it here; C code reads it in
        // this thread, after this.
        let kept = unsafe { &mut (*texts)[next] };
        kept.fill(0);
        let bytes = kept.iter_mut().zip(text.bytes());
        bytes.for_each(|(to, from)| *to = if from == 0 { b' ' } else { from });
        errors.newest.set(next);
    });
}

/// See `baro.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn baro_error() -> *const c_char {
    ERRORS.with(|errors| {
        let texts = errors.texts.get().cast::<[u8; ERROR_BYTES_MAX]>();
        // SAFETY: `newest` is the index of one of the texts.
        unsafe { texts.add(errors.newest.get()).cast::<c_char>().cast_const() }
    })
}

/// Reads a C string of the caller.
///
/// # Safety
/// `text` is null, or ends with a zero byte and is not changed while `'a` lasts.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::null(what));
    }
    // SAFETY: the pointer is not null, and the caller guarantees the rest.
    let text = unsafe { CStr::from_ptr(text) };
    let text = text.to_str();
    text.map_err(|_| Failure::new(E_ARGUMENT, format!("{what} is not UTF-8")))
}

/// Like [`text`]; null is an empty string.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn text_or_empty<'a>(
    given: *const c_char,
    what: &str,
) -> Result<&'a str, Failure> {
    if given.is_null() {
        return Ok("");
    }
    // SAFETY: the caller upholds the requirements of this function.
    unsafe { text(given, what) }
}

/// Writes an answer to the caller's place, if there is one.
///
/// # Safety
/// `place` is null or valid for writes.
pub(crate) unsafe fn set<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the pointer is not null, and the caller guarantees the rest.
        unsafe { place.write(value) };
    }
}

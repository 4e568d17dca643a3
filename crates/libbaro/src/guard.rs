//! Between C and Rust: texts, nulls, errors, panics.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

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
pub(crate) const E_INTERNAL: c_int = -9;

thread_local! {
    static ERROR: RefCell<CString> = RefCell::new(CString::default());
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
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    let _ = ERROR.try_with(|error| error.try_borrow_mut().map(|mut error| *error = text));
}

/// See `baro.h`.
#[unsafe(no_mangle)]
pub extern "C" fn baro_error() -> *const c_char {
    let text = ERROR.try_with(|error| error.try_borrow().map_or(c"".as_ptr(), |e| e.as_ptr()));
    text.unwrap_or(c"".as_ptr())
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

/// A thing of ours that the caller was given.
///
/// # Safety
/// `thing` is null, or a pointer that was given out and not given back.
pub(crate) unsafe fn thing<'a, T>(thing: *const T, what: &str) -> Result<&'a T, Failure> {
    // SAFETY: the caller vouches for it.
    unsafe { thing.as_ref() }.ok_or_else(|| Failure::null(what))
}

/// As [`thing`], to change it.
///
/// # Safety
/// As [`thing`]; and no other thread uses it meanwhile.
pub(crate) unsafe fn thing_mut<'a, T>(thing: *mut T, what: &str) -> Result<&'a mut T, Failure> {
    // SAFETY: the caller vouches for it.
    unsafe { thing.as_mut() }.ok_or_else(|| Failure::null(what))
}

/// Gives a thing out.
pub(crate) fn give<T>(thing: T) -> *mut T {
    Box::into_raw(Box::new(thing))
}

/// Takes back what was given out.
///
/// # Safety
/// `thing` is null, or a pointer of [`give`] that nobody uses any more.
pub(crate) unsafe fn take_back<T>(thing: *mut T) {
    if !thing.is_null() {
        let drop_it = || {
            // SAFETY: of `give`, and the caller is the last to have it.
            drop(unsafe { Box::from_raw(thing) });
            Ok(())
        };
        guarded(|_| (), drop_it);
    }
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

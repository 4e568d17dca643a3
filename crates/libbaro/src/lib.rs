//! The client for C, C++ and Fortran: `include/baro.h` says what each function does, these files how it gets
//! there. Nothing is decided here, and nothing is remembered but what is open and the last errors
//! of each thread.
//!
//! It stands alone because a symbol without a mangled name is exported by every library that has it inside:
//! two of them in one process would be one another's.
//!
//! No panic leaves a function, no thread is cancelled in one, and null is no crash: see `guard.rs`.
#![expect(
    unsafe_code,
    reason = "the C ABI: pointers from callers; each block says what it relies on"
)]

mod calls;
mod fire;
mod guard;
mod handles;
mod publish;
mod put;
mod query;
mod read;
mod subscribe;

/// The version of `baro.h` that this is: major in the upper half, minor in the lower. Of one major version, an older
/// header works with a newer library.
pub const VERSION: u32 = 1 << 16 | 4;

/// See `baro.h`.
#[unsafe(no_mangle)]
pub extern "C" fn baro_version() -> u32 {
    VERSION
}

//! The client for C, C++ and Fortran: `include/baro.h` documents each function, and these files
//! implement it. Nothing is decided here, and the only state is the open handles and the last
//! errors of each thread.
//!
//! The crate stands alone because an unmangled symbol is exported by every library that contains
//! it: two of them in one process would use each other's.
//!
//! No panic leaves a function, no thread is cancelled in one, and null does not crash: see
//! `guard.rs`.
#![expect(
    unsafe_code,
    reason = "the C ABI: pointers from callers; each block says what it relies on"
)]

mod advice;
mod array;
mod array_step;
mod calls;
mod control_events;
mod events;
mod fire;
mod guard;
mod handles;
mod io_phases;
mod publish;
mod put;
mod query;
mod read;
mod server_maps;
mod staging;
mod staging_blocks;
mod staging_places;
mod subscribe;

/// The version of `baro.h` that this library implements: major in the upper half, minor in the
/// lower. Within a major version, an older header works with a newer library.
pub const VERSION: u32 = 1 << 16 | 11;

/// See `baro.h`.
#[unsafe(no_mangle)]
pub extern "C" fn baro_version() -> u32 {
    VERSION
}

//! Environment variables, as far as code in other people's programs may trust them.
//!
//! This is a module of its own because a program that has more rights than its caller (set-user-id,
//! set-group-id, file capabilities) gets its environment from that caller, who could thereby choose
//! which files the program maps and where it writes.
#![expect(
    unsafe_code,
    reason = "the auxiliary vector is asked through the C library, which every program has"
)]

use std::ffi::{OsStr, OsString, c_ulong};

/// Key of the flag by which the kernel marks a program that has more rights than its caller
/// (`getauxval(3)`).
const AT_SECURE: c_ulong = 23;

// SAFETY: `getauxval` takes any number, reads what the kernel stored for this process at its start,
// and changes nothing but `errno`.
unsafe extern "C" {
    safe fn getauxval(kind: c_ulong) -> c_ulong;
}

/// The value of an environment variable; `None` in a program that has more rights than its caller.
pub fn environment(name: impl AsRef<OsStr>) -> Option<OsString> {
    (getauxval(AT_SECURE) == 0)
        .then(|| std::env::var_os(name))
        .flatten()
}

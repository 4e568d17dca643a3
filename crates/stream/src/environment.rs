//! The environment, as far as code that runs in other people's programs may believe it.
//!
//! It stands alone because a program that is started with more rights than its caller has (set-user-id,
//! set-group-id, file capabilities) has its environment from that caller, who would decide by it which
//! files the program maps and where it writes.
#![expect(
    unsafe_code,
    reason = "the auxiliary vector is asked through the C library, which every program has"
)]

use std::ffi::{OsStr, OsString, c_ulong};

/// Whether the kernel started this program with more rights than its caller has (`getauxval(3)`).
const AT_SECURE: c_ulong = 23;

// SAFETY: `getauxval` takes any number, reads what the kernel left for this process at its start, and
// changes nothing but `errno`.
unsafe extern "C" {
    safe fn getauxval(kind: c_ulong) -> c_ulong;
}

/// What the environment says under this name; nothing in a program that has more rights than its caller.
pub fn environment(name: impl AsRef<OsStr>) -> Option<OsString> {
    (getauxval(AT_SECURE) == 0)
        .then(|| std::env::var_os(name))
        .flatten()
}

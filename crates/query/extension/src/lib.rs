//! libbaro_sqlite.so: the entry points that SQLite looks for. They call
//! `barograph_query::loadable`. The crate stands alone because rusqlite's `loadable_extension`
//! excludes the `bundled` that every other crate uses.
//!
//! A host passes its extensions a table of routines, to which each version of SQLite appends.
//! rusqlite reads the table of the version that its bindings were made from, and aborts under an
//! older host, though nothing here needs the last routines. So an older host's table is copied as
//! far as it goes, and the rest is left empty: a call of a missing routine would then be an error
//! of ours, not a jump to nowhere.
#![expect(
    unsafe_code,
    reason = "SQLite calls these entry points by their C names"
)]

use std::ffi::{c_char, c_int};
use std::mem::{MaybeUninit, offset_of};
use std::ptr;

use barograph_query::loadable::register;
use barograph_query::loadable::rusqlite::{Connection, ffi};

use ffi::sqlite3_api_routines as Routines;

/// The oldest supported host: the virtual-table features that are used are complete since 3.38, and
/// 3.40 is the version in the oldest supported distributions.
const HOST_VERSION_MIN: c_int = 3_040_000;
/// Bytes of a 3.40 host's table: it ends before the routine that 3.41 appended.
const HOST_BYTES_MIN: usize = offset_of!(Routines, is_interrupted);

/// The entry point that SQLite derives from the file's name.
///
/// # Safety
/// To be called by SQLite only, with a live connection and its table of routines.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_barosqlite_init(
    connection: *mut ffi::sqlite3,
    message: *mut *mut c_char,
    routines: *mut Routines,
) -> c_int {
    // SAFETY: SQLite's table is valid for as long as the host runs, and every version has had the
    // routine for its version.
    let version = unsafe { routines.as_ref() }
        .and_then(|routines| routines.libversion_number)
        .map_or(0, |version| unsafe { version() });
    if version < HOST_VERSION_MIN {
        return ffi::SQLITE_ERROR;
    }
    if version >= ffi::SQLITE_VERSION_NUMBER {
        // SAFETY: the arguments are SQLite's own, passed on as they came.
        return unsafe { Connection::extension_init2(connection, message, routines, register) };
    }
    let mut copy = MaybeUninit::<Routines>::zeroed();
    // SAFETY: a host of this version has at least so many bytes of table, and so has `copy`. All
    // fields are optional function pointers, for which zero is none: the copy is initialized. It
    // is read during the call only.
    unsafe {
        ptr::copy_nonoverlapping(
            routines.cast::<u8>(),
            copy.as_mut_ptr().cast(),
            HOST_BYTES_MIN,
        );
        (*copy.as_mut_ptr()).libversion_number = Some(version_of_the_table);
        Connection::extension_init2(connection, message, copy.as_mut_ptr(), register)
    }
}

/// The version whose table the copy has the form of.
unsafe extern "C" fn version_of_the_table() -> c_int {
    ffi::SQLITE_VERSION_NUMBER
}

/// The entry point that SQLite tries first, whatever the file is called.
///
/// # Safety
/// As [`sqlite3_barosqlite_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_extension_init(
    connection: *mut ffi::sqlite3,
    message: *mut *mut c_char,
    routines: *mut Routines,
) -> c_int {
    // SAFETY: as above.
    unsafe { sqlite3_barosqlite_init(connection, message, routines) }
}

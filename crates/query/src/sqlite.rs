//! The boundary to SQLite's C interface, with the only `unsafe` code of this crate: rusqlite's
//! virtual-table traits are `unsafe` because SQLite casts the structs that implement them, and
//! three facilities have no safe wrapper. All other code here uses the safe traits [`VirtualTable`]
//! and [`Cursor`].
#![expect(
    unsafe_code,
    reason = "SQLite's virtual-table interface casts structs; see the SAFETY arguments"
)]

use std::borrow::Cow;
use std::ffi::{CStr, CString, c_int};
#[cfg(feature = "bundled")]
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

#[cfg(feature = "bundled")]
use rusqlite::ffi;
use rusqlite::vtab::{
    Context, Filters, IndexInfo, Module, VTab, VTabConnection, VTabCursor, sqlite3_vtab,
    sqlite3_vtab_cursor,
};
use rusqlite::{Connection, Result};

/// A read-only table that exists by its name alone, in no schema.
pub(crate) trait VirtualTable: Sized + 'static {
    /// The parameters that the table is made from.
    type Aux: Send + Sync + 'static;
    /// The type of its scans.
    type Cursor: Cursor;
    /// Makes the table, and returns it with its `CREATE TABLE` text.
    fn connect(aux: &Self::Aux) -> (CString, Self);
    /// Chooses how to answer a set of constraints; `false` if it cannot be answered that way.
    fn best_index(&self, info: &mut IndexInfo) -> Result<bool>;
    /// Makes a scan that has not begun.
    fn open(&self) -> Self::Cursor;
}

/// One scan of a table.
pub(crate) trait Cursor: 'static {
    /// Begins the scan that `best_index` planned.
    fn filter(&mut self, number: c_int, text: Option<&str>, args: &Filters<'_>) -> Result<()>;
    /// Goes to the next row.
    fn next(&mut self) -> Result<()>;
    /// Whether there is no current row.
    fn eof(&self) -> bool;
    /// Sets the result to column `index` of the current row.
    fn column(&self, context: &mut Context, index: usize) -> Result<()>;
    /// Identifies the current row.
    fn rowid(&self) -> i64;
}

/// Registers `name` as a table of this connection, replacing one of the same name.
pub(crate) fn register<T: VirtualTable>(
    connection: &Connection,
    name: &str,
    aux: T::Aux,
) -> Result<()> {
    // Guests cannot create tables from our modules. In a host's SQLite, tables are also made in a
    // schema, to be listed there.
    #[cfg(not(feature = "loadable"))]
    let module = const { &Module::<'static, TableAdapter<T>>::eponymous_only_module() };
    #[cfg(feature = "loadable")]
    let module = const { &Module::<'static, TableAdapter<T>>::read_only_module() };
    connection.create_module(name, module, Some(aux))
}

#[repr(C)]
struct TableAdapter<T> {
    base: sqlite3_vtab,
    table: T,
}

#[repr(C)]
struct CursorAdapter<C> {
    base: sqlite3_vtab_cursor,
    cursor: C,
}

// SAFETY: the struct is `repr(C)` and its first field is `sqlite3_vtab`, as the trait asks.
unsafe impl<'vtab, T: VirtualTable> VTab<'vtab> for TableAdapter<T> {
    type Aux = T::Aux;
    type Cursor = CursorAdapter<T::Cursor>;

    fn connect(
        connection: &mut VTabConnection,
        aux: Option<&Self::Aux>,
        _module: &[u8],
        _database: &[u8],
        _table: &[u8],
        _args: &[&[u8]],
    ) -> Result<(Cow<'static, CStr>, Self)> {
        // The tables are read-only, so views and triggers of the host may use them safely.
        connection.config(rusqlite::vtab::VTabConfig::Innocuous)?;
        let aux = aux.expect("every module is registered with what it is made from");
        let (schema, table) = T::connect(aux);
        let base = sqlite3_vtab::default();
        Ok((Cow::Owned(schema), Self { base, table }))
    }

    fn best_index(&self, info: &mut IndexInfo) -> Result<bool> {
        self.table.best_index(info)
    }

    fn open(&'vtab mut self) -> Result<Self::Cursor> {
        let base = sqlite3_vtab_cursor::default();
        Ok(CursorAdapter {
            base,
            cursor: self.table.open(),
        })
    }
}

#[cfg(feature = "loadable")]
impl<'vtab, T: VirtualTable> rusqlite::vtab::CreateVTab<'vtab> for TableAdapter<T> {
    const KIND: rusqlite::vtab::VTabKind = rusqlite::vtab::VTabKind::Eponymous;
}

// SAFETY: the struct is `repr(C)` and its first field is `sqlite3_vtab_cursor`, as the trait asks.
unsafe impl<C: Cursor> VTabCursor for CursorAdapter<C> {
    fn filter(&mut self, number: c_int, text: Option<&str>, args: &Filters<'_>) -> Result<()> {
        self.cursor.filter(number, text, args)
    }

    fn next(&mut self) -> Result<()> {
        self.cursor.next()
    }

    fn eof(&self) -> bool {
        self.cursor.eof()
    }

    fn column(&self, context: &mut Context, index: c_int) -> Result<()> {
        self.cursor
            .column(context, usize::try_from(index).unwrap_or(usize::MAX))
    }

    fn rowid(&self) -> Result<i64> {
        Ok(self.cursor.rowid())
    }
}

/// Bounds SQLite's heap in the whole process; an allocation beyond it fails, and with it the
/// statement.
#[cfg(feature = "bundled")]
pub(crate) fn limit_heap(bytes: i64) {
    // SAFETY: takes and returns integers; SQLite guards the limit with its own mutex.
    unsafe { ffi::sqlite3_hard_heap_limit64(bytes) };
}

/// Gives a new connection `slots` of `bytes` each for its small allocations. They avoid the
/// process's allocator, whose every call SQLite counts under a lock for its heap limit. Returns
/// whether it succeeded: a connection that is in use already keeps its slots.
#[cfg(feature = "bundled")]
pub(crate) fn reserve(connection: &Connection, bytes: c_int, slots: c_int) -> bool {
    // SAFETY: the handle is open and is only used during the call; the variadic arguments are those
    // that SQLITE_DBCONFIG_LOOKASIDE asks for, and a null buffer lets SQLite allocate its own.
    let result = unsafe {
        let handle = connection.handle();
        let buffer = std::ptr::null_mut::<std::ffi::c_void>();
        ffi::sqlite3_db_config(handle, ffi::SQLITE_DBCONFIG_LOOKASIDE, buffer, bytes, slots)
    };
    result == ffi::SQLITE_OK
}

/// The connection that a scalar function runs on.
#[cfg(feature = "loadable")]
pub(crate) fn with_connection<R>(
    context: &rusqlite::functions::Context<'_>,
    then: impl FnOnce(&Connection) -> Result<R>,
) -> Result<R> {
    // SAFETY: the connection is only borrowed, on the thread that runs the function, until `then`
    // returns; it is neither kept nor sent elsewhere.
    let connection = unsafe { context.get_connection()? };
    then(&connection)
}

/// A borrowed flag that SQLite's `'static` callbacks can read while it is lent, and not after.
#[cfg(feature = "bundled")]
#[derive(Debug, Default)]
pub(crate) struct LentFlag(AtomicPtr<AtomicBool>);

#[cfg(feature = "bundled")]
impl LentFlag {
    /// Lends `flag` during `then`. The loan ends when `then` returns or panics.
    pub(crate) fn lend<R>(&self, flag: &AtomicBool, then: impl FnOnce() -> R) -> R {
        struct Return<'a>(&'a LentFlag);
        impl Drop for Return<'_> {
            fn drop(&mut self) {
                self.0.0.store(std::ptr::null_mut(), Ordering::Relaxed);
            }
        }
        self.0
            .store(std::ptr::from_ref(flag).cast_mut(), Ordering::Relaxed);
        let _return = Return(self);
        then()
    }

    /// Whether a flag is lent and set. May only be called from within `lend`'s `then`, on its
    /// thread.
    pub(crate) fn is_set(&self) -> bool {
        let flag = self.0.load(Ordering::Relaxed);
        // SAFETY: the pointer is null except during `lend`, whose borrow keeps the flag alive; the
        // callers are callbacks of the statement that `then` steps, on the same thread.
        unsafe { flag.as_ref() }.is_some_and(|flag| flag.load(Ordering::Relaxed))
    }
}

#[cfg(all(test, feature = "bundled"))]
mod tests {
    use super::*;

    #[test]
    fn a_connection_takes_a_reserve_until_it_is_in_use() {
        let connection = Connection::open_in_memory().unwrap();
        assert!(reserve(&connection, 1_024, 256));
        let statement = connection.prepare("SELECT 1").unwrap();
        assert!(!reserve(&connection, 1_024, 128));
        drop(statement);
    }

    #[test]
    fn a_flag_is_lent_for_as_long_as_the_call() {
        let lent = LentFlag::default();
        let flag = AtomicBool::new(true);
        assert!(!lent.is_set());
        assert!(lent.lend(&flag, || lent.is_set()));
        assert!(!lent.is_set());
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            lent.lend(&flag, || panic!("on purpose"));
        }));
        assert!(panicked.is_err());
        assert!(!lent.is_set());
    }
}

//! SQL: statements, and their answers as tables of typed cells.

use std::ffi::{CString, c_char, c_int};
use std::ptr;

use barograph_client::{Cell as Field, Observer, Rows};
use barograph_model::SqlLimits;

use crate::guard::{E_ARGUMENT, E_SQL, Failure, OK, guarded, set, text};
use crate::handles::{HandleObject, give, take_back, thing};

/// Types of cells, as in `baro.h`.
const NULL: c_int = 0;
const INT: c_int = 1;
const FLOAT: c_int = 2;
const TEXT: c_int = 4;
const BYTES: c_int = 6;

/// The C type `baro_table_t`: its texts end with a zero byte, unlike those of `Rows`.
pub(crate) struct BaroTable {
    names: Vec<CString>,
    /// The cells, column by column.
    columns: Vec<Vec<Cell>>,
    rows: usize,
}

impl HandleObject for BaroTable {
    const KIND: u8 = 5;
    const NAME: &'static str = "the table";
    const IS_EXCLUSIVE: bool = false;
}

enum Cell {
    Null,
    Int(i64),
    Float(f64),
    /// A text, with a zero byte at its end.
    Text(Box<[u8]>),
    Bytes(Box<[u8]>),
}

/// The C struct `baro_cell_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct BaroCell {
    kind: c_int,
    bytes: usize,
    content: Content,
}

#[derive(Clone, Copy)]
#[repr(C)]
union Content {
    int: i64,
    float: f64,
    pointer: *const u8,
}

impl From<&Rows> for BaroTable {
    fn from(rows: &Rows) -> Self {
        let names = rows.columns().iter();
        let names = names.map(|c| CString::new(c.name.replace('\0', " ")).unwrap_or_default());
        let column = |index| rows.column(index).iter().map(Cell::from).collect();
        Self {
            names: names.collect(),
            columns: (0..rows.columns().len()).map(column).collect(),
            rows: rows.len(),
        }
    }
}

impl From<&Field> for Cell {
    fn from(field: &Field) -> Self {
        match field {
            Field::Null => Self::Null,
            Field::Int(v) => Self::Int(*v),
            Field::Real(v) => Self::Float(*v),
            Field::Text(v) => Self::Text(v.bytes().chain([0]).collect()),
            Field::Blob(v) => Self::Bytes(v.clone()),
        }
    }
}

impl From<&Cell> for BaroCell {
    fn from(cell: &Cell) -> Self {
        let pointer = |bytes: &[u8]| Content {
            pointer: bytes.as_ptr(),
        };
        let (kind, bytes, content) = match cell {
            Cell::Null => (NULL, 0, Content { int: 0 }),
            Cell::Int(int) => (INT, 8, Content { int: *int }),
            Cell::Float(float) => (FLOAT, 8, Content { float: *float }),
            Cell::Text(v) => (TEXT, v.len() - 1, pointer(v)),
            Cell::Bytes(v) => (BYTES, v.len(), pointer(v)),
        };
        Self {
            kind,
            bytes,
            content,
        }
    }
}

/// See `baro.h`.
///
/// # Safety
/// `sql` is null or a C string; `table` is null or valid for writes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_query(
    node: *const Observer,
    sql: *const c_char,
    table: *mut *mut BaroTable,
) -> c_int {
    // SAFETY: the caller upholds the requirements of this function.
    unsafe { set(table, ptr::null_mut()) };
    guarded(
        |code| code,
        || {
            // SAFETY: the caller upholds the requirements of this function.
            let (node, sql) = unsafe { (thing(node)?, text(sql, "the statement")?) };
            if table.is_null() {
                return Err(Failure::new(E_ARGUMENT, "there is no place for the table"));
            }
            let rows = node.sql(sql, &SqlLimits::default());
            let rows = rows.map_err(|fault| Failure::new(E_SQL, fault))?;
            // SAFETY: the caller upholds the requirements of this function.
            unsafe { set(table, give(BaroTable::from(&rows))?) };
            Ok(OK)
        },
    )
}

/// See `baro.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn baro_table_free(table: *mut BaroTable) {
    guarded(|_| (), || take_back(table));
}

/// Reads something of a table; returns `nothing`, and sets an error, if the table was freed. For
/// null it returns `nothing` without an error.
fn of<T>(table: *const BaroTable, nothing: T, look: impl FnOnce(&BaroTable) -> Option<T>) -> T
where
    T: Copy,
{
    if table.is_null() {
        return nothing;
    }
    let said = || Ok(look(&*thing(table)?).unwrap_or(nothing));
    guarded(|_| nothing, said)
}

/// See `baro.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn baro_table_rows(table: *const BaroTable) -> usize {
    of(table, 0, |table| Some(table.rows))
}

/// See `baro.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn baro_table_columns(table: *const BaroTable) -> usize {
    of(table, 0, |table| Some(table.columns.len()))
}

/// See `baro.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn baro_table_name(table: *const BaroTable, column: usize) -> *const c_char {
    of(table, ptr::null(), |table| {
        table.names.get(column).map(|name| name.as_ptr())
    })
}

/// See `baro.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn baro_table_cell(
    table: *const BaroTable,
    row: usize,
    column: usize,
) -> BaroCell {
    of(table, BaroCell::from(&Cell::Null), |table| {
        table.columns.get(column)?.get(row).map(BaroCell::from)
    })
}

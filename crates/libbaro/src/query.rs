//! SQL: a question, and its answer as a table of typed cells.

use std::ffi::{CString, c_char, c_int};
use std::ptr;

use barograph_client::{Cell as Field, Observer, Rows};
use barograph_model::SqlLimits;

use crate::guard::{E_ARGUMENT, E_SQL, Failure, OK, give, guarded, set, take_back, text, thing};

/// Types of cells, as in `baro.h`.
const NULL: c_int = 0;
const INT: c_int = 1;
const FLOAT: c_int = 2;
const TEXT: c_int = 4;
const BYTES: c_int = 6;

/// `baro_table_t`: texts end with a zero byte, which `Rows` have not.
pub struct Table {
    names: Vec<CString>,
    /// Column after column.
    columns: Vec<Vec<Cell>>,
    rows: usize,
}

enum Cell {
    Null,
    Int(i64),
    Float(f64),
    /// With a zero byte behind it.
    Text(Box<[u8]>),
    Bytes(Box<[u8]>),
}

/// `baro_cell_t`.
#[repr(C)]
pub struct CellOut {
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

impl From<&Rows> for Table {
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

impl From<&Cell> for CellOut {
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
/// `node` is null, or of `baro_node_open` and not closed; `sql` is null or a text; `table` is null or may be
/// written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baro_query(
    node: *const Observer,
    sql: *const c_char,
    table: *mut *mut Table,
) -> c_int {
    // SAFETY: as this function's.
    unsafe { set(table, ptr::null_mut()) };
    guarded(
        |code| code,
        || {
            // SAFETY: as this function's.
            let (node, sql) = unsafe { (thing(node, "the node")?, text(sql, "the statement")?) };
            if table.is_null() {
                return Err(Failure::new(E_ARGUMENT, "there is no place for the table"));
            }
            let rows = node.sql(sql, &SqlLimits::default());
            let rows = rows.map_err(|fault| Failure::new(E_SQL, fault))?;
            // SAFETY: as this function's.
            unsafe { set(table, give(Table::from(&rows))) };
            Ok(OK)
        },
    )
}

/// See `baro.h`.
///
/// # Safety
/// `table` is null, or of `baro_query` and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baro_table_free(table: *mut Table) {
    // SAFETY: as this function's.
    unsafe { take_back(table) };
}

/// See `baro.h`.
///
/// # Safety
/// `table` is null, or of `baro_query` and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baro_table_rows(table: *const Table) -> usize {
    // SAFETY: as this function's.
    unsafe { table.as_ref() }.map_or(0, |table| table.rows)
}

/// See `baro.h`.
///
/// # Safety
/// `table` is null, or of `baro_query` and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baro_table_columns(table: *const Table) -> usize {
    // SAFETY: as this function's.
    unsafe { table.as_ref() }.map_or(0, |table| table.columns.len())
}

/// See `baro.h`.
///
/// # Safety
/// `table` is null, or of `baro_query` and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baro_table_name(table: *const Table, column: usize) -> *const c_char {
    // SAFETY: as this function's.
    let table = unsafe { table.as_ref() };
    let name = table.and_then(|table| table.names.get(column));
    name.map_or(ptr::null(), |name| name.as_ptr())
}

/// See `baro.h`.
///
/// # Safety
/// `table` is null, or of `baro_query` and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baro_table_cell(
    table: *const Table,
    row: usize,
    column: usize,
) -> CellOut {
    // SAFETY: as this function's.
    let table = unsafe { table.as_ref() };
    let column = table.and_then(|table| table.columns.get(column));
    let cell = column.and_then(|column| column.get(row));
    CellOut::from(cell.unwrap_or(&Cell::Null))
}

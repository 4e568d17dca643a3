//! An answer held by columns, and its JSON forms.

use barograph_model::{
    BigIntegers, EXACT_MAX, SqlFault, SqlFaultKind, SqlLimits, floats_json, hex,
};
use rusqlite::Row;
use rusqlite::types::ValueRef;
use serde_json::{Map, Number, Value as Json};

use crate::fault::fault;

/// A column of an answer: its name and declared type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The column's name, from the statement.
    pub name: String,
    /// The declared type, if it is a table's column (`INTEGER`, `REAL`, `TEXT`, `BOOLEAN`); empty
    /// for an expression.
    pub declared: String,
}

/// A borrowed field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Field<'a> {
    /// NULL: no value is known.
    Null,
    /// An integer; also a bool (0 or 1).
    Int(i64),
    /// A float of 64 bits.
    Real(f64),
    /// A text in UTF-8.
    Text(&'a str),
    /// A BLOB.
    Blob(&'a [u8]),
    /// A list of numbers; only in a [`Table`](crate::Table), since in SQL such a list is JSON text.
    Floats(&'a [f64]),
}

impl<'a> From<ValueRef<'a>> for Field<'a> {
    fn from(value: ValueRef<'a>) -> Self {
        match value {
            ValueRef::Null => Self::Null,
            ValueRef::Integer(v) => Self::Int(v),
            ValueRef::Real(v) => Self::Real(v),
            ValueRef::Text(v) => std::str::from_utf8(v).map_or(Self::Blob(v), Self::Text),
            ValueRef::Blob(v) => Self::Blob(v),
        }
    }
}

/// One row of an answer while it is read.
pub struct RowView<'a>(pub(crate) &'a Row<'a>);

impl RowView<'_> {
    /// The field at `column`; NULL beyond the last column.
    pub fn get(&self, column: usize) -> Field<'_> {
        self.0.get_ref(column).map_or(Field::Null, Field::from)
    }
}

/// An owned field.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// NULL: no value is known.
    Null,
    /// An integer; also a bool (0 or 1).
    Int(i64),
    /// A float of 64 bits.
    Real(f64),
    /// A text in UTF-8.
    Text(Box<str>),
    /// A BLOB.
    Blob(Box<[u8]>),
}

impl Cell {
    fn bytes(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Text(text) => text.len(),
                Self::Blob(bytes) => bytes.len(),
                Self::Null | Self::Int(_) | Self::Real(_) => 0,
            }
    }

    /// The field as JSON. Floats without a JSON form (infinities) become null; bytes become
    /// hexadecimal text.
    pub(crate) fn to_json(&self, big: BigIntegers) -> Json {
        match self {
            Self::Null => Json::Null,
            Self::Int(v) if big == BigIntegers::Text && v.unsigned_abs() > EXACT_MAX => {
                Json::String(v.to_string())
            }
            Self::Int(v) => Json::Number((*v).into()),
            Self::Real(v) => Number::from_f64(*v).map_or(Json::Null, Json::Number),
            Self::Text(v) => Json::String(v.to_string()),
            Self::Blob(v) => Json::String(hex(v)),
        }
    }
}

impl From<Field<'_>> for Cell {
    fn from(field: Field<'_>) -> Self {
        match field {
            Field::Null => Self::Null,
            Field::Int(v) => Self::Int(v),
            Field::Real(v) => Self::Real(v),
            Field::Text(v) => Self::Text(v.into()),
            Field::Blob(v) => Self::Blob(v.into()),
            Field::Floats(v) => Self::Text(floats_json(v).into()),
        }
    }
}

/// A receiver of the rows of an answer.
pub(crate) trait Taker {
    /// Begins an answer with these columns. It may be called again before the first row.
    fn begin(&mut self, columns: Vec<Column>);
    /// Takes the next row.
    fn take(&mut self, row: &RowView<'_>, limits: &SqlLimits) -> Result<(), SqlFault>;
    /// Whether a row was taken.
    fn has_rows(&self) -> bool;
}

/// A whole answer, held in memory by columns.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    columns: Vec<Column>,
    /// One list per column, all of the same length.
    cells: Vec<Vec<Cell>>,
    count: usize,
    bytes: usize,
    /// Time from the start of the query to the last row, in ns.
    pub elapsed_ns: i64,
}

impl Taker for Rows {
    fn begin(&mut self, columns: Vec<Column>) {
        self.cells = columns.iter().map(|_| Vec::new()).collect();
        self.columns = columns;
    }

    fn take(&mut self, row: &RowView<'_>, limits: &SqlLimits) -> Result<(), SqlFault> {
        one_more(self.count, limits)?;
        for (index, column) in self.cells.iter_mut().enumerate() {
            let cell = Cell::from(row.get(index));
            self.bytes += cell.bytes();
            column.push(cell);
        }
        self.count += 1;
        within(self.bytes, limits)
    }

    fn has_rows(&self) -> bool {
        self.count > 0
    }
}

impl Rows {
    /// The bytes that its fields take in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The columns of the answer, in order.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The fields of a column, row by row.
    pub fn column(&self, index: usize) -> &[Cell] {
        &self.cells[index]
    }

    /// The field in a row and a column, if it exists.
    pub fn get(&self, row: usize, column: usize) -> Option<&Cell> {
        self.cells.get(column)?.get(row)
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The names of the columns; a repeated name is numbered (`value`, `value_2`).
    pub fn unique_names(&self) -> Vec<String> {
        unique_names(&self.columns)
    }

    /// The answer as a JSON list with one object per row. Infinities are null.
    pub fn to_json_rows(&self) -> Vec<u8> {
        self.to_json_rows_with(BigIntegers::Number)
    }

    /// Like [`Rows::to_json_rows`], with integers beyond 2^53 as `big` demands.
    pub fn to_json_rows_with(&self, big: BigIntegers) -> Vec<u8> {
        let names = self.unique_names();
        let mut out = vec![b'['];
        for row in 0..self.count {
            let cells = self.cells.iter().map(|cells| cells[row].to_json(big));
            write_object(&mut out, row, &names, cells);
        }
        out.push(b']');
        out
    }

    /// The answer as a JSON object `{"columns": [names], "types": [declared], "rows": [[…]],
    /// "elapsed_ns": n}`. Infinities are null.
    pub fn to_json_table(&self) -> Vec<u8> {
        let mut out = Vec::new();
        write_table_head(&mut out, &self.columns);
        for row in 0..self.count {
            let cells = self.cells.iter();
            let cells = cells.map(|cells| cells[row].to_json(BigIntegers::Number));
            write_list(&mut out, row, cells);
        }
        write_table_end(&mut out, self.elapsed_ns);
        out
    }
}

/// Writes a row as an object, after a comma unless it is the first.
fn write_object(
    out: &mut Vec<u8>,
    row: usize,
    names: &[String],
    cells: impl Iterator<Item = Json>,
) {
    if row > 0 {
        out.push(b',');
    }
    let object: Map<String, Json> = names.iter().cloned().zip(cells).collect();
    write_json(out, &Json::Object(object));
}

/// Writes a row as a list, after a comma unless it is the first.
fn write_list(out: &mut Vec<u8>, row: usize, cells: impl Iterator<Item = Json>) {
    if row > 0 {
        out.push(b',');
    }
    write_json(out, &Json::Array(cells.collect()));
}

pub(crate) fn write_table_head(out: &mut Vec<u8>, columns: &[Column]) {
    let names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
    let types: Vec<&str> = columns.iter().map(|c| c.declared.as_str()).collect();
    out.extend(b"{\"columns\":");
    write_json(out, &names.into());
    out.extend(b",\"types\":");
    write_json(out, &types.into());
    out.extend(b",\"rows\":[");
}

pub(crate) fn write_table_end(out: &mut Vec<u8>, elapsed_ns: i64) {
    out.extend(format!("],\"elapsed_ns\":{elapsed_ns}}}").bytes());
}

/// The names of columns; a repeated name is numbered (`value`, `value_2`).
pub(crate) fn unique_names(columns: &[Column]) -> Vec<String> {
    let mut names: Vec<String> = Vec::with_capacity(columns.len());
    for column in columns {
        let mut name = column.name.clone();
        let mut number = 2;
        while names.contains(&name) {
            name = format!("{}_{number}", column.name);
            number += 1;
        }
        names.push(name);
    }
    names
}

/// Fails if an answer with `rows` rows may not have one more.
pub(crate) fn one_more(rows: usize, limits: &SqlLimits) -> Result<(), SqlFault> {
    if rows < limits.rows_max {
        return Ok(());
    }
    let message = format!(
        "the answer has more than {} rows: aggregate, add LIMIT, or raise the limit",
        limits.rows_max
    );
    Err(fault(SqlFaultKind::Limit, message))
}

/// Fails if an answer is larger than allowed.
pub(crate) fn within(bytes: usize, limits: &SqlLimits) -> Result<(), SqlFault> {
    if bytes <= limits.bytes_max {
        return Ok(());
    }
    let message = format!(
        "the answer has more than {} bytes: name fewer columns, aggregate, or raise the limit",
        limits.bytes_max
    );
    Err(fault(SqlFaultKind::Limit, message))
}

pub(crate) fn write_json(out: &mut Vec<u8>, value: &Json) {
    serde_json::to_writer(out, value).expect("memory takes everything, and keys are texts");
}

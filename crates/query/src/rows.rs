//! An answer, column by column, and its JSON forms.

use barograph_model::{SqlFault, SqlFaultKind, SqlLimits, floats_json, hex};
use rusqlite::types::ValueRef;
use serde_json::{Map, Number, Value as Json};

use crate::database::RowView;
use crate::fault::fault;

/// A column of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name, as the statement gives it.
    pub name: String,
    /// The declared type of the table's column that it is (`INTEGER`, `REAL`, `TEXT`, `BOOLEAN`);
    /// empty for an expression.
    pub declared: String,
}

/// A field, borrowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Field<'a> {
    /// Nothing known.
    Null,
    /// An integer; also a bool (0 or 1).
    Int(i64),
    /// A float.
    Real(f64),
    /// A text.
    Text(&'a str),
    /// Bytes.
    Blob(&'a [u8]),
    /// An array of numbers; of tables only, SQL has them as JSON.
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

/// A field, owned.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Nothing known.
    Null,
    /// An integer; also a bool (0 or 1).
    Int(i64),
    /// A float.
    Real(f64),
    /// A text.
    Text(Box<str>),
    /// Bytes.
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

    /// Floats that JSON has no number for (infinities) become null; bytes become hexadecimal text.
    fn to_json(&self) -> Json {
        match self {
            Self::Null => Json::Null,
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

/// An answer.
#[derive(Clone, Debug)]
pub struct Rows {
    columns: Vec<Column>,
    /// One list a column, all of the same length.
    cells: Vec<Vec<Cell>>,
    count: usize,
    bytes: usize,
    /// Time from the question to the last row, in ns.
    pub elapsed_ns: i64,
}

impl Rows {
    pub(crate) fn new(columns: Vec<Column>) -> Self {
        let cells = columns.iter().map(|_| Vec::new()).collect();
        Self {
            columns,
            cells,
            count: 0,
            bytes: 0,
            elapsed_ns: 0,
        }
    }

    pub(crate) fn push(&mut self, row: &RowView<'_>, limits: &SqlLimits) -> Result<(), SqlFault> {
        if self.count == limits.rows_max {
            let message = format!(
                "the answer has more than {} rows: aggregate, add LIMIT, or raise the limit",
                limits.rows_max
            );
            return Err(fault(SqlFaultKind::Limit, message));
        }
        for (index, column) in self.cells.iter_mut().enumerate() {
            let cell = Cell::from(row.get(index));
            self.bytes += cell.bytes();
            column.push(cell);
        }
        self.count += 1;
        within(self.bytes, limits)
    }

    /// The columns.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The fields of a column, row by row.
    pub fn column(&self, index: usize) -> &[Cell] {
        &self.cells[index]
    }

    /// The field in a row and a column.
    pub fn get(&self, row: usize, column: usize) -> Option<&Cell> {
        self.cells.get(column)?.get(row)
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Names of the columns; one that is there already is numbered (`value`, `value_2`).
    pub fn unique_names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
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

    /// A JSON list of one object a row. Infinities are null.
    pub fn to_json_rows(&self) -> Vec<u8> {
        let names = self.unique_names();
        let mut out = vec![b'['];
        for row in 0..self.count {
            if row > 0 {
                out.push(b',');
            }
            let pairs = names.iter().zip(&self.cells);
            let object: Map<String, Json> = pairs
                .map(|(name, cells)| (name.clone(), cells[row].to_json()))
                .collect();
            write_json(&mut out, &Json::Object(object));
        }
        out.push(b']');
        out
    }

    /// A JSON object `{"columns": [names], "types": [declared], "rows": [[…]], "elapsed_ns": n}`.
    /// Infinities are null.
    pub fn to_json_table(&self) -> Vec<u8> {
        let names: Vec<&str> = self.columns.iter().map(|c| c.name.as_str()).collect();
        let types: Vec<&str> = self.columns.iter().map(|c| c.declared.as_str()).collect();
        let mut out = b"{\"columns\":".to_vec();
        write_json(&mut out, &names.into());
        out.extend(b",\"types\":");
        write_json(&mut out, &types.into());
        out.extend(b",\"rows\":[");
        for row in 0..self.count {
            if row > 0 {
                out.push(b',');
            }
            let cells: Vec<Json> = self
                .cells
                .iter()
                .map(|cells| cells[row].to_json())
                .collect();
            write_json(&mut out, &Json::Array(cells));
        }
        out.extend(format!("],\"elapsed_ns\":{}}}", self.elapsed_ns).bytes());
        out
    }
}

/// A fault when an answer is larger than asked for.
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

fn write_json(out: &mut Vec<u8>, value: &Json) {
    serde_json::to_writer(out, value).expect("memory takes everything, and keys are texts");
}

//! Encodes an answer as an Arrow IPC stream.
//!
//! SQLite types fields, Arrow types columns. A column of integers is int64, or a timestamp (ns,
//! UTC) if it is a table's time column under its own name. Floats, or floats with integers that a
//! float holds exactly, are float64. A column that is declared BOOLEAN and has only 0 and 1 is
//! bool. Bytes alone are binary. Any other column is utf8, with numbers written as text and bytes
//! as hexadecimal. A column without values has its declared type. Every column is nullable.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray,
    TimestampNanosecondArray,
};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema, TimeUnit};
use barograph_model::{EXACT_MAX, PIECE_BYTES, SqlFault, SqlFaultKind, hex};

use crate::fault::fault;
use crate::rows::{Cell, Column, Rows};
use crate::text::is_time_name;

/// The time zone of timestamps.
const UTC: &str = "UTC";

/// Rows of one batch: the encoded batch is held beside the rows, so batches are kept small.
const BATCH_ROWS: usize = 8_192;

impl Rows {
    /// Encodes the answer as an Arrow IPC stream.
    pub fn to_arrow_ipc(&self) -> Result<Vec<u8>, SqlFault> {
        let mut whole = Vec::new();
        self.write_arrow_ipc(&mut |piece| {
            whole.extend_from_slice(&piece);
            Ok(())
        })?;
        Ok(whole)
    }

    /// Encodes the answer as an Arrow IPC stream and passes it to `put` piece by piece.
    pub(crate) fn write_arrow_ipc(
        &self,
        put: &mut dyn FnMut(Vec<u8>) -> Result<(), SqlFault>,
    ) -> Result<(), SqlFault> {
        let columns = self.columns().iter().enumerate();
        let types: Vec<DataType> = columns
            .map(|(i, column)| data_type(column, self.column(i)))
            .collect();
        let fields: Vec<Field> = self
            .unique_names()
            .into_iter()
            .zip(&types)
            .map(|(name, data_type)| Field::new(name, data_type.clone(), true))
            .collect();
        let schema = Arc::new(Schema::new(fields));
        let mut writer = StreamWriter::try_new(Vec::new(), &schema).map_err(internal)?;
        let mut from = 0;
        // An answer without rows has one empty batch.
        while from == 0 || from < self.len() {
            let to = self.len().min(from + BATCH_ROWS);
            let arrays = types.iter().enumerate();
            let arrays: Vec<ArrayRef> = arrays
                .map(|(i, data_type)| array(data_type, &self.column(i)[from..to]))
                .collect();
            let batch = RecordBatch::try_new(Arc::clone(&schema), arrays).map_err(internal)?;
            writer.write(&batch).map_err(internal)?;
            if writer.get_ref().len() >= PIECE_BYTES {
                put(std::mem::take(writer.get_mut()))?;
            }
            from = to.max(1);
        }
        put(writer.into_inner().map_err(internal)?)
    }
}

fn internal(error: ArrowError) -> SqlFault {
    fault(
        SqlFaultKind::Internal,
        format!("cannot encode the answer as arrow: {error}"),
    )
}

fn data_type(column: &Column, cells: &[Cell]) -> DataType {
    let known = || cells.iter().filter(|cell| **cell != Cell::Null);
    let is_exact = |cell: &Cell| match cell {
        Cell::Int(v) => v.unsigned_abs() <= EXACT_MAX,
        cell => matches!(cell, Cell::Real(_)),
    };
    if known().next().is_none() {
        return match column.declared.as_str() {
            "INTEGER" if is_time(column) => timestamp(),
            "INTEGER" => DataType::Int64,
            "REAL" => DataType::Float64,
            "BOOLEAN" => DataType::Boolean,
            "BLOB" => DataType::Binary,
            _ => DataType::Utf8,
        };
    }
    let is_boolean = column.declared == "BOOLEAN";
    if is_boolean && known().all(|cell| matches!(cell, Cell::Int(0 | 1))) {
        DataType::Boolean
    } else if known().all(|cell| matches!(cell, Cell::Int(_))) {
        if is_time(column) {
            timestamp()
        } else {
            DataType::Int64
        }
    } else if known().all(|cell| matches!(cell, Cell::Blob(_))) {
        DataType::Binary
    } else if known().all(is_exact) {
        DataType::Float64
    } else {
        DataType::Utf8
    }
}

/// Whether this is a time column of a table: it has such a name and is declared an integer. A
/// computed column has no declared type, and stays an integer.
fn is_time(column: &Column) -> bool {
    is_time_name(&column.name) && column.declared == "INTEGER"
}

fn timestamp() -> DataType {
    DataType::Timestamp(TimeUnit::Nanosecond, Some(UTC.into()))
}

fn array(data_type: &DataType, cells: &[Cell]) -> ArrayRef {
    match data_type {
        DataType::Boolean => Arc::new(BooleanArray::from_iter(
            cells.iter().map(|c| int(c).map(|v| v != 0)),
        )),
        DataType::Timestamp(..) => {
            Arc::new(TimestampNanosecondArray::from_iter(cells.iter().map(int)).with_timezone(UTC))
        }
        DataType::Binary => Arc::new(BinaryArray::from_iter(cells.iter().map(blob))),
        DataType::Int64 => Arc::new(Int64Array::from_iter(cells.iter().map(int))),
        DataType::Float64 => Arc::new(Float64Array::from_iter(cells.iter().map(real))),
        _ => Arc::new(StringArray::from_iter(cells.iter().map(text))),
    }
}

fn int(cell: &Cell) -> Option<i64> {
    if let Cell::Int(v) = cell {
        Some(*v)
    } else {
        None
    }
}

fn blob(cell: &Cell) -> Option<&[u8]> {
    if let Cell::Blob(v) = cell {
        Some(v)
    } else {
        None
    }
}

fn real(cell: &Cell) -> Option<f64> {
    match cell {
        Cell::Real(v) => Some(*v),
        Cell::Int(v) => Some(*v as f64),
        _ => None,
    }
}

fn text(cell: &Cell) -> Option<String> {
    match cell {
        Cell::Null => None,
        Cell::Int(v) => Some(v.to_string()),
        Cell::Real(v) => Some(v.to_string()),
        Cell::Text(v) => Some(v.to_string()),
        Cell::Blob(v) => Some(hex(v)),
    }
}

//! Samples of one series as columns: the result of scans over long history.

use std::sync::Arc;

use crate::{Quality, Sample, Value, ValueType};

/// Bytes of a text, bytes, JSON or array that weigh as much as one sample; a shorter value adds no
/// weight to its sample.
const WEIGHT_BYTES: usize = 128;

/// The values of a column, all of one type.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// 64-bit signed integers.
    Int(Vec<i64>),
    /// 64-bit IEEE 754.
    Float(Vec<f64>),
    /// Truth values.
    Bool(Vec<bool>),
    /// Texts.
    Text(Vec<Arc<str>>),
    /// Bytes.
    Bytes(Vec<Arc<[u8]>>),
    /// JSON documents.
    Json(Vec<Arc<str>>),
    /// Arrays of numbers.
    Floats(Vec<Arc<[f64]>>),
}

impl Values {
    /// Returns an empty column of this type.
    pub fn new(value_type: ValueType) -> Self {
        match value_type {
            ValueType::Int => Self::Int(Vec::new()),
            ValueType::Float => Self::Float(Vec::new()),
            ValueType::Bool => Self::Bool(Vec::new()),
            ValueType::Text => Self::Text(Vec::new()),
            ValueType::Bytes => Self::Bytes(Vec::new()),
            ValueType::Json => Self::Json(Vec::new()),
            ValueType::Floats => Self::Floats(Vec::new()),
        }
    }

    /// The type of every value.
    pub fn value_type(&self) -> ValueType {
        match self {
            Self::Int(_) => ValueType::Int,
            Self::Float(_) => ValueType::Float,
            Self::Bool(_) => ValueType::Bool,
            Self::Text(_) => ValueType::Text,
            Self::Bytes(_) => ValueType::Bytes,
            Self::Json(_) => ValueType::Json,
            Self::Floats(_) => ValueType::Floats,
        }
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        match self {
            Self::Int(v) => v.len(),
            Self::Float(v) => v.len(),
            Self::Bool(v) => v.len(),
            Self::Text(v) | Self::Json(v) => v.len(),
            Self::Bytes(v) => v.len(),
            Self::Floats(v) => v.len(),
        }
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value at `row`; `None` beyond the end.
    pub fn get(&self, row: usize) -> Option<Value> {
        Some(match self {
            Self::Int(v) => Value::Int(*v.get(row)?),
            Self::Float(v) => Value::Float(*v.get(row)?),
            Self::Bool(v) => Value::Bool(*v.get(row)?),
            Self::Text(v) => Value::Text(Arc::clone(v.get(row)?)),
            Self::Bytes(v) => Value::Bytes(Arc::clone(v.get(row)?)),
            Self::Json(v) => Value::Json(Arc::clone(v.get(row)?)),
            Self::Floats(v) => Value::Floats(Arc::clone(v.get(row)?)),
        })
    }

    /// The number at `row`, with bools as 0 and 1; `None` for values that are not single numbers,
    /// and beyond the end.
    pub fn number(&self, row: usize) -> Option<f64> {
        match self {
            Self::Int(v) => v.get(row).map(|v| *v as f64),
            Self::Float(v) => v.get(row).copied(),
            Self::Bool(v) => v.get(row).map(|v| f64::from(u8::from(*v))),
            Self::Text(_) | Self::Bytes(_) | Self::Json(_) | Self::Floats(_) => None,
        }
    }

    /// Bytes that the value at `row` takes outside its column: 0 for numbers, and beyond the end.
    pub fn bytes(&self, row: usize) -> usize {
        match self {
            Self::Int(_) | Self::Float(_) | Self::Bool(_) => 0,
            Self::Text(v) | Self::Json(v) => v.get(row).map_or(0, |v| v.len()),
            Self::Bytes(v) => v.get(row).map_or(0, |v| v.len()),
            Self::Floats(v) => v.get(row).map_or(0, |v| size_of_val(&**v)),
        }
    }

    /// Appends a value; returns whether it had the column's type (a value of another type is not
    /// appended).
    pub fn push(&mut self, value: &Value) -> bool {
        match (self, value) {
            (Self::Int(column), Value::Int(v)) => column.push(*v),
            (Self::Float(column), Value::Float(v)) => column.push(*v),
            (Self::Bool(column), Value::Bool(v)) => column.push(*v),
            (Self::Text(column), Value::Text(v)) => column.push(Arc::clone(v)),
            (Self::Bytes(column), Value::Bytes(v)) => column.push(Arc::clone(v)),
            (Self::Json(column), Value::Json(v)) => column.push(Arc::clone(v)),
            (Self::Floats(column), Value::Floats(v)) => column.push(Arc::clone(v)),
            _ => return false,
        }
        true
    }
}

/// Samples of one life of one series, by number. All columns have the same length.
#[derive(Clone, Debug, PartialEq)]
pub struct Columns {
    /// Numbers of the samples within their life, ascending.
    pub numbers: Vec<u64>,
    /// Times, ns since the epoch: ascending unless the clock was set back.
    pub ts: Vec<i64>,
    /// Values of the samples.
    pub values: Values,
    /// Qualities of the samples.
    pub quality: Vec<Quality>,
    /// Half widths of the intervals that hold the true values.
    pub error: Vec<f32>,
}

impl Columns {
    /// Returns columns without samples, for values of this type.
    pub fn new(value_type: ValueType) -> Self {
        Self {
            numbers: Vec::new(),
            ts: Vec::new(),
            values: Values::new(value_type),
            quality: Vec::new(),
            error: Vec::new(),
        }
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.ts.len()
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.ts.is_empty()
    }

    /// Weight of the sample at `row` against a bound on samples: one, plus one for each 128 bytes
    /// of a long value.
    pub fn weight_of(&self, row: usize) -> usize {
        1 + self.values.bytes(row) / WEIGHT_BYTES
    }

    /// Weight of all samples against a bound on samples.
    pub fn weight(&self) -> usize {
        match self.values.value_type().is_number() {
            true => self.len(),
            false => (0..self.len()).map(|row| self.weight_of(row)).sum(),
        }
    }

    /// Whether nobody looked between this sample and the next one: its quality is `Ended`, or the
    /// next sample is the first of another life of the stream (the process that looked before may
    /// have been killed before it could append a last look).
    pub fn is_last_look(&self, row: usize) -> bool {
        self.quality.get(row) == Some(&Quality::Ended) || self.numbers.get(row + 1) == Some(&1)
    }

    /// The sample at `row`; `None` beyond the end.
    pub fn sample(&self, row: usize) -> Option<Sample> {
        Some(Sample {
            ts: *self.ts.get(row)?,
            value: self.values.get(row)?,
            quality: *self.quality.get(row)?,
            error: *self.error.get(row)?,
        })
    }

    /// Appends a sample; returns whether its value had the columns' type (another sample is not
    /// appended).
    pub fn push(&mut self, number: u64, sample: &Sample) -> bool {
        if !self.values.push(&sample.value) {
            return false;
        }
        self.numbers.push(number);
        self.ts.push(sample.ts);
        self.quality.push(sample.quality);
        self.error.push(sample.error);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_looked_after_a_last_look_and_before_another_life() {
        let mut columns = Columns::new(ValueType::Int);
        let ended = Quality::Ended;
        let measured = Quality::Measured;
        for (number, quality) in [
            (7, measured),
            (8, ended),
            (9, measured),
            (1, measured),
            (2, ended),
        ] {
            let mut sample = Sample::measured(number as i64, 0);
            sample.quality = quality;
            assert!(columns.push(number, &sample));
        }
        let found: Vec<bool> = (0..6).map(|row| columns.is_last_look(row)).collect();
        assert_eq!(found, [false, true, true, false, true, false]);
    }
}

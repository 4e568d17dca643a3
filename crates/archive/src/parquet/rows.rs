//! Rows that wait for their row group: plain columns, with runs for what does not change.
//!
//! This module stands alone because raw files and tiers share its difficult parts: numbers that a
//! double rounds, and missing values.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use ::parquet::data_type::ByteArray;
use barograph_model::{Descriptor, Labels, TEXT_BYTES_MAX, ValueType, Values};

/// Whether a double rounds this integer: then its column has the nearest double, and `exact` the
/// integer.
fn rounded(v: i64) -> bool {
    v.unsigned_abs() > 1 << 53 && v as f64 as i128 != i128::from(v)
}

/// A column of numbers, and the column of the integers that doubles round.
#[derive(Default)]
pub(super) struct NumberColumn {
    pub values: Vec<f64>,
    /// Rounded integers, with their rows in the row group.
    pub exact: Vec<(u32, i64)>,
}

impl NumberColumn {
    /// Appends numbers, the first of them for row `row`; values that are not numbers add nothing.
    /// Returns whether doubles hold all of them exactly.
    pub(super) fn extend(&mut self, row: usize, values: &Values, range: Range<usize>) -> bool {
        let before = self.exact.len();
        match values {
            Values::Int(v) => {
                let v = &v[range];
                self.values.extend(v.iter().map(|v| *v as f64));
                let rounded = v.iter().enumerate().filter(|(_, v)| rounded(**v));
                self.exact
                    .extend(rounded.map(|(at, v)| ((row + at) as u32, *v)));
            }
            Values::Float(v) => self.values.extend_from_slice(&v[range]),
            Values::Bool(v) => self
                .values
                .extend(v[range].iter().map(|v| f64::from(u8::from(*v)))),
            Values::Text(_) | Values::Bytes(_) | Values::Json(_) | Values::Floats(_) => {}
        }
        self.exact.len() == before
    }

    pub(super) fn clear(&mut self) {
        self.values.clear();
        self.exact.clear();
    }

    /// Returns the rounded integers as a column: the values, and for each row 1 if it has one, else
    /// 0.
    pub(super) fn exact_column(&self, rows: usize) -> (Vec<i64>, Vec<i16>) {
        let mut there = vec![0; rows];
        for (row, _) in &self.exact {
            there[*row as usize] = 1;
        }
        (self.exact.iter().map(|(_, v)| *v).collect(), there)
    }
}

/// A column of texts, bytes or arrays.
#[derive(Default)]
pub(super) struct TextColumn {
    pub values: Vec<ByteArray>,
    /// Bytes of the values: a short text counts once while it repeats, a long one each time, since
    /// it may be written each time.
    pub bytes: usize,
}

impl TextColumn {
    pub(super) fn extend<'v>(&mut self, values: impl Iterator<Item = Cow<'v, [u8]>>) {
        for value in values {
            match self.values.last() {
                Some(last) if last.data() == &*value => {
                    if value.len() > TEXT_BYTES_MAX {
                        self.bytes += value.len();
                    }
                    self.values.push(last.clone());
                }
                _ => {
                    self.bytes += value.len();
                    self.values.push(ByteArray::from(value.into_owned()));
                }
            }
        }
    }

    pub(super) fn extend_texts(&mut self, texts: &[Arc<str>]) {
        self.extend(texts.iter().map(|text| Cow::Borrowed(text.as_bytes())));
    }

    pub(super) fn clear(&mut self) {
        self.values.clear();
        self.bytes = 0;
    }
}

/// Name, labels and unit of a series as values of columns.
pub(super) type SeriesWords = Arc<[ByteArray; 3]>;

/// The column in which values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueColumn {
    Number,
    Text,
    Bytes,
    Floats,
}

impl ValueColumn {
    pub(super) fn of(value_type: ValueType) -> Self {
        match value_type {
            ValueType::Int | ValueType::Float | ValueType::Bool => Self::Number,
            ValueType::Text | ValueType::Json => Self::Text,
            ValueType::Bytes => Self::Bytes,
            ValueType::Floats => Self::Floats,
        }
    }
}

/// Consecutive rows of one series and life.
#[derive(Clone)]
pub(super) struct RowsRun {
    pub words: SeriesWords,
    pub column: ValueColumn,
    pub life: i64,
    pub rows: usize,
}

/// Returns the words of a series.
pub(super) fn words(descriptor: &Descriptor) -> SeriesWords {
    let bytes = |text: &str| ByteArray::from(text.as_bytes().to_vec());
    Arc::new([
        bytes(descriptor.name.as_str()),
        bytes(&labels_json(&descriptor.labels)),
        bytes(descriptor.unit.as_str()),
    ])
}

/// Returns the labels as a JSON object, as in the table `streams`.
fn labels_json(labels: &Labels) -> String {
    let pairs = labels.iter().map(|(n, v)| (n.to_owned(), v.into()));
    serde_json::Value::Object(pairs.collect()).to_string()
}

/// Returns one of the words for each run, with its number of rows.
pub(super) fn word_runs(runs: &[RowsRun], word: usize) -> impl Iterator<Item = (usize, ByteArray)> {
    runs.iter()
        .map(move |run| (run.rows, run.words[word].clone()))
}

/// Returns for each row whether its value is in this column (1) or not (0).
pub(super) fn is_in(runs: &[RowsRun], column: ValueColumn) -> Vec<i16> {
    let mut there = Vec::new();
    for run in runs {
        there.resize(there.len() + run.rows, i16::from(run.column == column));
    }
    there
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_double_rounds() {
        let two53 = 1 << 53;
        for (v, expect) in [
            (0, false),
            (two53, false),
            (two53 + 1, true),
            (-two53 - 1, true),
            (1 << 60, false),
            (i64::MAX, true),
            (i64::MIN, false),
        ] {
            assert_eq!(rounded(v), expect, "{v}");
        }
    }
}

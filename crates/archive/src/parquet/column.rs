//! One column of a row group: opened when it is first needed, and read forwards.
//!
//! This module stands alone because foreign pages are decoded here, by code that is not ours: under
//! bounds ([`super::page`]), and with its panics turned into errors.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ::parquet::column::reader::ColumnReaderImpl;
use ::parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use barograph_model::{ValueType, Values};

use super::index::ParquetIndex;
use super::page::ChunkPages;
use super::plan::RowsPiece;
use super::read::ParquetPart;
use super::{corrupt, schema};
use crate::ArchiveError;

/// The column chunks of a row group.
#[derive(Clone, Copy)]
pub(super) struct RowGroupChunks<'a> {
    pub part: &'a ParquetPart,
    pub index: &'a ParquetIndex,
    pub group: usize,
}

/// A column of a row group, read forwards.
pub(super) struct ColumnCursor<T: DataType> {
    place: usize,
    /// The decoder; `None` until it is needed.
    reader: Option<ColumnReaderImpl<T>>,
    /// The next row.
    at: usize,
    /// For each of the rows read last, whether it has a value (1) or not (0); empty in a column
    /// where all must have one.
    there: Vec<i16>,
}

/// Numbers in the form of the column: those that are not rounded need no copy.
pub(crate) enum ColumnNumbers<'a> {
    /// The doubles of the column.
    Doubles(&'a [f64]),
    /// Integers, of which some are rounded in the column.
    Ints(&'a [i64]),
}

/// A column of numbers, and the column of the integers that doubles round.
pub(super) struct NumberColumn {
    values: ColumnCursor<DoubleType>,
    exact: ColumnCursor<Int64Type>,
}

/// Buffers for [`NumberColumn`].
#[derive(Default)]
pub(crate) struct NumberBuffers {
    doubles: Vec<f64>,
    ints: Vec<i64>,
    exact: Vec<i64>,
}

/// A column of texts, bytes or arrays.
pub(super) struct TextColumn {
    column: ColumnCursor<ByteArrayType>,
    bytes: Vec<ByteArray>,
}

impl RowGroupChunks<'_> {
    fn open<T: DataType>(&self, place: usize) -> Result<ColumnReaderImpl<T>, ArchiveError> {
        let group = &self.index.groups[self.group];
        // Files of version 1 end before the columns of bytes and arrays.
        let Some(chunk) = group.chunks.get(place) else {
            let reason = "it has no column of this type of values";
            return Err(corrupt(self.part.path(), reason, 0));
        };
        let bytes = self.part.chunk(chunk)?;
        let pages = ChunkPages::new(bytes, group.rows)
            .map_err(|e| self.bad(place, &format!("cannot be unpacked: {e}")))?;
        let column = schema::schema(self.index.about.tier).column(place);
        Ok(ColumnReaderImpl::new(column, Box::new(pages)))
    }

    pub(super) fn bad(&self, place: usize, reason: &str) -> ArchiveError {
        let column = schema::schema(self.index.about.tier).column(place);
        let chunk = self.index.groups[self.group].chunks.get(place);
        let at = chunk.map_or(0, |chunk| chunk.offset);
        let reason = format!("the column {} {reason}", column.name());
        corrupt(self.part.path(), reason, at)
    }
}

impl<T: DataType> ColumnCursor<T> {
    pub(super) fn new(place: usize) -> Self {
        Self {
            place,
            reader: None,
            at: 0,
            there: Vec::new(),
        }
    }

    /// Appends the values of a piece in which every row has one.
    pub(super) fn read(
        &mut self,
        chunks: &RowGroupChunks<'_>,
        piece: &RowsPiece,
        out: &mut Vec<T::T>,
    ) -> Result<(), ArchiveError> {
        let before = out.len();
        self.read_some(chunks, piece, out)?;
        if out.len() - before == piece.rows.len() {
            return Ok(());
        }
        Err(chunks.bad(self.place, "has no value where there must be one"))
    }

    /// Appends the values of a piece that exist, and sets `there` for its rows.
    fn read_some(
        &mut self,
        chunks: &RowGroupChunks<'_>,
        piece: &RowsPiece,
        out: &mut Vec<T::T>,
    ) -> Result<(), ArchiveError> {
        if self.reader.is_none() {
            self.reader = Some(chunks.open(self.place)?);
        }
        let reader = self.reader.as_mut().expect("it was opened just now");
        let (rows, skip) = (piece.rows.len(), piece.rows.start - self.at);
        self.at = piece.rows.end;
        let there = &mut self.there;
        there.clear();
        // The decoders index into their input and are known to panic where it is inconsistent.
        // Their state does not matter then: an error ends the use of this row group.
        let decode = AssertUnwindSafe(|| {
            if reader.skip_records(skip)? != skip {
                return Ok(false);
            }
            let (records, ..) = reader.read_records(rows, Some(there), None, out)?;
            Ok(records == rows)
        });
        match catch_unwind(decode) {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err(chunks.bad(self.place, "has fewer rows than the index says")),
            Ok(Err::<_, ::parquet::errors::ParquetError>(error)) => {
                Err(chunks.bad(self.place, &format!("cannot be decoded: {error}")))
            }
            Err(_) => Err(chunks.bad(self.place, "cannot be decoded")),
        }
    }
}

impl NumberColumn {
    pub(super) fn new(values: usize, exact: usize) -> Self {
        Self {
            values: ColumnCursor::new(values),
            exact: ColumnCursor::new(exact),
        }
    }

    pub(super) fn read<'n>(
        &mut self,
        chunks: &RowGroupChunks<'_>,
        piece: &RowsPiece,
        numbered: &'n mut NumberBuffers,
    ) -> Result<ColumnNumbers<'n>, ArchiveError> {
        let NumberBuffers {
            doubles,
            ints,
            exact,
        } = numbered;
        doubles.clear();
        self.values.read(chunks, piece, doubles)?;
        if !chunks.index.series[piece.series].exact {
            return Ok(ColumnNumbers::Doubles(doubles));
        }
        exact.clear();
        self.exact.read_some(chunks, piece, exact)?;
        ints.clear();
        ints.extend(doubles.iter().map(|v| *v as i64));
        let there = self.exact.there.iter().zip(&mut *ints);
        let rounded = there.filter(|(there, _)| **there == 1);
        for ((_, slot), exact) in rounded.zip(&*exact) {
            *slot = *exact;
        }
        Ok(ColumnNumbers::Ints(ints))
    }
}

impl ColumnNumbers<'_> {
    /// Converts the numbers to values of this type.
    pub(crate) fn values(&self, value_type: ValueType) -> Values {
        match (self, value_type) {
            (Self::Doubles(v), ValueType::Int) => {
                Values::Int(v.iter().map(|v| *v as i64).collect())
            }
            (Self::Doubles(v), ValueType::Bool) => {
                Values::Bool(v.iter().map(|v| *v != 0.0).collect())
            }
            (Self::Doubles(v), _) => Values::Float(v.to_vec()),
            (Self::Ints(v), ValueType::Bool) => Values::Bool(v.iter().map(|v| *v != 0).collect()),
            (Self::Ints(v), ValueType::Float) => {
                Values::Float(v.iter().map(|v| *v as f64).collect())
            }
            (Self::Ints(v), _) => Values::Int(v.to_vec()),
        }
    }
}

impl TextColumn {
    pub(super) fn new(place: usize) -> Self {
        Self {
            column: ColumnCursor::new(place),
            bytes: Vec::new(),
        }
    }

    pub(super) fn read(
        &mut self,
        chunks: &RowGroupChunks<'_>,
        piece: &RowsPiece,
    ) -> Result<Vec<Arc<str>>, ArchiveError> {
        self.read_as(chunks, piece, |bytes| {
            let text = std::str::from_utf8(bytes);
            text.map(Arc::from).map_err(|_| "is not UTF-8")
        })
    }

    pub(super) fn read_bytes(
        &mut self,
        chunks: &RowGroupChunks<'_>,
        piece: &RowsPiece,
    ) -> Result<Vec<Arc<[u8]>>, ArchiveError> {
        self.read_as(chunks, piece, |bytes| Ok(Arc::from(bytes)))
    }

    pub(super) fn read_floats(
        &mut self,
        chunks: &RowGroupChunks<'_>,
        piece: &RowsPiece,
    ) -> Result<Vec<Arc<[f64]>>, ArchiveError> {
        self.read_as(chunks, piece, |bytes| {
            let (floats, rest) = bytes.as_chunks();
            let floats = floats.iter().map(|float| f64::from_le_bytes(*float));
            rest.is_empty()
                .then(|| floats.collect())
                .ok_or("has a broken array")
        })
    }

    /// Reads a piece; consecutive equal values share their memory.
    fn read_as<T: ?Sized>(
        &mut self,
        chunks: &RowGroupChunks<'_>,
        piece: &RowsPiece,
        value: impl Fn(&[u8]) -> Result<Arc<T>, &'static str>,
    ) -> Result<Vec<Arc<T>>, ArchiveError> {
        self.bytes.clear();
        self.column.read(chunks, piece, &mut self.bytes)?;
        let mut values: Vec<Arc<T>> = Vec::with_capacity(self.bytes.len());
        let mut before: &[u8] = &[];
        for bytes in &self.bytes {
            let same = values.last().filter(|_| before == bytes.data());
            let next = match same {
                Some(last) => Arc::clone(last),
                None => value(bytes.data()).map_err(|e| chunks.bad(self.column.place, e))?,
            };
            values.push(next);
            before = bytes.data();
        }
        Ok(values)
    }
}

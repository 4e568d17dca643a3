//! One row group being read: columns are opened when they are first needed, and read forwards.
//!
//! It stands alone because this is where foreign pages are decoded, by code that is not ours: under
//! bounds ([`super::page`]), and with what it panics over turned into an error.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ::parquet::column::reader::ColumnReaderImpl;
use ::parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int64Type};
use barograph_model::{Buckets, Columns, Quality, ValueType, Values};

use super::corrupt;
use super::index::{Index, IndexSeries};
use super::page::Pages;
use super::plan::Piece;
use super::read::ParquetPart;
use super::schema::{self, raw, tier};
use crate::ArchiveError;

/// The column chunks of a row group.
struct Chunks<'a> {
    part: &'a ParquetPart,
    index: &'a Index,
    group: usize,
}

/// A column of a row group, read forwards.
struct Column<T: DataType> {
    place: usize,
    /// None until it is needed.
    reader: Option<ColumnReaderImpl<T>>,
    /// The row that comes next.
    at: usize,
    /// Of the rows read last, whether each has a value; empty where all must have one.
    there: Vec<i16>,
}

/// Numbers in the columns' own form: those that are not rounded need no copy.
pub(crate) enum Numbers<'a> {
    /// As the column has them.
    Doubles(&'a [f64]),
    /// Integers of which some are rounded in the column.
    Ints(&'a [i64]),
}

/// A column of numbers and its companion.
struct NumberColumn {
    values: Column<DoubleType>,
    exact: Column<Int64Type>,
}

/// Buffers for [`NumberColumn`].
#[derive(Default)]
pub(crate) struct Numbered {
    doubles: Vec<f64>,
    ints: Vec<i64>,
    exact: Vec<i64>,
}

/// A row group of samples.
pub(crate) struct SampleGroup<'a> {
    chunks: Chunks<'a>,
    ts: Column<Int64Type>,
    value: NumberColumn,
    text: TextColumn,
    quality: Column<ByteArrayType>,
    error: Column<FloatType>,
    number: Column<Int64Type>,
}

/// A row group of buckets.
pub(crate) struct TierGroup<'a> {
    chunks: Chunks<'a>,
    ts: Column<Int64Type>,
    count: Column<Int64Type>,
    min: NumberColumn,
    max: NumberColumn,
    mean: Column<DoubleType>,
    last: NumberColumn,
    text: TextColumn,
    numbered: Numbered,
}

struct TextColumn {
    column: Column<ByteArrayType>,
    bytes: Vec<ByteArray>,
}

impl<'a> SampleGroup<'a> {
    pub fn new(part: &'a ParquetPart, index: &'a Index, group: usize) -> Self {
        Self {
            chunks: Chunks { part, index, group },
            ts: Column::new(raw::TS),
            value: NumberColumn::new(raw::VALUE, raw::EXACT),
            text: TextColumn::new(raw::TEXT),
            quality: Column::new(raw::QUALITY),
            error: Column::new(raw::ERROR),
            number: Column::new(raw::NUMBER),
        }
    }

    /// Appends the times of a piece.
    pub fn times(&mut self, piece: &Piece, out: &mut Vec<i64>) -> Result<(), ArchiveError> {
        self.ts.read(&self.chunks, piece, out)
    }

    /// The numbers of a piece of a series that has numbers.
    pub fn numbers<'n>(
        &mut self,
        piece: &Piece,
        numbered: &'n mut Numbered,
    ) -> Result<Numbers<'n>, ArchiveError> {
        self.value.read(&self.chunks, piece, numbered)
    }

    /// The texts of a piece of a series of texts.
    pub fn texts(&mut self, piece: &Piece) -> Result<Vec<Arc<str>>, ArchiveError> {
        self.text.read(&self.chunks, piece)
    }

    /// A piece with all that samples have.
    pub fn columns(
        &mut self,
        piece: &Piece,
        numbered: &mut Numbered,
    ) -> Result<Columns, ArchiveError> {
        let series = &self.chunks.index.series[piece.series];
        let rows = piece.rows.len();
        let mut ts = Vec::with_capacity(rows);
        self.times(piece, &mut ts)?;
        let values = match series.descriptor.value_type {
            ValueType::Text => Values::Text(self.texts(piece)?),
            value_type => self.numbers(piece, numbered)?.values(value_type),
        };
        let mut error = vec![0.0; rows];
        if series.errors {
            error.clear();
            self.error.read(&self.chunks, piece, &mut error)?;
        }
        Ok(Columns {
            numbers: self.sample_numbers(piece, series)?,
            ts,
            values,
            quality: self.qualities(piece, series)?,
            error,
        })
    }

    /// The numbers of samples: told by the index where none is missing.
    fn sample_numbers(
        &mut self,
        piece: &Piece,
        series: &IndexSeries,
    ) -> Result<Vec<u64>, ArchiveError> {
        let life = &series.lives[piece.life];
        if life.is_whole() {
            let first = life.first + piece.before;
            return Ok((first..first + piece.rows.len() as u64).collect());
        }
        let mut numbers = Vec::new();
        self.number.read(&self.chunks, piece, &mut numbers)?;
        let first = life.first as i64;
        let ascend = numbers.windows(2).all(|w| w[0] < w[1]);
        let within = numbers.first().is_some_and(|number| *number >= first)
            && numbers
                .last()
                .is_some_and(|number| *number as u64 <= life.last);
        if !ascend || !within {
            return Err(self.chunks.bad(raw::NUMBER, "is not what the index says"));
        }
        Ok(numbers.into_iter().map(|number| number as u64).collect())
    }

    fn qualities(
        &mut self,
        piece: &Piece,
        series: &IndexSeries,
    ) -> Result<Vec<Quality>, ArchiveError> {
        let rows = piece.rows.len();
        if let Some(quality) = series.quality {
            return Ok(vec![quality; rows]);
        }
        let mut names = Vec::with_capacity(rows);
        self.quality.read(&self.chunks, piece, &mut names)?;
        let qualities = names.iter().map(|name| quality(name.data()));
        let qualities: Option<_> = qualities.collect();
        qualities.ok_or_else(|| self.chunks.bad(raw::QUALITY, "has an unknown word"))
    }
}

impl<'a> TierGroup<'a> {
    pub fn new(part: &'a ParquetPart, index: &'a Index, group: usize) -> Self {
        Self {
            chunks: Chunks { part, index, group },
            ts: Column::new(tier::TS),
            count: Column::new(tier::COUNT),
            min: NumberColumn::new(tier::MIN, tier::MIN_EXACT),
            max: NumberColumn::new(tier::MAX, tier::MAX_EXACT),
            mean: Column::new(tier::MEAN),
            last: NumberColumn::new(tier::LAST, tier::LAST_EXACT),
            text: TextColumn::new(tier::LAST_TEXT),
            numbered: Numbered::default(),
        }
    }

    /// A piece.
    pub fn buckets(&mut self, piece: &Piece) -> Result<Buckets, ArchiveError> {
        let series = &self.chunks.index.series[piece.series];
        let value_type = series.descriptor.value_type;
        let rows = piece.rows.len();
        let mut buckets = Buckets::new(value_type);
        self.ts.read(&self.chunks, piece, &mut buckets.ts)?;
        let mut count = Vec::with_capacity(rows);
        self.count.read(&self.chunks, piece, &mut count)?;
        if count.iter().any(|count| *count < 1) {
            return Err(self.chunks.bad(tier::COUNT, "has an empty bucket"));
        }
        buckets.count = count.into_iter().map(|count| count as u64).collect();
        if value_type == ValueType::Text {
            let last = Values::Text(self.text.read(&self.chunks, piece)?);
            buckets.min = last.clone();
            buckets.max = last.clone();
            buckets.last = last;
            buckets.mean = vec![f64::NAN; rows];
            return Ok(buckets);
        }
        self.mean.read(&self.chunks, piece, &mut buckets.mean)?;
        for (column, values) in [
            (&mut self.min, &mut buckets.min),
            (&mut self.max, &mut buckets.max),
            (&mut self.last, &mut buckets.last),
        ] {
            let numbers = column.read(&self.chunks, piece, &mut self.numbered)?;
            *values = numbers.values(value_type);
        }
        Ok(buckets)
    }
}

impl Chunks<'_> {
    fn open<T: DataType>(&self, place: usize) -> Result<ColumnReaderImpl<T>, ArchiveError> {
        let group = &self.index.groups[self.group];
        let bytes = self.part.chunk(&group.chunks[place])?;
        let pages = Pages::new(bytes, group.rows)
            .map_err(|e| self.bad(place, &format!("cannot be unpacked: {e}")))?;
        let column = schema::schema(self.index.about.tier).column(place);
        Ok(ColumnReaderImpl::new(column, Box::new(pages)))
    }

    fn bad(&self, place: usize, reason: &str) -> ArchiveError {
        let column = schema::schema(self.index.about.tier).column(place);
        let at = self.index.groups[self.group].chunks[place].offset;
        let reason = format!("the column {} {reason}", column.name());
        corrupt(self.part.path(), reason, at)
    }
}

impl<T: DataType> Column<T> {
    fn new(place: usize) -> Self {
        Self {
            place,
            reader: None,
            at: 0,
            there: Vec::new(),
        }
    }

    /// Appends the values of a piece where every row has one.
    fn read(
        &mut self,
        chunks: &Chunks<'_>,
        piece: &Piece,
        out: &mut Vec<T::T>,
    ) -> Result<(), ArchiveError> {
        let before = out.len();
        self.read_some(chunks, piece, out)?;
        if out.len() - before == piece.rows.len() {
            return Ok(());
        }
        Err(chunks.bad(self.place, "has no value where there must be one"))
    }

    /// Appends the values that there are in a piece; `there` tells in which rows.
    fn read_some(
        &mut self,
        chunks: &Chunks<'_>,
        piece: &Piece,
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
        // The decoders index into what they are given and are known to panic where it does not add
        // up. They are left as they are then: an error ends the use of this row group.
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
    fn new(values: usize, exact: usize) -> Self {
        Self {
            values: Column::new(values),
            exact: Column::new(exact),
        }
    }

    fn read<'n>(
        &mut self,
        chunks: &Chunks<'_>,
        piece: &Piece,
        numbered: &'n mut Numbered,
    ) -> Result<Numbers<'n>, ArchiveError> {
        let Numbered {
            doubles,
            ints,
            exact,
        } = numbered;
        doubles.clear();
        self.values.read(chunks, piece, doubles)?;
        if !chunks.index.series[piece.series].exact {
            return Ok(Numbers::Doubles(doubles));
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
        Ok(Numbers::Ints(ints))
    }
}

impl Numbers<'_> {
    /// As values of this type.
    fn values(&self, value_type: ValueType) -> Values {
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
    fn new(place: usize) -> Self {
        Self {
            column: Column::new(place),
            bytes: Vec::new(),
        }
    }

    fn read(&mut self, chunks: &Chunks<'_>, piece: &Piece) -> Result<Vec<Arc<str>>, ArchiveError> {
        self.bytes.clear();
        self.column.read(chunks, piece, &mut self.bytes)?;
        let mut texts: Vec<Arc<str>> = Vec::with_capacity(self.bytes.len());
        for bytes in &self.bytes {
            match texts.last() {
                Some(last) if last.as_bytes() == bytes.data() => texts.push(Arc::clone(last)),
                _ => match bytes.as_utf8() {
                    Ok(text) => texts.push(text.into()),
                    Err(_) => return Err(chunks.bad(self.column.place, "is not UTF-8")),
                },
            }
        }
        Ok(texts)
    }
}

fn quality(name: &[u8]) -> Option<Quality> {
    (0..=u8::MAX)
        .map_while(Quality::from_u8)
        .find(|quality| quality.as_str().as_bytes() == name)
}

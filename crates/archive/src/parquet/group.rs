//! Readers of row groups: piece by piece, and of each only the columns that are needed.

use ::parquet::data_type::{ByteArrayType, DoubleType, FloatType, Int64Type};
use barograph_model::{Buckets, Columns, Quality, ValueType, Values};

use super::column::{
    ColumnCursor, ColumnNumbers, NumberBuffers, NumberColumn, RowGroupChunks, TextColumn,
};
use super::index::{IndexSeries, ParquetIndex};
use super::plan::RowsPiece;
use super::read::ParquetPart;
use super::schema::{raw, tier};
use crate::ArchiveError;

/// A reader of a row group of samples.
pub(crate) struct SampleGroup<'a> {
    chunks: RowGroupChunks<'a>,
    ts: ColumnCursor<Int64Type>,
    value: NumberColumn,
    text: TextColumn,
    bytes: TextColumn,
    floats: TextColumn,
    quality: ColumnCursor<ByteArrayType>,
    error: ColumnCursor<FloatType>,
    number: ColumnCursor<Int64Type>,
}

/// A reader of a row group of buckets.
pub(crate) struct TierGroup<'a> {
    chunks: RowGroupChunks<'a>,
    ts: ColumnCursor<Int64Type>,
    count: ColumnCursor<Int64Type>,
    min: NumberColumn,
    max: NumberColumn,
    sample_mean: ColumnCursor<DoubleType>,
    held_ns: ColumnCursor<Int64Type>,
    time_mean: ColumnCursor<DoubleType>,
    /// Whether the columns `held_ns` and `time_mean` exist.
    has_times: bool,
    last: NumberColumn,
    text: TextColumn,
    numbered: NumberBuffers,
}

impl<'a> SampleGroup<'a> {
    pub(crate) fn new(part: &'a ParquetPart, index: &'a ParquetIndex, group: usize) -> Self {
        Self {
            chunks: RowGroupChunks { part, index, group },
            ts: ColumnCursor::new(raw::TS),
            value: NumberColumn::new(raw::VALUE, raw::EXACT),
            text: TextColumn::new(raw::TEXT),
            bytes: TextColumn::new(raw::BYTES),
            floats: TextColumn::new(raw::FLOATS),
            quality: ColumnCursor::new(raw::QUALITY),
            error: ColumnCursor::new(raw::ERROR),
            number: ColumnCursor::new(raw::NUMBER),
        }
    }

    /// Appends the times of a piece.
    pub(crate) fn times(
        &mut self,
        piece: &RowsPiece,
        out: &mut Vec<i64>,
    ) -> Result<(), ArchiveError> {
        self.ts.read(&self.chunks, piece, out)
    }

    /// Reads the values of a piece of a series of numbers.
    pub(crate) fn numbers<'n>(
        &mut self,
        piece: &RowsPiece,
        numbered: &'n mut NumberBuffers,
    ) -> Result<ColumnNumbers<'n>, ArchiveError> {
        self.value.read(&self.chunks, piece, numbered)
    }

    /// Reads the values of a piece of a series of other values.
    pub(crate) fn long(
        &mut self,
        piece: &RowsPiece,
        value_type: ValueType,
    ) -> Result<Values, ArchiveError> {
        Ok(match value_type {
            ValueType::Bytes => Values::Bytes(self.bytes.read_bytes(&self.chunks, piece)?),
            ValueType::Floats => Values::Floats(self.floats.read_floats(&self.chunks, piece)?),
            ValueType::Json => Values::Json(self.text.read(&self.chunks, piece)?),
            _ => Values::Text(self.text.read(&self.chunks, piece)?),
        })
    }

    /// Reads all columns of a piece of samples.
    pub(crate) fn columns(
        &mut self,
        piece: &RowsPiece,
        numbered: &mut NumberBuffers,
    ) -> Result<Columns, ArchiveError> {
        let series = &self.chunks.index.series[piece.series];
        let rows = piece.rows.len();
        let mut ts = Vec::with_capacity(rows);
        self.times(piece, &mut ts)?;
        let values = match series.descriptor.value_type {
            value_type if value_type.is_number() => {
                self.numbers(piece, numbered)?.values(value_type)
            }
            value_type => self.long(piece, value_type)?,
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

    /// Returns the numbers of samples: computed from the index if none is missing.
    fn sample_numbers(
        &mut self,
        piece: &RowsPiece,
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

    /// Returns the qualities of a piece that may have a last look; an empty vector if it has none.
    pub(crate) fn last_looks(
        &mut self,
        piece: &RowsPiece,
        series: &IndexSeries,
    ) -> Result<Vec<Quality>, ArchiveError> {
        match series.quality {
            Some(quality) if quality != Quality::Ended => Ok(Vec::new()),
            _ => self.qualities(piece, series),
        }
    }

    fn qualities(
        &mut self,
        piece: &RowsPiece,
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
    pub(crate) fn new(part: &'a ParquetPart, index: &'a ParquetIndex, group: usize) -> Self {
        Self {
            chunks: RowGroupChunks { part, index, group },
            ts: ColumnCursor::new(tier::TS),
            count: ColumnCursor::new(tier::COUNT),
            min: NumberColumn::new(tier::MIN, tier::MIN_EXACT),
            max: NumberColumn::new(tier::MAX, tier::MAX_EXACT),
            sample_mean: ColumnCursor::new(tier::SAMPLE_MEAN),
            held_ns: ColumnCursor::new(tier::HELD),
            time_mean: ColumnCursor::new(tier::TIME_MEAN),
            has_times: !part.is_of_samples(),
            last: NumberColumn::new(tier::LAST, tier::LAST_EXACT),
            text: TextColumn::new(tier::LAST_TEXT),
            numbered: NumberBuffers::default(),
        }
    }

    /// Reads a piece of buckets.
    pub(crate) fn buckets(&mut self, piece: &RowsPiece) -> Result<Buckets, ArchiveError> {
        let series = &self.chunks.index.series[piece.series];
        let value_type = series.descriptor.value_type;
        let rows = piece.rows.len();
        let mut buckets = Buckets::new(value_type);
        self.ts.read(&self.chunks, piece, &mut buckets.ts)?;
        let (mut count, mut held_ns) = (Vec::with_capacity(rows), vec![0; rows]);
        self.count.read(&self.chunks, piece, &mut count)?;
        if self.has_times {
            held_ns.clear();
            self.held_ns.read(&self.chunks, piece, &mut held_ns)?;
        }
        let mut rows_of = count.iter().zip(&held_ns);
        if rows_of.any(|(count, held_ns)| *count < 0 || *held_ns < 0 || count | held_ns == 0) {
            return Err(self.chunks.bad(tier::COUNT, "has an empty bucket"));
        }
        buckets.count = count.into_iter().map(|count| count as u64).collect();
        buckets.held_ns = held_ns.into_iter().map(|ns| ns as u64).collect();
        if !self.chunks.index.about.tier.holds(value_type) {
            return Err(self
                .chunks
                .bad(tier::LAST_TEXT, "cannot have values of this type"));
        }
        if value_type == ValueType::Text {
            let last = Values::Text(self.text.read(&self.chunks, piece)?);
            buckets.min = last.clone();
            buckets.max = last.clone();
            buckets.last = last;
            buckets.mean = vec![f64::NAN; rows];
            buckets.sample_mean = vec![f64::NAN; rows];
            return Ok(buckets);
        }
        let sample_mean = &mut buckets.sample_mean;
        self.sample_mean.read(&self.chunks, piece, sample_mean)?;
        if self.has_times {
            let mean = &mut buckets.mean;
            self.time_mean.read(&self.chunks, piece, mean)?;
            let without = sample_mean.iter_mut().zip(&buckets.count);
            let without = without.filter(|(_, count)| **count == 0);
            without.for_each(|(mean, _)| *mean = f64::NAN);
        } else {
            buckets.mean.clone_from(sample_mean);
        }
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

fn quality(name: &[u8]) -> Option<Quality> {
    (0..=u8::MAX)
        .map_while(Quality::from_u8)
        .find(|quality| quality.as_str().as_bytes() == name)
}

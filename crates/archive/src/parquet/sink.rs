//! The sink of a Parquet file that is being written: row groups go out whole, with checksums, and
//! the index before the footer.
//!
//! This module stands alone because both kinds of files are written through it.

use std::path::{Path, PathBuf};

use ::parquet::basic::Type;
use ::parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int64Type,
};
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::RowGroupMetaData;
use ::parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};

use super::index::{ColumnChunk, ParquetIndex, RowGroup};
use super::{FileIdentity, FileSummary, corrupt, schema, seal};
use crate::ArchiveError;
use crate::storage::OutFile;

/// Rows of strings that are expanded from runs at a time.
const RUN_ROWS: usize = 8 << 10;

/// The writer of one Parquet file.
pub(super) struct FileSink {
    path: PathBuf,
    out: Box<dyn OutFile>,
    /// Writes to memory, which holds at most one row group.
    writer: SerializedFileWriter<Vec<u8>>,
    written: u64,
    crc: crc32fast::Hasher,
    pub index: ParquetIndex,
}

/// The values of one column of a row group.
pub(super) enum ColumnValues<'a> {
    Int(&'a [i64]),
    /// The values that exist, and for each row 1 if it has one, else 0.
    Ints(&'a [i64], &'a [i16]),
    Floats(&'a [f64], &'a [i16]),
    Float32(&'a [f32]),
    /// Texts, each with the number of rows that have it.
    Runs(Box<dyn Iterator<Item = (usize, ByteArray)> + 'a>),
    Texts(&'a [ByteArray], &'a [i16]),
    Bools(&'a [bool], &'a [i16]),
    /// Numbers, each with the number of rows that have it.
    IntRuns(Box<dyn Iterator<Item = (usize, i64)> + 'a>),
}

impl FileSink {
    pub(super) fn create(
        path: &Path,
        out: Box<dyn OutFile>,
        about: FileIdentity,
        version: u32,
    ) -> Result<Self, ArchiveError> {
        let properties = schema::properties(&about, version);
        let root = schema::root(about.tier, version);
        let writer = SerializedFileWriter::new(Vec::new(), root, properties)
            .map_err(|e| encoding_error(path, &e))?;
        Ok(Self {
            path: path.to_owned(),
            out,
            writer,
            written: 0,
            crc: crc32fast::Hasher::new(),
            index: ParquetIndex::new(about, version),
        })
    }

    /// Writes a row group; the columns are in the order of the schema.
    pub(super) fn group(
        &mut self,
        rows: usize,
        columns: Vec<ColumnValues<'_>>,
    ) -> Result<(), ArchiveError> {
        let group = encode(&mut self.writer, columns);
        group.map_err(|e| encoding_error(&self.path, &e))?;
        let newest = self.writer.flushed_row_groups().last();
        let meta = newest.expect("it was closed just now").clone();
        let chunks = self.chunks(&meta)?;
        self.index.groups.push(RowGroup {
            rows: rows as u32,
            chunks,
        });
        self.drain()
    }

    /// Returns the offsets and checksums of the column chunks, which are still in memory.
    fn chunks(&self, meta: &RowGroupMetaData) -> Result<Vec<ColumnChunk>, ArchiveError> {
        let memory = self.writer.inner();
        let chunk = |(offset, length): (u64, u64)| {
            let from = usize::try_from(offset.checked_sub(self.written)?).ok()?;
            let bytes = memory.get(from..from.checked_add(usize::try_from(length).ok()?)?)?;
            Some(ColumnChunk {
                offset,
                length: u32::try_from(length).ok()?,
                crc32: crc32fast::hash(bytes),
            })
        };
        let chunks = meta.columns().iter().map(|c| chunk(c.byte_range()));
        let chunks: Option<Vec<_>> = chunks.collect();
        chunks.ok_or_else(|| {
            corrupt(
                &self.path,
                "a column chunk is not where it is",
                self.written,
            )
        })
    }

    /// Writes the bytes in memory to the file.
    fn drain(&mut self) -> Result<(), ArchiveError> {
        let memory = self.writer.inner_mut();
        self.crc.update(memory);
        self.written += memory.len() as u64;
        let result = self.out.write_all(memory);
        memory.clear();
        result.map_err(ArchiveError::io("write", &self.path))
    }

    /// Ends the file and syncs it.
    pub(super) fn finish(mut self) -> Result<FileSummary, ArchiveError> {
        let span = self.index.span();
        let rows = self.index.rows();
        let tail = self.index.encode(&self.path)?;
        let ended = self.writer.write_all(&tail).map_err(ParquetError::from);
        let ended = ended.and_then(|()| self.writer.finish());
        ended.map_err(|e| encoding_error(&self.path, &e))?;
        if !seal::seal(self.writer.inner_mut()) {
            let reason = "its footer has no place for its checksum";
            return Err(corrupt(&self.path, reason, self.written));
        }
        self.drain()?;
        self.out
            .sync()
            .map_err(ArchiveError::io("sync", &self.path))?;
        Ok(FileSummary {
            rows,
            bytes: self.written,
            span,
            crc32: self.crc.finalize(),
        })
    }
}

fn encode(
    writer: &mut SerializedFileWriter<Vec<u8>>,
    columns: Vec<ColumnValues<'_>>,
) -> Result<(), ParquetError> {
    let mut group = writer.next_row_group()?;
    for column in columns {
        write_column(&mut group, column)?;
    }
    group.close()?;
    Ok(writer.flush()?)
}

fn write_column(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    column: ColumnValues<'_>,
) -> Result<(), ParquetError> {
    match column {
        ColumnValues::Int(v) => batch::<Int64Type>(group, v, None),
        ColumnValues::Ints(v, there) => batch::<Int64Type>(group, v, Some(there)),
        ColumnValues::Floats(v, there) => batch::<DoubleType>(group, v, Some(there)),
        ColumnValues::Float32(v) => batch::<FloatType>(group, v, None),
        ColumnValues::Texts(v, there) => batch::<ByteArrayType>(group, v, Some(there)),
        ColumnValues::Bools(v, there) => batch::<BoolType>(group, v, Some(there)),
        ColumnValues::Runs(runs) => expand::<ByteArrayType>(group, runs),
        ColumnValues::IntRuns(runs) => expand::<Int64Type>(group, runs),
    }
}

fn batch<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    values: &[T::T],
    there: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let mut column = group.next_column()?.ok_or_else(too_many::<T>)?;
    column.typed::<T>().write_batch(values, there, None)?;
    column.close()
}

fn expand<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    runs: impl Iterator<Item = (usize, T::T)>,
) -> Result<(), ParquetError> {
    let mut column = group.next_column()?.ok_or_else(too_many::<T>)?;
    let mut rows = Vec::with_capacity(RUN_ROWS);
    for (mut left, value) in runs {
        while left > 0 {
            let now = left.min(RUN_ROWS - rows.len());
            rows.resize(rows.len() + now, value.clone());
            left -= now;
            if rows.len() == RUN_ROWS {
                column.typed::<T>().write_batch(&rows, None, None)?;
                rows.clear();
            }
        }
    }
    column.typed::<T>().write_batch(&rows, None, None)?;
    column.close()
}

fn too_many<T: DataType>() -> ParquetError {
    let physical: Type = T::get_physical_type();
    ParquetError::General(format!("there is no column for this {physical}"))
}

/// Converts an error of the encoder, which writes to memory and so fails only if it is used
/// wrongly.
fn encoding_error(path: &Path, error: &ParquetError) -> ArchiveError {
    ArchiveError::io("encode", path)(std::io::Error::other(error.to_string()))
}

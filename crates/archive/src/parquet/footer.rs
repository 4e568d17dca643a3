//! A check of Parquet's own footer: whether other programs find in it what the index and the pages
//! contain.
//!
//! This module stands alone because our own reader does not use the footer. Its checksum
//! ([`seal`]), which files of older versions lack, is checked, and every field that another reader
//! relies on is compared with what is known from elsewhere.

use std::panic::catch_unwind;

use ::parquet::basic::{ColumnOrder, Compression};
use ::parquet::data_type::ByteArray;
use ::parquet::file::metadata::{
    ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData,
};
use barograph_model::Span;

use super::index::{ColumnChunk, ParquetIndex};
use super::page::{ChunkPages, PagesSummary};
use super::read::ParquetPart;
use super::rows::SeriesWords;
use super::{NOWHEN, corrupt, schema, seal};
use crate::ArchiveError;

/// The bounds of a row group, by which other readers skip it.
pub(super) struct GroupBounds {
    pub ts: Span,
    pub names: [String; 2],
    pub labels: [String; 2],
}

impl GroupBounds {
    /// Adds rows of one series, whose name and labels are the first of these words.
    pub(super) fn widen(bounds: &mut Option<Self>, times: &[i64], words: &SeriesWords) {
        let (name, labels) = (text(&words[0]), text(&words[1]));
        let bounds = bounds.get_or_insert_with(|| Self {
            ts: NOWHEN,
            names: [name.clone(), name.clone()],
            labels: [labels.clone(), labels.clone()],
        });
        for ts in times {
            bounds.ts.from = bounds.ts.from.min(*ts);
            bounds.ts.to = bounds.ts.to.max(*ts);
        }
        for (seen, new) in [(&mut bounds.names, name), (&mut bounds.labels, labels)] {
            if new < seen[0] {
                seen[0] = new;
            } else if new > seen[1] {
                seen[1] = new;
            }
        }
    }
}

fn text(word: &ByteArray) -> String {
    String::from_utf8_lossy(word.data()).into_owned()
}

/// Compares the footer with the index, with the pages of the file, and with the bounds of each row
/// group.
pub(super) fn check(
    part: &ParquetPart,
    index: &ParquetIndex,
    version: u32,
    bounds: &[GroupBounds],
) -> Result<(), ArchiveError> {
    let (at, bytes) = part.footer()?;
    let bad = |reason: String| corrupt(part.path(), format!("its footer {reason}"), at);
    let sealed = seal::is_whole(&bytes);
    if sealed == Some(false) {
        return Err(bad("is not what its checksum says".into()));
    }
    let decoded = catch_unwind(|| ParquetMetaDataReader::decode_metadata(&bytes));
    let meta = match decoded {
        Ok(Ok(meta)) => meta,
        Ok(Err(error)) => return Err(bad(format!("cannot be read: {error}"))),
        Err(_) => return Err(bad("cannot be read".into())),
    };
    check_file(&meta, index, version, sealed.is_some()).map_err(|what| bad(what.into()))?;
    for (at, group) in meta.row_groups().iter().enumerate() {
        let known = &index.groups[at];
        let rows = i64::from(known.rows);
        let mut plain_bytes = 0;
        for (place, chunk) in known.chunks.iter().enumerate() {
            let written = ChunkPages::new(part.chunk(chunk)?, known.rows)
                .map_err(|error| bad(error.to_string()))?
                .written()
                .map_err(|error| bad(error.to_string()))?;
            plain_bytes += written.plain_bytes;
            let column = group.column(place);
            let name = column.column_descr().name().to_owned();
            let wrong = |what| bad(format!("has a wrong {what} of the column {name}"));
            check_chunk(column, chunk, rows, &written).map_err(wrong)?;
            let bounds = &bounds[at];
            let found = match column.column_descr().name() {
                "ts" => check_times(column, bounds.ts),
                "name" => check_texts(column, &bounds.names),
                "labels" => check_texts(column, &bounds.labels),
                _ if column.statistics().is_some() => Err("statistic"),
                _ => Ok(()),
            };
            found.map_err(wrong)?;
        }
        check_group(group, at, rows, plain_bytes).map_err(|what| bad(what.into()))?;
    }
    Ok(())
}

/// Checks the fields of the file as a whole.
fn check_file(
    meta: &ParquetMetaData,
    index: &ParquetIndex,
    version: u32,
    is_sealed: bool,
) -> Result<(), &'static str> {
    let file = meta.file_metadata();
    let columns = schema::columns(index.about.tier, version);
    let ours = schema::schema_of(index.about.tier, version);
    let theirs = file.schema_descr();
    if theirs.num_columns() != columns
        || theirs.columns() != &ours.columns()[..columns]
        || theirs.root_schema().get_fields() != &ours.root_schema().get_fields()[..columns]
    {
        return Err("has other columns than such files have");
    }
    if u64::try_from(file.num_rows()) != Ok(index.rows()) {
        return Err("has another number of rows than the index");
    }
    if meta.num_row_groups() != index.groups.len() {
        return Err("has another number of row groups than the index");
    }
    if !matches!(file.version(), 1 | 2) {
        return Err("is of no version of Parquet");
    }
    let is_ours = |by: &str| by.starts_with("barograph ");
    if !file.created_by().is_some_and(is_ours) {
        return Err("says that another program made the file");
    }
    let known = schema::key_values(&index.about, version);
    let theirs = file.key_value_metadata();
    let theirs = theirs.map(Vec::as_slice).unwrap_or_default();
    // If the name of the seal's key is damaged, there is one key too many.
    let count = known.len() + usize::from(is_sealed);
    if theirs.len() != count || !known.iter().all(|pair| theirs.contains(pair)) {
        return Err("has other keys than such files have");
    }
    let orders = file.column_orders().map(Vec::as_slice).unwrap_or_default();
    let is_known = |order: &ColumnOrder| !matches!(order, ColumnOrder::UNKNOWN);
    if orders.len() != columns || !orders.iter().all(is_known) {
        return Err("has other orders than such files have");
    }
    Ok(())
}

fn check_group(
    group: &RowGroupMetaData,
    at: usize,
    rows: i64,
    plain_bytes: i64,
) -> Result<(), &'static str> {
    if group.num_rows() != rows {
        return Err("has another number of rows of a row group than the index");
    }
    if group.total_byte_size() != plain_bytes || group.sorting_columns().is_some() {
        return Err("has another size of a row group than its columns");
    }
    let first = group.column(0).byte_range().0;
    let offset = group.file_offset();
    if offset.is_some_and(|offset| u64::try_from(offset) != Ok(first)) {
        return Err("has another place of a row group than its columns");
    }
    let ordinal = group.ordinal();
    if ordinal.is_some_and(|ordinal| usize::try_from(ordinal) != Ok(at)) {
        return Err("has its row groups in another order than the index");
    }
    Ok(())
}

/// Checks the fields of a column chunk; the error is the wrong field.
fn check_chunk(
    column: &ColumnChunkMetaData,
    chunk: &ColumnChunk,
    rows: i64,
    written: &PagesSummary,
) -> Result<(), &'static str> {
    // Here the crate that decodes the footer accepts only sizes and offsets that are not negative.
    if column.compressed_size() < 0
        || column.data_page_offset() < 0
        || column.dictionary_page_offset().is_some_and(|at| at < 0)
        || column.byte_range() != (chunk.offset, u64::from(chunk.length))
    {
        return Err("place");
    }
    let data_at = chunk.offset + written.dictionary_bytes;
    let dictionary_at = (written.dictionary_bytes > 0).then_some(chunk.offset);
    if u64::try_from(column.data_page_offset()) != Ok(data_at)
        || column
            .dictionary_page_offset()
            .and_then(|at| u64::try_from(at).ok())
            != dictionary_at
    {
        return Err("place of its pages");
    }
    if column.uncompressed_size() != written.plain_bytes {
        return Err("size");
    }
    if column.num_values() != rows {
        return Err("number of values");
    }
    if !matches!(column.compression(), Compression::ZSTD(_)) {
        return Err("compression");
    }
    let said: Vec<_> = column.encodings().collect();
    if !written.encodings.iter().all(|used| said.contains(used)) {
        return Err("encoding");
    }
    let elsewhere = column.file_path().is_some()
        || column.index_page_offset().is_some()
        || column.bloom_filter_offset().is_some()
        || column.bloom_filter_length().is_some()
        || column.column_index_range().is_some()
        || column.offset_index_range().is_some();
    if elsewhere {
        Err("part elsewhere")
    } else {
        Ok(())
    }
}

fn check_times(column: &ColumnChunkMetaData, bounds: Span) -> Result<(), &'static str> {
    let said = column
        .statistics()
        .map(|of| (of.min_bytes_opt(), of.max_bytes_opt()));
    let (from, to) = (bounds.from.to_le_bytes(), bounds.to.to_le_bytes());
    match said {
        Some((Some(min), Some(max))) if min == from && max == to => no_nulls(column),
        _ => Err("statistic"),
    }
}

/// Length of a text in bytes up to which it is never cut in statistics; longer texts may be, and
/// are then only bounds.
const WHOLE_TEXT_BYTES_MAX: usize = 64;

fn check_texts(column: &ColumnChunkMetaData, bounds: &[String; 2]) -> Result<(), &'static str> {
    let said = column
        .statistics()
        .map(|of| (of.min_bytes_opt(), of.max_bytes_opt()));
    match said {
        Some((Some(min), Some(max)))
            if min <= bounds[0].as_bytes()
                && max >= bounds[1].as_bytes()
                && is_whole(min, &bounds[0])
                && is_whole(max, &bounds[1])
                && std::str::from_utf8(min).is_ok() =>
        {
            no_nulls(column)
        }
        _ => Err("statistic"),
    }
}

/// Whether a text that is short enough not to be cut is stored whole.
fn is_whole(said: &[u8], text: &str) -> bool {
    text.len() > WHOLE_TEXT_BYTES_MAX || said == text.as_bytes()
}

fn no_nulls(column: &ColumnChunkMetaData) -> Result<(), &'static str> {
    let nulls = column.statistics().and_then(|of| of.null_count_opt());
    if nulls.is_none_or(|nulls| nulls == 0) {
        Ok(())
    } else {
        Err("statistic")
    }
}

//! The columns of file events, which are read from the records that their samples hold.
//!
//! This module stands alone because nothing here is read back: the records are in the file as well,
//! and these columns are for other programs.

use std::ops::Range;

use ::parquet::data_type::ByteArray;
use barograph_model::{Columns, Descriptor, Values};

use super::sink::ColumnValues;

/// A file event as its record has it.
#[derive(Clone, Copy, Debug)]
pub struct EventFields<'a> {
    /// Word for the kind.
    pub kind: &'static str,
    /// Path at the time of the event.
    pub path: &'a [u8],
    /// Path before a rename; empty for other kinds.
    pub old_path: &'a [u8],
    /// Size of the file after the event, in bytes.
    pub size: Option<u64>,
    /// User that caused the event.
    pub uid: Option<u32>,
    /// Group of that user.
    pub gid: Option<u32>,
    /// Job that caused the event; empty if it is unknown.
    pub job: &'a str,
    /// Whether it happened to a directory.
    pub is_directory: bool,
    /// Whether the path has its beginning.
    pub is_complete: bool,
    /// Number of the event in its source.
    pub index: u64,
}

/// A reader of the records of file events, of which the archive knows nothing.
pub trait EventReader: Send + Sync + std::fmt::Debug {
    /// Name of the streams whose values are records.
    fn stream(&self) -> &'static str;

    /// Name of their label with the source.
    fn source_label(&self) -> &'static str;

    /// Reads a record; `None` if the bytes are none.
    fn read<'a>(&self, record: &'a [u8]) -> Option<EventFields<'a>>;
}

/// A column that has no value in most rows.
#[derive(Default)]
struct Sparse<T> {
    values: Vec<T>,
    /// For each row 1 if it has a value, else 0.
    there: Vec<i16>,
}

impl<T> Sparse<T> {
    fn push(&mut self, value: Option<T>) {
        self.there.push(value.is_some().into());
        self.values.extend(value);
    }

    fn clear(&mut self) {
        self.values.clear();
        self.there.clear();
    }
}

/// The columns of events that wait for their row group.
#[derive(Default)]
pub(super) struct EventRows {
    kind: Sparse<ByteArray>,
    path: Sparse<ByteArray>,
    old_path: Sparse<ByteArray>,
    size: Sparse<i64>,
    uid: Sparse<i64>,
    gid: Sparse<i64>,
    job: Sparse<ByteArray>,
    directory: Sparse<bool>,
    complete: Sparse<bool>,
    idx: Sparse<i64>,
    source: Sparse<ByteArray>,
    path_bytes: Sparse<ByteArray>,
    old_path_bytes: Sparse<ByteArray>,
    /// Bytes of paths.
    pub bytes: usize,
}

impl EventRows {
    /// Appends some rows of a series, which have values if it is one of events.
    pub(super) fn extend(
        &mut self,
        reader: &dyn EventReader,
        descriptor: &Descriptor,
        columns: &Columns,
        range: Range<usize>,
    ) {
        let records = match &columns.values {
            Values::Bytes(records) if descriptor.name.as_str() == reader.stream() => records,
            _ => return range.for_each(|_| self.push(None, None)),
        };
        let source = descriptor.labels.get(reader.source_label());
        let source = source.map(|source| ByteArray::from(source.as_bytes().to_vec()));
        for record in &records[range] {
            let fields = reader.read(record);
            let source = source.clone().filter(|_| fields.is_some());
            self.push(fields, source);
        }
    }

    fn push(&mut self, fields: Option<EventFields<'_>>, source: Option<ByteArray>) {
        let bytes = |bytes: &[u8]| ByteArray::from(bytes.to_vec());
        let some = |text: &[u8]| (!text.is_empty()).then(|| bytes(text));
        let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let [path, old_path] = match &fields {
            Some(fields) => [fields.path, fields.old_path],
            None => [&[][..]; 2],
        };
        self.bytes += path.len() + old_path.len();
        self.kind
            .push(fields.map(|fields| bytes(fields.kind.as_bytes())));
        for (path, text, raw) in [
            (path, &mut self.path, &mut self.path_bytes),
            (old_path, &mut self.old_path, &mut self.old_path_bytes),
        ] {
            let replaced = String::from_utf8_lossy(path);
            // The bytes are there where the text does not have them.
            let is_exact = replaced.as_bytes() == path;
            text.push(some(replaced.as_bytes()));
            raw.push(some(path).filter(|_| !is_exact));
        }
        self.size
            .push(fields.and_then(|fields| fields.size).map(whole));
        self.uid
            .push(fields.and_then(|fields| fields.uid).map(i64::from));
        self.gid
            .push(fields.and_then(|fields| fields.gid).map(i64::from));
        self.job
            .push(fields.and_then(|fields| some(fields.job.as_bytes())));
        self.directory
            .push(fields.map(|fields| fields.is_directory));
        self.complete.push(fields.map(|fields| fields.is_complete));
        self.idx.push(fields.map(|fields| whole(fields.index)));
        self.source.push(source);
    }

    /// The columns, in the order of the schema.
    pub(super) fn columns(&self) -> [ColumnValues<'_>; 13] {
        [
            texts(&self.kind),
            texts(&self.path),
            texts(&self.old_path),
            ints(&self.size),
            ints(&self.uid),
            ints(&self.gid),
            texts(&self.job),
            ColumnValues::Bools(&self.directory.values, &self.directory.there),
            ColumnValues::Bools(&self.complete.values, &self.complete.there),
            ints(&self.idx),
            texts(&self.source),
            texts(&self.path_bytes),
            texts(&self.old_path_bytes),
        ]
    }

    pub(super) fn clear(&mut self) {
        for column in [
            &mut self.kind,
            &mut self.path,
            &mut self.old_path,
            &mut self.job,
            &mut self.source,
            &mut self.path_bytes,
            &mut self.old_path_bytes,
        ] {
            column.clear();
        }
        for column in [&mut self.size, &mut self.uid, &mut self.gid, &mut self.idx] {
            column.clear();
        }
        self.directory.clear();
        self.complete.clear();
        self.bytes = 0;
    }
}

fn texts(column: &Sparse<ByteArray>) -> ColumnValues<'_> {
    ColumnValues::Texts(&column.values, &column.there)
}

fn ints(column: &Sparse<i64>) -> ColumnValues<'_> {
    ColumnValues::Ints(&column.values, &column.there)
}

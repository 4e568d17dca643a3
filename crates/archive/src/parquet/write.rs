//! The writer of raw files.

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use ::parquet::data_type::ByteArray;
use barograph_model::{Columns, Descriptor, Quality, SeriesId, Span, Values};

use super::event_rows::{EventReader, EventRows};
use super::index::LifeRows;
use super::rows::{NumberColumn, RowsRun, SeriesWords, TextColumn, ValueColumn, is_in, word_runs};
use super::series_writer::{PendingRows, SeriesWriter};
use super::sink::{ColumnValues, FileSink};
use super::{FORMAT, FORMAT_PLAIN, FileIdentity, FileSummary, corrupt, widen};
use crate::ArchiveError;
use crate::storage::OutFile;

/// A writer of samples: series by series in the order of name and labels, lives in order, numbers
/// in order.
pub struct RawWriter {
    writer: SeriesWriter<SampleRows>,
    /// Time of the last row.
    newest: i64,
    /// The reader of events, if the file has columns for them.
    events: Option<Arc<dyn EventReader>>,
}

/// Samples that wait for their row group.
#[derive(Default)]
struct SampleRows {
    ts: Vec<i64>,
    value: NumberColumn,
    text: TextColumn,
    bytes: TextColumn,
    floats: TextColumn,
    quality: Vec<Quality>,
    error: Vec<f32>,
    number: Vec<i64>,
    runs: Vec<RowsRun>,
    events: Option<EventRows>,
}

impl RawWriter {
    /// Creates a file that is written to `out`; `path` is for messages.
    pub fn create(
        out: Box<dyn OutFile>,
        path: &Path,
        about: FileIdentity,
    ) -> Result<Self, ArchiveError> {
        Self::with_events(out, path, about, None)
    }

    /// Like [`RawWriter::create`]; with a reader of events, the file has columns for them.
    pub fn with_events(
        out: Box<dyn OutFile>,
        path: &Path,
        about: FileIdentity,
        events: Option<Arc<dyn EventReader>>,
    ) -> Result<Self, ArchiveError> {
        let rows = SampleRows {
            events: events.is_some().then(EventRows::default),
            ..SampleRows::default()
        };
        let version = match &events {
            Some(_) => FORMAT,
            None => FORMAT_PLAIN,
        };
        Ok(Self {
            writer: SeriesWriter::create(out, path, about, (rows, version))?,
            newest: i64::MIN,
            events,
        })
    }

    /// Appends samples of one life of one series; they may come in several pieces.
    pub fn write(
        &mut self,
        id: SeriesId,
        descriptor: &Arc<Descriptor>,
        life: i64,
        columns: &Columns,
    ) -> Result<(), ArchiveError> {
        if columns.values.value_type() != descriptor.value_type || !is_even(columns) {
            let reason = format!("{descriptor} is handed columns that are not its own");
            return Err(corrupt(&self.writer.path, reason, 0));
        }
        if columns.is_empty() {
            return Ok(());
        }
        self.note(id, descriptor, life, columns)?;
        let reader = self.events.clone();
        let extend = |rows: &mut SampleRows, words: &SeriesWords, range: Range<usize>| {
            if let (Some(events), Some(reader)) = (&mut rows.events, &reader) {
                events.extend(&**reader, descriptor, columns, range.clone());
            }
            rows.extend(words, life, columns, range)
        };
        let bytes_of = |row| columns.values.bytes(row);
        self.writer
            .write(descriptor, columns.len(), bytes_of, extend)
    }

    /// Updates the index, and refuses samples that are out of order.
    fn note(
        &mut self,
        id: SeriesId,
        descriptor: &Arc<Descriptor>,
        life: i64,
        columns: &Columns,
    ) -> Result<(), ArchiveError> {
        let series = self.writer.series(id, descriptor)?;
        let quality = columns.quality[0];
        if series.rows == 0 {
            series.quality = Some(quality);
        }
        if series
            .quality
            .is_some_and(|q| columns.quality.iter().any(|other| *other != q))
        {
            series.quality = None;
        }
        series.errors |= columns.error.iter().any(|error| error.to_bits() != 0);
        let before = series.rows > 0 && columns.ts[0] < self.newest;
        series.backwards |= before || columns.ts.windows(2).any(|w| w[1] < w[0]);
        self.newest = columns.ts[columns.len() - 1];
        series.rows += columns.len() as u64;
        let bytes = (0..columns.len()).map(|row| columns.values.bytes(row) as u64);
        series.bytes += bytes.sum::<u64>();
        let bounds = columns.ts.iter().min().zip(columns.ts.iter().max());
        let (from, to) = bounds.expect("there are samples");
        series.span = widen(
            series.span,
            Span {
                from: *from,
                to: *to,
            },
        );
        if note_life(&mut series.lives, life, &columns.numbers) {
            return Ok(());
        }
        let reason = format!("samples of {descriptor} are handed out of order");
        Err(corrupt(&self.writer.path, reason, 0))
    }

    /// Writes the last row group, the index and the footer, and syncs the file.
    pub fn finish(self) -> Result<FileSummary, ArchiveError> {
        self.writer.finish()
    }
}

impl PendingRows for SampleRows {
    fn count(&self) -> usize {
        self.ts.len()
    }

    fn text_bytes(&self) -> usize {
        let of_events = self.events.as_ref().map_or(0, |events| events.bytes);
        self.text.bytes + self.bytes.bytes + self.floats.bytes + of_events
    }

    fn write(&self, sink: &mut FileSink) -> Result<(), ArchiveError> {
        let count = self.count();
        let columns = [
            ValueColumn::Number,
            ValueColumn::Text,
            ValueColumn::Bytes,
            ValueColumn::Floats,
        ];
        let [numbers, texts, bytes, floats] = columns.map(|column| is_in(&self.runs, column));
        let (exact, rounded) = self.value.exact_column(count);
        let quality = self.quality.chunk_by(|a, b| a == b);
        let quality = quality.map(|run| (run.len(), ByteArray::from(run[0].as_str())));
        let lives = self.runs.iter().map(|run| (run.rows, run.life));
        let mut columns = vec![
            ColumnValues::Int(&self.ts),
            ColumnValues::Runs(Box::new(word_runs(&self.runs, 0))),
            ColumnValues::Runs(Box::new(word_runs(&self.runs, 1))),
            ColumnValues::Floats(&self.value.values, &numbers),
            ColumnValues::Ints(&exact, &rounded),
            ColumnValues::Texts(&self.text.values, &texts),
            ColumnValues::Runs(Box::new(word_runs(&self.runs, 2))),
            ColumnValues::Runs(Box::new(quality)),
            ColumnValues::Float32(&self.error),
            ColumnValues::IntRuns(Box::new(lives)),
            ColumnValues::Int(&self.number),
            ColumnValues::Texts(&self.bytes.values, &bytes),
            ColumnValues::Texts(&self.floats.values, &floats),
        ];
        if let Some(events) = &self.events {
            columns.extend(events.columns());
        }
        sink.group(count, columns)
    }

    fn clear(&mut self) {
        self.ts.clear();
        self.value.clear();
        self.text.clear();
        self.bytes.clear();
        self.floats.clear();
        self.quality.clear();
        self.error.clear();
        self.number.clear();
        self.runs.clear();
        if let Some(events) = &mut self.events {
            events.clear();
        }
    }
}

impl SampleRows {
    /// Appends some rows; returns whether doubles hold their values exactly.
    fn extend(
        &mut self,
        words: &SeriesWords,
        life: i64,
        columns: &Columns,
        range: Range<usize>,
    ) -> bool {
        let row = self.ts.len();
        self.ts.extend_from_slice(&columns.ts[range.clone()]);
        self.quality
            .extend_from_slice(&columns.quality[range.clone()]);
        self.error.extend_from_slice(&columns.error[range.clone()]);
        let numbers = columns.numbers[range.clone()].iter();
        self.number.extend(numbers.map(|number| *number as i64));
        self.runs.push(RowsRun {
            words: Arc::clone(words),
            column: ValueColumn::of(columns.values.value_type()),
            life,
            rows: range.len(),
        });
        match &columns.values {
            Values::Text(texts) | Values::Json(texts) => {
                self.text.extend_texts(&texts[range.clone()]);
            }
            Values::Bytes(v) => {
                let v = v[range.clone()].iter();
                self.bytes.extend(v.map(|v| Cow::Borrowed(&**v)));
            }
            Values::Floats(v) => {
                let v = v[range.clone()].iter();
                let bytes = |v: &Arc<[f64]>| v.iter().flat_map(|v| v.to_le_bytes()).collect();
                self.floats.extend(v.map(|v| Cow::Owned(bytes(v))));
            }
            Values::Int(_) | Values::Float(_) | Values::Bool(_) => {}
        }
        self.value.extend(row, &columns.values, range)
    }
}

/// Adds the numbers of samples to the lives; returns whether they follow the earlier ones.
fn note_life(lives: &mut Vec<LifeRows>, life: i64, numbers: &[u64]) -> bool {
    let (first, last) = (numbers[0], numbers[numbers.len() - 1]);
    let rows = numbers.len() as u64;
    let follows = match lives.last_mut() {
        Some(newest) if newest.life == life => {
            let follows = first > newest.last;
            newest.rows += rows;
            newest.last = last;
            follows
        }
        newest => {
            let follows = newest.is_none_or(|newest| newest.life < life);
            lives.push(LifeRows {
                life,
                rows,
                first,
                last,
            });
            follows
        }
    };
    follows && numbers.windows(2).all(|w| w[0] < w[1])
}

fn is_even(columns: &Columns) -> bool {
    let rows = columns.ts.len();
    let lengths = [
        columns.numbers.len(),
        columns.values.len(),
        columns.quality.len(),
        columns.error.len(),
    ];
    lengths.iter().all(|length| *length == rows)
}

//! The writer of raw files.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::parquet::data_type::ByteArray;
use barograph_model::{Columns, Descriptor, Quality, SeriesId, Span, Values};

use super::index::{IndexSeries, Life};
use super::rows::{NumberColumn, Run, TextColumn, numbers_and_texts, word_runs, words};
use super::sink::{Column, FileSink};
use super::{About, GROUP_ROWS_MAX, GROUP_TEXT_BYTES_MAX, Summary, corrupt, widen};
use crate::ArchiveError;
use crate::storage::OutFile;

/// Rows that are taken at a time: between two looks at how many bytes wait.
const STEP_ROWS: usize = 8 << 10;

/// Writes samples: series by series in the order of name and labels, lives in order, numbers in order.
pub struct RawWriter {
    path: PathBuf,
    sink: FileSink,
    rows: Rows,
    written: u64,
    words: Option<Arc<[ByteArray; 3]>>,
    /// Time of the last row.
    newest: i64,
}

/// What waits for its row group.
#[derive(Default)]
struct Rows {
    ts: Vec<i64>,
    value: NumberColumn,
    text: TextColumn,
    quality: Vec<Quality>,
    error: Vec<f32>,
    number: Vec<i64>,
    runs: Vec<Run>,
}

impl RawWriter {
    /// A file that is written to `out`; `path` is for messages.
    pub fn create(out: Box<dyn OutFile>, path: &Path, about: About) -> Result<Self, ArchiveError> {
        Ok(Self {
            path: path.to_owned(),
            sink: FileSink::create(path, out, about)?,
            rows: Rows::default(),
            written: 0,
            words: None,
            newest: i64::MIN,
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
            return Err(corrupt(&self.path, reason, 0));
        }
        if columns.is_empty() {
            return Ok(());
        }
        self.note(id, descriptor, life, columns)?;
        let mut from = 0;
        while from < columns.len() {
            let room = GROUP_ROWS_MAX - self.rows.ts.len();
            let to = columns.len().min(from + room.min(STEP_ROWS));
            let words = self.words.get_or_insert_with(|| words(descriptor));
            if !self.rows.extend(words, life, columns, from..to) {
                let series = self.sink.index.series.last_mut();
                series.expect("it was noted").exact = true;
            }
            self.written += (to - from) as u64;
            from = to;
            let full = self.rows.ts.len() == GROUP_ROWS_MAX;
            if full || self.rows.text.bytes >= GROUP_TEXT_BYTES_MAX {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Keeps the index, and refuses what is out of order.
    fn note(
        &mut self,
        id: SeriesId,
        descriptor: &Arc<Descriptor>,
        life: i64,
        columns: &Columns,
    ) -> Result<(), ArchiveError> {
        let all = &mut self.sink.index.series;
        if all.last().is_none_or(|series| series.id != id) {
            all.push(IndexSeries::new(id, descriptor, self.written));
            self.words = None;
        }
        let series = all.last_mut().expect("it was pushed just now");
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
        Err(corrupt(&self.path, reason, 0))
    }

    /// Writes the last row group, the index and the footer, and syncs the file.
    pub fn finish(mut self) -> Result<Summary, ArchiveError> {
        self.flush()?;
        self.sink.finish()
    }

    fn flush(&mut self) -> Result<(), ArchiveError> {
        let rows = &mut self.rows;
        let count = rows.ts.len();
        if count == 0 {
            return Ok(());
        }
        let (numbers, texts) = numbers_and_texts(&rows.runs);
        let (exact, rounded) = rows.value.exact_column(count);
        let quality = rows.quality.chunk_by(|a, b| a == b);
        let quality = quality.map(|run| (run.len(), ByteArray::from(run[0].as_str())));
        let lives = rows.runs.iter().map(|run| (run.rows, run.life));
        let columns = vec![
            Column::Int(&rows.ts),
            Column::Runs(Box::new(word_runs(&rows.runs, 0))),
            Column::Runs(Box::new(word_runs(&rows.runs, 1))),
            Column::Floats(&rows.value.values, &numbers),
            Column::Ints(&exact, &rounded),
            Column::Texts(&rows.text.values, &texts),
            Column::Runs(Box::new(word_runs(&rows.runs, 2))),
            Column::Runs(Box::new(quality)),
            Column::Float32(&rows.error),
            Column::IntRuns(Box::new(lives)),
            Column::Int(&rows.number),
        ];
        self.sink.group(count, columns)?;
        self.rows.clear();
        Ok(())
    }
}

impl Rows {
    /// Appends some rows; whether doubles hold their values.
    fn extend(
        &mut self,
        words: &Arc<[ByteArray; 3]>,
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
        self.runs.push(Run {
            words: Arc::clone(words),
            text: matches!(columns.values, Values::Text(_)),
            life,
            rows: range.len(),
        });
        if let Values::Text(texts) = &columns.values {
            self.text.extend(&texts[range.clone()]);
        }
        self.value.extend(row, &columns.values, range)
    }

    fn clear(&mut self) {
        self.ts.clear();
        self.value.clear();
        self.text.clear();
        self.quality.clear();
        self.error.clear();
        self.number.clear();
        self.runs.clear();
    }
}

/// Notes the numbers of samples that follow; whether they do follow.
fn note_life(lives: &mut Vec<Life>, life: i64, numbers: &[u64]) -> bool {
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
            lives.push(Life {
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

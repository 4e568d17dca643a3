//! The writer of tiers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::parquet::data_type::ByteArray;
use barograph_model::{Buckets, Descriptor, SeriesId, Span, ValueType, Values};

use super::index::IndexSeries;
use super::rows::{NumberColumn, Run, TextColumn, numbers_and_texts, word_runs, words};
use super::sink::{Column, FileSink};
use super::{About, GROUP_ROWS_MAX, GROUP_TEXT_BYTES_MAX, Summary, corrupt, widen};
use crate::ArchiveError;
use crate::storage::OutFile;

/// Rows that are taken at a time: between two looks at how many bytes wait.
const STEP_ROWS: usize = 8 << 10;

/// Writes buckets: series by series in the order of name and labels, each in order of time.
pub struct TierWriter {
    path: PathBuf,
    step_ns: i64,
    sink: FileSink,
    rows: Rows,
    written: u64,
    words: Option<Arc<[ByteArray; 3]>>,
}

/// What waits for its row group.
#[derive(Default)]
struct Rows {
    ts: Vec<i64>,
    count: Vec<i64>,
    min: NumberColumn,
    max: NumberColumn,
    mean: Vec<f64>,
    last: NumberColumn,
    text: TextColumn,
    runs: Vec<Run>,
}

impl TierWriter {
    /// A file that is written to `out`; `path` is for messages. The tier is one of buckets.
    pub fn create(out: Box<dyn OutFile>, path: &Path, about: About) -> Result<Self, ArchiveError> {
        let Some(step_ns) = about.tier.step_ns() else {
            return Err(corrupt(path, "raw files hold no buckets", 0));
        };
        Ok(Self {
            path: path.to_owned(),
            step_ns,
            sink: FileSink::create(path, out, about)?,
            rows: Rows::default(),
            written: 0,
            words: None,
        })
    }

    /// Appends buckets of one series; they may come in several pieces.
    pub fn write(
        &mut self,
        id: SeriesId,
        descriptor: &Arc<Descriptor>,
        buckets: &Buckets,
    ) -> Result<(), ArchiveError> {
        if buckets.last.value_type() != descriptor.value_type || !is_even(buckets) {
            let reason = format!("{descriptor} is handed buckets that are not its own");
            return Err(corrupt(&self.path, reason, 0));
        }
        if buckets.is_empty() {
            return Ok(());
        }
        self.note(id, descriptor, buckets)?;
        let mut from = 0;
        while from < buckets.len() {
            let room = GROUP_ROWS_MAX - self.rows.ts.len();
            let to = buckets.len().min(from + room.min(STEP_ROWS));
            let words = self.words.get_or_insert_with(|| words(descriptor));
            if !self.rows.extend(words, buckets, from, to) {
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
        buckets: &Buckets,
    ) -> Result<(), ArchiveError> {
        let all = &mut self.sink.index.series;
        if all.last().is_none_or(|series| series.id != id) {
            all.push(IndexSeries::new(id, descriptor, self.written));
            self.words = None;
        }
        let series = all.last_mut().expect("it was pushed just now");
        let (first, last) = (buckets.ts[0], buckets.ts[buckets.len() - 1]);
        let follows = series.rows == 0 || first > series.span.to;
        let ascend = buckets.ts.windows(2).all(|w| w[0] < w[1]);
        if !follows || !ascend {
            let reason = format!("buckets of {descriptor} are handed out of order");
            return Err(corrupt(&self.path, reason, 0));
        }
        series.rows += buckets.len() as u64;
        let to = last.saturating_add(self.step_ns - 1);
        series.span = widen(series.span, Span { from: first, to });
        Ok(())
    }

    /// Writes the last row group, the index and the footer, and syncs the file.
    pub fn finish(mut self) -> Result<Summary, ArchiveError> {
        self.flush()?;
        self.sink.finish()
    }

    fn flush(&mut self) -> Result<(), ArchiveError> {
        let rows = &self.rows;
        let count = rows.ts.len();
        if count == 0 {
            return Ok(());
        }
        let (numbers, texts) = numbers_and_texts(&rows.runs);
        let exact = [&rows.min, &rows.max, &rows.last].map(|column| column.exact_column(count));
        let columns = vec![
            Column::Int(&rows.ts),
            Column::Runs(Box::new(word_runs(&rows.runs, 0))),
            Column::Runs(Box::new(word_runs(&rows.runs, 1))),
            Column::Runs(Box::new(word_runs(&rows.runs, 2))),
            Column::Int(&rows.count),
            Column::Floats(&rows.min.values, &numbers),
            Column::Floats(&rows.max.values, &numbers),
            Column::Floats(&rows.mean, &numbers),
            Column::Floats(&rows.last.values, &numbers),
            Column::Ints(&exact[0].0, &exact[0].1),
            Column::Ints(&exact[1].0, &exact[1].1),
            Column::Ints(&exact[2].0, &exact[2].1),
            Column::Texts(&rows.text.values, &texts),
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
        buckets: &Buckets,
        from: usize,
        to: usize,
    ) -> bool {
        let row = self.ts.len();
        self.ts.extend_from_slice(&buckets.ts[from..to]);
        let counts = buckets.count[from..to].iter();
        self.count.extend(counts.map(|count| *count as i64));
        let text = match &buckets.last {
            Values::Text(texts) => {
                self.text.extend(&texts[from..to]);
                true
            }
            _ => {
                self.mean.extend_from_slice(&buckets.mean[from..to]);
                false
            }
        };
        self.runs.push(Run {
            words: Arc::clone(words),
            text,
            life: 0,
            rows: to - from,
        });
        let fit = [
            self.min.extend(row, &buckets.min, from..to),
            self.max.extend(row, &buckets.max, from..to),
            self.last.extend(row, &buckets.last, from..to),
        ];
        fit.iter().all(|fits| *fits)
    }

    fn clear(&mut self) {
        self.ts.clear();
        self.count.clear();
        self.min.clear();
        self.max.clear();
        self.mean.clear();
        self.last.clear();
        self.text.clear();
        self.runs.clear();
    }
}

/// Texts have no use for `min` and `max`: those may be left empty.
fn is_even(buckets: &Buckets) -> bool {
    let rows = buckets.ts.len();
    let (min, max) = (buckets.min.len(), buckets.max.len());
    let value_type = buckets.last.value_type();
    let text = value_type == ValueType::Text;
    let types = [&buckets.min, &buckets.max].map(Values::value_type);
    [buckets.count.len(), buckets.mean.len(), buckets.last.len()] == [rows; 3]
        && types == [value_type; 2]
        && (text || [min, max] == [rows; 2])
}

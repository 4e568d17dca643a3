//! The writer of tiers.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use barograph_model::{Buckets, Descriptor, SeriesId, Span, ValueType, Values};

use super::rows::{NumberColumn, RowsRun, SeriesWords, TextColumn, ValueColumn, is_in, word_runs};
use super::series_writer::{PendingRows, SeriesWriter};
use super::sink::{ColumnValues, FileSink};
use super::{FORMAT_PLAIN, FileIdentity, FileSummary, corrupt, widen};
use crate::storage::OutFile;
use crate::{ArchiveError, Tier};

/// A writer of buckets: series by series in the order of name and labels, each in order of time.
pub struct TierWriter {
    writer: SeriesWriter<BucketRows>,
    tier: Tier,
    step_ns: i64,
}

/// Buckets that wait for their row group.
#[derive(Default)]
struct BucketRows {
    ts: Vec<i64>,
    count: Vec<i64>,
    min: NumberColumn,
    max: NumberColumn,
    sample_mean: Vec<f64>,
    last: NumberColumn,
    text: TextColumn,
    held_ns: Vec<i64>,
    time_mean: Vec<f64>,
    runs: Vec<RowsRun>,
}

impl TierWriter {
    /// Creates a file that is written to `out`; `path` is for messages. The tier must be one of
    /// buckets.
    pub fn create(
        out: Box<dyn OutFile>,
        path: &Path,
        about: FileIdentity,
    ) -> Result<Self, ArchiveError> {
        let Some(step_ns) = about.tier.step_ns() else {
            return Err(corrupt(path, "raw files hold no buckets", 0));
        };
        Ok(Self {
            tier: about.tier,
            writer: SeriesWriter::create(out, path, about, (BucketRows::default(), FORMAT_PLAIN))?,
            step_ns,
        })
    }

    /// Appends buckets of one series; they may come in several pieces.
    pub fn write(
        &mut self,
        id: SeriesId,
        descriptor: &Arc<Descriptor>,
        buckets: &Buckets,
    ) -> Result<(), ArchiveError> {
        let held = self.tier.holds(descriptor.value_type);
        if !held || buckets.last.value_type() != descriptor.value_type || !is_even(buckets) {
            let reason = format!("{descriptor} is handed buckets that are not its own");
            return Err(corrupt(&self.writer.path, reason, 0));
        }
        if buckets.is_empty() {
            return Ok(());
        }
        self.note(id, descriptor, buckets)?;
        let extend =
            |rows: &mut BucketRows, words: &SeriesWords, range| rows.extend(words, buckets, range);
        let bytes_of = |row| buckets.last.bytes(row);
        self.writer
            .write(descriptor, buckets.len(), bytes_of, extend)
    }

    /// Updates the index, and refuses buckets that are out of order.
    fn note(
        &mut self,
        id: SeriesId,
        descriptor: &Arc<Descriptor>,
        buckets: &Buckets,
    ) -> Result<(), ArchiveError> {
        let series = self.writer.series(id, descriptor)?;
        let (first, last) = (buckets.ts[0], buckets.ts[buckets.len() - 1]);
        let follows = series.rows == 0 || first > series.span.to;
        let ascend = buckets.ts.windows(2).all(|w| w[0] < w[1]);
        if !follows || !ascend {
            let reason = format!("buckets of {descriptor} are handed out of order");
            return Err(corrupt(&self.writer.path, reason, 0));
        }
        series.rows += buckets.len() as u64;
        let to = last.saturating_add(self.step_ns - 1);
        series.span = widen(series.span, Span { from: first, to });
        Ok(())
    }

    /// Writes the last row group, the index and the footer, and syncs the file.
    pub fn finish(self) -> Result<FileSummary, ArchiveError> {
        self.writer.finish()
    }
}

impl PendingRows for BucketRows {
    fn count(&self) -> usize {
        self.ts.len()
    }

    fn text_bytes(&self) -> usize {
        self.text.bytes
    }

    fn write(&self, sink: &mut FileSink) -> Result<(), ArchiveError> {
        let count = self.count();
        let [numbers, texts] =
            [ValueColumn::Number, ValueColumn::Text].map(|column| is_in(&self.runs, column));
        let exact = [&self.min, &self.max, &self.last].map(|column| column.exact_column(count));
        let columns = vec![
            ColumnValues::Int(&self.ts),
            ColumnValues::Runs(Box::new(word_runs(&self.runs, 0))),
            ColumnValues::Runs(Box::new(word_runs(&self.runs, 1))),
            ColumnValues::Runs(Box::new(word_runs(&self.runs, 2))),
            ColumnValues::Int(&self.count),
            ColumnValues::Floats(&self.min.values, &numbers),
            ColumnValues::Floats(&self.max.values, &numbers),
            ColumnValues::Floats(&self.sample_mean, &numbers),
            ColumnValues::Floats(&self.last.values, &numbers),
            ColumnValues::Ints(&exact[0].0, &exact[0].1),
            ColumnValues::Ints(&exact[1].0, &exact[1].1),
            ColumnValues::Ints(&exact[2].0, &exact[2].1),
            ColumnValues::Texts(&self.text.values, &texts),
            ColumnValues::Int(&self.held_ns),
            ColumnValues::Floats(&self.time_mean, &numbers),
        ];
        sink.group(count, columns)
    }

    fn clear(&mut self) {
        self.ts.clear();
        self.count.clear();
        self.min.clear();
        self.max.clear();
        self.sample_mean.clear();
        self.held_ns.clear();
        self.time_mean.clear();
        self.last.clear();
        self.text.clear();
        self.runs.clear();
    }
}

impl BucketRows {
    /// Appends some rows; returns whether doubles hold their values exactly.
    fn extend(&mut self, words: &SeriesWords, buckets: &Buckets, range: Range<usize>) -> bool {
        let row = self.ts.len();
        self.ts.extend_from_slice(&buckets.ts[range.clone()]);
        let counts = buckets.count[range.clone()].iter();
        self.count.extend(counts.map(|count| *count as i64));
        let held_ns = buckets.held_ns[range.clone()].iter();
        self.held_ns.extend(held_ns.map(|ns| *ns as i64));
        if let Values::Text(texts) = &buckets.last {
            self.text.extend_texts(&texts[range.clone()]);
        } else {
            self.time_mean
                .extend_from_slice(&buckets.mean[range.clone()]);
            // A mean without samples has no weight, and must not be NaN for programs that add means
            // up.
            let sample_mean = range.clone().map(|row| match buckets.count[row] {
                0 => buckets.mean[row],
                _ => buckets.sample_mean[row],
            });
            self.sample_mean.extend(sample_mean);
        }
        self.runs.push(RowsRun {
            words: Arc::clone(words),
            column: ValueColumn::of(buckets.last.value_type()),
            life: 0,
            rows: range.len(),
        });
        let fit = [
            self.min.extend(row, &buckets.min, range.clone()),
            self.max.extend(row, &buckets.max, range.clone()),
            self.last.extend(row, &buckets.last, range.clone()),
        ];
        fit.iter().all(|fits| *fits)
    }
}

/// Whether all columns have the same length. Texts do not use `min` and `max`, which may be empty.
fn is_even(buckets: &Buckets) -> bool {
    let rows = buckets.ts.len();
    let (min, max) = (buckets.min.len(), buckets.max.len());
    let value_type = buckets.last.value_type();
    let text = value_type == ValueType::Text;
    let types = [&buckets.min, &buckets.max].map(Values::value_type);
    let (count, held_ns) = (buckets.count.len(), buckets.held_ns.len());
    let (mean, sample_mean) = (buckets.mean.len(), buckets.sample_mean.len());
    [count, held_ns, mean, sample_mean, buckets.last.len()] == [rows; 5]
        && types == [value_type; 2]
        && (text || [min, max] == [rows; 2])
}

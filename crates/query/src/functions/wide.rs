//! Wide tables: the columns of a family or of a publication's frames, and the merge of samples into
//! their rows.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use barograph_model::{Descriptor, Labels, Value};
use barograph_stream::ingest::FRAME_VALUE;
use rusqlite::Result;

use super::ROWS_AT_ONCE;
use super::publications::{of_publication, prefix_of, suffix};
use crate::cell::{CellRow, CellValue};
use crate::feed::{BatchFeed, RowBatch};
use crate::listing::HIDDEN;
use crate::shape::MetricShape;
use crate::snapshot::{OVER_NODES, over_nodes};

/// Most columns of metrics; further metrics of a family are in their own tables only, and are
/// counted in [`LEFT_OUT`].
const METRIC_COLUMNS_MAX: usize = 300;
/// Most columns of labels; further labels are counted in [`LEFT_OUT`] too.
const LABEL_COLUMNS_MAX: usize = 100;
/// The last column of a table that lacks metrics or labels: the number of those without a column.
const LEFT_OUT: &str = "left_out";

/// The hidden column of frames with the names of the columns that are NULL because a NaN was put:
/// SQLite has no NaN.
const NANS: &str = "nan_columns";

/// The kind of rows in a wide table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WideForm {
    /// A row for each time at which a metric of the family has a sample.
    Family,
    /// A row for each committed frame of a publication.
    Frames,
}

impl WideForm {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Family => "family",
            Self::Frames => "frames",
        }
    }

    /// The name of the table of a family or publication.
    pub(crate) fn table_of(self, name: &str) -> String {
        let fold = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let folded: String = name.chars().map(fold).collect();
        format!("{}_{}", self.word(), folded.to_ascii_lowercase())
    }

    /// The arguments of the table.
    pub(crate) fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Family => &["start", "stop", "step"],
            Self::Frames => &["start", "stop"],
        }
    }

    /// The first columns of the table.
    fn fixed(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Family => &[("ts", "INTEGER"), ("node", "TEXT")],
            Self::Frames => &[("ts", "INTEGER"), ("frame", "INTEGER"), ("node", "TEXT")],
        }
    }
}

/// The columns of a family, or of a publication's frames. They only grow while a connection lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wide {
    pub(crate) form: WideForm,
    /// Name of the family or publication; dotted, without a dot at the end.
    pub(crate) name: String,
    /// Prefix of its metrics' names, without the dot after it.
    pub(super) prefix: String,
    /// Column name and label name.
    labels: Vec<(String, String)>,
    /// Column name, and the table of the metric.
    metrics: Vec<(String, String)>,
    /// Number of metrics and labels without a column.
    left_out: i64,
}

impl Wide {
    /// The family with the metrics of these tables too; `None` if `old` has them or there are none.
    pub(crate) fn grown(
        old: Option<&Self>,
        form: WideForm,
        name: &str,
        shapes: &BTreeMap<String, Arc<MetricShape>>,
    ) -> Option<Self> {
        let prefix = match form {
            WideForm::Family => name.to_owned(),
            WideForm::Frames => prefix_of(name),
        };
        let new = || Self {
            form,
            name: name.to_owned(),
            prefix: prefix.clone(),
            labels: Vec::new(),
            metrics: Vec::new(),
            left_out: 0,
        };
        let mut wide = old.cloned().unwrap_or_else(new);
        let mut left_out = BTreeSet::new();
        let first = format!("{}_", prefix.replace('.', "_"));
        // The shape over all nodes, if there is one, has the columns of this node's as well.
        let beginning = |before: &str| {
            let first = format!("{before}{first}");
            let near = shapes.range(first.clone()..);
            near.take_while(move |(table, _)| table.starts_with(&first))
        };
        let near = beginning("").chain(beginning(OVER_NODES));
        let near = near.map(|(table, shape)| (over_nodes(table).0, shape));
        let near: BTreeMap<&str, &Arc<MetricShape>> = near.collect();
        let mut near: Vec<_> = near.into_iter().collect();
        if form == WideForm::Frames {
            near = of_publication(&prefix, near)?;
        }
        for (table, shape) in near {
            let Some(suffix) = suffix(&shape.name, &prefix) else {
                continue;
            };
            for label in shape.label_names() {
                let is_known = wide.labels.iter().any(|(_, known)| known == label);
                if !is_known && wide.labels.len() >= LABEL_COLUMNS_MAX {
                    left_out.insert((true, label));
                } else if !is_known {
                    let column = wide.free(label, "label_");
                    wide.labels.push((column, label.to_owned()));
                }
            }
            if form == WideForm::Frames && suffix == FRAME_VALUE {
                continue; // A column of its own.
            }
            let is_known = wide.metrics.iter().any(|(_, known)| known == table);
            if !is_known && wide.metrics.len() >= METRIC_COLUMNS_MAX {
                left_out.insert((false, table));
            } else if !is_known {
                let column = wide.free(&suffix.replace('.', "_"), "metric_");
                wide.metrics.push((column, table.to_owned()));
            }
        }
        wide.left_out = left_out.len() as i64;
        let is_there = form == WideForm::Frames || !wide.metrics.is_empty();
        (is_there && old != Some(&wide)).then_some(wide)
    }

    /// A column name that is not taken.
    fn free(&self, wanted: &str, otherwise: &str) -> String {
        let mut column = wanted.to_owned();
        let is_taken = |column: &str| {
            let mut known = self
                .labels
                .iter()
                .chain(&self.metrics)
                .map(|(name, _)| &**name);
            let mut fixed = self.form.fixed().iter();
            fixed.any(|(name, _)| name.eq_ignore_ascii_case(column))
                || known.any(|name| name.eq_ignore_ascii_case(column))
        };
        while is_taken(&column) {
            column.insert_str(0, otherwise);
        }
        column
    }

    pub(crate) fn column_names(&self) -> Vec<String> {
        let own = self.labels.iter().chain(&self.metrics);
        let fixed = self.form.fixed().iter();
        let fixed = fixed.map(|(name, _)| (*name).to_owned());
        let own = own.map(|(name, _)| name.clone());
        let last = self.left_out_column().into_iter().chain(self.nan_column());
        fixed.chain(own).chain(last).collect()
    }

    /// The hidden column with the names of the columns that are NaN.
    fn nan_column(&self) -> Option<String> {
        (self.form == WideForm::Frames).then(|| self.free(NANS, "wide_"))
    }

    /// The column with the number of metrics and labels without a column, if there are any.
    fn left_out_column(&self) -> Option<String> {
        (self.left_out > 0).then(|| self.free(LEFT_OUT, "wide_"))
    }

    /// Column name and declared type.
    pub(super) fn columns(&self) -> Vec<(String, &'static str)> {
        let own = self.labels.iter().map(|(name, _)| (name.clone(), "TEXT"));
        let metrics = self.metrics.iter().map(|(name, _)| (name.clone(), ""));
        let fixed = self.form.fixed().iter();
        let fixed = fixed.map(|(name, declared)| ((*name).to_owned(), *declared));
        let left_out = self.left_out_column().map(|name| (name, "INTEGER"));
        let nans = self.nan_column().map(|name| (name, HIDDEN));
        let last = left_out.into_iter().chain(nans);
        fixed.chain(own).chain(metrics).chain(last).collect()
    }

    /// The index of the metric column of a series.
    pub(super) fn column_of(&self, descriptor: &Descriptor) -> Option<usize> {
        let table = descriptor.name.table();
        self.metrics.iter().position(|(_, known)| *known == table)
    }

    /// The cells of the labels, followed by NULL for each metric.
    pub(super) fn unknown(&self, labels: &Labels) -> impl Iterator<Item = CellValue> {
        let labels = self
            .labels
            .iter()
            .map(|(_, label)| labels.get(label).into());
        let metrics = self.metrics.iter().map(|_| CellValue::Null);
        let left_out = (self.left_out > 0).then(|| CellValue::from(self.left_out));
        let nans = (self.form == WideForm::Frames).then_some(CellValue::Null);
        labels.chain(metrics).chain(left_out).chain(nans)
    }

    /// The column name of a metric.
    pub(super) fn metric_name(&self, metric: usize) -> &str {
        &self.metrics[metric].0
    }

    /// The indices of the metrics' cells in a row.
    pub(super) fn metric_columns(&self) -> Range<usize> {
        let fixed = self.fixed();
        fixed..fixed + self.metrics.len()
    }

    /// The number of columns before the metrics.
    pub(super) fn fixed(&self) -> usize {
        self.form.fixed().len() + self.labels.len()
    }
}

/// A sample that is to be put into a row.
pub(super) struct SeenSample<'a> {
    pub(super) ts: i64,
    pub(super) series: usize,
    pub(super) value: &'a Value,
    /// The life that it is of; `None` for a bucket.
    pub(super) life: Option<i64>,
    /// Whether nobody looked between it and the next sample of its series.
    pub(super) is_last_look: bool,
}

/// Makes rows from samples in order of time.
pub(super) trait FillRows {
    /// Takes the next sample, and appends the rows that it completes.
    fn take(&mut self, seen: &SeenSample<'_>, rows: &mut Vec<CellRow>);

    /// The rows that are left.
    fn finish(&mut self) -> Vec<CellRow>;
}

/// Rows from the samples of a feed.
pub(super) struct MergedRows<F> {
    feed: BatchFeed,
    batch: Option<RowBatch>,
    at: usize,
    groups: F,
    is_done: bool,
}

impl<F> MergedRows<F> {
    pub(super) fn new(feed: BatchFeed, groups: F) -> Self {
        Self {
            feed,
            batch: None,
            at: 0,
            groups,
            is_done: false,
        }
    }
}

impl<F: FillRows> Iterator for MergedRows<F> {
    type Item = Result<Vec<CellRow>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        if self
            .batch
            .as_ref()
            .is_none_or(|batch| self.at >= batch.len())
        {
            self.batch = None; // The memory of the old batch is given back first.
            self.at = 0;
            match self.feed.next() {
                Ok(None) => {
                    self.is_done = true;
                    return Some(Ok(self.groups.finish()));
                }
                Ok(batch) => self.batch = batch,
                Err(error) => {
                    self.is_done = true;
                    return Some(Err(error));
                }
            }
        }
        let batch = self.batch.as_ref()?;
        let to = batch.len().min(self.at + ROWS_AT_ONCE);
        let mut rows = Vec::new();
        for (chunk, row) in (self.at..to).filter_map(|at| batch.row(at)) {
            if let Some(value) = chunk.columns.values.get(row) {
                let seen = SeenSample {
                    ts: chunk.columns.ts[row],
                    series: chunk.series,
                    value: &value,
                    life: Some(chunk.life),
                    is_last_look: chunk.columns.is_last_look(row),
                };
                self.groups.take(&seen, &mut rows);
            }
        }
        self.at = to;
        Some(Ok(rows))
    }
}

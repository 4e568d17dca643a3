//! Wide families: `family('disk')` returns one row per time, node and labels, with a column per
//! metric.
//!
//! The columns of SQLite's virtual tables are fixed when they are registered, so each family has a
//! table of its own, `family_disk`; `family('disk', …)` is rewritten to it (see `text`). A
//! publication has a table of its frames in the same way (see `frames`).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use barograph_model::{Descriptor, Labels, Quality, Sample, Span, Value};
use barograph_stream::ingest::FRAME_VALUE;
use rusqlite::Result;

use super::{ROWS_AT_ONCE, buckets, frames, span, step};
use crate::error::{failed, usage};
use crate::feed::{Batch, Feed, apart};
use crate::held;
use crate::listing::{Arguments, Batches, Callable, Cell, HIDDEN, Row};
use crate::live::Live;
use crate::memory::Claim;
use crate::reading::Reading;
use crate::shape::Shape;

/// Most families of a connection that are not the first word of a name.
#[cfg(feature = "bundled")]
pub(crate) const FAMILIES_MAX: usize = 64;
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
pub(crate) enum Form {
    /// A row for each time at which a metric of the family has a sample.
    Family,
    /// A row for each committed frame of a publication.
    Frames,
}

impl Form {
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
    pub(crate) form: Form,
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

/// The first words of all names.
pub(crate) fn families<'a>(shapes: impl Iterator<Item = &'a Arc<Shape>>) -> Vec<String> {
    let first = |shape: &Arc<Shape>| shape.name.split('.').next().unwrap_or_default().to_owned();
    let mut words: Vec<String> = shapes.map(first).collect();
    words.sort();
    words.dedup();
    words
}

/// The error for a call of `family` that was not rewritten.
pub(super) fn without_columns(_: &Arc<Live>, arguments: &Arguments) -> Result<Batches> {
    let prefix = arguments.text(0)?;
    let table = Form::Family.table_of(prefix);
    Err(usage(format!(
        "family(prefix, start, stop, step): the prefix must be written as a text, family('disk'), \
         or ask the table {table}(start, stop, step)"
    )))
}

impl Wide {
    /// The family with the metrics of these tables too; `None` if `old` has them or there are none.
    pub(crate) fn grown(
        old: Option<&Self>,
        form: Form,
        name: &str,
        shapes: &BTreeMap<String, Arc<Shape>>,
    ) -> Option<Self> {
        let prefix = match form {
            Form::Family => name.to_owned(),
            Form::Frames => frames::prefix_of(name),
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
        let near = shapes.range(first.clone()..);
        let mut near: Vec<_> = near.take_while(|(t, _)| t.starts_with(&first)).collect();
        if form == Form::Frames {
            near = frames::of_publication(&prefix, near)?;
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
            if form == Form::Frames && suffix == FRAME_VALUE {
                continue; // A column of its own.
            }
            let is_known = wide.metrics.iter().any(|(_, known)| known == table);
            if !is_known && wide.metrics.len() >= METRIC_COLUMNS_MAX {
                left_out.insert((false, table.as_str()));
            } else if !is_known {
                let column = wide.free(&suffix.replace('.', "_"), "metric_");
                wide.metrics.push((column, table.clone()));
            }
        }
        wide.left_out = left_out.len() as i64;
        let is_there = form == Form::Frames || !wide.metrics.is_empty();
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
        (self.form == Form::Frames).then(|| self.free(NANS, "wide_"))
    }

    /// The column with the number of metrics and labels without a column, if there are any.
    fn left_out_column(&self) -> Option<String> {
        (self.left_out > 0).then(|| self.free(LEFT_OUT, "wide_"))
    }

    /// The family or publication as a table.
    pub(crate) fn callable(self: &Arc<Self>, name: &str) -> Callable {
        let own = self.labels.iter().map(|(name, _)| (name.clone(), "TEXT"));
        let metrics = self.metrics.iter().map(|(name, _)| (name.clone(), ""));
        let fixed = self.form.fixed().iter();
        let fixed = fixed.map(|(name, declared)| ((*name).to_owned(), *declared));
        let left_out = self.left_out_column().map(|name| (name, "INTEGER"));
        let nans = self.nan_column().map(|name| (name, HIDDEN));
        let last = left_out.into_iter().chain(nans);
        let wide = Arc::clone(self);
        Callable {
            name: name.into(),
            columns: fixed.chain(own).chain(metrics).chain(last).collect(),
            arguments: self.form.arguments(),
            needs_argument: false,
            produce: Box::new(move |live, arguments| match wide.form {
                Form::Family => rows(&wide, live, arguments),
                Form::Frames => frames::rows(&wide, live, arguments),
            }),
        }
    }

    /// The index of the metric column of a series.
    pub(super) fn column_of(&self, descriptor: &Descriptor) -> Option<usize> {
        let table = descriptor.name.table();
        self.metrics.iter().position(|(_, known)| *known == table)
    }

    /// The cells of the labels, followed by NULL for each metric.
    pub(super) fn unknown(&self, labels: &Labels) -> impl Iterator<Item = Cell> {
        let labels = self
            .labels
            .iter()
            .map(|(_, label)| labels.get(label).into());
        let metrics = self.metrics.iter().map(|_| Cell::Null);
        let left_out = (self.left_out > 0).then(|| Cell::from(self.left_out));
        let nans = (self.form == Form::Frames).then_some(Cell::Null);
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

/// The part of a name of the family after the prefix.
pub(super) fn suffix<'a>(name: &'a str, prefix: &str) -> Option<&'a str> {
    name.strip_prefix(prefix)?.strip_prefix('.')
}

fn rows(wide: &Arc<Wide>, live: &Arc<Live>, arguments: &Arguments) -> Result<Batches> {
    let span = span(live, arguments, 0)?;
    let step = step(arguments, 2)?;
    let wanted =
        |_: &str, descriptor: &Descriptor| suffix(descriptor.name.as_str(), &wide.prefix).is_some();
    // The values that held at the start are searched before it.
    let read = Span {
        from: span.from.saturating_sub(held::BACK_NS_MAX),
        to: span.to,
    };
    let reading = Arc::new(Reading::take(live, &wanted, read).map_err(failed)?);
    let mut groups = Groups::new(wide, &reading);
    if span.from > i64::MIN {
        let (of, at) = (Arc::clone(&reading), span.from - 1);
        let before = apart(live, move |cancel| held::at(&of, at, cancel))?;
        for (series, sample) in before.into_iter().enumerate() {
            if let Some(Sample { value, quality, .. }) = sample
                && quality != Quality::Ended
            {
                groups.set(series, &value);
            }
        }
    }
    if let Some(step) = step {
        // The budget is given back at the end of this block, with the buckets.
        let (all, _budget) = buckets(live, &reading, span, step)?;
        let count = all.iter().map(barograph_model::Buckets::len).sum::<usize>();
        let mut claim = live.memory.claim();
        claim.set(count * size_of::<Last>())?;
        let mut lasts: Vec<Last> = Vec::with_capacity(count);
        let snapshot = live.current().map_err(failed)?;
        for (series, buckets) in all.into_iter().enumerate() {
            // A stream that is looked at has a bucket in each step while its value holds.
            let stream = reading.series[series].stream.as_ref();
            let is_looked_at = stream.is_some_and(|s| snapshot.interval_ns(&s.entry) > 0);
            let ends = |row: usize| match buckets.ts.get(row + 1) {
                Some(next) => is_looked_at && *next > buckets.ts[row].saturating_add(step),
                None => stream.is_none(),
            };
            let last = |row| {
                Some(Last {
                    ts: buckets.ts[row],
                    series,
                    value: buckets.last.get(row)?,
                    is_last_look: ends(row),
                })
            };
            lasts.extend((0..buckets.len()).filter_map(last));
        }
        // In place: a stable sort would need half as much memory again.
        lasts.sort_unstable_by_key(|last| (last.ts, last.series));
        return Ok(Box::new(Steps {
            lasts: lasts.into_iter(),
            groups,
            is_done: false,
            _claim: claim,
        }));
    }
    let feed = Feed::start(live, &reading, span, Some(crate::plan::Order::Ascending))?;
    Ok(Box::new(Merge::new(feed, groups)))
}

/// A sample that is to be put into a row.
pub(super) struct Seen<'a> {
    pub(super) ts: i64,
    pub(super) series: usize,
    pub(super) value: &'a Value,
    /// Whether nobody looked between it and the next sample of its series.
    pub(super) is_last_look: bool,
}

/// Makes rows from samples in order of time.
pub(super) trait Fill {
    /// Takes the next sample, and appends the rows that it completes.
    fn take(&mut self, seen: &Seen<'_>, rows: &mut Vec<Row>);

    /// The rows that are left.
    fn finish(&mut self) -> Vec<Row>;
}

/// The last value of a bucket.
struct Last {
    ts: i64,
    series: usize,
    value: Value,
    /// Whether nobody looked in the next bucket.
    is_last_look: bool,
}

/// Rows of a family, from buckets in order of time.
struct Steps {
    lasts: std::vec::IntoIter<Last>,
    groups: Groups,
    is_done: bool,
    _claim: Claim,
}

impl Iterator for Steps {
    type Item = Result<Vec<Row>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let mut rows = Vec::new();
        for last in self.lasts.by_ref().take(ROWS_AT_ONCE) {
            let seen = Seen {
                ts: last.ts,
                series: last.series,
                value: &last.value,
                is_last_look: last.is_last_look,
            };
            self.groups.take(&seen, &mut rows);
        }
        if self.lasts.len() == 0 {
            self.is_done = true;
            rows.extend(self.groups.finish());
        }
        Some(Ok(rows))
    }
}

/// Rows from the samples of a feed.
pub(super) struct Merge<F> {
    feed: Feed,
    batch: Option<Batch>,
    at: usize,
    groups: F,
    is_done: bool,
}

impl<F> Merge<F> {
    pub(super) fn new(feed: Feed, groups: F) -> Self {
        Self {
            feed,
            batch: None,
            at: 0,
            groups,
            is_done: false,
        }
    }
}

impl<F: Fill> Iterator for Merge<F> {
    type Item = Result<Vec<Row>>;

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
                let seen = Seen {
                    ts: chunk.columns.ts[row],
                    series: chunk.series,
                    value: &value,
                    is_last_look: chunk.columns.is_last_look(row),
                };
                self.groups.take(&seen, &mut rows);
            }
        }
        self.at = to;
        Some(Ok(rows))
    }
}

/// The values that hold at a time, by scope, node and labels.
struct Groups {
    groups: Vec<Group>,
    /// Group and metric column of each series.
    of_series: Vec<Option<(usize, usize)>>,
    fixed: usize,
}

struct Group {
    /// The next row: time, node, labels, and the value that holds of each metric.
    row: Row,
    /// Time of a row that was not returned yet.
    ts: Option<i64>,
    /// Metric columns that hold for this row and not for the next: it has the last look at them.
    ending: BTreeSet<usize>,
}

impl Groups {
    fn new(wide: &Wide, reading: &Reading) -> Self {
        let mut known: BTreeMap<(&str, &str, &Labels), usize> = BTreeMap::new();
        let mut groups: Vec<Group> = Vec::new();
        let mut of_series = Vec::with_capacity(reading.series.len());
        for series in &reading.series {
            let labels = &series.descriptor.labels;
            let next = groups.len();
            let key = (&*series.scope, &*series.node, labels);
            let group = *known.entry(key).or_insert(next);
            if group == next {
                let mut row = vec![Cell::Null, Arc::clone(&series.node).into()];
                row.extend(wide.unknown(labels));
                groups.push(Group {
                    row,
                    ts: None,
                    ending: BTreeSet::new(),
                });
            }
            let column = wide.column_of(&series.descriptor);
            of_series.push(column.map(|column| (group, column)));
        }
        Self {
            groups,
            of_series,
            fixed: wide.fixed(),
        }
    }

    /// Sets a value that held before the first row.
    fn set(&mut self, series: usize, value: &Value) {
        if let Some((group, column)) = self.of_series[series] {
            self.groups[group].row[self.fixed + column] = value.into();
        }
    }
}

impl Fill for Groups {
    fn take(&mut self, seen: &Seen<'_>, rows: &mut Vec<Row>) {
        let Some((group, column)) = self.of_series[seen.series] else {
            return;
        };
        let group = &mut self.groups[group];
        // The row of the group's previous time, if there is one.
        if group.ts.is_some_and(|before| before != seen.ts) {
            rows.push(group.row.clone());
            for column in std::mem::take(&mut group.ending) {
                group.row[self.fixed + column] = Cell::Null;
            }
        }
        group.ts = Some(seen.ts);
        group.row[0] = seen.ts.into();
        if seen.is_last_look {
            group.ending.insert(column);
        } else {
            group.ending.remove(&column);
        }
        self.set(seen.series, seen.value);
    }

    fn finish(&mut self) -> Vec<Row> {
        let last = |group: &mut Group| group.ts.take().map(|_| group.row.clone());
        let mut rows: Vec<(i64, Row)> = Vec::new();
        for group in &mut self.groups {
            if let (Some(ts), Some(row)) = (group.ts, last(group)) {
                rows.push((ts, row));
            }
        }
        rows.sort_by_key(|(ts, _)| *ts);
        rows.into_iter().map(|(_, row)| row).collect()
    }
}

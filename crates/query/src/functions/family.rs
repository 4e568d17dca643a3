//! Wide families: `family('disk')` returns one row per time, node and labels, with a column per
//! metric.
//!
//! The columns of SQLite's virtual tables are fixed when they are registered, so each family has a
//! table of its own, `family_disk`; `family('disk', …)` is rewritten to it (see `text`). A
//! publication has a table of its frames in the same way (see `frames`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use barograph_model::{Descriptor, Labels, Quality, Sample, Span, Value};
use rusqlite::Result;

use super::publications::suffix;
use super::wide::{FillRows, MergedRows, SeenSample, Wide, WideForm};
use super::{ROWS_AT_ONCE, buckets, span, step};
use crate::cell::{CellRow, CellValue};
use crate::error::{failed, usage};
use crate::feed::{BatchFeed, apart};
use crate::held;
use crate::listing::{Arguments, Batches};
use crate::live::Live;
use crate::memory::ScanClaim;
use crate::plan::RowOrder;
use crate::reading::Reading;
use crate::shape::MetricShape;

/// Most families of a connection that are not the first word of a name.
#[cfg(feature = "bundled")]
pub(crate) const FAMILIES_MAX: usize = 64;
/// The first words of all names.
pub(crate) fn families<'a>(shapes: impl Iterator<Item = &'a Arc<MetricShape>>) -> Vec<String> {
    let first =
        |shape: &Arc<MetricShape>| shape.name.split('.').next().unwrap_or_default().to_owned();
    let mut words: Vec<String> = shapes.map(first).collect();
    words.sort();
    words.dedup();
    words
}

/// The error for a call of `family` that was not rewritten.
pub(super) fn without_columns(_: &Arc<Live>, arguments: &Arguments) -> Result<Batches> {
    let prefix = arguments.text(0)?;
    let table = WideForm::Family.table_of(prefix);
    Err(usage(format!(
        "family(prefix, start, stop, step): the prefix must be written as a text, family('disk'), \
         or ask the table {table}(start, stop, step)"
    )))
}

pub(super) fn rows(wide: &Arc<Wide>, live: &Arc<Live>, arguments: &Arguments) -> Result<Batches> {
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
    let feed = BatchFeed::start(live, &reading, span, Some(RowOrder::Ascending))?;
    Ok(Box::new(MergedRows::new(feed, groups)))
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
    _claim: ScanClaim,
}

impl Iterator for Steps {
    type Item = Result<Vec<CellRow>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let mut rows = Vec::new();
        for last in self.lasts.by_ref().take(ROWS_AT_ONCE) {
            let seen = SeenSample {
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

/// The values that hold at a time, by scope, node and labels.
struct Groups {
    groups: Vec<Group>,
    /// Group and metric column of each series.
    of_series: Vec<Option<(usize, usize)>>,
    fixed: usize,
}

struct Group {
    /// The next row: time, node, labels, and the value that holds of each metric.
    row: CellRow,
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
                let mut row = vec![CellValue::Null, Arc::clone(&series.node).into()];
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

impl FillRows for Groups {
    fn take(&mut self, seen: &SeenSample<'_>, rows: &mut Vec<CellRow>) {
        let Some((group, column)) = self.of_series[seen.series] else {
            return;
        };
        let group = &mut self.groups[group];
        // The row of the group's previous time, if there is one.
        if group.ts.is_some_and(|before| before != seen.ts) {
            rows.push(group.row.clone());
            for column in std::mem::take(&mut group.ending) {
                group.row[self.fixed + column] = CellValue::Null;
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

    fn finish(&mut self) -> Vec<CellRow> {
        let last = |group: &mut Group| group.ts.take().map(|_| group.row.clone());
        let mut rows: Vec<(i64, CellRow)> = Vec::new();
        for group in &mut self.groups {
            if let (Some(ts), Some(row)) = (group.ts, last(group)) {
                rows.push((ts, row));
            }
        }
        rows.sort_by_key(|(ts, _)| *ts);
        rows.into_iter().map(|(_, row)| row).collect()
    }
}

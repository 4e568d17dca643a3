//! Wide families: `family('disk')` returns one row per time, node and labels, with a column per
//! metric.
//!
//! The columns of SQLite's virtual tables are fixed when they are registered, so each family has a
//! table of its own, `family_disk`; `family('disk', …)` is rewritten to it (see `text`). A
//! publication has a table of its frames in the same way (see `frames`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use barograph_model::{Descriptor, Labels, Span, Value};
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
    let snapshot = live.current().map_err(failed)?;
    if span.from > i64::MIN {
        let (of, seen, at) = (Arc::clone(&reading), Arc::clone(&snapshot), span.from - 1);
        let now_ns = live.now_ns();
        let (before, ends) = apart(live, move |cancel| {
            let before = held::at(&of, at, cancel)?;
            let ends = held::ends(&of, &before, at, (&seen, now_ns), cancel)?;
            Ok((before, ends))
        })?;
        for (series, (held, until_ns)) in before.into_iter().zip(ends).enumerate() {
            if let Some(held) = held.filter(|_| until_ns >= span.from) {
                groups.set(series, &held.sample.value);
                groups.lives[series] = Some((held.life, held.sample.ts));
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
        for (series, buckets) in all.into_iter().enumerate() {
            // A stream that is looked at has a bucket in each step while its value holds. Of those
            // that have ended, all but the values of programs were looked at.
            let known = &reading.series[series];
            let stream = known.stream.as_ref();
            let is_looked_at = match stream {
                Some(stream) => snapshot.interval_ns(&stream.entry) > 0,
                None => !held::is_put(known),
            };
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
                life: None,
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
    /// The life that the value of each series is of, and the value's time, if the series is looked
    /// at and the value was not said to end.
    lives: Vec<Option<(i64, i64)>>,
    /// Whether programs put the values of each series.
    is_put: Vec<bool>,
    fixed: usize,
}

struct Group {
    /// The next row: time, node, labels, and the value that holds of each metric.
    row: CellRow,
    /// Time of a row that was not returned yet.
    ts: Option<i64>,
    /// Metric columns that hold for this row and not for the next: it has the last look at them.
    ending: BTreeSet<usize>,
    /// Its series.
    series: Vec<usize>,
}

impl Groups {
    fn new(wide: &Wide, reading: &Reading) -> Self {
        let mut known: BTreeMap<(&str, &str, &Labels), usize> = BTreeMap::new();
        let mut groups: Vec<Group> = Vec::new();
        let mut of_series = Vec::with_capacity(reading.series.len());
        for (at, series) in reading.series.iter().enumerate() {
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
                    series: Vec::new(),
                });
            }
            groups[group].series.push(at);
            let column = wide.column_of(&series.descriptor);
            of_series.push(column.map(|column| (group, column)));
        }
        Self {
            groups,
            of_series,
            lives: vec![None; reading.series.len()],
            is_put: reading.series.iter().map(held::is_put).collect(),
            fixed: wide.fixed(),
        }
    }

    /// Notes the life of a sample. If no last look was marked in the life before, its agent was
    /// killed: what the group has of that agent's lives held until then. They began before the last
    /// sample of the life before, whereas those of the next agent begin later.
    fn note_life(&mut self, group: usize, seen: &SeenSample<'_>) {
        let Some(life) = seen.life.filter(|_| !self.is_put[seen.series]) else {
            return;
        };
        let note = (!seen.is_last_look).then_some((life, seen.ts));
        let before = std::mem::replace(&mut self.lives[seen.series], note);
        let Some((_, last_ns)) = before.filter(|(before, _)| *before != life) else {
            return;
        };
        let group = &mut self.groups[group];
        for &series in group.series.iter().filter(|series| **series != seen.series) {
            let is_of_killed = self.lives[series].is_some_and(|(life, _)| life <= last_ns);
            if let Some((_, column)) = self.of_series[series].filter(|_| is_of_killed) {
                self.lives[series] = None;
                group.row[self.fixed + column] = CellValue::Null;
            }
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
        let Some((at, column)) = self.of_series[seen.series] else {
            return;
        };
        let group = &mut self.groups[at];
        // The row of the group's previous time, if there is one.
        if group.ts.is_some_and(|before| before != seen.ts) {
            rows.push(group.row.clone());
            for column in std::mem::take(&mut group.ending) {
                group.row[self.fixed + column] = CellValue::Null;
            }
        }
        group.ts = Some(seen.ts);
        group.row[0] = seen.ts.into();
        self.note_life(at, seen);
        let group = &mut self.groups[at];
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

//! Frames of a publication: `frames('lulesh')` returns one row per commit, with the labels and a
//! column per value: its last put after the frame before, up to the commit itself.
//!
//! Its tables are like those of families; it stands alone because a value belongs to one frame, and
//! does not hold until the next.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::ops::Range;
use std::sync::Arc;

use barograph_model::{Descriptor, Labels, Span, Value};
use barograph_stream::ingest::FRAME_VALUE;
use rusqlite::Result;

use super::publications::suffix;
use super::span;
use super::wide::{FillRows, MergedRows, SeenSample, Wide, WideForm};
use crate::cell::{CellRow, CellValue};
use crate::error::{failed, usage};
use crate::feed::{BatchFeed, apart};
use crate::held;
use crate::listing::{Arguments, Batches};
use crate::live::Live;
use crate::plan::RowOrder;
use crate::reading::Reading;

/// Index of the column of the frame's number.
const FRAME_COLUMN: usize = 1;

/// The error for a call of `frames` that was not rewritten.
pub(super) fn without_columns(_: &Arc<Live>, arguments: &Arguments) -> Result<Batches> {
    let table = WideForm::Frames.table_of(arguments.text(0)?);
    Err(usage(format!(
        "frames(publication, start, stop): the publication must be written as a text, \
         frames('lulesh'), or ask the table {table}(start, stop)"
    )))
}

pub(super) fn rows(wide: &Arc<Wide>, live: &Arc<Live>, arguments: &Arguments) -> Result<Batches> {
    let span = span(live, arguments, 0)?;
    let wanted = |_: &str, descriptor: &Descriptor| role(wide, descriptor).is_some();
    // Values that were put for the first frame are searched before the start.
    let read = Span {
        from: span.from.saturating_sub(held::BACK_NS_MAX),
        to: span.to,
    };
    let reading = Arc::new(Reading::take(live, &wanted, read).map_err(failed)?);
    let commits = Commits::new(wide, &reading, span.from);
    let Some(from) = begin(live, &reading, &commits, span)? else {
        return Ok(Box::new(std::iter::empty()));
    };
    let puts = Span { from, to: span.to };
    let feed = BatchFeed::start(live, &reading, puts, Some(RowOrder::Ascending))?;
    Ok(Box::new(MergedRows::new(feed, commits)))
}

/// The time from which puts may belong to a frame of the span, at most a day before it; `None` if
/// the span has no frame.
fn begin(
    live: &Live,
    reading: &Arc<Reading>,
    commits: &Commits,
    span: Span,
) -> Result<Option<i64>> {
    let spans = reading.spans();
    let has_frames = |at: &usize| {
        let is_frame = matches!(commits.of_series[*at], Some((_, Role::Frame)));
        is_frame && spans[*at].from <= spans[*at].to && spans[*at].meets(&span)
    };
    let frames: Vec<usize> = (0..spans.len()).filter(has_frames).collect();
    if frames.is_empty() {
        return Ok(None);
    }
    if span.from == i64::MIN {
        return Ok(Some(span.from));
    }
    // If nothing was committed before, all puts since the group began count.
    let mut first = vec![i64::MAX; commits.groups.len()];
    for (known, of) in spans.iter().zip(&commits.of_series) {
        if let Some((group, _)) = of {
            first[*group] = first[*group].min(known.from);
        }
    }
    let (of, asked, before) = (Arc::clone(reading), frames.clone(), span.from - 1);
    let before = apart(live, move |cancel| held::of(&of, &asked, before, cancel))?;
    let begins = frames.into_iter().filter_map(|at| {
        let (group, _) = commits.of_series[at]?;
        let committed = before[at]
            .as_ref()
            .map(|frame| frame.sample.ts.saturating_add(1));
        Some(committed.unwrap_or(first[group]).min(span.from))
    });
    let earliest = span.from.saturating_sub(held::BACK_NS_MAX);
    Ok(begins.min().map(|from| from.max(earliest)))
}

/// The role of a series in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Frame,
    /// A value, with its metric column.
    Value(usize),
}

fn role(wide: &Wide, descriptor: &Descriptor) -> Option<Role> {
    match suffix(descriptor.name.as_str(), &wide.prefix)? {
        FRAME_VALUE => Some(Role::Frame),
        _ => wide.column_of(descriptor).map(Role::Value),
    }
}

/// The values that were put since the last commit, by scope, node and labels.
struct Commits {
    wide: Arc<Wide>,
    groups: Vec<Group>,
    /// Group and role of each series.
    of_series: Vec<Option<(usize, Role)>>,
    /// The columns of the values.
    values: Range<usize>,
    /// Frames before this time are read only to know what the next ones contain.
    from: i64,
    /// The time of the present samples…
    ts: i64,
    /// …and the frames that were committed at that time, one of each group: values that were put at
    /// that time belong to them.
    committed: Vec<(usize, CellValue)>,
}

struct Group {
    /// The next row: time, frame, node, labels, values, and last the names of the values that are
    /// NaN.
    row: CellRow,
    /// The values of the row that are NaN.
    nans: BTreeSet<usize>,
    /// Time and number of the last committed frame.
    last: Option<(i64, Value)>,
}

impl Commits {
    fn new(wide: &Arc<Wide>, reading: &Reading, from: i64) -> Self {
        let mut known: BTreeMap<(&str, &str, &Labels), usize> = BTreeMap::new();
        let mut groups: Vec<Group> = Vec::new();
        let of_series = reading.series.iter().map(|series| {
            let labels = &series.descriptor.labels;
            let next = groups.len();
            let key = (&*series.scope, &*series.node, labels);
            let group = *known.entry(key).or_insert(next);
            if group == next {
                let mut row = vec![
                    CellValue::Null,
                    CellValue::Null,
                    Arc::clone(&series.node).into(),
                ];
                row.extend(wide.unknown(labels));
                let nans = BTreeSet::new();
                groups.push(Group {
                    row,
                    nans,
                    last: None,
                });
            }
            role(wide, &series.descriptor).map(|role| (group, role))
        });
        Self {
            of_series: of_series.collect(),
            groups,
            values: wide.metric_columns(),
            wide: Arc::clone(wide),
            from,
            ts: i64::MIN,
            committed: Vec::new(),
        }
    }

    /// Appends the frames of the present time.
    fn commit(&mut self, rows: &mut Vec<CellRow>) {
        for (group, frame) in mem::take(&mut self.committed) {
            let Group { row, nans, .. } = &mut self.groups[group];
            if self.ts >= self.from {
                (row[0], row[FRAME_COLUMN]) = (self.ts.into(), frame);
                if !nans.is_empty() {
                    let names = nans.iter().map(|value| self.wide.metric_name(*value));
                    let names = names.collect::<Vec<_>>().join(",");
                    *row.last_mut().expect("it has columns") = names.into();
                }
                rows.push(row.clone());
            }
            nans.clear();
            *row.last_mut().expect("it has columns") = CellValue::Null;
            row[self.values.clone()].fill(CellValue::Null);
        }
    }
}

impl FillRows for Commits {
    fn take(&mut self, seen: &SeenSample<'_>, rows: &mut Vec<CellRow>) {
        let SeenSample {
            ts, series, value, ..
        } = *seen;
        if ts != self.ts {
            self.commit(rows);
            self.ts = ts;
        }
        match self.of_series[series] {
            Some((group, Role::Value(column))) => {
                let Group { row, nans, .. } = &mut self.groups[group];
                row[self.values.start + column] = value.into();
                match value {
                    Value::Float(v) if v.is_nan() => nans.insert(column),
                    _ => nans.remove(&column),
                };
            }
            Some((at, Role::Frame)) => {
                let group = &mut self.groups[at];
                let last = group.last.replace((ts, value.clone()));
                if last.as_ref().is_none_or(|(last_ts, _)| *last_ts != ts) {
                    self.committed.push((at, value.into()));
                } else if last.is_some_and(|(_, number)| number == *value) {
                    // The same frame again: an agent appended it and was killed before the program
                    // knew, so that the next agent appended it again.
                } else if ts >= self.from {
                    // Another frame of this time: nothing was put since the first. It is returned
                    // at once, since there may be any number of them.
                    let mut row = group.row.clone();
                    (row[0], row[FRAME_COLUMN]) = (ts.into(), value.into());
                    row[self.values.clone()].fill(CellValue::Null);
                    rows.push(row);
                }
            }
            None => {}
        }
    }

    fn finish(&mut self) -> Vec<CellRow> {
        let mut rows = Vec::new();
        self.commit(&mut rows);
        rows
    }
}

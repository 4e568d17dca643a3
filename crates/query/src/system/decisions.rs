//! The table of decisions: those that the agent has now, and those that are in the streams
//! `control.decision`, live and archived, each once and as it was last.
//!
//! Rights are those of the documents and streams of scopes: nobody sees decisions of others.

use std::collections::HashSet;
use std::sync::Arc;

use barograph_archive::SampleChunk;
use barograph_model::{Selector, Span, Value};
use barograph_stream::{DECISION_STREAM, DECISIONS_COLUMNS, DECISIONS_DOCUMENT};
use rusqlite::Result;
use serde_json::Value as Json;

use crate::cell::{CellRow, CellValue};
use crate::documents::{cells, private_and_per_scope};
use crate::error::usage;
use crate::feed::{BatchFeed, RowBatch};
use crate::listing::{Arguments, Batches};
use crate::live::Live;
use crate::matching::matching;
use crate::memory::ScanClaim;
use crate::plan::RowOrder;
use crate::reading::Reading;

/// Rows of one batch.
const ROWS_AT_ONCE: usize = 256;
/// Places of the number and of the time in a row.
const ID: usize = 1;
const MADE: usize = 3;
/// Memory of a number that was seen, in bytes.
const SEEN_BYTES: usize = 48;

/// The rows of the table.
pub(super) fn decisions(live: &Arc<Live>, arguments: &Arguments) -> Result<Batches> {
    let since_ns = arguments.instant(0, live.now_ns())?;
    let from = since_ns.unwrap_or(i64::MIN);
    let mut seen = HashSet::new();
    let mut newest = Vec::new();
    if live.run_dir().is_some() {
        for batch in private_and_per_scope(live, DECISIONS_DOCUMENT, DECISIONS_COLUMNS)? {
            newest.extend(batch?);
        }
    }
    newest.retain(|row| {
        if let CellValue::Int(id) = row[ID] {
            seen.insert((None, id));
        }
        is_since(row, from)
    });
    let selector = Selector::parse(DECISION_STREAM).map_err(|error| usage(error.to_string()))?;
    // A decision is changed after it was made, never before.
    let span = Span { from, to: i64::MAX };
    let reading = Arc::new(matching(live, &selector, span)?);
    let feed = BatchFeed::start(live, &reading, span, Some(RowOrder::Descending))?;
    let archived = ArchivedDecisions {
        own: live
            .current()
            .ok()
            .map(|snapshot| Arc::clone(&snapshot.own().node)),
        reading,
        feed,
        batch: None,
        at: 0,
        from,
        seen,
        claim: live.memory.claim(),
    };
    Ok(Box::new(std::iter::once(Ok(newest)).chain(archived)))
}

fn is_since(row: &CellRow, from: i64) -> bool {
    !matches!(row[MADE], CellValue::Int(made) if made < from)
}

/// The decisions of a feed that goes back in time: the first state that is met of each is its last.
struct ArchivedDecisions {
    /// The node whose documents were read.
    own: Option<Arc<str>>,
    reading: Arc<Reading>,
    feed: BatchFeed,
    batch: Option<RowBatch>,
    at: usize,
    from: i64,
    /// Numbers of decisions by node; those of this one without a name.
    seen: HashSet<(Option<Arc<str>>, i64)>,
    claim: ScanClaim,
}

impl ArchivedDecisions {
    /// The row of a sample; `None` if it is an older state, or none of a decision.
    fn row(&mut self, chunk: &SampleChunk, at: usize) -> Option<CellRow> {
        let series = self.reading.series.get(chunk.series)?;
        let value = chunk.columns.values.get(at)?;
        let (Value::Json(text) | Value::Text(text)) = value else {
            return None;
        };
        let Ok(Json::Object(object)) = serde_json::from_str(&text) else {
            return None;
        };
        let id = object.get("id")?.as_i64()?;
        let is_own = self.own.as_ref() == Some(&series.node);
        let node = (!is_own).then(|| Arc::clone(&series.node));
        if !self.seen.insert((node, id)) {
            return None;
        }
        let mut row = cells(&object, DECISIONS_COLUMNS);
        row[0] = match &*series.scope {
            "" => CellValue::Null,
            _ => Arc::clone(&series.scope).into(),
        };
        is_since(&row, self.from).then_some(row)
    }
}

impl Iterator for ArchivedDecisions {
    type Item = Result<Vec<CellRow>>;

    fn next(&mut self) -> Option<Self::Item> {
        let is_done = |batch: &RowBatch| self.at >= batch.len();
        if self.batch.as_ref().is_none_or(is_done) {
            self.batch = None; // The memory of the old batch is given back first.
            self.at = 0;
            match self.feed.next() {
                Ok(None) => return None,
                Ok(batch) => self.batch = batch,
                Err(error) => return Some(Err(error)),
            }
        }
        let batch = self.batch.take()?;
        let to = batch.len().min(self.at + ROWS_AT_ONCE);
        let rows = (self.at..to).filter_map(|at| {
            let (chunk, row) = batch.row(at)?;
            self.row(chunk, row)
        });
        let rows: Vec<CellRow> = rows.collect();
        self.at = to;
        self.batch = Some(batch);
        let claimed = self.claim.set(self.seen.len() * SEEN_BYTES);
        Some(claimed.map(|()| rows))
    }
}

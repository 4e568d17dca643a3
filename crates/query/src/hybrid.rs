//! The part of a metric's scan that reads the archive: rows of ended series and lives, and rows
//! that have left the rings.
//!
//! It stands alone because most scans do not need it: the newest values, and spans that the rings
//! still hold, cost the same as without an archive.

use std::sync::Arc;

use barograph_archive::SampleChunk;
use barograph_model::{Span, Values, floats_json};
use rusqlite::Result;
use rusqlite::types::Null;
use rusqlite::vtab::Context;

use crate::feed::{BatchFeed, RowBatch};
use crate::live::Live;
use crate::plan::RowOrder;
use crate::reading::{KnownSeries, Reading};
use crate::shape::{ShapeColumn, age_ns};
use crate::stream::row_id;

/// Identity of a sample: series on its node, life, and number.
pub(crate) type SampleId = (u64, i64, u64);

/// Rows from archive and rings.
pub(crate) struct Hybrid {
    reading: Arc<Reading>,
    feed: BatchFeed,
    batch: Option<RowBatch>,
    at: usize,
    /// A row that was returned before.
    given: Option<SampleId>,
    /// If only the newest sample of each series is wanted: how many are still to come.
    newest_left: Option<usize>,
}

impl Hybrid {
    pub(crate) fn start(
        live: &Arc<Live>,
        reading: Reading,
        span: Span,
        order: Option<RowOrder>,
        given: Option<SampleId>,
    ) -> Result<Self> {
        let reading = Arc::new(reading);
        let feed = BatchFeed::start(live, &reading, span, order)?;
        let mut hybrid = Self {
            reading,
            feed,
            batch: None,
            at: 0,
            given,
            newest_left: None,
        };
        hybrid.settle()?;
        Ok(hybrid)
    }

    /// Scans for the newest samples only, from the end of the archive backwards.
    pub(crate) fn newest(live: &Arc<Live>, reading: Reading, span: Span) -> Result<Self> {
        let newest_left = reading.series.iter().filter(|s| s.newest.is_some()).count();
        let reading = Arc::new(reading);
        let feed = BatchFeed::start(live, &reading, span, Some(RowOrder::Descending))?;
        let mut hybrid = Self {
            reading,
            feed,
            batch: None,
            at: 0,
            given: None,
            newest_left: Some(newest_left),
        };
        hybrid.settle()?;
        Ok(hybrid)
    }

    pub(crate) fn next(&mut self) -> Result<()> {
        self.at += 1;
        self.settle()
    }

    pub(crate) fn eof(&self) -> bool {
        self.batch.is_none()
    }

    /// Goes on to the next wanted row.
    fn settle(&mut self) -> Result<()> {
        loop {
            if self.newest_left == Some(0) {
                self.batch = None;
                return Ok(());
            }
            if let Some((known, chunk, row)) = self.row() {
                if !self.is_wanted(known, chunk, row) {
                    self.at += 1;
                    continue;
                }
                if let Some(left) = &mut self.newest_left {
                    *left -= 1;
                }
                return Ok(());
            }
            self.at = 0;
            self.batch = None; // The memory of the old batch is given back first.
            self.batch = self.feed.next()?;
            if self.batch.is_none() {
                return Ok(());
            }
        }
    }

    fn is_wanted(&self, known: &KnownSeries, chunk: &SampleChunk, row: usize) -> bool {
        let number = chunk.columns.numbers[row];
        let is_given = self.given == Some((known.identity, chunk.life, number));
        let is_newest = known.newest == Some((chunk.life, number));
        !is_given && (self.newest_left.is_none() || is_newest)
    }

    fn row(&self) -> Option<(&KnownSeries, &SampleChunk, usize)> {
        let (chunk, row) = self.batch.as_ref()?.row(self.at)?;
        Some((self.reading.series.get(chunk.series)?, chunk, row))
    }

    pub(crate) fn column(
        &self,
        context: &mut Context,
        column: &ShapeColumn,
        now_ns: i64,
    ) -> Result<()> {
        let Some((known, chunk, row)) = self.row() else {
            return context.set_result(Null);
        };
        let columns = &chunk.columns;
        match column {
            ShapeColumn::Ts => context.set_result(columns.ts[row]),
            ShapeColumn::Value => match &columns.values {
                Values::Int(values) => context.set_result(values[row]),
                Values::Float(values) => context.set_result(values[row]),
                Values::Bool(values) => context.set_result(values[row]),
                Values::Text(values) | Values::Json(values) => context.set_result(&*values[row]),
                Values::Bytes(values) => context.set_result(&*values[row]),
                Values::Floats(values) => context.set_result(floats_json(&values[row])),
            },
            ShapeColumn::Quality => context.set_result(columns.quality[row].as_str()),
            ShapeColumn::Error => context.set_result(f64::from(columns.error[row])),
            ShapeColumn::Node => context.set_result(&*known.node),
            ShapeColumn::Newest => {
                let this = (chunk.life, columns.numbers[row]);
                context.set_result(known.newest == Some(this))
            }
            ShapeColumn::Label(label) => context.set_result(known.descriptor.labels.get(label)),
            ShapeColumn::Looked => context.set_result(known.looked_ns(columns.ts[row])),
            ShapeColumn::AgeNs => {
                let looked_ns = known.looked_ns(columns.ts[row]);
                context.set_result(age_ns(now_ns, looked_ns))
            }
            ShapeColumn::Unit => context.set_result(known.descriptor.unit.as_str()),
            ShapeColumn::Event(part) => match &columns.values {
                Values::Bytes(records) => part.set(context, &records[row]),
                _ => context.set_result(Null),
            },
            ShapeColumn::Control(part) => match &columns.values {
                Values::Bytes(records) => part.set(context, &records[row]),
                _ => context.set_result(Null),
            },
        }
    }

    pub(crate) fn rowid(&self) -> i64 {
        self.row().map_or(0, |(known, chunk, row)| {
            row_id(known.identity, chunk.life, chunk.columns.numbers[row])
        })
    }
}

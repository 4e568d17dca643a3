//! `history`: samples, or buckets of them.

use std::sync::Arc;

use barograph_archive::SampleChunk;
use barograph_model::Buckets;
use rusqlite::Result;

use super::{OfBuckets, ROWS_AT_ONCE, buckets, identities, runs, span, step};
use crate::cell::SeriesCells;
use crate::cell::{CellRow, CellValue};
use crate::feed::{BatchFeed, RowBatch};
use crate::listing::{Arguments, Batches};
use crate::live::Live;
use crate::matching::{matching, selector};
use crate::reading::around;

pub(super) fn history(live: &Arc<Live>, arguments: &Arguments) -> Result<Batches> {
    let span = span(live, arguments, 1)?;
    let step = step(arguments, 3)?;
    // For buckets, the values that held at the ends of the span count too.
    let reading = step.map_or(span, |_| around(span));
    let reading = Arc::new(matching(live, &selector(arguments)?, reading)?);
    let identities = identities(&reading);
    let Some(step) = step else {
        let feed = BatchFeed::start(live, &reading, span, None)?;
        return Ok(Box::new(FeedRows::new(feed, move |chunk, row| {
            Some(raw_row(chunk, row, &identities[chunk.series]))
        })));
    };
    let (all, budget) = buckets(live, &reading, span, step)?;
    let series = identities.into_iter().zip(all);
    let rows = series.flat_map(|(identity, buckets)| {
        runs(0..buckets.len()).map(move |rows| {
            let row = |row| bucket_row(&buckets, row, &identity);
            Ok(rows.map(row).collect())
        })
    });
    Ok(Box::new(OfBuckets {
        rows,
        _budget: budget,
    }))
}

/// Makes a row from each sample of a feed.
pub(super) struct FeedRows<F> {
    feed: BatchFeed,
    batch: Option<RowBatch>,
    at: usize,
    make: F,
}

impl<F: FnMut(&SampleChunk, usize) -> Option<CellRow>> FeedRows<F> {
    pub(super) fn new(feed: BatchFeed, make: F) -> Self {
        Self {
            feed,
            batch: None,
            at: 0,
            make,
        }
    }
}

impl<F: FnMut(&SampleChunk, usize) -> Option<CellRow>> Iterator for FeedRows<F> {
    type Item = Result<Vec<CellRow>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self
            .batch
            .as_ref()
            .is_none_or(|batch| self.at >= batch.len())
        {
            self.batch = None; // The memory of the old batch is given back first.
            self.at = 0;
            match self.feed.next() {
                Ok(None) => return None,
                Ok(batch) => self.batch = batch,
                Err(error) => return Some(Err(error)),
            }
        }
        let batch = self.batch.as_ref()?;
        let to = batch.len().min(self.at + ROWS_AT_ONCE);
        let samples = (self.at..to).filter_map(|at| batch.row(at));
        let rows = samples
            .filter_map(|(chunk, row)| (self.make)(chunk, row))
            .collect();
        self.at = to;
        Some(Ok(rows))
    }
}

fn raw_row(chunk: &SampleChunk, row: usize, identity: &SeriesCells) -> CellRow {
    let columns = &chunk.columns;
    let value: CellValue = columns
        .values
        .get(row)
        .as_ref()
        .map_or(CellValue::Null, CellValue::from);
    let mean: CellValue = columns.values.number(row).into();
    let [name, labels, node] = identity.cells();
    let (min, max, last) = (value.clone(), value.clone(), value.clone());
    let sample_mean = mean.clone();
    vec![
        columns.ts[row].into(),
        value,
        name,
        labels,
        node,
        min,
        max,
        mean,
        last,
        1.into(),
        CellValue::Null,
        sample_mean,
    ]
}

fn bucket_row(buckets: &Buckets, row: usize, identity: &SeriesCells) -> CellRow {
    let cell = |values: &barograph_model::Values| {
        values
            .get(row)
            .as_ref()
            .map_or(CellValue::Null, CellValue::from)
    };
    let known = |mean: f64| CellValue::from(Some(mean).filter(|mean| !mean.is_nan()));
    let mean = known(buckets.mean[row]);
    let held_ns = i64::try_from(buckets.held_ns[row]).unwrap_or(i64::MAX);
    let last = cell(&buckets.last);
    let value = if mean == CellValue::Null {
        last.clone()
    } else {
        mean.clone()
    };
    let [name, labels, node] = identity.cells();
    vec![
        buckets.ts[row].into(),
        value,
        name,
        labels,
        node,
        cell(&buckets.min),
        cell(&buckets.max),
        mean,
        last,
        (buckets.count[row] as i64).into(),
        held_ns.into(),
        known(buckets.sample_mean[row]),
    ]
}

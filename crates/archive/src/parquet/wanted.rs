//! The rows of wanted series, decoded: samples and buckets.

use std::sync::atomic::{AtomicBool, Ordering};

use barograph_model::{Buckets, Columns, Span, Values};

use super::column::NumberBuffers;
use super::group::{SampleGroup, TierGroup};
use super::index::IndexSeries;
use super::read::ParquetPart;
use crate::ArchiveError;

impl ParquetPart {
    /// Passes the samples of the wanted series within the span to `each`, in the order of the file:
    /// index of the series, life, samples. Only the row groups, columns and pages that have them
    /// are decoded.
    pub fn read(
        &self,
        wanted: &dyn Fn(&IndexSeries) -> bool,
        span: Span,
        cancel: &AtomicBool,
        each: &mut dyn FnMut(usize, i64, Columns) -> Result<(), ArchiveError>,
    ) -> Result<(), ArchiveError> {
        let index = self.index_of(true)?;
        let mut numbered = NumberBuffers::default();
        for (at, pieces) in self.plan(&index, wanted, span) {
            let mut group = SampleGroup::new(self, &index, at);
            for piece in pieces {
                if cancel.load(Ordering::Relaxed) {
                    return Err(ArchiveError::Cancelled);
                }
                let mut columns = group.columns(&piece, &mut numbered)?;
                let series = &index.series[piece.series];
                if !holds(span, series.span) {
                    columns = cut_columns(columns, span);
                }
                if !columns.is_empty() {
                    each(piece.series, series.lives[piece.life].life, columns)?;
                }
            }
        }
        Ok(())
    }

    /// Passes the buckets of the wanted series that meet the span to `each`, in the order of the
    /// file: index of the series, buckets.
    pub fn read_buckets(
        &self,
        wanted: &dyn Fn(&IndexSeries) -> bool,
        span: Span,
        cancel: &AtomicBool,
        each: &mut dyn FnMut(usize, Buckets) -> Result<(), ArchiveError>,
    ) -> Result<(), ArchiveError> {
        let index = self.index_of(false)?;
        let step_ns = index.about.tier.step_ns().unwrap_or(1);
        for (at, pieces) in self.plan(&index, wanted, span) {
            let mut group = TierGroup::new(self, &index, at);
            for piece in pieces {
                if cancel.load(Ordering::Relaxed) {
                    return Err(ArchiveError::Cancelled);
                }
                let mut buckets = group.buckets(&piece)?;
                if !holds(span, index.series[piece.series].span) {
                    buckets = cut_buckets(buckets, step_ns, span);
                }
                if !buckets.is_empty() {
                    each(piece.series, buckets)?;
                }
            }
        }
        Ok(())
    }
}

/// Whether `outer` contains all of `inner`.
fn holds(outer: Span, inner: Span) -> bool {
    outer.holds(inner.from) && outer.holds(inner.to)
}

/// Returns the samples within the span.
fn cut_columns(columns: Columns, span: Span) -> Columns {
    let keep: Vec<bool> = columns.ts.iter().map(|ts| span.holds(*ts)).collect();
    if keep.iter().all(|keep| *keep) {
        return columns;
    }
    Columns {
        numbers: kept(&columns.numbers, &keep),
        ts: kept(&columns.ts, &keep),
        values: kept_values(&columns.values, &keep),
        quality: kept(&columns.quality, &keep),
        error: kept(&columns.error, &keep),
    }
}

/// Returns the buckets that meet the span.
fn cut_buckets(buckets: Buckets, step_ns: i64, span: Span) -> Buckets {
    let meets = |from: i64| {
        let to = from.saturating_add(step_ns - 1);
        Span { from, to }.meets(&span)
    };
    let keep: Vec<bool> = buckets.ts.iter().map(|from| meets(*from)).collect();
    if keep.iter().all(|keep| *keep) {
        return buckets;
    }
    Buckets {
        ts: kept(&buckets.ts, &keep),
        count: kept(&buckets.count, &keep),
        held_ns: kept(&buckets.held_ns, &keep),
        min: kept_values(&buckets.min, &keep),
        max: kept_values(&buckets.max, &keep),
        mean: kept(&buckets.mean, &keep),
        sample_mean: kept(&buckets.sample_mean, &keep),
        last: kept_values(&buckets.last, &keep),
    }
}

fn kept<T: Clone>(all: &[T], keep: &[bool]) -> Vec<T> {
    let kept = all.iter().zip(keep).filter(|(_, keep)| **keep);
    kept.map(|(v, _)| v.clone()).collect()
}

fn kept_values(values: &Values, keep: &[bool]) -> Values {
    match values {
        Values::Int(v) => Values::Int(kept(v, keep)),
        Values::Float(v) => Values::Float(kept(v, keep)),
        Values::Bool(v) => Values::Bool(kept(v, keep)),
        Values::Text(v) => Values::Text(kept(v, keep)),
        Values::Bytes(v) => Values::Bytes(kept(v, keep)),
        Values::Json(v) => Values::Json(kept(v, keep)),
        Values::Floats(v) => Values::Floats(kept(v, keep)),
    }
}

//! The inputs of new files: log segments, raw files, and selections of either.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use barograph_model::{Columns, SeriesId, Span};

use crate::ArchiveError;
use crate::log::LogPart;
use crate::parquet::{ParquetIndex, ParquetPart};
use crate::unit::{SampleSource, SeriesUnit, UnitSink};

impl SampleSource for LogPart {
    fn path(&self) -> &Path {
        self.path()
    }

    fn units(&self) -> Vec<SeriesUnit> {
        let unit = |series: &crate::log::LogSeries| SeriesUnit {
            id: series.id,
            descriptor: Arc::clone(&series.descriptor),
            life: series.life,
            rows: series.rows,
            bytes: series.bytes,
            span: series.span,
        };
        self.series().iter().map(unit).collect()
    }

    fn read(
        &self,
        wanted: &[usize],
        span: Span,
        stop: &AtomicBool,
        each: &mut UnitSink<'_>,
    ) -> Result<(), ArchiveError> {
        let series = wanted.iter().map(|index| &self.series()[*index]);
        let lives: HashSet<(SeriesId, i64)> = series.map(|s| (s.id, s.life)).collect();
        let of = |series: &crate::log::LogSeries| lives.contains(&(series.id, series.life));
        LogPart::read(self, &of, span, stop, each)
    }
}

/// A raw file as a source; its units are the lives of its series.
pub(crate) struct RawSource {
    part: Arc<ParquetPart>,
    index: Arc<ParquetIndex>,
    /// Index of the first unit of each series.
    first: Vec<usize>,
}

impl RawSource {
    pub(crate) fn new(part: Arc<ParquetPart>) -> Result<Self, ArchiveError> {
        let index = part.index()?;
        let mut first = Vec::with_capacity(index.series.len());
        let mut units = 0;
        for series in &index.series {
            first.push(units);
            units += series.lives.len();
        }
        Ok(Self { part, index, first })
    }
}

impl SampleSource for RawSource {
    fn path(&self) -> &Path {
        self.part.path()
    }

    fn units(&self) -> Vec<SeriesUnit> {
        let series = self.index.series.iter();
        let units = series.flat_map(|series| {
            series.lives.iter().map(|life| SeriesUnit {
                id: series.id,
                descriptor: Arc::clone(&series.descriptor),
                life: life.life,
                rows: life.rows,
                // These are the bytes of all lives: each life may have most of them.
                bytes: series.bytes,
                span: series.span,
            })
        });
        units.collect()
    }

    fn read(
        &self,
        wanted: &[usize],
        span: Span,
        stop: &AtomicBool,
        each: &mut UnitSink<'_>,
    ) -> Result<(), ArchiveError> {
        let wanted: HashSet<usize> = wanted.iter().copied().collect();
        let series = self.index.series.iter().zip(&self.first);
        let meant = series.filter(|(series, first)| {
            (**first..**first + series.lives.len()).any(|unit| wanted.contains(&unit))
        });
        let ids: HashSet<SeriesId> = meant.map(|(series, _)| series.id).collect();
        let of = |series: &crate::parquet::IndexSeries| ids.contains(&series.id);
        self.part.read(&of, span, stop, &mut |at, life, columns| {
            let lives = &self.index.series[at].lives;
            let place = lives.iter().position(|of| of.life == life);
            let unit = place.map(|place| self.first[at] + place);
            match unit.filter(|unit| wanted.contains(unit)) {
                Some(unit) => each(unit, columns),
                None => Ok(()),
            }
        })
    }
}

/// Some units of a source, limited to a span.
pub(crate) struct SelectedUnits<S> {
    source: S,
    /// Indexes of the selected units in the source.
    units: Vec<usize>,
    span: Span,
}

impl<S: SampleSource> SelectedUnits<S> {
    pub(crate) fn new(source: S, span: Span, wanted: &dyn Fn(&SeriesUnit) -> bool) -> Self {
        let units = source.units().into_iter().enumerate();
        let units = units.filter(|(_, unit)| unit.span.meets(&span) && wanted(unit));
        Self {
            units: units.map(|(at, _)| at).collect(),
            source,
            span,
        }
    }
}

impl<S: SampleSource> SampleSource for SelectedUnits<S> {
    fn path(&self) -> &Path {
        self.source.path()
    }

    fn units(&self) -> Vec<SeriesUnit> {
        let all = self.source.units();
        let cut = |unit: &SeriesUnit| SeriesUnit {
            span: meet(unit.span, self.span),
            ..unit.clone()
        };
        self.units.iter().map(|at| cut(&all[*at])).collect()
    }

    fn read(
        &self,
        wanted: &[usize],
        span: Span,
        stop: &AtomicBool,
        each: &mut UnitSink<'_>,
    ) -> Result<(), ArchiveError> {
        let inner: Vec<usize> = wanted.iter().map(|at| self.units[*at]).collect();
        let mut outer = |unit: usize, columns: Columns| {
            let at = self.units.binary_search(&unit);
            each(at.expect("only these are wanted"), columns)
        };
        let span = meet(span, self.span);
        if span.from > span.to {
            return Ok(());
        }
        self.source.read(&inner, span, stop, &mut outer)
    }
}

/// Returns the intersection of two spans; if it is empty, the result ends before it begins.
fn meet(a: Span, b: Span) -> Span {
    Span {
        from: a.from.max(b.from),
        to: a.to.min(b.to),
    }
}

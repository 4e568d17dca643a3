//! A reading of series over rings, log and Parquet files, with each sample once.
//!
//! The archive takes precedence and the ring completes it (docs/design/0003-history.md): the rings
//! are copied first, then the archive's view is taken, and of a ring only the samples beyond the
//! view count. Samples in between were appended after the copy and belong to the next reading. This
//! holds for each part, the run directory and its scopes, separately: a reading has the series of
//! one part after the other.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use barograph_archive::aggregate::{BucketBudget, Fold};
use barograph_archive::{ArchiveError, ArchivedSeries, ArchivedUpTo, SampleChunk, View, ViewScan};
use barograph_model::{Buckets, Columns, Descriptor, NS_PER_S, Sample, SeriesId, Span};

use crate::QueryError;
use crate::cell::SeriesCells;
use crate::live::Live;
use crate::snapshot::SnapshotPart;
use crate::stream::{SET_BACK_NS_MAX, SnapshotStream, identity, labels_json};

/// The selection of series, by node and descriptor.
pub(crate) type SeriesSelection<'a> = &'a dyn Fn(&str, &Descriptor) -> bool;

/// Most time between two samples of a stream that is looked at, even if its value does not change.
const CARRY_NS: i64 = 300 * NS_PER_S;

/// Widens a span so that the values that held at its ends are read too.
pub(crate) fn around(span: Span) -> Span {
    Span {
        from: span.from.saturating_sub(CARRY_NS),
        to: span.to.saturating_add(CARRY_NS),
    }
}

/// A series of a reading, archived or living.
pub(crate) struct KnownSeries {
    /// The scope of the series, as [`SnapshotPart::scope`].
    pub(crate) scope: Arc<str>,
    pub(crate) node: Arc<str>,
    pub(crate) descriptor: Arc<Descriptor>,
    /// Identity of the series on its node, for row ids.
    pub(crate) identity: u64,
    /// The time that the archive has of it.
    pub(crate) archived: Option<Span>,
    /// The stream, while it lives.
    pub(crate) stream: Option<Arc<SnapshotStream>>,
    /// Life and number of the newest sample: of a living series or, if an archive is read alone, of
    /// any.
    pub(crate) newest: Option<(i64, u64)>,
}

impl KnownSeries {
    /// The cells that all of its rows share.
    pub(crate) fn cells(&self) -> SeriesCells {
        let labels = labels_json(&self.descriptor);
        SeriesCells::new(self.descriptor.name.as_str(), labels, &self.node)
    }

    /// Time of the last look at the resource, for a sample at `ts`.
    pub(crate) fn looked_ns(&self, ts: i64) -> i64 {
        match (&self.stream, self.archived) {
            (Some(stream), _) => stream.looked_ns(ts),
            (None, archived) => archived.map_or(ts, |span| span.to.max(ts)),
        }
    }
}

/// Some series at one moment, one part after the other. Chunks refer to them by their index here.
#[derive(Default)]
pub(crate) struct Reading {
    pub(crate) series: Vec<KnownSeries>,
    parts: Vec<Archive>,
    /// The samples of the rings beyond the archive, by series.
    tails: Vec<SampleChunk>,
}

/// The archive of one part in a reading.
struct Archive {
    view: Arc<View>,
    /// Index in the reading of its first series.
    first: usize,
    /// Indices into the view's series, in the order of the reading's series from `first` on.
    archived: Vec<usize>,
    /// The indices of the series that have to be read from the archive.
    scanned: Vec<usize>,
}

impl Reading {
    /// Takes the selected series, including ended ones, to be read within the span.
    pub(crate) fn take(
        live: &Live,
        wanted: SeriesSelection<'_>,
        span: Span,
    ) -> Result<Self, QueryError> {
        Self::take_parts(live, &|_| true, wanted, span)
    }

    /// Takes the selected series of this node, and none of those that are mirrored: mirrors may
    /// have come since the series were selected.
    pub(crate) fn take_own(
        live: &Live,
        wanted: SeriesSelection<'_>,
        span: Span,
    ) -> Result<Self, QueryError> {
        Self::take_parts(live, &|part| !part.is_mirror(), wanted, span)
    }

    fn take_parts(
        live: &Live,
        is_read: &dyn Fn(&SnapshotPart) -> bool,
        wanted: SeriesSelection<'_>,
        span: Span,
    ) -> Result<Self, QueryError> {
        // Done first, so that only newer samples have to be copied from the rings.
        live.past()?;
        let snapshot = live.current()?;
        let mut scratch = Vec::new();
        let parts = snapshot.parts.iter().filter(|part| is_read(part));
        let rings: Vec<Rings> = parts
            .map(|part| Rings::copy(part, wanted, span, &mut scratch))
            .collect();

        let after = live.past()?;
        let is_alone = live.is_archive_alone();
        let mut reading = Self::default();
        for rings in rings {
            let segment = rings.part.segment().map(Arc::as_ptr);
            let is_it = |part: &&Arc<SnapshotPart>| {
                part.scope == rings.part.scope && part.segment().map(Arc::as_ptr) == segment
            };
            // A part that is gone meanwhile, or that another agent serves, is read as it was: the
            // rings were copied beyond its archive's view of then.
            let part = after.parts.iter().find(is_it).unwrap_or(&rings.part);
            let view = part.view.clone();
            reading.add(rings, view, wanted, span, is_alone);
        }
        Ok(reading)
    }

    /// Adds a part: its archive at `view`, and the samples of its rings beyond that.
    fn add(
        &mut self,
        rings: Rings,
        view: Option<Arc<View>>,
        wanted: SeriesSelection<'_>,
        span: Span,
        is_alone: bool,
    ) {
        let reached = match (&rings.part.view, &view) {
            (Some(before), Some(view)) if Arc::ptr_eq(before, view) => rings.reached,
            _ => Reached::of(view.as_deref(), wanted),
        };
        let scope = &rings.part.scope;
        let first = self.series.len();
        self.add_archived(scope, view.as_deref(), &reached, is_alone);
        let mut complete = HashSet::new();
        for (stream, copy) in rings.streams.into_iter().zip(rings.copies) {
            let position = reached.position(&stream).map(|at| first + at);
            let position = position.unwrap_or(self.series.len());
            if position == self.series.len() {
                self.series.push(KnownSeries {
                    scope: Arc::clone(scope),
                    node: Arc::clone(&stream.node),
                    descriptor: Arc::clone(&stream.descriptor),
                    identity: stream.identity,
                    archived: None,
                    stream: None,
                    newest: None,
                });
            }
            if let Some(copy) = copy {
                self.series[position].newest = Some((stream.life(), copy.newest));
                // Samples later than all samples of the ring are from before the clock was set
                // back.
                let archived = self.series[position].archived;
                let is_last =
                    archived.is_none_or(|known| copy.columns.ts.last() >= Some(&known.to));
                let columns = if copy.is_complete && is_last {
                    complete.insert(position);
                    copy.columns
                } else {
                    beyond(copy.columns, reached.after(&stream))
                };
                if !columns.is_empty() {
                    self.tails.push(SampleChunk {
                        series: position,
                        life: stream.life(),
                        columns,
                    });
                }
            }
            self.series[position].stream = Some(stream);
        }
        let Some(view) = view.filter(|_| !reached.indexes.is_empty()) else {
            return;
        };
        let is_scanned = |position: &usize| {
            let known = self.series[first + position].archived;
            !complete.contains(&(first + position)) && known.is_some_and(|known| known.meets(&span))
        };
        let archived = reached.indexes;
        let scanned = (0..archived.len()).filter(is_scanned);
        self.parts.push(Archive {
            scanned: scanned.map(|position| archived[position]).collect(),
            view,
            first,
            archived,
        });
    }

    /// Adds the series that the archive of a part has.
    fn add_archived(
        &mut self,
        scope: &Arc<str>,
        view: Option<&View>,
        reached: &Reached,
        is_alone: bool,
    ) {
        let all = view.map_or(&[][..], View::series);
        let known = |one: &ArchivedSeries| {
            let ArchivedUpTo { life, number } = one.archived;
            KnownSeries {
                scope: Arc::clone(scope),
                node: Arc::clone(&one.node),
                descriptor: Arc::clone(&one.descriptor),
                identity: identity(scope, &one.node, &one.id),
                archived: Some(one.known),
                stream: None,
                newest: (is_alone && number > 0).then_some((life, number)),
            }
        };
        self.series
            .extend(reached.indexes.iter().map(|&index| known(&all[index])));
    }

    /// The stretches of time that the archive can return in order one by one, oldest first.
    pub(crate) fn stretches(&self, span: Span) -> Vec<Span> {
        let parts = self.parts.iter().filter(|part| !part.scanned.is_empty());
        let mut all: Vec<Span> = parts.flat_map(|part| part.view.stretches(span)).collect();
        all.sort_by_key(|stretch| stretch.from);
        // Stretches of two archives that overlap are joined.
        let mut stretches: Vec<Span> = Vec::with_capacity(all.len());
        for next in all {
            match stretches.last_mut() {
                Some(last) if next.from <= last.to => last.to = last.to.max(next.to),
                _ => stretches.push(next),
            }
        }
        stretches
    }

    /// The samples of the rings beyond the archive, within the span.
    pub(crate) fn tails(&self, span: Span) -> impl Iterator<Item = SampleChunk> {
        self.tails.iter().filter_map(move |tail| within(tail, span))
    }

    /// The time span of each series in archive and rings; without samples it ends before it begins.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let none = Span {
            from: i64::MAX,
            to: i64::MIN,
        };
        let archived = self.series.iter().map(|known| known.archived);
        let mut spans: Vec<Span> = archived.map(|span| span.unwrap_or(none)).collect();
        for tail in &self.tails {
            let span = &mut spans[tail.series];
            for &ts in &tail.columns.ts {
                (span.from, span.to) = (span.from.min(ts), span.to.max(ts));
            }
        }
        spans
    }

    /// The time span of the copied samples of a series' ring.
    #[cfg(feature = "bundled")]
    pub(crate) fn span_of_tail(&self, known: &KnownSeries) -> Option<Span> {
        let is_of = |tail: &&SampleChunk| std::ptr::eq(&raw const self.series[tail.series], known);
        let times = &self.tails.iter().find(is_of)?.columns.ts;
        let (from, to) = (*times.iter().min()?, *times.iter().max()?);
        Some(Span { from, to })
    }

    /// Whether any series has to be read from the archive.
    pub(crate) fn is_archived(&self) -> bool {
        self.parts.iter().any(|part| !part.scanned.is_empty())
    }

    /// Passes the archive's chunks within the span to `take`, until it returns `false`. Chunks of a
    /// series and life come in the order of their numbers.
    pub(crate) fn each_archived(
        &self,
        span: Span,
        cancel: &AtomicBool,
        take: &mut dyn FnMut(SampleChunk) -> Result<bool, QueryError>,
    ) -> Result<bool, QueryError> {
        for part in &self.parts {
            if !part.each_of(&part.scanned, span, cancel, take)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Like [`Self::each_archived`], but only for the series at these positions, which are
    /// ascending.
    pub(crate) fn each_at(
        &self,
        positions: &[usize],
        span: Span,
        cancel: &AtomicBool,
        take: &mut dyn FnMut(SampleChunk) -> Result<bool, QueryError>,
    ) -> Result<bool, QueryError> {
        for part in &self.parts {
            let indexes = positions.iter().filter_map(|at| part.index_at(*at));
            let is_scanned = |index: &usize| part.scanned.binary_search(index).is_ok();
            let indexes: Vec<usize> = indexes.filter(is_scanned).collect();
            if !part.each_of(&indexes, span, cancel, take)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Passes all chunks within the span to `take`: the archive's, then those of the rings.
    pub(crate) fn each(
        &self,
        span: Span,
        cancel: &AtomicBool,
        take: &mut dyn FnMut(SampleChunk) -> Result<bool, QueryError>,
    ) -> Result<bool, QueryError> {
        if !self.each_archived(span, cancel, take)? {
            return Ok(false);
        }
        for tail in self.tails(span) {
            if !take(tail)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The views of the archives in this reading, each with its series.
    #[cfg(feature = "bundled")]
    pub(crate) fn archives(&self) -> impl Iterator<Item = (&View, &[KnownSeries])> {
        let series = |part: &Archive| &self.series[part.first..part.first + part.archived.len()];
        let parts = self.parts.iter();
        parts.map(move |part| (&*part.view, series(part)))
    }

    /// Like [`Self::each`], but only for samples in no Parquet file: the log's chunks, then those
    /// of the rings.
    #[cfg(feature = "bundled")]
    pub(crate) fn each_unsealed(
        &self,
        span: Span,
        cancel: &AtomicBool,
        take: &mut dyn FnMut(SampleChunk) -> Result<bool, QueryError>,
    ) -> Result<bool, QueryError> {
        for part in self.parts.iter().filter(|part| !part.scanned.is_empty()) {
            let chunks = part.view.scan_log(&part.archived, span, cancel);
            if !part.each_in(chunks, take)? {
                return Ok(false);
            }
        }
        for tail in self.tails(span) {
            if !take(tail)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The series in buckets of `step_ns`; series without samples in the span have none. Buckets
    /// count in the budget as long as it lives. The values that held at the ends of the span are
    /// known only if the reading was taken [`around`] it.
    pub(crate) fn buckets(
        &self,
        span: Span,
        step_ns: i64,
        threads: usize,
        cancel: &AtomicBool,
        budget: &BucketBudget<'_>,
    ) -> Result<Vec<Buckets>, QueryError> {
        let new = |known: &KnownSeries| Fold::new(known.descriptor.value_type, step_ns, span);
        let mut all: Vec<Fold> = self.series.iter().map(new).collect();
        for part in self.parts.iter().filter(|part| !part.scanned.is_empty()) {
            let wanted = &part.scanned;
            let found = part
                .view
                .folds_within(wanted, span, step_ns, threads, cancel, budget)?;
            for (index, fold) in found {
                if let Some(series) = part.position(index) {
                    all[series] = fold;
                }
            }
        }
        for tail in &self.tails {
            let add = |fold: &mut Fold, at| fold.add(tail.life, &tail.columns, at);
            budget.add(&mut all[tail.series], tail.columns.len(), add)?;
        }
        for (known, fold) in self.series.iter().zip(&mut all) {
            if let Some(stream) = &known.stream {
                budget.hold_until(fold, stream.life(), stream.looked_ns(i64::MIN))?;
            }
        }
        Ok(all.into_iter().map(Fold::finish).collect())
    }
}

impl Archive {
    /// The index in the reading of a series of the view; `None` if it is not selected.
    fn position(&self, index: usize) -> Option<usize> {
        let at = self.archived.binary_search(&index).ok()?;
        Some(self.first + at)
    }

    /// The index in the view of a series of the reading, if it is in this archive.
    fn index_at(&self, position: usize) -> Option<usize> {
        let at = position.checked_sub(self.first)?;
        self.archived.get(at).copied()
    }

    fn each_of(
        &self,
        indexes: &[usize],
        span: Span,
        cancel: &AtomicBool,
        take: &mut dyn FnMut(SampleChunk) -> Result<bool, QueryError>,
    ) -> Result<bool, QueryError> {
        if indexes.is_empty() {
            return Ok(true);
        }
        if !self.each_in(self.view.scan(indexes, span, cancel), take)? {
            return Ok(false);
        }
        if cancel.load(Ordering::Relaxed) {
            return Err(ArchiveError::Cancelled.into());
        }
        Ok(true)
    }

    /// Passes on the chunks of a scan, with their index in the reading.
    fn each_in(
        &self,
        chunks: ViewScan<'_>,
        take: &mut dyn FnMut(SampleChunk) -> Result<bool, QueryError>,
    ) -> Result<bool, QueryError> {
        for chunk in chunks {
            let mut chunk = chunk?;
            let Some(series) = self.position(chunk.series) else {
                continue; // Not selected.
            };
            chunk.series = series;
            if !chunk.columns.is_empty() && !take(chunk)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The copied rings of a part, taken before its archive is looked at.
struct Rings {
    part: Arc<SnapshotPart>,
    streams: Vec<Arc<SnapshotStream>>,
    /// A copy for each stream; `None` if it is empty or has ended.
    copies: Vec<Option<Copied>>,
    /// The numbers up to which the archive had them before.
    reached: Reached,
}

impl Rings {
    fn copy(
        part: &Arc<SnapshotPart>,
        wanted: SeriesSelection<'_>,
        span: Span,
        scratch: &mut Vec<Sample>,
    ) -> Self {
        let is_wanted = |s: &&Arc<SnapshotStream>| wanted(&s.node, &s.entry.descriptor);
        let streams: Vec<Arc<SnapshotStream>> =
            part.streams().iter().filter(is_wanted).cloned().collect();
        let reached = Reached::of(part.view.as_deref(), wanted);
        let copy = |stream: &Arc<SnapshotStream>| {
            Copied::take(stream, reached.after(stream), span, scratch)
        };
        Self {
            copies: streams.iter().map(copy).collect(),
            part: Arc::clone(part),
            streams,
            reached,
        }
    }
}

struct Copied {
    columns: Columns,
    /// Number of the newest sample.
    newest: u64,
    /// Whether it has all samples of the span that the archive has, and more.
    is_complete: bool,
}

impl Copied {
    /// Copies a ring; `None` if the stream is empty or has ended.
    fn take(
        stream: &SnapshotStream,
        after: u64,
        span: Span,
        scratch: &mut Vec<Sample>,
    ) -> Option<Self> {
        // If the span has a beginning, the ring may hold all of it; for all time only the new
        // samples are copied.
        let has_beginning = span.from > i64::MIN;
        let after = if has_beginning { 0 } else { after };
        let (columns, newest) = stream.tail(after, scratch)?;
        let is_before = |oldest: &i64| oldest.saturating_add(SET_BACK_NS_MAX) < span.from;
        let reaches = columns.ts.first().is_some_and(is_before);
        Some(Self {
            is_complete: has_beginning && reaches && columns.ts.is_sorted(),
            columns,
            newest,
        })
    }
}

/// The numbers up to which the archive has the selected series.
struct Reached {
    /// Indices into the view's series.
    indexes: Vec<usize>,
    known: HashMap<(Arc<str>, SeriesId), (usize, ArchivedUpTo)>,
}

impl Reached {
    fn of(view: Option<&View>, wanted: SeriesSelection<'_>) -> Self {
        let mut reached = Self {
            indexes: Vec::new(),
            known: HashMap::new(),
        };
        let series = view.map_or(&[][..], View::series);
        for (index, one) in series.iter().enumerate() {
            if wanted(&one.node, &one.descriptor) {
                let known = (reached.indexes.len(), one.archived);
                reached.known.insert((Arc::clone(&one.node), one.id), known);
                reached.indexes.push(index);
            }
        }
        reached
    }

    fn get(&self, stream: &SnapshotStream) -> Option<&(usize, ArchivedUpTo)> {
        self.known
            .get(&(Arc::clone(&stream.node), stream.entry.series))
    }

    fn position(&self, stream: &SnapshotStream) -> Option<usize> {
        self.get(stream).map(|(position, _)| *position)
    }

    /// The number in the stream's life up to which the archive has it.
    fn after(&self, stream: &SnapshotStream) -> u64 {
        match self.get(stream) {
            Some((_, archived)) if archived.life == stream.life() => archived.number,
            Some((_, archived)) if archived.life > stream.life() => u64::MAX,
            _ => 0,
        }
    }
}

/// The rows after a number.
fn beyond(columns: Columns, after: u64) -> Columns {
    if columns.numbers.first().is_none_or(|first| *first > after) {
        return columns;
    }
    select(&columns, |row| columns.numbers[row] > after)
}

fn within(chunk: &SampleChunk, span: Span) -> Option<SampleChunk> {
    let columns = select(&chunk.columns, |row| span.holds(chunk.columns.ts[row]));
    (!columns.is_empty()).then_some(SampleChunk {
        series: chunk.series,
        life: chunk.life,
        columns,
    })
}

/// The rows for which `takes` returns true.
pub(crate) fn select(columns: &Columns, takes: impl Fn(usize) -> bool) -> Columns {
    let mut selected = Columns::new(columns.values.value_type());
    for row in (0..columns.len()).filter(|&row| takes(row)) {
        if let (Some(sample), Some(number)) = (columns.sample(row), columns.numbers.get(row)) {
            selected.push(*number, &sample);
        }
    }
    selected
}

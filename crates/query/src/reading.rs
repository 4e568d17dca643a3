//! One reading of series over rings, log and Parquet: each sample once.
//!
//! The archive wins, the ring completes (docs/design/0003-history.md): the rings are copied first, then
//! the archive's view is taken, and of a ring only the samples beyond the view count. What lies in
//! between was appended after the copy, and belongs to the next reading.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use barograph_archive::aggregate::{Budget, Fold};
use barograph_archive::{ArchiveError, Archived, Chunk, Series, View};
use barograph_model::{Buckets, Columns, Descriptor, Sample, SeriesId, Span};

use crate::QueryError;
use crate::live::Live;
use crate::stream::{SET_BACK_NS_MAX, Stream, identity};

/// Which series are meant, by node and descriptor.
pub(crate) type Wanted<'a> = &'a dyn Fn(&str, &Descriptor) -> bool;

/// A series of a reading.
pub(crate) struct Known {
    pub(crate) node: Arc<str>,
    pub(crate) descriptor: Arc<Descriptor>,
    /// Of the series on its node, for row ids.
    pub(crate) identity: u64,
    /// The times that the archive knows of it.
    pub(crate) archived: Option<Span>,
    /// When it lives.
    pub(crate) stream: Option<Arc<Stream>>,
    /// Life and number of its newest sample: of a living one, or, in an archive by itself, of any.
    pub(crate) newest: Option<(i64, u64)>,
}

impl Known {
    /// When its resource was last looked at, for a sample of this time.
    pub(crate) fn looked_ns(&self, ts: i64) -> i64 {
        match (&self.stream, self.archived) {
            (Some(stream), _) => stream.looked_ns(ts),
            (None, archived) => archived.map_or(ts, |span| span.to.max(ts)),
        }
    }
}

/// Some series at one moment. Chunks name them by their index here.
pub(crate) struct Reading {
    pub(crate) series: Vec<Known>,
    view: Option<Arc<View>>,
    /// Indexes into the view's series; those are the first of `series`, in the same order.
    archived: Vec<usize>,
    /// Those of them that have to be read from the archive.
    scanned: Vec<usize>,
    /// What the rings hold beyond the archive, by series.
    tails: Vec<Chunk>,
}

impl Reading {
    /// Takes the series that are wanted, ended ones too, to be read within the span.
    pub(crate) fn take(live: &Live, wanted: Wanted<'_>, span: Span) -> Result<Self, QueryError> {
        // First, so that of the rings only what is newer has to be copied.
        let before = live.past()?;
        let snapshot = live.current()?;
        let is_wanted = |s: &&Arc<Stream>| wanted(&s.node, &s.entry.descriptor);
        let streams: Vec<Arc<Stream>> =
            snapshot.streams.iter().filter(is_wanted).cloned().collect();
        let reached = Reached::of(before.as_deref(), wanted);
        let mut scratch = Vec::new();
        let copies: Vec<Option<Copied>> = streams
            .iter()
            .map(|stream| Copied::take(stream, reached.after(stream), span, &mut scratch))
            .collect();

        let view = live.past()?;
        let reached = match (&before, &view) {
            (Some(before), Some(view)) if Arc::ptr_eq(before, view) => reached,
            _ => Reached::of(view.as_deref(), wanted),
        };
        let mut reading = Self::of_archive(view, &reached, live.is_archive_alone());
        let mut complete = HashSet::new();
        for (stream, copy) in streams.into_iter().zip(copies) {
            let position = reached.position(&stream).unwrap_or(reading.series.len());
            if position == reading.series.len() {
                reading.series.push(Known {
                    node: Arc::clone(&stream.node),
                    descriptor: Arc::clone(&stream.descriptor),
                    identity: stream.identity,
                    archived: None,
                    stream: None,
                    newest: None,
                });
            }
            if let Some(copy) = copy {
                reading.series[position].newest = Some((stream.life(), copy.newest));
                // What is later than all that the ring has was before a clock was set back.
                let archived = reading.series[position].archived;
                let is_last =
                    archived.is_none_or(|known| copy.columns.ts.last() >= Some(&known.to));
                let columns = if copy.is_complete && is_last {
                    complete.insert(position);
                    copy.columns
                } else {
                    beyond(copy.columns, reached.after(&stream))
                };
                if !columns.is_empty() {
                    reading.tails.push(Chunk {
                        series: position,
                        life: stream.life(),
                        columns,
                    });
                }
            }
            reading.series[position].stream = Some(stream);
        }
        let is_scanned = |position: &usize| {
            let known = reading.series[*position].archived;
            !complete.contains(position) && known.is_some_and(|known| known.meets(&span))
        };
        let scanned = (0..reading.archived.len()).filter(is_scanned);
        reading.scanned = scanned.map(|position| reading.archived[position]).collect();
        Ok(reading)
    }

    /// The series that the archive knows.
    fn of_archive(view: Option<Arc<View>>, reached: &Reached, is_alone: bool) -> Self {
        let all = view.as_deref().map_or(&[][..], View::series);
        let known = |one: &Series| {
            let Archived { life, number } = one.archived;
            Known {
                node: Arc::clone(&one.node),
                descriptor: Arc::clone(&one.descriptor),
                identity: identity(&one.node, &one.id),
                archived: Some(one.known),
                stream: None,
                newest: (is_alone && number > 0).then_some((life, number)),
            }
        };
        Self {
            series: reached.indexes.iter().map(|&i| known(&all[i])).collect(),
            archived: reached.indexes.clone(),
            scanned: Vec::new(),
            tails: Vec::new(),
            view,
        }
    }

    /// The stretches of time that the archive can give one by one in order, oldest first.
    pub(crate) fn stretches(&self, span: Span) -> Vec<Span> {
        match &self.view {
            Some(view) if self.is_archived() => view.stretches(span),
            _ => Vec::new(),
        }
    }

    /// The ends of the rings, within the span.
    pub(crate) fn tails(&self, span: Span) -> impl Iterator<Item = Chunk> {
        self.tails.iter().filter_map(move |tail| within(tail, span))
    }

    /// The times of what was copied of a series' ring.
    #[cfg(feature = "bundled")]
    pub(crate) fn span_of_tail(&self, known: &Known) -> Option<Span> {
        let is_of = |tail: &&Chunk| std::ptr::eq(&raw const self.series[tail.series], known);
        let times = &self.tails.iter().find(is_of)?.columns.ts;
        let (from, to) = (*times.iter().min()?, *times.iter().max()?);
        Some(Span { from, to })
    }

    /// Whether anything is to be read from the archive.
    pub(crate) fn is_archived(&self) -> bool {
        !self.scanned.is_empty()
    }

    /// Hands the archive's chunks within the span to `take`, until it returns `false`. Chunks of a
    /// series and life come in the order of their numbers.
    pub(crate) fn each_archived(
        &self,
        span: Span,
        cancel: &AtomicBool,
        take: &mut dyn FnMut(Chunk) -> Result<bool, QueryError>,
    ) -> Result<bool, QueryError> {
        self.each_of(&self.scanned, span, cancel, take)
    }

    /// As [`Self::each_archived`], of the first series only: those at these positions, ascending.
    pub(crate) fn each_at(
        &self,
        positions: &[usize],
        span: Span,
        cancel: &AtomicBool,
        take: &mut dyn FnMut(Chunk) -> Result<bool, QueryError>,
    ) -> Result<bool, QueryError> {
        let indexes = positions.iter().filter_map(|&at| self.archived.get(at));
        let is_scanned = |index: &usize| self.scanned.binary_search(index).is_ok();
        let indexes: Vec<usize> = indexes.copied().filter(is_scanned).collect();
        self.each_of(&indexes, span, cancel, take)
    }

    fn each_of(
        &self,
        indexes: &[usize],
        span: Span,
        cancel: &AtomicBool,
        take: &mut dyn FnMut(Chunk) -> Result<bool, QueryError>,
    ) -> Result<bool, QueryError> {
        let Some(view) = self.view.as_ref().filter(|_| !indexes.is_empty()) else {
            return Ok(true);
        };
        for chunk in view.scan(indexes, span, cancel) {
            let mut chunk = chunk?;
            let Ok(series) = self.archived.binary_search(&chunk.series) else {
                continue; // Not asked for.
            };
            chunk.series = series;
            if !chunk.columns.is_empty() && !take(chunk)? {
                return Ok(false);
            }
        }
        if cancel.load(Ordering::Relaxed) {
            return Err(ArchiveError::Cancelled.into());
        }
        Ok(true)
    }

    /// All chunks within the span: the archive's, then the ends of the rings.
    pub(crate) fn each(
        &self,
        span: Span,
        cancel: &AtomicBool,
        take: &mut dyn FnMut(Chunk) -> Result<bool, QueryError>,
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

    /// The archive that is read, if there is one.
    #[cfg(feature = "bundled")]
    pub(crate) fn view(&self) -> Option<&View> {
        self.view.as_deref()
    }

    /// As [`Self::each`], only what is in no Parquet file: the log's chunks, then the ends of the rings.
    #[cfg(feature = "bundled")]
    pub(crate) fn each_unsealed(
        &self,
        span: Span,
        cancel: &AtomicBool,
        take: &mut dyn FnMut(Chunk) -> Result<bool, QueryError>,
    ) -> Result<bool, QueryError> {
        if let Some(view) = self.view.as_ref().filter(|_| self.is_archived()) {
            for chunk in view.scan_log(&self.archived, span, cancel) {
                let mut chunk = chunk?;
                if let Ok(series) = self.archived.binary_search(&chunk.series) {
                    chunk.series = series;
                    if !chunk.columns.is_empty() && !take(chunk)? {
                        return Ok(false);
                    }
                }
            }
        }
        for tail in self.tails(span) {
            if !take(tail)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The series by buckets of `step_ns`; those with nothing in the span have none. They count in the
    /// budget as long as it lives.
    pub(crate) fn buckets(
        &self,
        span: Span,
        step_ns: i64,
        threads: usize,
        cancel: &AtomicBool,
        budget: &Budget,
    ) -> Result<Vec<Buckets>, QueryError> {
        let empty = |known: &Known| Buckets::new(known.descriptor.value_type);
        let mut all: Vec<Buckets> = self.series.iter().map(empty).collect();
        if let Some(view) = self.view.as_ref().filter(|_| self.is_archived()) {
            let wanted = &self.scanned;
            let found = view.buckets_within(wanted, span, step_ns, threads, cancel, budget)?;
            for (index, buckets) in found {
                if let Ok(series) = self.archived.binary_search(&index) {
                    all[series] = buckets;
                }
            }
        }
        for tail in &self.tails {
            let mut fold = Fold::new(tail.columns.values.value_type(), step_ns);
            fold.add_buckets(&all[tail.series], Span::ALL);
            fold.add(&tail.columns, span);
            budget.settle(all[tail.series].len(), fold.len())?;
            all[tail.series] = fold.finish();
        }
        Ok(all)
    }
}

/// The copy of a ring.
struct Copied {
    columns: Columns,
    /// The number of the newest sample.
    newest: u64,
    /// It has all that the archive has of the span, and more.
    is_complete: bool,
}

impl Copied {
    /// `None` when the stream is empty or has ended.
    fn take(stream: &Stream, after: u64, span: Span, scratch: &mut Vec<Sample>) -> Option<Self> {
        // What has a beginning may be in the ring altogether; of all of time only the end is.
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

/// Up to where the archive holds the wanted series.
struct Reached {
    /// Indexes into the view's series.
    indexes: Vec<usize>,
    known: HashMap<(Arc<str>, SeriesId), (usize, Archived)>,
}

impl Reached {
    fn of(view: Option<&View>, wanted: Wanted<'_>) -> Self {
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

    fn get(&self, stream: &Stream) -> Option<&(usize, Archived)> {
        self.known
            .get(&(Arc::clone(&stream.node), stream.entry.series))
    }

    fn position(&self, stream: &Stream) -> Option<usize> {
        self.get(stream).map(|(position, _)| *position)
    }

    /// The number in the stream's life up to which the archive has it.
    fn after(&self, stream: &Stream) -> u64 {
        match self.get(stream) {
            Some((_, archived)) if archived.life == stream.life() => archived.number,
            Some((_, archived)) if archived.life > stream.life() => u64::MAX,
            _ => 0,
        }
    }
}

/// The rows beyond a number.
fn beyond(columns: Columns, after: u64) -> Columns {
    if columns.numbers.first().is_none_or(|first| *first > after) {
        return columns;
    }
    select(&columns, |row| columns.numbers[row] > after)
}

fn within(chunk: &Chunk, span: Span) -> Option<Chunk> {
    let columns = select(&chunk.columns, |row| span.holds(chunk.columns.ts[row]));
    (!columns.is_empty()).then_some(Chunk {
        series: chunk.series,
        life: chunk.life,
        columns,
    })
}

/// The rows that are taken.
pub(crate) fn select(columns: &Columns, takes: impl Fn(usize) -> bool) -> Columns {
    let mut selected = Columns::new(columns.values.value_type());
    for row in (0..columns.len()).filter(|&row| takes(row)) {
        if let (Some(sample), Some(number)) = (columns.sample(row), columns.numbers.get(row)) {
            selected.push(*number, &sample);
        }
    }
    selected
}

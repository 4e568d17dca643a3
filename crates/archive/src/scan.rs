//! The samples of a view, read one row group or run of log frames at a time.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use barograph_model::{SeriesId, Span};

use crate::compose::within;
use crate::log::LogPart;
use crate::manifest::union;
use crate::parquet::{NumberBuffers, ParquetIndex, ParquetPart, RowsPiece, SampleGroup, plan};
use crate::sets::{HourSets, OpenSet};
use crate::snapshot::NodeSnapshot;
use crate::tier::HOUR_NS;
use crate::{ArchiveError, SampleChunk, Tier, View, ViewScan};

/// Bytes of a log segment that are read at a time.
const LOG_BYTES: u64 = 8 << 20;
/// Most hours for which each stretch is of one hour. If there are more, after the clock was
/// changed, stretches are of several hours.
const STRETCHES_MAX: i64 = 128 << 10;

impl View {
    /// Returns disjoint stretches of time, oldest first, such that no sample of one lies in
    /// another: to get rows in order of time, sort one stretch at a time. They end at full hours.
    pub fn stretches(&self, span: Span) -> Vec<Span> {
        let mut spans: Vec<Span> = Vec::new();
        for node in &self.nodes {
            let raw = node.sealed.manifest.parts.iter();
            let raw = raw.filter(|(key, _)| key.tier == Tier::Raw);
            spans.extend(raw.map(|(_, part)| part.span));
            spans.extend(node.logs.iter().map(|log| log.span()));
        }
        // A span without samples ends before it begins.
        spans.retain(|s| s.from <= s.to && s.meets(&span));
        spans.sort_by_key(|span| span.from);
        let mut runs: Vec<Span> = Vec::new();
        for next in spans {
            let next = Span {
                from: next.from.max(span.from),
                to: next.to.min(span.to),
            };
            match runs.last_mut() {
                Some(run) if next.from <= run.to => *run = union(*run, next),
                _ => runs.push(next),
            }
        }
        let hours = |run: &Span| run.to.div_euclid(HOUR_NS) - run.from.div_euclid(HOUR_NS) + 1;
        let all: i64 = runs.iter().map(hours).sum();
        let step = (all / STRETCHES_MAX + 1) * HOUR_NS;
        let mut stretches = Vec::new();
        for run in runs {
            let mut from = run.from;
            loop {
                let start = from.saturating_sub(from.rem_euclid(step));
                let to = start.saturating_add(step - 1).max(from).min(run.to);
                stretches.push(Span { from, to });
                if to == run.to {
                    break;
                }
                from = to + 1;
            }
        }
        stretches
    }

    /// Returns the samples of the wanted series (indexes into [`Self::series`], ascending) within
    /// the span, each once. Chunks of one series and life are in the order of their numbers, except
    /// where the clock was set back to an hour that had passed.
    pub fn scan<'a>(
        &'a self,
        wanted: &'a [usize],
        span: Span,
        cancel: &'a AtomicBool,
    ) -> ViewScan<'a> {
        Box::new(Scanner::new(self, wanted, span, cancel))
    }

    /// Like [`Self::scan`], but only samples that no Parquet file of [`Self::parts`] has: those in
    /// the log.
    pub fn scan_log<'a>(
        &'a self,
        wanted: &'a [usize],
        span: Span,
        cancel: &'a AtomicBool,
    ) -> ViewScan<'a> {
        Box::new(Scanner::of_logs(self, wanted, span, cancel))
    }
}

/// An iterator over the chunks of the files of a view.
pub(crate) struct Scanner<'a> {
    view: &'a View,
    span: Span,
    cancel: &'a AtomicBool,
    /// The wanted series of each node, with their places in the view.
    wanted: Vec<HashMap<SeriesId, usize>>,
    work: VecDeque<Work>,
    ready: VecDeque<SampleChunk>,
    numbered: NumberBuffers,
    failed: bool,
}

/// Remaining work; the number is the index of the node.
enum Work {
    /// The sets of an hour: they are opened together, since a merge replaces them together.
    Hour(usize, HourSets),
    /// A raw file and its row groups, last first.
    Part(usize, OpenPart, Vec<(usize, Vec<RowsPiece>)>),
    /// A log segment, from this block on.
    Log(usize, Arc<LogPart>, usize),
}

/// A raw file with its index.
struct OpenPart {
    part: Arc<ParquetPart>,
    index: Arc<ParquetIndex>,
    beyond: bool,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(
        view: &'a View,
        wanted: &[usize],
        span: Span,
        cancel: &'a AtomicBool,
    ) -> Self {
        let wanted: Vec<_> = view
            .nodes
            .iter()
            .map(|node| wanted_of(view, node, wanted))
            .collect();
        let mut work = VecDeque::new();
        for (at, node) in view.nodes.iter().enumerate() {
            if wanted[at].is_empty() {
                continue;
            }
            let hours = HourSets::of(&node.sealed.manifest, &|sets| sets.has_raw(span));
            work.extend(hours.into_iter().map(|sets| Work::Hour(at, sets)));
            let logs = node.logs.iter().filter(|log| log.span().meets(&span));
            work.extend(logs.map(|log| Work::Log(at, Arc::clone(log), 0)));
        }
        Self {
            view,
            span,
            cancel,
            wanted,
            work,
            ready: VecDeque::new(),
            numbered: NumberBuffers::default(),
            failed: false,
        }
    }

    /// Returns a scanner of only the samples that are in no Parquet file yet.
    pub(crate) fn of_logs(
        view: &'a View,
        wanted: &[usize],
        span: Span,
        cancel: &'a AtomicBool,
    ) -> Self {
        let mut scanner = Self::new(view, wanted, span, cancel);
        scanner.work.retain(|work| matches!(work, Work::Log(..)));
        scanner
    }

    /// Does one piece of work.
    fn step(&mut self, work: Work) -> Result<(), ArchiveError> {
        match work {
            Work::Hour(at, sets) => {
                let node = &self.view.nodes[at];
                let sets = sets.open(node, &self.view.handles, &|_| (Tier::Raw, None))?;
                for set in sets.into_iter().rev() {
                    self.begin(at, set)?;
                }
            }
            Work::Part(at, part, mut groups) => {
                if let Some((group, pieces)) = groups.pop() {
                    self.read_group(at, &part, group, &pieces)?;
                    self.work.push_front(Work::Part(at, part, groups));
                }
            }
            Work::Log(at, log, block) => self.read_log(at, log, block)?,
        }
        Ok(())
    }

    fn begin(&mut self, at: usize, set: OpenSet) -> Result<(), ArchiveError> {
        for (tier, part) in set.parts {
            // A coarser tier replaces raw only if buckets are wanted.
            if tier != Tier::Raw {
                continue;
            }
            let index = part.index()?;
            let wanted = &self.wanted[at];
            let pieces = plan(&index, self.span, &|_, series| {
                wanted.contains_key(&series.id)
            });
            let groups = pieces.into_iter().enumerate();
            let groups = groups.filter(|(_, pieces)| !pieces.is_empty());
            let groups = groups.rev().collect();
            let part = OpenPart {
                part,
                index,
                beyond: set.beyond,
            };
            self.work.push_front(Work::Part(at, part, groups));
        }
        Ok(())
    }

    fn read_group(
        &mut self,
        at: usize,
        part: &OpenPart,
        group: usize,
        pieces: &[RowsPiece],
    ) -> Result<(), ArchiveError> {
        let mut rows = SampleGroup::new(&part.part, &part.index, group);
        for piece in pieces {
            let series = &part.index.series[piece.series];
            let Some(place) = self.wanted[at].get(&series.id) else {
                continue;
            };
            let life = series.lives[piece.life].life;
            let columns = rows.columns(piece, &mut self.numbered)?;
            let mut columns = cut(columns, self.span);
            if part.beyond {
                self.view.nodes[at].cut_beyond(series.id, life, &mut columns);
            }
            if !columns.is_empty() {
                self.ready.push_back(SampleChunk {
                    series: *place,
                    life,
                    columns,
                });
            }
        }
        Ok(())
    }

    fn read_log(&mut self, at: usize, log: Arc<LogPart>, block: usize) -> Result<(), ArchiveError> {
        let wanted = &self.wanted[at];
        let ready = &mut self.ready;
        let next = log.read_from(
            block,
            LOG_BYTES,
            &|series| wanted.contains_key(&series.id),
            self.span,
            self.cancel,
            &mut |index, columns| {
                let series = &log.series()[index];
                if let Some(place) = wanted.get(&series.id) {
                    ready.push_back(SampleChunk {
                        series: *place,
                        life: series.life,
                        columns,
                    });
                }
                Ok(())
            },
        )?;
        if let Some(next) = next {
            self.work.push_front(Work::Log(at, log, next));
        }
        Ok(())
    }
}

impl Iterator for Scanner<'_> {
    type Item = Result<SampleChunk, ArchiveError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.failed {
                return None;
            }
            if self.cancel.load(Ordering::Relaxed) {
                self.failed = true;
                return Some(Err(ArchiveError::Cancelled));
            }
            if let Some(chunk) = self.ready.pop_front() {
                return Some(Ok(chunk));
            }
            let work = self.work.pop_front()?;
            if let Err(error) = self.step(work) {
                self.failed = true;
                return Some(Err(error));
            }
        }
    }
}

/// Returns the wanted series of a node, with their places in the view.
pub(crate) fn wanted_of(
    view: &View,
    node: &NodeSnapshot,
    wanted: &[usize],
) -> HashMap<SeriesId, usize> {
    let series = wanted.iter().filter_map(|place| {
        let series = view.series().get(*place)?;
        (node.places.get(&series.id) == Some(place)).then_some((series.id, *place))
    });
    series.collect()
}

fn cut(columns: barograph_model::Columns, span: Span) -> barograph_model::Columns {
    match columns.ts.iter().all(|ts| span.holds(*ts)) {
        true => columns,
        false => within(&columns, span),
    }
}

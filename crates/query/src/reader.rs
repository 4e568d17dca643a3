//! Reads the past of streams without SQL, for PromQL, the server's history endpoint, and clients.
//!
//! It stands alone because it uses the seam's types ([`Past`]) and no SQLite; `reading` combines
//! rings, log and Parquet, as for the tables.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use barograph_archive::aggregate::BucketBudget;
use barograph_archive::{ArchiveError, SampleChunk};
use barograph_model::{
    Buckets, Clock, Columns, Past, PastRequest, PastSamples, PastSeries, SAMPLE_BYTES, Span,
    SqlFault, SqlFaultKind,
};
use barograph_stream::{RunDir, ScopeChoice, StreamError, is_node_name};

use crate::QueryError;
use crate::asof::{append, order_by_time, sorted};
use crate::fault::fault;
use crate::live::Live;
use crate::reading::{KnownSeries, Reading, SeriesSelection, around, select};
use crate::snapshot::StreamsSnapshot;

/// A reader of the past of a run directory's streams, usable from any thread.
pub struct PastReader {
    live: Live,
}

impl std::fmt::Debug for PastReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PastReader")
            .field("run_dir", &self.live.run_dir())
            .finish_non_exhaustive()
    }
}

/// Bytes of memory for one bucket, both as read and as returned.
const BUCKET_BYTES: usize = 2 * SAMPLE_BYTES;

/// The newest samples of one series within a span.
#[derive(Clone, Debug)]
pub struct NewestOfSeries {
    /// The series of the samples.
    pub series: PastSeries,
    /// Whether the stream is alive now.
    pub is_living: bool,
    /// The samples in order of time.
    pub columns: Columns,
    /// Number of older samples of the span that the bound left out.
    pub left_out: usize,
}

impl PastReader {
    /// Opens the segment of a run directory, those of these scopes, and the archives of their
    /// agent.
    pub fn open(
        run_dir: &RunDir,
        scopes: ScopeChoice,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, QueryError> {
        let live = Live::open(run_dir, scopes, clock)?;
        Ok(Self { live })
    }

    /// Opens an archive alone, or beside the rings of a run directory.
    #[doc(hidden)]
    pub fn over(
        run_dir: Option<&RunDir>,
        views: crate::Views,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, QueryError> {
        let live = Live::over(run_dir, views, clock)?;
        Ok(Self { live })
    }

    /// The archive's directory, if the agent keeps an archive.
    pub fn archive_dir(&self) -> Option<PathBuf> {
        self.live.archive_dir()
    }

    /// Sets the most threads that one read over much history may use (2 by default).
    #[must_use]
    pub fn with_threads(self, threads: usize) -> Self {
        self.live.set_threads(threads);
        self
    }

    /// The newest samples of the span, at most `samples_max` over all series: in order of name,
    /// labels and node, each series takes from what the ones before it leave. Living streams are
    /// included even without samples.
    pub fn newest(
        &self,
        wanted: SeriesSelection<'_>,
        span: Span,
        samples_max: usize,
        cancel: &AtomicBool,
    ) -> Result<Vec<NewestOfSeries>, SqlFault> {
        let (reading, snapshot) = self.take(wanted, span)?;
        let order = order(&reading);
        let mut kept = Kept::new(&reading, samples_max);
        let all = |chunk: SampleChunk| {
            kept.add(&chunk, &order);
            Ok(true)
        };
        reading.each(span, cancel, &mut { all }).map_err(told)?;
        let Kept {
            mut columns, seen, ..
        } = kept;
        let mut room = samples_max;
        let mut found = Vec::new();
        for series in order {
            let known = &reading.series[series];
            let all = sorted(std::mem::replace(&mut columns[series], empty(known)));
            let (fits, weight) = fitting(&all, room);
            if seen[series] == 0 && known.stream.is_none() {
                continue;
            }
            let first = all.len() - fits;
            room -= weight;
            found.push(NewestOfSeries {
                series: past_series(known, &reading, &snapshot),
                is_living: known.stream.is_some(),
                columns: select(&all, |row| row >= first),
                left_out: seen[series] - fits,
            });
        }
        Ok(found)
    }

    pub(crate) fn take(
        &self,
        wanted: SeriesSelection<'_>,
        span: Span,
    ) -> Result<(Reading, Arc<StreamsSnapshot>), SqlFault> {
        // This notices an agent that was replaced.
        let snapshot = self.live.attend()?;
        Ok((Reading::take(&self.live, wanted, span)?, snapshot))
    }
}

impl Past for PastReader {
    fn of_node(&self, node: &str) -> Result<Option<Box<dyn Past>>, SqlFault> {
        let Some(run_dir) = self.live.run_dir().filter(|_| is_node_name(node)) else {
            return Ok(None);
        };
        let clock = Arc::clone(self.live.clock());
        match Self::open(&run_dir.mirror(node), ScopeChoice::None, clock) {
            Err(QueryError::Stream(StreamError::NoAgent { .. })) => Ok(None),
            opened => Ok(Some(Box::new(opened?.with_threads(self.live.threads())))),
        }
    }

    fn series(&self, request: &PastRequest<'_>) -> Result<Vec<PastSeries>, SqlFault> {
        let (reading, snapshot) = self.take(request.wanted, request.span)?;
        let series = order(&reading).into_iter();
        let series = series.map(|at| past_series(&reading.series[at], &reading, &snapshot));
        let is_there = |s: &PastSeries| s.known.from <= s.known.to && s.known.meets(&request.span);
        Ok(series.filter(is_there).collect())
    }

    fn read(&self, request: &PastRequest<'_>) -> Result<Vec<PastSamples>, SqlFault> {
        let (reading, snapshot) = self.take(request.wanted, request.span)?;
        let mut all: Vec<Columns> = reading.series.iter().map(empty).collect();
        let mut lives = vec![LivesOfRows::default(); all.len()];
        let (mut count, mut has_room) = (0_usize, true);
        let is_whole = reading.each(request.span, request.cancel, &mut |chunk| {
            count += chunk.columns.weight();
            lives[chunk.series].add(all[chunk.series].len(), chunk.life);
            append(&mut all[chunk.series], &chunk.columns);
            has_room = (request.holds)(count.saturating_mul(SAMPLE_BYTES));
            Ok(count <= request.samples_max && has_room)
        });
        let is_whole = is_whole.map_err(told)?;
        if !has_room {
            return Err(no_room());
        }
        if !is_whole {
            return Err(too_many("samples", request.samples_max));
        }
        let found = order(&reading).into_iter().filter_map(|series| {
            let known = &reading.series[series];
            let columns = std::mem::replace(&mut all[series], empty(known));
            let begins = lives[series].begins(&columns.ts);
            let is_there = !columns.is_empty();
            is_there.then(|| PastSamples {
                series: past_series(known, &reading, &snapshot),
                columns: sorted(columns),
                begins,
            })
        });
        Ok(found.collect())
    }

    fn buckets(
        &self,
        request: &PastRequest<'_>,
        step_ns: i64,
    ) -> Result<Vec<(PastSeries, Buckets)>, SqlFault> {
        if step_ns <= 0 {
            let message = "the step must be a positive number of nanoseconds";
            return Err(fault(SqlFaultKind::Statement, message));
        }
        let (reading, snapshot) = self.take(request.wanted, around(request.span))?;
        let threads = self.live.threads();
        let holds = |buckets: usize| (request.holds)(buckets.saturating_mul(BUCKET_BYTES));
        let budget = BucketBudget::asking(in_the_making(request.samples_max), &holds);
        let found = reading.buckets(request.span, step_ns, threads, request.cancel, &budget);
        let mut found = found.map_err(|error| match error {
            QueryError::Archive(ArchiveError::TooManyBuckets) if budget.is_refused() => no_room(),
            QueryError::Archive(ArchiveError::TooManyBuckets) => {
                too_many("buckets", request.samples_max)
            }
            other => told(other),
        })?;
        let count = found.iter().map(Buckets::len).sum::<usize>();
        if count > request.samples_max {
            return Err(too_many("buckets", request.samples_max));
        }
        if !(request.holds)(count.saturating_mul(BUCKET_BYTES)) {
            return Err(no_room());
        }
        let all = order(&reading).into_iter().filter_map(|series| {
            let known = &reading.series[series];
            let none = Buckets::new(known.descriptor.value_type);
            let buckets = std::mem::replace(&mut found[series], none);
            let is_there = !buckets.is_empty();
            is_there.then(|| (past_series(known, &reading, &snapshot), buckets))
        });
        Ok(all.collect())
    }
}

/// The lives of the rows of a series, in the order in which the rows were read.
#[derive(Clone, Debug, Default)]
struct LivesOfRows(
    /// The first row of each run of rows of one life, and that life.
    Vec<(usize, i64)>,
);

impl LivesOfRows {
    /// Notes that the rows from this one on are of this life.
    fn add(&mut self, row: usize, life: i64) {
        if self.0.last().is_none_or(|(_, last)| *last != life) {
            self.0.push((row, life));
        }
    }

    /// Returns the first row of each life but the earliest, once the rows are sorted by these
    /// times.
    fn begins(&self, ts: &[i64]) -> Vec<usize> {
        if ts.is_sorted() {
            return firsts(self.0.iter().copied());
        }
        let life_of = |row: usize| {
            let after = self.0.partition_point(|(first, _)| *first <= row);
            self.0[after - 1].1
        };
        let rows = order_by_time(ts).into_iter().map(life_of);
        firsts(rows.enumerate())
    }
}

/// Returns the rows at which lives are met for the first time, but for the first of all.
fn firsts(lives: impl Iterator<Item = (usize, i64)>) -> Vec<usize> {
    let mut met = BTreeSet::new();
    let begin = lives.filter(|(_, life)| met.insert(*life)).skip(1);
    begin.map(|(row, _)| row).collect()
}

/// Most buckets that may exist before buckets of the same time are merged: there are several where
/// row groups meet, and if the clock was set back.
fn in_the_making(buckets_max: usize) -> usize {
    const SLACK: usize = 100_000;
    buckets_max.saturating_add(SLACK.max(buckets_max / 2))
}

/// The samples that `newest` keeps while it reads: more than fit, so that it is cut seldom.
struct Kept {
    columns: Vec<Columns>,
    /// Number of samples of each series, including those that were cut.
    seen: Vec<usize>,
    count: usize,
    samples_max: usize,
}

impl Kept {
    fn new(reading: &Reading, samples_max: usize) -> Self {
        Self {
            columns: reading.series.iter().map(empty).collect(),
            seen: vec![0; reading.series.len()],
            count: 0,
            samples_max,
        }
    }

    fn add(&mut self, chunk: &SampleChunk, order: &[usize]) {
        /// A smaller excess is not worth a cut.
        const SLACK: usize = 100_000;
        append(&mut self.columns[chunk.series], &chunk.columns);
        self.seen[chunk.series] += chunk.columns.len();
        self.count += chunk.columns.weight();
        if self.count <= self.samples_max.saturating_mul(2).saturating_add(SLACK) {
            return;
        }
        // The room of a series only shrinks as those before it grow: samples that do not fit now
        // never will.
        let mut room = self.samples_max;
        self.count = 0;
        for &series in order {
            let all = &mut self.columns[series];
            let before = all.weight();
            if before > room {
                let ordered = sorted(std::mem::replace(
                    all,
                    Columns::new(all.values.value_type()),
                ));
                let (fits, _) = fitting(&ordered, room);
                let first = ordered.len() - fits;
                *all = select(&ordered, |row| row >= first);
            }
            let weight = all.weight();
            room -= weight;
            self.count += weight;
        }
    }
}

/// The number of the newest samples that fit, and their weight.
fn fitting(ordered: &Columns, room: usize) -> (usize, usize) {
    let (mut fits, mut weight) = (0, 0);
    for row in (0..ordered.len()).rev() {
        let more = ordered.weight_of(row);
        if weight + more > room {
            break;
        }
        (fits, weight) = (fits + 1, weight + more);
    }
    (fits, weight)
}

fn empty(known: &KnownSeries) -> Columns {
    Columns::new(known.descriptor.value_type)
}

/// The indices of the series, sorted by name, labels and node.
fn order(reading: &Reading) -> Vec<usize> {
    let key = |&at: &usize| {
        let known = &reading.series[at];
        (
            &known.descriptor.name,
            &known.descriptor.labels,
            &known.node,
        )
    };
    let mut order: Vec<usize> = (0..reading.series.len()).collect();
    order.sort_by(|a, b| key(a).cmp(&key(b)));
    order
}

fn past_series(known: &KnownSeries, reading: &Reading, snapshot: &StreamsSnapshot) -> PastSeries {
    // The span ends before it begins if there is no sample.
    let mut span = Span {
        from: i64::MAX,
        to: i64::MIN,
    };
    for part in known
        .archived
        .into_iter()
        .chain(reading.span_of_tail(known))
    {
        span.from = span.from.min(part.from);
        span.to = span.to.max(part.to);
    }
    let mut interval_ns = 0;
    if let Some(stream) = &known.stream {
        if span.from <= span.to {
            span.to = stream.looked_ns(span.to);
        }
        interval_ns = snapshot.interval_ns(&stream.entry);
    }
    PastSeries {
        node: Arc::clone(&known.node),
        descriptor: Arc::clone(&known.descriptor),
        known: span,
        interval_ns,
        is_living: known.stream.is_some(),
    }
}

pub(crate) fn too_many(what: &str, most: usize) -> SqlFault {
    let message = format!(
        "there are more than {most} {what}: ask for a shorter span, fewer series or a longer step"
    );
    fault(SqlFaultKind::Limit, message)
}

fn no_room() -> SqlFault {
    let message = "what is asked at once holds too much memory: ask again in a moment, or for a shorter \
                   span, fewer series or a longer step";
    fault(SqlFaultKind::Limit, message)
}

pub(crate) fn told(error: QueryError) -> SqlFault {
    match error {
        QueryError::Archive(ArchiveError::Cancelled) => fault(
            SqlFaultKind::Cancelled,
            "the read was cancelled by its asker",
        ),
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_begins_once() {
        let check = |runs: &[(usize, i64)], ts: &[i64], expect: &[usize]| {
            let mut lives = LivesOfRows::default();
            for (row, life) in runs {
                lives.add(*row, *life);
            }
            assert_eq!(lives.begins(ts), expect, "{runs:?} at {ts:?}");
        };
        check(&[], &[], &[]);
        check(&[(0, 5), (2, 5)], &[1, 2, 3, 4], &[]);
        // The numbers of the second life may go on where those of the first end.
        check(&[(0, 5), (2, 9), (3, 9)], &[1, 2, 3, 4], &[2]);
        check(&[(0, 9), (2, 5)], &[3, 4, 1, 2], &[2]);
        // The clock was set back within a life, and over two of them.
        check(&[(0, 5)], &[3, 1, 2], &[]);
        check(&[(0, 5), (2, 9)], &[1, 3, 2, 4], &[1]);
    }
}

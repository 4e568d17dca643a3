//! The past of a node's streams: samples that its rings no longer hold, and its archive does.
//!
//! A feed knows no files. It asks for what a subscriber's history lacks, goes on with its other
//! streams, and takes the samples when they are there.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;

use barograph_model::{Descriptor, Sample, Selector, SeriesId};

/// A place among the samples of a series: a life of its stream, and a number in that life. Places
/// are ordered as the samples are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LifePoint {
    /// Time at which the stream was registered, ns since the epoch.
    pub life_ns: i64,
    /// Number of a sample in that life, from 1; 0 is before the first.
    pub number: u64,
}

/// Samples of one series that its ring no longer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastGap {
    /// The series.
    pub series: SeriesId,
    /// Place of the newest sample that the subscriber has.
    pub after: LifePoint,
    /// Time of that sample, ns since the epoch; `None` if it is not known.
    pub after_ns: Option<i64>,
    /// Place of the first sample that is not wanted.
    pub before: LifePoint,
}

/// Successive samples of one life of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct PastRun {
    /// Place of the stream among the gaps that were asked for.
    pub gap: usize,
    /// The life, as in [`LifePoint::life_ns`].
    pub life_ns: i64,
    /// Number of the first sample in that life.
    pub first: u64,
    /// The samples, with numbers one after the other.
    pub samples: Vec<Sample>,
}

/// Samples that a reading has found. It may end before a gap is closed: then it is asked for the
/// rest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PastSamples {
    /// The samples, for each gap in the order of their places.
    pub runs: Vec<PastRun>,
    /// Number of gaps, from the first on, that were looked for. There was no time or room for the
    /// others.
    pub looked: usize,
    /// Gaps that could not be read at present, or not entirely, by place among the gaps.
    pub failed: Vec<usize>,
}

/// The question for the lives that have ended, and that a subscriber lacks entirely or in part.
#[derive(Clone, Debug)]
pub struct EndedQuery {
    /// The wanted streams.
    pub selectors: Vec<Selector>,
    /// Last sample of each series that the subscriber knows.
    pub has: Arc<HashMap<SeriesId, LifePoint>>,
    /// Of series that it does not know, it lacks the lives that began after this time, ns since the
    /// epoch; `None`: it wants none of them.
    pub known_until_ns: Option<i64>,
    /// The lives that have not ended.
    pub present: HashMap<SeriesId, i64>,
    /// Most series of the answer.
    pub series_max: usize,
}

/// A series with lives that have ended, and that a subscriber lacks entirely or in part.
#[derive(Clone, Debug, PartialEq)]
pub struct EndedSeries {
    /// Descriptor of its stream.
    pub descriptor: Arc<Descriptor>,
    /// Samples that are lacking.
    pub gap: PastGap,
}

/// The answer to an [`EndedQuery`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndedList {
    /// The series.
    pub series: Vec<EndedSeries>,
    /// Number of further series, which are more than were asked for.
    pub unlisted: u64,
    /// Whether they could not be listed at present.
    pub is_failed: bool,
}

/// The part that has the past of this node's own streams, or of those of a scope.
pub trait PastSource: Debug + Send + Sync {
    /// Begins to read samples of these gaps, a bounded number of them; `None` if nothing more can
    /// be read at present: ask again.
    fn read(&self, gaps: Vec<PastGap>) -> Option<Box<dyn PastReading<PastSamples>>>;

    /// Begins to look for lives that have ended; `None` if it cannot be done at present: ask again.
    fn list(&self, query: EndedQuery) -> Option<Box<dyn PastReading<EndedList>>>;

    /// The past of the streams of a scope of this node's applications; `None` if it has none.
    fn of_scope(&self, scope: &str) -> Option<Arc<dyn PastSource>> {
        let _ = scope;
        None
    }
}

/// A reading of the past. It counts as under way until it is dropped.
pub trait PastReading<T>: Debug + Send {
    /// Result of the reading, once; `None` while it is being read. It does not wait.
    fn take(&mut self) -> Option<T>;
}

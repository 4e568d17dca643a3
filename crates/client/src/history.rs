//! The past of streams, from rings, log and Parquet files.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use barograph_model::{Clock, Descriptor, Sample, Selector, Span, SqlFault};
use barograph_query::{NewestOfSeries, PastReader, QueryError, ScopeChoice};
use barograph_stream::RunDir;

use crate::view::NodeView;

/// Default for the most samples of one answer of history.
pub const HISTORY_SAMPLES_DEFAULT: usize = 1_000_000;

/// A part of the past: a time range and a bound on the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryRange {
    /// Start of the range, ns since the epoch, inclusive.
    pub start_ns: i64,
    /// End of the range, ns since the epoch, exclusive.
    pub stop_ns: i64,
    /// Most samples over all streams. Those beyond it are left out, the oldest of each stream
    /// first, and counted.
    pub samples_max: usize,
}

impl Default for HistoryRange {
    /// The whole past.
    fn default() -> Self {
        Self {
            start_ns: i64::MIN,
            stop_ns: i64::MAX,
            samples_max: HISTORY_SAMPLES_DEFAULT,
        }
    }
}

/// The past of one stream.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// The stream's descriptor.
    pub descriptor: Arc<Descriptor>,
    /// The interval between two looks at the resource, in ns; 0 if it is not known.
    pub interval_ns: i64,
    /// The samples, oldest first.
    pub samples: Vec<Sample>,
    /// Number of samples inside the window that were left out because of the bound.
    pub left_out: usize,
}

/// The reader of the past, opened when it is first needed.
#[derive(Default)]
pub(crate) struct PastOnce(OnceLock<PastReader>);

impl PastOnce {
    pub(crate) fn open(
        &self,
        run_dir: &RunDir,
        scopes: ScopeChoice,
        clock: &Arc<dyn Clock>,
    ) -> Result<&PastReader, QueryError> {
        if let Some(reader) = self.0.get() {
            return Ok(reader);
        }
        // If two threads open a reader at once, one of the two is kept.
        let reader = PastReader::open(run_dir, scopes, Arc::clone(clock))?;
        Ok(self.0.get_or_init(|| reader))
    }
}

/// Returns the past of the matching streams of a node, from rings and archive.
pub(crate) fn history_of(
    reader: &PastReader,
    node: &str,
    selector: &Selector,
    window: &HistoryRange,
    cancel: &AtomicBool,
) -> Result<Vec<History>, SqlFault> {
    let wanted = |of: &str, descriptor: &Descriptor| {
        of == node && selector.matches(descriptor.name.as_str(), &descriptor.labels)
    };
    let span = Span {
        from: window.start_ns,
        to: window.stop_ns.saturating_sub(1),
    };
    let found = reader.newest(&wanted, span, window.samples_max, cancel)?;
    Ok(found.into_iter().map(History::from).collect())
}

/// Returns the past of the matching streams as far as the rings hold it.
pub(crate) fn history_of_rings(
    view: &NodeView,
    selector: &Selector,
    window: &HistoryRange,
) -> Vec<History> {
    let mut room = window.samples_max;
    let mut histories = Vec::new();
    for known in view.matching(selector) {
        let mut samples = Vec::new();
        if known.handle.scan(0, &mut samples).is_none() {
            continue; // The stream has just ended.
        }
        samples.retain(|s| (window.start_ns..window.stop_ns).contains(&s.ts));
        let left_out = samples.len().saturating_sub(room);
        samples.drain(..left_out);
        room -= samples.len();
        histories.push(History {
            descriptor: Arc::clone(&known.descriptor),
            interval_ns: known.interval_ns(),
            samples,
            left_out,
        });
    }
    histories
}

impl From<NewestOfSeries> for History {
    fn from(newest: NewestOfSeries) -> Self {
        let columns = &newest.columns;
        let samples = (0..columns.len()).filter_map(|row| columns.sample(row));
        Self {
            descriptor: newest.series.descriptor,
            interval_ns: newest.series.interval_ns,
            samples: samples.collect(),
            left_out: newest.left_out,
        }
    }
}

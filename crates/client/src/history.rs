//! What rings, log and Parquet hold of the past.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use barograph_model::{Descriptor, Sample, Selector, Span, SqlFault};
use barograph_query::{Newest, PastReader, QueryError, Scopes};

use crate::Observer;

/// Samples that [`Observer::history`] gives unless asked otherwise.
pub const HISTORY_SAMPLES_DEFAULT: usize = 1_000_000;

/// Which part of the past is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// From this time on, ns since the epoch.
    pub start_ns: i64,
    /// Before this time.
    pub stop_ns: i64,
    /// Most samples over all streams; what is beyond is left out, oldest of each stream first, and
    /// counted.
    pub samples_max: usize,
}

impl Default for Window {
    /// All that is known.
    fn default() -> Self {
        Self {
            start_ns: i64::MIN,
            stop_ns: i64::MAX,
            samples_max: HISTORY_SAMPLES_DEFAULT,
        }
    }
}

/// One stream's past.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// Whose.
    pub descriptor: Arc<Descriptor>,
    /// How often the resource is looked at, in ns; 0 when nobody has said.
    pub interval_ns: i64,
    /// Oldest first.
    pub samples: Vec<Sample>,
    /// Samples inside the window that the bound left out.
    pub left_out: usize,
}

/// The reader of the past, made when it is first asked for.
#[derive(Default)]
pub(crate) struct Reader(OnceLock<PastReader>);

impl Observer {
    /// What is known of the streams that match, of ended ones too: each sample once, whether a ring, the
    /// log or Parquet has it. A gap between two samples means that the older one held. When the archive
    /// cannot be read these are the rings' samples; [`Observer::try_history`] says why.
    pub fn history(&self, selector: &Selector, window: &Window) -> Vec<History> {
        let found = self.try_history(selector, window, &AtomicBool::new(false));
        found.unwrap_or_else(|_| self.history_of_rings(selector, window))
    }

    /// As [`Observer::history`]; an archive that cannot be read is an error. Stops soon after `cancel` is
    /// set.
    pub fn try_history(
        &self,
        selector: &Selector,
        window: &Window,
        cancel: &AtomicBool,
    ) -> Result<Vec<History>, SqlFault> {
        let node = self.view().segment().node();
        let wanted = |of: &str, descriptor: &Descriptor| {
            of == node && selector.matches(descriptor.name.as_str(), &descriptor.labels)
        };
        let span = Span {
            from: window.start_ns,
            to: window.stop_ns.saturating_sub(1),
        };
        let reader = self.past_reader()?;
        let found = reader.newest(&wanted, span, window.samples_max, cancel)?;
        Ok(found.into_iter().map(History::from).collect())
    }

    /// Where the node's archive is, if its agent keeps one.
    pub fn archive_dir(&self) -> Option<PathBuf> {
        self.past_reader().ok()?.archive_dir()
    }

    fn past_reader(&self) -> Result<&PastReader, QueryError> {
        let cell = &self.reader().0;
        if let Some(reader) = cell.get() {
            return Ok(reader);
        }
        // Of two that are made at once one is kept.
        let reader = PastReader::open(self.run_dir(), Scopes::Readable, self.clock().clone())?;
        Ok(cell.get_or_init(|| reader))
    }

    fn history_of_rings(&self, selector: &Selector, window: &Window) -> Vec<History> {
        let view = self.view();
        let mut room = window.samples_max;
        let mut histories = Vec::new();
        for known in view.matching(selector) {
            let mut samples = Vec::new();
            if known.handle.scan(0, &mut samples).is_none() {
                continue; // It has just ended.
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
}

impl From<Newest> for History {
    fn from(newest: Newest) -> Self {
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

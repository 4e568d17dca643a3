//! What the rings hold of the past.

use std::sync::Arc;

use barograph_model::{Descriptor, Sample, Selector};

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
    /// All that the rings hold.
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

impl Observer {
    /// What the rings hold of the streams that match. An unchanged value is not appended, so a gap
    /// between two samples means that the older one held.
    pub fn history(&self, selector: &Selector, window: &Window) -> Vec<History> {
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

//! The time up to which a scope's archive has each series, so that points that are sent again after
//! a restart of the agent are recognized.
//!
//! It is a module of its own because the archive is asked only once, when a scope is opened; from
//! then on the owner of a series knows its newest sample.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use barograph_model::{Clock, Descriptor, Past as _, PastRequest, SeriesId, Span, unbounded};
use barograph_query::{PastReader, ScopeChoice};
use barograph_stream::RunDir;
use tracing::warn;

use super::age::{AFTER_NS_MAX, AGE_NS_MAX};

/// Most series of a scope whose newest time is kept; beyond it, those that ended longest ago are
/// forgotten.
const SERIES_MAX: usize = 1 << 17;

/// The time of the newest sample of each series.
#[derive(Debug, Default)]
pub(crate) struct NewestTimes(HashMap<SeriesId, i64>);

impl NewestTimes {
    /// Reads the times from the archive. If that fails, nothing is known and a warning is logged.
    pub(crate) fn read(run_dir: &RunDir, node: &str, clock: &Arc<dyn Clock>) -> Self {
        // Older points are refused anyway.
        let now_ns = clock.now_ns();
        let from = now_ns.saturating_sub(AGE_NS_MAX);
        let wanted = |of: &str, _: &Descriptor| of == node;
        let cancel = AtomicBool::new(false);
        let request = PastRequest {
            wanted: &wanted,
            span: Span { from, to: i64::MAX },
            samples_max: 0,
            cancel: &cancel,
            holds: &unbounded,
        };
        let reader = PastReader::open(run_dir, ScopeChoice::None, Arc::clone(clock));
        let found = reader
            .map_err(|error| error.to_string())
            .and_then(|reader| reader.series(&request).map_err(|e| e.to_string()));
        let found = found.unwrap_or_else(|error| {
            warn!(
                error,
                "what is sent again over this start may be there twice"
            );
            Vec::new()
        });
        // A time in the future comes from a wrong clock, and must not keep correct points out.
        let to = now_ns.saturating_add(AFTER_NS_MAX);
        let known = found.iter().filter(|series| series.known.to <= to);
        let times = known.map(|s| (s.descriptor.series_id(), s.known.to));
        let mut newest = Self(times.collect());
        newest.cut();
        newest
    }

    /// Adds the times of the past to those that were given meanwhile.
    pub(crate) fn add(&mut self, past: Self) {
        #[expect(clippy::iter_over_hash_type, reason = "each series is added by itself")]
        for (series, ns) in past.0 {
            let known_ns = self.0.entry(series).or_insert(ns);
            *known_ns = ns.max(*known_ns);
        }
        self.cut();
    }

    /// Removes and returns the time of a series' newest sample.
    pub(crate) fn take(&mut self, descriptor: &Descriptor) -> Option<i64> {
        self.0.remove(&descriptor.series_id())
    }

    /// Whether the series is known.
    pub(crate) fn has(&self, descriptor: &Descriptor) -> bool {
        self.0.contains_key(&descriptor.series_id())
    }

    /// Keeps the time of a series' newest sample again.
    pub(crate) fn give(&mut self, descriptor: &Descriptor, newest_ns: i64) {
        self.0.insert(descriptor.series_id(), newest_ns);
        if self.0.len() > SERIES_MAX {
            self.cut();
        }
    }

    /// Cuts to three quarters of the bound, so that this is seldom needed.
    fn cut(&mut self) {
        if self.0.len() <= SERIES_MAX {
            return;
        }
        let mut times: Vec<i64> = self.0.values().copied().collect();
        times.sort_unstable();
        let least_ns = times[times.len() - SERIES_MAX / 4 * 3];
        self.0.retain(|_, ns| *ns >= least_ns);
    }
}

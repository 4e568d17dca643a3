//! Up to when the archive of a scope has each series: so that what is sent again over a restart of the agent
//! is known.
//!
//! It stands alone because the archive is asked once, when a scope is opened; from then on who has a
//! series knows its newest sample.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use barograph_model::{Clock, Descriptor, Past as _, PastRequest, SeriesId, Span, unbounded};
use barograph_query::{PastReader, Scopes};
use barograph_stream::RunDir;
use tracing::warn;

use super::bridge::{AFTER_NS_MAX, AGE_NS_MAX};

/// Most series of a scope whose newest time is kept; of more, those that ended longest ago go.
const SERIES_MAX: usize = 1 << 17;

/// The time of the newest sample of each series.
#[derive(Debug, Default)]
pub struct Newest(HashMap<SeriesId, i64>);

impl Newest {
    /// As the archive has them. One that cannot be asked knows nothing, and is told of in the log.
    pub fn read(run_dir: &RunDir, node: &str, clock: &Arc<dyn Clock>) -> Self {
        // What is older is refused anyway.
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
        let reader = PastReader::open(run_dir, Scopes::None, Arc::clone(clock));
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
        // One that is yet to come is of a clock that was wrong, and must not keep out what is right.
        let to = now_ns.saturating_add(AFTER_NS_MAX);
        let known = found.iter().filter(|series| series.known.to <= to);
        let times = known.map(|s| (s.descriptor.series_id(), s.known.to));
        let mut newest = Self(times.collect());
        newest.cut();
        newest
    }

    /// The time of a series' newest sample, which is forgotten here.
    pub fn take(&mut self, descriptor: &Descriptor) -> Option<i64> {
        self.0.remove(&descriptor.series_id())
    }

    /// Whether there is one.
    pub fn has(&self, descriptor: &Descriptor) -> bool {
        self.0.contains_key(&descriptor.series_id())
    }

    /// Keeps it again.
    pub fn give(&mut self, descriptor: &Descriptor, newest_ns: i64) {
        self.0.insert(descriptor.series_id(), newest_ns);
        if self.0.len() > SERIES_MAX {
            self.cut();
        }
    }

    /// Three quarters of what is too much remain, so that it is seldom too much.
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

//! An iterator over new samples.

use std::collections::VecDeque;
use std::time::Duration;

use barograph_client::{LatestValue, SystemClock, Update, Watch as Watching};
use barograph_model::Clock as _;
use pyo3::prelude::*;

use crate::sample::Sample;
use crate::wait;

/// Iterates over new samples of the matching streams, as they come.
#[pyclass(module = "barograph")]
pub(crate) struct Watch {
    watching: Watching,
    timeout: Option<Duration>,
    clock: SystemClock,
    ready: VecDeque<Update>,
}

impl Watch {
    pub(crate) fn new(watching: Watching, timeout: Option<Duration>, clock: SystemClock) -> Self {
        Self {
            watching,
            timeout,
            clock,
            ready: VecDeque::new(),
        }
    }

    fn sample(&self, update: Update) -> Sample {
        let looked_ns = update.sample.ts;
        let latest = LatestValue {
            descriptor: update.descriptor,
            age_ns: self.clock.now_ns().saturating_sub(looked_ns).max(0),
            looked_ns,
            interval_ns: 0,
            stale: update.stale,
            sample: Some(update.sample),
        };
        Sample::new(latest, update.lost)
    }
}

#[pymethods]
impl Watch {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<Sample>> {
        if self.ready.is_empty() {
            let watching = &mut self.watching;
            let updates = wait::until(py, self.timeout, |slice| watching.next(slice))?;
            self.ready.extend(updates.into_iter().flatten());
        }
        let update = self.ready.pop_front();
        Ok(update.map(|update| self.sample(update)))
    }
}

//! Waiting as Python expects it: without the GIL, and interrupted by Ctrl-C.

use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Longest time until Ctrl-C is noticed.
pub(crate) const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Converts a timeout in seconds; `None` waits for ever.
pub(crate) fn timeout(seconds: Option<f64>) -> PyResult<Option<Duration>> {
    let Some(seconds) = seconds else {
        return Ok(None);
    };
    if seconds == f64::INFINITY {
        return Ok(None);
    }
    Duration::try_from_secs_f64(seconds)
        .map(Some)
        .map_err(|_| PyValueError::new_err(format!("timeout {seconds} is not seconds from 0 up")))
}

/// Calls `attempt` (which waits at most the given time, without the GIL) until it returns
/// something, `timeout` has passed or a signal handler raises.
pub(crate) fn until<T: Send>(
    py: Python<'_>,
    timeout: Option<Duration>,
    mut attempt: impl FnMut(Duration) -> Option<T> + Send,
) -> PyResult<Option<T>> {
    let mut left = timeout;
    loop {
        let slice = left.map_or(SIGNAL_CHECK_INTERVAL, |left| {
            left.min(SIGNAL_CHECK_INTERVAL)
        });
        if let Some(found) = py.detach(|| attempt(slice)) {
            return Ok(Some(found));
        }
        py.check_signals()?;
        left = left.map(|left| left.saturating_sub(slice));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(None);
        }
    }
}

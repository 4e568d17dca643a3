//! A handle on a stream: the fast path of reading.

use std::sync::{Mutex, MutexGuard, PoisonError};

use barograph_client::{StreamHandle, Woken};
use barograph_model::{Selector, ValueType};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors;
use crate::sample::{Sample, labels_dict};
use crate::wait;

/// A handle on one stream.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct Stream {
    observer: barograph_client::Observer,
    // Locked only under the GIL and never while waiting, so it is never contended and never held
    // over a fork.
    held: Mutex<StreamHandle>,
}

impl Stream {
    pub(crate) fn new(observer: barograph_client::Observer, held: StreamHandle) -> Self {
        Self {
            observer,
            held: Mutex::new(held),
        }
    }

    fn lock(&self) -> MutexGuard<'_, StreamHandle> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error for a stream that has ended, with names that may have been meant.
    fn ended(&self, py: Python<'_>) -> PyErr {
        let descriptor = self.lock().descriptor().clone();
        let exact = Selector::parse(descriptor.name.as_str()).map(|selector| {
            let labels = descriptor.labels.iter();
            labels.fold(selector, |selector, (name, value)| {
                selector.with_label(name, value)
            })
        });
        match exact {
            Ok(selector) => errors::from_client(py, self.observer.unknown(&selector)),
            Err(error) => errors::from_client(py, error.into()),
        }
    }
}

#[pymethods]
impl Stream {
    /// The newest sample, with its age, or the value predicted for now.
    #[pyo3(signature = (*, allow_predicted=false))]
    fn latest(&self, py: Python<'_>, allow_predicted: bool) -> PyResult<Sample> {
        let latest = match allow_predicted {
            true => self.lock().latest_predicted(),
            false => self.lock().latest(),
        };
        latest
            .map(|latest| Sample::new(latest, 0))
            .ok_or_else(|| self.ended(py))
    }

    /// The newest value of a numeric stream as a float; None for text and before the first sample.
    fn value(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        let mut held = self.lock();
        if let Some((_, value)) = held.latest_f64() {
            return Ok(Some(value));
        }
        let there = held.latest().is_some();
        drop(held);
        if there { Ok(None) } else { Err(self.ended(py)) }
    }

    /// Waits for a sample that this handle has not returned yet; True if there is one, False if
    /// `timeout` seconds have passed first.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let timeout = wait::timeout(timeout)?;
        let mut waiting = self.lock().clone();
        let found = wait::until(py, timeout, |slice| {
            (waiting.wait(slice) == Woken::News).then_some(())
        });
        *self.lock() = waiting;
        Ok(found?.is_some())
    }

    /// Dotted name of the stream.
    #[getter]
    fn name(&self) -> String {
        self.lock().descriptor().name.as_str().to_owned()
    }

    /// Labels of the stream, as a new dict.
    #[getter]
    fn labels<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        labels_dict(py, &self.lock().descriptor().labels)
    }

    /// Unit of the values.
    #[getter]
    fn unit(&self) -> String {
        self.lock().descriptor().unit.as_str().to_owned()
    }

    /// Type of the values: int64, float64, bool or string.
    #[getter]
    fn r#type(&self) -> &'static str {
        ValueType::as_str(self.lock().descriptor().value_type)
    }

    /// Number of times the stream has begun anew (agent restarted, device came back).
    #[getter]
    fn restarted(&self) -> u64 {
        self.lock().restarted()
    }

    fn __repr__(&self) -> String {
        format!("<Stream {}>", self.lock().descriptor())
    }
}

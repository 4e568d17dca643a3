//! A sample as a Python object: made in one allocation, its fields converted when they are read.

use barograph_client::LatestValue;
use barograph_model::{Labels, Value};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

/// A sample of one stream.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct Sample {
    latest: LatestValue,
    /// Number of earlier samples of this stream that were lost since the previous one (only in a
    /// watch).
    #[pyo3(get)]
    lost: u64,
}

impl Sample {
    pub(crate) fn new(latest: LatestValue, lost: u64) -> Self {
        Self { latest, lost }
    }
}

#[pymethods]
impl Sample {
    /// Dotted name of the stream.
    #[getter]
    fn name(&self) -> &str {
        self.latest.descriptor.name.as_str()
    }

    /// Labels of the stream, as a new dict.
    #[getter]
    fn labels<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        labels_dict(py, &self.latest.descriptor.labels)
    }

    /// Unit of the value.
    #[getter]
    fn unit(&self) -> &str {
        self.latest.descriptor.unit.as_str()
    }

    /// Time of the value, ns since the epoch; None if the stream has no sample yet.
    #[getter]
    fn ts(&self) -> Option<i64> {
        self.latest.sample.as_ref().map(|s| s.ts)
    }

    /// The value: int, float, bool or str; None if the stream has no sample yet.
    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.latest
            .sample
            .as_ref()
            .map(|s| value_object(py, &s.value))
            .transpose()
    }

    /// Quality: measured, derived, predicted, reconciled or ended.
    #[getter]
    fn quality(&self) -> Option<&'static str> {
        self.latest.sample.as_ref().map(|s| s.quality.as_str())
    }

    /// Half width of the interval that holds the true value; 0.0 for a measurement.
    #[getter]
    fn error(&self) -> Option<f64> {
        self.latest.sample.as_ref().map(|s| f64::from(s.error))
    }

    /// Time since the last look at the resource when this was read, in ns.
    #[getter]
    fn age_ns(&self) -> Option<i64> {
        self.latest.sample.as_ref().map(|_| self.latest.age_ns)
    }

    /// Time of the last look at the resource, ns since the epoch.
    #[getter]
    fn looked_ts(&self) -> Option<i64> {
        self.latest.sample.as_ref().map(|_| self.latest.looked_ns)
    }

    /// Whether the value is out of date: the next look is overdue, the agent is dead, or nothing is
    /// heard of the mirrored node.
    #[getter]
    fn stale(&self) -> bool {
        self.latest.stale
    }

    /// All fields as a dict: one row of a table.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("name", self.name())?;
        dict.set_item("labels", self.labels(py)?)?;
        dict.set_item("ts", self.ts())?;
        dict.set_item("value", self.value(py)?)?;
        dict.set_item("quality", self.quality())?;
        dict.set_item("error", self.error())?;
        dict.set_item("age_ns", self.age_ns())?;
        dict.set_item("looked_ts", self.looked_ts())?;
        dict.set_item("unit", self.unit())?;
        dict.set_item("stale", self.stale())?;
        dict.set_item("lost", self.lost)?;
        Ok(dict)
    }

    fn __repr__(&self) -> String {
        let stream = &self.latest.descriptor;
        let Some(sample) = &self.latest.sample else {
            return format!("<Sample {stream}: none yet>");
        };
        let age_s = self.latest.age_ns as f64 / 1e9;
        let stale = if self.latest.stale { ", stale" } else { "" };
        format!(
            "<Sample {stream} = {} {}, {}, {age_s:.3} s old{stale}>",
            sample.value,
            stream.unit,
            sample.quality.as_str(),
        )
    }
}

pub(crate) fn labels_dict<'py>(py: Python<'py>, labels: &Labels) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in labels.iter() {
        dict.set_item(name, value)?;
    }
    Ok(dict)
}

fn value_object<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Int(v) => v.into_pyobject(py)?.into_any(),
        Value::Float(v) => v.into_pyobject(py)?.into_any(),
        Value::Bool(v) => v.into_pyobject(py)?.to_owned().into_any(),
        Value::Text(v) | Value::Json(v) => (&**v).into_pyobject(py)?.into_any(),
        Value::Bytes(v) => PyBytes::new(py, v).into_any(),
        Value::Floats(v) => PyList::new(py, v.iter())?.into_any(),
    })
}

//! Calls to this program: the objects that handlers get, the code that runs them, and knobs.

use std::sync::Arc;

use barograph_client::CallPayload;
use barograph_client::publish::{Call as Fired, Knob as Declared, KnobConfig, KnobValue};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyInt};

use crate::life::PublicationLife;

/// A call of a handler.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct Call {
    call: Fired,
}

#[pymethods]
impl Call {
    /// The handler's name.
    #[getter]
    fn name(&self) -> &str {
        &self.call.name
    }

    /// Number of the call among the calls of this user.
    #[getter]
    fn id(&self) -> u64 {
        self.call.id
    }

    /// Time when it was fired, ns since the epoch.
    #[getter]
    fn ts(&self) -> i64 {
        self.call.issued_ns
    }

    /// The payload: None, int, float, bool, str, bytes, decoded JSON, or a list of floats.
    #[getter]
    fn payload<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(match &self.call.payload {
            CallPayload::None => py.None().into_bound(py),
            CallPayload::Int(v) => v.into_pyobject(py)?.into_any(),
            CallPayload::Float(v) => v.into_pyobject(py)?.into_any(),
            CallPayload::Bool(v) => v.into_pyobject(py)?.to_owned().into_any(),
            CallPayload::Text(v) => v.into_pyobject(py)?.into_any(),
            CallPayload::Bytes(v) => PyBytes::new(py, v).into_any(),
            CallPayload::Json(v) => py.import("json")?.call_method1("loads", (v,))?,
            CallPayload::Floats(v) => v.clone().into_pyobject(py)?,
        })
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let payload = self.payload(py)?.repr()?;
        Ok(format!("<Call {}: {payload}>", self.call.name))
    }
}

/// Wraps a callable as a handler that can run in any thread. An exception is shown like those of
/// threads, and reported to the caller.
pub(crate) fn handler(callback: Py<PyAny>) -> impl FnMut(&Fired) -> Result<(), String> + Send {
    move |call: &Fired| {
        Python::attach(|py| {
            let given = Call { call: call.clone() };
            let done = callback.call1(py, (given,));
            done.map(drop).map_err(|error| {
                let text = error.to_string();
                error.write_unraisable(py, Some(callback.bind(py)));
                text
            })
        })
    }
}

/// A value that others may set.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct Knob {
    name: String,
    life: Arc<PublicationLife>,
    knob: Declared,
    config: KnobConfig,
}

impl Knob {
    pub(crate) fn new(
        name: String,
        life: Arc<PublicationLife>,
        knob: Declared,
        config: KnobConfig,
    ) -> Self {
        Self {
            name,
            life,
            knob,
            config,
        }
    }
}

#[pymethods]
impl Knob {
    /// The last setting that a poll or frame has applied: a float, an int or a bool, as it was
    /// declared.
    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        value_object(py, self.knob.value())
    }

    /// Number of the last setting, by the agent's count; 0 before the first.
    #[getter]
    fn version(&self) -> u64 {
        self.knob.version()
    }

    /// Name within the publication.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Unit of its values.
    #[getter]
    fn unit(&self) -> &str {
        &self.config.unit
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let value = self.value(py)?.repr()?;
        Ok(format!(
            "<Knob {}.{}: {value}>",
            self.life.name(),
            self.name
        ))
    }
}

fn value_object(py: Python<'_>, value: KnobValue) -> PyResult<Bound<'_, PyAny>> {
    Ok(match value {
        KnobValue::Float(v) => v.into_pyobject(py)?.into_any(),
        KnobValue::Int(v) => v.into_pyobject(py)?.into_any(),
        KnobValue::Bool(v) => v.into_pyobject(py)?.to_owned().into_any(),
    })
}

/// Settings of a knob: its type is that of its initial value.
pub(crate) fn config(
    initial: &Bound<'_, PyAny>,
    min: Option<f64>,
    max: Option<f64>,
    unit: String,
    help: String,
) -> PyResult<KnobConfig> {
    let initial = if initial.is_instance_of::<PyBool>() {
        if min.is_some() || max.is_some() {
            return Err(PyValueError::new_err("a bool has no min and max"));
        }
        KnobValue::Bool(initial.extract()?)
    } else if initial.is_instance_of::<PyInt>() {
        KnobValue::Int(initial.extract()?)
    } else {
        let float = initial.extract::<f64>();
        let wrong = |_| PyTypeError::new_err("a knob begins with a float, an int or a bool");
        KnobValue::Float(float.map_err(wrong)?)
    };
    let (least, most) = match initial {
        KnobValue::Bool(_) => (0.0, 1.0),
        _ => (f64::NEG_INFINITY, f64::INFINITY),
    };
    Ok(KnobConfig {
        initial,
        min: min.unwrap_or(least),
        max: max.unwrap_or(most),
        unit,
        help,
    })
}

//! A publication: the values of a program, declared once and then put.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use barograph_client::RunDir;
use barograph_client::publish::{
    OverflowPolicy, Publication as Declared, PublicationConfig, PublicationReaders, PublishConfig,
    PublishError, Publisher, ValueHandle as Handle, raw,
};
use barograph_model::{Kind, ValueType};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::calls::{self, Knob};
use crate::errors;
use crate::life::PublicationLife;
use crate::value::{MAY_WAIT, Meaning, ValueHandle, unhurried};

/// A named set of values, and the frames in which they are put.
#[pyclass(frozen, subclass, module = "barograph")]
pub(crate) struct Publication {
    life: Arc<PublicationLife>,
    /// 0 does nothing.
    handle: u64,
    error: Option<String>,
    /// Number of the next frame for which the caller gives none.
    next: AtomicU64,
    values: Py<PyDict>,
}

/// A frame with a given number, which ends with its block.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct Step {
    publication: Py<Publication>,
    number: Option<u64>,
}

/// A value to be declared: name, type, unit, kind, help, greatest length in bytes.
type Wanted = (String, String, String, String, String, u32);

#[pymethods]
impl Publication {
    #[new]
    #[pyo3(signature = (name, values, labels, readers, application, is_named, overflow, run_dir))]
    #[expect(
        clippy::too_many_arguments,
        reason = "called by the package alone, by position"
    )]
    fn new(
        py: Python<'_>,
        name: String,
        values: Vec<Wanted>,
        labels: Vec<(String, String)>,
        readers: &str,
        application: String,
        is_named: bool,
        overflow: &str,
        run_dir: Option<PathBuf>,
    ) -> PyResult<Self> {
        let readers = readers_of(readers)?;
        let config = PublishConfig {
            run_dir: run_dir.map(RunDir::new),
            overflow: overflow_of(overflow)?,
            ..PublishConfig::of(application)
        };
        if config.overflow == OverflowPolicy::Block {
            MAY_WAIT.store(true, Ordering::Relaxed);
        }
        let publisher = py.detach(|| Publisher::open(config));
        let mut faults = Faults::default();
        if let Some(error) = publisher.error() {
            // If the caller did not choose the application's name, an error about it is not the
            // caller's mistake.
            let of_caller = is_named && is_mistake(error);
            faults.take(error.clone(), of_caller)?;
        }
        let config = PublicationConfig { readers, labels };
        let declared = publisher.publication(&name, config);
        let declared = faults.of(declared)?;
        let life = Arc::new(PublicationLife::new(name, publisher));
        let handles = PyDict::new(py);
        for wanted in values {
            let (name, value) = declare(declared.as_ref(), &life, wanted, &mut faults)?;
            handles.set_item(name, Py::new(py, value)?)?;
        }
        let handle = declared.map_or(0, |declared| declared.to_raw());
        if handle != 0 {
            life.open();
        }
        Ok(Self {
            life,
            handle,
            error: faults.first,
            next: AtomicU64::new(0),
            values: handles.unbind(),
        })
    }

    /// Puts values by name; all are checked before the first is put. Readers see them when this
    /// thread ends a frame or commits.
    #[pyo3(signature = (**values))]
    fn put(&self, py: Python<'_>, values: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        let Some(values) = values else {
            return Ok(());
        };
        let mut ready = Vec::with_capacity(values.len());
        for (name, value) in values {
            let handle = self.handle_of(py, &name)?;
            let checked = handle.get().check(&value)?;
            ready.push((handle, checked));
        }
        for (handle, checked) in &ready {
            handle.get().put_checked(py, checked)?;
        }
        Ok(())
    }

    /// Ends a frame: all puts of this thread since its last frame appear at once. Returns its
    /// number.
    #[pyo3(signature = (n=None))]
    fn frame(&self, py: Python<'_>, n: Option<&Bound<'_, PyAny>>) -> PyResult<u64> {
        let number = n.map(number_of).transpose()?;
        self.end(py, number)
    }

    /// A block that ends this frame.
    #[pyo3(signature = (n=None))]
    fn step(slf: Bound<'_, Self>, n: Option<&Bound<'_, PyAny>>) -> PyResult<Step> {
        Ok(Step {
            number: n.map(number_of).transpose()?,
            publication: slf.unbind(),
        })
    }

    /// Declares a handler of this publication: calls of its name run a callable.
    #[pyo3(signature = (name, callback, *, help=String::new()))]
    fn on(
        &self,
        py: Python<'_>,
        name: String,
        callback: Bound<'_, PyAny>,
        help: String,
    ) -> PyResult<()> {
        if !callback.is_callable() {
            return Err(PyTypeError::new_err("callback is not callable"));
        }
        let handler = calls::handler(callback.unbind());
        let publisher = self.life.publisher().clone();
        let handle = self.handle;
        let done = match publisher {
            Some(publisher) => py.detach(move || {
                let of = publisher.publication_of(handle)?;
                of.on(&name, &help, handler)
            }),
            None => Ok(()),
        };
        raise_mistake(done)
    }

    /// Runs the handlers of new calls, and applies new settings of knobs. Returns the number of
    /// both.
    fn poll(&self, py: Python<'_>) -> PyResult<usize> {
        if !self.life.is_open() || !raw::is_poll_due() || raw::is_resting() {
            return Ok(0);
        }
        // Handlers may wait for other threads of Python.
        let done = py.detach(raw::poll_now);
        py.check_signals()?;
        Ok(done)
    }

    /// Starts a thread that runs handlers as soon as they are called.
    fn listen(&self, py: Python<'_>) -> PyResult<()> {
        let publisher = self.life.publisher().clone();
        let done = match publisher {
            Some(publisher) => py.detach(move || publisher.listen()),
            None => Ok(()),
        };
        raise_mistake(done)
    }

    /// Declares a value that others may set, or finds it again.
    #[pyo3(signature = (name, initial, *, min=None, max=None, unit=String::new(), help=String::new()))]
    fn knob(
        &self,
        name: String,
        initial: &Bound<'_, PyAny>,
        min: Option<f64>,
        max: Option<f64>,
        unit: String,
        help: String,
    ) -> PyResult<Knob> {
        let config = calls::config(initial, min, max, unit, help)?;
        let handle = if self.life.is_open() { self.handle } else { 0 };
        let declared = match raw::knob(handle, &name, &config) {
            // If declarations are full or the publisher is closed, the knob keeps its initial
            // value.
            Err(error) if !is_mistake(&error) => raw::knob(0, &name, &config),
            other => other,
        };
        let knob = declared.map_err(|error| errors::from_publish(&error))?;
        Ok(Knob::new(name, Arc::clone(&self.life), knob, config))
    }

    /// Message of the handler that failed last.
    #[getter]
    fn handler_failure(&self) -> Option<String> {
        let publisher = self.life.publisher();
        publisher.as_ref()?.handler_failure()
    }

    /// Publishes the puts of this thread without ending a frame.
    fn commit(&self) {
        if self.life.is_open() {
            raw::commit();
        }
    }

    /// Publishes the puts of this thread, and closes the publication; later puts do nothing.
    fn close(&self, py: Python<'_>) {
        let publisher = self.life.close();
        py.detach(|| drop(publisher));
    }

    /// Name of the publication.
    #[getter]
    fn name(&self) -> &str {
        self.life.name()
    }

    /// Values of the publication by name, as a new dict.
    #[getter]
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.values.bind(py).copy()
    }

    /// Whether puts are published.
    #[getter]
    fn enabled(&self) -> bool {
        self.life.is_open()
    }

    /// The reason why nothing, or not all, is published.
    #[getter]
    fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Number of values of this process that were dropped.
    #[getter]
    fn lost(&self) -> u64 {
        self.life.lost()
    }

    /// Number of declarations of this process that the agent refuses at present, because there is
    /// no room for more or because they cannot be what they are declared as: none of their puts is
    /// kept. 0 before an agent has looked, and when the publication is closed.
    #[getter]
    fn refused(&self) -> u64 {
        self.life.publisher().as_ref().map_or(0, Publisher::refused)
    }

    /// The agent's directory, while the publication is open.
    #[getter]
    fn run_dir(&self) -> Option<PathBuf> {
        let publisher = self.life.publisher();
        let run_dir = publisher.as_ref()?.run_dir()?;
        Some(run_dir.path().to_owned())
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        name: &Bound<'py, PyString>,
    ) -> PyResult<Bound<'py, ValueHandle>> {
        self.handle_of(py, name.as_any())
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (kind, _error, _trace, /))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        self.leave(py, None, kind)
    }
}

#[pymethods]
impl Step {
    fn __enter__(&self, py: Python<'_>) -> Py<Publication> {
        self.publication.clone_ref(py)
    }

    #[pyo3(signature = (kind, _error, _trace, /))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        self.publication.get().leave(py, self.number, kind)
    }
}

impl Publication {
    fn end(&self, py: Python<'_>, number: Option<u64>) -> PyResult<u64> {
        let number = number.unwrap_or_else(|| self.next.load(Ordering::Relaxed));
        // Under the GIL, so no other thread counts in between.
        self.next.store(number + 1, Ordering::Relaxed);
        if self.life.is_open() {
            match raw::try_frame(self.handle, number) {
                Some((is_agent_asleep, is_due)) => {
                    if is_agent_asleep {
                        raw::tell_agent();
                    }
                    if is_due {
                        raw::apply_now();
                    }
                }
                None => unhurried(py, || raw::frame(self.handle, number))?,
            }
        }
        Ok(number)
    }

    /// Ends a frame with its block. If an exception has cut the block short, its values are
    /// published, but no frame.
    fn leave(
        &self,
        py: Python<'_>,
        number: Option<u64>,
        kind: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        if kind.is_none() {
            self.end(py, number)?;
        } else {
            self.commit();
        }
        Ok(false)
    }

    fn handle_of<'py>(
        &self,
        py: Python<'py>,
        name: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, ValueHandle>> {
        match self.values.bind(py).get_item(name)? {
            Some(handle) => Ok(handle.cast_into::<ValueHandle>()?),
            None => Err(self.unknown(py, name)),
        }
    }

    #[cold]
    fn unknown(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> PyErr {
        let known: Vec<String> = self
            .values
            .bind(py)
            .keys()
            .iter()
            .map(|known| known.to_string())
            .collect();
        PyValueError::new_err(format!(
            "{} has no value {name}: declare it in publication(); there are {}",
            self.life.name(),
            known.join(", "),
        ))
    }
}

/// Collects the errors of a declaration: the first is kept, to be shown; an error that the caller
/// has to correct is raised.
#[derive(Default)]
struct Faults {
    first: Option<String>,
}

impl Faults {
    fn take(&mut self, error: PublishError, is_mistake: bool) -> PyResult<()> {
        if is_mistake {
            return Err(errors::from_publish(&error));
        }
        self.first.get_or_insert_with(|| error.to_string());
        Ok(())
    }

    fn of<T>(&mut self, done: Result<T, PublishError>) -> PyResult<Option<T>> {
        match done {
            Ok(done) => Ok(Some(done)),
            Err(error) => {
                let is_mistake = is_mistake(&error);
                self.take(error, is_mistake).map(|()| None)
            }
        }
    }
}

/// Raises an error that the caller has to correct; ignores others.
fn raise_mistake(done: Result<(), PublishError>) -> PyResult<()> {
    match done {
        Err(error) if is_mistake(&error) => Err(errors::from_publish(&error)),
        _ => Ok(()),
    }
}

pub(crate) fn is_mistake(error: &PublishError) -> bool {
    matches!(
        error,
        PublishError::Name(_)
            | PublishError::Taken { .. }
            | PublishError::Knob { .. }
            | PublishError::Event(_)
    )
}

fn declare(
    publication: Option<&Declared>,
    life: &Arc<PublicationLife>,
    (name, value_type, unit, kind, help, bytes_max): Wanted,
    faults: &mut Faults,
) -> PyResult<(String, ValueHandle)> {
    let (value_type, kind) = (type_of(&value_type)?, kind_of(&kind)?);
    let declared = match publication {
        Some(publication) => publication.value_of(&name, value_type, &unit, kind, &help, bytes_max),
        None => Ok(Handle::default()),
    };
    let handle = faults.of(declared)?.unwrap_or_default();
    let meaning = Meaning {
        name: name.clone(),
        value_type,
        unit,
        kind,
    };
    Ok((name, ValueHandle::new(handle, Arc::clone(life), meaning)))
}

fn number_of(given: &Bound<'_, PyAny>) -> PyResult<u64> {
    let number = given.extract::<i64>().map_err(|error| {
        let text = "a frame's number is an int of at most 63 bits";
        if error.is_instance_of::<PyTypeError>(given.py()) {
            PyTypeError::new_err(text)
        } else {
            PyValueError::new_err(text)
        }
    })?;
    u64::try_from(number)
        .map_err(|_| PyValueError::new_err(format!("a frame's number is 0 or more, not {number}")))
}

fn readers_of(word: &str) -> PyResult<PublicationReaders> {
    match word {
        "owner" => Ok(PublicationReaders::Owner),
        "group" => Ok(PublicationReaders::Group),
        "all" => Ok(PublicationReaders::All),
        _ => Err(no_such("readers", word, "owner, group and all")),
    }
}

fn overflow_of(word: &str) -> PyResult<OverflowPolicy> {
    match word {
        "drop-oldest" => Ok(OverflowPolicy::DropOldest),
        "block" => Ok(OverflowPolicy::Block),
        _ => Err(no_such("overflow", word, "drop-oldest and block")),
    }
}

fn type_of(word: &str) -> PyResult<ValueType> {
    match word {
        "int" => Ok(ValueType::Int),
        "float" => Ok(ValueType::Float),
        "bool" => Ok(ValueType::Bool),
        "str" => Ok(ValueType::Text),
        "bytes" => Ok(ValueType::Bytes),
        "json" => Ok(ValueType::Json),
        "floats" => Ok(ValueType::Floats),
        _ => Err(no_such(
            "type",
            word,
            "int, float, bool, str, bytes, json and floats",
        )),
    }
}

fn kind_of(word: &str) -> PyResult<Kind> {
    match word {
        "gauge" => Ok(Kind::Gauge),
        "counter" => Ok(Kind::Counter),
        "state" => Ok(Kind::State),
        _ => Err(no_such("kind", word, "gauge, counter and state")),
    }
}

fn no_such(what: &str, word: &str, there_are: &str) -> PyErr {
    PyValueError::new_err(format!("{what} is {word:?}: there are {there_are}"))
}

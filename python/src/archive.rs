//! The past for Python: files and tables, read without the GIL.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;

use barograph_client::{
    ARCHIVE_SAMPLES_DEFAULT, ArchiveRange, ArchiveView as Client, Field, RunDir, SystemClock,
    Table as Columns,
};
use barograph_model::{Clock as _, Selector, SqlFault, duration_ns, instant_ns};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::errors;
use crate::wait::SIGNAL_CHECK_INTERVAL;

/// Reads rings, log and Parquet files as one.
#[pyclass(frozen, subclass, module = "barograph")]
pub(crate) struct Archive {
    client: Client,
    clock: SystemClock,
}

/// Columns of the past, not yet converted to Python objects or Arrow.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct Table {
    columns: Columns,
}

#[pymethods]
impl Archive {
    #[new]
    #[pyo3(signature = (run_dir=None, path=None))]
    fn new(py: Python<'_>, run_dir: Option<PathBuf>, path: Option<PathBuf>) -> PyResult<Self> {
        let clock = SystemClock::new();
        let opened = match (run_dir, path) {
            (Some(_), Some(_)) => {
                return Err(PyTypeError::new_err("give run_dir or path, not both"));
            }
            (None, Some(path)) => Client::of_path(path, Arc::new(clock)),
            (run_dir, None) => {
                let run_dir = run_dir.map_or_else(RunDir::find, RunDir::new);
                Client::open(&run_dir, Arc::new(clock))
            }
        };
        let client = opened.map_err(|error| errors::from_client(py, error))?;
        Ok(Self { client, clock })
    }

    /// The directory of the archive; None if the agent keeps no archive.
    #[getter]
    fn path(&self) -> Option<PathBuf> {
        self.client.path()
    }

    /// The nodes that have samples in the archive.
    #[getter]
    fn nodes(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let nodes = py.detach(|| self.client.nodes());
        let nodes = nodes.map_err(|fault| errors::from_sql(py, fault))?;
        Ok(nodes.iter().map(|node| node.to_string()).collect())
    }

    /// Parquet files of a tier that may hold matching samples.
    #[pyo3(signature = (tier, pattern, start=None, stop=None))]
    fn files(
        &self,
        py: Python<'_>,
        tier: &str,
        pattern: &str,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Vec<PathBuf>> {
        let selector = selector_of(py, pattern)?;
        let stretch = stretch_of(py, &self.clock, &selector, (start, stop), None)?;
        let files = py.detach(|| self.client.files(tier, &stretch));
        files.map_err(|fault| errors::from_sql(py, fault))
    }

    /// Files of a tier and the remaining samples, from one view.
    #[pyo3(signature = (tier, pattern, start=None, stop=None, samples_max=None))]
    fn moment(
        &self,
        py: Python<'_>,
        tier: &str,
        pattern: &str,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        samples_max: Option<usize>,
    ) -> PyResult<(Vec<PathBuf>, Table)> {
        let selector = selector_of(py, pattern)?;
        let stretch = stretch_of(py, &self.clock, &selector, (start, stop), samples_max)?;
        let client = &self.client;
        let moment = until(py, |cancel| client.moment(tier, &stretch, cancel))?;
        Ok((
            moment.files,
            Table {
                columns: moment.tail,
            },
        ))
    }

    /// Samples, or buckets of `step`, as one table.
    #[pyo3(signature = (pattern, start=None, stop=None, step=None, samples_max=None))]
    fn table(
        &self,
        py: Python<'_>,
        pattern: &str,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        step: Option<&Bound<'_, PyAny>>,
        samples_max: Option<usize>,
    ) -> PyResult<Table> {
        let selector = selector_of(py, pattern)?;
        let times = (start, stop);
        ask(
            py,
            &self.client,
            &self.clock,
            &selector,
            times,
            step,
            samples_max,
        )
    }
}

/// Reads samples or buckets of the streams that a selector matches.
pub(crate) fn ask(
    py: Python<'_>,
    client: &Client,
    clock: &SystemClock,
    selector: &Selector,
    times: Times<'_, '_>,
    step: Option<&Bound<'_, PyAny>>,
    samples_max: Option<usize>,
) -> PyResult<Table> {
    let stretch = stretch_of(py, clock, selector, times, samples_max)?;
    let step_ns = step.map(|step| step_of(py, step)).transpose()?;
    let columns = until(py, |cancel| client.table(&stretch, step_ns, cancel))?;
    Ok(Table { columns })
}

#[pymethods]
impl Table {
    /// Names of the columns.
    #[getter]
    fn columns(&self) -> Vec<&'static str> {
        self.columns.names().collect()
    }

    /// The rows, at most `limit` of them, as tuples of int, float, str or None.
    #[pyo3(signature = (limit=None))]
    fn tuples<'py>(
        &self,
        py: Python<'py>,
        limit: Option<usize>,
    ) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let width = self.columns.names().count();
        (0..self.columns.len().min(limit.unwrap_or(usize::MAX)))
            .map(|row| {
                let fields = (0..width).map(|column| object(py, self.columns.get(row, column)));
                PyTuple::new(py, fields.collect::<PyResult<Vec<_>>>()?)
            })
            .collect()
    }

    /// The table as an Arrow IPC stream.
    fn arrow_ipc<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let encoded = py.detach(|| self.columns.to_arrow_ipc());
        encoded
            .map(|bytes| PyBytes::new(py, &bytes))
            .map_err(|fault| errors::from_sql(py, fault))
    }

    fn __len__(&self) -> usize {
        self.columns.len()
    }
}

fn object<'py>(py: Python<'py>, field: Field<'_>) -> PyResult<Bound<'py, PyAny>> {
    Ok(match field {
        Field::Null => py.None().into_bound(py),
        Field::Int(v) => v.into_pyobject(py)?.into_any(),
        Field::Real(v) => v.into_pyobject(py)?.into_any(),
        Field::Text(v) => v.into_pyobject(py)?.into_any(),
        Field::Blob(v) => PyBytes::new(py, v).into_any(),
        Field::Floats(v) => PyList::new(py, v)?.into_any(),
    })
}

/// Start and stop, as the caller gave them.
pub(crate) type Times<'a, 'py> = (Option<&'a Bound<'py, PyAny>>, Option<&'a Bound<'py, PyAny>>);

fn selector_of(py: Python<'_>, pattern: &str) -> PyResult<Selector> {
    Selector::parse(pattern).map_err(|error| errors::from_client(py, error.into()))
}

fn stretch_of<'s>(
    py: Python<'_>,
    clock: &SystemClock,
    selector: &'s Selector,
    (start, stop): Times<'_, '_>,
    samples_max: Option<usize>,
) -> PyResult<ArchiveRange<'s>> {
    let now_ns = clock.now_ns();
    let instant = |given: Option<&Bound<'_, PyAny>>, open| {
        given.map_or(Ok(open), |given| instant_of(py, given, now_ns))
    };
    Ok(ArchiveRange {
        selector,
        start_ns: instant(start, i64::MIN)?,
        stop_ns: instant(stop, i64::MAX)?,
        samples_max: samples_max.unwrap_or(ARCHIVE_SAMPLES_DEFAULT),
    })
}

/// Parses nanoseconds since the epoch, or a text.
fn instant_of(py: Python<'_>, given: &Bound<'_, PyAny>, now_ns: i64) -> PyResult<i64> {
    if let Ok(ns) = given.extract::<i64>() {
        return Ok(ns);
    }
    let text = given.extract::<&str>().map_err(|_| {
        PyTypeError::new_err("a time is an int (ns since the epoch) or a text like \"-1h\"")
    })?;
    instant_ns(text, now_ns).map_err(|error| errors::from_client(py, error.into()))
}

/// Parses nanoseconds, or a text.
fn step_of(py: Python<'_>, given: &Bound<'_, PyAny>) -> PyResult<i64> {
    if let Ok(ns) = given.extract::<i64>() {
        return Ok(ns);
    }
    let text = given
        .extract::<&str>()
        .map_err(|_| PyTypeError::new_err("a step is an int (ns) or a text like \"10s\""))?;
    duration_ns(text).map_err(|error| errors::from_client(py, error.into()))
}

/// Reads on a thread of its own without the GIL, while this thread checks for signals: Ctrl-C ends
/// the read.
#[expect(
    clippy::disallowed_methods,
    reason = "the interpreter's thread waits for an answer, and looks for signals"
)]
fn until<T: Send>(
    py: Python<'_>,
    read: impl FnOnce(&AtomicBool) -> Result<T, SqlFault> + Send,
) -> PyResult<T> {
    let cancel = AtomicBool::new(false);
    let answer = py.detach(|| {
        thread::scope(|scope| {
            let (sender, answered) = sync_channel(1);
            let cancel = &cancel;
            scope.spawn(move || {
                // The receiver waits until it has the result, or has raised an exception.
                let _ = sender.send(read(cancel));
            });
            loop {
                match answered.recv_timeout(SIGNAL_CHECK_INTERVAL) {
                    Ok(answer) => return Ok(answer),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => {
                        return Err(errors::Error::new_err("the reading thread has died"));
                    }
                }
                if let Err(raised) = Python::attach(|py| py.check_signals()) {
                    cancel.store(true, Ordering::Relaxed);
                    return Err(raised);
                }
            }
        })
    })?;
    answer.map_err(|fault| errors::from_sql(py, fault))
}

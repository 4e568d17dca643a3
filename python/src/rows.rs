//! The answer of a query, and running it so that Ctrl-C ends a long one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;

use barograph_client::{Cell, Observer, Rows as Answer};
use barograph_model::{SqlFaultKind, SqlLimits};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::errors;
use crate::wait::SIGNAL_CHECK_INTERVAL;

/// The answer of a query, column by column, not yet converted to Python objects or Arrow.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct Rows {
    answer: Answer,
}

#[pymethods]
impl Rows {
    /// Names of the columns; a repeated name gets a number.
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.answer.unique_names()
    }

    /// The rows, at most `limit` of them, as tuples of int, float, bool, str, bytes or None.
    #[pyo3(signature = (limit=None))]
    fn tuples<'py>(
        &self,
        py: Python<'py>,
        limit: Option<usize>,
    ) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let columns = self.answer.columns();
        let is_bool: Vec<bool> = columns.iter().map(|c| c.declared == "BOOLEAN").collect();
        (0..self.answer.len().min(limit.unwrap_or(usize::MAX)))
            .map(|row| {
                let fields = is_bool.iter().enumerate().map(|(column, is_bool)| {
                    object(
                        py,
                        self.answer.get(row, column).unwrap_or(&Cell::Null),
                        *is_bool,
                    )
                });
                PyTuple::new(py, fields.collect::<PyResult<Vec<_>>>()?)
            })
            .collect()
    }

    /// The rows as an Arrow IPC stream.
    fn arrow_ipc<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let encoded = py.detach(|| self.answer.to_arrow_ipc());
        encoded
            .map(|bytes| PyBytes::new(py, &bytes))
            .map_err(|fault| errors::from_sql(py, fault))
    }

    fn __len__(&self) -> usize {
        self.answer.len()
    }
}

/// Converts a cell. SQLite has no bools: a column that is declared as bool holds 0 and 1.
fn object<'py>(py: Python<'py>, cell: &Cell, is_bool: bool) -> PyResult<Bound<'py, PyAny>> {
    Ok(match cell {
        Cell::Null => py.None().into_bound(py),
        Cell::Int(v @ (0 | 1)) if is_bool => (*v == 1).into_pyobject(py)?.to_owned().into_any(),
        Cell::Int(v) => v.into_pyobject(py)?.into_any(),
        Cell::Real(v) => v.into_pyobject(py)?.into_any(),
        Cell::Text(v) => (&**v).into_pyobject(py)?.into_any(),
        Cell::Blob(v) => PyBytes::new(py, v).into_any(),
    })
}

/// Runs a query without the GIL. A query that is quick, as nearly all are, runs on this thread. Any
/// other is run again on a thread of its own, while this thread checks for signals.
#[expect(
    clippy::disallowed_methods,
    reason = "the interpreter's thread waits for an answer, and looks for signals"
)]
pub(crate) fn ask(
    py: Python<'_>,
    observer: &Observer,
    sql: &str,
    limits: SqlLimits,
) -> PyResult<Rows> {
    let quick_ns = SIGNAL_CHECK_INTERVAL.as_nanos() as i64;
    let quick = SqlLimits {
        time_ns_max: limits.time_ns_max.min(quick_ns),
        ..limits
    };
    let mut answer = py.detach(|| observer.sql(sql, &quick));
    let unanswered = answer
        .as_ref()
        .is_err_and(|fault| fault.kind == SqlFaultKind::Limit);
    if unanswered && limits.time_ns_max > quick_ns {
        py.check_signals()?;
        let cancel = AtomicBool::new(false);
        answer = py.detach(|| {
            thread::scope(|scope| {
                let (sender, answered) = sync_channel(1);
                let (limits, cancel) = (&limits, &cancel);
                scope.spawn(move || {
                    // The receiver waits until it has the result, or has raised an exception.
                    let _ = sender.send(observer.sql_until(sql, limits, cancel));
                });
                loop {
                    match answered.recv_timeout(SIGNAL_CHECK_INTERVAL) {
                        Ok(answer) => return Ok(answer),
                        Err(RecvTimeoutError::Timeout) => {}
                        Err(RecvTimeoutError::Disconnected) => {
                            return Err(errors::Error::new_err("the query's thread has died"));
                        }
                    }
                    if let Err(raised) = Python::attach(|py| py.check_signals()) {
                        cancel.store(true, Ordering::Relaxed);
                        return Err(raised);
                    }
                }
            })
        })?;
    }
    match answer {
        Ok(answer) => Ok(Rows { answer }),
        Err(fault) => Err(errors::from_sql(py, fault)),
    }
}

//! The exceptions of the package, and the mapping of errors to them.

use barograph_client::ClientError;
use barograph_client::publish::PublishError;
use barograph_model::{SqlFault, SqlFaultKind};
use barograph_progressive::ProgressiveError;
use barograph_staging::FaultCode;
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyOSError, PyValueError};
use pyo3::prelude::*;

create_exception!(barograph, Error, PyException, "Any failure of barograph.");
create_exception!(
    barograph,
    NoAgentError,
    Error,
    "No agent has served the run directory: start one with `baro up`."
);
create_exception!(
    barograph,
    UnknownStreamError,
    Error,
    "No stream matches, or the stream has ended. `near` lists those that may have been meant."
);
create_exception!(
    barograph,
    AmbiguousStreamError,
    Error,
    "One stream was asked for and several match. `matches` lists the first of them."
);
create_exception!(
    barograph,
    UnknownNodeError,
    Error,
    "No node of this name is mirrored here. `mirrored` lists those that are, `near` those that may have been meant."
);
create_exception!(
    barograph,
    QueryError,
    Error,
    "A query was not answered. `kind` is statement, refused, limit, cancelled, busy or internal."
);
create_exception!(
    barograph,
    DamagedArrayError,
    Error,
    "Bytes are no packed array, or damaged, cut short, or of a later version of the format."
);
create_exception!(
    barograph,
    OutOfReachError,
    Error,
    "No reading of the packed array is within the error bound. `best` is the same measure of the best one."
);

create_exception!(
    barograph,
    StagingError,
    Error,
    "An operation of staging has failed. `code` is its kind; `number` belongs to the kind."
);
create_exception!(
    barograph,
    BlockNotFoundError,
    StagingError,
    "There is no such block."
);

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("Error", py.get_type::<Error>())?;
    module.add("NoAgentError", py.get_type::<NoAgentError>())?;
    module.add("UnknownStreamError", py.get_type::<UnknownStreamError>())?;
    module.add(
        "AmbiguousStreamError",
        py.get_type::<AmbiguousStreamError>(),
    )?;
    module.add("UnknownNodeError", py.get_type::<UnknownNodeError>())?;
    module.add("QueryError", py.get_type::<QueryError>())?;
    module.add("DamagedArrayError", py.get_type::<DamagedArrayError>())?;
    module.add("OutOfReachError", py.get_type::<OutOfReachError>())?;
    module.add("StagingError", py.get_type::<StagingError>())?;
    module.add("BlockNotFoundError", py.get_type::<BlockNotFoundError>())
}

pub(crate) fn from_staging(py: Python<'_>, error: &barograph_staging::StagingError) -> PyErr {
    let text = error.to_string();
    let Some(code) = error.code() else {
        return PyValueError::new_err(text);
    };
    let raised = match code {
        FaultCode::NotFound => BlockNotFoundError::new_err(text),
        _ => StagingError::new_err(text),
    };
    let raised = with(py, raised, "code", code.as_str());
    with(py, raised, "number", error.number())
}

pub(crate) fn from_client(py: Python<'_>, error: ClientError) -> PyErr {
    let text = error.to_string();
    match error {
        ClientError::NoAgent { .. } => NoAgentError::new_err(text),
        ClientError::UnknownStream { near, .. } => {
            with(py, UnknownStreamError::new_err(text), "near", near)
        }
        ClientError::Ambiguous { matches, .. } => {
            with(py, AmbiguousStreamError::new_err(text), "matches", matches)
        }
        ClientError::UnknownNode(unknown) => {
            let error = with(py, UnknownNodeError::new_err(text), "near", unknown.near);
            with(py, error, "mirrored", unknown.mirrored)
        }
        ClientError::Segment(_)
        | ClientError::Selector(_)
        | ClientError::NoArchive { .. }
        | ClientError::Archive(_) => Error::new_err(text),
    }
}

/// Converts an error that the caller of `publication` has to correct.
pub(crate) fn from_publish(error: &PublishError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

pub(crate) fn from_sql(py: Python<'_>, fault: SqlFault) -> PyErr {
    let kind = match fault.kind {
        SqlFaultKind::Statement => "statement",
        SqlFaultKind::Refused => "refused",
        SqlFaultKind::Limit => "limit",
        SqlFaultKind::Cancelled => "cancelled",
        SqlFaultKind::Busy => "busy",
        SqlFaultKind::Internal => "internal",
    };
    with(py, QueryError::new_err(fault.message), "kind", kind)
}

pub(crate) fn from_progressive(py: Python<'_>, error: ProgressiveError) -> PyErr {
    let text = error.to_string();
    match error {
        ProgressiveError::Shape { .. }
        | ProgressiveError::Mesh { .. }
        | ProgressiveError::Bound { .. }
        | ProgressiveError::Ambiguous { .. } => PyValueError::new_err(text),
        ProgressiveError::OutOfReach { best, .. } => {
            with(py, OutOfReachError::new_err(text), "best", best)
        }
        ProgressiveError::Fetch { .. } | ProgressiveError::Spool { .. } => PyOSError::new_err(text),
        ProgressiveError::Damaged { .. }
        | ProgressiveError::CutShort { .. }
        | ProgressiveError::Future { .. } => DamagedArrayError::new_err(text),
    }
}

/// Returns the error with one more attribute; if setting it fails (no memory), returns that error
/// instead.
fn with<'py>(
    py: Python<'py>,
    error: PyErr,
    attribute: &str,
    value: impl IntoPyObject<'py>,
) -> PyErr {
    match error.value(py).setattr(attribute, value) {
        Ok(()) => error,
        Err(other) => other,
    }
}

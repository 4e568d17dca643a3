//! Server maps: operations at servers that come and go, and the servers themselves.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use barograph_client::RunDir;
use barograph_client::publish::{
    MAP_WAIT_DEFAULT, MapServer as DeclaredServer, PublishConfig, PublishError, Publisher,
    RawOperation, RawRequest, ServerMap as DeclaredMap,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors;
use crate::publication::is_mistake;

/// Longest wait that can be asked for, in seconds.
const WAIT_SECONDS_MAX: f64 = 1e9;

/// A map of servers at which the program does operations.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct ServerMap {
    map: DeclaredMap,
    error: Option<String>,
}

/// An operation, which begins and ends with its block.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct MapOperation {
    map: Py<ServerMap>,
    wait_max: Duration,
    state: Mutex<OperationState>,
}

#[derive(Default)]
struct OperationState {
    begun: Option<RawOperation>,
    fence: Option<u64>,
}

/// A server of a map.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct MapServer {
    server: DeclaredServer,
    error: Option<String>,
}

/// A request that a server serves, or has refused, as a block.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct MapRequest {
    server: Py<MapServer>,
    epoch: u64,
    state: Mutex<RequestState>,
}

#[derive(Clone, Copy, Default)]
struct RequestState {
    begun: Option<RawRequest>,
    fence: Option<u64>,
    bytes: u64,
}

/// Opens the publisher of this process and declares something; a map that cannot be declared is an
/// error, and publishing that is off is none.
fn declared<T: Send>(
    py: Python<'_>,
    application: String,
    run_dir: Option<PathBuf>,
    declare: impl FnOnce(&Publisher) -> Result<T, PublishError> + Send,
) -> PyResult<(T, Option<String>)> {
    let config = PublishConfig {
        run_dir: run_dir.map(RunDir::new),
        ..PublishConfig::of(application)
    };
    let (declared, error) = py.detach(|| {
        let publisher = Publisher::open(config);
        let error = publisher.error().map(ToString::to_string);
        (declare(&publisher), error)
    });
    match declared {
        Ok(declared) => Ok((declared, error)),
        Err(PublishError::Map { .. }) => {
            let text = declared.err().map_or_else(String::new, |e| e.to_string());
            Err(PyValueError::new_err(text))
        }
        Err(error) if is_mistake(&error) => Err(errors::from_publish(&error)),
        Err(error) => Err(PyValueError::new_err(error.to_string())),
    }
}

#[pymethods]
impl ServerMap {
    #[new]
    #[pyo3(signature = (name, servers, application, run_dir))]
    fn new(
        py: Python<'_>,
        name: String,
        servers: Vec<u32>,
        application: String,
        run_dir: Option<PathBuf>,
    ) -> PyResult<Self> {
        let declare = |publisher: &Publisher| publisher.server_map(&name, servers);
        let (map, error) = declared(py, application, run_dir, declare)?;
        Ok(Self { map, error })
    }

    /// The reason why nothing is published.
    #[getter]
    fn error(&self) -> Option<String> {
        self.error.clone()
    }

    /// An operation at the servers, as a block.
    #[pyo3(signature = (*, wait=None))]
    fn operation(slf: Bound<'_, Self>, wait: Option<f64>) -> PyResult<MapOperation> {
        let wait_max = match wait {
            None => MAP_WAIT_DEFAULT,
            Some(wait) if (0.0..=WAIT_SECONDS_MAX).contains(&wait) => Duration::from_secs_f64(wait),
            Some(wait) => {
                let text = format!("wait is {wait}: give seconds, 0 or more");
                return Err(PyValueError::new_err(text));
            }
        };
        Ok(MapOperation {
            map: slf.unbind(),
            wait_max,
            state: Mutex::default(),
        })
    }
}

#[pymethods]
impl MapOperation {
    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        let py = slf.py();
        let this = slf.get();
        if this.state().begun.is_some() {
            return Err(PyValueError::new_err("the operation has begun already"));
        }
        let map = this.map(py);
        // Others of this program go on meanwhile.
        let begun = py.detach(|| map.begin_raw(this.wait_max));
        if let Err(error) = py.check_signals() {
            // The block does not begin, so nothing else would end the operation.
            py.detach(|| map.end_raw(begun.number));
            return Err(error);
        }
        *this.state() = OperationState {
            begun: Some(begun),
            fence: None,
        };
        Ok(slf)
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) {
        let ended = {
            let mut state = self.state();
            let fence = state.fence.take();
            state.begun.take().map(|begun| (begun.number, fence))
        };
        let map = self.map(py);
        py.detach(|| match ended {
            Some((number, Some(fence))) if number != 0 => map.refused_raw(number, fence),
            Some((number, None)) if number != 0 => map.end_raw(number),
            _ => {}
        });
    }

    /// Notes that a server has refused the operation with a fence, for the end of the block: begin
    /// another one then.
    fn refused(&self, fence: u64) {
        let mut state = self.state();
        state.fence = Some(state.fence.map_or(fence, |before| before.max(fence)));
    }

    /// Whether a server has refused it.
    #[getter]
    fn is_refused(&self) -> bool {
        self.state().fence.is_some()
    }

    /// The epoch, which goes to the servers with each request; None outside of the block.
    #[getter]
    fn epoch(&self) -> Option<u64> {
        self.state().begun.map(|begun| begun.epoch)
    }

    /// The numbers of the servers, in order; None outside of the block.
    #[getter]
    fn servers(&self) -> Option<Vec<u32>> {
        let state = self.state();
        state.begun.map(|begun| begun.servers.iter().collect())
    }

    /// Why it has begun: "off", "current" or "late"; None outside of the block.
    #[getter]
    fn start(&self) -> Option<&'static str> {
        self.state().begun.map(|begun| begun.start.as_str())
    }
}

impl MapOperation {
    fn state(&self) -> std::sync::MutexGuard<'_, OperationState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn map(&self, py: Python<'_>) -> DeclaredMap {
        self.map.bind(py).get().map.clone()
    }
}

#[pymethods]
impl MapServer {
    #[new]
    #[pyo3(signature = (name, number, application, run_dir))]
    fn new(
        py: Python<'_>,
        name: String,
        number: u32,
        application: String,
        run_dir: Option<PathBuf>,
    ) -> PyResult<Self> {
        let declare = |publisher: &Publisher| publisher.map_server(&name, number);
        let (server, error) = declared(py, application, run_dir, declare)?;
        Ok(Self { server, error })
    }

    /// The reason why nothing is published.
    #[getter]
    fn error(&self) -> Option<String> {
        self.error.clone()
    }

    /// A request of an operation of an epoch, as a block.
    fn serve(slf: Bound<'_, Self>, epoch: u64) -> MapRequest {
        MapRequest {
            server: slf.unbind(),
            epoch,
            state: Mutex::default(),
        }
    }
}

#[pymethods]
impl MapRequest {
    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        let py = slf.py();
        let this = slf.get();
        if this.state().begun.is_some() {
            return Err(PyValueError::new_err("the request has begun already"));
        }
        let server = this.server(py);
        let begun = py.detach(|| server.serve_raw(this.epoch));
        if let Err(error) = py.check_signals() {
            if let Ok(raw) = begun {
                py.detach(|| server.end_raw(&raw, 0));
            }
            return Err(error);
        }
        *this.state() = RequestState {
            begun: begun.ok(),
            fence: begun.err().map(|fenced| fenced.fence),
            bytes: 0,
        };
        Ok(slf)
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) {
        let (begun, bytes) = {
            let mut state = self.state();
            (state.begun.take(), state.bytes)
        };
        if let Some(raw) = begun {
            let server = self.server(py);
            py.detach(|| server.end_raw(&raw, bytes));
        }
    }

    /// Notes how many bytes the request has read or written, for the end of the block.
    fn done(&self, bytes: u64) {
        self.state().bytes = bytes;
    }

    /// The first epoch that is served, if the request is not: answer with it. None if it is served.
    #[getter]
    fn fence(&self) -> Option<u64> {
        self.state().fence
    }
}

impl MapRequest {
    fn state(&self) -> std::sync::MutexGuard<'_, RequestState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn server(&self, py: Python<'_>) -> DeclaredServer {
        self.server.bind(py).get().server.clone()
    }
}

//! Phases of I/O: a program says when it does much I/O, and may wait for its turn.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use barograph_client::RunDir;
use barograph_client::publish::{
    IO_WAIT_DEFAULT, IoGrant, IoPhaseConfig, IoVolume as Declared, PublishConfig, Publisher,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors;
use crate::publication::is_mistake;

/// Longest wait that can be asked for, in seconds.
const WAIT_SECONDS_MAX: f64 = 1e9;

/// A volume on which the program does I/O.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct IoVolume {
    /// `None` if nothing is published.
    volume: Option<Declared>,
    error: Option<String>,
}

/// A phase of I/O, which begins and ends with its block.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct IoPhase {
    volume: Py<IoVolume>,
    config: IoPhaseConfig,
    state: Mutex<PhaseState>,
}

#[derive(Clone, Copy)]
struct PhaseState {
    number: u64,
    grant: Option<IoGrant>,
    /// `None` before the program has said how much it has done.
    bytes_done: Option<u64>,
}

#[pymethods]
impl IoVolume {
    #[new]
    #[pyo3(signature = (volume, application, run_dir))]
    fn new(
        py: Python<'_>,
        volume: String,
        application: String,
        run_dir: Option<PathBuf>,
    ) -> PyResult<Self> {
        let config = PublishConfig {
            run_dir: run_dir.map(RunDir::new),
            ..PublishConfig::of(application)
        };
        let declared = py.detach(|| {
            let publisher = Publisher::open(config);
            let error = publisher.error().map(ToString::to_string);
            (publisher.io_volume(&volume), error)
        });
        match declared {
            (Ok(volume), error) => Ok(Self {
                volume: Some(volume),
                error,
            }),
            (Err(error), _) if is_mistake(&error) => Err(errors::from_publish(&error)),
            (Err(error), _) => Ok(Self {
                volume: None,
                error: Some(error.to_string()),
            }),
        }
    }

    /// The reason why nothing is published.
    #[getter]
    fn error(&self) -> Option<String> {
        self.error.clone()
    }

    /// A phase of I/O, as a block.
    #[pyo3(signature = (bytes=None, *, priority=5, wait=None))]
    fn phase(
        slf: Bound<'_, Self>,
        bytes: Option<u64>,
        priority: u8,
        wait: Option<f64>,
    ) -> PyResult<IoPhase> {
        if !(1..=10).contains(&priority) {
            let text = format!("priority is {priority}: give 1 (least) to 10");
            return Err(PyValueError::new_err(text));
        }
        let wait_max = match wait {
            None => IO_WAIT_DEFAULT,
            Some(wait) if (0.0..=WAIT_SECONDS_MAX).contains(&wait) => Duration::from_secs_f64(wait),
            Some(wait) => {
                let text = format!("wait is {wait}: give seconds, 0 or more");
                return Err(PyValueError::new_err(text));
            }
        };
        Ok(IoPhase {
            volume: slf.unbind(),
            config: IoPhaseConfig {
                bytes,
                priority,
                wait_max,
            },
            state: Mutex::new(PhaseState {
                number: 0,
                grant: None,
                bytes_done: None,
            }),
        })
    }
}

#[pymethods]
impl IoPhase {
    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        let py = slf.py();
        let this = slf.get();
        if let Some(volume) = this.volume(py) {
            // Others of this program go on meanwhile.
            let (number, grant) = py.detach(|| volume.begin_raw(&this.config));
            if let Err(error) = py.check_signals() {
                // The block does not begin, so nothing else would end the phase.
                py.detach(|| volume.end_raw(number, 0));
                return Err(error);
            }
            let mut state = this.state();
            (state.number, state.grant, state.bytes_done) = (number, Some(grant), None);
        }
        Ok(slf)
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) {
        let (number, done) = {
            let mut state = self.state();
            (std::mem::take(&mut state.number), state.bytes_done)
        };
        // A block that ends well and says nothing has done what it was for.
        let declared = self.config.bytes.filter(|_| error.is_none());
        let done = done.or(declared).unwrap_or(0);
        if let Some(volume) = self.volume(py) {
            py.detach(|| volume.end_raw(number, done));
        }
    }

    /// Says how much was done so far, and waits if the grant was taken away for others. Returns why
    /// the phase may go on.
    fn step(&self, py: Python<'_>, bytes_done: u64) -> PyResult<&'static str> {
        let number = {
            let mut state = self.state();
            state.bytes_done = Some(bytes_done);
            state.number
        };
        let Some(volume) = self.volume(py) else {
            return Ok(IoGrant::Off.as_str());
        };
        let wait_max = self.config.wait_max;
        let grant = py.detach(|| volume.step_raw(number, bytes_done, wait_max));
        self.state().grant = Some(grant);
        py.check_signals()?;
        Ok(grant.as_str())
    }

    /// Notes how much was done, for the end of the phase.
    fn done(&self, bytes_done: u64) {
        self.state().bytes_done = Some(bytes_done);
    }

    /// Why the phase may go on: "granted", "off", "late" or "no_agent"; None before it begins.
    #[getter]
    fn grant(&self) -> Option<&'static str> {
        self.state().grant.map(IoGrant::as_str)
    }

    /// The share of the volume that it has, 0 to 1; None without a grant.
    #[getter]
    fn share(&self, py: Python<'_>) -> Option<f64> {
        let number = self.state().number;
        self.volume(py)?.share_raw(number)
    }
}

impl IoPhase {
    fn state(&self) -> std::sync::MutexGuard<'_, PhaseState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn volume(&self, py: Python<'_>) -> Option<Declared> {
        self.volume.bind(py).get().volume.clone()
    }
}

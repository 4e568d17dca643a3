//! The questions of a reader of arrays to the agent.

use std::path::PathBuf;
use std::time::Duration;

use barograph_client::{
    FetchedBytes, ReadAnswer, ReaderConfig, ReaderQuestions, RunDir, WantedReading,
};
use barograph_progressive::ErrorBound;
use pyo3::prelude::*;

use crate::errors::from_progressive;
use crate::packed::{PackedArray, os_error};

/// Buckets, bytes of the probe, the reason, and what the agent has answered: number, proposed
/// buckets, degree, bandwidth, half width, basis, weight, reason of no weight, lease.
type Decided = (usize, u64, String, Option<Answered>);
type Answered = (
    u64,
    usize,
    Option<f64>,
    Option<f64>,
    Option<f64>,
    Option<String>,
    Option<f64>,
    Option<String>,
    Option<f64>,
);

/// The questions about one array of a file.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct Questions {
    array: Py<PackedArray>,
    questions: ReaderQuestions,
}

#[pymethods]
impl Questions {
    #[new]
    fn new(
        py: Python<'_>,
        array: Py<PackedArray>,
        path: PathBuf,
        label: String,
        priority: u8,
        dry_run: bool,
        run_dir: Option<PathBuf>,
    ) -> PyResult<Self> {
        let config = ReaderConfig {
            run_dir: run_dir.map_or_else(RunDir::find, RunDir::new),
            label,
            priority,
            dry_run,
        };
        let packed = array.get();
        let questions =
            py.detach(|| ReaderQuestions::new(&packed.array, &path, packed.tiers(), config));
        let questions = questions.map_err(|error| os_error(&error, path))?;
        Ok(Self { array, questions })
    }

    /// Asks for a decision; it never fails because of the agent.
    fn ask(
        &self,
        py: Python<'_>,
        bound: Option<&str>,
        alone: usize,
        least: usize,
        interval: Option<f64>,
        share: f64,
    ) -> PyResult<Decided> {
        let bound = bound.map(ErrorBound::parse).transpose();
        let wanted = WantedReading {
            bound: bound.map_err(|error| from_progressive(py, error))?,
            alone,
            least,
            interval: interval.and_then(|s| Duration::try_from_secs_f64(s).ok()),
            share,
        };
        let decision = py.detach(|| self.questions.ask(&wanted));
        let answered = |it: ReadAnswer| {
            (
                it.id,
                it.proposed,
                it.degree,
                it.bandwidth,
                it.bandwidth_error,
                it.bandwidth_basis,
                it.weight,
                it.weight_reason,
                it.lease_s,
            )
        };
        Ok((
            decision.buckets,
            decision.probe_bytes(),
            decision.reason,
            decision.answer.map(answered),
        ))
    }

    /// Reads the bytes of the first buckets from the device that was asked about, and those of the
    /// probe; returns their number and the seconds, or None if they cannot be read.
    fn fetch(&self, py: Python<'_>, buckets: usize, probe_bytes: u64) -> Option<(u64, f64)> {
        let array = &self.array.get().array;
        let fetched = py.detach(|| self.questions.fetch(array, (buckets, probe_bytes)));
        fetched.map(|it| (it.bytes, it.time.as_secs_f64()))
    }

    /// Tells the agent what came of its decision; returns whether it has heard it.
    fn report(
        &self,
        py: Python<'_>,
        id: u64,
        fetched: Option<(u64, f64)>,
        nrmse: Option<f64>,
    ) -> bool {
        let fetched = fetched.map(|(bytes, seconds)| FetchedBytes {
            bytes,
            time: Duration::try_from_secs_f64(seconds).unwrap_or_default(),
        });
        py.detach(|| self.questions.report(id, fetched, nrmse))
    }
}

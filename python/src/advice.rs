//! Where blocks go: the questions of middleware to the agent.

use std::path::PathBuf;
use std::time::Duration;

use barograph_client::{AdviceQuestion, AdviceTarget, PlacementAdviser, RunDir};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Where a block goes.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct AdvisedBlock {
    #[pyo3(get)]
    key: String,
    #[pyo3(get)]
    pieces: Vec<(String, u64)>,
    #[pyo3(get)]
    expected_s: Option<f64>,
}

#[pymethods]
impl AdvisedBlock {
    /// The directory of the block, or of its first piece; None if no target has room.
    #[getter]
    fn path(&self) -> Option<&str> {
        self.pieces.first().map(|(path, _)| &**path)
    }

    fn __repr__(&self) -> String {
        let path = self.path().unwrap_or("nowhere");
        format!("AdvisedBlock(key={:?}, path={path:?})", self.key)
    }
}

/// The answer to a question.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct Advice {
    #[pyo3(get)]
    decision: Option<u64>,
    #[pyo3(get)]
    reason: String,
    #[pyo3(get)]
    blocks: Vec<Py<AdvisedBlock>>,
}

#[pymethods]
impl Advice {
    fn __repr__(&self) -> String {
        format!("Advice({:?})", self.reason)
    }
}

/// A directory, with or without its weight.
#[derive(FromPyObject)]
enum AskedTarget {
    Weighted((PathBuf, f64)),
    Path(PathBuf),
}

/// The way to the adviser of an agent.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct Adviser {
    adviser: PlacementAdviser,
}

#[pymethods]
impl Adviser {
    #[new]
    #[pyo3(signature = (run_dir=None))]
    fn new(run_dir: Option<PathBuf>) -> Self {
        let run_dir = run_dir.map_or_else(RunDir::find, RunDir::new);
        Self {
            adviser: PlacementAdviser::new(run_dir),
        }
    }

    #[pyo3(signature = (targets, nbytes, keys=Vec::new(), *, read=false, pieces_min=None, label=String::new(), dry_run=false))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords of Python")]
    fn advise(
        &self,
        py: Python<'_>,
        targets: Vec<AskedTarget>,
        nbytes: u64,
        keys: Vec<String>,
        read: bool,
        pieces_min: Option<u64>,
        label: String,
        dry_run: bool,
    ) -> PyResult<Advice> {
        let targets = targets.into_iter().map(|target| {
            let (path, weight) = match target {
                AskedTarget::Weighted(weighted) => weighted,
                AskedTarget::Path(path) => (path, 1.0),
            };
            let wrong = || PyValueError::new_err(format!("{} is no UTF-8", path.display()));
            let path = path.to_str().ok_or_else(wrong)?.to_owned();
            Ok(AdviceTarget { path, weight })
        });
        let question = AdviceQuestion {
            keys,
            bytes: nbytes,
            is_read: read,
            split_bytes_min: pieces_min,
            targets: targets.collect::<PyResult<_>>()?,
            label,
            dry_run,
        };
        let advice = py.detach(|| self.adviser.advise(&question));
        let advice = advice.map_err(|error| PyValueError::new_err(error.to_string()))?;
        let blocks = advice.blocks.into_iter().map(|block| {
            let pieces = block.pieces.into_iter();
            let block = AdvisedBlock {
                key: block.key,
                pieces: pieces.map(|piece| (piece.path, piece.bytes)).collect(),
                expected_s: block.expected_s,
            };
            Py::new(py, block)
        });
        Ok(Advice {
            decision: advice.decision,
            reason: advice.reason,
            blocks: blocks.collect::<PyResult<_>>()?,
        })
    }

    fn report(&self, py: Python<'_>, decision: u64, nbytes: u64, seconds: f64) -> PyResult<bool> {
        let time = Duration::try_from_secs_f64(seconds)
            .map_err(|_| PyValueError::new_err(format!("{seconds} s is no time")))?;
        Ok(py.detach(|| self.adviser.report(decision, nbytes, time)))
    }
}

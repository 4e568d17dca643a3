//! Where blocks of staging are, as Python has it.

use barograph_staging::BlockKey;
use barograph_staging::client::{BlockReplica as Replica, LocateAnswer};
use pyo3::prelude::*;

/// Where many blocks are.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct LocatedBlocks {
    #[pyo3(get)]
    epoch: u64,
    #[pyo3(get)]
    unreachable: Vec<u64>,
    blocks: Vec<Py<LocatedBlock>>,
}

/// Where a block is.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct LocatedBlock {
    key: BlockKey,
    replicas: Vec<Py<BlockReplica>>,
}

/// A copy of a block on a server.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct BlockReplica(Replica);

impl LocatedBlocks {
    pub(crate) fn new(py: Python<'_>, keys: Vec<BlockKey>, found: LocateAnswer) -> PyResult<Self> {
        let block = |(key, replicas): (BlockKey, Vec<Replica>)| {
            let replicas = replicas.into_iter();
            let replicas = replicas.map(|replica| Py::new(py, BlockReplica(replica)));
            let replicas = replicas.collect::<PyResult<_>>()?;
            Py::new(py, LocatedBlock { key, replicas })
        };
        let blocks = keys.into_iter().zip(found.blocks).map(block);
        Ok(Self {
            epoch: found.epoch,
            unreachable: found.unreachable,
            blocks: blocks.collect::<PyResult<_>>()?,
        })
    }
}

#[pymethods]
impl LocatedBlocks {
    #[getter]
    fn blocks(&self, py: Python<'_>) -> Vec<Py<LocatedBlock>> {
        self.blocks
            .iter()
            .map(|block| block.clone_ref(py))
            .collect()
    }

    fn __repr__(&self) -> String {
        let (blocks, gone) = (self.blocks.len(), &self.unreachable);
        format!(
            "<LocatedBlocks blocks={blocks} epoch={} unreachable={gone:?}>",
            self.epoch
        )
    }
}

#[pymethods]
impl LocatedBlock {
    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, pyo3::types::PyTuple>> {
        crate::staging_blocks::key_tuple(py, &self.key)
    }

    #[getter]
    fn replicas(&self, py: Python<'_>) -> Vec<Py<BlockReplica>> {
        self.replicas.iter().map(|it| it.clone_ref(py)).collect()
    }

    fn __repr__(&self) -> String {
        format!(
            "<LocatedBlock {} replicas={}>",
            self.key,
            self.replicas.len()
        )
    }
}

#[pymethods]
impl BlockReplica {
    #[getter]
    fn server(&self) -> u64 {
        self.0.server
    }

    #[getter]
    fn is_on_node(&self) -> bool {
        self.0.is_on_node
    }

    #[getter]
    fn tier(&self) -> String {
        match (self.0.info.tier, &self.0.path) {
            (0, _) => "memory".into(),
            (_, Some(path)) => path.clone(),
            (tier, None) => format!("directory {tier}"),
        }
    }

    #[getter]
    fn nbytes(&self) -> u64 {
        self.0.info.bytes
    }

    #[getter]
    fn version(&self) -> u64 {
        self.0.info.version
    }

    #[getter]
    fn is_confirmed(&self) -> bool {
        self.0.info.is_confirmed
    }

    #[getter]
    fn is_dirty(&self) -> bool {
        self.0.info.is_dirty
    }

    #[getter]
    fn read_s(&self) -> Option<f64> {
        self.0.read_s
    }

    fn __repr__(&self) -> String {
        format!(
            "<BlockReplica server={} tier={:?} version={}>",
            self.0.server,
            self.tier(),
            self.0.info.version
        )
    }
}

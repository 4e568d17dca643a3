//! Blocks of staging as Python has them: what is known of one, lists, and memory that a server
//! shares, which is read without a copy.
#![expect(
    unsafe_code,
    reason = "the protocol of buffers, by which others read the memory"
)]

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use barograph_staging::client::{GuestClient, ListCursor};
use barograph_staging::{BlockInfo, BlockKey, BlockName, ListQuery, MappedBlock as SharedBlock};
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PyTuple};

use crate::errors::from_staging;

/// What is known of a block.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct StagedBlock {
    key: BlockKey,
    info: BlockInfo,
}

impl StagedBlock {
    pub(crate) fn new(key: BlockKey, info: BlockInfo) -> Self {
        Self { key, info }
    }
}

/// A key as Python has it: the dataset, and the number or the name.
pub(crate) fn key_tuple<'py>(py: Python<'py>, key: &BlockKey) -> PyResult<Bound<'py, PyTuple>> {
    let name = match key.name() {
        BlockName::Number(number) => number.into_pyobject(py)?.into_any(),
        BlockName::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
    };
    (key.dataset(), name).into_pyobject(py)
}

#[pymethods]
impl StagedBlock {
    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        key_tuple(py, &self.key)
    }

    #[getter]
    fn nbytes(&self) -> u64 {
        self.info.bytes
    }

    #[getter]
    fn version(&self) -> u64 {
        self.info.version
    }

    #[getter]
    fn epoch(&self) -> u64 {
        self.info.epoch
    }

    #[getter]
    fn checksum(&self) -> u32 {
        self.info.checksum
    }

    #[getter]
    fn is_confirmed(&self) -> bool {
        self.info.is_confirmed
    }

    #[getter]
    fn is_dirty(&self) -> bool {
        self.info.is_dirty
    }

    #[getter]
    fn tier(&self) -> u8 {
        self.info.tier
    }

    fn __repr__(&self) -> String {
        let (key, info) = (&self.key, &self.info);
        format!(
            "<StagedBlock {key} version={} nbytes={}>",
            info.version, info.bytes
        )
    }
}

/// A list of blocks, which is fetched while it is read.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct BlockList {
    client: Arc<GuestClient>,
    // Locked without the GIL: a thread that waits for it holds nobody up.
    cursor: Mutex<ListCursor>,
}

impl BlockList {
    pub(crate) fn new(client: Arc<GuestClient>, query: ListQuery) -> Self {
        let cursor = Mutex::new(ListCursor::new(query));
        Self { client, cursor }
    }
}

#[pymethods]
impl BlockList {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<StagedBlock>> {
        let next = py.detach(|| {
            let mut cursor = self.cursor.lock().unwrap_or_else(PoisonError::into_inner);
            cursor.next(self.client.client()?)
        });
        let next = next.map_err(|error| from_staging(py, &error))?;
        Ok(next.map(|(key, info)| StagedBlock::new(key, info)))
    }
}

/// The memory of a block, which lives as long as this and all views of it.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct MappedBlock {
    key: BlockKey,
    memory: BlockMemory,
    is_released: AtomicBool,
}

enum BlockMemory {
    Shared(SharedBlock),
    Copied(BlockInfo, Vec<u8>),
}

impl MappedBlock {
    pub(crate) fn shared(key: BlockKey, block: SharedBlock) -> Self {
        Self::new(key, BlockMemory::Shared(block))
    }

    pub(crate) fn copied(key: BlockKey, info: BlockInfo, bytes: Vec<u8>) -> Self {
        Self::new(key, BlockMemory::Copied(info, bytes))
    }

    fn new(key: BlockKey, memory: BlockMemory) -> Self {
        Self {
            key,
            memory,
            is_released: AtomicBool::new(false),
        }
    }

    fn place(&self) -> (*const u8, u64) {
        match &self.memory {
            BlockMemory::Shared(block) => (block.words().as_ptr().cast(), block.info().bytes),
            BlockMemory::Copied(_, bytes) => (bytes.as_ptr(), bytes.len() as u64),
        }
    }
}

#[pymethods]
impl MappedBlock {
    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __exit__(
        &self,
        _kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) {
        self.release();
    }

    /// Gives no more views; those that there are stay readable.
    fn release(&self) {
        self.is_released.store(true, Ordering::Relaxed);
    }

    /// The bytes, read-only and without a copy.
    #[getter]
    fn view(slf: Bound<'_, Self>) -> PyResult<Bound<'_, PyMemoryView>> {
        if slf.get().is_released.load(Ordering::Relaxed) {
            return Err(PyValueError::new_err("the block was released"));
        }
        PyMemoryView::from(slf.as_any())
    }

    /// Whether all that was read until now is the block.
    #[getter]
    fn is_valid(&self) -> bool {
        match &self.memory {
            BlockMemory::Shared(block) => block.is_current(),
            BlockMemory::Copied(..) => true,
        }
    }

    /// Whether the memory is the server's.
    #[getter]
    fn is_shared(&self) -> bool {
        matches!(self.memory, BlockMemory::Shared(_))
    }

    /// What is known of the block.
    #[getter]
    fn info(&self) -> StagedBlock {
        let info = match &self.memory {
            BlockMemory::Shared(block) => *block.info(),
            BlockMemory::Copied(info, _) => *info,
        };
        StagedBlock::new(self.key.clone(), info)
    }

    fn __len__(&self) -> usize {
        self.place().1 as usize
    }

    /// # Safety
    /// Python calls it with a place for a view.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if slf.get().is_released.load(Ordering::Relaxed) {
            return Err(PyBufferError::new_err("the block was released"));
        }
        let (start, bytes) = slf.get().place();
        let length = ffi::Py_ssize_t::try_from(bytes)?;
        let start = start.cast_mut().cast::<c_void>();
        // SAFETY: the view keeps a reference to the object, which keeps the memory mapped and never
        // changes; it is read-only, so nothing writes through the pointer.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, length, 1, flags) };
        match filled {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }
}

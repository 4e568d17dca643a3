//! Staging: puts, reads and removals of blocks at servers of this node and of others, without the
//! interpreter's lock and, where the caller gives memory, without a copy.
#![expect(
    unsafe_code,
    reason = "memory of Python's buffers, while the lock of the interpreter is released"
)]

use std::path::PathBuf;
use std::sync::Arc;

use barograph_client::SystemClock;
use barograph_staging::client::{
    ClientConfig, GetOptions, GuestClient, MappedCheck, PutOptions, StagingMap,
};
use barograph_staging::{BlockInfo, BlockKey, ListQuery, PutTarget, StagingError};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::errors::from_staging;
use crate::staging_blocks::{BlockList, MappedBlock, StagedBlock};
use crate::staging_places::LocatedBlocks;

/// Nanoseconds in a second.
const NS_PER_S: f64 = 1e9;
/// Microseconds in a second.
const US_PER_S: f64 = 1e6;
/// The longest time that can be asked for, in seconds.
const SECONDS_MAX: f64 = 1e9;

/// A client of servers that keep blocks.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct StagingClient {
    client: Arc<GuestClient>,
    get: GetOptions,
}

#[pymethods]
impl StagingClient {
    #[new]
    #[pyo3(signature = (servers, *, replicas=1, epoch=0, token=None, user=None, timeout=10.0, check=false, accept_unconfirmed=false))]
    #[expect(
        clippy::too_many_arguments,
        reason = "the typed package names each of them"
    )]
    fn new(
        py: Python<'_>,
        servers: &Bound<'_, PyAny>,
        replicas: usize,
        epoch: u64,
        token: Option<Vec<u8>>,
        user: Option<u32>,
        timeout: f64,
        check: bool,
        accept_unconfirmed: bool,
    ) -> PyResult<Self> {
        if replicas == 0 {
            return Err(PyValueError::new_err("replicas is 0: give 1 or more"));
        }
        let map = map_of(py, epoch, servers)?;
        let mut config = ClientConfig {
            token: token.unwrap_or_default(),
            replicas,
            timeout_ns: (seconds("timeout", timeout)? * NS_PER_S) as i64,
            ..ClientConfig::default()
        };
        if let Some(user) = user {
            config.user = user;
        }
        if check {
            config.mapped = Some(MappedCheck::Checksum);
        }
        let clock = Arc::new(SystemClock::new());
        Ok(Self {
            client: Arc::new(GuestClient::new(config, map, clock)),
            get: GetOptions { accept_unconfirmed },
        })
    }

    /// Sets the servers of a later epoch.
    fn set_servers(&self, py: Python<'_>, servers: &Bound<'_, PyAny>, epoch: u64) -> PyResult<()> {
        let map = map_of(py, epoch, servers)?;
        self.run(py, |client| {
            client.client()?.set_map(map);
            Ok(())
        })
    }

    /// Puts a block, and returns its version.
    #[pyo3(signature = (key, data, *, version=None, acks=None, durable=false, wait=1.0, refetch=0.0))]
    #[expect(
        clippy::too_many_arguments,
        reason = "the typed package names each of them"
    )]
    fn put(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        data: &Bound<'_, PyAny>,
        version: Option<u64>,
        acks: Option<usize>,
        durable: bool,
        wait: f64,
        refetch: f64,
    ) -> PyResult<u64> {
        let key = key_of(key)?;
        let options = PutOptions {
            acks,
            target: match durable {
                true => PutTarget::Durable,
                false => PutTarget::Fast,
            },
            refetch_us: (seconds("refetch", refetch)? * US_PER_S).ceil() as u32,
            wait_ns: (seconds("wait", wait)? * NS_PER_S) as i64,
        };
        let buffer = contiguous(data)?;
        let bytes = match buffer.len_bytes() {
            0 => &[][..],
            // SAFETY: the buffer holds this memory until it is dropped, after the put, and it is
            // contiguous. That no other thread writes to it meanwhile is what the documentation
            // of the package asks of its caller, as numpy does.
            length => unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast::<u8>(), length) },
        };
        self.run(py, |client| {
            let version = version.unwrap_or_else(|| client.next_version());
            client.client()?.put(&key, version, bytes, &options)?;
            Ok(version)
        })
    }

    /// Reads a block.
    fn get<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let key = key_of(key)?;
        let bytes = self.run(py, |client| read(client, &key, &self.get))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Reads a block into memory of the caller, and returns its bytes.
    fn get_into(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<u64> {
        let key = key_of(key)?;
        let buffer = contiguous(buffer)?;
        if buffer.readonly() {
            return Err(PyTypeError::new_err("the buffer can only be read"));
        }
        let memory = match buffer.len_bytes() {
            0 => &mut [][..],
            // SAFETY: as in `put`; the exporter says that it may be written.
            length => unsafe {
                std::slice::from_raw_parts_mut(buffer.buf_ptr().cast::<u8>(), length)
            },
        };
        let info = self.run(py, |client| {
            client.client()?.get_to(&key, memory, &self.get)
        })?;
        Ok(info.bytes)
    }

    /// A block in the memory of a server on this node, or a copy.
    fn map(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<MappedBlock> {
        let key = key_of(key)?;
        self.run(py, |client| {
            if let Some(block) = client.client()?.map_block(&key)? {
                return Ok(MappedBlock::shared(key.clone(), block));
            }
            let mut bytes = Vec::new();
            let info = client.client()?.get_into(&key, &mut bytes, &self.get)?;
            Ok(MappedBlock::copied(key.clone(), info, bytes))
        })
    }

    /// What is known of a block.
    fn stat(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<StagedBlock> {
        let key = key_of(key)?;
        let info = self.run(py, |client| client.client()?.stat(&key))?;
        Ok(StagedBlock::new(key, info))
    }

    /// Where many blocks are.
    fn locate(&self, py: Python<'_>, keys: Vec<Bound<'_, PyAny>>) -> PyResult<LocatedBlocks> {
        let keys: Vec<BlockKey> = keys.iter().map(key_of).collect::<PyResult<_>>()?;
        let found = self.run(py, |client| client.client()?.locate(&keys))?;
        LocatedBlocks::new(py, keys, found)
    }

    /// Removes a block, and returns whether there was one.
    #[pyo3(signature = (key, *, version_max=None))]
    fn remove(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        version_max: Option<u64>,
    ) -> PyResult<bool> {
        let key = key_of(key)?;
        let version_max = version_max.unwrap_or(u64::MAX);
        self.run(py, |client| client.client()?.delete(&key, version_max))
    }

    /// The blocks of this user.
    #[pyo3(signature = (dataset="", name=None))]
    fn list(&self, dataset: &str, name: Option<&Bound<'_, PyAny>>) -> PyResult<BlockList> {
        let query = ListQuery {
            dataset: dataset.into(),
            name: name.map_or_else(|| Ok(Vec::new()), bytes_of)?,
            ..ListQuery::default()
        };
        Ok(BlockList::new(Arc::clone(&self.client), query))
    }

    /// What has happened in this process.
    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counts = self.run(py, |client| Ok(client.client()?.counts()))?;
        let named = PyDict::new(py);
        for (name, count) in [
            ("connections", counts.connections),
            ("retries", counts.retries),
            ("fenced", counts.fenced),
            ("gets_mapped", counts.gets_mapped),
            ("gets_socket", counts.gets_socket),
            ("mapped_stale", counts.mapped_stale),
            ("corrupt", counts.corrupt),
            ("repaired", counts.repaired),
            ("repairs_failed", counts.repairs_failed),
            ("found_elsewhere", counts.found_elsewhere),
        ] {
            named.set_item(name, count)?;
        }
        Ok(named)
    }
}

impl StagingClient {
    /// Does something without the interpreter's lock.
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&GuestClient) -> Result<T, StagingError> + Send,
    ) -> PyResult<T> {
        let client = &*self.client;
        let done = py.detach(|| act(client));
        done.map_err(|error| from_staging(py, &error))
    }
}

fn read(
    client: &GuestClient,
    key: &BlockKey,
    options: &GetOptions,
) -> Result<Vec<u8>, StagingError> {
    let mut bytes = Vec::new();
    let _: BlockInfo = client.client()?.get_into(key, &mut bytes, options)?;
    Ok(bytes)
}

/// The servers of a list, or of a dict by their numbers.
fn map_of(py: Python<'_>, epoch: u64, servers: &Bound<'_, PyAny>) -> PyResult<StagingMap> {
    let text = |server: &Bound<'_, PyAny>| -> PyResult<String> {
        let path: PathBuf = server.extract()?;
        let text = path.into_os_string().into_string();
        text.map_err(|_| PyValueError::new_err("the address of a server is not UTF-8"))
    };
    let mut texts = Vec::new();
    if let Ok(numbered) = servers.cast::<PyDict>() {
        for (number, server) in numbered {
            let number: u64 = number.extract()?;
            texts.push(format!("{number}={}", text(&server)?));
        }
    } else if servers.is_instance_of::<pyo3::types::PyString>() {
        return Err(PyTypeError::new_err("give a list of servers"));
    } else {
        for server in servers.try_iter()? {
            texts.push(text(&server?)?);
        }
    }
    let map = StagingMap::parse(epoch, texts.iter().map(String::as_str));
    map.map_err(|error| from_staging(py, &error))
}

/// A dataset, and a number or a name.
fn key_of(key: &Bound<'_, PyAny>) -> PyResult<BlockKey> {
    let expected = "a key is a tuple of a dataset and a number or name";
    let wrong = |_| PyTypeError::new_err(expected);
    let (dataset, name): (String, Bound<'_, PyAny>) = key.extract().map_err(wrong)?;
    let made = match name.extract::<u64>() {
        Ok(number) => BlockKey::numbered(&dataset, number),
        Err(_) => BlockKey::named(&dataset, &bytes_of(&name)?),
    };
    made.map_err(|fault| PyValueError::new_err(fault.to_string()))
}

fn bytes_of(name: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(text) = name.extract::<String>() {
        return Ok(text.into_bytes());
    }
    if name.is_instance_of::<pyo3::types::PyInt>() {
        let text = "the number of a block is from 0 up, below 2**64";
        return Err(PyValueError::new_err(text));
    }
    let wrong = |_| PyTypeError::new_err("the name of a block is a number, a str or bytes");
    name.extract().map_err(wrong)
}

/// Memory of an object in one piece.
fn contiguous(object: &Bound<'_, PyAny>) -> PyResult<PyUntypedBuffer> {
    let buffer = PyUntypedBuffer::get(object)?;
    match buffer.is_c_contiguous() {
        true => Ok(buffer),
        false => {
            let text = "the buffer is not contiguous in C order";
            Err(PyValueError::new_err(text))
        }
    }
}

fn seconds(what: &str, given: f64) -> PyResult<f64> {
    match (0.0..=SECONDS_MAX).contains(&given) {
        true => Ok(given),
        false => {
            let text = format!("{what} is {given}: give seconds, from 0 up");
            Err(PyValueError::new_err(text))
        }
    }
}

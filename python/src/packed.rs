//! Packed arrays: memory of Python's arrays into buckets and back, without a copy where it is
//! contiguous, and without the interpreter's lock.

use std::borrow::Cow;
use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use barograph_client::{
    AppendError, ArrayBytes, PlaceError, TierDir, TieredBytes, append_array, append_points,
    join_file, place_file, points_bytes, replace_file,
};
use barograph_progressive::{
    ArrayReader, ArraySource, Basis, ByteSource, Element, ElementType, ErrorBound, MeshPoints,
    PackConfig, PackedArray as Packed, ProgressiveError, Region, Shape, WantedArray, gather, pack,
};
use pyo3::buffer::{Element as BufferElement, PyBuffer};
use pyo3::exceptions::{PyOSError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::errors::from_progressive;

/// A region as the start and the end of a range for each axis.
type Ranges = Vec<(usize, usize)>;
/// A bucket as bytes, root mean square, largest difference, NRMSE, PSNR and PSNR by the maximum.
type Bucket = (u64, f64, f64, f64, f64, f64);

/// Packs an array into a file, or returns the bytes if there is none.
#[pyfunction]
#[expect(
    clippy::too_many_arguments,
    reason = "the typed package names each of them"
)]
pub(crate) fn pack_array<'py>(
    py: Python<'py>,
    array: &Bound<'py, PyAny>,
    shape: Vec<usize>,
    file: Option<PathBuf>,
    basis: &str,
    finest: f64,
    fill: Option<f64>,
    lossy: bool,
    threads: usize,
    name: String,
    time_step: Option<u64>,
    append: bool,
    points: Option<(PyBuffer<f64>, usize)>,
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let shape = Shape::new(&shape).map_err(|error| from_progressive(py, error))?;
    let config = PackConfig {
        basis: basis_of(basis)?,
        finest,
        is_exact: !lossy,
        fill,
        threads,
    };
    let mesh = points.map(|(points, dims)| mesh_of(py, &points, dims, shape));
    let mesh = mesh.transpose()?;
    let order = mesh.as_ref().map(|mesh| py.detach(|| mesh.order()));
    let mut packed = packed_array(array, shape, &config, order.as_deref())?;
    (packed.header.name, packed.header.step) = (name, time_step);
    packed.header.on_mesh = mesh.is_some();
    if let (Some(path), true) = (&file, append) {
        let appended = py.detach(|| {
            if let Some(mesh) = &mesh {
                append_points(path, mesh, threads)?;
            }
            append_array(path, &packed.header, &packed.buckets)
        });
        return match appended {
            Ok(_) => Ok(None),
            Err(AppendError::Io(error)) => Err(os_error(&error, path.clone())),
            Err(AppendError::NoArrays(error)) => Err(from_progressive(py, error)),
            Err(error) => Err(PyValueError::new_err(format!(
                "{}: {error}",
                path.display()
            ))),
        };
    }
    let points = mesh.map(|mesh| py.detach(|| points_bytes(&mesh, threads)));
    let points = points.unwrap_or_else(|| Ok(Vec::new()));
    let points = points.map_err(|error| from_progressive(py, error))?;
    let header = packed.header.encode();
    let parts: Vec<&[u8]> = [&points, &header]
        .into_iter()
        .chain(&packed.buckets)
        .map(Vec::as_slice)
        .collect();
    let Some(path) = file else {
        let length = parts.iter().map(|part| part.len()).sum();
        let put = |mut bytes: &mut [u8]| {
            for part in &parts {
                let (here, rest) = bytes.split_at_mut(part.len());
                here.copy_from_slice(part);
                bytes = rest;
            }
            Ok(())
        };
        return PyBytes::new_with(py, length, put).map(Some);
    };
    let written = py.detach(|| replace_file(&path, &parts));
    written
        .map(|_| None)
        .map_err(|error| os_error(&error, path))
}

/// Packs values of either type, in an order if they are on a mesh.
fn packed_array(
    array: &Bound<'_, PyAny>,
    shape: Shape,
    config: &PackConfig,
    order: Option<&[u32]>,
) -> PyResult<Packed> {
    let py = array.py();
    if let Ok(values) = PyBuffer::<f64>::get(array) {
        packed(py, &values, shape, config, order)
    } else if let Ok(values) = PyBuffer::<f32>::get(array) {
        packed(py, &values, shape, config, order)
    } else {
        Err(PyTypeError::new_err(
            "the values are neither float32 nor float64: convert them with array.astype('f8')",
        ))
    }
}

fn packed<T: Element + BufferElement>(
    py: Python<'_>,
    buffer: &PyBuffer<T>,
    shape: Shape,
    config: &PackConfig,
    order: Option<&[u32]>,
) -> PyResult<Packed> {
    if !buffer.is_c_contiguous() || buffer.item_count() != shape.count() {
        return Err(PyValueError::new_err(
            "the array is not contiguous in C order, or has another number of values",
        ));
    }
    #[expect(
        unsafe_code,
        reason = "memory of Python, read while its lock is released"
    )]
    // SAFETY: the buffer holds this memory until it is dropped, it is contiguous, aligned and of
    // this type (all of that was checked just now), and every pattern of bits is a float. That no
    // other thread writes to it meanwhile is what the documentation of the package asks of its
    // caller; numpy asks the same for all that it does without the lock.
    let values =
        unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast::<T>(), buffer.item_count()) };
    let packed = py.detach(|| match order {
        Some(order) => pack(&gather(values, order), shape, config),
        None => pack(values, shape, config),
    });
    packed.map_err(|error| from_progressive(py, error))
}

/// The mesh of values of a shape, from a buffer with the coordinates of one point after the other.
fn mesh_of(
    py: Python<'_>,
    points: &PyBuffer<f64>,
    dims: usize,
    shape: Shape,
) -> PyResult<MeshPoints> {
    let points = MeshPoints::new(points.to_vec(py)?, dims);
    let points = points.map_err(|error| from_progressive(py, error))?;
    match [points.count()] == *shape.dims() {
        true => Ok(points),
        false => Err(PyValueError::new_err(format!(
            "{} points for values of the shape {:?}: there is one axis, with a value for each point",
            points.count(),
            shape.dims(),
        ))),
    }
}

fn basis_of(name: &str) -> PyResult<Basis> {
    match name {
        "linear" => Ok(Basis::Linear),
        "cubic" => Ok(Basis::Cubic),
        "wavelet" => Ok(Basis::Wavelet),
        _ => Err(PyValueError::new_err(format!(
            "basis {name:?} is not known: it is linear, cubic or wavelet"
        ))),
    }
}

/// Divides a packed file among tiers, each a directory and the most bytes that it has room for, and
/// returns the path and the bytes of each part.
#[pyfunction]
pub(crate) fn place_packed(
    py: Python<'_>,
    file: PathBuf,
    tiers: Vec<(PathBuf, u64)>,
) -> PyResult<Vec<(OsString, u64)>> {
    let tier = |(dir, bytes_max)| TierDir { dir, bytes_max };
    let tiers: Vec<TierDir> = tiers.into_iter().map(tier).collect();
    let parts = py.detach(|| place_file(&file, &tiers, |_, _| ()));
    let parts = parts.map_err(|error| place_error(py, error, &file))?;
    Ok(parts
        .into_iter()
        .map(|it| (it.path.into(), it.bytes))
        .collect())
}

/// Puts the parts of a packed file together, and returns its bytes.
#[pyfunction]
pub(crate) fn join_packed(py: Python<'_>, file: PathBuf) -> PyResult<u64> {
    let joined = py.detach(|| join_file(&file, |_, _| ()));
    joined.map_err(|error| place_error(py, error, &file))
}

fn place_error(py: Python<'_>, error: PlaceError, file: &Path) -> PyErr {
    match error {
        PlaceError::Io { path, error } => os_error(&error, path),
        PlaceError::NoArrays(error) => from_progressive(py, error),
        error => PyValueError::new_err(format!("{}: {error}", file.display())),
    }
}

/// An error that has the system's number, so that Python makes it a FileNotFoundError and so on.
pub(crate) fn os_error(error: &io::Error, path: PathBuf) -> PyErr {
    match error.raw_os_error() {
        Some(number) => PyOSError::new_err((number, text(error), path.into_os_string())),
        None => PyOSError::new_err(format!("{}: {error}", path.display())),
    }
}

/// What the system says, without the number that Python adds itself.
fn text(error: &io::Error) -> String {
    let text = error.to_string();
    let end = text.find(" (os error").unwrap_or(text.len());
    text[..end].to_owned()
}

/// Refuses a bound that no error can have, or returns it as it is read.
#[pyfunction]
pub(crate) fn check_bound(py: Python<'_>, bound: &str) -> PyResult<String> {
    let parsed = ErrorBound::parse(bound).map_err(|error| from_progressive(py, error))?;
    Ok(parsed.to_string())
}

/// Where the bytes of an array lie.
pub(crate) enum Source {
    File(ArrayBytes),
    Memory(PyBackedBytes),
}

impl ByteSource for Source {
    fn byte_count(&self) -> u64 {
        match self {
            Self::File(file) => file.byte_count(),
            Self::Memory(bytes) => bytes.len() as u64,
        }
    }

    fn fetch(&self, place: Range<u64>) -> io::Result<Cow<'_, [u8]>> {
        match self {
            Self::File(file) => file.fetch(place),
            Self::Memory(bytes) => {
                let place = place.start as usize..place.end as usize;
                let bytes = bytes.get(place).ok_or(io::ErrorKind::UnexpectedEof)?;
                Ok(Cow::Borrowed(bytes))
            }
        }
    }
}

/// A packed array that is read as precisely as is asked for.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct PackedArray {
    pub(crate) array: ArraySource<Source>,
}

impl PackedArray {
    /// The parts over tiers; none of a file in one piece or of bytes.
    pub(crate) fn tiers(&self) -> Option<&TieredBytes> {
        match self.array.source() {
            Source::File(file) => file.tiers(),
            Source::Memory(_) => None,
        }
    }

    fn region(&self, py: Python<'_>, ranges: Option<&Ranges>) -> PyResult<Region> {
        let shape = self.array.header().shape();
        let Some(ranges) = ranges else {
            return Ok(shape.whole());
        };
        let ranges: Vec<Range<usize>> = ranges.iter().map(|&(start, end)| start..end).collect();
        let region = shape.region(&ranges);
        region.map_err(|error| from_progressive(py, error))
    }

    fn plan_of<T: Element>(
        &self,
        region: Region,
        level: usize,
    ) -> Result<(Vec<usize>, f64), ProgressiveError> {
        let header = self.array.header().clone();
        let reader = ArrayReader::<T>::at_level(header, region, level, 1)?;
        Ok((reader.dims(), reader.share_of_blocks()))
    }

    fn read_values<T: Element + BufferElement>(
        &self,
        out: &Bound<'_, PyAny>,
        buckets: usize,
        region: Region,
        level: usize,
        threads: usize,
    ) -> PyResult<u64> {
        let py = out.py();
        let buffer = PyBuffer::<T>::get(out)?;
        if !buffer.is_c_contiguous() || buffer.readonly() || buffer.item_count() == 0 {
            let text = "the result is not contiguous in C order, or cannot be written";
            return Err(PyValueError::new_err(text));
        }
        let count = buffer.item_count();
        #[expect(
            unsafe_code,
            reason = "memory of Python, written while its lock is released"
        )]
        // SAFETY: the buffer holds this memory until it is dropped, it may be written, is
        // contiguous, aligned and of this type (all of that was checked just now). The package
        // makes the array for this call alone, so nobody else knows of it yet.
        let values = unsafe { std::slice::from_raw_parts_mut(buffer.buf_ptr().cast::<T>(), count) };
        let read = py.detach(|| {
            let (reader, read) = self.array.read::<T>(buckets, region, level, threads)?;
            let dims = reader.dims();
            if dims.iter().product::<usize>() != count {
                return Err(ProgressiveError::Shape {
                    reason: format!("{count} values for {dims:?}"),
                });
            }
            reader.put_values(values);
            Ok(read)
        });
        read.map_err(|error| from_progressive(py, error))
    }
}

#[pymethods]
impl PackedArray {
    /// Opens a file.
    #[staticmethod]
    fn of_file(
        py: Python<'_>,
        path: PathBuf,
        name: Option<String>,
        step: Option<u64>,
    ) -> PyResult<Self> {
        let file = py.detach(|| ArrayBytes::open(&path));
        let file = file.map_err(|error| os_error(&error, path))?;
        let wanted = WantedArray { name, step };
        let array = py.detach(|| ArraySource::open_one(Source::File(file), &wanted));
        let array = array.map_err(|error| from_progressive(py, error))?;
        Ok(Self { array })
    }

    /// Opens bytes in memory.
    #[staticmethod]
    fn of_bytes(
        py: Python<'_>,
        bytes: PyBackedBytes,
        name: Option<String>,
        step: Option<u64>,
    ) -> PyResult<Self> {
        let wanted = WantedArray { name, step };
        let array = ArraySource::open_one(Source::Memory(bytes), &wanted);
        let array = array.map_err(|error| from_progressive(py, error))?;
        Ok(Self { array })
    }

    #[getter]
    fn name(&self) -> &str {
        &self.array.header().name
    }

    #[getter]
    fn time_step(&self) -> Option<u64> {
        self.array.header().step
    }

    #[getter]
    fn shape(&self) -> Vec<usize> {
        self.array.header().shape().dims().to_vec()
    }

    #[getter]
    fn dtype(&self) -> &'static str {
        match self.array.header().element() {
            ElementType::F32 => "float32",
            ElementType::F64 => "float64",
        }
    }

    #[getter]
    fn basis(&self) -> &'static str {
        match self.array.header().basis() {
            Basis::Linear => "linear",
            Basis::Cubic => "cubic",
            Basis::Wavelet => "wavelet",
        }
    }

    #[getter]
    fn is_exact(&self) -> bool {
        self.array.header().is_exact()
    }

    /// Smallest and largest value, and the number of those that are not missing.
    #[getter]
    fn range(&self) -> (f64, f64, u64) {
        let range = self.array.header().range();
        (range.min, range.max, range.count)
    }

    #[getter]
    fn buckets(&self) -> Vec<Bucket> {
        let header = self.array.header();
        let range = header.range();
        let bucket = |entry: &barograph_progressive::BucketEntry| {
            let error = &entry.error;
            let ratios = (error.nrmse(range), error.psnr(range), error.psnr_max(range));
            (
                entry.bytes,
                error.rmse,
                error.linf,
                ratios.0,
                ratios.1,
                ratios.2,
            )
        };
        header.buckets().iter().map(bucket).collect()
    }

    /// Whether the values are at the points of a mesh.
    #[getter]
    fn on_mesh(&self) -> bool {
        self.array.header().on_mesh
    }

    /// The coordinates of one point of the mesh after the other as bytes of f64, and their number
    /// for a point; none of values on no mesh.
    fn points<'py>(
        &self,
        py: Python<'py>,
        threads: usize,
    ) -> PyResult<Option<(Bound<'py, PyBytes>, usize)>> {
        let points = py.detach(|| self.array.mesh_points(threads));
        let Some(points) = points.map_err(|error| from_progressive(py, error))? else {
            return Ok(None);
        };
        let bytes = points.coordinates().iter().flat_map(|it| it.to_ne_bytes());
        let bytes: Vec<u8> = bytes.collect();
        Ok(Some((PyBytes::new(py, &bytes), points.dims())))
    }

    /// Where the array begins in its file.
    #[getter]
    fn start(&self) -> u64 {
        self.array.start()
    }

    #[getter]
    fn header_bytes(&self) -> u64 {
        self.array.header_bytes()
    }

    #[getter]
    fn bytes_read(&self) -> u64 {
        self.array.bytes_read()
    }

    /// The paths of the parts over tiers; none of a file in one piece or of bytes.
    #[getter]
    fn parts(&self) -> Vec<OsString> {
        let parts = self.tiers().map(TieredBytes::parts).unwrap_or_default();
        parts.into_iter().map(|part| part.path.into()).collect()
    }

    /// Number of buckets that a bound needs.
    fn buckets_for(&self, py: Python<'_>, bound: &str) -> PyResult<usize> {
        let bound = ErrorBound::parse(bound);
        let count = bound.and_then(|bound| self.array.header().buckets_for(&bound));
        count.map_err(|error| from_progressive(py, error))
    }

    /// The lengths of the axes of a reading, and the share of the blocks that it needs.
    fn plan(
        &self,
        py: Python<'_>,
        region: Option<Ranges>,
        level: usize,
    ) -> PyResult<(Vec<usize>, f64)> {
        let region = self.region(py, region.as_ref())?;
        let plan = match self.array.header().element() {
            ElementType::F32 => self.plan_of::<f32>(region, level),
            ElementType::F64 => self.plan_of::<f64>(region, level),
        };
        plan.map_err(|error| from_progressive(py, error))
    }

    /// Reads the first buckets into an array of the lengths that `plan` tells, and returns the
    /// number of bytes that were read.
    fn read_into(
        &self,
        out: &Bound<'_, PyAny>,
        buckets: usize,
        region: Option<Ranges>,
        level: usize,
        threads: usize,
    ) -> PyResult<u64> {
        let region = self.region(out.py(), region.as_ref())?;
        match self.array.header().element() {
            ElementType::F32 => self.read_values::<f32>(out, buckets, region, level, threads),
            ElementType::F64 => self.read_values::<f64>(out, buckets, region, level, threads),
        }
    }
}

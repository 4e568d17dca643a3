//! Packed arrays: read within an error, from a file or from memory.
//!
//! A file is opened for each call and closed again, since a host program may close every descriptor
//! that it has not opened itself.

use std::ffi::{c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr;
use std::slice;
use std::sync::atomic::AtomicI64;

use barograph_client::ArrayBytes;
use barograph_progressive::{
    AXES_MAX, ArrayHeader, ArraySource, ByteSource, Element, ElementType, ErrorBound,
    ProgressiveError, Region, WantedArray,
};

use crate::guard::{E_ARGUMENT, E_DATA, E_TYPE, Failure, OK, guarded, set, text};
use crate::handles::{HandleObject, give, take_back, thing};

/// The C type `baro_array_t`.
pub(crate) struct BaroArray {
    pub(crate) header: ArrayHeader,
    pub(crate) place: ArrayPlace,
    /// When the last step began, in ns of the monotonic clock; 0 before the first.
    pub(crate) stepped_ns: AtomicI64,
}

pub(crate) enum ArrayPlace {
    File(PathBuf, WantedArray),
    Memory(Box<[u8]>),
}

impl HandleObject for BaroArray {
    const KIND: u8 = 7;
    const NAME: &'static str = "the array";
    const IS_EXCLUSIVE: bool = false;
}

/// The C struct `baro_array_info_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct BaroArrayInfo {
    axes: u32,
    value_bytes: u32,
    dims: [u64; AXES_MAX],
    buckets: u32,
    is_exact: c_int,
    min: f64,
    max: f64,
    missing: u64,
}

/// The C struct `baro_bucket_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct BaroBucket {
    bytes: u64,
    rmse: f64,
    linf: f64,
    nrmse: f64,
    psnr: f64,
    psnr_max: f64,
}

impl From<ProgressiveError> for Failure {
    fn from(error: ProgressiveError) -> Self {
        let code = match error {
            ProgressiveError::Shape { .. }
            | ProgressiveError::Mesh { .. }
            | ProgressiveError::Bound { .. }
            | ProgressiveError::Ambiguous { .. } => E_ARGUMENT,
            ProgressiveError::OutOfReach { .. }
            | ProgressiveError::Damaged { .. }
            | ProgressiveError::CutShort { .. }
            | ProgressiveError::Fetch { .. }
            | ProgressiveError::Spool { .. }
            | ProgressiveError::Future { .. } => E_DATA,
        };
        Self::new(code, error)
    }
}

fn opened(path: &Path, wanted: &WantedArray) -> Result<ArraySource<ArrayBytes>, Failure> {
    let context = |error: &dyn ToString| format!("{}: {}", path.display(), error.to_string());
    let bytes = ArrayBytes::open(path).map_err(|error| Failure::new(E_DATA, context(&error)))?;
    ArraySource::open_one(bytes, wanted).map_err(|error| Failure::new(E_DATA, context(&error)))
}

impl BaroArray {
    fn of_file(path: &str, wanted: WantedArray) -> Result<Self, Failure> {
        let path = PathBuf::from(path);
        let path = std::path::absolute(&path).unwrap_or(path);
        Ok(Self {
            header: opened(&path, &wanted)?.header().clone(),
            place: ArrayPlace::File(path, wanted),
            stepped_ns: AtomicI64::new(0),
        })
    }

    /// The array of a file, opened again.
    pub(crate) fn opened(
        &self,
        path: &Path,
        wanted: &WantedArray,
    ) -> Result<ArraySource<ArrayBytes>, Failure> {
        let source = opened(path, wanted)?;
        match source.header() == &self.header {
            true => Ok(source),
            false => {
                let text = "is another array now: close this one and open it again";
                Err(Failure::new(E_DATA, format!("{} {text}", path.display())))
            }
        }
    }

    fn read<T: Element>(&self, wanted: &Wanted) -> Result<Vec<T>, Failure> {
        match &self.place {
            ArrayPlace::Memory(bytes) => wanted.read(&ArraySource::open(&**bytes)?),
            ArrayPlace::File(path, meant) => wanted.read(&self.opened(path, meant)?),
        }
    }

    /// Reads into memory of the caller, and returns the number of buckets.
    ///
    /// # Safety
    /// `values` is null or valid for writes of `count` values.
    unsafe fn put<F: Element, T: Element>(
        &self,
        wanted: &Wanted,
        (values, count): (*mut T, usize),
        convert: impl Fn(F) -> T,
    ) -> Result<u32, Failure> {
        wanted.check_room(values, count)?;
        // SAFETY: there are as many values as the region has, for which there is room.
        unsafe { put(self.read::<F>(wanted)?, values, convert) };
        Ok(wanted.buckets as u32)
    }
}

/// Writes values into memory of the caller.
///
/// # Safety
/// `to` is valid for writes of as many values.
pub(crate) unsafe fn put<F, T>(values: Vec<F>, to: *mut T, convert: impl Fn(F) -> T) {
    for (at, value) in values.into_iter().enumerate() {
        // SAFETY: the caller upholds the requirements of this function. The memory may be
        // uninitialized, so it is written by its address.
        unsafe { to.add(at).write(convert(value)) };
    }
}

/// What a call reads.
pub(crate) struct Wanted {
    pub(crate) buckets: usize,
    pub(crate) region: Region,
    pub(crate) threads: usize,
}

impl Wanted {
    /// Refuses memory of the caller that has no room for the values.
    pub(crate) fn check_room<T>(&self, values: *mut T, count: usize) -> Result<(), Failure> {
        let needed = self.region.count();
        if values.is_null() || count < needed {
            let text = format!("there is room for {count} values, and {needed} are read");
            return Err(Failure::new(E_ARGUMENT, text));
        }
        Ok(())
    }

    /// # Safety
    /// `error` is null or a C string; `region` is null or has two numbers for each axis.
    unsafe fn of(
        header: &ArrayHeader,
        error: *const c_char,
        region: *const u64,
        threads: u32,
    ) -> Result<Self, Failure> {
        let buckets = match error.is_null() {
            true => header.buckets().len(),
            false => {
                // SAFETY: the caller upholds the requirements of this function.
                let error = unsafe { text(error, "the error")? };
                header.buckets_for(&ErrorBound::parse(error)?)?
            }
        };
        let axes = header.shape().dims().len();
        let region = match region.is_null() {
            true => header.shape().whole(),
            false => {
                // SAFETY: the caller upholds the requirements of this function.
                let ends = unsafe { slice::from_raw_parts(region, 2 * axes) };
                let end = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
                let ranges: Vec<_> = ends
                    .chunks_exact(2)
                    .map(|pair| end(pair[0])..end(pair[1]))
                    .collect();
                header.shape().region(&ranges)?
            }
        };
        Ok(Self {
            buckets,
            region,
            threads: threads.max(1) as usize,
        })
    }

    pub(crate) fn read<T: Element, S: ByteSource>(
        &self,
        source: &ArraySource<S>,
    ) -> Result<Vec<T>, Failure> {
        let (reader, _) = source.read::<T>(self.buckets, self.region, 0, self.threads)?;
        let mut values: Vec<T> = Vec::new();
        let count = self.region.count();
        if values.try_reserve_exact(count).is_err() {
            let text = format!("no memory for {count} values: read a part of them");
            return Err(Failure::new(E_DATA, text));
        }
        values.resize(count, T::default());
        reader.put_values(&mut values);
        Ok(values)
    }
}

/// See `baro.h`.
///
/// # Safety
/// `path` is null or a C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_array_open(path: *const c_char) -> *mut BaroArray {
    guarded(
        |_| ptr::null_mut(),
        || {
            // SAFETY: the caller upholds the requirements of this function.
            let path = unsafe { text(path, "the path")? };
            give(BaroArray::of_file(path, WantedArray::default())?)
        },
    )
}

/// See `baro.h`.
///
/// # Safety
/// `path` and `name` are null or C strings.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_array_open_one(
    path: *const c_char,
    name: *const c_char,
    step: i64,
) -> *mut BaroArray {
    guarded(
        |_| ptr::null_mut(),
        || {
            // SAFETY: the caller upholds the requirements of this function.
            let (path, name) = unsafe {
                let name = (!name.is_null()).then(|| text(name, "the name"));
                (text(path, "the path")?, name.transpose()?)
            };
            let wanted = WantedArray {
                name: name.map(str::to_owned),
                step: u64::try_from(step).ok(),
            };
            give(BaroArray::of_file(path, wanted)?)
        },
    )
}

/// See `baro.h`.
///
/// # Safety
/// `bytes` is null or has `count` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_array_of_bytes(
    bytes: *const c_void,
    count: usize,
) -> *mut BaroArray {
    guarded(
        |_| ptr::null_mut(),
        || {
            if bytes.is_null() || isize::try_from(count).is_err() {
                return Err(Failure::new(E_ARGUMENT, "there are no bytes, or too many"));
            }
            // SAFETY: they are there, and the caller upholds the requirements of this function.
            let bytes: Box<[u8]> = unsafe { slice::from_raw_parts(bytes.cast(), count) }.into();
            let header = ArraySource::open(&*bytes)?.header().clone();
            give(BaroArray {
                header,
                place: ArrayPlace::Memory(bytes),
                stepped_ns: AtomicI64::new(0),
            })
        },
    )
}

/// See `baro.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn baro_array_close(array: *mut BaroArray) {
    guarded(|_| (), || take_back(array));
}

/// See `baro.h`.
///
/// # Safety
/// `info` is null or valid for writes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_array_info(
    array: *const BaroArray,
    info: *mut BaroArrayInfo,
) -> c_int {
    guarded(
        |code| code,
        || {
            let array = thing(array)?;
            let header = &array.header;
            let lengths = header.shape().dims();
            let mut dims = [0; AXES_MAX];
            for (to, &from) in dims.iter_mut().zip(lengths) {
                *to = from as u64;
            }
            let described = BaroArrayInfo {
                axes: lengths.len() as u32,
                value_bytes: header.element().size() as u32,
                dims,
                buckets: header.buckets().len() as u32,
                is_exact: header.is_exact().into(),
                min: header.range().min,
                max: header.range().max,
                missing: header.shape().count() as u64 - header.range().count,
            };
            // SAFETY: the caller upholds the requirements of this function.
            unsafe { set(info, described) };
            Ok(OK)
        },
    )
}

/// See `baro.h`.
///
/// # Safety
/// `bucket` is null or valid for writes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_array_bucket(
    array: *const BaroArray,
    index: u32,
    bucket: *mut BaroBucket,
) -> c_int {
    guarded(
        |code| code,
        || {
            let array = thing(array)?;
            let (entries, range) = (array.header.buckets(), array.header.range());
            let entry = entries.get(index as usize).ok_or_else(|| {
                let text = format!("the array has {} buckets", entries.len());
                Failure::new(E_ARGUMENT, text)
            })?;
            let described = BaroBucket {
                bytes: entry.bytes,
                rmse: entry.error.rmse,
                linf: entry.error.linf,
                nrmse: entry.error.nrmse(range),
                psnr: entry.error.psnr(range),
                psnr_max: entry.error.psnr_max(range),
            };
            // SAFETY: the caller upholds the requirements of this function.
            unsafe { set(bucket, described) };
            Ok(OK)
        },
    )
}

/// See `baro.h`.
///
/// # Safety
/// `error` is null or a C string; `region` is null or has two numbers for each axis; `values` is
/// null or has room for `count` values; `buckets` is null or valid for writes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_array_read_f64(
    array: *const BaroArray,
    error: *const c_char,
    region: *const u64,
    values: *mut f64,
    count: usize,
    threads: u32,
    buckets: *mut u32,
) -> c_int {
    guarded(
        |code| code,
        || {
            let array = thing(array)?;
            let to = (values, count);
            // SAFETY: the caller upholds the requirements of this function.
            unsafe {
                let wanted = Wanted::of(&array.header, error, region, threads)?;
                let read = match array.header.element() {
                    ElementType::F64 => array.put(&wanted, to, |value: f64| value),
                    ElementType::F32 => array.put::<f32, _>(&wanted, to, f64::from),
                };
                set(buckets, read?);
            }
            Ok(OK)
        },
    )
}

/// See `baro.h`.
///
/// # Safety
/// As for [`baro_array_read_f64`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_array_read_f32(
    array: *const BaroArray,
    error: *const c_char,
    region: *const u64,
    values: *mut f32,
    count: usize,
    threads: u32,
    buckets: *mut u32,
) -> c_int {
    guarded(
        |code| code,
        || {
            let array = thing(array)?;
            if array.header.element() == ElementType::F64 {
                let text = "the values are doubles: read them with baro_array_read_f64";
                return Err(Failure::new(E_TYPE, text));
            }
            // SAFETY: the caller upholds the requirements of this function.
            unsafe {
                let wanted = Wanted::of(&array.header, error, region, threads)?;
                let read = array.put(&wanted, (values, count), |value: f32| value)?;
                set(buckets, read);
            }
            Ok(OK)
        },
    )
}

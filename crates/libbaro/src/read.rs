//! The newest value of a stream, and waiting for the next.

use std::ffi::{c_char, c_int};
use std::sync::Arc;
use std::time::Duration;

use barograph_client::{
    ClientError, LatestValue, Observer, RunDir, StreamHandle, SystemClock, Woken,
};
use barograph_model::Selector;

use crate::guard::{
    E_ARGUMENT, E_NO_AGENT, E_TYPE, E_UNKNOWN, Failure, NOTHING, OK, guarded, set, text,
};
use crate::handles::{HandleObject, give, take_back, thing, thing_mut};

impl HandleObject for Observer {
    const KIND: u8 = 2;
    const NAME: &'static str = "the node";
    const IS_EXCLUSIVE: bool = false;
}

impl HandleObject for StreamHandle {
    const KIND: u8 = 3;
    const NAME: &'static str = "the stream";
    const IS_EXCLUSIVE: bool = true;
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let code = match &error {
            ClientError::Selector(_) => E_ARGUMENT,
            ClientError::UnknownStream { .. }
            | ClientError::Ambiguous { .. }
            | ClientError::UnknownNode(_) => E_UNKNOWN,
            _ => E_NO_AGENT,
        };
        Self::new(code, error)
    }
}

/// See `baro.h`.
///
/// # Safety
/// `run_dir` is null or a C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_node_open(run_dir: *const c_char) -> *mut Observer {
    guarded(
        |_| std::ptr::null_mut(),
        || {
            let run_dir = if run_dir.is_null() {
                RunDir::find()
            } else {
                // SAFETY: the caller upholds the requirements of this function.
                RunDir::new(unsafe { text(run_dir, "the run directory") }?)
            };
            give(Observer::open(run_dir, Arc::new(SystemClock::new()))?)
        },
    )
}

/// See `baro.h`.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_node_open_mirrored(
    node: *const Observer,
    name: *const c_char,
) -> *mut Observer {
    guarded(
        |_| std::ptr::null_mut(),
        || {
            // SAFETY: the caller upholds the requirements of this function.
            let name = unsafe { text(name, "the name of the node") }?;
            give(thing(node)?.of_node(name)?)
        },
    )
}

/// See `baro.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn baro_node_is_alive(node: *const Observer) -> c_int {
    guarded(|code| code, || Ok(thing(node)?.is_alive().into()))
}

/// See `baro.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn baro_node_close(node: *mut Observer) {
    guarded(|_| (), || take_back(node));
}

/// # Safety
/// As for [`baro_stream_open`].
unsafe fn find(node: *const Observer, selector: *const c_char) -> Result<StreamHandle, Failure> {
    // SAFETY: the caller upholds the requirements of this function.
    let (node, selector) = unsafe { (thing(node)?, text(selector, "the selector")?) };
    let selector = Selector::parse(selector).map_err(|e| Failure::new(E_ARGUMENT, e))?;
    Ok(node.stream(&selector)?)
}

/// See `baro.h`.
///
/// # Safety
/// `selector` is null or a C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_stream_open(
    node: *const Observer,
    selector: *const c_char,
) -> *mut StreamHandle {
    // SAFETY: the caller upholds the requirements of this function.
    guarded(
        |_| std::ptr::null_mut(),
        || give(unsafe { find(node, selector) }?),
    )
}

/// See `baro.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn baro_stream_close(stream: *mut StreamHandle) {
    guarded(|_| (), || take_back(stream));
}

/// See `baro.h`.
///
/// # Safety
/// The places are null or valid for writes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_stream_latest_f64(
    stream: *mut StreamHandle,
    ts: *mut i64,
    value: *mut f64,
) -> c_int {
    guarded(
        |code| code,
        || {
            let mut stream = thing_mut(stream)?;
            let Some((newest_ts, newest)) = stream.latest_f64() else {
                return Ok(NOTHING);
            };
            // SAFETY: the caller upholds the requirements of this function.
            unsafe {
                set(ts, newest_ts);
                set(value, newest);
            }
            Ok(OK)
        },
    )
}

/// See `baro.h`.
///
/// # Safety
/// `selector` is null or a C string; the other pointers are null or valid for writes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_latest(
    node: *const Observer,
    selector: *const c_char,
    ts: *mut i64,
    value: *mut f64,
    age_ns: *mut i64,
) -> c_int {
    guarded(
        |code| code,
        || {
            let places = Places {
                ts,
                value,
                error: std::ptr::null_mut(),
                quality: std::ptr::null_mut(),
                age_ns,
            };
            // SAFETY: the caller upholds the requirements of this function.
            unsafe { places.take(find(node, selector)?.latest()) }
        },
    )
}

/// The caller's places for the parts of a reading; each is null or valid for writes.
struct Places {
    ts: *mut i64,
    value: *mut f64,
    error: *mut f64,
    quality: *mut c_int,
    age_ns: *mut i64,
}

impl Places {
    /// # Safety
    /// Each of them is null or valid for writes.
    unsafe fn take(&self, newest: Option<LatestValue>) -> Result<c_int, Failure> {
        let Some(LatestValue {
            sample: Some(sample),
            age_ns,
            ..
        }) = newest
        else {
            return Ok(NOTHING);
        };
        let number = sample.value.as_f64();
        let number =
            number.ok_or_else(|| Failure::new(E_TYPE, "it is no number: ask for it in SQL"))?;
        // SAFETY: the caller upholds the requirements of this function.
        unsafe {
            set(self.ts, sample.ts);
            set(self.value, number);
            set(self.error, sample.error.into());
            set(self.quality, sample.quality as c_int);
            set(self.age_ns, age_ns);
        }
        Ok(OK)
    }
}

/// See `baro.h`.
///
/// # Safety
/// `selector` is null or a C string; the other pointers are null or valid for writes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_latest_expected(
    node: *const Observer,
    selector: *const c_char,
    ts: *mut i64,
    value: *mut f64,
    error: *mut f64,
    quality: *mut c_int,
    age_ns: *mut i64,
) -> c_int {
    let places = Places {
        ts,
        value,
        error,
        quality,
        age_ns,
    };
    guarded(
        |code| code,
        // SAFETY: the caller upholds the requirements of this function.
        || unsafe { places.take(find(node, selector)?.latest_predicted()) },
    )
}

/// See `baro.h`.
///
/// # Safety
/// The places are null or valid for writes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_stream_latest_expected(
    stream: *mut StreamHandle,
    ts: *mut i64,
    value: *mut f64,
    error: *mut f64,
    quality: *mut c_int,
    age_ns: *mut i64,
) -> c_int {
    let places = Places {
        ts,
        value,
        error,
        quality,
        age_ns,
    };
    guarded(
        |code| code,
        // SAFETY: the caller upholds the requirements of this function.
        || unsafe { places.take(thing_mut(stream)?.latest_predicted()) },
    )
}

/// See `baro.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn baro_wait(stream: *mut StreamHandle, timeout_ns: i64) -> c_int {
    guarded(
        |code| code,
        || {
            let mut stream = thing_mut(stream)?;
            let timeout = Duration::from_nanos(timeout_ns.max(0).unsigned_abs());
            Ok(match stream.wait(timeout) {
                Woken::News => OK,
                Woken::TimedOut | Woken::Gone => NOTHING,
            })
        },
    )
}

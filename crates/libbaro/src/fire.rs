//! Firing triggers and setting knobs of programs on this node.

use std::ffi::{c_char, c_int, c_void};
use std::time::Duration;

use barograph_client::{CallPayload, Fire, FireError, RunDir, fire};

use crate::guard::{
    E_ARGUMENT, E_BUSY, E_NO_AGENT, E_REFUSED, E_UNKNOWN, Failure, NOTHING, OK, guarded, set, text,
    text_or_empty,
};

/// Longest payload that is read; every agent refuses longer ones.
const PAYLOAD_BYTES_MAX: usize = 1 << 16;

/// The C struct `baro_fired_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct BaroFired {
    matched: u64,
    acknowledged: u64,
    failed: u64,
    id: [u8; 40],
}

impl From<FireError> for Failure {
    fn from(error: FireError) -> Self {
        let code = match &error {
            FireError::NoAgent { .. } | FireError::Answer(_) => E_NO_AGENT,
            FireError::Argument(_) => E_ARGUMENT,
            FireError::Refused { status: 404, .. } => E_UNKNOWN,
            FireError::Refused { status: 503, .. } => E_BUSY,
            FireError::Refused { .. } => E_REFUSED,
        };
        Self::new(code, error)
    }
}

/// The arguments of a call: the run directory, the target, and the place for the outcome.
struct Asked {
    run_dir: *const c_char,
    name: *const c_char,
    target: *const c_char,
    expires_ms: u64,
    wait_ms: u64,
    at_frame: Option<u64>,
    fired: *mut BaroFired,
}

/// See `baro.h`.
///
/// # Safety
/// `run_dir`, `name` and `target` are null or C strings; `payload` is null, or valid for reads of
/// its type and `bytes`; `fired` is null or valid for writes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_fire(
    run_dir: *const c_char,
    name: *const c_char,
    target: *const c_char,
    payload_type: c_int,
    payload: *const c_void,
    bytes: usize,
    expires_ms: u64,
    wait_ms: u64,
    fired: *mut BaroFired,
) -> c_int {
    let asked = Asked {
        run_dir,
        name,
        target,
        expires_ms,
        wait_ms,
        at_frame: None,
        fired,
    };
    // SAFETY: the caller upholds the requirements of this function.
    let payload = move || unsafe { payload_of(payload_type, payload, bytes) };
    // SAFETY: the caller upholds the requirements of this function.
    unsafe { ask(&asked, false, payload) }
}

/// # Safety
/// As for [`baro_fire`].
unsafe fn set_knob(asked: &Asked, value: CallPayload) -> c_int {
    // SAFETY: the caller upholds the requirements of this function.
    unsafe { ask(asked, true, || Ok(value)) }
}

macro_rules! setters {
    ($($name:ident, $name_at:ident($value:ty) => $payload:expr;)*) => {$(
        /// See `baro.h`.
        ///
        /// # Safety
        /// `run_dir`, `name` and `target` are null or C strings; `fired` is null or writable.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(
            run_dir: *const c_char,
            name: *const c_char,
            target: *const c_char,
            value: $value,
            wait_ms: u64,
            fired: *mut BaroFired,
        ) -> c_int {
            let at_frame = None;
            let asked = Asked { run_dir, name, target, expires_ms: 0, wait_ms, at_frame, fired };
            let payload: fn($value) -> CallPayload = $payload;
            // SAFETY: the caller upholds the requirements of this function.
            unsafe { set_knob(&asked, payload(value)) }
        }

        /// See `baro.h`.
        ///
        /// # Safety
        /// `run_dir`, `name` and `target` are null or C strings; `fired` is null or writable.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name_at(
            run_dir: *const c_char,
            name: *const c_char,
            target: *const c_char,
            value: $value,
            at_frame: u64,
            wait_ms: u64,
            fired: *mut BaroFired,
        ) -> c_int {
            let at_frame = Some(at_frame);
            let asked = Asked { run_dir, name, target, expires_ms: 0, wait_ms, at_frame, fired };
            let payload: fn($value) -> CallPayload = $payload;
            // SAFETY: the caller upholds the requirements of this function.
            unsafe { set_knob(&asked, payload(value)) }
        }
    )*};
}

setters! {
    baro_knob_set_f64, baro_knob_set_f64_at(f64) => CallPayload::Float;
    baro_knob_set_i64, baro_knob_set_i64_at(i64) => CallPayload::Int;
    baro_knob_set_bool, baro_knob_set_bool_at(c_int) => |value| CallPayload::Bool(value != 0);
}

/// # Safety
/// As for [`baro_fire`].
unsafe fn ask(
    asked: &Asked,
    is_knob: bool,
    payload: impl FnOnce() -> Result<CallPayload, Failure>,
) -> c_int {
    guarded(
        |code| code,
        || {
            // SAFETY: the caller upholds the requirements of this function.
            let (run_dir, name, target) = unsafe {
                (
                    text_or_empty(asked.run_dir, "the run directory")?,
                    text(asked.name, "the name")?,
                    text_or_empty(asked.target, "the target")?,
                )
            };
            let run_dir = match run_dir {
                "" => RunDir::find(),
                named => RunDir::new(named),
            };
            let mut wanted = Fire::trigger(name, payload()?);
            wanted.is_knob = is_knob;
            wanted.target = pairs(target)?;
            wanted.at_frame = asked.at_frame;
            wanted.wait = Duration::from_millis(asked.wait_ms);
            let expires = Duration::from_millis(asked.expires_ms);
            wanted.expires = (!expires.is_zero()).then_some(expires);
            let fired = fire(&run_dir, &wanted)?;
            let mut id = [0; 40];
            let short = fired.id.bytes().take(id.len() - 1);
            id.iter_mut().zip(short).for_each(|(to, from)| *to = from);
            let said = BaroFired {
                matched: fired.matched,
                acknowledged: fired.acknowledged,
                failed: fired.failed,
                id,
            };
            // SAFETY: the caller upholds the requirements of this function.
            unsafe { set(asked.fired, said) };
            let is_open = asked.wait_ms > 0 && fired.acknowledged < fired.matched;
            Ok(if is_open { NOTHING } else { OK })
        },
    )
}

/// Parses `label=value,label=value`; a value cannot contain a comma.
fn pairs(target: &str) -> Result<Vec<(String, String)>, Failure> {
    let pair = |part: &str| {
        let (label, value) = part.split_once('=').ok_or_else(|| {
            Failure::new(
                E_ARGUMENT,
                format!("{part} is no label of a target: give label=value"),
            )
        })?;
        Ok((label.trim().to_owned(), value.trim().to_owned()))
    };
    let parts = target.split(',').filter(|part| !part.trim().is_empty());
    parts.map(pair).collect()
}

/// # Safety
/// `payload` is null, or valid for reads of its type and `bytes`.
unsafe fn payload_of(
    payload_type: c_int,
    payload: *const c_void,
    bytes: usize,
) -> Result<CallPayload, Failure> {
    if payload_type == 0 {
        return Ok(CallPayload::None);
    }
    if payload.is_null() {
        return Err(Failure::new(E_ARGUMENT, "the payload is null"));
    }
    if bytes > PAYLOAD_BYTES_MAX {
        return Err(Failure::new(E_ARGUMENT, "the payload is too long"));
    }
    // SAFETY: the pointer is not null, and the caller upholds the requirements of this function.
    let slice = || unsafe { std::slice::from_raw_parts(payload.cast::<u8>(), bytes) };
    let owned = || -> Result<String, Failure> {
        if bytes == 0 {
            // SAFETY: the caller upholds the requirements of this function: a C string.
            return unsafe { text(payload.cast(), "the payload") }.map(str::to_owned);
        }
        let found = std::str::from_utf8(slice()).map(str::to_owned);
        found.map_err(|_| Failure::new(E_ARGUMENT, "the payload is not UTF-8"))
    };
    Ok(match payload_type {
        // SAFETY: the caller upholds the requirements of this function: an int64_t, a double, an
        // int.
        1 => CallPayload::Int(unsafe { payload.cast::<i64>().read_unaligned() }),
        // SAFETY: the same.
        2 => CallPayload::Float(unsafe { payload.cast::<f64>().read_unaligned() }),
        // SAFETY: the same.
        3 => CallPayload::Bool(unsafe { payload.cast::<c_int>().read_unaligned() } != 0),
        4 => CallPayload::Text(owned()?),
        6 => CallPayload::Bytes(slice().to_vec()),
        7 => CallPayload::Json(owned()?),
        8 => {
            let (all, rest) = slice().as_chunks();
            if !rest.is_empty() {
                return Err(Failure::new(E_ARGUMENT, "floats have eight bytes each"));
            }
            CallPayload::Floats(all.iter().map(|eight| f64::from_le_bytes(*eight)).collect())
        }
        _ => return Err(Failure::new(E_ARGUMENT, "there is no such type of payload")),
    })
}

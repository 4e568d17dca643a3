//! Calls to this program: handlers, polls, and knobs.

use std::ffi::{CString, c_char, c_int, c_void};

use barograph_client::publish::raw::{self, KnobCell, RingCursor};
use barograph_client::publish::{Call, CallPayload, KnobConfig, KnobValue, Publisher};

use crate::guard::{E_ARGUMENT, Failure, OK, guarded, text, text_or_empty, tried};
use crate::handles::thing;
use crate::put;

/// The C struct `baro_call_t`.
#[repr(C)]
pub(crate) struct BaroCall {
    id: u64,
    issued_ns: i64,
    expires_ns: i64,
    name: *const c_char,
    payload_type: c_int,
    bytes: usize,
    value: Content,
}

/// The payload of `baro_call_t`, by its type.
#[repr(C)]
union Content {
    int: i64,
    float: f64,
    data: *const c_void,
}

/// The C function type `baro_handler_t`.
pub(crate) type BaroHandler = extern "C" fn(*const BaroCall, *mut c_void) -> c_int;
/// A function that frees the data of a handler.
pub(crate) type Release = extern "C" fn(*mut c_void);

/// The data of a handler, freed with it.
struct Data {
    at: *mut c_void,
    release: Option<Release>,
}

// SAFETY: the caller of `baro_on` guarantees that any thread may use it; one thread at a time does.
unsafe impl Send for Data {}

impl Data {
    /// The pointer. A method, so that a closure captures the whole struct.
    fn at(&self) -> *mut c_void {
        self.at
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            release(self.at);
        }
    }
}

/// See `baro.h`.
///
/// # Safety
/// `name` and `help` are null or C strings. `handler` may be called
/// with `data` from any thread that polls, and `release` from any.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_on_owned(
    baro: *const Publisher,
    name: *const c_char,
    help: *const c_char,
    handler: Option<BaroHandler>,
    data: *mut c_void,
    release: Option<Release>,
) -> c_int {
    let data = Data { at: data, release };
    // SAFETY: the caller upholds the requirements of this function.
    unsafe { listen(baro, None, name, help, handler, data) }
}

/// See `baro.h`.
///
/// # Safety
/// As for [`baro_on_owned`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_on(
    baro: *const Publisher,
    name: *const c_char,
    help: *const c_char,
    handler: Option<BaroHandler>,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the caller upholds the requirements of this function.
    unsafe { baro_on_owned(baro, name, help, handler, data, None) }
}

/// See `baro.h`.
///
/// # Safety
/// As for [`baro_on_owned`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_publication_on(
    baro: *const Publisher,
    publication: u64,
    name: *const c_char,
    help: *const c_char,
    handler: Option<BaroHandler>,
    data: *mut c_void,
    release: Option<Release>,
) -> c_int {
    let data = Data { at: data, release };
    // SAFETY: the caller upholds the requirements of this function.
    unsafe { listen(baro, Some(publication), name, help, handler, data) }
}

/// Sets the handler of a trigger of the process, or of one publication.
///
/// # Safety
/// As for [`baro_on_owned`].
unsafe fn listen(
    baro: *const Publisher,
    publication: Option<u64>,
    name: *const c_char,
    help: *const c_char,
    handler: Option<BaroHandler>,
    data: Data,
) -> c_int {
    guarded(
        |code| code,
        || {
            // SAFETY: the caller upholds the requirements of this function.
            let (baro, name, help) = unsafe {
                (
                    thing(baro)?,
                    text(name, "the trigger's name")?,
                    text_or_empty(help, "the help")?,
                )
            };
            let handler = handler.ok_or_else(|| Failure::new(E_ARGUMENT, "the handler is null"))?;
            let called = move |call: &Call| run(handler, call, &data);
            match publication {
                Some(publication) => baro.publication_of(publication)?.on(name, help, called)?,
                None => baro.on(name, help, called)?,
            }
            put::note_calls();
            Ok(OK)
        },
    )
}

fn run(handler: BaroHandler, call: &Call, data: &Data) -> Result<(), String> {
    let name = CString::new(call.name.as_str()).unwrap_or_default();
    // Texts end with a zero byte; those that they contain stay.
    let mut ended = Vec::new();
    let (bytes, value) = match &call.payload {
        CallPayload::None => (0, Content { int: 0 }),
        CallPayload::Int(v) => (8, Content { int: *v }),
        CallPayload::Float(v) => (8, Content { float: *v }),
        CallPayload::Bool(v) => (8, Content { int: (*v).into() }),
        CallPayload::Text(v) | CallPayload::Json(v) => {
            ended.extend_from_slice(v.as_bytes());
            ended.push(0);
            let data = ended.as_ptr().cast();
            (v.len(), Content { data })
        }
        CallPayload::Bytes(v) => {
            let data = v.as_ptr().cast();
            (v.len(), Content { data })
        }
        CallPayload::Floats(v) => {
            let data = v.as_ptr().cast();
            (size_of_val(v.as_slice()), Content { data })
        }
    };
    let given = BaroCall {
        id: call.id,
        issued_ns: call.issued_ns,
        expires_ns: call.expires_ns,
        name: name.as_ptr(),
        payload_type: call.payload.type_number().into(),
        bytes,
        value,
    };
    match handler(&raw const given, data.at()) {
        0 => Ok(()),
        code => Err(format!("its handler returned {code}")),
    }
}

/// See `baro.h`. If `here` is null, it first checks whether there is anything to do.
///
/// # Safety
/// `here` is null or valid for writes by this thread.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_poll_slowly(here: *mut *const *const RingCursor) -> c_int {
    if tried(|| (here.is_null() && !raw::is_poll_due()) || raw::is_resting()) {
        return 0;
    }
    guarded(
        |_| 0,
        || {
            let done = raw::poll_now();
            put::note_calls();
            // SAFETY: the caller upholds the requirements of this function.
            unsafe { put::tell_place(here) };
            Ok(c_int::try_from(done).unwrap_or(c_int::MAX))
        },
    )
}

/// See `baro.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn baro_listen(baro: *const Publisher) -> c_int {
    guarded(
        |code| code,
        || {
            thing(baro)?.listen()?;
            Ok(OK)
        },
    )
}

/// Declares a knob; null if it is refused.
///
/// # Safety
/// `name`, `unit` and `help` are null or C strings.
unsafe fn knob(
    publication: u64,
    name: *const c_char,
    unit: *const c_char,
    help: *const c_char,
    mut config: KnobConfig,
) -> *const KnobCell {
    guarded(
        |_| std::ptr::null(),
        || {
            // SAFETY: the caller upholds the requirements of this function.
            let (name, unit, help) = unsafe {
                (
                    text(name, "the knob's name")?,
                    text_or_empty(unit, "the unit")?,
                    text_or_empty(help, "the help")?,
                )
            };
            config.unit = unit.to_owned();
            config.help = help.to_owned();
            let knob = raw::knob(publication, name, &config)?;
            put::note_calls();
            Ok(std::ptr::from_ref(knob.to_raw()))
        },
    )
}

/// See `baro.h`.
///
/// # Safety
/// `name`, `unit` and `help` are null or C strings.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_knob_f64(
    publication: u64,
    name: *const c_char,
    initial: f64,
    min: f64,
    max: f64,
    unit: *const c_char,
    help: *const c_char,
) -> *const KnobCell {
    let config = KnobConfig::float(initial, min, max);
    // SAFETY: the caller upholds the requirements of this function.
    unsafe { knob(publication, name, unit, help, config) }
}

/// See `baro.h`.
///
/// # Safety
/// `name`, `unit` and `help` are null or C strings.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_knob_i64(
    publication: u64,
    name: *const c_char,
    initial: i64,
    min: i64,
    max: i64,
    unit: *const c_char,
    help: *const c_char,
) -> *const KnobCell {
    let config = KnobConfig::int(initial, min, max);
    // SAFETY: the caller upholds the requirements of this function.
    unsafe { knob(publication, name, unit, help, config) }
}

/// See `baro.h`.
///
/// # Safety
/// `name` and `help` are null or C strings.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_knob_bool(
    publication: u64,
    name: *const c_char,
    initial: c_int,
    help: *const c_char,
) -> *const KnobCell {
    let config = KnobConfig::bool(initial != 0);
    // SAFETY: the caller upholds the requirements of this function; the unit is a literal.
    unsafe { knob(publication, name, c"".as_ptr(), help, config) }
}

/// See `baro.h`.
///
/// # Safety
/// `knob` is null or a knob of this library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_knob_read_f64(knob: *const KnobCell) -> f64 {
    // SAFETY: the caller upholds the requirements of this function; knobs are never freed.
    match unsafe { knob.as_ref() }.map(KnobCell::value) {
        Some(KnobValue::Float(v)) => v,
        Some(KnobValue::Int(v)) => v as f64,
        Some(KnobValue::Bool(v)) => v.into(),
        None => 0.0,
    }
}

/// See `baro.h`.
///
/// # Safety
/// `knob` is null or a knob of this library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_knob_read_i64(knob: *const KnobCell) -> i64 {
    // SAFETY: the caller upholds the requirements of this function; knobs are never freed.
    match unsafe { knob.as_ref() }.map(KnobCell::value) {
        Some(KnobValue::Float(v)) => v as i64,
        Some(KnobValue::Int(v)) => v,
        Some(KnobValue::Bool(v)) => v.into(),
        None => 0,
    }
}

//! Opening, declaring, and closing publishers.

use std::ffi::{c_char, c_int};
use std::time::Duration;

use barograph_client::RunDir;
use barograph_client::publish::{
    OverflowPolicy, PublicationConfig, PublicationReaders, PublishConfig, PublishError, Publisher,
    raw,
};
use barograph_model::{Kind, ValueType};

use crate::guard::{
    E_ARGUMENT, E_REFUSED, E_TOO_LONG, E_TYPE, Failure, OK, guarded, remember, text, text_or_empty,
};
use crate::handles::{HandleObject, give, take_back, thing};
use crate::put;

/// The C struct `baro_config_t`: fields that a caller's older header does not have are 0.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct BaroConfig {
    size: usize,
    run_dir: usize,
    overflow: u32,
    rings_max: u32,
    ring_records: u64,
    block_ms_max: u64,
}

impl From<PublishError> for Failure {
    fn from(error: PublishError) -> Self {
        let code = match &error {
            PublishError::TooLong { .. } => E_TOO_LONG,
            PublishError::Type => E_TYPE,
            PublishError::Event(_) => E_ARGUMENT,
            _ => E_REFUSED,
        };
        Self::new(code, error)
    }
}

impl HandleObject for Publisher {
    const KIND: u8 = 1;
    const NAME: &'static str = "baro";
    const IS_EXCLUSIVE: bool = false;
}

/// See `baro.h`.
///
/// # Safety
/// `application` is null or a C string; `config` is null or begins with its size.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_open(
    application: *const c_char,
    config: *const BaroConfig,
) -> *mut Publisher {
    guarded(
        |_| std::ptr::null_mut(),
        || {
            // SAFETY: the caller upholds the requirements of this function.
            let application = unsafe { text_or_empty(application, "the application's name") }?;
            // SAFETY: the caller upholds the requirements of this function.
            let wanted = unsafe { config_of(application, config) }?;
            put::follow_threads();
            let publisher = Publisher::open(wanted);
            let error = publisher.error().map(ToString::to_string);
            remember(&error.unwrap_or_default());
            give(publisher)
        },
    )
}

/// # Safety
/// `config` is null, or begins with its size and has that many bytes.
unsafe fn config_of(
    application: &str,
    config: *const BaroConfig,
) -> Result<PublishConfig, Failure> {
    let mut wanted = PublishConfig::of(application);
    if config.is_null() {
        return Ok(wanted);
    }
    let mut known = BaroConfig::default();
    // SAFETY: the size is the first field in every version.
    let size = unsafe { config.cast::<usize>().read() };
    if size < size_of::<usize>() {
        let text = "the configuration has no size: begin with BARO_CONFIG_INIT";
        return Err(Failure::new(E_ARGUMENT, text));
    }
    let bytes = size.min(size_of::<BaroConfig>());
    // SAFETY: both have that many bytes; all bit patterns of `BaroConfig` are valid.
    unsafe {
        std::ptr::copy_nonoverlapping(config.cast::<u8>(), (&raw mut known).cast::<u8>(), bytes);
    }
    if known.run_dir != 0 {
        // SAFETY: a C string of the caller's.
        let path = unsafe { text(known.run_dir as *const c_char, "the run directory") }?;
        wanted.run_dir = Some(RunDir::new(path));
    }
    wanted.overflow = match known.overflow {
        0 => OverflowPolicy::DropOldest,
        1 => OverflowPolicy::Block,
        _ => return Err(Failure::new(E_ARGUMENT, "there is no such overflow policy")),
    };
    if known.rings_max != 0 {
        wanted.rings_max = known.rings_max;
    }
    if known.ring_records != 0 {
        wanted.ring_records = known.ring_records;
    }
    if known.block_ms_max != 0 {
        wanted.block_time_max = Duration::from_millis(known.block_ms_max);
    }
    Ok(wanted)
}

/// See `baro.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn baro_close(baro: *mut Publisher) {
    let close = || {
        // Not in a child that shares our memory: the publisher is the parent's.
        raw::enter()?;
        take_back(baro)
    };
    guarded(|_| (), close);
}

/// See `baro.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn baro_is_enabled(baro: *const Publisher) -> c_int {
    guarded(|_| 0, || Ok(thing(baro)?.is_enabled().into()))
}

/// See `baro.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn baro_lost(baro: *const Publisher) -> u64 {
    guarded(|_| 0, || Ok(thing(baro)?.lost()))
}

/// See `baro.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn baro_refused_count(baro: *const Publisher) -> u64 {
    guarded(|_| 0, || Ok(thing(baro)?.refused()))
}

/// See `baro.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn baro_refused(value: u64) -> c_int {
    guarded(|_| 0, || Ok(raw::is_refused(value).into()))
}

/// See `baro.h`.
///
/// # Safety
/// `name` and `value` are null or C strings.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_label(
    baro: *mut Publisher,
    name: *const c_char,
    value: *const c_char,
) -> c_int {
    guarded(
        |code| code,
        || {
            // SAFETY: the caller upholds the requirements of this function.
            let (baro, name, value) = unsafe {
                (
                    thing(baro)?,
                    text(name, "the label's name")?,
                    text(value, "the label's value")?,
                )
            };
            baro.label(name, value)?;
            Ok(OK)
        },
    )
}

/// The readers with a number of `baro.h`.
pub(crate) fn readers_of(readers: c_int) -> Result<PublicationReaders, Failure> {
    match readers {
        0 => Ok(PublicationReaders::Owner),
        1 => Ok(PublicationReaders::Group),
        2 => Ok(PublicationReaders::All),
        _ => Err(Failure::new(E_ARGUMENT, "there are no such readers")),
    }
}

/// See `baro.h`.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_publication(
    baro: *mut Publisher,
    name: *const c_char,
    readers: c_int,
) -> u64 {
    guarded(
        |_| 0,
        || {
            // SAFETY: the caller upholds the requirements of this function.
            let (baro, name) = unsafe { (thing(baro)?, text(name, "the publication's name")?) };
            let readers = readers_of(readers)?;
            let labels = Vec::new();
            let publication = baro.publication(name, PublicationConfig { readers, labels })?;
            Ok(publication.to_raw())
        },
    )
}

/// See `baro.h`.
///
/// # Safety
/// `name`, `unit` and `help` are null or C strings.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_value(
    publication: u64,
    name: *const c_char,
    value_type: c_int,
    unit: *const c_char,
    kind: c_int,
    help: *const c_char,
) -> u64 {
    // SAFETY: the caller upholds the requirements of this function.
    unsafe { baro_value_sized(publication, name, value_type, unit, kind, help, 0) }
}

/// See `baro.h`.
///
/// # Safety
/// `name`, `unit` and `help` are null or C strings.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_value_sized(
    publication: u64,
    name: *const c_char,
    value_type: c_int,
    unit: *const c_char,
    kind: c_int,
    help: *const c_char,
    bytes_max: u32,
) -> u64 {
    guarded(
        |_| 0,
        || {
            // SAFETY: the caller upholds the requirements of this function.
            let (name, unit, help) = unsafe {
                (
                    text(name, "the value's name")?,
                    text_or_empty(unit, "the unit")?,
                    text_or_empty(help, "the help")?,
                )
            };
            let number = |code: c_int| u8::try_from(code).unwrap_or(0);
            let value_type = ValueType::from_u8(number(value_type));
            let value_type =
                value_type.ok_or_else(|| Failure::new(E_ARGUMENT, "there is no such type"))?;
            let kind = Kind::from_u8(number(kind));
            let kind = kind.ok_or_else(|| Failure::new(E_ARGUMENT, "there is no such kind"))?;
            let value = raw::value(publication, name, value_type, unit, kind, help, bytes_max)?;
            Ok(value.to_raw())
        },
    )
}

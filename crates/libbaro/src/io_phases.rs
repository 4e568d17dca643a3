//! Phases of I/O: see `baro.h`.

use std::ffi::{c_char, c_int};
use std::time::Duration;

use barograph_client::publish::{
    IO_PRIORITY_DEFAULT, IO_WAIT_DEFAULT, IoPhaseConfig, IoVolume, Publisher,
};

use crate::guard::{E_ARGUMENT, Failure, OK, guarded, set, text};
use crate::handles::{HandleObject, give, take_back, thing};

impl HandleObject for IoVolume {
    const KIND: u8 = 9;
    const NAME: &'static str = "the volume";
    const IS_EXCLUSIVE: bool = false;
}

/// See `baro.h`.
///
/// # Safety
/// `volume` is null or a C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_io_volume(
    baro: *mut Publisher,
    volume: *const c_char,
) -> *mut IoVolume {
    guarded(
        |_| std::ptr::null_mut(),
        || {
            // SAFETY: the caller upholds the requirements of this function.
            let (baro, volume) = unsafe { (thing(baro)?, text(volume, "the volume")?) };
            give(baro.io_volume(volume)?)
        },
    )
}

/// See `baro.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn baro_io_volume_close(volume: *mut IoVolume) {
    guarded(|_| (), || take_back(volume));
}

/// See `baro.h`.
///
/// # Safety
/// `grant` is null or valid for writes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_io_begin(
    volume: *mut IoVolume,
    bytes: i64,
    priority: c_int,
    wait_ms: u64,
    grant: *mut c_int,
) -> u64 {
    guarded(
        |_| 0,
        || {
            // SAFETY: the caller upholds the requirements of this function.
            unsafe { set(grant, 0) };
            let config = IoPhaseConfig {
                bytes: u64::try_from(bytes).ok(),
                priority: match priority {
                    0 => IO_PRIORITY_DEFAULT,
                    other => other.clamp(1, 10) as u8,
                },
                wait_max: wait_of(wait_ms),
            };
            let (number, granted) = thing(volume)?.begin_raw(&config);
            // SAFETY: the caller upholds the requirements of this function.
            unsafe { set(grant, granted as c_int) };
            Ok(number)
        },
    )
}

/// See `baro.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn baro_io_step(
    volume: *mut IoVolume,
    phase: u64,
    bytes_done: u64,
    wait_ms: u64,
) -> c_int {
    guarded(
        |code| code,
        || {
            let grant = thing(volume)?.step_raw(phase, bytes_done, wait_of(wait_ms));
            Ok(grant as c_int)
        },
    )
}

/// See `baro.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn baro_io_end(volume: *mut IoVolume, phase: u64, bytes_done: u64) -> c_int {
    guarded(
        |code| code,
        || {
            thing(volume)?.end_raw(phase, bytes_done);
            Ok(OK)
        },
    )
}

/// See `baro.h`.
///
/// # Safety
/// `share` is null or valid for writes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_io_share(
    volume: *mut IoVolume,
    phase: u64,
    share: *mut f64,
) -> c_int {
    guarded(
        |code| code,
        || {
            let found = thing(volume)?.share_raw(phase);
            let found =
                found.ok_or_else(|| Failure::new(E_ARGUMENT, "the phase has no grant now"))?;
            // SAFETY: the caller upholds the requirements of this function.
            unsafe { set(share, found) };
            Ok(OK)
        },
    )
}

fn wait_of(wait_ms: u64) -> Duration {
    match wait_ms {
        0 => IO_WAIT_DEFAULT,
        wait_ms => Duration::from_millis(wait_ms),
    }
}

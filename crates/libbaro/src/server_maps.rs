//! Server maps: see `baro.h`.

use std::ffi::{c_char, c_int};
use std::time::Duration;

use barograph_client::publish::{
    MAP_WAIT_DEFAULT, MapServer, Publisher, RawOperation, RawRequest, SERVER_NUMBERS, ServerMap,
};

use crate::guard::{E_ARGUMENT, Failure, OK, guarded, text};
use crate::handles::{HandleObject, give, take_back, thing};

impl HandleObject for ServerMap {
    const KIND: u8 = 20;
    const NAME: &'static str = "the map of servers";
    const IS_EXCLUSIVE: bool = false;
}

impl HandleObject for MapServer {
    const KIND: u8 = 21;
    const NAME: &'static str = "the server of a map";
    const IS_EXCLUSIVE: bool = false;
}

/// `baro_map_operation_t`.
#[repr(C)]
pub(crate) struct COperation {
    number: u64,
    epoch: u64,
    start: c_int,
    servers_count: u32,
    servers: [u16; SERVER_NUMBERS as usize],
}

/// `baro_map_request_t`.
#[repr(C)]
pub(crate) struct CRequest {
    number: u64,
    begun_ns: i64,
    before: u64,
    fence: u64,
}

/// What `baro_map_serve_begin` returns for a request that is served.
const SERVED: c_int = 0;
/// What it returns for one that is not.
const FENCED: c_int = 1;

/// See `baro.h`.
///
/// # Safety
/// `name` is null or a C string; `servers` is null or has `count` numbers.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_server_map(
    baro: *mut Publisher,
    name: *const c_char,
    servers: *const u32,
    count: usize,
) -> *mut ServerMap {
    guarded(
        |_| std::ptr::null_mut(),
        || {
            // SAFETY: the caller upholds the requirements of this function.
            let (baro, name) = unsafe { (thing(baro)?, text(name, "the name of the map")?) };
            let servers = match servers.is_null() || count > SERVER_NUMBERS as usize {
                true if count > 0 => {
                    let text = "the servers are null, or more than 1,024";
                    return Err(Failure::new(E_ARGUMENT, text));
                }
                true => &[][..],
                // SAFETY: not null, and the caller says how many there are.
                false => unsafe { std::slice::from_raw_parts(servers, count) },
            };
            give(baro.server_map(name, servers.iter().copied())?)
        },
    )
}

/// See `baro.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn baro_server_map_close(map: *mut ServerMap) {
    guarded(|_| (), || take_back(map));
}

/// See `baro.h`.
///
/// # Safety
/// `operation` is null or valid for writes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_map_begin(
    map: *mut ServerMap,
    wait_ms: u64,
    operation: *mut COperation,
) -> c_int {
    guarded(
        |code| code,
        || {
            // SAFETY: the caller upholds the requirements of this function.
            let begun = unsafe { operation_of(operation)? };
            (begun.number, begun.epoch, begun.start, begun.servers_count) = (0, 0, 0, 0);
            let wait_max = match wait_ms {
                0 => MAP_WAIT_DEFAULT,
                wait_ms => Duration::from_millis(wait_ms),
            };
            begun.set(&thing(map)?.begin_raw(wait_max));
            Ok(OK)
        },
    )
}

/// See `baro.h`.
///
/// # Safety
/// `operation` is null or what [`baro_map_begin`] has filled.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_map_end(
    map: *mut ServerMap,
    operation: *mut COperation,
) -> c_int {
    guarded(
        |code| code,
        || {
            // SAFETY: the caller upholds the requirements of this function.
            let number = std::mem::take(unsafe { &mut operation_of(operation)?.number });
            if number != 0 {
                thing(map)?.end_raw(number);
            }
            Ok(OK)
        },
    )
}

/// See `baro.h`.
///
/// # Safety
/// `operation` is null or what [`baro_map_begin`] has filled.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_map_refused(
    map: *mut ServerMap,
    operation: *mut COperation,
    fence: u64,
) -> c_int {
    guarded(
        |code| code,
        || {
            // SAFETY: the caller upholds the requirements of this function.
            let number = std::mem::take(unsafe { &mut operation_of(operation)?.number });
            if number != 0 {
                thing(map)?.refused_raw(number, fence);
            }
            Ok(OK)
        },
    )
}

/// See `baro.h`.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_map_server(
    baro: *mut Publisher,
    name: *const c_char,
    number: u32,
) -> *mut MapServer {
    guarded(
        |_| std::ptr::null_mut(),
        || {
            // SAFETY: the caller upholds the requirements of this function.
            let (baro, name) = unsafe { (thing(baro)?, text(name, "the name of the map")?) };
            give(baro.map_server(name, number)?)
        },
    )
}

/// See `baro.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn baro_map_server_close(server: *mut MapServer) {
    guarded(|_| (), || take_back(server));
}

/// See `baro.h`.
///
/// # Safety
/// `request` is null or valid for writes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_map_serve_begin(
    server: *mut MapServer,
    epoch: u64,
    request: *mut CRequest,
) -> c_int {
    guarded(
        |code| code,
        || {
            // SAFETY: the caller upholds the requirements of this function.
            let begun = unsafe { request_of(request)? };
            *begun = CRequest::NONE;
            match thing(server)?.serve_raw(epoch) {
                Ok(raw) => {
                    (begun.number, begun.begun_ns, begun.before) =
                        (raw.number, raw.begun_ns, raw.before);
                    Ok(SERVED)
                }
                Err(fenced) => {
                    begun.fence = fenced.fence;
                    Ok(FENCED)
                }
            }
        },
    )
}

/// See `baro.h`.
///
/// # Safety
/// `request` is null or what [`baro_map_serve_begin`] has filled.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_map_serve_end(
    server: *mut MapServer,
    request: *mut CRequest,
    bytes: u64,
) -> c_int {
    guarded(
        |code| code,
        || {
            // SAFETY: the caller upholds the requirements of this function.
            let ended = unsafe { request_of(request)? };
            let raw = RawRequest {
                number: std::mem::take(&mut ended.number),
                begun_ns: ended.begun_ns,
                before: ended.before,
            };
            if raw.number != 0 {
                thing(server)?.end_raw(&raw, bytes);
            }
            Ok(OK)
        },
    )
}

impl COperation {
    fn set(&mut self, raw: &RawOperation) {
        self.number = raw.number;
        self.epoch = raw.epoch;
        self.start = raw.start as c_int;
        let mut count = 0;
        // Only so much is written as there are servers: programs begin many operations.
        for (to, server) in self.servers.iter_mut().zip(raw.servers.iter()) {
            *to = server as u16;
            count += 1;
        }
        self.servers_count = count;
    }
}

impl CRequest {
    const NONE: Self = Self {
        number: 0,
        begun_ns: 0,
        before: 0,
        fence: 0,
    };
}

/// # Safety
/// The pointer is null or valid for reads and writes.
unsafe fn operation_of<'a>(operation: *mut COperation) -> Result<&'a mut COperation, Failure> {
    // SAFETY: the caller upholds the requirements of this function; any bit pattern is valid.
    let operation = unsafe { operation.as_mut() };
    operation.ok_or_else(|| Failure::new(E_ARGUMENT, "the operation is null"))
}

/// # Safety
/// The pointer is null or valid for reads and writes.
unsafe fn request_of<'a>(request: *mut CRequest) -> Result<&'a mut CRequest, Failure> {
    // SAFETY: the caller upholds the requirements of this function; any bit pattern is valid.
    let request = unsafe { request.as_mut() };
    request.ok_or_else(|| Failure::new(E_ARGUMENT, "the request is null"))
}

//! Staging: a client of servers that keep blocks, its puts, reads and removals. See `baro.h`.
//!
//! Connections are the only descriptors that stay open between calls. `barograph_staging` looks
//! whether they are still its own before it uses or closes them, and a forked child makes others.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use barograph_client::SystemClock;
use barograph_staging::client::{
    ClientConfig, GetOptions, GuestClient, MappedCheck, PutOptions, StagingMap,
};
use barograph_staging::{BlockInfo, BlockKey, FaultCode, KeyFault, PutTarget, StagingError};

use crate::guard::{
    E_ARGUMENT, E_BUSY, E_DATA, E_FENCED, E_REFUSED, E_TOO_LONG, E_UNKNOWN, E_UNREACHABLE, Failure,
    NOTHING, OK, guarded, set, text,
};
use crate::handles::{HandleObject, give, take_back, thing};

/// Most servers that a client is given.
const SERVERS_MAX: usize = 4_096;

/// The C type `baro_stage_t`.
pub(crate) struct BaroStage {
    pub(crate) client: Arc<GuestClient>,
    get: GetOptions,
}

impl HandleObject for BaroStage {
    const KIND: u8 = 22;
    const NAME: &'static str = "the client of staging";
    const IS_EXCLUSIVE: bool = false;
}

/// The C struct `baro_stage_config_t`, whose pointers are numbers here, so that all bit patterns
/// are valid.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct BaroStageConfig {
    size: usize,
    epoch: u64,
    replicas: u32,
    check: c_int,
    accept_unconfirmed: c_int,
    user: u32,
    token: usize,
    token_bytes: usize,
    timeout_ns: i64,
    rate_min: u64,
}

/// The C struct `baro_stage_put_options_t`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct BaroPutOptions {
    size: usize,
    version: u64,
    acks: u32,
    durable: c_int,
    wait_ns: i64,
    refetch_us: u32,
}

/// The C struct `baro_stage_key_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct BaroStageKey {
    pub(crate) dataset: *const c_char,
    pub(crate) name: *const c_void,
    pub(crate) name_bytes: usize,
    pub(crate) number: u64,
}

/// The C struct `baro_stage_info_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct BaroStageInfo {
    bytes: u64,
    version: u64,
    epoch: u64,
    checksum: u32,
    is_confirmed: c_int,
    is_dirty: c_int,
}

impl BaroStageInfo {
    pub(crate) const NONE: Self = Self {
        bytes: 0,
        version: 0,
        epoch: 0,
        checksum: 0,
        is_confirmed: 0,
        is_dirty: 0,
    };
}

impl From<&BlockInfo> for BaroStageInfo {
    fn from(info: &BlockInfo) -> Self {
        Self {
            bytes: info.bytes,
            version: info.version,
            epoch: info.epoch,
            checksum: info.checksum,
            is_confirmed: info.is_confirmed.into(),
            is_dirty: info.is_dirty.into(),
        }
    }
}

impl From<StagingError> for Failure {
    fn from(error: StagingError) -> Self {
        let code = match error.code() {
            Some(FaultCode::NotFound) => NOTHING,
            Some(FaultCode::NotKnown) => E_UNKNOWN,
            Some(FaultCode::Corrupt | FaultCode::Unconfirmed | FaultCode::Disk) => E_DATA,
            Some(FaultCode::Fenced) => E_FENCED,
            Some(FaultCode::OldVersion | FaultCode::Full | FaultCode::Denied) => E_REFUSED,
            Some(FaultCode::Busy | FaultCode::Stopping) => E_BUSY,
            Some(FaultCode::Unreachable | FaultCode::TooFew) => E_UNREACHABLE,
            Some(FaultCode::TooLong) => E_TOO_LONG,
            Some(FaultCode::BadRequest) | None => E_ARGUMENT,
        };
        Self::new(code, error)
    }
}

impl From<KeyFault> for Failure {
    fn from(fault: KeyFault) -> Self {
        Self::new(E_ARGUMENT, fault)
    }
}

/// See `baro.h`.
///
/// # Safety
/// `servers` is null or has `count` C strings; `config` is null or begins with its size, and its
/// pointers are null or valid.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_stage_open(
    servers: *const *const c_char,
    count: usize,
    config: *const BaroStageConfig,
) -> *mut BaroStage {
    guarded(
        |_| std::ptr::null_mut(),
        || {
            let begin = "begin with BARO_STAGE_CONFIG_INIT";
            // SAFETY: the caller upholds the requirements; all bit patterns of it are valid.
            let given: BaroStageConfig = unsafe { sized(config, begin)? };
            // SAFETY: the caller upholds the requirements of this function.
            let map = unsafe { map_of(given.epoch, servers, count)? };
            let mut config = ClientConfig::default();
            if given.replicas != 0 {
                config.replicas = given.replicas as usize;
            }
            if given.check != 0 {
                config.mapped = Some(MappedCheck::Checksum);
            }
            if given.user != 0 {
                config.user = given.user;
            }
            let token = given.token as *const c_void;
            // SAFETY: the caller upholds the requirements of this function.
            config.token = unsafe { bytes(token, given.token_bytes, "the token")? }.to_vec();
            if given.timeout_ns > 0 {
                config.timeout_ns = given.timeout_ns;
            }
            if given.rate_min != 0 {
                config.rate_min = given.rate_min;
            }
            let accept_unconfirmed = given.accept_unconfirmed != 0;
            let clock = Arc::new(SystemClock::new());
            give(BaroStage {
                client: Arc::new(GuestClient::new(config, map, clock)),
                get: GetOptions { accept_unconfirmed },
            })
        },
    )
}

/// See `baro.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn baro_stage_close(stage: *mut BaroStage) {
    guarded(|_| (), || take_back(stage));
}

/// See `baro.h`.
///
/// # Safety
/// `servers` is null or has `count` C strings.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_stage_servers(
    stage: *const BaroStage,
    epoch: u64,
    servers: *const *const c_char,
    count: usize,
) -> c_int {
    guarded(
        |code| code,
        || {
            // SAFETY: the caller upholds the requirements of this function.
            let map = unsafe { map_of(epoch, servers, count)? };
            thing(stage)?.client.client()?.set_map(map);
            Ok(OK)
        },
    )
}

/// See `baro.h`.
///
/// # Safety
/// `key` is null or valid with what it points to; `data` is null or has `count` bytes; `options` is
/// null or begins with its size; `info` is null or valid for writes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_stage_put(
    stage: *const BaroStage,
    key: *const BaroStageKey,
    data: *const c_void,
    count: usize,
    options: *const BaroPutOptions,
    info: *mut BaroStageInfo,
) -> c_int {
    guarded(
        |code| code,
        || {
            // SAFETY: the caller upholds the requirements of this function.
            let (stage, key) = unsafe { begin(stage, key, info)? };
            let start = "begin with BARO_STAGE_PUT_INIT";
            // SAFETY: the caller upholds the requirements; all bit patterns of it are valid.
            let given: BaroPutOptions = unsafe { sized(options, start)? };
            // SAFETY: the caller upholds the requirements of this function.
            let data = unsafe { bytes(data, count, "the block")? };
            let version = match given.version {
                0 => stage.client.next_version(),
                version => version,
            };
            let client = stage.client.client()?;
            let report = client.put(&key, version, data, &put_options(&given))?;
            if let Some((_, stored)) = report.acknowledged.first() {
                // SAFETY: the caller upholds the requirements of this function.
                unsafe { set(info, stored.into()) };
            }
            Ok(OK)
        },
    )
}

fn put_options(given: &BaroPutOptions) -> PutOptions {
    let mut options = PutOptions {
        refetch_us: given.refetch_us,
        ..PutOptions::default()
    };
    if given.acks != 0 {
        options.acks = Some(given.acks as usize);
    }
    if given.durable != 0 {
        options.target = PutTarget::Durable;
    }
    if given.wait_ns != 0 {
        options.wait_ns = given.wait_ns.max(0);
    }
    options
}

/// See `baro.h`.
///
/// # Safety
/// `key` is null or valid with what it points to; `memory` is null or valid for writes of `room`
/// bytes; `info` is null or valid for writes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_stage_get(
    stage: *const BaroStage,
    key: *const BaroStageKey,
    memory: *mut c_void,
    room: usize,
    info: *mut BaroStageInfo,
) -> c_int {
    guarded(
        |code| code,
        || {
            // SAFETY: the caller upholds the requirements of this function.
            let (stage, key) = unsafe { begin(stage, key, info)? };
            // SAFETY: the caller upholds the requirements of this function.
            let memory = unsafe { bytes_mut(memory, room)? };
            match stage.client.client()?.get_to(&key, memory, &stage.get) {
                Ok(read) => {
                    // SAFETY: the caller upholds the requirements of this function.
                    unsafe { set(info, (&read).into()) };
                    Ok(OK)
                }
                Err(error) => {
                    if error.code() == Some(FaultCode::TooLong) {
                        let needed = BaroStageInfo {
                            bytes: error.number(),
                            ..BaroStageInfo::NONE
                        };
                        // SAFETY: the caller upholds the requirements of this function.
                        unsafe { set(info, needed) };
                    }
                    Err(error.into())
                }
            }
        },
    )
}

/// See `baro.h`.
///
/// # Safety
/// `key` is null or valid with what it points to; `info` is null or valid for writes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_stage_stat(
    stage: *const BaroStage,
    key: *const BaroStageKey,
    info: *mut BaroStageInfo,
) -> c_int {
    guarded(
        |code| code,
        || {
            // SAFETY: the caller upholds the requirements of this function.
            let (stage, key) = unsafe { begin(stage, key, info)? };
            let known = stage.client.client()?.stat(&key)?;
            // SAFETY: the caller upholds the requirements of this function.
            unsafe { set(info, (&known).into()) };
            Ok(OK)
        },
    )
}

/// See `baro.h`.
///
/// # Safety
/// `key` is null or valid with what it points to.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_stage_remove(
    stage: *const BaroStage,
    key: *const BaroStageKey,
    version_max: u64,
) -> c_int {
    guarded(
        |code| code,
        || {
            // SAFETY: the caller upholds the requirements of this function.
            let (stage, key) = unsafe { begin(stage, key, std::ptr::null_mut())? };
            let version_max = match version_max {
                0 => u64::MAX,
                version => version,
            };
            match stage.client.client()?.delete(&key, version_max)? {
                true => Ok(OK),
                false => Ok(NOTHING),
            }
        },
    )
}

/// Pins the client, reads the key, and empties the answer.
///
/// # Safety
/// `key` is null or valid with what it points to; `info` is null or valid for writes.
pub(crate) unsafe fn begin(
    stage: *const BaroStage,
    key: *const BaroStageKey,
    info: *mut BaroStageInfo,
) -> Result<(crate::handles::HandleGuard<BaroStage>, BlockKey), Failure> {
    // SAFETY: the caller upholds the requirements of this function.
    unsafe { set(info, BaroStageInfo::NONE) };
    let stage = thing(stage)?;
    // SAFETY: the caller upholds the requirements of this function.
    Ok((stage, unsafe { key_of(key)? }))
}

/// # Safety
/// `key` is null or valid with what it points to.
pub(crate) unsafe fn key_of(key: *const BaroStageKey) -> Result<BlockKey, Failure> {
    // SAFETY: the caller upholds the requirements of this function.
    let key = unsafe { key.as_ref() };
    let key = key.ok_or_else(|| Failure::new(E_ARGUMENT, "the key is null"))?;
    // SAFETY: the caller upholds the requirements of this function.
    let dataset = unsafe { text(key.dataset, "the dataset")? };
    if key.name.is_null() {
        return Ok(BlockKey::numbered(dataset, key.number)?);
    }
    if key.name_bytes == 0 {
        // SAFETY: a name without a length is a C string.
        let name = unsafe { std::ffi::CStr::from_ptr(key.name.cast()) };
        return Ok(BlockKey::named(dataset, name.to_bytes())?);
    }
    // SAFETY: the caller upholds the requirements of this function.
    let name = unsafe { bytes(key.name, key.name_bytes, "the name of the block")? };
    Ok(BlockKey::named(dataset, name)?)
}

/// # Safety
/// `servers` is null or has `count` pointers, each of which is null or a C string.
unsafe fn map_of(
    epoch: u64,
    servers: *const *const c_char,
    count: usize,
) -> Result<StagingMap, Failure> {
    if servers.is_null() || count > SERVERS_MAX {
        let text = format!("the servers are null, or more than {SERVERS_MAX}");
        return Err(Failure::new(E_ARGUMENT, text));
    }
    // SAFETY: not null, and the caller says how many there are.
    let servers = unsafe { std::slice::from_raw_parts(servers, count) };
    let server = |server: &*const c_char| {
        // SAFETY: the caller upholds the requirements of this function.
        unsafe { text(*server, "the address of a server") }
    };
    let servers: Vec<&str> = servers.iter().map(server).collect::<Result<_, _>>()?;
    Ok(StagingMap::parse(epoch, servers)?)
}

/// Reads a struct whose first field is its size; fields that an older header lacks, and all fields
/// of null, are those of the default.
///
/// # Safety
/// `given` is null, or begins with its size and has that many bytes; all bit patterns of `T` are
/// valid.
unsafe fn sized<T: Copy + Default>(given: *const T, remedy: &str) -> Result<T, Failure> {
    let mut known = T::default();
    if given.is_null() {
        return Ok(known);
    }
    // SAFETY: the size is the first field in every version.
    let size = unsafe { given.cast::<usize>().read() };
    if size < size_of::<usize>() {
        let text = format!("the struct has no size: {remedy}");
        return Err(Failure::new(E_ARGUMENT, text));
    }
    let bytes = size.min(size_of::<T>());
    // SAFETY: both have that many bytes, and all bit patterns are valid.
    unsafe {
        std::ptr::copy_nonoverlapping(given.cast::<u8>(), (&raw mut known).cast::<u8>(), bytes);
    }
    Ok(known)
}

/// Bytes of the caller; null stands for none.
///
/// # Safety
/// `data` is null or has `count` bytes, which nobody changes while `'a` lasts.
unsafe fn bytes<'a>(data: *const c_void, count: usize, what: &str) -> Result<&'a [u8], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    if data.is_null() || isize::try_from(count).is_err() {
        let text = format!("{what} is null, or longer than memory");
        return Err(Failure::new(E_ARGUMENT, text));
    }
    // SAFETY: the pointer is not null, and the caller guarantees the rest.
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), count) })
}

/// Memory of the caller.
///
/// # Safety
/// `memory` is null or valid for writes of `room` bytes, which nobody else uses while `'a` lasts.
unsafe fn bytes_mut<'a>(memory: *mut c_void, room: usize) -> Result<&'a mut [u8], Failure> {
    if room == 0 {
        return Ok(&mut []);
    }
    if memory.is_null() || isize::try_from(room).is_err() {
        let text = "the memory is null, or longer than memory";
        return Err(Failure::new(E_ARGUMENT, text));
    }
    // SAFETY: the pointer is not null, and the caller guarantees the rest. Bytes are read only
    // after they were written.
    Ok(unsafe { std::slice::from_raw_parts_mut(memory.cast(), room) })
}

//! Blocks of staging in shared memory, and lists of blocks. See `baro.h`.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;

use barograph_staging::client::{GuestClient, ListCursor};
use barograph_staging::{BlockInfo, BlockKey, BlockName, FaultCode, ListQuery, MappedBlock};

use crate::guard::{E_ARGUMENT, Failure, NOTHING, OK, guarded, set, text_or_empty};
use crate::handles::{HandleObject, give, take_back, thing, thing_mut};
use crate::staging::{BaroStage, BaroStageInfo, BaroStageKey, begin};

/// The C type `baro_stage_block_t`: it keeps the memory mapped.
pub(crate) struct BaroStageBlock(MappedBlock);

impl HandleObject for BaroStageBlock {
    const KIND: u8 = 23;
    const NAME: &'static str = "the block";
    const IS_EXCLUSIVE: bool = false;
}

/// The C type `baro_stage_list_t`.
pub(crate) struct BaroStageList {
    client: Arc<GuestClient>,
    cursor: ListCursor,
    /// Memory that `entry` points into.
    dataset: CString,
    name: Vec<u8>,
    entry: BaroStageEntry,
}

impl HandleObject for BaroStageList {
    const KIND: u8 = 24;
    const NAME: &'static str = "the list of blocks";
    const IS_EXCLUSIVE: bool = true;
}

/// The C struct `baro_stage_entry_t`.
#[repr(C)]
pub(crate) struct BaroStageEntry {
    key: BaroStageKey,
    info: BaroStageInfo,
}

/// See `baro.h`.
///
/// # Safety
/// `key` is null or valid with what it points to; `block` is null or valid for writes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_stage_map(
    stage: *const BaroStage,
    key: *const BaroStageKey,
    block: *mut *mut BaroStageBlock,
) -> c_int {
    // SAFETY: the caller upholds the requirements of this function.
    unsafe { set(block, ptr::null_mut()) };
    guarded(
        |code| code,
        || {
            // SAFETY: the caller upholds the requirements of this function.
            let (stage, key) = unsafe { begin(stage, key, ptr::null_mut())? };
            if block.is_null() {
                return Err(Failure::new(E_ARGUMENT, "there is no place for the block"));
            }
            let mapped = match stage.client.client()?.map_block(&key) {
                Err(error) if error.code() == Some(FaultCode::NotFound) => None,
                mapped => mapped?,
            };
            let Some(mapped) = mapped else {
                return Ok(NOTHING);
            };
            // SAFETY: the caller upholds the requirements of this function.
            unsafe { set(block, give(BaroStageBlock(mapped))?) };
            Ok(OK)
        },
    )
}

/// See `baro.h`.
///
/// # Safety
/// `info` is null or valid for writes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_stage_block_data(
    block: *const BaroStageBlock,
    info: *mut BaroStageInfo,
) -> *const c_void {
    // SAFETY: the caller upholds the requirements of this function.
    unsafe { set(info, BaroStageInfo::NONE) };
    guarded(
        |_| ptr::null(),
        || {
            let block = thing(block)?;
            // SAFETY: the caller upholds the requirements of this function.
            unsafe { set(info, block.0.info().into()) };
            Ok(block.0.words().as_ptr().cast())
        },
    )
}

/// See `baro.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn baro_stage_is_valid(block: *const BaroStageBlock) -> c_int {
    guarded(|_| 0, || Ok(thing(block)?.0.is_current().into()))
}

/// See `baro.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn baro_stage_release(block: *mut BaroStageBlock) {
    guarded(|_| (), || take_back(block));
}

/// See `baro.h`.
///
/// # Safety
/// Both texts are null or C strings.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_stage_list(
    stage: *const BaroStage,
    dataset: *const c_char,
    name: *const c_char,
) -> *mut BaroStageList {
    guarded(
        |_| ptr::null_mut(),
        || {
            // SAFETY: the caller upholds the requirements of this function.
            let dataset = unsafe { text_or_empty(dataset, "the dataset")? };
            // SAFETY: the caller upholds the requirements of this function.
            let name = unsafe { text_or_empty(name, "the beginning of names")? };
            let query = ListQuery {
                dataset: dataset.into(),
                name: name.as_bytes().to_vec(),
                ..ListQuery::default()
            };
            give(BaroStageList {
                client: Arc::clone(&thing(stage)?.client),
                cursor: ListCursor::new(query),
                dataset: CString::default(),
                name: Vec::new(),
                entry: BaroStageEntry {
                    key: BaroStageKey {
                        dataset: ptr::null(),
                        name: ptr::null(),
                        name_bytes: 0,
                        number: 0,
                    },
                    info: BaroStageInfo::NONE,
                },
            })
        },
    )
}

/// See `baro.h`.
///
/// # Safety
/// `entry` is null or valid for writes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_stage_list_next(
    list: *mut BaroStageList,
    entry: *mut *const BaroStageEntry,
) -> c_int {
    // SAFETY: the caller upholds the requirements of this function.
    unsafe { set(entry, ptr::null()) };
    guarded(
        |code| code,
        || {
            let mut list = thing_mut(list)?;
            let client = Arc::clone(&list.client);
            let Some((key, info)) = list.cursor.next(client.client()?)? else {
                return Ok(NOTHING);
            };
            // SAFETY: the caller upholds the requirements of this function.
            unsafe { set(entry, ptr::from_ref(list.keep(&key, &info))) };
            Ok(OK)
        },
    )
}

/// See `baro.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn baro_stage_list_close(list: *mut BaroStageList) {
    guarded(|_| (), || take_back(list));
}

impl BaroStageList {
    /// Keeps a block until the next one.
    fn keep(&mut self, key: &BlockKey, info: &BlockInfo) -> &BaroStageEntry {
        // Names of datasets have no control characters, so no zero bytes.
        self.dataset = CString::new(key.dataset()).unwrap_or_default();
        self.name.clear();
        let (name, name_bytes, number) = match key.name() {
            BlockName::Number(number) => (ptr::null(), 0, *number),
            BlockName::Bytes(name) => {
                self.name.extend_from_slice(name);
                self.name.push(0);
                (self.name.as_ptr().cast(), name.len(), 0)
            }
        };
        self.entry = BaroStageEntry {
            key: BaroStageKey {
                dataset: self.dataset.as_ptr(),
                name,
                name_bytes,
                number,
            },
            info: info.into(),
        };
        &self.entry
    }
}

//! Where blocks of staging are. See `baro.h`.

use std::ffi::c_int;

use barograph_staging::BlockKey;
use barograph_staging::client::BlockReplica;

use crate::guard::{E_ARGUMENT, E_TOO_LONG, Failure, OK, guarded, set};
use crate::handles::thing;
use crate::staging::{BaroStage, BaroStageInfo, BaroStageKey, key_of};

/// Most blocks of one question.
const KEYS_MAX: usize = 1 << 20;
/// What stands for a time of which nothing is known.
const UNKNOWN_S: f64 = -1.0;

/// The C struct `baro_stage_replica_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct BaroStageReplica {
    index: usize,
    server: u64,
    is_on_node: c_int,
    tier: c_int,
    read_s: f64,
    info: BaroStageInfo,
}

impl BaroStageReplica {
    fn new(index: usize, replica: &BlockReplica) -> Self {
        Self {
            index,
            server: replica.server,
            is_on_node: replica.is_on_node.into(),
            tier: replica.info.tier.into(),
            read_s: replica.read_s.unwrap_or(UNKNOWN_S),
            info: (&replica.info).into(),
        }
    }
}

/// See `baro.h`.
///
/// # Safety
/// `keys` is null or has `count` keys, each valid with what it points to; `replicas` is null or
/// valid for writes of `room` of them; `found` is null or valid for writes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_stage_locate(
    stage: *const BaroStage,
    keys: *const BaroStageKey,
    count: usize,
    replicas: *mut BaroStageReplica,
    room: usize,
    found: *mut usize,
) -> c_int {
    // SAFETY: the caller upholds the requirements of this function.
    unsafe { set(found, 0) };
    guarded(
        |code| code,
        || {
            let stage = thing(stage)?;
            if (keys.is_null() && count > 0) || count > KEYS_MAX {
                let text = format!("the keys are null, or more than {KEYS_MAX}");
                return Err(Failure::new(E_ARGUMENT, text));
            }
            if replicas.is_null() && room > 0 {
                return Err(Failure::new(E_ARGUMENT, "there is no place for replicas"));
            }
            // SAFETY: not null below the count, and the caller upholds the rest.
            let key = |at: usize| unsafe { key_of(keys.add(at)) };
            let keys: Vec<BlockKey> = (0..count).map(key).collect::<Result<_, _>>()?;
            let answer = stage.client.client()?.locate(&keys)?;
            let all = answer.blocks.iter().enumerate();
            let all = all.flat_map(|(index, found)| found.iter().map(move |it| (index, it)));
            let mut there = 0;
            for (index, replica) in all {
                if there < room {
                    let replica = BaroStageReplica::new(index, replica);
                    // SAFETY: there is room for it.
                    unsafe { replicas.add(there).write(replica) };
                }
                there += 1;
            }
            // SAFETY: the caller upholds the requirements of this function.
            unsafe { set(found, there) };
            match there <= room {
                true => Ok(OK),
                false => {
                    let text = format!("{there} replicas were found, and there is room for {room}");
                    Err(Failure::new(E_TOO_LONG, text))
                }
            }
        },
    )
}

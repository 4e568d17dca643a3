//! Greatest lengths of the values of this process, by their numbers. A value that is too long is
//! dropped at the put, which can return an error, and not by the agent, which cannot. Read without
//! a lock.

use std::sync::atomic::{AtomicU32, Ordering};

use barograph_model::ValueType;
use barograph_stream::ingest::BLOB_BYTES_MAX;
use barograph_stream::value_bytes_max;

/// Number of values whose size is known here. Agents accept fewer per process; for further values
/// the agent decides.
const VALUES_MAX: usize = 1 << 16;
/// Mark of a size that is not known.
const UNKNOWN: u32 = 0;

/// Greatest length of each value in bytes.
static SIZES: [AtomicU32; VALUES_MAX] = [const { AtomicU32::new(UNKNOWN) }; VALUES_MAX];

/// Forgets all sizes, for another opening, whose values have numbers of their own.
pub(super) fn forget() {
    // Numbers are given in order.
    let known = |size: &&AtomicU32| size.load(Ordering::Relaxed) != UNKNOWN;
    let known = SIZES.iter().take_while(known);
    known.for_each(|size| size.store(UNKNOWN, Ordering::Relaxed));
}

/// Notes the size of a declared value in bytes; 0 is the default size.
pub(super) fn note(value: u32, value_type: ValueType, bytes_max: u32) {
    if let Some(size) = SIZES.get(value as usize) {
        let bytes_max = value_bytes_max(value_type, bytes_max);
        size.store(bytes_max.max(1), Ordering::Relaxed);
    }
}

/// Greatest length of a value in bytes.
pub(super) fn of(value: u32) -> usize {
    let size = SIZES.get(value as usize);
    match size.map_or(UNKNOWN, |size| size.load(Ordering::Relaxed)) {
        UNKNOWN => BLOB_BYTES_MAX,
        bytes_max => bytes_max as usize,
    }
}

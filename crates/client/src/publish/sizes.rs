//! How long the values of this process may be, by their numbers: what is too long is given up at the put, which can
//! say so, and not by the agent, which nobody hears. Read without a lock.

use std::sync::atomic::{AtomicU32, Ordering};

use barograph_model::ValueType;
use barograph_stream::ingest::BLOB_BYTES_MAX;
use barograph_stream::value_bytes_max;

/// Values whose size is known here. Agents take fewer of one process; of further ones they have the word.
const VALUES_MAX: usize = 1 << 16;
/// Not known.
const UNKNOWN: u32 = 0;

/// The size of each in bytes.
static SIZES: [AtomicU32; VALUES_MAX] = [const { AtomicU32::new(UNKNOWN) }; VALUES_MAX];

/// Another opening begins, whose values have numbers of their own.
pub(super) fn forget() {
    // Numbers are given in order.
    let known = |size: &&AtomicU32| size.load(Ordering::Relaxed) != UNKNOWN;
    let known = SIZES.iter().take_while(known);
    known.for_each(|size| size.store(UNKNOWN, Ordering::Relaxed));
}

/// A value is declared with a size in bytes; 0 is the usual one.
pub(super) fn note(value: u32, value_type: ValueType, bytes_max: u32) {
    if let Some(size) = SIZES.get(value as usize) {
        let bytes_max = value_bytes_max(value_type, bytes_max);
        size.store(bytes_max.max(1), Ordering::Relaxed);
    }
}

/// Bytes that a value may have at most.
pub(super) fn of(value: u32) -> usize {
    let size = SIZES.get(value as usize);
    match size.map_or(UNKNOWN, |size| size.load(Ordering::Relaxed)) {
        UNKNOWN => BLOB_BYTES_MAX,
        bytes_max => bytes_max as usize,
    }
}

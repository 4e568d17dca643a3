//! The bytes of deleted files that are not free yet.

use barograph_model::NS_PER_S;

/// Longest wait for deleted bytes to become free, before more is deleted.
const FREED_NS_MAX: i64 = 120 * NS_PER_S;

/// Bytes that were deleted and are not free yet: a reader has the files open, or the file system is
/// slow. If more were deleted instead of waiting, everything would be deleted in the end.
#[derive(Debug, Default)]
pub(crate) struct FreedBytes {
    pub(crate) bytes: u64,
    /// Free bytes at the last check.
    free: u64,
    /// Time at which the wait ends, by the monotonic clock: then more must be deleted.
    until_ns: i64,
}

impl FreedBytes {
    pub(crate) fn add(&mut self, bytes: u64, now_ns: i64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.until_ns = now_ns.saturating_add(FREED_NS_MAX);
    }

    /// Returns the bytes that are still to become free, when `free` bytes are free.
    pub(crate) fn waiting(&mut self, free: u64, now_ns: i64) -> u64 {
        let risen = free.saturating_sub(self.free);
        self.free = free;
        self.bytes = if now_ns < self.until_ns {
            self.bytes.saturating_sub(risen)
        } else {
            0
        };
        self.bytes
    }
}

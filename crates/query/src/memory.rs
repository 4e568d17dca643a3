//! Memory that scans hold outside of SQLite's heap, counted against the limit of the statement.
//!
//! It stands alone because every scan claims what it holds, on whichever thread it copies.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use barograph_archive::aggregate::BucketBudget;

/// Counter of the memory that scans hold beside SQLite's heap.
#[derive(Debug)]
pub(crate) struct ScanMemory {
    used: Arc<AtomicUsize>,
    max: AtomicUsize,
}

impl Default for ScanMemory {
    fn default() -> Self {
        let max = barograph_model::SqlLimits::default().memory_bytes_max;
        Self {
            used: Arc::default(),
            max: AtomicUsize::new(max),
        }
    }
}

impl ScanMemory {
    /// Sets the bound for later claims, in bytes.
    #[cfg(feature = "bundled")]
    pub(crate) fn set_max(&self, bytes: usize) {
        self.max.store(bytes, Ordering::Relaxed);
    }

    /// A budget for buckets in the remaining memory; their memory counts until the budget is
    /// dropped.
    pub(crate) fn budget(&self) -> Arc<BucketBudget<'static>> {
        let max = self.max.load(Ordering::Relaxed);
        Arc::new(BucketBudget::within(Arc::clone(&self.used), max))
    }

    /// Makes an empty claim.
    pub(crate) fn claim(self: &Arc<Self>) -> ScanClaim {
        ScanClaim {
            memory: Arc::clone(self),
            bytes: 0,
        }
    }
}

/// Memory that one scan holds; given back when the claim is dropped.
#[derive(Debug)]
pub(crate) struct ScanClaim {
    memory: Arc<ScanMemory>,
    bytes: usize,
}

impl ScanClaim {
    /// Sets the claim to `bytes`.
    pub(crate) fn set(&mut self, bytes: usize) -> rusqlite::Result<()> {
        if bytes == self.bytes {
            return Ok(()); // The usual case for a row of a scan.
        }
        self.memory.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = bytes;
        let used = self.memory.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let max = self.memory.max.load(Ordering::Relaxed);
        if used > max {
            return Err(crate::error::out_of_memory());
        }
        Ok(())
    }
}

impl Drop for ScanClaim {
    fn drop(&mut self) {
        self.memory.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

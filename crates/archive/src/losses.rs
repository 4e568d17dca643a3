//! The losses of an archive, and the bytes in which the log records them.

use serde::{Deserialize, Serialize};

/// Losses of an archive, counted since it began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ArchiveLosses {
    /// Samples that found the buffer full.
    pub overflow_samples: u64,
    /// Samples whose write failed, that came while nothing could be written (also since the archive
    /// was far beyond its bound), or fit no stream.
    pub failed_samples: u64,
    /// Bytes of torn tails that were cut after crashes.
    pub torn_bytes: u64,
    /// Samples that were deleted early because the file system was full or the bound of the archive
    /// was reached.
    pub shed_samples: u64,
    /// Files that were damaged, which were set aside, and log segments that were gone.
    pub corrupt_files: u64,
}

impl ArchiveLosses {
    /// Whether nothing was lost.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Adds the losses of another.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in self.counters().into_iter().zip(other.clone().counters()) {
            *sum = sum.saturating_add(*more);
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for counter in self.clone().counters() {
            out.extend_from_slice(&counter.to_le_bytes());
        }
    }

    /// Parses a payload; counters of a later version are ignored.
    pub(crate) fn parse(payload: &[u8]) -> Self {
        let mut losses = Self::default();
        let counters = losses.counters();
        for (counter, bytes) in counters.into_iter().zip(payload.as_chunks().0) {
            *counter = u64::from_le_bytes(*bytes);
        }
        losses
    }

    /// Returns all counters, in the order of the format.
    fn counters(&mut self) -> [&mut u64; 5] {
        [
            &mut self.overflow_samples,
            &mut self.failed_samples,
            &mut self.torn_bytes,
            &mut self.shed_samples,
            &mut self.corrupt_files,
        ]
    }
}

//! Counts of a process's records, by what became of them.

use std::sync::atomic::AtomicU64;

use barograph_stream::PublicationsRow;

/// Counts of a process's records, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessCounts {
    /// Values taken in.
    pub values: u64,
    /// Frames taken in.
    pub frames: u64,
    /// Answers to calls.
    pub answers: u64,
    /// Records that were overwritten before they were read.
    pub missed: u64,
    /// Values that the process dropped itself.
    pub dropped: u64,
    /// Records that are malformed, belong to a value that was refused, or have another type than
    /// declared; values longer than declared (texts are cut instead), and invalid JSON.
    pub damaged: u64,
    /// Declarations that were refused.
    pub refused: u64,
    /// Texts that were cut to the length that a stream holds.
    pub cut: u64,
}

impl ProcessCounts {
    /// The counts as a row of publications has them.
    pub(crate) fn to_row(self) -> PublicationsRow {
        PublicationsRow {
            taken: self.values,
            lost: self.lost(),
            missed: self.missed,
            dropped: self.dropped,
            damaged: self.damaged,
            refused: self.refused,
            cut: self.cut,
            ..PublicationsRow::default()
        }
    }

    /// Number of values that were put and are not recorded.
    pub(crate) fn lost(&self) -> u64 {
        let lost = self.missed.saturating_add(self.dropped);
        lost.saturating_add(self.damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The counts in a process's file can be any number.
    #[test]
    fn counts_beyond_all_numbers_stay_the_greatest() {
        let counts = ProcessCounts {
            missed: 2,
            dropped: u64::MAX,
            damaged: 3,
            ..ProcessCounts::default()
        };
        assert_eq!(counts.lost(), u64::MAX);
    }
}

/// Counts of ingest files for the agent's own streams.
#[derive(Debug, Default)]
pub struct IngestCounts {
    /// Number of removed files that were never finished.
    pub abandoned: AtomicU64,
    /// Number of processes that wait for a place, at the last pass over the directory.
    pub waiting: AtomicU64,
    /// Values of ended processes whose scope could not be opened in time, so that no scope can
    /// report the loss.
    pub lost: AtomicU64,
}

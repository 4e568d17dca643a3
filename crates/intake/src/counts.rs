//! What became of the records of a process.

use std::sync::atomic::AtomicU64;

/// What became of a process's records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Values taken in.
    pub values: u64,
    /// Frames taken in.
    pub frames: u64,
    /// Answers to calls.
    pub answers: u64,
    /// Records written over before they were read.
    pub missed: u64,
    /// Values that the process gave up itself.
    pub dropped: u64,
    /// Records that make no sense, or are of a value that was refused, of another type, longer than was declared
    /// (but texts), or JSON that is none.
    pub damaged: u64,
    /// Declarations that were refused.
    pub refused: u64,
    /// Texts that were cut to what a stream holds.
    pub cut: u64,
}

impl Counts {
    /// All that was put and is not there.
    pub fn lost(&self) -> u64 {
        let lost = self.missed.saturating_add(self.dropped);
        lost.saturating_add(self.damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a process says of itself may be anything.
    #[test]
    fn counts_beyond_all_numbers_stay_the_greatest() {
        let counts = Counts {
            missed: 2,
            dropped: u64::MAX,
            damaged: 3,
            ..Counts::default()
        };
        assert_eq!(counts.lost(), u64::MAX);
    }
}

/// What the agent's own streams say of the files of programs.
#[derive(Debug, Default)]
pub struct IngestCounts {
    /// Files removed that nobody will finish.
    pub abandoned: AtomicU64,
    /// Processes that wait for a place, as of the last look at the directory.
    pub waiting: AtomicU64,
    /// Values of processes that have ended, whose scope could not be opened in time: no scope can tell.
    pub lost: AtomicU64,
}

//! Whether an archive is what it says: every checksum, every count, every number.

use std::path::{Path, PathBuf};

use crate::ArchiveError;

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The file.
    pub path: PathBuf,
    /// What is wrong, and what it means.
    pub what: String,
}

/// What a verification saw.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verified {
    /// Files read.
    pub files: u64,
    /// Samples read.
    pub samples: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Samples that are there twice.
    pub twice: u64,
    /// Samples whose numbers are missing between those that are there.
    pub missing: u64,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

/// Reads all of an archive; `progress` is told files done and in all.
pub fn verify(_root: &Path, _progress: &mut dyn FnMut(u64, u64)) -> Result<Verified, ArchiveError> {
    unimplemented!()
}

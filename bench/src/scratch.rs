//! Directories of one run, for cases and peers.

use std::path::PathBuf;

use crate::report::Fault;

/// A directory of this run, in memory, which is deleted on drop.
pub(crate) struct Scratch(pub PathBuf);

impl Scratch {
    /// Creates a directory with this name in its path.
    pub(crate) fn new(name: &str) -> Result<Self, Fault> {
        let path = PathBuf::from(format!(
            "/dev/shm/barograph-bench-{}-{name}",
            std::process::id()
        ));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A directory of this run on a real disk, below the build's own, which is deleted on drop.
pub(crate) struct DiskScratch(pub PathBuf);

impl DiskScratch {
    /// Creates a directory with this name in its path.
    pub(crate) fn new(name: &str) -> Result<Self, Fault> {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../target/bench-files")
            .join(format!("{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for DiskScratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

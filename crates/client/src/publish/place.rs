//! The directory in which the file is made: the agent's, or one where an agent will look.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Arc;

use barograph_stream::RunDir;

use super::PublishError;

/// The run directory to publish in. Where there is no agent that takes applications, the directory is made
/// in which this user's agent will look: the ring then holds the newest values until it does.
pub(super) fn find(wanted: Option<&RunDir>) -> Result<RunDir, PublishError> {
    let is_named = wanted.is_some() || std::env::var_os("BAROGRAPH_RUN_DIR").is_some();
    let found = wanted.cloned().unwrap_or_else(RunDir::find);
    if is_named {
        // It is trusted; and who named it looks there and nowhere else.
        return ready_or_made(&found).map(|()| found);
    }
    // In /dev/shm anyone may have made a directory of our name.
    let ready = |run_dir: &RunDir| {
        if run_dir.path().exists() {
            check_owner(run_dir.path())?;
        }
        ready_or_made(run_dir)?;
        check_owner(run_dir.path())?;
        check_owner(&run_dir.ingest_dir())
    };
    let own = RunDir::new(RunDir::default_path());
    match ready(&found) {
        Ok(()) => Ok(found),
        Err(error) if found == own => Err(error),
        Err(_) => ready(&own).map(|()| own),
    }
}

fn ready_or_made(run_dir: &RunDir) -> Result<(), PublishError> {
    let ingest = run_dir.ingest_dir();
    if ingest.is_dir() {
        return Ok(());
    }
    make(run_dir.path(), 0o755)?;
    make(&ingest, 0o700)
}

fn make(path: &Path, mode: u32) -> Result<(), PublishError> {
    let made = DirBuilder::new().recursive(true).mode(mode).create(path);
    made.map_err(|source| PublishError::Place {
        path: path.to_owned(),
        source: Arc::new(source),
    })
}

/// Ours or the node's; of a link, the link itself.
fn check_owner(path: &Path) -> Result<(), PublishError> {
    let us = rustix::process::geteuid().as_raw();
    let metadata = fs::symlink_metadata(path).map_err(|source| PublishError::Place {
        path: path.to_owned(),
        source: Arc::new(source),
    })?;
    let owner = metadata.uid();
    if owner != us && owner != 0 {
        let path = path.to_owned();
        return Err(PublishError::Foreign { path, owner });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_named_directory_is_made_for_an_agent_to_come() {
        let dir = tempfile::tempdir().unwrap();
        let wanted = RunDir::new(dir.path().join("deep/run"));
        assert_eq!(find(Some(&wanted)).unwrap(), wanted);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&wanted.ingest_dir()), 0o700);
        assert_eq!(find(Some(&wanted)).unwrap(), wanted);
    }

    #[test]
    fn what_cannot_be_made_names_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let refused = ready_or_made(&RunDir::new(file.join("run")));
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("file/run"), "{text}");
    }
}

//! The directory in which the file is made: the agent's, or one where an agent will look.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Arc;

use barograph_stream::RunDir;

use super::PublishError;

const ROOT: u32 = 0;

/// Finds the run directory to publish in. If no agent takes applications, it is this user's own
/// default directory, which is made if needed, for an agent that starts later: until then the ring
/// holds the newest values. A directory that was named explicitly is never made, so that a mistyped
/// name is an error and does not leave a directory behind.
pub(super) fn find(wanted: Option<&RunDir>) -> Result<RunDir, PublishError> {
    if let Some(named) = wanted.cloned().or_else(RunDir::named) {
        // A named directory is trusted; its agent looks there and nowhere else.
        return ready(&named).map(|()| named);
    }
    let found = RunDir::find();
    let own = RunDir::new(RunDir::default_path());
    if found != own && trusted(&found).is_ok() {
        return Ok(found);
    }
    if !own.path().exists() {
        make(own.path(), 0o755)?;
    }
    check_owner(own.path())?;
    trusted(&own).map(|()| own)
}

/// Checks that a run directory that was found, not named, is one that readers accept too, and that
/// its ingest directory has the same owner, this user or root: in /dev/shm anyone may have made a
/// directory of our name.
fn trusted(run_dir: &RunDir) -> Result<(), PublishError> {
    let place = run_dir.open()?;
    ready(run_dir)?;
    let ingest = run_dir.ingest_dir();
    let owner = owner_of(&ingest)?;
    if owner == place.owner() || owner == ROOT || owner == us() {
        return Ok(());
    }
    let path = ingest;
    Err(PublishError::Foreign { path, owner })
}

/// Checks that files can be made in an existing run directory.
fn ready(run_dir: &RunDir) -> Result<(), PublishError> {
    let ingest = run_dir.ingest_dir();
    if ingest.is_dir() {
        return Ok(());
    }
    make(&ingest, 0o700)
}

fn make(path: &Path, mode: u32) -> Result<(), PublishError> {
    match DirBuilder::new().mode(mode).create(path) {
        // Another process of this user was faster.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map_err(|source| PublishError::Place {
            path: path.to_owned(),
            source: Arc::new(source),
        }),
    }
}

/// Checks that a directory belongs to this user or root; of a link, the link itself is checked.
fn check_owner(path: &Path) -> Result<(), PublishError> {
    let owner = owner_of(path)?;
    if owner == us() || owner == ROOT {
        return Ok(());
    }
    let path = path.to_owned();
    Err(PublishError::Foreign { path, owner })
}

fn owner_of(path: &Path) -> Result<u32, PublishError> {
    let metadata = fs::symlink_metadata(path).map_err(|source| PublishError::Place {
        path: path.to_owned(),
        source: Arc::new(source),
    })?;
    Ok(metadata.uid())
}

fn us() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_named_directory_is_used_and_never_made() {
        let dir = tempfile::tempdir().unwrap();
        let wanted = RunDir::new(dir.path());
        assert_eq!(find(Some(&wanted)).unwrap(), wanted);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&wanted.ingest_dir()), 0o700);
        assert_eq!(find(Some(&wanted)).unwrap(), wanted);
        let mistyped = RunDir::new(dir.path().join("mistyped"));
        let text = find(Some(&mistyped)).unwrap_err().to_string();
        assert!(text.contains("mistyped"), "{text}");
        assert!(!mistyped.path().exists());
    }

    #[test]
    fn what_cannot_be_made_names_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let refused = ready(&RunDir::new(file.join("run")));
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("file/run"), "{text}");
    }
}

//! Decides which programs may be run as root: those that only root could have installed.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Mode bits: writable by the group or by all.
const OTHERS_WRITE: u32 = 0o022;

/// Returns the real file of a path, if it and every folder above it belong to root and nobody else
/// may write them: a user who may write a folder may replace the file in it.
pub fn vet(path: &Path) -> Result<PathBuf, String> {
    let shown = path.display();
    let real = path.canonicalize().map_err(|e| format!("{shown}: {e}"))?;
    for place in real.ancestors() {
        let meta = place
            .metadata()
            .map_err(|e| format!("{}: {e}", place.display()))?;
        if !only_roots(&meta) {
            return Err(format!(
                "{shown} is not run: others than root may write {}",
                place.display()
            ));
        }
    }
    match real.is_file() {
        true => Ok(real),
        false => Err(format!("{shown} is not run: it is no file")),
    }
}

/// Fails if others than root may write a file, or a folder above it.
pub fn vet_file(path: &Path) -> Result<(), String> {
    vet_ancestors(path, 0)
}

/// Fails if others than root may write a folder above a mount point, so that they could put
/// something else in its place. What is mounted may belong to anybody.
pub fn vet_mount(path: &Path) -> Result<(), String> {
    vet_ancestors(path, 1)
}

fn vet_ancestors(path: &Path, skipped: usize) -> Result<(), String> {
    let shown = path.as_os_str().as_encoded_bytes().escape_ascii();
    let real = path.canonicalize().map_err(|e| format!("{shown}: {e}"))?;
    if real != path {
        return Err(format!("{shown} is not believed: it has symbolic links"));
    }
    for place in real.ancestors().skip(skipped) {
        let meta = place.metadata().map_err(|e| format!("{shown}: {e}"))?;
        if !only_roots(&meta) {
            return Err(format!(
                "{shown} is not believed: others than root may write {}",
                place.as_os_str().as_encoded_bytes().escape_ascii()
            ));
        }
    }
    Ok(())
}

fn only_roots(meta: &Metadata) -> bool {
    meta.uid() == 0 && meta.mode() & OTHERS_WRITE == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_could_have_written_is_not_run() {
        assert!(vet(Path::new("/bin/sh")).is_ok());
        assert!(vet(Path::new("/bin")).is_err());
        assert!(vet(Path::new("/nonexistent")).is_err());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program");
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        let fault = vet(&path).unwrap_err();
        assert!(fault.contains("others than root may write"), "{fault}");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/bin/sh", &link).unwrap();
        // The file behind the link would be run, and that one belongs to root.
        assert!(vet(&link).unwrap().is_absolute());
    }

    #[test]
    fn what_others_could_replace_is_not_believed() {
        assert_eq!(vet_mount(Path::new("/tmp")), Ok(()));
        assert!(vet_file(Path::new("/tmp")).is_err());
        assert_eq!(vet_file(Path::new("/etc/passwd")), Ok(()));
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        let fault = vet_mount(dir.path()).unwrap_err();
        assert!(fault.contains("others than root may write /tmp"), "{fault}");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/etc", &link).unwrap();
        let fault = vet_mount(&link).unwrap_err();
        assert!(fault.contains("symbolic links"), "{fault}");
        assert!(vet_mount(Path::new("/nonexistent")).is_err());
    }
}

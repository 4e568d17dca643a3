//! Files that are replaced in one step, and belong to whoever runs the agent.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};

use crate::fault::MembershipFault;

/// Most bytes of a file that is read.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Makes the directory of the certificates, which only its owner may enter. Those above it are for
/// everyone: in the state directory, an agent keeps the history that other users read.
pub(crate) fn make_dir(dir: &Path) -> Result<(), MembershipFault> {
    let make = || {
        let existed = dir.exists();
        let above = dir.parent().unwrap_or(dir);
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(above)?;
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        if !existed {
            give_to_owner(&File::open(dir)?, dir)?;
        }
        Ok(())
    };
    make().map_err(at(dir))
}

/// Replaces a file in one step, and has it on disk before it returns.
pub(crate) fn replace(path: &Path, bytes: &[u8], mode: u32) -> Result<(), MembershipFault> {
    let write = || {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}.new", std::process::id()));
        let new = PathBuf::from(name);
        let _ = std::fs::remove_file(&new);
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(mode).open(&new)?;
        file.write_all(bytes)?;
        give_to_owner(&file, path)?;
        file.sync_all()?;
        std::fs::rename(&new, path)?;
        sync_dir(path)
    };
    write().map_err(at(path))
}

/// Appends a line to a file, and has it on disk before it returns.
pub(crate) fn append(path: &Path, line: &str) -> Result<(), MembershipFault> {
    let write = || {
        let existed = path.exists();
        let mut options = OpenOptions::new();
        let mut file = options.append(true).create(true).mode(0o600).open(path)?;
        file.write_all(line.as_bytes())?;
        if !existed {
            give_to_owner(&file, path)?;
        }
        file.sync_all()?;
        sync_dir(path)
    };
    write().map_err(at(path))
}

/// Reads a file.
pub(crate) fn read(path: &Path) -> Result<String, MembershipFault> {
    let contents = || {
        let mut text = String::new();
        File::open(path)?
            .take(FILE_BYTES_MAX)
            .read_to_string(&mut text)?;
        Ok(text)
    };
    contents().map_err(at(path))
}

/// Gives what root has made to the owner of the directory above: the user who runs the agent.
fn give_to_owner(file: &File, path: &Path) -> std::io::Result<()> {
    let above = path.parent().unwrap_or(Path::new("/"));
    let (above, own) = (std::fs::metadata(above)?, file.metadata()?);
    if own.uid() == 0 && above.uid() != 0 {
        fchown(file, Some(above.uid()), Some(above.gid()))?;
    }
    Ok(())
}

fn sync_dir(path: &Path) -> std::io::Result<()> {
    path.parent()
        .map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

fn at(path: &Path) -> impl FnOnce(std::io::Error) -> MembershipFault {
    let path = path.to_owned();
    |error| MembershipFault::File { path, error }
}

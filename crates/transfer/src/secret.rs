//! The files of credentials: lines `name: value`, which only their owner may read.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use crate::TransferFault;

/// Most bytes of a file of credentials.
const SECRET_BYTES_MAX: u64 = 64 << 10;

/// Reads a file of credentials; nothing from an empty path. Only these names may stand in it.
pub(crate) fn secrets(
    path: &Path,
    names: &[&str],
) -> Result<BTreeMap<String, String>, TransferFault> {
    if path.as_os_str().is_empty() {
        return Ok(BTreeMap::new());
    }
    let refused = |reason: String| {
        TransferFault::Lasting(format!("secret_file {}: {reason}", path.display()))
    };
    let mut text = String::new();
    let file = File::open(path).map_err(|error| refused(error.to_string()))?;
    check_private(&file).map_err(&refused)?;
    let read = file.take(SECRET_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|error| refused(error.to_string()))?;
    let mut secrets = BTreeMap::new();
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| refused("write a line as name: value".into()))?;
        let (name, value) = (name.trim(), value.trim());
        if !names.contains(&name) {
            let known = names.join(", ");
            return Err(refused(format!("{name} is none of {known}")));
        }
        secrets.insert(name.to_owned(), value.to_owned());
    }
    Ok(secrets)
}

/// Checks that only the owner of a file may read it, and that this is root or the user of this
/// process.
pub(crate) fn check_private(file: &File) -> Result<(), String> {
    let meta = file.metadata().map_err(|error| error.to_string())?;
    if !meta.is_file() {
        return Err("it is not a regular file".into());
    }
    if meta.permissions().mode() & 0o077 != 0 {
        return Err("others may read it: chmod 600 it".into());
    }
    let own = rustix::process::geteuid().as_raw();
    match meta.uid() == own || meta.uid() == 0 {
        true => Ok(()),
        false => Err(format!("it belongs to user {}", meta.uid())),
    }
}

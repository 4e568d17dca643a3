//! Where servers of this node listen unless they are told otherwise: in the run directory.

use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use barograph_client::RunDir;

/// The name of a socket of a server without a map; names of others begin with it.
const STEM: &str = "stage";
const SUFFIX: &str = "sock";
/// Bytes of the longest path of a socket: the system's bound, without the zero at its end.
pub(super) const SOCKET_BYTES_MAX: usize = 107;

/// The run directory in which a server of this user has its socket.
pub(super) fn own_dir(given: Option<&Path>) -> PathBuf {
    match given {
        Some(given) => given.to_owned(),
        None => RunDir::named().map_or_else(RunDir::default_path, |dir| dir.path().to_owned()),
    }
}

/// The socket of a server: the only one, or one of a map.
pub(super) fn socket(dir: &Path, server: Option<(&str, u32)>) -> PathBuf {
    dir.join(match server {
        None => format!("{STEM}.{SUFFIX}"),
        Some((map, number)) => format!("{STEM}-{}-{number}.{SUFFIX}", word(map)),
    })
}

/// The directory of a user's server for its clients: the user's own one if it has a socket, or else
/// the one of the agent that they would find.
pub(super) fn dir_of_clients(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    let own = own_dir(given);
    let has_sockets = |dir: &Path| names(dir).any(|name| name.starts_with(STEM));
    let dir = match given.is_some() || has_sockets(&own) {
        true => own,
        false => RunDir::find().path().to_owned(),
    };
    if dir.exists() {
        check(&dir, true)?;
    }
    Ok(dir)
}

/// Makes the directory if it is not there, as an agent does, and checks that nobody else could put
/// a socket of theirs in place of the server's.
pub(super) fn occupy(dir: &Path) -> anyhow::Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o755).create(dir);
    made.with_context(|| format!("cannot make {}", dir.display()))?;
    check(dir, false)
}

/// `/dev/shm` is open to all: a directory there counts only if it belongs to this user, or, for
/// clients, to root.
fn check(dir: &Path, is_client: bool) -> anyhow::Result<()> {
    let own = rustix::process::geteuid().as_raw();
    let link = std::fs::symlink_metadata(dir);
    let found = link.and_then(|link| Ok((link, std::fs::metadata(dir)?)));
    let (link, found) = found.with_context(|| format!("cannot look at {}", dir.display()))?;
    let is_trusted = |uid: u32| uid == own || (is_client && uid == 0);
    let shown = dir.display();
    anyhow::ensure!(
        is_trusted(link.uid()) && is_trusted(found.uid()),
        "{shown} belongs to another user: name a directory of yours by --run-dir"
    );
    anyhow::ensure!(
        found.mode() & 0o022 == 0,
        "others may write to {shown}: chmod go-w, or name another directory by --run-dir"
    );
    Ok(())
}

/// The numbers of the servers of a map that have sockets in a directory.
pub(super) fn servers_of(dir: &Path, map: &str) -> Vec<u32> {
    let before = format!("{STEM}-{}-", word(map));
    let number = |name: String| {
        let rest = name.strip_prefix(&before)?.strip_suffix(SUFFIX)?;
        rest.strip_suffix('.')?.parse().ok()
    };
    let mut numbers: Vec<u32> = names(dir).filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}

fn names(dir: &Path) -> impl Iterator<Item = String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

/// The name of a map as a part of a file name; two names never become one.
fn word(map: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let letter = |byte: u8| match plain(&byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02x}"),
    };
    map.bytes().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_maps_are_found_by_their_sockets() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        for (map, number) in [("a", 3), ("a", 0), ("a-1", 2), ("ä/..", 7)] {
            let path = socket(dir, Some((map, number)));
            assert_eq!(path.parent(), Some(dir), "{map}");
            std::fs::write(path, "").unwrap();
        }
        std::fs::write(socket(dir, None), "").unwrap();
        for (map, expect) in [
            ("a", vec![0, 3]),
            ("a-1", vec![2]),
            ("ä/..", vec![7]),
            ("b", vec![]),
        ] {
            assert_eq!(servers_of(dir, map), expect, "{map}");
        }
    }
}

//! The rights on a scope's directory: a mode, plus an access-control list if the reader is not the
//! agent's own user.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;

use crate::{AccessList, Grantee, SCOPE_OF_ALL, is_scope};

/// The users that may read a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ScopeReader {
    /// One user, by uid.
    User(u32),
    /// One group, by gid.
    Group(u32),
    /// All users of the node.
    All,
}

impl ScopeReader {
    /// Returns the readers of the scope of this name; `None` if no scope can have it.
    pub fn of(scope: &str) -> Option<Self> {
        let id = |text: Option<&str>| text?.parse().ok();
        match is_scope(scope) {
            false => None,
            true if scope == SCOPE_OF_ALL => Some(Self::All),
            true => {
                let user = id(scope.strip_prefix('u')).map(Self::User);
                user.or_else(|| id(scope.strip_prefix('g')).map(Self::Group))
            }
        }
    }

    /// Returns the scope's name, which its directories have too: `u<uid>`, `g<gid>` or `all`.
    pub fn scope(self) -> String {
        match self {
            Self::User(uid) => format!("u{uid}"),
            Self::Group(gid) => format!("g{gid}"),
            Self::All => SCOPE_OF_ALL.into(),
        }
    }
}

/// Makes a directory that only the agent and the reader may enter. Returns false if the reader is
/// another user or a group and the file system has no access-control lists: then only the agent may
/// enter.
pub fn make_scope_dir(path: &Path, reader: ScopeReader) -> io::Result<bool> {
    let made = DirBuilder::new().mode(0o700).create(path);
    match made {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        other => other?,
    }
    let mode = |mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    match reader {
        ScopeReader::All => mode(0o755).map(|()| true),
        ScopeReader::User(uid) if uid == rustix::process::getuid().as_raw() => {
            mode(0o700).map(|()| true)
        }
        ScopeReader::User(uid) => grant(path, Grantee::User(uid)),
        ScopeReader::Group(gid) => grant(path, Grantee::Group(gid)),
    }
}

/// Makes a directory that all users may read, such as the one above those of scopes: the names of
/// scopes are not secret, only their contents are.
pub fn make_public_dir(path: &Path) -> io::Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o755).create(path);
    // Sets the mode explicitly, since the umask may have removed bits of it.
    made.and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o755)))
}

/// Gives one more user or group the right to read and enter; false if the file system has no
/// access-control lists.
fn grant(path: &Path, grantee: Grantee) -> io::Result<bool> {
    const ALL: u16 = 7;
    const READ_ENTER: u16 = 5;
    let list = AccessList {
        owner: ALL,
        grantee,
        rights: READ_ENTER,
    };
    let granted = list.set(path)?;
    if !granted {
        // The directory may have existed before, with any mode.
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    }
    Ok(granted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_user_is_let_in_and_the_rest_is_not() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("u4711");
        if !make_scope_dir(&path, ScopeReader::User(4_711)).unwrap() {
            eprintln!("this file system has no access-control lists");
            return;
        }
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        // With an access-control list, the group bits of the mode are the mask of the list.
        assert_eq!(mode, 0o750);
        make_scope_dir(&path, ScopeReader::User(4_711)).unwrap();
    }

    #[test]
    fn modes() {
        assert_eq!(ScopeReader::of("g100"), Some(ScopeReader::Group(100)));
        assert_eq!(ScopeReader::of("u01"), None);
        let dir = tempfile::tempdir().unwrap();
        let us = rustix::process::getuid().as_raw();
        for (reader, name, expect) in [
            (ScopeReader::All, "all".to_owned(), 0o755),
            (ScopeReader::User(us), format!("u{us}"), 0o700),
        ] {
            assert_eq!(reader.scope(), name);
            assert_eq!(ScopeReader::of(&name), Some(reader));
            let path = dir.path().join(name);
            assert!(make_scope_dir(&path, reader).unwrap());
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, expect);
        }
    }
}

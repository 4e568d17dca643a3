//! Who may open a scope's directory: modes, and an access-control list where the reader is another user
//! than the agent.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;

use barograph_stream::{AccessList, Grantee};

/// Whose values a scope holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reader {
    /// One user.
    User(u32),
    /// One group.
    Group(u32),
    /// Everyone.
    All,
}

impl Reader {
    /// The scope's name, as its directories have it.
    pub fn scope(self) -> String {
        match self {
            Self::User(uid) => format!("u{uid}"),
            Self::Group(gid) => format!("g{gid}"),
            Self::All => "all".into(),
        }
    }
}

/// Makes a directory that only the agent and the reader may enter. Where the file system has no
/// access-control lists, another user than ours stays outside: false.
pub fn make_dir(path: &Path, reader: Reader) -> io::Result<bool> {
    let made = DirBuilder::new().mode(0o700).create(path);
    match made {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        other => other?,
    }
    let mode = |mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    match reader {
        Reader::All => mode(0o755).map(|()| true),
        Reader::User(uid) if uid == rustix::process::getuid().as_raw() => {
            mode(0o700).map(|()| true)
        }
        Reader::User(uid) => grant(path, Grantee::User(uid)),
        Reader::Group(gid) => grant(path, Grantee::Group(gid)),
    }
}

/// Directories above those of scopes: names of scopes are no secret, what is in them is.
pub fn make_parent(path: &Path) -> io::Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o755).create(path);
    // Names of scopes are no secret, what is in them is: this mode, whatever the umask was.
    made.and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o755)))
}

/// Lets one more user or group in.
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
        // Whatever it was before, and whoever made it.
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
        if !make_dir(&path, Reader::User(4_711)).unwrap() {
            eprintln!("this file system has no access-control lists");
            return;
        }
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        // The group's bits are the mask of the list.
        assert_eq!(mode, 0o750);
        make_dir(&path, Reader::User(4_711)).unwrap();
    }

    #[test]
    fn modes() {
        let dir = tempfile::tempdir().unwrap();
        let us = rustix::process::getuid().as_raw();
        for (reader, name, expect) in [
            (Reader::All, "all".to_owned(), 0o755),
            (Reader::User(us), format!("u{us}"), 0o700),
        ] {
            assert_eq!(reader.scope(), name);
            let path = dir.path().join(name);
            assert!(make_dir(&path, reader).unwrap());
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, expect);
        }
    }
}

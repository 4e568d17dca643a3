//! The tokens by which users are known over TCP.

use std::io::Read as _;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, fstat, openat};

use crate::block::UserId;
use crate::wire::TOKEN_BYTES_MAX;

/// Bytes of the shortest token that is taken.
const TOKEN_BYTES_MIN: usize = 16;

/// Whether a token is that of a user. The file is read each time, so a new token holds at once.
pub(crate) fn is_token_of(directory: &Path, user: UserId, token: &[u8]) -> bool {
    let stored = read_token(directory, user);
    // Without a file, a comparison is made all the same: the time tells nothing of users.
    let expected = stored.as_deref().unwrap_or_default();
    let is_same = is_equal(expected, token);
    is_same && expected.len() >= TOKEN_BYTES_MIN
}

/// The token in a file that only its owner, this user or root or the user of the token, may read.
fn read_token(directory: &Path, user: UserId) -> Option<Vec<u8>> {
    let path = directory.join(user.to_string());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = openat(CWD, &path, flags, Mode::empty()).ok()?;
    let stat = fstat(&file).ok()?;
    let own = rustix::process::geteuid().as_raw();
    if stat.st_mode & 0o077 != 0 || ![0, own, user].contains(&stat.st_uid) {
        tracing::error!(path = %path.display(), "others may read this token: chmod 600 and chown");
        return None;
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::from(file);
    file.take(TOKEN_BYTES_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .ok()?;
    let end = bytes.trim_ascii_end().len();
    bytes.truncate(end);
    (bytes.len() <= TOKEN_BYTES_MAX).then_some(bytes)
}

/// Compares in a time that depends on nothing but the bound of tokens.
fn is_equal(a: &[u8], b: &[u8]) -> bool {
    let byte = |bytes: &[u8], at: usize| bytes.get(at).copied().unwrap_or_default();
    let length = (a.len() ^ b.len()) as u64;
    let differing = (0..TOKEN_BYTES_MAX).fold(length, |differing, at| {
        std::hint::black_box(differing | u64::from(byte(a, at) ^ byte(b, at)))
    });
    differing == 0 && a.len() <= TOKEN_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_token_is_taken_whole_and_from_private_files_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("7");
        let write = |text: &str, mode| {
            std::fs::write(&path, text).expect("written");
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, mode).expect("set");
        };
        let is = |user, token: &[u8]| is_token_of(directory.path(), user, token);
        write("0123456789abcdef\n", 0o600);
        assert!(is(7, b"0123456789abcdef"));
        assert!(!is(7, b"0123456789abcde"));
        assert!(!is(7, b"0123456789abcdefg"));
        assert!(!is(7, b""));
        assert!(!is(8, b"0123456789abcdef"));
        write("0123456789abcdef\n", 0o640);
        assert!(!is(7, b"0123456789abcdef"));
        write("short\n", 0o600);
        assert!(!is(7, b"short"));
        assert!(!is(9, b""));
    }
}

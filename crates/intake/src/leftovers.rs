//! Unfinished files of programs that were killed while making them: they will never be finished or
//! read.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use barograph_model::NS_PER_S;
use rustix::fs::{FlockOperation, OFlags, flock};

/// Making a file takes milliseconds, so a file of this age is not being made.
const AGE_NS_MIN: i64 = 60 * NS_PER_S;
/// Removes an unfinished file that is old and whose writer is gone; returns whether it did.
/// Programs that make unnamed files leave none; those on file systems without unnamed files, and
/// older programs, do.
pub(crate) fn remove(path: &Path, now_ns: i64) -> bool {
    // The lock is held during the removal.
    let abandoned = abandoned(path, now_ns);
    abandoned.is_some() && fs::remove_file(path).is_ok()
}

/// Opens and locks the file, if it is a regular file, is old, and its writer does not hold its
/// lock. Without support for locks it is unknown whether the writer is gone, and the file stays.
fn abandoned(path: &Path, now_ns: i64) -> Option<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(path);
    let file = opened.ok()?;
    let metadata = file.metadata().ok()?;
    let written_ns = metadata.mtime().saturating_mul(NS_PER_S);
    let is_old = now_ns.saturating_sub(written_ns) > AGE_NS_MIN;
    let is_left = metadata.is_file() && is_old;
    (is_left && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()).then_some(file)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    const NOW_S: i64 = 1_700_000_000;
    const NOW_NS: i64 = NOW_S * NS_PER_S;

    fn made(dir: &Path, name: &str, age_s: i64) -> File {
        let file = File::create(dir.join(name)).unwrap();
        let at = UNIX_EPOCH + Duration::from_secs((NOW_S - age_s) as u64);
        file.set_modified(at).unwrap();
        file
    }

    #[test]
    fn what_is_old_and_nobodys_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for (name, age_s, expect) in [
            ("old", 61, true),
            ("older", 3_600, true),
            ("young", 10, false),
            ("later", -3_600, false),
        ] {
            made(dir.path(), name, age_s);
            assert_eq!(remove(&path(name), NOW_NS), expect, "{name}");
            assert_eq!(path(name).exists(), !expect, "{name}");
        }
        let living = made(dir.path(), "living", 3_600);
        flock(&living, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(!remove(&path("living"), NOW_NS));
        drop(living);
        assert!(remove(&path("living"), NOW_NS));
        std::os::unix::fs::symlink("/etc/passwd", path("link")).unwrap();
        fs::create_dir(path("directory")).unwrap();
        for name in ["link", "directory", "nowhere"] {
            assert!(!remove(&path(name), NOW_NS), "{name}");
        }
    }
}

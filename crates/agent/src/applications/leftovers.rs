//! Files that a program began to make and was killed over: nobody will finish them, and nobody looks at them.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use barograph_model::NS_PER_S;
use rustix::fs::{FlockOperation, OFlags, flock};

/// Making a file takes milliseconds: one that is so old is not being made.
const AGE_NS_MIN: i64 = 60 * NS_PER_S;
/// As ingest files are called before they are whole: this, behind the incarnation.
const EXTENSION: &str = "new";
const NAME_DIGITS: usize = 32;
/// Files that are removed at one look, so that it does not take long.
const REMOVED_MAX: usize = 1_024;

/// Removes those of a directory that are old and whose writers are gone: how many.
pub fn remove(dir: &Path, now_ns: i64) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else {
        return 0;
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let left = paths.filter(|path| is_unfinished(path));
    let removed = left.filter(|path| {
        // The lock is held over the removal.
        let abandoned = abandoned(path, now_ns);
        abandoned.is_some() && fs::remove_file(path).is_ok()
    });
    removed.take(REMOVED_MAX).count() as u64
}

fn is_unfinished(path: &Path) -> bool {
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    let is_named =
        |s: &str| s.len() == NAME_DIGITS && s.bytes().all(|byte| byte.is_ascii_hexdigit());
    path.extension().is_some_and(|e| e == EXTENSION) && stem.is_some_and(is_named)
}

/// The file, locked, if it is one, is old, and its writer does not hold it. Where there are no locks nobody
/// knows, and it stays.
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

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_old_and_nobodys_goes() {
        let dir = tempfile::tempdir().unwrap();
        let name = |n: u8| format!("{n:032x}.new");
        let dir = dir.path();
        for (n, age_s) in [(1, 61), (2, 3_600), (3, 10), (4, -3_600)] {
            made(dir, &name(n), age_s);
        }
        let living = made(dir, &name(5), 3_600);
        flock(&living, FlockOperation::NonBlockingLockExclusive).unwrap();
        for other in [
            format!("{:032x}.ingest", 6),
            "a.new".into(),
            "ingest.sock.new".into(),
        ] {
            made(dir, &other, 3_600);
        }
        std::os::unix::fs::symlink("/etc/passwd", dir.join(name(7))).unwrap();
        fs::create_dir(dir.join(name(8))).unwrap();
        assert_eq!(remove(dir, NOW_NS), 2);
        let left = names(dir);
        assert_eq!(left.len(), 8, "{left:?}");
        assert!(!left.contains(&name(1)) && !left.contains(&name(2)));
        drop(living);
        assert_eq!(remove(dir, NOW_NS), 1);
        assert_eq!(remove(&dir.join("nowhere"), NOW_NS), 0);
    }
}

//! Clean-up of ingest files whose processes are gone, where no agent runs that would read and
//! remove them: the next process that opens a publisher removes those beyond a bound, the oldest
//! first.

use std::cmp::Reverse;
use std::fs::{self, DirEntry, File, OpenOptions};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};

/// Most files of dead processes that are kept for an agent that starts later.
const DEAD_FILES_MAX: usize = 64;
/// Most bytes of memory that they may take together.
const DEAD_BYTES_MAX: u64 = 64 << 20;
/// Most entries of the directory that are looked at: the next process looks at the rest.
const LOOKED_AT_MAX: usize = 65_536;
/// Unit of `st_blocks`.
const BLOCK_BYTES: u64 = 512;

struct Leftover {
    path: PathBuf,
    modified_ns: i128,
    bytes: u64,
}

/// Removes the files beyond the bound. A file that cannot be removed, or may have a writer, stays.
pub(super) fn clear(ingest: &Path) {
    clear_beyond(ingest, DEAD_FILES_MAX, DEAD_BYTES_MAX);
}

fn clear_beyond(ingest: &Path, files_max: usize, bytes_max: u64) {
    let Ok(entries) = fs::read_dir(ingest) else {
        return;
    };
    let us = rustix::process::geteuid().as_raw();
    let found = entries.take(LOOKED_AT_MAX).flatten();
    let mut ours: Vec<Leftover> = found.filter_map(|entry| of_user(&entry, us)).collect();
    // Usually there are few, and no lock needs to be tried.
    if ours.len() <= files_max && ours.iter().map(|l| l.bytes).sum::<u64>() <= bytes_max {
        return;
    }
    ours.sort_by_key(|leftover| Reverse(leftover.modified_ns));
    let (mut files, mut bytes) = (0, 0_u64);
    for leftover in ours {
        let Some(_locked) = lock_dead(&leftover.path) else {
            continue;
        };
        files += 1;
        bytes = bytes.saturating_add(leftover.bytes);
        if files > files_max || bytes > bytes_max {
            let _ = fs::remove_file(&leftover.path);
        }
    }
}

fn of_user(entry: &DirEntry, user: u32) -> Option<Leftover> {
    let path = entry.path();
    if path.extension().is_none_or(|e| e != "ingest") {
        return None;
    }
    let metadata = entry.metadata().ok()?;
    let is_ours = metadata.is_file() && metadata.uid() == user;
    is_ours.then(|| Leftover {
        path,
        modified_ns: i128::from(metadata.mtime()) * 1_000_000_000
            + i128::from(metadata.mtime_nsec()),
        bytes: metadata.blocks().saturating_mul(BLOCK_BYTES),
    })
}

/// Opens and locks the file of a dead writer; `None` if the writer lives or the file system has no
/// locks.
fn lock_dead(path: &Path) -> Option<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(path)
        .ok()?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(file)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_newest_dead_files_stay_and_living_ones_do() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let names = ["a", "b", "c", "d", "e"];
        for (age_s, name) in names.iter().rev().enumerate() {
            let file = File::create(path(&format!("{name}.ingest"))).unwrap();
            let modified = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000);
            file.set_modified(modified - std::time::Duration::from_secs(age_s as u64))
                .unwrap();
        }
        fs::write(path("other.new"), "").unwrap();
        let living = File::open(path("a.ingest")).unwrap();
        flock(&living, FlockOperation::NonBlockingLockExclusive).unwrap();
        let left = || -> BTreeSet<String> {
            let entries = fs::read_dir(dir.path()).unwrap();
            let name = |e: std::io::Result<DirEntry>| e.unwrap().file_name().into_string().unwrap();
            entries.map(name).collect()
        };
        clear_beyond(dir.path(), 5, 0);
        assert_eq!(left().len(), 6, "within the bound nothing goes");
        clear_beyond(dir.path(), 2, u64::MAX);
        let expect = ["a.ingest", "d.ingest", "e.ingest", "other.new"];
        assert_eq!(left(), expect.map(str::to_owned).into());
        drop(living);
        clear_beyond(dir.path(), 0, u64::MAX);
        assert_eq!(left(), ["other.new".to_owned()].into());
    }

    #[test]
    fn the_largest_ones_go_when_they_take_too_much() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        for (name, second) in [("old", 1), ("new", 2)] {
            let path = dir.path().join(format!("{name}.ingest"));
            fs::write(&path, vec![1; 8_192]).unwrap();
            let modified = std::time::UNIX_EPOCH + std::time::Duration::from_secs(second);
            let file = File::options().write(true).open(&path).unwrap();
            file.set_modified(modified).unwrap();
        }
        clear_beyond(dir.path(), 64, 10_000);
        assert!(dir.path().join("new.ingest").exists());
        assert!(!dir.path().join("old.ingest").exists());
    }
}

//! The io_uring rings of all processes, and their fill levels. A look goes through every open file
//! of every process, so it is bounded and much less frequent than the scan.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use super::parse::{RingFill, ring};

/// Most open files looked at in one look.
pub(super) const FILES_MAX: usize = 65_536;
/// The heads and tails of a ring are in its first lines; the rest lists every request.
const HEAD_BYTES: u64 = 4096;
/// The link target of a ring's descriptor.
const LINK: &str = "anon_inode:[io_uring]";

/// The sums over all rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rings {
    pub(super) rings: u64,
    pub(super) fill: RingFill,
    /// Whether there were more open files than are looked at.
    pub(super) cut: bool,
}

/// Counts all rings. A ring that several processes hold open counts for each of them.
pub(super) fn look(proc: &Path, pids: impl Iterator<Item = u32>) -> Rings {
    let mut all = Rings::default();
    let mut left = FILES_MAX;
    for pid in pids {
        let dir = proc.join(pid.to_string());
        // The process is gone, or belongs to another user.
        let Ok(files) = std::fs::read_dir(dir.join("fd")) else {
            continue;
        };
        for file in files.flatten() {
            if left == 0 {
                all.cut = true;
                return all;
            }
            left -= 1;
            let is_ring = std::fs::read_link(file.path()).is_ok_and(|to| to == Path::new(LINK));
            if !is_ring {
                continue;
            }
            all.rings += 1;
            let mut bytes = Vec::new();
            let info = File::open(dir.join("fdinfo").join(file.file_name()));
            let read = info.map(|file| file.take(HEAD_BYTES).read_to_end(&mut bytes));
            if let (Ok(Ok(_)), Some(one)) = (read, ring(&bytes)) {
                all.fill.queued += one.queued;
                all.fill.completed += one.completed;
            }
        }
    }
    all
}

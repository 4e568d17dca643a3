//! The ingest directory, read in steps. Any user may put any number of files there, so no single
//! look reads all of it, and nothing is kept about files that are not ingest files.
//!
//! The steps are so far apart that the directory takes a small part of the thread's time, however
//! full it is. Meanwhile the file of a process that knocks is found by its name, without reading
//! the directory.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::timing::after_rest;
use barograph_stream::{Incarnation, StreamError};
use rustix::fs::{Dir, OFlags};

use super::leftovers;
use super::shares::Shares;

/// Most work of one step; reading one name is a unit.
const STEP_WORK_MAX: u32 = 4_096;
/// Work of looking at a file; opening one counts as [`OPEN_WORK`].
const LOOK_WORK: u32 = 4;
const OPEN_WORK: u32 = 16;
/// Files of one user that a pass opens without success; further ones wait for the next pass.
const FAILURES_OF_USER_MAX: u32 = 64;
/// Number of files that are remembered as useless: in total, and of one user. If there are more,
/// each pass opens some of them again.
const REFUSED_MAX: u64 = 4_096;
const REFUSED_OF_USER_MAX: u64 = 256;
const INGEST: &str = ".ingest";
const NEW: &str = ".new";

/// The device and inode of a file.
type Place = (u64, u64);

/// The file of a process: its incarnation from its name, and its metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FoundFile {
    pub incarnation: Incarnation,
    pub uid: u32,
    place: Place,
    /// Time of the last change by a system call; stores through a mapping do not count.
    changed: (i64, i64),
}

/// A file whose content is useless.
#[derive(Debug)]
struct Refused {
    changed: (i64, i64),
    uid: u32,
    /// The last pass that saw it.
    pass: u64,
}

/// The result of one step.
#[derive(Debug, Default)]
pub(crate) struct DirectoryStep {
    /// Files that are not known yet.
    pub found: Vec<FoundFile>,
    /// Number of removed files that were never finished.
    pub abandoned: u64,
    /// Whether it was the last step of its pass.
    pub is_last: bool,
}

/// The ingest directory and the state of its search.
#[derive(Debug)]
pub(crate) struct IngestDirectory {
    path: PathBuf,
    /// Kept open from pass to pass, so that waiting processes are counted even if the agent has no
    /// file descriptors left.
    entries: Option<Dir>,
    /// Device and inode of the open directory.
    held: Place,
    is_in_pass: bool,
    pass: u64,
    /// Work that is left in the current step.
    left: u32,
    /// Monotonic time of the next step.
    next_ns: i64,
    refused: HashMap<Place, Refused>,
    refused_of: Shares<u32>,
    failures: HashMap<u32, u32>,
}

impl IngestDirectory {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            path,
            entries: None,
            held: (0, 0),
            is_in_pass: false,
            pass: 0,
            left: 0,
            next_ns: i64::MIN,
            refused: HashMap::new(),
            refused_of: Shares::new(REFUSED_MAX, REFUSED_OF_USER_MAX, true),
            failures: HashMap::new(),
        }
    }

    pub(crate) fn file(&self, incarnation: Incarnation) -> PathBuf {
        self.path.join(format!("{incarnation}{INGEST}"))
    }

    /// Whether the file of a process exists; a symbolic link does not count.
    pub(crate) fn has(&self, incarnation: Incarnation) -> bool {
        fs::symlink_metadata(self.file(incarnation)).is_ok_and(|found| found.is_file())
    }

    /// Makes the next step the first of a pass.
    pub(crate) fn begin_anew(&mut self) {
        self.is_in_pass = false;
    }

    /// Begins a pass; if the directory was removed and made anew, opens the new one.
    fn begin_pass(&mut self) {
        let is_held = fs::metadata(&self.path).is_ok_and(|found| place_of(&found) == self.held);
        match &mut self.entries {
            Some(entries) if is_held => entries.rewind(),
            _ => {
                let opened = open(&self.path);
                self.held = opened.as_ref().map_or((0, 0), |(place, _)| *place);
                self.entries = opened.map(|(_, entries)| entries);
            }
        }
        self.is_in_pass = true;
        self.pass += 1;
        self.failures.clear();
    }

    /// Monotonic time from which the next step may be made.
    pub(crate) fn next_ns(&self) -> i64 {
        self.next_ns
    }

    /// Makes a step: reads on, or begins a new pass. Files that `is_known` accepts are skipped.
    pub(crate) fn step(
        &mut self,
        now_ns: i64,
        is_known: impl Fn(Incarnation) -> bool,
    ) -> DirectoryStep {
        let mut step = DirectoryStep::default();
        if !self.is_in_pass {
            self.begin_pass();
        }
        self.left = STEP_WORK_MAX;
        while self.left > 0 {
            let entry = self.entries.as_mut().and_then(Dir::read);
            let Some(Ok(entry)) = entry else {
                self.end_pass();
                step.is_last = true;
                break;
            };
            self.left -= 1;
            let name = entry.file_name();
            match name.to_str().ok().and_then(parse) {
                Some((incarnation, true)) if !is_known(incarnation) => {
                    let found = self.look_at(incarnation);
                    self.spend(found.map_or(0, |_| OPEN_WORK));
                    step.found.extend(found);
                }
                Some((_, false)) => {
                    self.spend(OPEN_WORK);
                    let path = self.path.join(OsStr::from_bytes(name.to_bytes()));
                    step.abandoned += u64::from(leftovers::remove(&path, now_ns));
                }
                _ => {}
            }
        }
        step
    }

    /// Sets the rest after a step that took from `begun_ns` to `ended_ns` on the monotonic clock,
    /// including all work that came of it.
    pub(crate) fn rest(&mut self, begun_ns: i64, ended_ns: i64) {
        self.next_ns = after_rest(begun_ns, ended_ns);
    }

    /// The file of a process, if it exists and is worth opening.
    pub(crate) fn look_at(&mut self, incarnation: Incarnation) -> Option<FoundFile> {
        self.spend(LOOK_WORK);
        let metadata = fs::symlink_metadata(self.file(incarnation)).ok()?;
        // An empty file is being made.
        if !metadata.is_file() || metadata.len() == 0 {
            return None;
        }
        let found = FoundFile {
            incarnation,
            uid: metadata.uid(),
            place: place_of(&metadata),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        };
        if let Some(refused) = self.refused.get_mut(&found.place) {
            refused.pass = self.pass;
            if refused.changed == found.changed {
                return None;
            }
            self.forget(found.place);
        }
        Some(found)
    }

    /// Whether one more file of this user may be opened in this pass.
    pub(crate) fn may_open(&self, found: &FoundFile) -> bool {
        let failures = self.failures.get(&found.uid).copied().unwrap_or(0);
        failures < FAILURES_OF_USER_MAX
    }

    /// Notes that a file could not be taken in. It is not opened again before it is changed, since
    /// its content does not change by itself; if the error is passing, the next pass tries again.
    pub(crate) fn failed(&mut self, found: &FoundFile, error: &StreamError) {
        self.opened_in_vain(found);
        if !error.is_passing() {
            self.refuse(*found);
        }
    }

    /// Counts a file that was opened and not taken in against its user's number for this pass.
    pub(crate) fn opened_in_vain(&mut self, found: &FoundFile) {
        *self.failures.entry(found.uid).or_default() += 1;
    }

    /// Remembers a file as useless until it is changed.
    pub(crate) fn refuse(&mut self, found: FoundFile) {
        self.forget(found.place);
        if self.refused_of.take(found.uid, 1) {
            let refused = Refused {
                changed: found.changed,
                uid: found.uid,
                pass: self.pass,
            };
            self.refused.insert(found.place, refused);
        }
    }

    /// Remembers a file as useless that was taken in before.
    pub(crate) fn give_up(&mut self, incarnation: Incarnation) {
        if let Some(found) = self.look_at(incarnation) {
            self.refuse(found);
        }
    }

    fn forget(&mut self, place: Place) {
        if let Some(refused) = self.refused.remove(&place) {
            self.refused_of.give_back(&refused.uid, 1);
        }
    }

    /// Ends a pass. Remembered files that it has not seen are gone, or were not looked at, and are
    /// forgotten.
    fn end_pass(&mut self) {
        self.is_in_pass = false;
        let (pass, shares) = (self.pass, &mut self.refused_of);
        self.refused.retain(|_, refused| {
            let is_seen = refused.pass == pass;
            if !is_seen {
                shares.give_back(&refused.uid, 1);
            }
            is_seen
        });
    }

    fn spend(&mut self, work: u32) {
        self.left = self.left.saturating_sub(work);
    }

    /// Number of files that are remembered.
    #[cfg(test)]
    pub(crate) fn remembered(&self) -> usize {
        self.refused.len()
    }
}

fn place_of(metadata: &Metadata) -> Place {
    (metadata.dev(), metadata.ino())
}

/// Opens the directory; returns it with its device and inode.
fn open(path: &Path) -> Option<(Place, Dir)> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .custom_flags(OFlags::DIRECTORY.bits() as i32);
    let file: File = options.open(path).ok()?;
    let place = place_of(&file.metadata().ok()?);
    Some((place, Dir::new(file).ok()?))
}

/// Parses a file's name: the incarnation, and whether the file is complete.
fn parse(name: &str) -> Option<(Incarnation, bool)> {
    let (digits, is_whole) = match name.strip_suffix(INGEST) {
        Some(digits) => (digits, true),
        None => (name.strip_suffix(NEW)?, false),
    };
    let mut bytes = [0; 16];
    if digits.len() != 2 * bytes.len() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
        let digit = |c: u8| match c {
            b'0'..=b'9' => Some(c - b'0'),
            b'a'..=b'f' => Some(c - b'a' + 10),
            _ => None,
        };
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some((Incarnation(bytes), is_whole))
}

/// Whether a path has the name that [`IngestDirectory::file`] gives this incarnation.
pub(crate) fn is_named(path: &Path, incarnation: Incarnation) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.and_then(parse) == Some((incarnation, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    const JUNK: usize = 20_000;

    fn empty(path: &Path) {
        fs::write(path, "junk").unwrap();
    }

    /// The number of steps of one pass, and the files that they found.
    fn pass(directory: &mut IngestDirectory) -> (usize, Vec<FoundFile>) {
        let (mut steps, mut found) = (0, Vec::new());
        loop {
            steps += 1;
            let step = directory.step(0, |_| false);
            found.extend(step.found);
            if step.is_last {
                return (steps, found);
            }
        }
    }

    #[test]
    fn a_full_directory_is_read_in_steps_and_nothing_is_kept_of_junk() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        for n in 0..JUNK {
            empty(&dir.path().join(format!("junk-{n}")));
        }
        let ours = Incarnation([7; 16]);
        let mut directory = IngestDirectory::new(dir.path().into());
        empty(&directory.file(ours));
        let (steps, found) = pass(&mut directory);
        let least = JUNK / STEP_WORK_MAX as usize;
        assert!((least..least + 4).contains(&steps), "{steps}");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].incarnation, ours);
        assert_eq!(directory.remembered(), 0);
    }

    #[test]
    fn files_of_no_use_are_remembered_until_they_change_or_go_and_no_more_than_so_many() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut directory = IngestDirectory::new(dir.path().into());
        let count = 2 * REFUSED_OF_USER_MAX as usize;
        let name = |n: usize| Incarnation((n as u128 + 1).to_be_bytes());
        for n in 0..count {
            empty(&directory.file(name(n)));
        }
        let (_, found) = pass(&mut directory);
        assert_eq!(found.len(), count);
        found.iter().for_each(|found| directory.refuse(*found));
        assert_eq!(directory.remembered(), REFUSED_OF_USER_MAX as usize);
        let (_, found) = pass(&mut directory);
        assert_eq!(found.len(), count - REFUSED_OF_USER_MAX as usize);
        // A file that was changed is tried again.
        let is_new = |n: &usize| found.iter().any(|found| found.incarnation == name(*n));
        let known = (0..count).find(|n| !is_new(n)).unwrap();
        let file = directory.file(name(known));
        let changed = || {
            let status = fs::metadata(&file).unwrap();
            (status.ctime(), status.ctime_nsec())
        };
        let before = changed();
        // The kernel's clock for times of files has steps of milliseconds.
        while changed() == before {
            fs::write(&file, "other").unwrap();
        }
        assert!(directory.look_at(name(known)).is_some());
        for n in 0..count {
            let _ = fs::remove_file(directory.file(name(n)));
        }
        pass(&mut directory);
        assert_eq!(
            (directory.remembered(), directory.refused_of.taken()),
            (0, 0)
        );
    }

    #[test]
    fn what_cannot_be_opened_is_tried_so_often_in_a_pass() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut directory = IngestDirectory::new(dir.path().into());
        empty(&directory.file(Incarnation([1; 16])));
        let (_, found) = pass(&mut directory);
        let source = std::io::Error::from_raw_os_error(24);
        let passing = StreamError::Io {
            what: "open",
            path: dir.path().into(),
            source,
        };
        let mut tries = 0;
        while directory.may_open(&found[0]) {
            directory.failed(&found[0], &passing);
            tries += 1;
        }
        assert_eq!(tries, FAILURES_OF_USER_MAX);
        assert_eq!(directory.remembered(), 0, "too many open files pass");
        pass(&mut directory);
        assert!(directory.may_open(&found[0]), "the next pass tries again");
    }

    #[test]
    fn names() {
        let digits = "00112233445566778899aabbccddeeff";
        let incarnation = parse(&format!("{digits}.ingest")).unwrap().0;
        assert_eq!(incarnation.to_string(), digits);
        assert_eq!(parse(&format!("{digits}.new")), Some((incarnation, false)));
        assert!(is_named(
            Path::new(&format!("/a/{digits}.ingest")),
            incarnation
        ));
        for name in [
            "",
            ".ingest",
            "a.ingest",
            "00112233445566778899AABBCCDDEEFF.ingest",
            digits,
        ] {
            assert_eq!(parse(name), None, "{name}");
        }
        assert_eq!(parse(&format!("0{digits}.ingest")), None);
        assert_eq!(parse("é0112233445566778899aabbccddeef.ingest"), None);
    }
}

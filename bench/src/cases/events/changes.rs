//! What a process of its own does to files while collectors watch, and the count of what they have
//! seen of it.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::report::Fault;

/// Bytes that are written to a file at once.
const PIECE: [u8; 64] = [7; 64];

/// What happens in a watched tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Workload {
    /// Files are made in one directory, appended to, renamed and removed.
    OneDirectory,
    /// Directories are made, and at once 20 files in each.
    NewDirectories,
    /// More files are made in one directory than the kernel's queue holds, while nobody reads it.
    Burst,
}

impl Workload {
    /// All of them, in the order of the page.
    pub(super) const ALL: [Self; 3] = [Self::OneDirectory, Self::NewDirectories, Self::Burst];

    /// Files that are made.
    pub(super) fn files(self) -> usize {
        match self {
            Self::OneDirectory | Self::NewDirectories => 20_000,
            Self::Burst => 50_000,
        }
    }

    /// The word for it between processes.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::OneDirectory => "one",
            Self::NewDirectories => "new",
            Self::Burst => "burst",
        }
    }

    /// The workload in words for people.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::OneDirectory => "one directory",
            Self::NewDirectories => "new directories",
            Self::Burst => "burst",
        }
    }

    fn path(self, root: &Path, at: usize) -> PathBuf {
        match self {
            Self::OneDirectory | Self::Burst => root.join(format!("f{at}")),
            Self::NewDirectories => root.join(format!("d{}/f{at}", at / FILES_OF_NEW)),
        }
    }
}

/// Files in each directory that is made with them.
const FILES_OF_NEW: usize = 20;

/// The helper process that makes the changes: its arguments are the workload and the directory.
pub(crate) fn make(arguments: &[String]) -> Result<(), Fault> {
    let [word, root] = arguments else {
        return Err("make WORKLOAD DIR".into());
    };
    let workload = Workload::ALL.into_iter().find(|one| one.word() == word);
    let workload = workload.ok_or("no such workload")?;
    let root = Path::new(root);
    for at in 0..workload.files() {
        let path = workload.path(root, at);
        if workload == Workload::NewDirectories && at.is_multiple_of(FILES_OF_NEW) {
            fs::create_dir(path.parent().ok_or("a file is in a directory")?)?;
        }
        fs::write(path, PIECE)?;
    }
    if workload != Workload::OneDirectory {
        return Ok(());
    }
    for at in 0..workload.files() {
        let mut file = OpenOptions::new()
            .append(true)
            .open(workload.path(root, at))?;
        file.write_all(&PIECE)?;
    }
    for at in 0..workload.files() {
        fs::rename(workload.path(root, at), root.join(format!("g{at}")))?;
    }
    for at in 0..workload.files() {
        fs::remove_file(root.join(format!("g{at}")))?;
    }
    Ok(())
}

/// How often the making of each file was told.
#[derive(Default)]
pub(super) struct ToldFiles(Vec<u8>);

impl ToldFiles {
    /// Takes in that a file was told as made.
    pub(super) fn take(&mut self, path: &[u8]) {
        let name = path.rsplit(|byte| *byte == b'/').next();
        let digits = name.and_then(|name| name.strip_prefix(b"f"));
        let number = digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        let Some(at) = number else { return };
        let at: usize = at;
        if at >= self.0.len() {
            self.0.resize((at + 1).next_multiple_of(4_096), 0);
        }
        self.0[at] = self.0[at].saturating_add(1);
    }

    /// Returns the number of files that were told at least once, and at least twice.
    pub(super) fn counts(&self) -> (usize, usize) {
        let count = |least: u8| self.0.iter().filter(|times| **times >= least).count();
        (count(1), count(2))
    }
}

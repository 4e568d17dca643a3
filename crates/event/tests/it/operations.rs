//! Random changes of a real tree, decided by a seed.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use barograph_event::ObjectId;

/// A generator of random changes.
pub(crate) struct Operations {
    root: PathBuf,
    outside: PathBuf,
    state: u64,
    count: u64,
    files: Vec<PathBuf>,
    dirs: Vec<PathBuf>,
    /// Files that have got another name. One of their names may be in a directory that is gone
    /// before it is watched, so that nobody knows of what is written by that name.
    pub(crate) linked: Vec<ObjectId>,
}

impl Operations {
    /// A generator that changes the tree at `root` and moves some of it to `outside` and back.
    pub(crate) fn new(root: &Path, outside: &Path, seed: u64) -> Self {
        Self {
            root: root.to_owned(),
            outside: outside.to_owned(),
            state: seed,
            count: 0,
            files: Vec::new(),
            dirs: vec![root.to_owned()],
            linked: Vec::new(),
        }
    }

    /// Makes one random change. Changes that are impossible are passed over: what counts is the
    /// tree in the end.
    pub(crate) fn step(&mut self) {
        if self.count.is_multiple_of(50) {
            self.look();
        }
        self.count += 1;
        let (file, other) = (self.file(), self.file());
        let dir = self.dir();
        let _ = match self.below(100) {
            0..20 => {
                let path = self.name_in(&dir);
                self.files.push(path.clone());
                fs::write(path, vec![7; self.below(300) as usize])
            }
            20..30 => append(&file, b"more"),
            30..34 => fs::OpenOptions::new()
                .write(true)
                .open(file)
                .and_then(|f| f.set_len(5)),
            34..38 => fs::set_permissions(file, fs::Permissions::from_mode(0o640)),
            38..46 => {
                let to = self.name_in(&dir);
                self.files.push(to.clone());
                fs::rename(file, to)
            }
            46..50 => fs::rename(file, other),
            50..54 => self.link(&file, &dir),
            54..57 => std::os::unix::fs::symlink("nowhere", self.name_in(&dir)),
            57..66 => fs::remove_file(file),
            66..76 => {
                let path = self.name_in(&dir);
                self.dirs.push(path.clone());
                fs::create_dir(&path).and_then(|()| fs::write(path.join("at once"), b"x"))
            }
            76..80 => self.tree(&dir),
            80..86 => self.move_tree(&dir),
            86..90 => match self.dir() {
                dir if dir == self.root => Ok(()),
                dir => fs::remove_dir_all(dir),
            },
            90..93 => fs::rename(file, self.outside.join(self.count.to_string())),
            93..95 => match self.dir() {
                dir if dir == self.root => Ok(()),
                dir => fs::rename(dir, self.outside.join(format!("d{}", self.count))),
            },
            95..98 => self.move_in(&dir),
            _ => {
                let (a, b) = (self.name_in(&dir), self.name_in(&dir));
                let made = fs::write(&a, b"short").and_then(|()| fs::rename(&a, &b));
                made.and_then(|()| fs::remove_file(b))
            }
        };
    }

    fn link(&mut self, file: &Path, dir: &Path) -> std::io::Result<()> {
        let of = fs::symlink_metadata(file)?;
        self.linked.push(ObjectId::of(of.dev(), of.ino()));
        fs::hard_link(file, self.name_in(dir))
    }

    /// Makes many directories in each other, with files, as `mkdir -p` does.
    fn tree(&mut self, dir: &Path) -> std::io::Result<()> {
        let mut path = dir.to_owned();
        for _ in 0..1 + self.below(6) {
            path = self.name_in(&path);
            fs::create_dir(&path)?;
            fs::write(path.join("leaf"), b"leaf")?;
        }
        self.dirs.push(path);
        Ok(())
    }

    fn move_tree(&mut self, dir: &Path) -> std::io::Result<()> {
        let from = self.dir();
        if from == self.root {
            return Ok(());
        }
        let to = self.name_in(dir);
        self.dirs.push(to.clone());
        fs::rename(from, to)
    }

    fn move_in(&mut self, dir: &Path) -> std::io::Result<()> {
        let Some(from) = fs::read_dir(&self.outside)?.flatten().next() else {
            return Ok(());
        };
        fs::rename(from.path(), self.name_in(dir))
    }

    fn look(&mut self) {
        (self.files, self.dirs) = (Vec::new(), vec![self.root.clone()]);
        let mut at = 0;
        while at < self.dirs.len() {
            let entries = fs::read_dir(&self.dirs[at]).into_iter().flatten().flatten();
            let mut paths: Vec<_> = entries
                .map(|entry| (entry.path(), entry.file_type()))
                .collect();
            paths.sort_by(|(a, _), (b, _)| a.cmp(b));
            for (path, kind) in paths {
                match kind.is_ok_and(|kind| kind.is_dir()) {
                    true => self.dirs.push(path),
                    false => self.files.push(path),
                }
            }
            at += 1;
        }
    }

    fn file(&mut self) -> PathBuf {
        let at = self.below(self.files.len().max(1) as u64);
        let file = self.files.get(at as usize);
        file.map_or_else(|| self.root.join("none"), PathBuf::clone)
    }

    fn dir(&mut self) -> PathBuf {
        let at = self.below(self.dirs.len() as u64);
        self.dirs[at as usize].clone()
    }

    /// A name that may be there already, or be a rare one.
    fn name_in(&mut self, dir: &Path) -> PathBuf {
        let name = match self.below(40) {
            0 => OsString::from(format!("new\nline {}", self.count)),
            1 => OsString::from_vec(vec![0xff, 0xfe, b'a' + self.below(20) as u8]),
            2 => OsString::from("n".repeat(255)),
            3 => OsString::from("  blanks  "),
            4..20 => OsString::from(format!("f{}", self.below(12))),
            _ => OsString::from(format!("f{}", self.count)),
        };
        dir.join(name)
    }

    /// A random number below `end`, by SplitMix64.
    fn below(&mut self, end: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = self.state;
        let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ word >> 31) % end
    }
}

/// Appends bytes to a file that is there.
pub(crate) fn append(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    fs::OpenOptions::new()
        .append(true)
        .open(path)?
        .write_all(bytes)
}

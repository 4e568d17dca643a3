//! Random operations on a mount and on a plain directory: the results and the contents are the
//! same, also for a second mount.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::common::{BLOCK, Mounted, Served, bytes, can_mount, config, tree};

/// Files that are kept open.
const OPEN_FILES: usize = 2;

#[derive(Clone, Debug)]
enum Step {
    Write(usize, u64, usize, u64),
    Append(usize, usize, u64),
    Truncate(usize, u64),
    Read(usize, u64, usize),
    Replace(usize, usize, u64),
    Rename(usize, usize),
    Unlink(usize),
    MakeDirectory(usize),
    RemoveDirectory(usize),
    Link(usize, usize),
    /// Opens a file for a slot of those that are kept open.
    Keep(usize, usize),
    KeptWrite(usize, u64, usize, u64),
    KeptRead(usize, u64, usize),
    KeptLength(usize, u64),
    Close(usize),
}

/// The names of the test: some of them are directories, or are in one.
const NAMES: [&str; 8] = ["a", "b", "c", "d", "d/a", "d/b", "e", "e/d"];

fn step() -> impl Strategy<Value = Step> {
    let name = || 0..NAMES.len();
    let slot = || 0..OPEN_FILES;
    let length = || prop_oneof![0..200_usize, 0..3 * BLOCK, Just(BLOCK), Just(2 * BLOCK)];
    let place = || {
        prop_oneof![
            0..5 * BLOCK as u64,
            (0..5_u64).prop_map(|n| n * BLOCK as u64)
        ]
    };
    let seed = any::<u64>;
    prop_oneof![
        4 => (name(), place(), length(), seed())
            .prop_map(|(name, at, length, seed)| Step::Write(name, at, length, seed)),
        2 => (name(), length(), seed())
            .prop_map(|(name, length, seed)| Step::Append(name, length, seed)),
        2 => (name(), place()).prop_map(|(name, at)| Step::Truncate(name, at)),
        2 => (name(), place(), length())
            .prop_map(|(name, at, length)| Step::Read(name, at, length)),
        2 => (name(), length(), seed())
            .prop_map(|(name, length, seed)| Step::Replace(name, length, seed)),
        2 => (name(), name()).prop_map(|(from, to)| Step::Rename(from, to)),
        2 => name().prop_map(Step::Unlink),
        1 => name().prop_map(Step::MakeDirectory),
        1 => name().prop_map(Step::RemoveDirectory),
        1 => (name(), name()).prop_map(|(target, name)| Step::Link(target, name)),
        2 => (slot(), name()).prop_map(|(slot, name)| Step::Keep(slot, name)),
        3 => (slot(), place(), length(), seed())
            .prop_map(|(slot, at, length, seed)| Step::KeptWrite(slot, at, length, seed)),
        2 => (slot(), place(), length())
            .prop_map(|(slot, at, length)| Step::KeptRead(slot, at, length)),
        1 => (slot(), place()).prop_map(|(slot, length)| Step::KeptLength(slot, length)),
        2 => slot().prop_map(Step::Close),
    ]
}

/// A directory with the files that are kept open.
struct Place {
    root: PathBuf,
    kept: [Option<File>; OPEN_FILES],
}

impl Place {
    fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            kept: Default::default(),
        }
    }

    fn path(&self, name: usize) -> PathBuf {
        self.root.join(NAMES[name])
    }

    fn kept(&self, slot: usize) -> io::Result<&File> {
        self.kept[slot]
            .as_ref()
            .ok_or(io::ErrorKind::NotFound.into())
    }

    /// Does a step; the result is what a program sees of it.
    fn act(&mut self, step: &Step) -> io::Result<Vec<u8>> {
        let writer = |name| File::options().write(true).open(self.path(name));
        match *step {
            Step::Write(name, at, length, seed) => {
                let path = self.path(name);
                let file = File::options()
                    .create(true)
                    .truncate(false)
                    .write(true)
                    .open(path)?;
                file.write_all_at(&bytes(seed, length), at)?;
            }
            Step::Append(name, length, seed) => {
                let mut file = File::options().append(true).open(self.path(name))?;
                io::Write::write_all(&mut file, &bytes(seed, length))?;
            }
            Step::Truncate(name, length) => writer(name)?.set_len(length)?,
            Step::Read(name, at, length) => return read(&File::open(self.path(name))?, at, length),
            Step::Replace(name, length, seed) => fs::write(self.path(name), bytes(seed, length))?,
            Step::Rename(from, to) => {
                // A directory is not renamed on a mount.
                if fs::symlink_metadata(self.path(from))?.is_dir() {
                    return Ok(b"directory".to_vec());
                }
                fs::rename(self.path(from), self.path(to))?;
            }
            Step::Unlink(name) => fs::remove_file(self.path(name))?,
            Step::MakeDirectory(name) => fs::create_dir(self.path(name))?,
            Step::RemoveDirectory(name) => fs::remove_dir(self.path(name))?,
            Step::Link(target, name) => {
                std::os::unix::fs::symlink(NAMES[target], self.path(name))?;
            }
            Step::Keep(slot, name) => {
                let opened = File::options().read(true).write(true).open(self.path(name));
                self.kept[slot] = None;
                self.kept[slot] = Some(opened?);
            }
            Step::KeptWrite(slot, at, length, seed) => {
                self.kept(slot)?.write_all_at(&bytes(seed, length), at)?;
            }
            Step::KeptRead(slot, at, length) => return read(self.kept(slot)?, at, length),
            Step::KeptLength(slot, length) => self.kept(slot)?.set_len(length)?,
            Step::Close(slot) => self.kept[slot] = None,
        }
        Ok(Vec::new())
    }
}

fn read(file: &File, at: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut out = vec![0; length];
    let mut done = 0;
    while done < length {
        match file.read_at(&mut out[done..], at + done as u64)? {
            0 => break,
            more => done += more,
        }
    }
    out.truncate(done);
    Ok(out)
}

#[test]
fn random_operations_give_what_a_plain_directory_has() {
    if !can_mount() {
        return;
    }
    let served = Served::new();
    let number = AtomicU64::new(0);
    let mut runner = TestRunner::new(Config {
        cases: 60,
        failure_persistence: None,
        ..Config::default()
    });
    let steps = proptest::collection::vec(step(), 1..60);
    let result = runner.run(&steps, |steps| {
        let number = number.fetch_add(1, Ordering::Relaxed);
        let mut config = config();
        config.volume = format!("v{number}");
        // Room for two blocks that are written: the rest is put at once.
        config.buffer_bytes = 4 * BLOCK as u64;
        let plain = tempfile::tempdir_in("/dev/shm")
            .or_else(|_| tempfile::tempdir())
            .unwrap();
        let mounted = Mounted::with(&[&served], 1, &config);
        let mut here = Place::new(mounted.place.path());
        let mut there = Place::new(plain.path());
        for (at, step) in steps.iter().enumerate() {
            let [here, there] = [&mut here, &mut there].map(|place| {
                let result = place.act(step);
                result.map_err(|error| error.raw_os_error())
            });
            prop_assert_eq!(&here, &there, "step {}: {:?}", at, step);
        }
        prop_assert_eq!(tree(&here.root), tree(&there.root));
        drop(here);
        // What was closed is what another mount sees.
        let other = Mounted::with(&[&served], 1, &config);
        there.kept = Default::default();
        prop_assert_eq!(tree(other.place.path()), tree(&there.root));
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

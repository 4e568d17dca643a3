//! Every file of a small archive is damaged in many ways: verification names the file.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use barograph_archive::verify;
use barograph_model::NS_PER_S;

use crate::retain::Full;
use crate::seal::append;
use crate::support::{config, dir_in_memory, start, start_on};

/// Interval of samples: two of each stream per hour.
const STEP_NS: i64 = 1_800 * NS_PER_S;
/// Number of archives that are damaged at the same time: verification waits for some findings to
/// settle.
const THREADS: usize = 16;
/// Number of places in a file where a bit is flipped, besides its first and its last bytes.
const FLIPS: usize = 24;
const ENDS: usize = 64;

/// A kind of damage to a file.
#[derive(Clone, Debug)]
enum Damage {
    Flip(usize, u8),
    Zero(usize, usize),
    Cut(usize),
    Remove,
    /// Replaced by the file at this path of the same archive.
    Replace(PathBuf),
}

impl Damage {
    /// Returns the damaged bytes; `None` if the file is gone.
    fn of(&self, root: &Path, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = bytes.to_vec();
        match self {
            Self::Flip(at, bit) => bytes[*at] ^= 1 << bit,
            Self::Zero(from, to) => bytes[*from..*to].fill(0),
            Self::Cut(length) => bytes.truncate(*length),
            Self::Remove => return None,
            Self::Replace(other) => bytes = fs::read(root.join(other)).unwrap(),
        }
        Some(bytes)
    }
}

/// Returns every regular file below a directory, as a path relative to it.
fn files(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                found.push(path.strip_prefix(root).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

fn copy(from: &Path, to: &Path) {
    for file in files(from) {
        fs::create_dir_all(to.join(&file).parent().unwrap()).unwrap();
        fs::copy(from.join(&file), to.join(&file)).unwrap();
    }
}

/// Writes sealed and merged files of some hours with their tiers, two closed log segments and the
/// newest one, which was closed at the end of the writer.
fn specimen(root: &Path) {
    let mut config = config(root);
    // The sealer is never asked because of size or age.
    config.segment_ns_max = i64::MAX;
    let keeper = start(config.clone()).unwrap();
    append(&keeper, 1, 1..=4, STEP_NS);
    keeper.seal().unwrap();
    append(&keeper, 2, 1..=3, STEP_NS);
    keeper.compact().unwrap();
    append(&keeper, 3, 1..=2, STEP_NS);
    keeper.seal().unwrap();
    drop(keeper);
    for life in 4..=6 {
        let disk = Arc::new(Full::without_parquet());
        let keeper = start_on(config.clone(), disk).unwrap();
        append(&keeper, life, 1..=3, STEP_NS);
    }
}

/// Returns what may happen to one of the files.
fn damages(root: &Path, file: &Path, all: &[PathBuf]) -> Vec<Damage> {
    let bytes = fs::read(root.join(file)).unwrap();
    let length = bytes.len();
    let mut found = vec![Damage::Remove];
    let near = (0..length.min(ENDS)).chain(length.saturating_sub(ENDS)..length);
    let between = (0..length).step_by((length / FLIPS).max(1));
    found.extend(
        near.step_by(3)
            .chain(between)
            .map(|at| Damage::Flip(at, at as u8 % 8)),
    );
    let zeroed = [
        (0, 8),
        (length / 3, length / 3 + 40),
        (length - 8, length),
        (0, length),
    ];
    found.extend(zeroed.map(|(from, to)| Damage::Zero(from, to.min(length))));
    found.extend([0, 1, length / 2, length - 8, length - 1].map(Damage::Cut));
    let others = all.iter().filter(|other| *other != file);
    found.extend(
        others
            .step_by(3)
            .map(|other| Damage::Replace(other.clone())),
    );
    // A change that changes nothing is no damage.
    found.retain(|damage| damage.of(root, &bytes).as_ref() != Some(&bytes));
    found
}

#[test]
fn whatever_happens_to_a_file_verification_names_it() {
    let dir = dir_in_memory();
    specimen(dir.path());
    // The lock is only a name without content.
    let all: Vec<PathBuf> = files(dir.path())
        .into_iter()
        .filter(|file| !file.ends_with("lock"))
        .collect();
    let count = |suffix: &str| {
        let name = |file: &&PathBuf| file.to_string_lossy().ends_with(suffix);
        all.iter().filter(name).count()
    };
    assert!(count(".parquet") > 6 && count(".log") == 3, "{all:?}");
    assert_eq!(
        all.len(),
        count(".parquet") + 3 + ["manifest", "newest"].len()
    );
    assert_eq!(verify(dir.path(), &mut |_, _| {}).unwrap().findings, []);
    let each = all.iter().flat_map(|file| {
        let damages = damages(dir.path(), file, &all).into_iter();
        damages.map(|damage| (file.clone(), damage))
    });
    let cases: Vec<(PathBuf, Damage)> = each.collect();
    assert!(cases.len() > 500, "{}", cases.len());
    let cases = Mutex::new(cases);
    let missed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let own = dir_in_memory();
                copy(dir.path(), own.path());
                while let Some((file, damage)) = { cases.lock().unwrap().pop() } {
                    if !names(own.path(), dir.path(), &file, &damage) {
                        missed.lock().unwrap().push((file, damage));
                    }
                }
            });
        }
    });
    let missed = missed.into_inner().unwrap();
    assert!(missed.is_empty(), "{} missed: {missed:#?}", missed.len());
}

/// Whether verification finds the damage in a copy of the archive; the copy is undamaged again
/// afterwards.
fn names(root: &Path, whole: &Path, file: &Path, damage: &Damage) -> bool {
    let path = root.join(file);
    let bytes = fs::read(whole.join(file)).unwrap();
    match damage.of(whole, &bytes) {
        Some(damaged) => fs::write(&path, damaged).unwrap(),
        None => fs::remove_file(&path).unwrap(),
    }
    let found = verify(root, &mut |_, _| {}).unwrap().findings;
    fs::write(&path, bytes).unwrap();
    found.iter().any(|finding| finding.path == path)
}

//! Programs that go by the names of Parquet files, while files are merged.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use barograph_archive::{DiskStorage, FileAccess, OutFile, Storage};
use barograph_model::NS_PER_S;
use parquet::file::reader::{FileReader as _, SerializedFileReader};

use crate::seal::append;
use crate::support::{
    assert_sound, config, dir_in_memory, everything, parquet_files, start, start_on,
};

/// Returns the rows of the raw files that a pattern over the directories finds.
fn rows(root: &Path) -> i64 {
    let raw = parquet_files(root).into_iter();
    let raw = raw.filter(|path| path.starts_with(root.join("raw")));
    let rows = |path: PathBuf| {
        let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
        reader.metadata().file_metadata().num_rows()
    };
    raw.map(rows).sum()
}

/// A disk that counts the rows after each operation.
struct Watching {
    root: PathBuf,
    /// Whether directories can be exchanged on it.
    exchanges: bool,
    seen: Mutex<BTreeSet<i64>>,
}

impl Watching {
    fn new(root: &Path, exchanges: bool) -> Arc<Self> {
        Arc::new(Self {
            root: root.to_owned(),
            exchanges,
            seen: Mutex::default(),
        })
    }

    fn after<T>(&self, done: io::Result<T>) -> io::Result<T> {
        self.seen.lock().unwrap().insert(rows(&self.root));
        done
    }
}

impl Storage for Watching {
    fn make_dir(&self, path: &Path) -> io::Result<()> {
        self.after(DiskStorage.make_dir(path))
    }

    fn create(&self, path: &Path, access: FileAccess) -> io::Result<Box<dyn OutFile>> {
        self.after(DiskStorage.create(path, access))
    }

    fn overwrite(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.after(DiskStorage.overwrite(path, bytes))
    }

    fn truncate(&self, path: &Path, bytes: u64) -> io::Result<()> {
        self.after(DiskStorage.truncate(path, bytes))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.after(DiskStorage.rename(from, to))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.after(DiskStorage.link(from, to))
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        match self.exchanges {
            true => self.after(DiskStorage.exchange(one, other)),
            false => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.after(DiskStorage.unlink(path))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.after(DiskStorage.remove_dir(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.after(DiskStorage.sync_dir(path))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        self.after(DiskStorage.list(path))
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.after(DiskStorage.free_bytes(path))
    }
}

/// Makes three sealings of the same two hours.
fn prepare(root: &Path) {
    let keeper = start(config(root)).unwrap();
    for life in 1..=3 {
        append(&keeper, life, 1..=30, 200 * NS_PER_S);
        keeper.seal().unwrap();
    }
}

/// Returns the numbers of rows that were seen while files were merged.
fn merged(root: &Path, exchanges: bool) -> BTreeSet<i64> {
    let disk = Watching::new(root, exchanges);
    let keeper = start_on(config(root), Arc::clone(&disk) as Arc<dyn Storage>).unwrap();
    assert!(keeper.compact().unwrap() > 0);
    drop(keeper);
    assert_sound(root);
    let left = fs::read_dir(root.join("nodes/n1/tmp")).unwrap();
    assert_eq!(left.count(), 0);
    disk.seen.lock().unwrap().clone()
}

#[test]
fn a_pattern_over_the_files_meets_each_row_once_while_they_are_merged() {
    let dir = dir_in_memory();
    let root = dir.path();
    prepare(root);
    let (before, all) = (everything(root), rows(root));
    // A file that another program put there stays, under its name.
    let hour = parquet_files(root)[0].parent().unwrap().to_owned();
    let raw = root
        .join("raw")
        .join(hour.strip_prefix(root.join("1h")).unwrap());
    for folder in [&hour, &raw] {
        fs::write(folder.join("README"), "mine").unwrap();
    }
    assert_eq!(merged(root, true), BTreeSet::from([all]));
    assert_eq!(everything(root), before);
    for folder in [&hour, &raw] {
        assert_eq!(fs::read(folder.join("README")).unwrap(), b"mine");
    }
}

#[test]
fn where_directories_cannot_be_exchanged_files_are_merged_all_the_same() {
    let dir = dir_in_memory();
    let root = dir.path();
    prepare(root);
    let (before, all) = (everything(root), rows(root));
    let seen = merged(root, false);
    assert!(
        seen.contains(&all) && seen.iter().all(|rows| *rows >= all),
        "{seen:?}"
    );
    assert_eq!(everything(root), before);
    assert_eq!(rows(root), all);
}

/// Three sources and one merged file in each hour: between commit and exchange our readers find the
/// merged one.
#[test]
fn what_waits_for_its_exchange_is_read_and_put_in_place_by_the_next_start() {
    let dir = dir_in_memory();
    let root = dir.path();
    prepare(root);
    let before = everything(root);
    let keeper = start(config(root)).unwrap();
    keeper.compact().unwrap();
    drop(keeper);
    let files = parquet_files(root);
    for path in &files {
        // The files are moved to where a crash before the exchange leaves them.
        let words: Vec<_> = path
            .strip_prefix(root)
            .unwrap()
            .iter()
            .map(|word| word.to_str().unwrap())
            .collect();
        let hour = words[3]
            .strip_prefix("hour=")
            .unwrap()
            .parse::<i64>()
            .unwrap();
        let first = 1_700_000_000 / 86_400 * 24;
        let of_date = if words[2] == "date=2023-11-14" {
            first
        } else {
            first + 24
        };
        let waiting = root.join(format!("nodes/n1/tmp/{}-{}.swap", words[0], of_date + hour));
        fs::create_dir_all(&waiting).unwrap();
        fs::rename(path, waiting.join(path.file_name().unwrap())).unwrap();
    }
    assert_eq!(rows(root), 0);
    assert_eq!(everything(root), before);
    let keeper = start(config(root)).unwrap();
    keeper.seal().unwrap();
    assert_eq!(parquet_files(root), files);
    assert_eq!(everything(root), before);
    drop(keeper);
    assert_sound(root);
}

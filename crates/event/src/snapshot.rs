//! A snapshot of a tree in a file: what was there, so that what has changed since can be told.
//!
//! Entries are sorted by directory and name and lie in blocks with checksums. The index of the
//! blocks is kept in memory, so that one directory of a million is read with one or two reads. A
//! file with any damage is not used.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::event::ObjectId;

mod block;
#[doc(hidden)]
pub mod door;
mod known;

pub(crate) use block::{EntryKind, MODE_UNKNOWN, TreeEntry};
use block::{Item, Items, put};
pub(crate) use known::{Known, KnownLimits};

const MAGIC: &[u8; 8] = b"BAROTREE";
const VERSION: u32 = 1;
/// Bytes of a block from which on another one is begun.
const BLOCK_BYTES: usize = 16 << 10;
/// Most bytes of a block: the last entry may have a path of a root as its name.
const BLOCK_BYTES_MAX: usize = BLOCK_BYTES + (8 << 10);
/// Blocks that are kept in memory.
const CACHE_BLOCKS: usize = 64;
/// Magic, version, number of the next event, checksum.
const HEAD: usize = 8 + 4 + 8 + 4;
/// Place and length of the index, number of entries, checksum.
const TAIL: usize = 8 + 8 + 8 + 4;

/// The reason why a snapshot cannot be used or written.
#[derive(Debug, Error)]
pub(crate) enum SnapshotFault {
    /// The operating system has refused.
    #[error("cannot {what} the snapshot {path}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// The snapshot.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The file is no snapshot, or is damaged.
    #[error("the snapshot {path} is damaged ({what}): everything is told as found")]
    Damaged {
        /// What is wrong.
        what: &'static str,
        /// The snapshot.
        path: PathBuf,
    },
}

/// First entry and place of a block.
#[derive(Debug)]
struct BlockPlace {
    dir: ObjectId,
    name: Box<[u8]>,
    offset: u64,
}

/// A snapshot that is open for reading.
#[derive(Debug)]
pub(crate) struct Snapshot {
    file: File,
    path: PathBuf,
    blocks: Vec<BlockPlace>,
    /// Blocks that were read last, the latest at the end.
    cache: Vec<(usize, Box<[u8]>)>,
    entries: u64,
    index_next: u64,
}

impl Snapshot {
    /// Opens a snapshot and reads all of it once, with `each` called for every entry. `None` if
    /// there is no file.
    pub(crate) fn open(
        path: &Path,
        mut each: impl FnMut(Item<'_>),
    ) -> Result<Option<Self>, SnapshotFault> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(fault("open", path)(error)),
        };
        let snapshot = Self::of(file, path)?;
        let mut last: Option<(ObjectId, Box<[u8]>)> = None;
        let mut entries = 0;
        for at in 0..snapshot.blocks.len() {
            let block = snapshot.read(at)?;
            let mut items = Items::new(&block);
            let mut is_first = true;
            for item in &mut items {
                let place = &snapshot.blocks[at];
                let begins = (item.dir, item.name) == (place.dir, &*place.name);
                let ascends = last
                    .as_ref()
                    .is_none_or(|(d, n)| (*d, &**n) < (item.dir, item.name));
                if !ascends || (is_first && !begins) {
                    return Err(snapshot.damaged("order"));
                }
                is_first = false;
                entries += 1;
                last = Some((item.dir, item.name.into()));
                each(item);
            }
            if !items.is_done() || is_first {
                return Err(snapshot.damaged("entry"));
            }
        }
        match entries == snapshot.entries {
            true => Ok(Some(snapshot)),
            false => Err(snapshot.damaged("number of entries")),
        }
    }

    /// Reads the index of a snapshot.
    fn of(file: File, path: &Path) -> Result<Self, SnapshotFault> {
        let damaged = |what| SnapshotFault::Damaged {
            what,
            path: path.to_owned(),
        };
        let bytes = file.metadata().map_err(fault("look at", path))?.len();
        if bytes < (HEAD + TAIL) as u64 {
            return Err(damaged("length"));
        }
        let (mut head, mut tail) = ([0; HEAD], [0; TAIL]);
        file.read_exact_at(&mut head, 0)
            .map_err(fault("read", path))?;
        let tail_at = bytes - TAIL as u64;
        file.read_exact_at(&mut tail, tail_at)
            .map_err(fault("read", path))?;
        let is_head = head[..8] == *MAGIC && word(&head[8..]) == VERSION;
        if !is_head || word(&head[HEAD - 4..]) != crc32fast::hash(&head[..HEAD - 4]) {
            return Err(damaged("head"));
        }
        let (offset, length) = (long(&tail), long(&tail[8..]));
        if offset < HEAD as u64 || offset.checked_add(length) != Some(tail_at) {
            return Err(damaged("place of the index"));
        }
        let mut index = vec![0; usize::try_from(length).map_err(|_| damaged("index"))?];
        file.read_exact_at(&mut index, offset)
            .map_err(fault("read", path))?;
        let mut crc = crc32fast::Hasher::new();
        crc.update(&index);
        crc.update(&tail[..TAIL - 4]);
        if word(&tail[TAIL - 4..]) != crc.finalize() {
            return Err(damaged("checksum of the index"));
        }
        Ok(Self {
            blocks: places(&index).ok_or_else(|| damaged("index"))?,
            entries: long(&tail[16..]),
            index_next: long(&head[12..]),
            cache: Vec::new(),
            path: path.to_owned(),
            file,
        })
    }

    /// Number of the next event when the snapshot was made.
    pub(crate) fn index_next(&self) -> u64 {
        self.index_next
    }

    /// Time at which the file was written, in ns since the epoch; the earliest if that is unknown.
    pub(crate) fn made_ns(&self) -> i64 {
        let made = self.file.metadata();
        made.map_or(i64::MIN, |made| {
            let whole_ns = made.mtime().saturating_mul(1_000_000_000);
            whole_ns.saturating_add(made.mtime_nsec())
        })
    }

    #[cfg(test)]
    fn len(&self) -> u64 {
        self.entries
    }

    /// The entry of a name.
    pub(crate) fn get(
        &mut self,
        dir: ObjectId,
        name: &[u8],
    ) -> Result<Option<TreeEntry>, SnapshotFault> {
        let Some(at) = self.block_of(dir, name) else {
            return Ok(None);
        };
        let mut items = Items::new(self.block(at)?);
        let found = items.find(|item| (item.dir, item.name) >= (dir, name));
        let is_it = |item: &Item<'_>| (item.dir, item.name) == (dir, name);
        Ok(found.filter(is_it).map(|item| item.entry))
    }

    /// The entries after a place, in order, until `take` does not want more.
    pub(crate) fn after(
        &mut self,
        dir: ObjectId,
        name: Option<&[u8]>,
        mut take: impl FnMut(Item<'_>) -> bool,
    ) -> Result<(), SnapshotFault> {
        let first = self.block_of(dir, name.unwrap_or_default()).unwrap_or(0);
        for at in first..self.blocks.len() {
            for item in Items::new(self.block(at)?) {
                let is_after = match name {
                    Some(name) => (item.dir, item.name) > (dir, name),
                    None => item.dir >= dir,
                };
                if is_after && !take(item) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The last block that begins at this place or before it.
    fn block_of(&self, dir: ObjectId, name: &[u8]) -> Option<usize> {
        let is_before = |place: &BlockPlace| (place.dir, &*place.name) <= (dir, name);
        self.blocks.partition_point(is_before).checked_sub(1)
    }

    fn block(&mut self, at: usize) -> Result<&[u8], SnapshotFault> {
        let cached = self.cache.iter().position(|(of, _)| *of == at);
        let block = match cached {
            Some(place) => self.cache.remove(place).1,
            None => self.read(at)?,
        };
        if self.cache.len() >= CACHE_BLOCKS {
            self.cache.remove(0);
        }
        self.cache.push((at, block));
        Ok(self.cache.last().map_or(&[], |(_, block)| block))
    }

    fn read(&self, at: usize) -> Result<Box<[u8]>, SnapshotFault> {
        let offset = self.blocks[at].offset;
        let mut head = [0; 8];
        let read = |to: &mut [u8], at| {
            let read = self.file.read_exact_at(to, at);
            read.map_err(fault("read", &self.path))
        };
        read(&mut head, offset)?;
        let length = word(&head) as usize;
        if length > BLOCK_BYTES_MAX {
            return Err(self.damaged("length of a block"));
        }
        let mut block = vec![0; length];
        read(&mut block, offset + 8)?;
        match crc32fast::hash(&block) == word(&head[4..]) {
            true => Ok(block.into()),
            false => Err(self.damaged("checksum of a block")),
        }
    }

    fn damaged(&self, what: &'static str) -> SnapshotFault {
        SnapshotFault::Damaged {
            what,
            path: self.path.clone(),
        }
    }
}

/// A snapshot that is being written, to a temporary name.
#[derive(Debug)]
pub(crate) struct SnapshotWriter {
    file: BufWriter<File>,
    path: PathBuf,
    block: Vec<u8>,
    last_dir: Option<ObjectId>,
    index: Vec<u8>,
    offset: u64,
    entries: u64,
}

impl SnapshotWriter {
    /// A new snapshot at this path, which is removed first.
    pub(crate) fn create(path: &Path, index_next: u64) -> Result<Self, SnapshotFault> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(fault("remove", path)(error));
            }
            _ => {}
        }
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(path).map_err(fault("create", path))?;
        let mut head = MAGIC.to_vec();
        head.extend(VERSION.to_le_bytes());
        head.extend(index_next.to_le_bytes());
        head.extend(crc32fast::hash(&head).to_le_bytes());
        let mut file = BufWriter::with_capacity(64 << 10, file);
        file.write_all(&head).map_err(fault("write", path))?;
        Ok(Self {
            file,
            path: path.to_owned(),
            block: Vec::new(),
            last_dir: None,
            index: Vec::new(),
            offset: HEAD as u64,
            entries: 0,
        })
    }

    /// Appends an entry. Entries come in the order of directories and names.
    pub(crate) fn push(&mut self, item: Item<'_>) -> Result<(), SnapshotFault> {
        if self.block.is_empty() {
            self.index.extend(self.offset.to_le_bytes());
            self.index.extend(item.dir.0);
            self.index.extend((item.name.len() as u16).to_le_bytes());
            self.index.extend(item.name);
        }
        put(&mut self.block, item, self.last_dir == Some(item.dir));
        self.last_dir = Some(item.dir);
        self.entries += 1;
        match self.block.len() >= BLOCK_BYTES {
            true => self.end_block(),
            false => Ok(()),
        }
    }

    /// Ends the file and makes it durable.
    pub(crate) fn finish(mut self) -> Result<Snapshot, SnapshotFault> {
        self.end_block()?;
        let mut tail = self.offset.to_le_bytes().to_vec();
        tail.extend((self.index.len() as u64).to_le_bytes());
        tail.extend(self.entries.to_le_bytes());
        let mut crc = crc32fast::Hasher::new();
        crc.update(&self.index);
        crc.update(&tail);
        tail.extend(crc.finalize().to_le_bytes());
        let write = self
            .file
            .write_all(&self.index)
            .and_then(|()| self.file.write_all(&tail));
        write.map_err(fault("write", &self.path))?;
        let file = self.file.into_inner().map_err(|error| error.into_error());
        let file = file.map_err(fault("write", &self.path))?;
        file.sync_all().map_err(fault("write", &self.path))?;
        Snapshot::of(file, &self.path)
    }

    fn end_block(&mut self) -> Result<(), SnapshotFault> {
        if self.block.is_empty() {
            return Ok(());
        }
        let mut head = (self.block.len() as u32).to_le_bytes().to_vec();
        head.extend(crc32fast::hash(&self.block).to_le_bytes());
        let write = self
            .file
            .write_all(&head)
            .and_then(|()| self.file.write_all(&self.block));
        write.map_err(fault("write", &self.path))?;
        self.offset += (head.len() + self.block.len()) as u64;
        self.block.clear();
        self.last_dir = None;
        Ok(())
    }
}

fn places(index: &[u8]) -> Option<Vec<BlockPlace>> {
    let (mut rest, mut places) = (index, Vec::new());
    while !rest.is_empty() {
        let (offset, after) = rest.split_first_chunk::<8>()?;
        let (dir, after) = after.split_first_chunk::<16>()?;
        let (length, after) = after.split_first_chunk::<2>()?;
        let (name, after) = after.split_at_checked(u16::from_le_bytes(*length).into())?;
        places.push(BlockPlace {
            dir: ObjectId(*dir),
            name: name.into(),
            offset: u64::from_le_bytes(*offset),
        });
        rest = after;
    }
    Some(places)
}

fn fault(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SnapshotFault {
    let path = path.to_owned();
    move |source| SnapshotFault::Io { what, path, source }
}

fn word(bytes: &[u8]) -> u32 {
    bytes
        .first_chunk()
        .map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn long(bytes: &[u8]) -> u64 {
    bytes
        .first_chunk()
        .map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(n: u64) -> TreeEntry {
        TreeEntry {
            id: ObjectId::of(1, n),
            kind: EntryKind::File,
            size: n * 3,
            mtime_ns: n as i64,
            ctime_ns: -1,
            born_ns: 5,
            mode: 0o644,
            uid: 1,
            gid: 2,
            is_open: n % 2 == 1,
        }
    }

    fn write(path: &Path, count: u64) -> Snapshot {
        let mut writer = SnapshotWriter::create(path, 77).unwrap();
        for n in 0..count {
            let name = format!("name {:04}", n % 50);
            let item = Item {
                dir: ObjectId::of(3, n / 50),
                name: name.as_bytes(),
                entry: entry(n),
            };
            writer.push(item).unwrap();
        }
        writer.finish().unwrap()
    }

    #[test]
    fn every_entry_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("snapshot");
        for count in [0, 1, 49, 5_000] {
            let mut written = write(&path, count);
            let mut numbers = Vec::new();
            let read = Snapshot::open(&path, |item| numbers.push(item.entry.size / 3));
            let mut read = read.unwrap().unwrap();
            assert_eq!(numbers, (0..count).collect::<Vec<_>>());
            assert_eq!((read.index_next(), read.len()), (77, count));
            for n in (0..count).step_by(7) {
                let name = format!("name {:04}", n % 50);
                for of in [&mut written, &mut read] {
                    let found = of.get(ObjectId::of(3, n / 50), name.as_bytes()).unwrap();
                    assert_eq!(found, Some(entry(n)));
                }
            }
            for (dir, name) in [(0, "name"), (0, "name 9"), (9_999, "a")] {
                let found = read.get(ObjectId::of(3, dir), name.as_bytes()).unwrap();
                assert_eq!(found, None);
            }
            let mut after = Vec::new();
            let take = |item: Item<'_>| {
                after.push(item.entry.size / 3);
                after.len() < 60
            };
            read.after(ObjectId::of(3, 1), Some(b"name 0010"), take)
                .unwrap();
            let expected: Vec<_> = (61..count.max(61)).take(60).collect();
            assert_eq!(after, expected);
        }
    }

    #[test]
    fn a_file_with_any_damage_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("snapshot");
        assert!(Snapshot::open(&path, |_| ()).unwrap().is_none());
        write(&path, 700);
        let whole = std::fs::read(&path).unwrap();
        for at in (0..whole.len())
            .step_by(11)
            .chain(whole.len() - TAIL..whole.len())
        {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x41;
            std::fs::write(&path, &bytes).unwrap();
            assert!(Snapshot::open(&path, |_| ()).is_err(), "{at}");
            std::fs::write(&path, &whole[..at]).unwrap();
            assert!(Snapshot::open(&path, |_| ()).is_err(), "{at}");
        }
        std::fs::write(&path, &whole).unwrap();
        assert!(Snapshot::open(&path, |_| ()).unwrap().is_some());
    }

    proptest::proptest! {
        #[test]
        fn foreign_bytes_are_refused(bytes in proptest::collection::vec(0u8.., 0..300)) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("snapshot");
            std::fs::write(&path, &bytes).unwrap();
            assert!(Snapshot::open(&path, |_| ()).is_err());
            let mut items = Items::new(&bytes);
            while items.next().is_some() {}
            assert!(places(&bytes).is_none_or(|places| places.len() <= bytes.len() / 26));
        }
    }
}

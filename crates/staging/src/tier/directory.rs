//! A tier of files in a directory: `u<uid>/<number>.block`, one for each version of a block.
//!
//! A file is written under another name and renamed when it is complete. Numbers are not used
//! again, so nothing is ever overwritten and a reader that has a file open keeps it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::bounds::{BoundFault, Budget, TierBounds};
use super::disk::{Disk, DiskFile};
use super::header::FileHead;
use crate::block::UserId;

/// The name of the file that says that the server stopped in order.
const CLEAN: &str = "clean";
const BLOCK: &str = "block";
const DRAFT: &str = "draft";
/// The time for which a tier that failed is passed over, unless configured: 5 s.
const RETRY_NS_DEFAULT: i64 = 5_000_000_000;
/// Bytes that are read from or written to a file at a time.
const PIECE_BYTES: usize = 256 << 10;

/// What a file on a tier survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Nothing: a block there counts as not flushed, as in memory.
    Scratch,
    /// The end of the server. Files are written and renamed, not synced.
    Written,
    /// The loss of power: files are synced before they are renamed, and their directory after.
    Synced,
}

/// A tier of files.
#[derive(Clone, Debug)]
pub struct DirectoryConfig {
    /// The directory, which must be there.
    pub path: PathBuf,
    /// What files there survive.
    pub durability: Durability,
    /// What may be held there, headers not counted.
    pub bounds: TierBounds,
    /// The time that reading 1 MiB takes, in microseconds: what it costs to fetch a block from
    /// here that was evicted from a faster tier.
    pub read_us_per_mib: u32,
    /// The time after a failure in which the tier is passed over, in nanoseconds.
    pub retry_ns: i64,
}

impl DirectoryConfig {
    /// A tier whose files survive the end of the server, on a disk of 1 GB/s.
    pub fn new(path: impl Into<PathBuf>, bounds: TierBounds) -> Self {
        Self {
            path: path.into(),
            durability: Durability::Written,
            bounds,
            read_us_per_mib: 1_000,
            retry_ns: RETRY_NS_DEFAULT,
        }
    }
}

/// Why a tier does not take a file.
#[derive(Debug)]
pub(crate) enum TierFault {
    /// A bound would be exceeded.
    Bound(BoundFault),
    /// The disk failed, or has failed a short time ago.
    Disk(String),
}

/// A tier of files, and what is held there.
pub(crate) struct DirectoryTier {
    pub(crate) config: DirectoryConfig,
    disk: Arc<dyn Disk>,
    budget: Mutex<Budget>,
    next_number: AtomicU64,
    /// The monotonic time until which the tier is passed over.
    failed_until_ns: AtomicI64,
    faults: AtomicU64,
}

/// One file of a block.
pub(crate) struct FileCopy {
    pub(crate) tier: usize,
    pub(crate) head: FileHead,
    path: PathBuf,
    header_bytes: u64,
    /// Whether the bytes of the file were seen to have their checksum since the start.
    pub(crate) is_checked: AtomicBool,
}

/// A file that was there at the start.
pub(crate) struct FoundFile {
    pub(crate) copy: FileCopy,
}

/// What the look at a directory at the start has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScanCounts {
    /// Files of blocks.
    pub(crate) found: u64,
    /// Files that were not complete, or have no valid header. They are removed.
    pub(crate) torn: u64,
    /// If the server before stopped in order: the epoch in which it had come into the map.
    pub(crate) clean_epoch: Option<u64>,
}

impl DirectoryTier {
    pub(crate) fn new(config: DirectoryConfig, disk: Arc<dyn Disk>) -> Self {
        let budget = Mutex::new(Budget::new(config.bounds));
        Self {
            config,
            disk,
            budget,
            next_number: AtomicU64::new(0),
            failed_until_ns: AtomicI64::new(i64::MIN),
            faults: AtomicU64::new(0),
        }
    }

    pub(crate) fn is_durable(&self) -> bool {
        self.config.durability != Durability::Scratch
    }

    /// Whether the tier is not passed over at this monotonic time.
    pub(crate) fn is_usable(&self, now_ns: i64) -> bool {
        now_ns >= self.failed_until_ns.load(Ordering::Relaxed)
    }

    /// Notes that the disk has failed; it is tried again after a while.
    pub(crate) fn note_fault(&self, now_ns: i64) {
        let until_ns = now_ns.saturating_add(self.config.retry_ns);
        self.failed_until_ns.store(until_ns, Ordering::Relaxed);
        self.faults.fetch_add(1, Ordering::Relaxed);
    }

    /// How often the disk has failed.
    pub(crate) fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }

    pub(crate) fn budget(&self) -> MutexGuard<'_, Budget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a file, for which there is room.
    pub(crate) fn create(
        self: &Arc<Self>,
        tier: usize,
        head: FileHead,
    ) -> Result<FileWriter, TierFault> {
        let taken = self.budget().take(head.user, head.bytes);
        taken.map_err(TierFault::Bound)?;
        // From here on, dropping the writer removes the file and gives the room back.
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let directory = self.user_directory(head.user);
        let mut writer = FileWriter {
            tier: Arc::clone(self),
            index: tier,
            draft: directory.join(format!("{number:016x}.{DRAFT}")),
            path: directory.join(format!("{number:016x}.{BLOCK}")),
            directory,
            head,
            file: None,
            is_finished: false,
        };
        match writer.open() {
            Ok(()) => Ok(writer),
            Err(error) => Err(writer.failed(&error)),
        }
    }

    /// Removes a file that is in force no longer. What cannot be removed is found by the next
    /// start, as an older version or a file of a removed block; so the failure is told.
    pub(crate) fn remove(&self, copy: &FileCopy) -> std::io::Result<()> {
        self.budget().give(copy.head.user, copy.head.bytes);
        match self.disk.remove(&copy.path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    pub(crate) fn open(&self, copy: &FileCopy) -> std::io::Result<Box<dyn DiskFile>> {
        self.disk.open(&copy.path)
    }

    /// Makes the removal of files of a user durable, where the tier is synced.
    pub(crate) fn sync_names(&self, user: UserId) -> std::io::Result<()> {
        match self.config.durability {
            Durability::Synced => self.disk.sync_directory(&self.user_directory(user)),
            Durability::Scratch | Durability::Written => Ok(()),
        }
    }

    fn user_directory(&self, user: UserId) -> PathBuf {
        self.config.path.join(format!("u{user}"))
    }

    /// Looks at what is there. Called once, before anything is written.
    pub(crate) fn scan(&self, tier: usize) -> std::io::Result<(Vec<FoundFile>, ScanCounts)> {
        let (mut found, mut counts) = (Vec::new(), ScanCounts::default());
        let mut next = 0;
        for name in self.disk.names(&self.config.path)? {
            if name == CLEAN {
                let path = self.config.path.join(name);
                let mut epoch = [0; 8];
                let read = self.disk.open(&path);
                let read = read.and_then(|file| file.read_at(&mut epoch, 0));
                counts.clean_epoch = read.is_ok().then(|| u64::from_le_bytes(epoch));
                self.disk.remove(&path)?;
                continue;
            }
            let user = name
                .to_str()
                .and_then(|name| name.strip_prefix('u')?.parse().ok());
            let Some(user) = user else { continue };
            let directory = self.config.path.join(name);
            for name in self.disk.names(&directory)? {
                let path = directory.join(name);
                let Some(number) = number_of(&path) else {
                    continue;
                };
                next = next.max(number + 1);
                match self.found(tier, user, path.clone()) {
                    Some(file) => found.push(file),
                    None => {
                        counts.torn += 1;
                        self.disk.remove(&path)?;
                    }
                }
            }
        }
        counts.found = found.len() as u64;
        self.next_number.store(next, Ordering::Relaxed);
        Ok((found, counts))
    }

    /// A file, if it is complete and has a valid header.
    fn found(&self, tier: usize, user: UserId, path: PathBuf) -> Option<FoundFile> {
        if path.extension().is_none_or(|extension| extension != BLOCK) {
            return None;
        }
        let file = self.disk.open(&path).ok()?;
        let mut start = [0; 10];
        file.read_at(&mut start, 0).ok()?;
        let mut header = vec![0; FileHead::length(&start)?];
        file.read_at(&mut header, 0).ok()?;
        let head = FileHead::decode(&header).ok()?;
        let header_bytes = header.len() as u64;
        let is_whole = file.bytes().ok()? == header_bytes.checked_add(head.bytes)?;
        if !is_whole || head.user != user || head.bytes > crate::BLOCK_BYTES_MAX {
            return None;
        }
        self.budget().add(user, head.bytes);
        Some(FoundFile {
            copy: FileCopy {
                tier,
                head,
                path,
                header_bytes,
                is_checked: AtomicBool::new(false),
            },
        })
    }

    /// Notes that the server stops in order: everything that was acknowledged is on tiers.
    pub(crate) fn mark_clean(&self, joined_epoch: u64) -> std::io::Result<()> {
        let path = self.config.path.join(CLEAN);
        let mut file = match self.disk.create(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Ok(()),
            made => made?,
        };
        file.append(&joined_epoch.to_le_bytes())?;
        if self.config.durability == Durability::Synced {
            file.sync()?;
            self.disk.sync_directory(&self.config.path)?;
        }
        Ok(())
    }
}

/// The number of a file of ours.
fn number_of(path: &Path) -> Option<u64> {
    let is_ours = path
        .extension()
        .is_some_and(|it| it == BLOCK || it == DRAFT);
    let stem = path.file_stem()?.to_str()?;
    u64::from_str_radix(stem, 16)
        .ok()
        .filter(|number| is_ours && *number < u64::MAX)
}

impl FileCopy {
    /// Reads bytes of the block from its open file.
    pub(crate) fn read_at(
        &self,
        file: &dyn DiskFile,
        bytes: &mut [u8],
        offset: u64,
    ) -> std::io::Result<()> {
        file.read_at(bytes, self.header_bytes + offset)
    }

    /// Whether the bytes of the open file have their checksum: all of them are read.
    pub(crate) fn check(&self, file: &dyn DiskFile) -> std::io::Result<bool> {
        if self.is_checked.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let mut hasher = crc32fast::Hasher::new();
        let mut piece = vec![0; PIECE_BYTES];
        let mut at = 0;
        while at < self.head.bytes {
            let bytes = (self.head.bytes - at).min(PIECE_BYTES as u64);
            let piece = &mut piece[..bytes as usize];
            self.read_at(file, piece, at)?;
            hasher.update(piece);
            at += bytes;
        }
        let is_whole = hasher.finalize() == self.head.checksum;
        self.is_checked.store(is_whole, Ordering::Relaxed);
        Ok(is_whole)
    }
}

/// A file that is being written.
pub(crate) struct FileWriter {
    tier: Arc<DirectoryTier>,
    index: usize,
    directory: PathBuf,
    draft: PathBuf,
    path: PathBuf,
    head: FileHead,
    file: Option<Box<dyn DiskFile>>,
    is_finished: bool,
}

impl FileWriter {
    fn open(&mut self) -> std::io::Result<()> {
        self.tier.disk.make_directory(&self.directory)?;
        let mut file = self.tier.disk.create(&self.draft)?;
        file.append(&self.head.encode())?;
        self.file = Some(file);
        Ok(())
    }

    /// The tier on which it is.
    pub(crate) fn tier(&self) -> &Arc<DirectoryTier> {
        &self.tier
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), TierFault> {
        let file = self.file.as_mut();
        let written = file
            .expect("a writer has its file once it is open")
            .append(bytes);
        written.map_err(|error| self.failed(&error))
    }

    /// Makes it a file of the tier. The caller has written all bytes, with their checksum.
    pub(crate) fn finish(mut self) -> Result<FileCopy, TierFault> {
        if let Err(error) = self.complete() {
            return Err(self.failed(&error));
        }
        self.is_finished = true;
        let header_bytes = self.head.encode().len() as u64;
        Ok(FileCopy {
            tier: self.index,
            head: self.head.clone(),
            path: self.path.clone(),
            header_bytes,
            is_checked: AtomicBool::new(true),
        })
    }

    fn complete(&mut self) -> std::io::Result<()> {
        let is_synced = self.tier.config.durability == Durability::Synced;
        let mut file = self.file.take();
        if is_synced && let Some(file) = &mut file {
            file.sync()?;
        }
        let disk = &self.tier.disk;
        disk.rename(&self.draft, &self.path)?;
        if is_synced && let Err(error) = disk.sync_directory(&self.directory) {
            // Its name may be gone after a loss of power: it is no copy.
            let _ = disk.remove(&self.path);
            return Err(error);
        }
        Ok(())
    }

    fn failed(&self, error: &std::io::Error) -> TierFault {
        TierFault::Disk(format!("{}: {error}", self.draft.display()))
    }
}

impl Drop for FileWriter {
    fn drop(&mut self) {
        if !self.is_finished {
            self.file = None;
            // A draft that stays is removed by the next start.
            let _ = self.tier.disk.remove(&self.draft);
            self.tier.budget().give(self.head.user, self.head.bytes);
        }
    }
}

//! A tier below memory: its medium, what is held and written there, and whether it works.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::bounds::{BoundFault, Budget, TierBounds};
use super::config::{DirectoryConfig, Durability, RemoteConfig};
use super::copy::FileCopy;
use super::directory::DirectoryMedium;
use super::disk::Disk;
use super::found::FoundCopy;
use super::header::FileHead;
use super::leftovers::{Leftover, Leftovers};
use super::medium::{CopyReader, Draft, Medium};
use super::objects::ObjectMedium;
use crate::block::UserId;

/// Why a tier does not take a copy.
#[derive(Debug)]
pub(crate) enum TierFault {
    /// A bound would be exceeded.
    Bound(BoundFault),
    /// The medium takes no copy of this size.
    TooLarge(u64),
    /// The disk or the store failed, or has failed a short time ago.
    Disk(String),
}

/// A tier below memory.
pub(crate) struct LowerTier {
    /// Its directory or address.
    pub(crate) name: String,
    pub(crate) bounds: TierBounds,
    pub(crate) read_us_per_mib: u32,
    durability: Durability,
    retry_ns: i64,
    medium: Medium,
    budget: Mutex<Budget>,
    next_number: AtomicU64,
    /// The monotonic time until which the tier is passed over.
    failed_until_ns: AtomicI64,
    faults: AtomicU64,
    leftovers: Mutex<Leftovers>,
}

/// What the look at a tier at the start has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScanCounts {
    /// Copies of blocks.
    pub(crate) found: u64,
    /// Copies that were not complete, or have no valid header. They are removed.
    pub(crate) torn: u64,
    /// If the server before stopped in order: the epoch in which it had come into the map.
    pub(crate) clean_epoch: Option<u64>,
}

impl LowerTier {
    pub(crate) fn directory(config: DirectoryConfig, disk: Arc<dyn Disk>) -> Self {
        let name = config.path.to_string_lossy().into_owned();
        let medium = DirectoryMedium::new(config.path, disk, config.durability);
        Self {
            read_us_per_mib: config.read_us_per_mib,
            durability: config.durability,
            retry_ns: config.retry_ns,
            ..Self::new(name, Medium::Directory(medium), config.bounds)
        }
    }

    /// A tier of objects. `now_ns` is the time of day.
    pub(crate) fn remote(config: RemoteConfig, now_ns: i64) -> Self {
        let medium = ObjectMedium::new(config.store, now_ns);
        Self {
            read_us_per_mib: config.read_us_per_mib,
            durability: config.durability,
            retry_ns: config.retry_ns,
            ..Self::new(config.name, Medium::Objects(medium), config.bounds)
        }
    }

    fn new(name: String, medium: Medium, bounds: TierBounds) -> Self {
        Self {
            name,
            bounds,
            read_us_per_mib: 0,
            durability: Durability::Written,
            retry_ns: 0,
            medium,
            budget: Mutex::new(Budget::new(bounds)),
            next_number: AtomicU64::new(0),
            failed_until_ns: AtomicI64::new(i64::MIN),
            faults: AtomicU64::new(0),
            leftovers: Mutex::default(),
        }
    }

    pub(crate) fn is_durable(&self) -> bool {
        self.durability != Durability::Scratch
    }

    /// Whether the tier is not passed over at this monotonic time.
    pub(crate) fn is_usable(&self, now_ns: i64) -> bool {
        now_ns >= self.failed_until_ns.load(Ordering::Relaxed)
    }

    /// Notes that the medium has failed; it is tried again after a while.
    pub(crate) fn note_fault(&self, now_ns: i64) {
        let until_ns = now_ns.saturating_add(self.retry_ns);
        self.failed_until_ns.store(until_ns, Ordering::Relaxed);
        self.faults.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a copy could not be read. A store that does not answer is passed over, so that
    /// not every reader waits for it; that one file of a disk is bad says nothing of the others.
    pub(crate) fn note_read_fault(&self, error: &io::Error, now_ns: i64) {
        if self.medium.is_remote() && !is_lost(error) && self.is_usable(now_ns) {
            self.note_fault(now_ns);
        }
    }

    /// How often the medium has failed.
    pub(crate) fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }

    pub(crate) fn budget(&self) -> MutexGuard<'_, Budget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leftovers(&self) -> MutexGuard<'_, Leftovers> {
        let leftovers = self.leftovers.lock();
        leftovers.unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a copy, for which there is room.
    pub(crate) fn create(
        self: &Arc<Self>,
        tier: usize,
        head: FileHead,
    ) -> Result<FileWriter, TierFault> {
        let bytes_max = self.medium.copy_bytes_max();
        let header_bytes = head.encode().len() as u64;
        if head.bytes.saturating_add(header_bytes) > bytes_max {
            return Err(TierFault::TooLarge(bytes_max));
        }
        let taken = self.budget().take(head.user, head.bytes);
        taken.map_err(TierFault::Bound)?;
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        match self.medium.create(number, &head) {
            Ok((name, draft)) => Ok(FileWriter::new(self, tier, head, name, draft)),
            Err(error) => {
                self.budget().give(head.user, head.bytes);
                Err(TierFault::Disk(self.said(&error)))
            }
        }
    }

    /// The error with the tier, unless it names it already.
    fn said(&self, error: &io::Error) -> String {
        let text = error.to_string();
        match text.starts_with(&self.name) {
            true => text,
            false => format!("{}: {text}", self.name),
        }
    }

    /// Removes a copy that is in force no longer. What cannot be removed from a directory is found
    /// by the next start, as an older version or a file of a removed block; so the failure is
    /// told. With a store of objects it is tried again for as long as the server runs.
    pub(crate) fn remove(&self, copy: &FileCopy, now_ns: i64) -> io::Result<()> {
        if !self.medium.is_remote() {
            self.budget().give(copy.head.user, copy.head.bytes);
            return self.medium.remove(&copy.name);
        }
        let removed = match self.is_usable(now_ns) {
            true => self.medium.remove(&copy.name),
            false => Err(self.failed_recently()),
        };
        match &removed {
            Ok(()) => self.budget().give(copy.head.user, copy.head.bytes),
            Err(_) => {
                if self.is_usable(now_ns) {
                    self.note_fault(now_ns);
                }
                self.leave(copy.name.clone(), copy.head.user, copy.head.bytes);
            }
        }
        removed
    }

    /// As [`LowerTier::remove`], but a store of objects is not waited for: [`LowerTier::sweep`]
    /// does it.
    pub(crate) fn remove_later(&self, copy: &FileCopy, now_ns: i64) -> io::Result<()> {
        match self.medium.is_remote() {
            true => {
                self.leave(copy.name.clone(), copy.head.user, copy.head.bytes);
                Ok(())
            }
            false => self.remove(copy, now_ns),
        }
    }

    /// Has an object removed later, which takes its room until then.
    fn leave(&self, name: Box<str>, user: UserId, bytes: u64) {
        self.leftovers().push(Leftover { name, user, bytes });
    }

    /// Whether removals wait that may be tried now.
    pub(crate) fn has_leftovers(&self, now_ns: i64) -> bool {
        self.is_usable(now_ns) && self.leftovers().has_some()
    }

    /// Removes one of the objects that wait for it. Returns whether one was removed.
    pub(crate) fn sweep(&self, now_ns: i64) -> bool {
        if !self.is_usable(now_ns) {
            return false;
        }
        let Some(leftover) = self.leftovers().take() else {
            return false;
        };
        if self.medium.remove(&leftover.name).is_ok() {
            self.budget().give(leftover.user, leftover.bytes);
            self.leftovers().end(None);
            return true;
        }
        self.note_fault(now_ns);
        self.leftovers().end(Some(leftover));
        false
    }

    /// Opens a copy. A store of objects that has failed is not asked.
    pub(crate) fn open(&self, copy: &FileCopy, now_ns: i64) -> io::Result<CopyReader> {
        match self.medium.is_remote() && !self.is_usable(now_ns) {
            true => Err(self.failed_recently()),
            false => self.medium.open(&copy.name),
        }
    }

    fn failed_recently(&self) -> io::Error {
        io::Error::other("failed a short time ago")
    }

    /// Makes the removal of copies of a user durable, where the tier is synced.
    pub(crate) fn sync_names(&self, user: UserId) -> io::Result<()> {
        self.medium.sync_names(user)
    }

    /// Looks at what is there. Called once, before anything is written.
    pub(crate) fn scan(&self, tier: usize) -> io::Result<(Vec<FileCopy>, ScanCounts)> {
        let scanned = self.medium.scan();
        let (scan, next) = scanned.map_err(|error| match self.medium.is_remote() {
            true => {
                let why = format!("{error}; start its server, or leave this tier out");
                io::Error::new(error.kind(), why)
            }
            false => error,
        })?;
        self.next_number.store(next, Ordering::Relaxed);
        let counts = ScanCounts {
            found: scan.copies.len() as u64,
            torn: scan.torn,
            clean_epoch: scan.clean_epoch,
        };
        let copies = scan.copies.into_iter().map(|found| {
            self.budget().add(found.head.user, found.head.bytes);
            self.copy(tier, found, false)
        });
        Ok((copies.collect(), counts))
    }

    fn copy(&self, tier: usize, found: FoundCopy, is_checked: bool) -> FileCopy {
        FileCopy {
            tier,
            head: found.head,
            name: found.name,
            header_bytes: found.header_bytes,
            // What a network and a store have made of an object is seen when it is read.
            is_checked: AtomicBool::new(is_checked && !self.medium.is_remote()),
        }
    }

    /// Notes that the server stops in order: everything that was acknowledged is on tiers, and
    /// nothing else.
    pub(crate) fn mark_clean(&self, joined_epoch: u64) -> io::Result<()> {
        match self.leftovers().is_empty() {
            true => self.medium.mark_clean(joined_epoch),
            false => Err(io::Error::other("removed blocks are still there")),
        }
    }
}

/// A copy that is being written. Dropped before its end, it leaves nothing, and gives its room
/// back.
pub(crate) struct FileWriter {
    tier: Arc<LowerTier>,
    index: usize,
    head: FileHead,
    name: Box<str>,
    /// `None` when it is finished, or its end failed.
    draft: Option<Draft>,
    /// Whether its room is still to be given back.
    has_room: bool,
}

impl FileWriter {
    fn new(
        tier: &Arc<LowerTier>,
        index: usize,
        head: FileHead,
        name: Box<str>,
        draft: Draft,
    ) -> Self {
        Self {
            tier: Arc::clone(tier),
            index,
            head,
            name,
            draft: Some(draft),
            has_room: true,
        }
    }

    /// The tier on which it is.
    pub(crate) fn tier(&self) -> &Arc<LowerTier> {
        &self.tier
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), TierFault> {
        let draft = self.draft.as_mut();
        let draft = draft.expect("a writer has its draft until it is finished");
        let written = draft.append(bytes);
        written.map_err(|error| TierFault::Disk(self.tier.said(&error)))
    }

    /// Makes it a copy of the tier. The caller has written all bytes, with their checksum.
    pub(crate) fn finish(mut self) -> Result<FileCopy, TierFault> {
        let draft = self.draft.take();
        let draft = draft.expect("a writer is finished once");
        if let Err(error) = self.tier.medium.finish(&self.name, draft) {
            if self.tier.medium.is_remote() {
                // The store may have taken it all the same.
                self.has_room = false;
                let (user, bytes) = (self.head.user, self.head.bytes);
                self.tier.leave(self.name.clone(), user, bytes);
            }
            return Err(TierFault::Disk(self.tier.said(&error)));
        }
        self.has_room = false;
        let found = FoundCopy {
            name: self.name.clone(),
            header_bytes: self.head.encode().len() as u64,
            head: self.head.clone(),
        };
        Ok(self.tier.copy(self.index, found, true))
    }
}

impl Drop for FileWriter {
    fn drop(&mut self) {
        if let Some(draft) = self.draft.take() {
            self.tier.medium.abandon(draft);
        }
        if self.has_room {
            self.tier.budget().give(self.head.user, self.head.bytes);
        }
    }
}

/// Whether an error says that a copy is gone.
pub(crate) fn is_lost(error: &io::Error) -> bool {
    let lost = [io::ErrorKind::NotFound, io::ErrorKind::UnexpectedEof];
    lost.contains(&error.kind())
}

//! The store itself: its tiers, its lock, and what it tells of itself.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use barograph_model::Clock;

use super::config::StoreConfig;
use super::recover::recover;
use super::state::{State, StoreCounts, TierUse};
use crate::block::UserId;
use crate::error::{FaultCode, StagingError};
use crate::memory::MemoryTier;
use crate::tier::{Budget, DirectoryLock, Disk, FileCopy, LowerTier, RealDisk};

/// The longest time between two looks of a put that waits for room, in nanoseconds. Most changes
/// wake it; memory that a reader gives back does not.
const ROOM_LOOK_NS_MAX: i64 = 20_000_000;

/// Whether a server was in every map of servers up to the one that it is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerMembership {
    /// It was in the map before as well.
    Stayed,
    /// It comes into the map, for the first time or again: what it has may be old.
    Joined,
}

/// Blocks in memory, in directories and in stores of objects. All functions may be called by many
/// threads.
pub struct BlockStore {
    pub(crate) config: StoreConfig,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) memory: Arc<MemoryTier>,
    /// The tiers below memory: directories, and then stores of objects.
    pub(crate) lower: Vec<Arc<LowerTier>>,
    state: Mutex<State>,
    /// Told when there may be room again.
    room: Condvar,
    /// Told when there is something to flush.
    work: Condvar,
    /// Keep other servers out of the directories.
    _locks: Vec<DirectoryLock>,
}

impl BlockStore {
    /// Opens a store, with the blocks that are in its directories and stores of objects.
    ///
    /// # Errors
    ///
    /// A directory or store of objects cannot be read, torn files in it cannot be removed, or
    /// another server has the directory.
    pub fn open(config: StoreConfig, clock: Arc<dyn Clock>) -> Result<Arc<Self>, StagingError> {
        let paths = config.directories.iter().map(|config| &config.path);
        let locks = paths.map(|path| DirectoryLock::take(path));
        let locks = locks.collect::<Result<_, _>>()?;
        Self::with_locks(config, clock, Arc::new(RealDisk), locks)
    }

    /// As [`BlockStore::open`], with another file system, and without locks.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn on_disk(
        config: StoreConfig,
        clock: Arc<dyn Clock>,
        disk: Arc<dyn Disk>,
    ) -> Result<Arc<Self>, StagingError> {
        Self::with_locks(config, clock, disk, Vec::new())
    }

    fn with_locks(
        config: StoreConfig,
        clock: Arc<dyn Clock>,
        disk: Arc<dyn Disk>,
        locks: Vec<DirectoryLock>,
    ) -> Result<Arc<Self>, StagingError> {
        let directories = config.directories.iter().cloned();
        let directories = directories.map(|it| LowerTier::directory(it, Arc::clone(&disk)));
        let now_ns = clock.now_ns();
        let remotes = config.remotes.iter().cloned();
        let remotes = remotes.map(|it| LowerTier::remote(it, now_ns));
        let lower: Vec<_> = directories.chain(remotes).map(Arc::new).collect();
        let mut state = State::new(Budget::new(config.dirty_bounds()));
        recover(&lower, &mut state, clock.monotonic_ns())?;
        Ok(Arc::new(Self {
            memory: MemoryTier::new(config.memory.bounds),
            config,
            clock,
            lower,
            state: Mutex::new(state),
            room: Condvar::new(),
            work: Condvar::new(),
            _locks: locks,
        }))
    }

    /// What has happened since the start.
    pub fn counts(&self) -> StoreCounts {
        self.lock().counts
    }

    /// What is held in each tier: memory first.
    pub fn tiers(&self) -> Vec<TierUse> {
        let now_ns = self.clock.monotonic_ns();
        let ([bytes, blocks], _) = self.memory.held(0);
        let bounds = self.config.memory.bounds;
        let memory = TierUse {
            bytes,
            bytes_max: bounds.bytes_max,
            blocks,
            blocks_max: bounds.blocks_max,
            ..TierUse::default()
        };
        let lower = self.lower.iter().map(|tier| {
            let held = tier.budget().total();
            TierUse {
                bytes: held.bytes,
                bytes_max: tier.bounds.bytes_max,
                blocks: held.blocks,
                blocks_max: tier.bounds.blocks_max,
                faults: tier.faults(),
                is_passed_over: !tier.is_usable(now_ns),
            }
        });
        std::iter::once(memory).chain(lower).collect()
    }

    /// Bytes and blocks of one user in memory.
    pub fn user_memory(&self, user: UserId) -> [u64; 2] {
        self.memory.held(user).1
    }

    /// Bytes that are on no durable tier yet, those of unfinished puts among them.
    pub fn dirty_bytes(&self) -> u64 {
        self.lock().dirty.total().bytes
    }

    /// Notes that this server is in the map of this epoch. If it has joined with it, blocks that it
    /// has from before are unconfirmed from now on.
    pub fn note_epoch(&self, epoch: u64, membership: ServerMembership) {
        let mut state = self.lock();
        if membership == ServerMembership::Joined {
            state.joined_epoch = state.joined_epoch.max(epoch);
        }
    }

    /// Notes in each tier that everything acknowledged is there, so that the next start trusts
    /// it. Called when nothing puts any more.
    ///
    /// # Errors
    ///
    /// Blocks are still dirty, removed ones are still there, or the tier cannot be written.
    pub fn mark_clean(&self) -> Result<(), StagingError> {
        let dirty_bytes = self.dirty_bytes();
        if dirty_bytes > 0 {
            let text = format!("{dirty_bytes} bytes are on no durable tier yet");
            return Err(StagingError::fault(FaultCode::Busy, text));
        }
        let (joined_epoch, may_have_lost) = {
            let state = self.lock();
            (state.joined_epoch, state.may_have_lost)
        };
        if may_have_lost {
            // What a former life has lost is not known any better after this one.
            return Ok(());
        }
        for tier in &self.lower {
            let marked = tier.mark_clean(joined_epoch);
            marked.map_err(|source| StagingError::Path {
                what: "mark as clean",
                path: tier.name.clone().into(),
                source,
            })?;
        }
        Ok(())
    }

    /// Whether copies on this tier make a block clean. Without a durable tier, those of any do.
    pub(crate) fn makes_clean(&self, tier: usize) -> bool {
        let is_durable = |tier: &Arc<LowerTier>| tier.is_durable();
        let some_are = self.lower.iter().any(is_durable);
        !some_are || self.lower.get(tier).is_some_and(is_durable)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes copies that are in force no longer, with no lock held: files now, and objects by
    /// the threads that flush.
    pub(crate) fn discard(&self, files: Vec<Arc<FileCopy>>) {
        if files.is_empty() {
            return;
        }
        let now_ns = self.clock.monotonic_ns();
        let left = files.iter().filter(|copy| {
            let tier = self.lower.get(copy.tier);
            tier.is_some_and(|tier| tier.remove_later(copy, now_ns).is_err())
        });
        let left = left.count() as u64;
        if left > 0 {
            self.lock().counts.left_behind += left;
        }
        self.tell_room();
        if self.has_leftovers() {
            self.tell_work();
        }
    }

    /// Removes an object that waits for it. Returns whether one was removed.
    pub(crate) fn sweep(&self) -> bool {
        let now_ns = self.clock.monotonic_ns();
        let has_swept = self.lower.iter().any(|tier| tier.sweep(now_ns));
        if has_swept {
            self.tell_room();
        }
        has_swept
    }

    pub(crate) fn has_leftovers(&self) -> bool {
        let now_ns = self.clock.monotonic_ns();
        self.lower.iter().any(|tier| tier.has_leftovers(now_ns))
    }

    pub(crate) fn tell_room(&self) {
        self.room.notify_all();
    }

    pub(crate) fn tell_work(&self) {
        self.work.notify_one();
    }

    /// Waits until there may be room, or until a monotonic time.
    #[expect(
        clippy::disallowed_methods,
        reason = "a put waits for room up to the time that its client has stated"
    )]
    pub(crate) fn wait_for_room(&self, until_ns: i64) {
        let left_ns = until_ns.saturating_sub(self.clock.monotonic_ns());
        let left_ns = left_ns.clamp(0, ROOM_LOOK_NS_MAX).unsigned_abs();
        let state = self.lock();
        drop(self.room.wait_timeout(state, Duration::from_nanos(left_ns)));
    }

    /// Waits, from a look at the state in which nothing was to be done, until there may be
    /// something to flush, or for a time in nanoseconds.
    #[expect(
        clippy::disallowed_methods,
        reason = "the thread that flushes waits here, and nowhere else"
    )]
    pub(crate) fn wait_for_work(&self, state: MutexGuard<'_, State>, for_ns: i64) {
        let time = Duration::from_nanos(for_ns.max(0).unsigned_abs());
        drop(self.work.wait_timeout(state, time));
    }

    /// Wakes all threads that wait for work.
    pub(crate) fn tell_all_work(&self) {
        self.work.notify_all();
    }
}

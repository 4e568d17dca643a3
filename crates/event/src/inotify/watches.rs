//! The watches of the kernel: which directory each belongs to, which directories have none, and the
//! names that were told of directories when they were read.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use hashbrown::HashTable;
use rustix::fs::inotify::{WatchFlags, add_watch, remove_watch};
use rustix::io::Errno;

use super::InotifyConfig;
use super::id_set::{IdSet, halves, hash};
use super::queue::Queue;
use crate::event::ObjectId;
use crate::scan::{Mode, Name, Names, Watcher};

/// Most names of directories that were read a moment ago. Beyond it, a name that was made in this
/// moment may be told twice.
const FRESH_NAMES_MAX: usize = 1 << 20;
/// Pieces of work, such as looking at a name, that are done before the kernel's queue is drained
/// again. Draining an empty queue takes less than a tenth of the time of looking at so many names.
const WORK_PER_DRAIN: usize = 32;
/// Slots that are no longer used, from which on they are given back.
const DEAD_MIN: usize = 4_096;

/// A watch, sorted by its number. The kernel counts upwards, so that new ones come to the end.
#[derive(Clone, Copy, Debug)]
struct Slot {
    wd: i32,
    /// Number of the device, or [`DEAD`].
    device: u32,
    inode: u64,
}

/// The device of a slot whose watch is gone.
const DEAD: u32 = u32::MAX;

/// Which directory each watch belongs to, in some 26 bytes each.
#[derive(Debug, Default)]
pub(super) struct WatchTable {
    slots: VecDeque<Slot>,
    by_id: HashTable<i32>,
    devices: Vec<u64>,
    dead: usize,
}

impl WatchTable {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>() + self.by_id.allocation_size()
    }

    /// The directory of a watch.
    pub(super) fn directory(&self, wd: i32) -> Option<ObjectId> {
        let slot = self.slots[self.position(wd).ok()?];
        self.id_of(&slot)
    }

    /// The watch of a directory.
    pub(super) fn watch(&self, id: ObjectId) -> Option<i32> {
        let is_it = |wd: &i32| self.directory(*wd) == Some(id);
        self.by_id.find(hash(id), is_it).copied()
    }

    /// Takes in a watch. If it, or the directory, had another one, that is forgotten.
    pub(super) fn insert(&mut self, wd: i32, id: ObjectId) {
        if self.directory(wd) == Some(id) {
            return;
        }
        self.remove(id);
        if let Some(old) = self.directory(wd) {
            self.remove(old);
        }
        let (device, inode) = halves(id);
        let device = self.device(device);
        let slot = Slot { wd, device, inode };
        match self.position(wd) {
            Ok(at) => {
                self.slots[at] = slot;
                self.dead -= 1;
            }
            Err(at) if at == self.slots.len() => {
                if self.slots.len() == self.slots.capacity() {
                    // Doubling would take twice the memory of what is needed.
                    self.slots.reserve_exact((self.slots.len() / 8).max(64));
                }
                self.slots.push_back(slot);
            }
            Err(at) => self.slots.insert(at, slot),
        }
        let (slots, devices) = (&self.slots, &self.devices);
        let hash_of = |wd: &i32| match slots.binary_search_by_key(wd, |slot| slot.wd) {
            Ok(at) => hash(ObjectId::of(
                devices[slots[at].device as usize],
                slots[at].inode,
            )),
            Err(_) => 0,
        };
        self.by_id.insert_unique(hash(id), wd, hash_of);
    }

    /// Forgets the watch of a directory.
    pub(super) fn remove(&mut self, id: ObjectId) -> Option<i32> {
        let wd = self.watch(id)?;
        if let Ok(entry) = self.by_id.find_entry(hash(id), |of| *of == wd) {
            entry.remove();
        }
        if let Ok(at) = self.position(wd) {
            self.slots[at].device = DEAD;
            self.dead += 1;
        }
        if self.dead > DEAD_MIN && self.dead > self.slots.len() / 2 {
            self.slots.retain(|slot| slot.device != DEAD);
            self.dead = 0;
        }
        Some(wd)
    }

    fn position(&self, wd: i32) -> Result<usize, usize> {
        self.slots.binary_search_by_key(&wd, |slot| slot.wd)
    }

    fn id_of(&self, slot: &Slot) -> Option<ObjectId> {
        let device = self.devices.get(slot.device as usize)?;
        Some(ObjectId::of(*device, slot.inode))
    }

    fn device(&mut self, device: u64) -> u32 {
        let found = self.devices.iter().position(|of| *of == device);
        let at = found.unwrap_or_else(|| {
            self.devices.push(device);
            self.devices.len() - 1
        });
        at as u32
    }
}

/// The names that were told of a directory when it was read. Events up to a place in the queue may
/// be of the time before it was read.
#[derive(Debug)]
struct Fresh {
    until: u64,
    names: Names,
}

/// The watches of an inotify instance.
#[derive(Debug)]
pub(super) struct Watches {
    pub(super) fd: OwnedFd,
    pub(super) queue: Queue,
    pub(super) table: WatchTable,
    flags: WatchFlags,
    watches_max: usize,
    /// Directories that have no watch because there are too many.
    pub(super) unwatched: IdSet,
    /// The error of the last directory that got no watch.
    pub(super) refused: Option<Errno>,
    fresh: HashMap<ObjectId, Fresh>,
    /// Directories that were read a moment ago, in this order.
    fresh_order: VecDeque<(u64, ObjectId)>,
    fresh_names: usize,
    /// Directories that were not where they are known to be when they were to be read. They are
    /// read when the event is told that has moved a directory above them.
    pub(super) missed: BTreeMap<ObjectId, Mode>,
    /// Position up to which events were told when missed directories were read again.
    missed_from: u64,
    /// Names that were not where the events said, because something above them has moved since.
    pub(super) unseen: BTreeSet<Name>,
    /// Pieces of work since the kernel's queue was drained.
    work: usize,
}

impl Watches {
    pub(super) fn new(fd: OwnedFd, flags: WatchFlags, config: &InotifyConfig) -> Self {
        Self {
            fd,
            queue: Queue::new(config.queue_bytes_max),
            table: WatchTable::default(),
            flags,
            watches_max: config.watches_max,
            unwatched: IdSet::default(),
            refused: None,
            fresh: HashMap::new(),
            fresh_order: VecDeque::new(),
            fresh_names: 0,
            missed: BTreeMap::new(),
            missed_from: 0,
            unseen: BTreeSet::new(),
            work: 0,
        }
    }

    /// Moves events of the kernel into memory.
    pub(super) fn drain(&mut self) {
        self.work = 0;
        self.queue.drain(&self.fd);
    }

    /// The names that were told of a directory, if the event that is told now may be of the time
    /// before it was read.
    pub(super) fn fresh(&mut self, dir: ObjectId) -> Option<&mut Names> {
        self.expire();
        self.fresh.get_mut(&dir).map(|fresh| &mut fresh.names)
    }

    /// The directories that were missed before events of more than this many bytes were told.
    pub(super) fn take_missed(&mut self, bytes: u64) -> BTreeMap<ObjectId, Mode> {
        let told = self.queue.told();
        if self.missed.is_empty() || told - self.missed_from <= bytes {
            return BTreeMap::new();
        }
        self.missed_from = told;
        std::mem::take(&mut self.missed)
    }

    /// The next name after this one that is to be looked at again.
    pub(super) fn next_unseen(&self, after: Option<Name>) -> Option<Name> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.unseen.range((from, Bound::Unbounded)).next().cloned()
    }

    /// Forgets names whose time is over.
    pub(super) fn expire(&mut self) {
        let told = self.queue.told();
        while let Some((until, dir)) = self.fresh_order.front().copied() {
            if until > told && self.fresh_names <= FRESH_NAMES_MAX {
                return;
            }
            self.fresh_order.pop_front();
            if self
                .fresh
                .get(&dir)
                .is_some_and(|fresh| fresh.until == until)
            {
                self.drop_fresh(dir);
            }
        }
    }

    fn drop_fresh(&mut self, dir: ObjectId) {
        if let Some(fresh) = self.fresh.remove(&dir) {
            self.fresh_names = self.fresh_names.saturating_sub(fresh.names.len());
        }
    }
}

impl Watcher for Watches {
    fn before_work(&mut self) {
        self.work += 1;
        if self.work >= WORK_PER_DRAIN {
            self.drain();
        }
    }

    fn watch(&mut self, dir: ObjectId, fd: BorrowedFd<'_>) {
        let is_full = self.table.len() >= self.watches_max && self.table.watch(dir).is_none();
        self.drain();
        // The directory that is open, whatever its path is now.
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let added = match is_full {
            true => Err(Errno::NOSPC),
            false => add_watch(&self.fd, path, self.flags),
        };
        match added {
            Ok(wd) => {
                self.table.insert(wd, dir);
                self.missed.remove(&dir);
                self.unwatched.remove(dir);
            }
            Err(error) => {
                self.refused = Some(error);
                self.unwatched.insert(dir);
            }
        }
    }

    fn was_read(&mut self, dir: ObjectId, names: Names) {
        self.drop_fresh(dir);
        let until = self.queue.end(&self.fd);
        if until > self.queue.told() && self.table.watch(dir).is_some() {
            self.fresh_names += names.len();
            self.fresh.insert(dir, Fresh { until, names });
            self.fresh_order.push_back((until, dir));
            self.expire();
        }
    }

    fn was_missed(&mut self, dir: ObjectId, mode: Mode) {
        self.missed.insert(dir, mode);
    }

    fn forget(&mut self, dir: ObjectId) {
        self.missed.remove(&dir);
        // If it comes back, it is read, and its names are told anew.
        let first = Name::new(dir, b"");
        let names = self.unseen.range(first..);
        let names: Vec<_> = names.take_while(|name| name.dir == dir).cloned().collect();
        names.iter().for_each(|name| drop(self.unseen.take(name)));
        self.unwatched.remove(dir);
        self.drop_fresh(dir);
        if let Some(wd) = self.table.remove(dir) {
            // The watch of a directory that was removed is gone already.
            let _ = remove_watch(&self.fd, wd);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use proptest::prelude::*;
    use rustix::fs::inotify::{CreateFlags, ReadFlags, init};
    use tempfile::TempDir;

    use super::*;

    /// A watched directory.
    fn watched() -> (TempDir, Watches, ObjectId) {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let fd = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        let mut watches = Watches::new(fd, WatchFlags::CREATE, &InotifyConfig::new("none"));
        let id = ObjectId::of(1, 2);
        watches.watch(id, std::fs::File::open(dir.path()).unwrap().as_fd());
        (dir, watches, id)
    }

    #[test]
    fn names_of_a_directory_are_known_for_all_events_of_before_it_was_read() {
        let (dir, mut watches, id) = watched();
        let mut names = Names::default();
        for name in ["a", "b"] {
            std::fs::write(dir.path().join(name), b"").unwrap();
            names.insert(name.as_bytes(), ObjectId::of(1, 3));
        }
        watches.was_read(id, names);
        std::fs::write(dir.path().join("c"), b"").unwrap();
        watches.drain();
        for is_known in [true, true, false] {
            let event = watches.queue.pop().unwrap();
            assert_eq!(watches.fresh(id).is_some(), is_known, "{event:?}");
            watches.queue.tell(&event);
        }
        // Nothing waits, so that nothing is kept.
        watches.was_read(id, Names::default());
        assert!(watches.fresh(id).is_none() && watches.fresh.is_empty());
    }

    #[test]
    fn work_leaves_room_in_the_queue_of_the_kernel() {
        let limit = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
        let limit: usize = limit.trim().parse().unwrap();
        let (dir, mut watches, _) = watched();
        for at in 0..2 * limit {
            std::fs::File::create(dir.path().join(at.to_string())).unwrap();
            if at % (limit / 2) == 0 {
                (0..WORK_PER_DRAIN).for_each(|_| watches.before_work());
            }
        }
        watches.drain();
        let mut count = 0;
        while let Some(event) = watches.queue.pop() {
            assert_eq!(event.mask, ReadFlags::CREATE);
            count += 1;
        }
        assert_eq!(count, 2 * limit);
    }

    proptest! {
        #[test]
        fn it_is_as_a_map(changes in proptest::collection::vec((0i32..40, 0u64..30, any::<bool>()), 0..200)) {
            let mut table = WatchTable::default();
            let mut model: BTreeMap<i32, u64> = BTreeMap::new();
            let id = |n: u64| ObjectId::of(n % 3, n);
            for (wd, n, is_removed) in changes {
                if is_removed {
                    let removed = table.remove(id(n));
                    let at = model.iter().find(|(_, of)| **of == n).map(|(wd, _)| *wd);
                    prop_assert_eq!(removed, at);
                    model.retain(|_, of| *of != n);
                } else {
                    table.insert(wd, id(n));
                    model.retain(|_, of| *of != n);
                    model.insert(wd, n);
                }
                prop_assert_eq!(table.len(), model.len());
                for wd in 0..40 {
                    prop_assert_eq!(table.directory(wd), model.get(&wd).map(|n| id(*n)));
                }
                for n in 0..30 {
                    let at = model.iter().find(|(_, of)| **of == n).map(|(wd, _)| *wd);
                    prop_assert_eq!(table.watch(id(n)), at);
                }
            }
        }
    }

    #[test]
    fn a_million_watches_take_thirty_megabytes() {
        let mut table = WatchTable::default();
        for n in 0..1_000_000 {
            table.insert(n + 1, ObjectId::of(7, n as u64));
        }
        assert!(table.bytes() <= 30_000_000, "{}", table.bytes());
        for n in 0..999_000 {
            table.remove(ObjectId::of(7, n));
        }
        assert_eq!(table.len(), 1_000);
        assert!(table.slots.len() < 10_000);
    }
}

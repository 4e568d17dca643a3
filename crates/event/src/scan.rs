//! A collector that walks a tree at an interval and tells what has changed since, for file systems
//! that tell nothing; and the walk that other collectors use to find what they have missed.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use crate::collector::{Collected, Collector, CollectorFault, CollectorStatus};
use crate::event::{FileEvent, ObjectId};

mod ahead;
mod config;
mod core;
mod learn;
mod names;
mod place;
mod tree;
mod walk;

use ahead::LookAhead;
pub use ahead::SCAN_THREADS_MAX;
pub use config::{EventKinds, Mounts, TreeConfig};
pub(crate) use core::{Core, is_root};
pub(crate) use learn::entry_of;
pub(crate) use names::Names;
pub(crate) use place::Identify;
pub(crate) use tree::Name;
pub(crate) use walk::{Mode, Walk, Walked, Watcher, forget, is_within};

/// A collector that compares a tree with what it was, at an interval.
///
/// All of its events are marked as reconciled. What is there at the very first start is not told.
pub struct ScanCollector {
    core: Core,
    compare_ns: i64,
}

impl ScanCollector {
    /// A collector of the trees below these directories.
    ///
    /// # Errors
    ///
    /// There is no root, or the snapshot cannot be read.
    pub fn open(roots: &[PathBuf], config: TreeConfig) -> Result<Self, CollectorFault> {
        let threads = config.threads;
        let mut core = Core::open(roots, config)?;
        if threads > 1 {
            core.walk.ahead = Some(LookAhead::start(threads - 1));
        }
        Ok(Self {
            core,
            compare_ns: i64::MAX,
        })
    }
}

impl Collector for ScanCollector {
    fn collect(
        &mut self,
        events: &mut Vec<FileEvent>,
        events_max: usize,
        now: (i64, i64),
    ) -> Result<Collected, CollectorFault> {
        let core = &mut self.core;
        core.begin(now);
        if now.1 >= self.compare_ns && !core.walk.is_busy() {
            core.walk
                .begin(&mut core.tree, Mode::Compare { is_deep: true }, None);
        }
        let interval_ns = core.config.compare_interval_ns;
        while core.tree.out.len() < events_max && core.step(&mut Unwatched) == Walked::More {}
        if !core.walk.is_busy() {
            self.compare_ns = match self.compare_ns {
                due_ns if due_ns > now.1 && due_ns != i64::MAX => due_ns,
                _ => now.1.saturating_add(interval_ns),
            };
        }
        Ok(core.end(events))
    }

    fn acknowledge(&mut self, index: u64) -> Result<(), CollectorFault> {
        self.core.acknowledge(index)
    }

    fn learns_from(&self) -> Option<(u64, i64)> {
        self.core.learns_from()
    }

    fn learn(&mut self, event: &FileEvent) {
        self.core.learn(event);
    }

    fn readable(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn due_ns(&self) -> i64 {
        self.core.due_ns().min(self.compare_ns)
    }

    fn status(&self) -> CollectorStatus {
        self.core.status(0, String::new())
    }
}

/// Nothing is watched.
struct Unwatched;

impl Watcher for Unwatched {
    fn watch(&mut self, _: ObjectId, _: BorrowedFd<'_>) {}

    fn was_read(&mut self, _: ObjectId, _: Names) {}

    fn forget(&mut self, _: ObjectId) {}
}

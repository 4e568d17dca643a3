//! What a collector of a tree is told to do.

use std::path::PathBuf;

use crate::event::EventKind;

/// A set of kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventKinds(u32);

impl EventKinds {
    /// Every kind but opening and closing what was not written.
    pub fn usual() -> Self {
        Self::all().without(&[EventKind::Open, EventKind::Close])
    }

    /// Every kind.
    pub fn all() -> Self {
        Self::of(EventKind::ALL)
    }

    /// These kinds.
    pub fn of(kinds: &[EventKind]) -> Self {
        Self(kinds.iter().fold(0, |bits, kind| bits | 1 << *kind as u32))
    }

    /// The set without these kinds.
    #[must_use]
    pub fn without(self, kinds: &[EventKind]) -> Self {
        Self(self.0 & !Self::of(kinds).0)
    }

    /// Whether a kind is wanted. Gaps and their ends always are.
    pub fn has(self, kind: EventKind) -> bool {
        let is_mark = matches!(kind, EventKind::Gap | EventKind::Reconciled);
        is_mark || self.0 & 1 << kind as u32 != 0
    }
}

/// Whether file systems are collected that are mounted below a root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mounts {
    /// What is mounted below a root is not looked at.
    #[default]
    Stay,
    /// What is mounted below a root belongs to it.
    Cross,
}

/// What a collector of a tree is told to do, with its bounds.
#[derive(Clone, Debug)]
pub struct TreeConfig {
    /// File of the snapshot, in a directory that only the agent may write.
    pub snapshot: PathBuf,
    /// Number of the first event, at least: one more than the last that is durable.
    pub index_next: u64,
    /// Kinds of events that are wanted.
    pub kinds: EventKinds,
    /// Whether mount points below a root are crossed.
    pub mounts: Mounts,
    /// Most directories whose places are kept, at some 40 bytes each.
    pub directories_max: usize,
    /// Changes since the snapshot that are kept in memory, at some 150 bytes each, until it is
    /// written anew.
    pub changes_max: usize,
    /// Time after which the snapshot is written anew if something has changed, in ns.
    pub snapshot_interval_ns: i64,
    /// Time from one comparing to the next, in ns: of the whole tree for [`crate::ScanCollector`],
    /// of the directories without a watch for [`crate::InotifyCollector`].
    pub compare_interval_ns: i64,
    /// Most names that a walk looks at, per second.
    pub walk_rate: u32,
    /// Threads of the walks of [`crate::ScanCollector`], this one included: the others look ahead.
    pub threads: usize,
    /// Most names that are held by one comparing because an object may have moved.
    pub held_max: usize,
    /// Time after which a root that is missing is looked for again, in ns.
    pub retry_ns: i64,
}

impl TreeConfig {
    /// The defaults, with this file of the snapshot.
    pub fn new(snapshot: impl Into<PathBuf>) -> Self {
        Self {
            snapshot: snapshot.into(),
            index_next: 1,
            kinds: EventKinds::usual(),
            mounts: Mounts::Stay,
            directories_max: 4 << 20,
            changes_max: 50_000,
            snapshot_interval_ns: 300_000_000_000,
            compare_interval_ns: 60_000_000_000,
            walk_rate: 200_000,
            threads: 1,
            held_max: 100_000,
            retry_ns: 1_000_000_000,
        }
    }
}

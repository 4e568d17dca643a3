//! File events by fanotify (`fanotify(7)`): one mark sees a whole file system, however many
//! directories it has.
//!
//! It needs Linux 5.17, and CAP_SYS_ADMIN to open a [`FanotifyGroup`]. [`FanotifyCollector`] itself
//! needs no capability: it is given the open descriptors.
//!
//! # Paths
//!
//! The kernel names the directory of an event by its file handle. Neither rustix nor nix offers
//! `open_by_handle_at`, which would moreover need CAP_DAC_READ_SEARCH and give the path of now
//! instead of the path at the time of the event. So the collector learns all directories below its
//! roots by a walk when it starts, and follows them by the events from then on; events that arrive
//! during a walk are held until it is over. The handle of a path is read from
//! `/proc/self/fdinfo/N` of an inotify instance (`proc_pid_fdinfo(5)`), which has it for each
//! watch: that call is safe, and needs no capability beyond reading the directory.

mod collector;
mod group;
mod handles;
mod known;
mod parse;
mod rename;
mod roots;
mod settle;
mod tell;
mod told;
mod tree;

use std::path::PathBuf;

use crate::scan::TreeConfig;

pub use collector::FanotifyCollector;
pub use group::{FanotifyGroup, FanotifyQueue};

/// Reads bytes as those of a group, up to their end; returns the number of events that were read
/// and of those that were refused.
#[doc(hidden)] // For tests and fuzzing: a collector reads its group.
pub fn count_fanotify_events(bytes: &[u8]) -> (usize, usize) {
    let (mut rest, mut read, mut refused) = (bytes, 0, 0);
    while !rest.is_empty() {
        let (event, length) = parse::first(rest);
        match event {
            Ok(_) => read += 1,
            Err(_) => refused += 1,
        }
        // A length of 0 would be read for ever.
        assert!(
            length > 0,
            "the length of an event covers at least its header"
        );
        rest = &rest[length..];
    }
    (read, refused)
}

/// Settings of a [`FanotifyCollector`].
#[derive(Clone, Debug)]
pub struct FanotifyConfig {
    /// Path of the directory whose descriptor the group has ([`FanotifyGroup::base`]).
    pub base: PathBuf,
    /// Directories whose contents are watched: `base` itself or below it. One that is not there is
    /// found when it is made.
    pub roots: Vec<PathBuf>,
    /// Number of the first event.
    pub index_next: u64,
    /// Most directories that are known. Events in further ones are not seen.
    pub directories_max: usize,
    /// Most bytes of events that are held in memory during a walk. Beyond them, events are taken
    /// as they come, and those in directories that are not known yet are lost.
    pub held_bytes_max: usize,
    /// Processes whose events are not told, such as the agent itself, which would else react to
    /// what it writes.
    pub ignored_pids: Vec<i32>,
    /// Whether files are looked at (`lstat`) when they are made, changed or closed, for kind, size
    /// and owner. Without it, all new files are told as `create`.
    pub looks_at_files: bool,
    /// Whether events are missing before the start, since there was an earlier life: then the first
    /// event is a gap.
    pub starts_with_gap: bool,
    /// What is kept of the tree, so that events that were lost are found by comparing: then a gap
    /// is followed by what was missing and by `reconciled`. `None` keeps nothing, and a gap stays
    /// open. It needs the base as the only root.
    pub tree: Option<TreeConfig>,
}

impl FanotifyConfig {
    /// Default of [`Self::directories_max`]: some 160 MB.
    pub const DIRECTORIES_MAX: usize = 4_000_000;
    /// Default of [`Self::held_bytes_max`]: some 500,000 events.
    pub const HELD_BYTES_MAX: usize = 64 << 20;

    /// The defaults, for one root that is the base itself.
    pub fn new(base: impl Into<PathBuf>) -> Self {
        let base = base.into();
        Self {
            roots: vec![base.clone()],
            base,
            index_next: 1,
            directories_max: Self::DIRECTORIES_MAX,
            held_bytes_max: Self::HELD_BYTES_MAX,
            ignored_pids: Vec::new(),
            looks_at_files: true,
            starts_with_gap: false,
            tree: None,
        }
    }
}

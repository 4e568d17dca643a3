//! The files of each node, followed cheaply: a manifest is read again if its file was replaced, a
//! log segment if it has grown.
//!
//! This module stands alone because here a reader and the sealer race: the sealer replaces the
//! manifest before it unlinks anything, so a reader that finds the manifest unchanged afterwards
//! has missed nothing.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use barograph_model::SeriesId;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::held::{HeldFile, HeldPlaces};
use crate::log::LogPart;
use crate::manifest::{Manifest, SealedSeries, add_series};
use crate::part::PartKey;
use crate::{
    ArchiveError, ArchiveLayout, ArchivedSeries, ArchivedUpTo, DiskStorage, open, release, sweep,
};

/// Most reads of a node, which is read again if the sealer changed it meanwhile.
pub(crate) const LOOKS_MAX: usize = 16;
/// Descriptors that a process needs besides those of the files that it holds.
const OTHER_FILES: u64 = 1_024;

/// State of one node between views.
#[derive(Debug)]
pub(crate) struct NodeFollower {
    layout: ArchiveLayout,
    places: Arc<HeldPlaces>,
    /// Most files that it holds open.
    held_max: usize,
    stamp: Option<Stamp>,
    sealed: Arc<SealedFiles>,
    /// Log segments by sequence, as they are now; a growing one is copied for each view.
    logs: BTreeMap<u64, Arc<LogPart>>,
    /// Segments that cannot be read, and why: none of their samples count.
    unreadable: BTreeMap<u64, String>,
}

/// Metadata that shows whether a file was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

/// A manifest, and its newest files held open so that they can be read after they are unlinked.
/// Other files are opened when they are read: a merge meanwhile is noticed and followed, but what
/// retention has deleted by then is gone.
#[derive(Debug)]
pub(crate) struct SealedFiles {
    pub(crate) layout: ArchiveLayout,
    pub(crate) manifest: Manifest,
    pub(crate) held: HashMap<PartKey, Arc<HeldFile>>,
}

/// One node at one moment.
#[derive(Clone, Debug)]
pub(crate) struct NodeSnapshot {
    pub(crate) name: Arc<str>,
    pub(crate) sealed: Arc<SealedFiles>,
    /// Log segments that are not sealed, in order.
    pub(crate) logs: Vec<Arc<LogPart>>,
    /// Places of its series in the view's list.
    pub(crate) places: HashMap<SeriesId, usize>,
}

impl NodeFollower {
    pub(crate) fn new(layout: ArchiveLayout) -> Self {
        Self::holding(layout, HeldPlaces::of_process())
    }

    /// Returns a follower that holds its files in these places.
    pub(crate) fn holding(layout: ArchiveLayout, places: Arc<HeldPlaces>) -> Self {
        let sealed = SealedFiles {
            layout: layout.clone(),
            manifest: Manifest::default(),
            held: HashMap::new(),
        };
        Self {
            layout,
            held_max: places.share(1),
            places,
            stamp: None,
            sealed: Arc::new(sealed),
            logs: BTreeMap::new(),
            unreadable: BTreeMap::new(),
        }
    }

    /// Returns the log segments that are not sealed and cannot be read, and why. The newest may
    /// just be being created.
    pub(crate) fn unreadable(&self) -> &BTreeMap<u64, String> {
        &self.unreadable
    }

    /// Returns the paths that it follows.
    pub(crate) fn layout(&self) -> &ArchiveLayout {
        &self.layout
    }

    /// Sets how many nodes there are: from the next manifest on the follower holds no more files
    /// than its share.
    pub(crate) fn share(&mut self, nodes: usize) {
        self.held_max = self.places.share(nodes);
    }

    /// Reads what is new; returns whether anything is.
    pub(crate) fn follow(&mut self) -> Result<bool, ArchiveError> {
        let path = self.layout.manifest();
        let mut changed = false;
        for _ in 0..LOOKS_MAX {
            let stamp = Stamp::of(&path)?;
            if stamp != self.stamp {
                self.read_manifest()?;
                self.stamp = stamp;
                changed = true;
            }
            changed |= self.follow_logs()?;
            if Stamp::of(&path)? == stamp {
                return Ok(changed);
            }
        }
        // The sealer cannot be that fast for long: another process writes here.
        Err(unsteady(&path))
    }

    /// Whether a file is held open that was unlinked.
    pub(crate) fn holds_unlinked(&self) -> bool {
        let held = self.sealed.held.values().map(|held| &*held.file);
        let logs = self.logs.values().map(|log| log.file());
        held.chain(logs).any(release::is_unlinked)
    }

    fn read_manifest(&mut self) -> Result<(), ArchiveError> {
        let manifest = Manifest::read(&self.layout)?.unwrap_or_default();
        let mut held = HashMap::new();
        let mut newest: Vec<&PartKey> = manifest.parts.keys().collect();
        newest.sort_by_key(|key| (key.hour, key.first));
        for key in newest.into_iter().rev().take(self.held_max) {
            let file = match self.sealed.held.get(key) {
                Some(file) => Some(Arc::clone(file)),
                // A missing file was replaced, which the next look detects, or was deleted by hand.
                None => {
                    let open = || open::part(&self.layout, *key).ok();
                    self.places.hold(open).map(Arc::new)
                }
            };
            held.extend(file.map(|file| (*key, file)));
        }
        self.sealed = Arc::new(SealedFiles {
            layout: self.layout.clone(),
            manifest,
            held,
        });
        Ok(())
    }

    fn follow_logs(&mut self) -> Result<bool, ArchiveError> {
        let sealed = self.sealed.manifest.sealed_through;
        let mut files = sweep::logs(&self.layout, &DiskStorage)?;
        files.retain(|file| file.sequence > sealed);
        let there = |sequence: &u64| files.iter().any(|file| file.sequence == *sequence);
        let before = self.logs.len();
        self.logs.retain(|sequence, _| there(sequence));
        let mut changed = self.logs.len() != before;
        self.unreadable.clear();
        for file in &files {
            if let Some(log) = self.logs.get_mut(&file.sequence) {
                if log.has_news()? {
                    let mut next = log.fork()?;
                    changed |= next.follow()?;
                    *log = Arc::new(next);
                }
                continue;
            }
            match LogPart::of_sequence(&file.path, file.sequence) {
                Ok(log) => {
                    self.logs.insert(file.sequence, Arc::new(log));
                    changed = true;
                }
                // The header is being written, or it is damaged, which the sealer reports and
                // counts; or the segment was sealed just now, which the manifest shows.
                Err(ArchiveError::Corrupt { reason, .. }) => {
                    self.unreadable.insert(file.sequence, reason);
                }
                Err(error) if error.is_gone() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(changed)
    }

    /// Returns the node as it is now; its series are added to `series`, whose places are not known
    /// yet.
    pub(crate) fn node(&self, series: &mut Vec<ArchivedSeries>) -> NodeSnapshot {
        let manifest = &self.sealed.manifest;
        let of_log = self.logs.values().next().map(|log| log.node());
        let name = match (manifest.node.as_str(), of_log) {
            ("", Some(name)) if !name.is_empty() => name,
            ("", _) => self.layout.encoded(),
            (name, _) => name,
        };
        let name: Arc<str> = Arc::from(name);
        let mut known: BTreeMap<SeriesId, SealedSeries> = manifest.series.clone();
        for of_log in self.logs.values().flat_map(|log| log.series()) {
            let archived = ArchivedUpTo {
                life: of_log.life,
                number: of_log.archived,
            };
            let span = (of_log.rows > 0).then_some(of_log.span);
            add_series(&mut known, of_log.id, &of_log.descriptor, span, archived);
        }
        series.extend(known.into_iter().map(|(id, known)| ArchivedSeries {
            node: Arc::clone(&name),
            id,
            descriptor: known.descriptor,
            known: known.span,
            archived: known.archived,
        }));
        NodeSnapshot {
            name,
            sealed: Arc::clone(&self.sealed),
            logs: self.logs.values().cloned().collect(),
            places: HashMap::new(),
        }
    }
}

/// Raises the limit of open files of this process, as far as it may without privilege.
pub(crate) fn make_room(files: u64) {
    let limit = getrlimit(Resource::Nofile);
    let wanted = files.saturating_add(OTHER_FILES);
    let wanted = limit.maximum.map_or(wanted, |most| wanted.min(most));
    if limit.current.is_some_and(|current| current < wanted) {
        let limit = Rlimit {
            current: Some(wanted),
            ..limit
        };
        // If the limit is not enough, opening the files fails with an error.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

/// Returns the error for files that change all the time.
pub(crate) fn unsteady(path: &Path) -> ArchiveError {
    ArchiveError::io("get a steady look at", path)(ErrorKind::ResourceBusy.into())
}

impl Stamp {
    /// Returns the stamp of a file; `None` if it does not exist.
    fn of(path: &Path) -> Result<Option<Self>, ArchiveError> {
        match fs::metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            metadata => {
                let metadata = metadata.map_err(ArchiveError::io("look at", path))?;
                Ok(Some(Self {
                    inode: metadata.ino(),
                    bytes: metadata.len(),
                    modified: (metadata.mtime(), metadata.mtime_nsec()),
                }))
            }
        }
    }
}

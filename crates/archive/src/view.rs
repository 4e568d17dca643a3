//! The content of an archive at one moment, for readers in any process.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use barograph_model::{Columns, Span};

use crate::handles::FileCache;
use crate::held::HeldPlaces;
use crate::snapshot::{LOOKS_MAX, NodeFollower, NodeSnapshot, unsteady};
use crate::{ArchiveError, ArchiveLayout, ArchiveLosses, ArchivedSeries, Tier, open, release};

/// An archive to read. It keeps what it learned about files between views.
#[derive(Debug)]
pub struct ArchiveReader {
    root: PathBuf,
    /// The user who must own its directories, unless root does; `None` if the reader named the
    /// archive.
    owner: Option<u32>,
    places: Arc<HeldPlaces>,
    known: Arc<Mutex<KnownNodes>>,
}

#[derive(Debug, Default)]
struct KnownNodes {
    /// Followers by the names of their directories.
    followers: BTreeMap<String, NodeFollower>,
    /// The nodes that cannot be read at present.
    faults: Vec<NodeFault>,
    view: Option<Arc<View>>,
    handles: Arc<FileCache>,
}

impl release::FileRelease for Mutex<KnownNodes> {
    fn release(&self) {
        // A thread that holds the lock is about to look anew.
        let Ok(mut known) = self.try_lock() else {
            return;
        };
        let before = known.followers.len();
        known.followers.retain(|_, node| !node.holds_unlinked());
        if known.followers.len() != before {
            known.view = None;
        }
        known.handles.release();
    }
}

impl ArchiveReader {
    /// Opens the archive at `root`, which need not exist yet. Its owner does not matter: the caller
    /// named the directory on purpose, and it may be a copy.
    pub fn open(root: impl Into<PathBuf>) -> Self {
        Self::holding(root, HeldPlaces::of_process())
    }

    /// Opens an archive that holds files open in these places.
    pub(crate) fn holding(root: impl Into<PathBuf>, places: Arc<HeldPlaces>) -> Self {
        let known = Arc::default();
        release::register(&known);
        let root = root.into();
        Self {
            root,
            owner: None,
            places,
            known,
        }
    }

    /// Opens the archive that the agent of this user names: a node whose directories belong neither
    /// to that user nor to root, or that everybody may write to, is refused. Otherwise anybody who
    /// may name or fill a directory could present its content as the agent's.
    pub fn of_user(root: impl Into<PathBuf>, user: u32) -> Self {
        Self {
            owner: Some(user),
            ..Self::open(root)
        }
    }

    /// Returns its directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the present content of the archive. If nothing has changed it is the same `Arc` as
    /// before, which costs a few `stat` calls. A node that cannot be read is left out and listed in
    /// the view; the result is an error only if no node can be read, and then that of the first.
    pub fn view(&self) -> Result<Arc<View>, ArchiveError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let layouts = ArchiveLayout::nodes(&self.root);
        let layouts = layouts.map_err(ArchiveError::io("list the nodes of", &self.root))?;
        let before = known.followers.len();
        known
            .followers
            .retain(|name, _| layouts.iter().any(|layout| layout.encoded() == name));
        let mut changed = known.followers.len() != before;
        let nodes = layouts.len();
        let (mut faults, mut failed) = (Vec::new(), None);
        for layout in layouts {
            let name = layout.encoded().to_owned();
            let follower = known.followers.entry(name);
            let follower =
                follower.or_insert_with(|| NodeFollower::holding(layout, Arc::clone(&self.places)));
            follower.share(nodes);
            let path = follower.layout().node_dir();
            let ours = match self.owner {
                Some(owner) => open::check_agents(follower.layout(), owner),
                None => Ok(()),
            };
            match ours.and_then(|()| follower.follow()) {
                Ok(news) => changed |= news,
                Err(error) => {
                    let node = follower.layout().encoded().into();
                    let reason = error.to_string();
                    faults.push(NodeFault { node, path, reason });
                    failed.get_or_insert(error);
                }
            }
        }
        if let Some(error) = failed.filter(|_| faults.len() == known.followers.len()) {
            known.view = None;
            return Err(error);
        }
        if faults != known.faults {
            for fault in &faults {
                tracing::warn!(
                    "the archive of {} is left out: {}",
                    fault.node,
                    fault.reason
                );
            }
            known.faults = faults;
            changed = true;
        }
        match &known.view {
            Some(view) if !changed => Ok(Arc::clone(view)),
            _ => {
                let view = Arc::new(View::of(&known));
                known.view = Some(Arc::clone(&view));
                Ok(view)
            }
        }
    }

    /// Returns the present content of the archive with all raw files of a span held open: whatever
    /// is merged, sealed or deleted from then on, the view has each sample of the span once. That
    /// takes a file descriptor per file, for which the limit of this process is raised as far as
    /// possible; if that is not enough, the error says what to do.
    pub(crate) fn view_held(&self, span: Span) -> Result<View, ArchiveError> {
        for _ in 0..LOOKS_MAX {
            let view = self.view()?;
            let nodes = view.nodes.iter().map(|node| node.holding(span));
            let nodes: Option<Vec<NodeSnapshot>> = nodes.collect::<Result<_, _>>()?;
            if let Some(nodes) = nodes {
                return Ok(View {
                    series: view.series.clone(),
                    nodes,
                    faults: view.faults.clone(),
                    handles: Arc::clone(&view.handles),
                });
            }
        }
        Err(unsteady(&self.root))
    }
}

/// The kind of a file of the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartKind {
    /// A log segment.
    Log,
    /// A Parquet file of this tier.
    Parquet(Tier),
}

/// A description of a file of the archive, for people.
#[derive(Clone, Debug, PartialEq)]
pub struct PartInfo {
    /// Name of the node that measured it.
    pub node: Arc<str>,
    /// Kind of the file.
    pub kind: PartKind,
    /// Path of the file.
    pub path: PathBuf,
    /// Number of samples or buckets.
    pub rows: u64,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Times of the rows.
    pub span: Span,
    /// The first and the last log segment that it holds.
    pub sequences: (u64, u64),
    /// Whether the object store has a copy.
    pub copied: bool,
}

/// A node whose archive cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFault {
    /// Name of the node's directory.
    pub node: Arc<str>,
    /// Path of the node's directory.
    pub path: PathBuf,
    /// The reason why it cannot be read, and the remedy.
    pub reason: String,
}

/// Samples of one life of one series.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleChunk {
    /// Index of the series in [`View::series`].
    pub series: usize,
    /// Time of the stream's registration, in ns since the epoch.
    pub life: i64,
    /// The samples, by number.
    pub columns: Columns,
}

/// An iterator over chunks, which needs only the memory of a few row groups.
pub type ViewScan<'a> = Box<dyn Iterator<Item = Result<SampleChunk, ArchiveError>> + Send + 'a>;

/// An archive at one moment. A view holds its newest files open, so they can still be read after
/// they are unlinked. Older files are opened when they are read; one that was merged by then is
/// found in the merged file, and what retention deleted is gone.
#[derive(Debug, Default)]
pub struct View {
    series: Vec<ArchivedSeries>,
    pub(crate) nodes: Vec<NodeSnapshot>,
    faults: Vec<NodeFault>,
    pub(crate) handles: Arc<FileCache>,
}

impl View {
    fn of(known: &KnownNodes) -> Self {
        let mut series = Vec::new();
        let is_well = |name: &String| known.faults.iter().all(|fault| *fault.node != **name);
        let followers = known.followers.iter().filter(|(name, _)| is_well(name));
        let mut nodes: Vec<NodeSnapshot> = followers.map(|(_, f)| f.node(&mut series)).collect();
        series.sort_by(|a, b| {
            let key = |s: &ArchivedSeries| (Arc::clone(&s.descriptor), Arc::clone(&s.node), s.id);
            let ((of_a, node_a, id_a), (of_b, node_b, id_b)) = (key(a), key(b));
            (&of_a.name, &of_a.labels, node_a, id_a).cmp(&(&of_b.name, &of_b.labels, node_b, id_b))
        });
        let by_name = nodes.iter().enumerate();
        let by_name: HashMap<Arc<str>, usize> = by_name
            .map(|(at, node)| (Arc::clone(&node.name), at))
            .collect();
        for (place, series) in series.iter().enumerate() {
            if let Some(at) = by_name.get(&series.node) {
                nodes[*at].places.insert(series.id, place);
            }
        }
        Self {
            series,
            nodes,
            faults: known.faults.clone(),
            handles: Arc::clone(&known.handles),
        }
    }

    /// Returns every series, ordered by name, labels and node.
    pub fn series(&self) -> &[ArchivedSeries] {
        &self.series
    }

    /// Returns a description of every file, for people.
    pub fn parts(&self) -> Vec<PartInfo> {
        let mut parts = Vec::new();
        for node in &self.nodes {
            let sealed = &node.sealed;
            parts.extend(sealed.manifest.parts.iter().map(|(key, part)| PartInfo {
                node: Arc::clone(&node.name),
                kind: PartKind::Parquet(key.tier),
                path: key.path(&sealed.layout),
                rows: part.rows,
                bytes: part.bytes,
                span: part.span,
                sequences: (key.first, key.last),
                copied: part.copied,
            }));
            parts.extend(node.logs.iter().map(|log| PartInfo {
                node: Arc::clone(&node.name),
                kind: PartKind::Log,
                path: log.path().to_owned(),
                rows: log.rows(),
                bytes: log.bytes(),
                span: log.span(),
                sequences: (log.sequence(), log.sequence()),
                copied: false,
            }));
        }
        parts
    }

    /// Returns the nodes that are left out since they cannot be read.
    pub fn faults(&self) -> &[NodeFault] {
        &self.faults
    }

    /// Returns the losses of each node.
    pub fn losses(&self) -> Vec<(Arc<str>, ArchiveLosses)> {
        let losses = self.nodes.iter().map(|node| {
            let mut losses = node.sealed.manifest.losses.clone();
            for log in &node.logs {
                losses.add(log.losses());
            }
            (Arc::clone(&node.name), losses)
        });
        losses.collect()
    }
}

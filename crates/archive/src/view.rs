//! All of an archive at one moment, for readers in any process.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use barograph_model::{Buckets, Columns, Span};

use crate::aggregate::{Budget, Fold};
use crate::handles::Handles;
use crate::held::Places;
use crate::snapshot::{Follower, LOOKS_MAX, Node, unsteady};
use crate::{ArchiveError, Layout, Losses, Series, Tier, open, reduce, release, scan};

/// Most buckets of a reader that sets no bound of its own.
const BUCKETS_MAX: usize = 8 << 20;

/// An archive that is read. Keeps what it learned of files between views.
#[derive(Debug)]
pub struct Archive {
    root: PathBuf,
    /// Whose its directories must be, or root's; `None` where whoever reads it has named it.
    owner: Option<u32>,
    places: Arc<Places>,
    known: Arc<Mutex<KnownNodes>>,
}

#[derive(Debug, Default)]
struct KnownNodes {
    /// By the names of their directories.
    followers: BTreeMap<String, Follower>,
    /// Those that cannot be read now.
    faults: Vec<NodeFault>,
    view: Option<Arc<View>>,
    handles: Arc<Handles>,
}

impl release::Release for Mutex<KnownNodes> {
    fn release(&self) {
        // Who holds it is about to look anew.
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

impl Archive {
    /// The archive at `root`, which need not be there yet. Whose it is does not matter: who names a directory means
    /// it, and it may be a copy.
    pub fn open(root: impl Into<PathBuf>) -> Self {
        Self::holding(root, Places::of_process())
    }

    /// Holds files open in these places.
    pub(crate) fn holding(root: impl Into<PathBuf>, places: Arc<Places>) -> Self {
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

    /// The archive that the agent of this user names: a node whose directories are neither that user's nor root's, or
    /// that everybody may write to, is refused. Else whoever may name or fill a directory could put words into the
    /// agent's mouth.
    pub fn of_user(root: impl Into<PathBuf>, user: u32) -> Self {
        Self {
            owner: Some(user),
            ..Self::open(root)
        }
    }

    /// Its directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What it holds now. The same `Arc` as before when nothing has changed, which costs a few
    /// `stat` calls. A node that cannot be read is left out, which the view says; an error is that of the
    /// only node, or of the first where none can be read.
    pub fn view(&self) -> Result<Arc<View>, ArchiveError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let layouts = Layout::nodes(&self.root);
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
                follower.or_insert_with(|| Follower::holding(layout, Arc::clone(&self.places)));
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

    /// What it holds now, with all raw files of a span held open: whatever is merged, sealed or let go from
    /// then on, the view has each sample of the span once. That takes a file descriptor each, for which this
    /// process' own limit is raised as far as it may be; where that is not enough, the error says what to do.
    pub(crate) fn view_held(&self, span: Span) -> Result<View, ArchiveError> {
        for _ in 0..LOOKS_MAX {
            let view = self.view()?;
            let nodes = view.nodes.iter().map(|node| node.holding(span));
            let nodes: Option<Vec<Node>> = nodes.collect::<Result<_, _>>()?;
            if let Some(nodes) = nodes {
                return Ok(View {
                    series: view.series.clone(),
                    memory: Vec::new(),
                    nodes,
                    faults: view.faults.clone(),
                    handles: Arc::clone(&view.handles),
                });
            }
        }
        Err(unsteady(&self.root))
    }
}

/// What a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartKind {
    /// A log segment.
    Log,
    /// A Parquet file of this tier.
    Parquet(Tier),
    /// Samples in memory: of tests.
    Memory,
}

/// A file of the archive, for people.
#[derive(Clone, Debug, PartialEq)]
pub struct PartInfo {
    /// Where it was measured.
    pub node: Arc<str>,
    /// What it is.
    pub kind: PartKind,
    /// The file.
    pub path: PathBuf,
    /// Rows: samples, or buckets.
    pub rows: u64,
    /// Bytes.
    pub bytes: u64,
    /// Times of the rows.
    pub span: Span,
    /// Log segments that it holds, both included.
    pub sequences: (u64, u64),
    /// Whether a copy is at the object store.
    pub copied: bool,
}

/// A node whose part of the archive cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFault {
    /// The name of its directory.
    pub node: Arc<str>,
    /// Its directory.
    pub path: PathBuf,
    /// Why it cannot be read, and what to do.
    pub reason: String,
}

/// Samples of one life of one series.
#[derive(Clone, Debug, PartialEq)]
pub struct Chunk {
    /// Index into [`View::series`].
    pub series: usize,
    /// When the stream was registered.
    pub life: i64,
    /// The samples.
    pub columns: Columns,
}

/// Chunks one by one, so that memory is that of a few row groups.
pub type Scan<'a> = Box<dyn Iterator<Item = Result<Chunk, ArchiveError>> + Send + 'a>;

/// The archive at one moment. It holds its newest files open: when they are unlinked meanwhile, they go
/// on being read. Older ones are opened when they are read; one that was merged by then is found where it
/// went, and what retention took is gone.
#[derive(Debug)]
pub struct View {
    series: Vec<Series>,
    /// What a test put there, in order.
    pub(crate) memory: Vec<Chunk>,
    pub(crate) nodes: Vec<Node>,
    faults: Vec<NodeFault>,
    pub(crate) handles: Arc<Handles>,
}

impl View {
    /// An archive in memory, for tests of readers: the chunks in the order in which they were
    /// archived.
    pub fn in_memory(series: Vec<Series>, chunks: Vec<Chunk>) -> Self {
        Self {
            series,
            memory: chunks,
            nodes: Vec::new(),
            faults: Vec::new(),
            handles: Arc::default(),
        }
    }

    fn of(known: &KnownNodes) -> Self {
        let mut series = Vec::new();
        let is_well = |name: &String| known.faults.iter().all(|fault| *fault.node != **name);
        let followers = known.followers.iter().filter(|(name, _)| is_well(name));
        let mut nodes: Vec<Node> = followers.map(|(_, f)| f.node(&mut series)).collect();
        series.sort_by(|a, b| {
            let key = |s: &Series| (Arc::clone(&s.descriptor), Arc::clone(&s.node), s.id);
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
            memory: Vec::new(),
            nodes,
            faults: known.faults.clone(),
            handles: Arc::clone(&known.handles),
        }
    }

    /// Every series, by name, labels and node.
    pub fn series(&self) -> &[Series] {
        &self.series
    }

    /// The disjoint stretches of time, oldest first, such that no sample of one lies in another: whoever
    /// wants rows in order of time sorts one at a time. They end at full hours.
    pub fn stretches(&self, span: Span) -> Vec<Span> {
        scan::stretches(self, span)
    }

    /// The samples of the wanted series (indexes into [`Self::series`], ascending) within the span,
    /// each once: chunks of one series and life are in the order of their numbers, except where the
    /// clock was set back to an hour that had passed.
    pub fn scan<'a>(&'a self, wanted: &'a [usize], span: Span, cancel: &'a AtomicBool) -> Scan<'a> {
        let files = scan::Scanner::new(self, wanted, span, cancel);
        self.with_memory(files, wanted, span, cancel)
    }

    /// What a test put there, before what is in files.
    fn with_memory<'a>(
        &'a self,
        files: scan::Scanner<'a>,
        wanted: &'a [usize],
        span: Span,
        cancel: &'a AtomicBool,
    ) -> Scan<'a> {
        let chunks = self.memory.iter().filter(|c| wanted.contains(&c.series));
        let memory = chunks.filter_map(move |chunk| {
            if cancel.load(Ordering::Relaxed) {
                return Some(Err(ArchiveError::Cancelled));
            }
            let columns = crate::compose::within(&chunk.columns, span);
            (!columns.is_empty()).then_some(Ok(Chunk { columns, ..*chunk }))
        });
        Box::new(memory.chain(files))
    }

    /// As [`Self::scan`], only what no Parquet file of [`Self::parts`] has: what is in the log (and, in
    /// tests, in memory).
    pub fn scan_log<'a>(
        &'a self,
        wanted: &'a [usize],
        span: Span,
        cancel: &'a AtomicBool,
    ) -> Scan<'a> {
        let logs = scan::Scanner::of_logs(self, wanted, span, cancel);
        self.with_memory(logs, wanted, span, cancel)
    }

    /// The wanted series by buckets of `step_ns` (starts are multiples of it), from the coarsest tier
    /// whose buckets fit into the step and the span, raw where there is none; parts are read in parallel by at
    /// most `threads`. Indexes into [`Self::series`] with what they have; a tier's last value is that
    /// of its last part.
    ///
    /// Where retention has taken everything that is as fine as the step, coarser buckets stand for it: each
    /// counts as a whole in the bucket in which it begins, and the buckets until its end are missing.
    ///
    /// More than 8 Mi buckets are an error.
    pub fn buckets(
        &self,
        wanted: &[usize],
        span: Span,
        step_ns: i64,
        threads: usize,
        cancel: &AtomicBool,
    ) -> Result<BTreeMap<usize, Buckets>, ArchiveError> {
        let budget = Budget::of(BUCKETS_MAX);
        let folds = self.folds_within(wanted, span, step_ns, threads, cancel, &budget)?;
        let buckets = folds
            .into_iter()
            .map(|(place, fold)| (place, fold.finish()));
        Ok(buckets.filter(|(_, buckets)| !buckets.is_empty()).collect())
    }

    /// The same in the making; more than there is room for are an error, as soon as there are.
    #[doc(hidden)] // For `query`, as is the budget.
    pub fn folds_within(
        &self,
        wanted: &[usize],
        span: Span,
        step_ns: i64,
        threads: usize,
        cancel: &AtomicBool,
        budget: &Budget<'_>,
    ) -> Result<BTreeMap<usize, Fold>, ArchiveError> {
        let ask = reduce::Request {
            wanted,
            span,
            step_ns: step_ns.max(1),
            threads: threads.max(1),
            cancel,
            budget,
        };
        reduce::folds(self, &ask)
    }

    /// What there is, for people.
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

    /// The nodes that are left out, since they cannot be read.
    pub fn faults(&self) -> &[NodeFault] {
        &self.faults
    }

    /// What was lost, by node.
    pub fn losses(&self) -> Vec<(Arc<str>, Losses)> {
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

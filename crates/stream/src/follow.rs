//! The follower of an agent's segments: the public one, and those of its scopes.
//!
//! It stands alone so that all readers (client, SQL, server, rules) notice a restarted agent, a
//! scope that comes or goes, and a dead agent in the same way. What a reader keeps of each stream
//! is its own type, a [`FollowedStream`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use barograph_model::{Descriptor, Labels, NS_PER_S, Name, SeriesId};

use crate::run_dir::{NODES_DIR, SCOPES_DIR};
use crate::{DirectoryEntry, RunDir, SegmentReader, SegmentState, StreamError};

/// Time between two looks at the names of the run directory, in ns, for readers that may learn a
/// second late of a scope that has come or gone.
pub const LOOK_NS: i64 = NS_PER_S;

/// The scope that everyone may read.
const PUBLIC: &str = "all";

/// The scopes of applications that are read beside the node's own streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScopeChoice {
    /// All scopes that this process may open: for a process that reads for itself.
    Readable,
    /// The scope that everyone may read: for a process that answers others.
    Public,
    /// No scopes.
    None,
}

impl ScopeChoice {
    /// The existing scopes and their run directories, by name.
    fn of(self, run_dir: &RunDir) -> Vec<(String, RunDir)> {
        match self {
            Self::Readable => run_dir.scopes(),
            Self::Public => {
                let scope = run_dir.scope(PUBLIC);
                let is_there = scope.segment().exists();
                let found = is_there.then(|| (PUBLIC.to_owned(), scope));
                found.into_iter().collect()
            }
            Self::None => Vec::new(),
        }
    }
}

/// The identity of a part. It outlives the incarnations of the part's segment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PartId {
    /// Name of the node.
    pub node: Arc<str>,
    /// Name of the scope; empty for the node's own segment. Of the mirror of another node it is the
    /// path of the mirror in the run directory, such as `nodes/b`, and of a scope in that mirror
    /// its path, such as `nodes/b/applications/all`.
    pub scope: Arc<str>,
    /// Whether this is the mirror of another node.
    pub is_mirror: bool,
}

impl PartId {
    /// Whether this is the segment of the node itself, not that of a scope or a mirror.
    pub fn is_of_node(&self) -> bool {
        self.scope.is_empty()
    }

    /// Whether this is the segment of another node itself, not that of a scope of it.
    pub fn is_mirror_of_node(&self) -> bool {
        self.is_mirror && self.scope_name().is_empty()
    }

    /// Name of the scope at its node, such as `u1000`; empty for the segment of a node itself, this
    /// one's or a mirror.
    pub fn scope_name(&self) -> &str {
        match self.is_mirror {
            // The path of a scope in a mirror has two steps more than that of the mirror. A node
            // may have the name of any of them.
            true => self.scope.split('/').nth(3).unwrap_or_default(),
            false => &self.scope,
        }
    }
}

/// The state that a reader keeps of a followed stream for as long as the stream lives.
pub trait FollowedStream: Sized {
    /// Makes it of a stream that is new in the directory of this part's segment.
    fn of(part: &PartId, segment: &Arc<SegmentReader>, entry: DirectoryEntry) -> Self;

    /// The entry that it was made of.
    fn entry(&self) -> &DirectoryEntry;
}

impl FollowedStream for DirectoryEntry {
    fn of(_: &PartId, _: &Arc<SegmentReader>, entry: DirectoryEntry) -> Self {
        entry
    }

    fn entry(&self) -> &DirectoryEntry {
        self
    }
}

/// One segment at one version of its directory. It never changes: the follower replaces it.
#[derive(Debug)]
pub struct SegmentPart<S> {
    /// The identity of the part.
    pub id: PartId,
    /// The run directory that holds the segment.
    pub run_dir: RunDir,
    /// The segment: the same `Arc` for as long as the segment is not replaced.
    pub segment: Arc<SegmentReader>,
    /// The streams, by name and labels: the same `Arc` for as long as a stream lives.
    pub streams: Vec<Arc<S>>,
    version: u64,
}

impl<S: FollowedStream> SegmentPart<S> {
    fn open(run_dir: RunDir, scope: Arc<str>) -> Result<Self, StreamError> {
        let segment = SegmentReader::of(&run_dir)?;
        Ok(Self::of(run_dir, scope, segment))
    }

    fn of(run_dir: RunDir, scope: Arc<str>, segment: SegmentReader) -> Self {
        let node = segment.node().into();
        let is_mirror = scope.starts_with(NODES_DIR);
        let id = PartId {
            node,
            scope,
            is_mirror,
        };
        Self::read(id, run_dir, Arc::new(segment), &[])
    }

    /// Reads the directory. Streams of the same segment that live on are taken over from `before`.
    fn read(id: PartId, run_dir: RunDir, segment: Arc<SegmentReader>, before: &[Arc<S>]) -> Self {
        let slot_of = |entry: &DirectoryEntry| (entry.slot, entry.generation);
        let known = before.iter().map(|s| (slot_of(s.entry()), s));
        let known: HashMap<(usize, u16), &Arc<S>> = known.collect();
        let directory = segment.directory();
        let stream = |entry: DirectoryEntry| match known.get(&slot_of(&entry)) {
            // A generation returns after 65,535 others, so the series must agree as well.
            Some(same) if same.entry().series == entry.series => Arc::clone(same),
            _ => Arc::new(S::of(&id, &segment, entry)),
        };
        let mut streams: Vec<Arc<S>> = directory.entries.into_iter().map(stream).collect();
        streams.sort_by(|a, b| sort_key(a.entry()).cmp(&sort_key(b.entry())));
        Self {
            id,
            run_dir,
            segment,
            streams,
            version: directory.version,
        }
    }

    /// Whether this is the present version of the segment's directory.
    fn is_current(&self) -> bool {
        self.segment.directory_version() == self.version
    }

    /// The part that replaces this one, if anything has changed. Only if the segment is doubtful
    /// the file system is asked whether its path leads to another one.
    fn successor(&self, is_doubtful: bool) -> Result<Option<Self>, StreamError> {
        let (id, run_dir) = (&self.id, || self.run_dir.clone());
        if is_doubtful {
            let mut segment = SegmentReader::clone(&self.segment);
            if segment.reopen_if_replaced()? {
                let scope = Arc::clone(&id.scope);
                return Ok(Some(Self::of(run_dir(), scope, segment)));
            }
        }
        let read = || {
            let segment = Arc::clone(&self.segment);
            Self::read(id.clone(), run_dir(), segment, &self.streams)
        };
        Ok((!self.is_current()).then(read))
    }
}

fn sort_key(entry: &DirectoryEntry) -> (&Name, &Labels, SeriesId) {
    let Descriptor { name, labels, .. } = &entry.descriptor;
    (name, labels, entry.series)
}

/// The segments of a run directory as they were at the last [`SegmentFollower::follow`].
#[derive(Debug)]
pub struct SegmentFollower<S> {
    run_dir: RunDir,
    scopes: ScopeChoice,
    /// Whether the mirrors of other nodes are followed.
    has_mirrors: bool,
    look_ns: i64,
    /// The node's own, then the scopes and mirrors by name.
    parts: Vec<Arc<SegmentPart<S>>>,
    /// Time of the last look at the run directory, ns since the epoch.
    looked_ns: Option<i64>,
    changes: u64,
}

impl<S: FollowedStream> SegmentFollower<S> {
    /// Opens the node's own segment, also that of a dead agent, and those of scopes that can be
    /// opened. The names of the run directory are looked at again after `look_ns`; with 0, at each
    /// [`Self::follow`]. [`StreamError::NoAgent`] if there is no segment.
    pub fn open(
        run_dir: &RunDir,
        scopes: ScopeChoice,
        look_ns: i64,
        now_ns: i64,
    ) -> Result<Self, StreamError> {
        let own = SegmentPart::open(run_dir.clone(), "".into())?;
        let mut follower = Self {
            run_dir: run_dir.clone(),
            scopes,
            has_mirrors: false,
            look_ns,
            parts: vec![Arc::new(own)],
            looked_ns: None,
            changes: 0,
        };
        follower.follow(now_ns)?;
        Ok(follower)
    }

    /// Follows the mirrors of other nodes as well, and the chosen scopes of each, from `now_ns` on.
    pub fn with_mirrors(mut self, now_ns: i64) -> Result<Self, StreamError> {
        self.set_mirrors(true);
        self.follow(now_ns)?;
        Ok(self)
    }

    /// Chooses whether the mirrors of other nodes are followed, from the next [`Self::follow`] on.
    pub fn set_mirrors(&mut self, has_mirrors: bool) {
        if self.has_mirrors != has_mirrors {
            self.has_mirrors = has_mirrors;
            self.looked_ns = None;
        }
    }

    /// The scopes that are followed.
    pub fn scopes(&self) -> ScopeChoice {
        self.scopes
    }

    /// Chooses the scopes that are followed, from the next [`Self::follow`] on.
    pub fn set_scopes(&mut self, scopes: ScopeChoice) {
        if self.scopes != scopes {
            self.scopes = scopes;
            self.looked_ns = None;
        }
    }

    /// Replaces the parts that have changed at `now_ns`, in ns since the epoch. New streams are
    /// noticed at each call, and so is the successor of a segment that is closed or dead. Scopes
    /// that have come or gone, and the successor of a segment that seems alive, are noticed when
    /// the next look is due. If nothing has changed and no look is due, this reads memory alone.
    ///
    /// A scope whose segment cannot be opened counts as absent. If the node's own segment was
    /// replaced by one that cannot be opened, the old one stays, and this returns the error.
    pub fn follow(&mut self, now_ns: i64) -> Result<(), StreamError> {
        let is_due = self.is_look_due(now_ns);
        let is_calm = |p: &Arc<SegmentPart<S>>| p.is_current() && p.segment.is_alive(now_ns);
        if !is_due && self.parts.iter().all(is_calm) {
            return Ok(());
        }
        let mut parts = Vec::with_capacity(self.parts.len());
        let mut fault = None;
        for part in &self.parts {
            match part.successor(is_due || !part.segment.is_alive(now_ns)) {
                Ok(Some(successor)) => parts.push(Arc::new(successor)),
                Ok(None) => parts.push(Arc::clone(part)),
                Err(error) if part.id.is_of_node() => {
                    parts.push(Arc::clone(part));
                    fault = Some(error);
                }
                Err(_) => {}
            }
        }
        let is_new_agent = !Arc::ptr_eq(&parts[0].segment, &self.parts[0].segment);
        if is_due || is_new_agent {
            self.looked_ns = Some(now_ns);
            self.look_for_scopes(&mut parts);
        }
        let is_same = |(a, b): (&Arc<_>, &Arc<_>)| Arc::ptr_eq(a, b);
        if parts.len() != self.parts.len() || !parts.iter().zip(&self.parts).all(is_same) {
            self.parts = parts;
            self.changes += 1;
        }
        fault.map_or(Ok(()), Err)
    }

    /// Whether no stream has come or gone and no segment was closed since the last
    /// [`Self::follow`], as far as memory alone tells, without a clock.
    pub fn is_settled(&self) -> bool {
        let is_live = |p: &Arc<SegmentPart<S>>| p.segment.state() == SegmentState::Live;
        self.parts.iter().all(|p| is_live(p) && p.is_current())
    }

    /// The parts: the node's own first, then those of the scopes and mirrors by name.
    pub fn parts(&self) -> &[Arc<SegmentPart<S>>] {
        &self.parts
    }

    /// The part of the node itself.
    pub fn own(&self) -> &Arc<SegmentPart<S>> {
        &self.parts[0]
    }

    /// A number that grows whenever [`Self::parts`] becomes another list.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The present ticks of all segments, to wait for news with.
    pub fn ticks(&self) -> SegmentTicks {
        SegmentTicks::of(self.parts.iter().map(|part| &part.segment))
    }

    fn is_look_due(&self, now_ns: i64) -> bool {
        // A clock that is set back makes a look due as well.
        let is_over = |looked_ns| now_ns.abs_diff(looked_ns) >= self.look_ns.unsigned_abs();
        self.looked_ns.is_none_or(is_over)
    }

    /// Forgets the scopes and mirrors that have gone, and opens those that have come.
    fn look_for_scopes(&self, parts: &mut Vec<Arc<SegmentPart<S>>>) {
        let mut found = self.scopes.of(&self.run_dir);
        let mirrors = self.has_mirrors.then(|| self.run_dir.mirrors());
        for (node, mirror) in mirrors.unwrap_or_default() {
            let path = format!("{NODES_DIR}/{node}");
            let scopes = self.scopes.of(&mirror).into_iter();
            let of_mirror = |(scope, dir)| (format!("{path}/{SCOPES_DIR}/{scope}"), dir);
            found.extend(scopes.map(of_mirror));
            found.push((path, mirror));
        }
        let is_there = |id: &PartId| found.iter().any(|(scope, _)| **scope == *id.scope);
        parts.retain(|part| part.id.is_of_node() || is_there(&part.id));
        for (scope, run_dir) in found {
            let is_known = parts.iter().any(|part| *part.id.scope == *scope);
            if !is_known && let Ok(part) = SegmentPart::open(run_dir, scope.into()) {
                parts.push(Arc::new(part));
            }
        }
        // The node's own part stays the first, since the name of its scope is empty.
        parts.sort_by(|a, b| a.id.scope.cmp(&b.id.scope));
    }
}

/// Segments with their ticks at one moment. Take them before a look at the streams: what is written
/// during the look then ends the wait after it at once.
#[derive(Debug, Default)]
pub struct SegmentTicks(Vec<(Arc<SegmentReader>, u32)>);

impl SegmentTicks {
    /// Reads the present ticks of these segments.
    pub fn of<'a>(segments: impl IntoIterator<Item = &'a Arc<SegmentReader>>) -> Self {
        let tick = |segment: &Arc<SegmentReader>| (Arc::clone(segment), segment.tick());
        Self(segments.into_iter().map(tick).collect())
    }

    /// Sleeps until one of the ticks has changed, at most `timeout`; returns how long it slept.
    /// May end early. A killed agent wakes nobody.
    pub fn wait(&self, timeout: Duration) -> Duration {
        let seen: Vec<_> = self.0.iter().map(|(s, tick)| (&**s, *tick)).collect();
        SegmentReader::wait_ticks(&seen, timeout)
    }
}

//! The mirrors of one node's scopes: what applications publish there, for the readers that they
//! allow.
//!
//! Each scope has a feed and a segment of its own, so that the file system guards it here as it
//! does on its node. They are apart from the mirror of the node itself, which never waits for them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use barograph_stream::{RunDir, ScopeReader, StreamError, make_public_dir, make_scope_dir};

use crate::config::NodeConfig;
use crate::frame::{FrameFault, feed_of};
use crate::history::{DurableHistories, DurableHistory, HistoryOpening};
use crate::mirror::{MirrorCounts, Received};
use crate::mirror_room::{MirrorBounds, MirrorRoom};
use crate::segment_mirror::{MirrorPlace, SegmentMirror};

/// The mirrors of one node's scopes.
#[derive(Debug)]
pub(crate) struct ScopeMirrors {
    /// The directory of the node's mirror.
    dir: RunDir,
    mirrors: BTreeMap<Arc<str>, ScopeMirror>,
    /// The scopes whose histories are being opened, or could not be opened.
    awaited: BTreeSet<Arc<str>>,
    room: Arc<MirrorRoom>,
    /// Counts of what the mirrors that have ended had taken in.
    ended: MirrorCounts,
    /// Why a scope has no mirror at present, or one that its readers cannot read.
    trouble: Option<String>,
}

/// The mirror of one scope.
#[derive(Debug)]
struct ScopeMirror {
    mirror: SegmentMirror,
    /// Whether its readers can be let in: without access-control lists the agent alone may read it.
    is_open: bool,
    /// Why its history is not kept at present, if it should be.
    unkept: Option<String>,
}

impl ScopeMirrors {
    /// Has no mirror yet.
    pub(crate) fn new(config: &NodeConfig, node: &str) -> Self {
        Self {
            dir: config.run_dir.mirror(node),
            mirrors: BTreeMap::new(),
            awaited: BTreeSet::new(),
            room: Arc::new(MirrorRoom::new(config.bounds)),
            ended: MirrorCounts::default(),
            trouble: None,
        }
    }

    /// Begins the mirrors of these scopes, as far as they are wanted, and ends all others. Tries
    /// again what has failed before. `next_feed` is the number of a feed that no feed had before.
    pub(crate) fn follow(
        &mut self,
        scopes: &[Arc<str>],
        (config, node): (&NodeConfig, &str),
        (next_feed, now_ns): (&mut u64, i64),
        mut histories: Option<&mut Box<dyn DurableHistories>>,
    ) {
        self.trouble = None;
        self.awaited.clear();
        let mirrored = self.mirrors.keys().cloned();
        let over: Vec<_> = mirrored.filter(|scope| !scopes.contains(scope)).collect();
        over.iter().for_each(|scope| self.end(scope));
        for scope in scopes.iter().filter(|scope| config.takes_scope(scope)) {
            let mirror = self.mirrors.get_mut(scope);
            if mirror.as_ref().is_some_and(|one| one.unkept.is_none()) {
                continue;
            }
            let history = histories.as_mut().map(|kept| kept.open(node, scope));
            let (history, unkept) = match history {
                None | Some(HistoryOpening::NotKept) => (None, None),
                Some(HistoryOpening::Open(history)) => (Some(history), None),
                Some(HistoryOpening::UnderWay) => {
                    self.awaited.insert(Arc::clone(scope));
                    continue;
                }
                Some(HistoryOpening::Failed(reason)) => {
                    // The mirror does without its history until that can be opened.
                    self.awaited.insert(Arc::clone(scope));
                    if let Some(mirror) = mirror {
                        mirror.unkept = Some(reason);
                        continue;
                    }
                    (None, Some(reason))
                }
            };
            // Its history can be kept now: the mirror begins again with it.
            self.end(scope);
            *next_feed = next_feed.wrapping_add(1 << 32);
            let dir = self.dir.scope(scope);
            let of = (node, scope, &dir);
            let room = Arc::clone(&self.room);
            match ScopeMirror::create(config, of, room, (*next_feed, now_ns), history) {
                Ok(mirror) => {
                    let mirror = ScopeMirror { unkept, ..mirror };
                    self.mirrors.insert(Arc::clone(scope), mirror);
                }
                Err(error) => self.trouble = Some(format!("publications of {scope}: {error}")),
            }
        }
        let closed = self.mirrors.iter().find(|(_, mirror)| !mirror.is_open);
        if let Some((scope, _)) = closed.filter(|_| self.trouble.is_none()) {
            self.trouble = Some(format!(
                "publications of {scope}: the agent alone may read them, since the file system of the run \
                 directory has no access-control lists"
            ));
        }
    }

    /// Ends the mirror of a scope, if there is one.
    fn end(&mut self, scope: &Arc<str>) {
        if let Some(mirror) = self.mirrors.remove(scope) {
            self.ended = self.ended.plus(mirror.mirror.counts());
            drop(mirror);
            let _ = std::fs::remove_dir_all(self.dir.scope(scope).path());
        }
    }

    /// Takes in a frame that came at `now_ns`, ns since the epoch; `None` if it is of another feed.
    pub(crate) fn receive(
        &mut self,
        frame: &[u8],
        now_ns: i64,
    ) -> Option<Result<Received, FrameFault>> {
        let feed = feed_of(frame);
        let mut mirrors = self.mirrors.values_mut();
        let found = mirrors.find(|scope| scope.mirror.subscriber.is_of(feed));
        found.map(|scope| scope.mirror.receive(frame, now_ns))
    }

    /// Makes the next message to the owner that is due at `now_ns`; `None` if there is none.
    pub(crate) fn due(&mut self, now_ns: i64) -> Option<Vec<u8>> {
        let mut mirrors = self.mirrors.values_mut();
        mirrors.find_map(|scope| scope.mirror.due(now_ns))
    }

    /// Time of the next [`Self::due`] that may give a message if nothing is received before.
    pub(crate) fn deadline_ns(&self) -> i64 {
        let mirrors = self.mirrors.values();
        let deadlines = mirrors.map(|scope| scope.mirror.subscriber.deadline_ns());
        deadlines.min().unwrap_or(i64::MAX)
    }

    /// Wants these streams from now on.
    pub(crate) fn set_selectors(&mut self, selectors: &[String]) {
        for ScopeMirror { mirror, .. } in self.mirrors.values_mut() {
            mirror.subscriber.set_selectors(selectors.to_vec());
        }
    }

    /// Asks for new feeds, since the owner may have lost the present ones.
    pub(crate) fn ask_again(&mut self) {
        for ScopeMirror { mirror, .. } in self.mirrors.values_mut() {
            mirror.subscriber.ask_again();
        }
    }

    /// Wakes those who wait for what was written.
    pub(crate) fn wake(&mut self) {
        for ScopeMirror { mirror, .. } in self.mirrors.values_mut() {
            mirror.segment.wake();
        }
    }

    /// Does what is due once a second.
    pub(crate) fn tidy(&mut self) {
        for ScopeMirror { mirror, .. } in self.mirrors.values_mut() {
            mirror.tidy();
        }
    }

    /// Present trouble of a scope's mirror or of its history.
    pub(crate) fn trouble(&self) -> Option<String> {
        let of_history = self.mirrors.iter().find_map(|(scope, one)| {
            let trouble = one.mirror.trouble.as_ref()?;
            Some(format!("publications of {scope}: {trouble}"))
        });
        self.trouble
            .clone()
            .or(of_history)
            .or_else(|| self.unkept_told())
    }

    /// The scopes that are mirrored without the history that they should have, and the reasons.
    pub(crate) fn unkept(&self) -> impl Iterator<Item = (&Arc<str>, &String)> {
        let unkept = self.mirrors.iter();
        unkept.filter_map(|(scope, one)| Some((scope, one.unkept.as_ref()?)))
    }

    fn unkept_told(&self) -> Option<String> {
        let (scope, reason) = self.unkept().next()?;
        Some(match self.unkept().count() - 1 {
            0 => format!("publications of {scope}: {reason}"),
            others => format!("publications of {scope}, and of {others} more: {reason}"),
        })
    }

    /// Whether the history of a scope is waited for.
    pub(crate) fn awaits(&self, scope: &str) -> bool {
        self.awaited.contains(scope)
    }

    /// Number of streams.
    pub(crate) fn streams(&self) -> usize {
        self.mirrors
            .values()
            .map(|scope| scope.mirror.segment.streams())
            .sum()
    }

    /// Counts of what was taken in so far, by ended mirrors too.
    pub(crate) fn counts(&self) -> MirrorCounts {
        let counts = self.mirrors.values().map(|scope| scope.mirror.counts());
        counts.fold(self.ended, MirrorCounts::plus)
    }
}

impl ScopeMirror {
    fn create(
        config: &NodeConfig,
        (node, scope, dir): (&str, &Arc<str>, &RunDir),
        room: Arc<MirrorRoom>,
        numbers: (u64, i64),
        history: Option<Box<dyn DurableHistory>>,
    ) -> Result<Self, StreamError> {
        let make = || {
            let reader = ScopeReader::of(scope).ok_or(std::io::ErrorKind::InvalidInput)?;
            dir.path().parent().map_or(Ok(()), make_public_dir)?;
            make_scope_dir(dir.path(), reader)
        };
        let is_open = make().map_err(|source| StreamError::Io {
            what: "make",
            path: dir.path().to_owned(),
            source,
        })?;
        // One scope has half of the room of all.
        let bounds = MirrorBounds {
            streams_max: config.bounds.streams_max.div_ceil(2),
            ring_bytes_max: config.bounds.ring_bytes_max / 2,
            ..config.bounds
        };
        let scope = Arc::clone(scope);
        let place = MirrorPlace {
            node,
            scope,
            dir,
            bounds,
        };
        let mut mirror = SegmentMirror::create(config, place, numbers, history)?;
        mirror.segment.share(room);
        Ok(Self {
            mirror,
            is_open,
            unkept: None,
        })
    }
}

//! The mirror of one node: of its own streams, and of the scopes of its applications.

use barograph_stream::StreamError;

use crate::config::NodeConfig;
use crate::frame::FrameFault;
use crate::history::{DurableHistories, DurableHistory};
use crate::mirror::{MirrorCounts, Received};
use crate::scope_mirrors::ScopeMirrors;
use crate::segment_mirror::{MirrorPlace, SegmentMirror};

/// The mirror of one node.
#[derive(Debug)]
pub(crate) struct NodeMirror {
    pub(crate) own: SegmentMirror,
    pub(crate) scopes: ScopeMirrors,
    /// Present trouble of a history, or of the mirror of a scope.
    pub(crate) trouble: Option<String>,
}

impl NodeMirror {
    /// Makes an empty mirror. Its subscriber numbers its feeds from `first_feed` on.
    pub(crate) fn create(
        config: &NodeConfig,
        node: &str,
        numbers: (u64, i64),
        history: Option<Box<dyn DurableHistory>>,
    ) -> Result<Self, StreamError> {
        let place = MirrorPlace {
            node,
            scope: "".into(),
            dir: &config.run_dir.mirror(node),
            bounds: config.bounds,
        };
        let own = SegmentMirror::create(config, place, numbers, history)?;
        Ok(Self {
            trouble: own.trouble.clone(),
            own,
            scopes: ScopeMirrors::new(config, node),
        })
    }

    /// Whether the history of the node is kept.
    pub(crate) fn is_kept(&self) -> bool {
        self.own.is_kept()
    }

    /// Takes in a frame of samples that came at `now_ns`, ns since the epoch. A frame of a scope
    /// says nothing of the node's own streams.
    pub(crate) fn receive(&mut self, frame: &[u8], now_ns: i64) -> Result<Received, FrameFault> {
        let of_scope = self.scopes.receive(frame, now_ns);
        of_scope.unwrap_or_else(|| self.own.receive(frame, now_ns))
    }

    /// Makes the next message to the owner that is due at `now_ns`; `None` if there is none.
    pub(crate) fn due(&mut self, now_ns: i64) -> Option<Vec<u8>> {
        self.own.due(now_ns).or_else(|| self.scopes.due(now_ns))
    }

    /// Time of the next [`Self::due`] that may give a message if nothing is received before.
    pub(crate) fn deadline_ns(&self) -> i64 {
        let of_node = self.own.subscriber.deadline_ns();
        of_node.min(self.scopes.deadline_ns())
    }

    /// Wants these streams from now on.
    pub(crate) fn set_selectors(&mut self, selectors: &[String]) {
        self.own.subscriber.set_selectors(selectors.to_vec());
        self.scopes.set_selectors(selectors);
    }

    /// Asks for new feeds, since the owner may have lost the present ones.
    pub(crate) fn ask_again(&mut self) {
        self.own.subscriber.ask_again();
        self.scopes.ask_again();
    }

    /// Begins and ends the mirrors of scopes as the owner has told. `next_feed` is the number of a
    /// feed that no feed had before. Call it once per second: a peer that tells other scopes in
    /// each frame costs no more.
    pub(crate) fn follow_scopes(
        &mut self,
        of: (&NodeConfig, &str),
        next_feed: (&mut u64, i64),
        histories: Option<&mut Box<dyn DurableHistories>>,
    ) {
        let subscriber = &self.own.subscriber;
        let scopes = subscriber.mirror().scopes();
        self.scopes.follow(scopes, of, next_feed, histories);
        // What is demanded is not in the configuration.
        self.scopes.set_selectors(subscriber.selectors());
    }

    /// Wakes those who wait for what was written.
    pub(crate) fn wake(&mut self) {
        self.own.segment.wake();
        self.scopes.wake();
    }

    /// Number of streams, those of scopes too.
    pub(crate) fn streams(&self) -> usize {
        self.own.segment.streams() + self.scopes.streams()
    }

    /// Counts of what was taken in so far.
    pub(crate) fn counts(&self) -> MirrorCounts {
        self.own.counts().plus(self.scopes.counts())
    }

    /// Does what is due once a second.
    pub(crate) fn tidy(&mut self) {
        self.own.tidy();
        self.scopes.tidy();
        let of_own = self.own.trouble.clone();
        self.trouble = of_own.or_else(|| self.scopes.trouble());
    }
}

//! The publisher of a segment's streams: the feeds of all its subscribers.
//!
//! Every subscriber is a stranger: their number, the streams of each and the bytes on the way are
//! bounded, and a subscriber that falls silent is forgotten.

use std::collections::BTreeMap;
use std::sync::Arc;

use barograph_stream::{Incarnation, SegmentReader};

use crate::feed::{BEAT_NS, Feed};
use crate::feed_lane::FeedCounts;
use crate::frame::{FrameFault, FrameHeader, FrameKind, Subscription};
use crate::past::PastSource;

/// Time without an acknowledgement after which a subscriber is forgotten, in ns. A living one
/// acknowledges each beat.
const FORGET_NS: i64 = 10 * BEAT_NS;
/// Most subscribers at a time.
pub const SUBSCRIBERS_MAX: usize = 1_024;

/// The feeds of a segment, one for each subscriber.
#[derive(Debug)]
pub struct Publisher {
    segment: Arc<SegmentReader>,
    /// By name of the subscribing node.
    feeds: BTreeMap<Arc<str>, SubscribedFeed>,
    /// The subscriber that was served last.
    served: Option<Arc<str>>,
    refused: u64,
    ended: FeedCounts,
    /// What has the samples that the rings no longer hold.
    past: Option<Arc<dyn PastSource>>,
}

#[derive(Debug)]
struct SubscribedFeed {
    feed: Feed,
    /// Incarnation of the subscriber that asked for the feed.
    incarnation: Incarnation,
    heard_ns: i64,
}

impl SubscribedFeed {
    /// Whether this subscription was sent before the one that began the feed. A subscriber that has
    /// restarted may number its feeds anew.
    fn is_newer_than(&self, subscription: &FrameHeader) -> bool {
        self.incarnation == subscription.incarnation && self.feed.id() > subscription.feed
    }
}

impl Publisher {
    /// Makes a publisher of this segment without a subscriber.
    pub fn new(segment: Arc<SegmentReader>) -> Self {
        Self {
            segment,
            feeds: BTreeMap::new(),
            served: None,
            refused: 0,
            ended: FeedCounts::default(),
            past: None,
        }
    }

    /// Has feeds read from this source what the rings no longer hold, for subscribers that ask for it.
    pub fn read_past_from(&mut self, source: Arc<dyn PastSource>) {
        self.past = Some(source);
    }

    /// Takes in a message of the node `from`, which the transport vouches for, at `now_ns` (ns since
    /// the epoch). Returns whether it was used: a message of a feed that has ended is not, and a
    /// subscription that arrives after a newer one of the same subscriber is not.
    pub fn receive(
        &mut self,
        from: &Arc<str>,
        frame: &[u8],
        now_ns: i64,
    ) -> Result<bool, FrameFault> {
        let (header, body) = FrameHeader::read(frame)?;
        let feed = self.feeds.get_mut(from);
        let feed = feed.filter(|known| known.feed.id() == header.feed);
        match (header.kind, feed) {
            (FrameKind::Subscribe, Some(known)) => {
                // The request came twice.
                known.heard_ns = now_ns;
                Ok(false)
            }
            (FrameKind::Subscribe, None) => {
                let (subscription, selectors) = Subscription::read(body)?;
                let known = self.feeds.get(from);
                if known.is_some_and(|known| known.is_newer_than(&header)) {
                    return Ok(false);
                }
                if !self.feeds.contains_key(from) && self.feeds.len() >= SUBSCRIBERS_MAX {
                    self.refused += 1;
                    return Ok(false);
                }
                self.end(from);
                let segment = Arc::clone(&self.segment);
                let past = self.past.clone();
                let feed = Feed::new(segment, header.feed, (&subscription, selectors), past);
                let known = SubscribedFeed {
                    feed,
                    incarnation: header.incarnation,
                    heard_ns: now_ns,
                };
                self.feeds.insert(Arc::clone(from), known);
                Ok(true)
            }
            (FrameKind::Acknowledge, Some(known)) => {
                known.heard_ns = now_ns;
                known.feed.acknowledge(header.number);
                Ok(true)
            }
            (FrameKind::Unsubscribe, Some(_)) => {
                self.end(from);
                Ok(true)
            }
            (FrameKind::Acknowledge | FrameKind::Unsubscribe, None) => Ok(false),
            (FrameKind::Samples, _) => Err(FrameFault::Kind {
                kind: FrameKind::Samples as u8,
            }),
        }
    }

    /// Makes the next frame for a subscriber, each in turn; `None` if nobody is to be sent anything
    /// at `now_ns`.
    pub fn due(&mut self, now_ns: i64) -> Option<(Arc<str>, Vec<u8>)> {
        self.forget(now_ns);
        let after = self.served.take();
        let is_after = |name: &Arc<str>| after.as_ref().is_some_and(|after| name > after);
        let mut names: Vec<Arc<str>> = self.feeds.keys().cloned().collect();
        let split = names.partition_point(|name| !is_after(name));
        names.rotate_left(if after.is_some() { split } else { 0 });
        for name in names {
            let feed = self.feeds.get_mut(&name)?;
            if let Some(frame) = feed.feed.next_frame(now_ns, Vec::new()) {
                self.served = Some(Arc::clone(&name));
                return Some((name, frame));
            }
        }
        None
    }

    /// Number of subscribers.
    pub fn subscribers(&self) -> usize {
        self.feeds.len()
    }

    /// Number of subscriptions that were refused because there were [`SUBSCRIBERS_MAX`] subscribers.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// What all feeds have sent so far.
    pub fn counts(&self) -> FeedCounts {
        let feeds = self.feeds.values().map(|known| known.feed.counts());
        feeds.fold(self.ended, FeedCounts::plus)
    }

    fn forget(&mut self, now_ns: i64) {
        let is_silent =
            |known: &SubscribedFeed| now_ns.abs_diff(known.heard_ns) >= FORGET_NS as u64;
        let silent = self.feeds.iter().filter(|(_, known)| is_silent(known));
        let silent: Vec<Arc<str>> = silent.map(|(name, _)| Arc::clone(name)).collect();
        silent.iter().for_each(|name| self.end(name));
    }

    fn end(&mut self, name: &Arc<str>) {
        if let Some(known) = self.feeds.remove(name) {
            self.ended = self.ended.plus(known.feed.counts());
        }
    }
}

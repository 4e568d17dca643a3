//! The publisher of a segment's streams: the feeds of all its subscribers.
//!
//! Every subscriber is a stranger: their number, the streams of each and the bytes on the way are
//! bounded, and a subscriber that falls silent is forgotten.

use std::collections::BTreeMap;
use std::sync::Arc;

use barograph_stream::{Incarnation, SegmentReader, SubscribersRow};

use crate::catch_up::CatchUps;
use crate::feed::{BEAT_NS, Feed};
use crate::feed_lane::FeedCounts;
use crate::feed_past::CatchUpState;
use crate::frame::{FrameFault, FrameHeader, FrameKind, Subscription};
use crate::past::PastSource;

/// Time without an acknowledgement after which a subscriber is forgotten, in ns. A living one
/// acknowledges each beat.
const FORGET_NS: i64 = 10 * BEAT_NS;
/// Most subscribers at a time.
pub const SUBSCRIBERS_MAX: usize = 1_024;
/// Most positions of all feeds together: how far each subscriber had each series when its feed began.
pub const POSITIONS_TOTAL_MAX: usize = 1 << 20;
/// Most subscribers without a feed whose counts are kept by name. Of further ones, those whose feed
/// ended the longest ago are counted together.
const TOTALS_MAX: usize = SUBSCRIBERS_MAX;

/// The feeds of a segment, one for each subscriber.
#[derive(Debug)]
pub struct Publisher {
    segment: Arc<SegmentReader>,
    /// By name of the subscribing node.
    feeds: BTreeMap<Arc<str>, SubscribedFeed>,
    /// The subscriber that was served last.
    served: Option<Arc<str>>,
    refused: u64,
    /// What was sent in feeds that have ended, by name of the subscribing node: at most
    /// [`TOTALS_MAX`] of them.
    totals: BTreeMap<Arc<str>, EndedFeeds>,
    /// What was sent to subscribers of which nothing else is known any more.
    forgotten: FeedCounts,
    /// What the feeds that catch up may take together.
    catch_ups: CatchUps,
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

/// The feeds of a subscriber that have ended.
#[derive(Debug, Default)]
struct EndedFeeds {
    counts: FeedCounts,
    /// Time at which the subscriber was last heard, ns since the epoch.
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
            totals: BTreeMap::new(),
            forgotten: FeedCounts::default(),
            catch_ups: CatchUps::default(),
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
                if !self.has_room(from, subscription.positions.len()) {
                    self.refused += 1;
                    return Ok(false);
                }
                self.end(from);
                let segment = Arc::clone(&self.segment);
                let past = self.past.clone();
                let past = past.map(|source| (source, &self.catch_ups));
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

    /// Number of subscriptions that were refused because there were [`SUBSCRIBERS_MAX`] subscribers, or
    /// [`POSITIONS_TOTAL_MAX`] positions.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// What all feeds have sent so far.
    pub fn counts(&self) -> FeedCounts {
        let subscribers = self.rows().map(|(_, counts, _)| counts);
        subscribers.fold(self.forgotten, FeedCounts::plus)
    }

    /// The subscribers by name, those without a feed too: what was sent to each of them, and what was
    /// given up.
    pub fn sent_to(&self) -> Vec<SubscribersRow> {
        let row = |(node, counts, state): (&Arc<str>, FeedCounts, &str)| SubscribersRow {
            node: node.to_string(),
            state: state.to_owned(),
            samples: counts.samples,
            bytes: counts.bytes,
            past: counts.past,
            lost: counts.lost,
            unsent_streams: counts.unsent_streams,
            unsent_streams_max: counts.unsent_streams_max,
            ended_unsent: counts.ended_unsent,
            ended_unread: counts.ended_unread,
            searches_failed: counts.searches_failed,
        };
        self.rows().map(row).collect()
    }

    /// Number of feeds that catch up from the archive, and of those that wait for their turn.
    pub fn catch_ups(&self) -> (usize, usize) {
        self.catch_ups.counts()
    }

    /// Name, counts and state of each subscriber.
    fn rows(&self) -> impl Iterator<Item = (&Arc<str>, FeedCounts, &'static str)> {
        let without = self.totals.keys();
        let without = without.filter(|node| !self.feeds.contains_key(*node));
        let mut nodes: Vec<&Arc<str>> = self.feeds.keys().chain(without).collect();
        nodes.sort_unstable();
        nodes.into_iter().map(|node| {
            let before = self.totals.get(node).map(|ended| ended.counts);
            let before = before.unwrap_or_default();
            let Some(SubscribedFeed { feed, .. }) = self.feeds.get(node) else {
                return (node, before.then(FeedCounts::default()), "gone");
            };
            let state = match feed.catch_up() {
                CatchUpState::Waiting => "waiting",
                CatchUpState::UnderWay => "catching up",
                CatchUpState::Over => "subscribed",
            };
            (node, before.then(feed.counts()), state)
        })
    }

    /// Whether a subscription of the node with so many positions has room.
    fn has_room(&self, node: &Arc<str>, positions: usize) -> bool {
        let others = self.feeds.iter().filter(|(name, _)| *name != node);
        let (mut feeds, mut all) = (0, positions);
        for (_, known) in others {
            feeds += 1;
            all += known.feed.positions();
        }
        feeds < SUBSCRIBERS_MAX && all <= POSITIONS_TOTAL_MAX
    }

    fn forget(&mut self, now_ns: i64) {
        let is_silent =
            |known: &SubscribedFeed| now_ns.abs_diff(known.heard_ns) >= FORGET_NS as u64;
        let is_over = |known: &SubscribedFeed| is_silent(known) || known.feed.is_over();
        let over = self.feeds.iter().filter(|(_, known)| is_over(known));
        let over: Vec<Arc<str>> = over.map(|(name, _)| Arc::clone(name)).collect();
        over.iter().for_each(|name| self.end(name));
    }

    fn end(&mut self, name: &Arc<str>) {
        let Some(known) = self.feeds.remove(name) else {
            return;
        };
        let ended = self.totals.entry(Arc::clone(name)).or_default();
        ended.counts = ended.counts.then(known.feed.counts());
        ended.heard_ns = known.heard_ns;
        let without = self.totals.iter();
        let without = without.filter(|(node, _)| !self.feeds.contains_key(*node));
        if without.clone().count() > TOTALS_MAX
            && let Some((oldest, _)) = without.min_by_key(|(_, ended)| ended.heard_ns)
        {
            let oldest = Arc::clone(oldest);
            let counts = self.totals.remove(&oldest).map(|ended| ended.counts);
            let counts = counts.unwrap_or_default().then(FeedCounts::default());
            self.forgotten = self.forgotten.plus(counts);
        }
    }
}

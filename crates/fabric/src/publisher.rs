//! The publisher of a node's streams: the feeds of all its subscribers. A subscriber has one feed
//! of the node's own segment, and one of each scope of applications that is published and that it
//! asks for.
//!
//! Every subscriber is a stranger: their number, the streams of each and the bytes on the way are
//! bounded, and a subscriber that falls silent is forgotten.

use std::collections::BTreeMap;
use std::sync::Arc;

use barograph_model::Selector;
use barograph_stream::{Incarnation, SegmentReader, SubscribersRow};

use crate::catch_up::CatchUps;
use crate::feed::{BEAT_NS, Feed};
use crate::feed_lane::FeedCounts;
use crate::feed_past::CatchUpState;
use crate::frame::{FrameFault, FrameHeader, FrameKind, POSITIONS_MAX, Subscription};
use crate::past::PastSource;

/// Time without an acknowledgement after which a subscriber is forgotten, in ns. A living one
/// acknowledges each beat.
const FORGET_NS: i64 = 10 * BEAT_NS;
/// Most subscribers at a time.
pub const SUBSCRIBERS_MAX: usize = 1_024;
/// Most feeds of scopes at a time.
const SCOPE_FEEDS_MAX: usize = 4 * SUBSCRIBERS_MAX;
/// Most positions of all feeds together: how far each subscriber had each series when its feed
/// began.
pub const POSITIONS_TOTAL_MAX: usize = 1 << 20;
/// Most positions of the feeds of one subscriber.
const POSITIONS_OF_NODE_MAX: usize = 4 * POSITIONS_MAX;
/// Most subscriptions without a feed whose counts are kept by name. Of further ones, those whose
/// feed ended the longest ago are counted together.
const TOTALS_MAX: usize = SUBSCRIBERS_MAX;

/// The subscribing node, and the scope that it subscribes to: empty for the node's own streams.
type FeedKey = (Arc<str>, Arc<str>);

/// The segments of the published scopes of applications, by name of the scope.
pub type PublishedScopes = BTreeMap<Arc<str>, Arc<SegmentReader>>;

/// The feeds of a node, one for each subscriber and segment.
#[derive(Debug)]
pub struct Publisher {
    segment: Arc<SegmentReader>,
    scopes: PublishedScopes,
    /// The names of the scopes, as feeds tell them.
    scope_names: Arc<[Arc<str>]>,
    feeds: BTreeMap<FeedKey, SubscribedFeed>,
    /// The feed that was served last.
    served: Option<FeedKey>,
    /// Number of times that a feed has begun or ended.
    changes: u64,
    refused: u64,
    /// Counts of what was sent in feeds that have ended: at most [`TOTALS_MAX`] of them.
    totals: BTreeMap<FeedKey, EndedFeeds>,
    /// Counts of what was sent to subscribers of which nothing else is known any more.
    forgotten: FeedCounts,
    /// Bounds of what the feeds of the node's own streams that catch up take together.
    catch_ups: CatchUps,
    /// The same for all feeds of scopes, so that what users publish holds up nothing of the node's
    /// own.
    scope_catch_ups: CatchUps,
    /// Source of the samples that the rings no longer hold.
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
            scopes: BTreeMap::new(),
            scope_names: Arc::from([]),
            feeds: BTreeMap::new(),
            served: None,
            changes: 0,
            refused: 0,
            totals: BTreeMap::new(),
            forgotten: FeedCounts::default(),
            catch_ups: CatchUps::default(),
            scope_catch_ups: CatchUps::default(),
            past: None,
        }
    }

    /// Has feeds read from this source what the rings no longer hold, for subscribers that ask for
    /// it.
    pub fn read_past_from(&mut self, source: Arc<dyn PastSource>) {
        self.past = Some(source);
    }

    /// Publishes these scopes from now on. Feeds of a scope that has gone, or has another segment,
    /// end.
    pub fn set_scopes(&mut self, scopes: PublishedScopes) {
        let is_over = |(_, scope): &FeedKey, known: &SubscribedFeed| {
            let published = scopes.get(scope);
            let is_same = |segment| Arc::ptr_eq(segment, known.feed.segment());
            !scope.is_empty() && !published.is_some_and(is_same)
        };
        let over = self.feeds.iter().filter(|(key, known)| is_over(key, known));
        let over: Vec<FeedKey> = over.map(|(key, _)| key.clone()).collect();
        over.iter().for_each(|key| self.end(key));
        self.scope_names = scopes.keys().cloned().collect();
        self.scopes = scopes;
        for ((_, scope), known) in &mut self.feeds {
            if scope.is_empty() {
                known.feed.tell_scopes(&self.scope_names);
            }
        }
    }

    /// Takes in a message of the node `from`, which the transport vouches for, at `now_ns` (ns
    /// since the epoch). Returns whether it was used: a message of a feed that has ended is not,
    /// and a subscription that arrives after a newer one of the same subscriber is not.
    pub fn receive(
        &mut self,
        from: &Arc<str>,
        frame: &[u8],
        now_ns: i64,
    ) -> Result<bool, FrameFault> {
        let (header, body) = FrameHeader::read(frame)?;
        let key = self.key_of(from, header.feed);
        let known = key.as_ref().and_then(|key| self.feeds.get_mut(key));
        match (header.kind, known) {
            (FrameKind::Subscribe, Some(known)) => {
                // The request came twice.
                known.heard_ns = now_ns;
                Ok(false)
            }
            (FrameKind::Subscribe, None) => {
                let (subscription, selectors) = Subscription::read(body)?;
                Ok(self.subscribe(from, &header, (&subscription, selectors), now_ns))
            }
            (FrameKind::Acknowledge, Some(known)) => {
                known.heard_ns = now_ns;
                known.feed.acknowledge(header.number);
                Ok(true)
            }
            (FrameKind::Unsubscribe, Some(_)) => {
                key.iter().for_each(|key| self.end(key));
                Ok(true)
            }
            (FrameKind::Acknowledge | FrameKind::Unsubscribe, None) => Ok(false),
            (FrameKind::Samples, _) => Err(FrameFault::Kind {
                kind: FrameKind::Samples as u8,
            }),
        }
    }

    /// Begins a feed. Returns whether it was: not if it has no room, if the scope is not published,
    /// or if the node has subscribed anew since it sent this.
    fn subscribe(
        &mut self,
        from: &Arc<str>,
        header: &FrameHeader,
        (subscription, selectors): (&Subscription, Vec<Selector>),
        now_ns: i64,
    ) -> bool {
        let key = (Arc::clone(from), Arc::clone(&subscription.scope));
        let known = self.feeds.get(&key);
        if known.is_some_and(|known| known.is_newer_than(header)) {
            return false;
        }
        let is_of_node = subscription.scope.is_empty();
        let segment = match is_of_node {
            true => Some(&self.segment),
            false => self.scopes.get(&subscription.scope),
        };
        let Some(segment) = segment.cloned() else {
            return false;
        };
        if !self.has_room(&key, subscription.positions.len()) {
            self.refused += 1;
            return false;
        }
        self.end(&key);
        let past = match is_of_node {
            true => self.past.clone().map(|source| (source, &self.catch_ups)),
            false => {
                let of_scope = self.past.as_ref();
                let of_scope = of_scope.and_then(|source| source.of_scope(&subscription.scope));
                of_scope.map(|source| (source, &self.scope_catch_ups))
            }
        };
        let mut feed = Feed::new(segment, header.feed, (subscription, selectors), past);
        if is_of_node {
            feed.tell_scopes(&self.scope_names);
        }
        let known = SubscribedFeed {
            feed,
            incarnation: header.incarnation,
            heard_ns: now_ns,
        };
        self.feeds.insert(key, known);
        self.changes += 1;
        true
    }

    /// The key of a subscriber's feed of this number.
    fn key_of(&self, node: &Arc<str>, feed: u64) -> Option<FeedKey> {
        let from = self.feeds.range((Arc::clone(node), "".into())..);
        let mut feeds = from.take_while(|((of, _), _)| of == node);
        let found = feeds.find(|(_, known)| known.feed.id() == feed);
        found.map(|(key, _)| key.clone())
    }

    /// Makes the next frame for a subscriber, each feed in turn; `None` if nobody is to be sent
    /// anything at `now_ns`.
    pub fn due(&mut self, now_ns: i64) -> Option<(Arc<str>, Vec<u8>)> {
        self.forget(now_ns);
        let after = self.served.take();
        let is_after = |key: &FeedKey| after.as_ref().is_some_and(|after| key > after);
        let mut keys: Vec<FeedKey> = self.feeds.keys().cloned().collect();
        let split = keys.partition_point(|key| !is_after(key));
        keys.rotate_left(if after.is_some() { split } else { 0 });
        for key in keys {
            let known = self.feeds.get_mut(&key)?;
            if let Some(frame) = known.feed.next_frame(now_ns, Vec::new()) {
                let node = Arc::clone(&key.0);
                self.served = Some(key);
                return Some((node, frame));
            }
        }
        None
    }

    /// A number that grows whenever a feed begins or ends.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The segments that somebody subscribes to.
    pub fn subscribed(&self) -> Vec<Arc<SegmentReader>> {
        let mut scopes: Vec<&Arc<str>> = self.feeds.keys().map(|(_, scope)| scope).collect();
        scopes.sort_unstable();
        scopes.dedup();
        let segment = |scope: &Arc<str>| match scope.is_empty() {
            true => Some(Arc::clone(&self.segment)),
            false => self.scopes.get(scope).cloned(),
        };
        scopes.into_iter().filter_map(segment).collect()
    }

    /// Number of subscribers.
    pub fn subscribers(&self) -> usize {
        self.feeds.keys().filter(|key| is_of_node(key)).count()
    }

    /// Number of subscriptions that were refused because there were [`SUBSCRIBERS_MAX`]
    /// subscribers, or [`POSITIONS_TOTAL_MAX`] positions.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Counts of what all feeds have sent so far.
    pub fn counts(&self) -> FeedCounts {
        let subscribers = self.rows().map(|(_, counts, _)| counts);
        subscribers.fold(self.forgotten, FeedCounts::plus)
    }

    /// The subscriptions by node and scope, those without a feed too: what was sent for each of
    /// them, and what was given up.
    pub fn sent_to(&self) -> Vec<SubscribersRow> {
        let row = |(key, counts, state): (&FeedKey, FeedCounts, &str)| SubscribersRow {
            node: key.0.to_string(),
            scope: key.1.to_string(),
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
        let (of_node, of_scopes) = (self.catch_ups.counts(), self.scope_catch_ups.counts());
        (of_node.0 + of_scopes.0, of_node.1 + of_scopes.1)
    }

    /// Counts and state of each subscription.
    fn rows(&self) -> impl Iterator<Item = (&FeedKey, FeedCounts, &'static str)> {
        let without = self.totals.keys();
        let without = without.filter(|key| !self.feeds.contains_key(*key));
        let mut keys: Vec<&FeedKey> = self.feeds.keys().chain(without).collect();
        keys.sort_unstable();
        keys.into_iter().map(|key| {
            let before = self.totals.get(key).map(|ended| ended.counts);
            let before = before.unwrap_or_default();
            let Some(SubscribedFeed { feed, .. }) = self.feeds.get(key) else {
                return (key, before.then(FeedCounts::default()), "gone");
            };
            let state = match feed.catch_up() {
                CatchUpState::Waiting => "waiting",
                CatchUpState::UnderWay => "catching up",
                CatchUpState::Over => "subscribed",
            };
            (key, before.then(feed.counts()), state)
        })
    }

    /// Whether a subscription with so many positions has room.
    fn has_room(&self, key: &FeedKey, positions: usize) -> bool {
        let (mut feeds, mut all, mut of_node) = (0, positions, positions);
        for (other, known) in self.feeds.iter().filter(|(other, _)| *other != key) {
            let held = known.feed.positions();
            feeds += usize::from(is_of_node(other) == is_of_node(key));
            all += held;
            of_node += if other.0 == key.0 { held } else { 0 };
        }
        let feeds_max = match is_of_node(key) {
            true => SUBSCRIBERS_MAX,
            false => SCOPE_FEEDS_MAX,
        };
        feeds < feeds_max && all <= POSITIONS_TOTAL_MAX && of_node <= POSITIONS_OF_NODE_MAX
    }

    fn forget(&mut self, now_ns: i64) {
        let is_silent =
            |known: &SubscribedFeed| now_ns.abs_diff(known.heard_ns) >= FORGET_NS as u64;
        let is_over = |known: &SubscribedFeed| is_silent(known) || known.feed.is_over();
        let over = self.feeds.iter().filter(|(_, known)| is_over(known));
        let over: Vec<FeedKey> = over.map(|(key, _)| key.clone()).collect();
        over.iter().for_each(|key| self.end(key));
    }

    fn end(&mut self, key: &FeedKey) {
        let Some(known) = self.feeds.remove(key) else {
            return;
        };
        self.changes += 1;
        let ended = self.totals.entry(key.clone()).or_default();
        ended.counts = ended.counts.then(known.feed.counts());
        ended.heard_ns = known.heard_ns;
        let without = self.totals.iter();
        let without = without.filter(|(other, _)| !self.feeds.contains_key(*other));
        if without.clone().count() > TOTALS_MAX
            && let Some((oldest, _)) = without.min_by_key(|(_, ended)| ended.heard_ns)
        {
            let oldest = oldest.clone();
            let counts = self.totals.remove(&oldest).map(|ended| ended.counts);
            let counts = counts.unwrap_or_default().then(FeedCounts::default());
            self.forgotten = self.forgotten.plus(counts);
        }
    }
}

/// Whether a feed is of the node's own segment.
fn is_of_node((_, scope): &FeedKey) -> bool {
    scope.is_empty()
}

//! The subscriber to one node's streams: it asks for a feed, takes it in, acknowledges it, and asks
//! again from where it is when the feed has a hole or falls silent.
//!
//! A subscriber that keeps the streams durably acknowledges a frame only when it is durable. While
//! nothing can be written, it repeats its last acknowledgement, so that the owner keeps the feed
//! and sends nothing more than the window allows.

use std::sync::Arc;

use barograph_stream::Incarnation;

use crate::feed::BEAT_NS;
use crate::frame::{
    FeedReach, FrameFault, FrameHeader, FrameKind, Position, Subscription, empty_frame,
};
use crate::mirror::{Mirror, MirrorSink, Received};

/// Time without a frame after which a subscriber asks again, in ns: its request or the feed's
/// frames may be lost.
const SILENCE_NS: i64 = 3 * BEAT_NS;
/// Time after which a frame is acknowledged, in ns; sooner if much has come.
const ACKNOWLEDGE_NS: i64 = 100_000_000;
/// Time between two looks whether frames are durable, in ns.
const DURABLE_NS: i64 = 20_000_000;

/// The wishes of a subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriberConfig {
    /// Incarnation of the subscriber's own agent.
    pub incarnation: Incarnation,
    /// A number that no feed of this subscriber had before, such as the time of its start in ns.
    pub first_feed: u64,
    /// Selectors of the wanted streams.
    pub selectors: Vec<String>,
    /// Reach of the feed into the past.
    pub reach: FeedReach,
    /// Most bytes on the way.
    pub window_bytes: u64,
    /// Most streams.
    pub streams_max: usize,
    /// The scope of applications whose streams are wanted; empty for the node's own streams.
    pub scope: Arc<str>,
}

/// The subscriber to one node's streams.
#[derive(Debug)]
pub struct Subscriber {
    config: SubscriberConfig,
    mirror: Mirror,
    /// If frames are acknowledged only when they are durable: the feed, and the number of its
    /// newest durable frame.
    durable: Option<(u64, u64)>,
    next_feed: u64,
    /// Time of the newest request or frame, ns since the epoch.
    heard_ns: i64,
    is_to_subscribe: bool,
    acknowledged: u64,
    /// Time of the newest acknowledgement, ns since the epoch.
    acknowledged_ns: i64,
    /// Bytes taken in since the last acknowledgement.
    unacknowledged_bytes: u64,
    acknowledge_at_ns: i64,
}

impl Subscriber {
    /// Makes a subscriber that asks for its first feed at once.
    pub fn new(config: SubscriberConfig) -> Self {
        Self {
            mirror: Mirror::new(config.streams_max),
            durable: None,
            next_feed: config.first_feed,
            heard_ns: i64::MIN,
            is_to_subscribe: true,
            acknowledged: 0,
            acknowledged_ns: i64::MIN,
            unacknowledged_bytes: 0,
            acknowledge_at_ns: i64::MAX,
            config,
        }
    }

    /// Goes on from these positions, which are durable, and acknowledges frames only when
    /// [`Self::set_durable`] says so. Call it before the first feed.
    pub fn keep_durably(&mut self, positions: &[Position]) {
        self.mirror.resume(positions);
        self.durable = Some((0, 0));
    }

    /// Notes that all frames of this feed up to this number are durable.
    pub fn set_durable(&mut self, feed: u64, number: u64) {
        if let Some(durable) = &mut self.durable {
            *durable = (feed, number);
        }
    }

    /// Takes in a frame of samples that came at `now_ns`, ns since the epoch.
    pub fn receive(
        &mut self,
        frame: &[u8],
        now_ns: i64,
        sink: &mut impl MirrorSink,
    ) -> Result<Received, FrameFault> {
        let received = self.mirror.receive(frame, sink);
        match received {
            Ok(Received::Taken) => {
                self.heard_ns = now_ns;
                self.unacknowledged_bytes += frame.len() as u64;
                let at_ns = now_ns.saturating_add(ACKNOWLEDGE_NS);
                self.acknowledge_at_ns = self.acknowledge_at_ns.min(at_ns);
                if self.unacknowledged_bytes >= self.config.window_bytes / 4 {
                    self.acknowledge_at_ns = now_ns;
                }
            }
            Ok(Received::Known) => {}
            Ok(Received::Hole) => self.is_to_subscribe = true,
            // A sender whose frames are refused is asked again only after a silence. Its feed has
            // ended, so that there is nothing to acknowledge.
            Err(_) => {
                self.heard_ns = now_ns;
                self.acknowledge_at_ns = i64::MAX;
            }
        }
        received
    }

    /// Makes the next message to the owner that is due at `now_ns`; `None` if there is none.
    pub fn due(&mut self, now_ns: i64) -> Option<Vec<u8>> {
        if self.waiting().is_some() {
            // The owner's window may be full: a silence begins only when the frames are durable.
            self.heard_ns = now_ns;
        }
        let is_silent = now_ns.abs_diff(self.heard_ns) >= SILENCE_NS as u64;
        if self.is_to_subscribe || is_silent {
            return Some(self.subscribe(now_ns));
        }
        let (feed, taken) = self.mirror.progress()?;
        if now_ns < self.acknowledge_at_ns {
            return None;
        }
        let number = self.waiting().unwrap_or(taken);
        let is_repeat_due = now_ns.abs_diff(self.acknowledged_ns) >= BEAT_NS as u64;
        let is_behind = number < taken;
        self.acknowledge_at_ns = match is_behind {
            true => now_ns.saturating_add(DURABLE_NS),
            false => i64::MAX,
        };
        if number == self.acknowledged && !(is_behind && is_repeat_due) {
            return None;
        }
        self.acknowledged = number;
        self.acknowledged_ns = now_ns;
        self.unacknowledged_bytes = 0;
        let header = self.header(FrameKind::Acknowledge, feed, now_ns);
        Some(empty_frame(&FrameHeader { number, ..header }))
    }

    /// The selectors of the wanted streams.
    pub(crate) fn selectors(&self) -> &[String] {
        &self.config.selectors
    }

    /// Wants these streams from now on.
    pub fn set_selectors(&mut self, selectors: Vec<String>) {
        if self.config.selectors != selectors {
            self.config.selectors = selectors;
            self.is_to_subscribe = true;
        }
    }

    /// Whether a frame of this feed is for this subscriber.
    pub(crate) fn is_of(&self, feed: u64) -> bool {
        self.mirror
            .progress()
            .is_some_and(|(present, _)| present == feed)
    }

    /// Has the next [`Self::due`] ask for a new feed, since the owner may have lost the present
    /// one.
    pub fn ask_again(&mut self) {
        self.is_to_subscribe = true;
    }

    /// Time of the next [`Self::due`] that may give a message if nothing is received before.
    pub fn deadline_ns(&self) -> i64 {
        if self.is_to_subscribe {
            return i64::MIN;
        }
        let silent_ns = self.heard_ns.saturating_add(SILENCE_NS);
        silent_ns.min(self.acknowledge_at_ns)
    }

    /// Whether frames were taken in that are not durable yet.
    pub fn is_waiting(&self) -> bool {
        self.waiting().is_some()
    }

    /// The newest durable frame of the present feed, if later ones were taken in.
    fn waiting(&self) -> Option<u64> {
        let (feed, durable) = self.durable?;
        let (present, taken) = self.mirror.progress()?;
        let number = if feed == present { durable } else { 0 };
        (number < taken).then_some(number)
    }

    /// The streams that have been taken in.
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    fn subscribe(&mut self, now_ns: i64) -> Vec<u8> {
        let feed = self.next_feed;
        self.next_feed = self.next_feed.wrapping_add(1);
        let subscription = Subscription {
            selectors: self.config.selectors.clone(),
            window_bytes: self.config.window_bytes,
            streams_max: self.config.streams_max as u64,
            positions: self.mirror.positions(),
            reach: self.config.reach,
            newest_life_ns: self.mirror.newest_life_ns(),
            scope: Arc::clone(&self.config.scope),
        };
        self.mirror.expect(feed);
        self.is_to_subscribe = false;
        self.heard_ns = now_ns;
        self.acknowledged = 0;
        self.unacknowledged_bytes = 0;
        self.acknowledge_at_ns = i64::MAX;
        subscription.write(&self.header(FrameKind::Subscribe, feed, now_ns))
    }

    fn header(&self, kind: FrameKind, feed: u64, now_ns: i64) -> FrameHeader {
        FrameHeader {
            kind,
            incarnation: self.config.incarnation,
            feed,
            number: 0,
            sent_ns: now_ns,
        }
    }
}

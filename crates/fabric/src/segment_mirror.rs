//! The mirror of one segment of another node: its feed goes into a segment of this node's memory
//! and, if its history is kept, to the part that writes it.

use std::collections::VecDeque;
use std::sync::Arc;

use barograph_model::{Descriptor, Sample, Selector, StreamKey};
use barograph_stream::{RunDir, StreamError};

use crate::config::NodeConfig;
use crate::frame::{Announcement, FeedReach, FrameFault};
use crate::history::DurableHistory;
use crate::mirror::{MirrorCounts, MirrorSink, Received};
use crate::mirror_room::MirrorBounds;
use crate::mirror_segment::MirrorSegment;
use crate::subscriber::{Subscriber, SubscriberConfig};

/// The mirror of one segment: of a node's own streams, or of a scope of its applications.
#[derive(Debug)]
pub(crate) struct SegmentMirror {
    pub(crate) subscriber: Subscriber,
    pub(crate) segment: MirrorSegment,
    /// Present trouble of the history.
    pub(crate) trouble: Option<String>,
    history: Option<KeptHistory>,
}

/// Streams that are mirrored, and the place of their mirror.
#[derive(Debug)]
pub(crate) struct MirrorPlace<'a> {
    /// The node.
    pub(crate) node: &'a str,
    /// The scope; empty for the node's own streams.
    pub(crate) scope: Arc<str>,
    /// The directory of the mirror.
    pub(crate) dir: &'a RunDir,
    pub(crate) bounds: MirrorBounds,
}

/// The history of the segment, and the frames that are not durable yet.
#[derive(Debug)]
struct KeptHistory {
    history: Box<dyn DurableHistory>,
    /// The streams that the configuration wants. What is mirrored by demand is not kept.
    configured: Vec<Selector>,
    /// Whether the stream of a key is kept.
    is_kept: Vec<bool>,
    frames: VecDeque<WaitingFrame>,
}

/// The newest frame of those that were handed to the writer together.
#[derive(Clone, Copy, Debug)]
struct WaitingFrame {
    feed: u64,
    number: u64,
    /// Place in the order of writing.
    place: u64,
}

impl SegmentMirror {
    /// Makes an empty mirror. Its subscriber numbers its feeds from `first_feed` on.
    pub(crate) fn create(
        config: &NodeConfig,
        place: MirrorPlace<'_>,
        (first_feed, now_ns): (u64, i64),
        history: Option<Box<dyn DurableHistory>>,
    ) -> Result<Self, StreamError> {
        let mut subscriber = Subscriber::new(SubscriberConfig {
            incarnation: config.incarnation,
            first_feed,
            selectors: config.wanted.clone(),
            // A mirror has no room for more than rings hold.
            reach: match history {
                Some(_) => FeedReach::Archive,
                None => FeedReach::Rings,
            },
            window_bytes: config.window_bytes,
            streams_max: place.bounds.streams_max,
            scope: place.scope,
        });
        if let Some(history) = &history {
            subscriber.keep_durably(&history.positions());
        }
        let configured = config.wanted.iter().map(|text| Selector::parse(text));
        let mut mirror = Self {
            subscriber,
            segment: MirrorSegment::create(place.dir, place.node, &place.bounds, now_ns)?,
            trouble: None,
            history: history.map(|history| KeptHistory {
                history,
                configured: configured.filter_map(Result::ok).collect(),
                is_kept: Vec::new(),
                frames: VecDeque::new(),
            }),
        };
        // The directory of the mirror is there now: its readers are told where the past is.
        mirror.tidy();
        Ok(mirror)
    }

    /// Whether the history is kept.
    pub(crate) fn is_kept(&self) -> bool {
        self.history.is_some()
    }

    /// Takes in a frame of samples that came at `now_ns`, ns since the epoch.
    pub(crate) fn receive(&mut self, frame: &[u8], now_ns: i64) -> Result<Received, FrameFault> {
        let mut sinks = MirrorSinks {
            segment: &mut self.segment,
            history: self.history.as_mut(),
        };
        let received = self.subscriber.receive(frame, now_ns, &mut sinks);
        if received == Ok(Received::Taken) {
            self.segment.heard(now_ns);
        }
        received
    }

    /// Makes the next message to the owner that is due at `now_ns`; `None` if there is none.
    pub(crate) fn due(&mut self, now_ns: i64) -> Option<Vec<u8>> {
        if let Some(kept) = &mut self.history {
            kept.attend(&mut self.subscriber);
        }
        self.subscriber.due(now_ns)
    }

    /// Counts of what was taken in so far.
    pub(crate) fn counts(&self) -> MirrorCounts {
        let counts = self.subscriber.mirror().counts();
        MirrorCounts {
            missed: counts.missed + self.segment.refused,
            ..counts
        }
    }

    /// Does what is due once a second.
    pub(crate) fn tidy(&mut self) {
        self.segment.give_memory_back();
        let kept = self.history.as_mut();
        self.trouble = kept.and_then(|kept| kept.history.beat());
    }
}

impl KeptHistory {
    /// Begins a stream, if the configuration wants it.
    fn declare(&mut self, key: StreamKey, announcement: &Announcement) {
        let Descriptor { name, labels, .. } = &announcement.descriptor;
        let is_match = |s: &Selector| s.matches(name.as_str(), labels);
        let is_kept = self.configured.iter().any(is_match);
        let at = key.0 as usize;
        self.is_kept.resize(self.is_kept.len().max(at + 1), false);
        self.is_kept[at] = is_kept;
        if is_kept {
            self.history.declare(key, announcement);
        }
    }

    /// The history of a stream; `None` if the stream is not kept.
    fn of(&mut self, key: StreamKey) -> Option<&mut dyn DurableHistory> {
        let is_kept = self.is_kept.get(key.0 as usize);
        is_kept.filter(|is_kept| **is_kept)?;
        Some(&mut *self.history)
    }

    /// Hands over what has come, and has the subscriber acknowledge what is durable.
    fn attend(&mut self, subscriber: &mut Subscriber) {
        let newest = self.frames.back();
        if let Some((feed, number)) = subscriber.mirror().progress()
            && newest.is_none_or(|newest| (newest.feed, newest.number) != (feed, number))
            && subscriber.is_waiting()
        {
            let place = self.history.submit();
            self.frames.push_back(WaitingFrame {
                feed,
                number,
                place,
            });
        }
        self.history.step();
        while let Some(frame) = self.frames.front().copied()
            && self.history.is_durable(frame.place)
        {
            self.frames.pop_front();
            subscriber.set_durable(frame.feed, frame.number);
        }
    }
}

/// The receivers of a mirror's samples.
struct MirrorSinks<'m> {
    segment: &'m mut MirrorSegment,
    history: Option<&'m mut KeptHistory>,
}

impl MirrorSinks<'_> {
    /// The history of a stream; `None` if it is not kept.
    fn history(&mut self, key: StreamKey) -> Option<&mut dyn DurableHistory> {
        self.history.as_mut()?.of(key)
    }
}

impl MirrorSink for MirrorSinks<'_> {
    fn declare(&mut self, announcement: &Announcement) -> Option<StreamKey> {
        let key = self.segment.declare(announcement)?;
        if let Some(kept) = &mut self.history {
            kept.declare(key, announcement);
        }
        Some(key)
    }

    fn retire(&mut self, key: StreamKey) {
        self.segment.retire(key);
        if let Some(history) = self.history(key) {
            history.retire(key);
        }
    }

    fn append(&mut self, key: StreamKey, number: u64, sample: &Sample) {
        self.segment.append(key, number, sample);
        if let Some(history) = self.history(key) {
            history.append(key, number, sample);
        }
    }

    fn recall(&mut self, key: StreamKey, number: u64, sample: &Sample) {
        self.segment.recall(key, number, sample);
    }

    fn confirm(&mut self, key: StreamKey, looked_ns: i64) {
        self.segment.confirm(key, looked_ns);
        if let Some(history) = self.history(key) {
            history.confirm(key, looked_ns);
        }
    }

    fn expect_interval(&mut self, key: StreamKey, interval_ns: i64) {
        self.segment.expect_interval(key, interval_ns);
    }

    fn miss(&mut self, key: StreamKey, first: u64, count: u64) {
        self.segment.miss(key, first, count);
        if let Some(history) = self.history(key) {
            history.miss(key, first);
        }
    }
}

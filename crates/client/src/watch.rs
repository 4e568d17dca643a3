//! A watch: every new sample of a set of streams that may change.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use barograph_model::{Descriptor, Sample, Selector, SeriesId};
use barograph_stream::{SegmentReader, SegmentTicks};

use crate::view::{NodeView, ViewStream};
use crate::view_follower::ViewFollower;

/// Number of updates beyond which one answer stops growing (by at most one ring); the rest follows
/// in the next answer.
pub const UPDATES_MAX: usize = 16_384;

/// Longest sleep without a check for a new agent (a killed one wakes nobody) and for streams in
/// segments of which no stream is watched yet.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// One new sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// The stream's index in [`Watch::streams`].
    pub index: usize,
    /// The stream's descriptor.
    pub descriptor: Arc<Descriptor>,
    /// The stream's identity, over its lives.
    pub series: SeriesId,
    /// The node that the stream is of.
    pub node: Arc<str>,
    /// The new sample.
    pub sample: Sample,
    /// Number of earlier samples of this stream that the ring no longer held.
    pub lost: u64,
    /// Whether nobody writes the stream's segment at present: its agent is dead, or nothing is
    /// heard of the mirrored node.
    pub stale: bool,
}

/// Follows the streams that match a selector: first the newest sample of each, then every later
/// sample once. Streams that are registered later are followed from their first sample.
pub struct Watch {
    follower: Arc<ViewFollower>,
    selector: Selector,
    view: Option<Arc<NodeView>>,
    watched: Vec<Watched>,
    /// The segments of the watched streams, or the node's own; never empty.
    segments: Vec<Arc<SegmentReader>>,
    changes: u64,
    /// Index of the first stream of the next answer, so that full answers starve no stream.
    turn: usize,
    /// Number of updates beyond which an answer stops growing.
    updates_max: usize,
}

struct Watched {
    known: Arc<ViewStream>,
    cursor: u64,
    /// Samples that were overwritten and are told with the next one. The writer may overtake a look
    /// as a whole, so that it has lost samples and found none.
    lost: u64,
}

impl Watch {
    pub(crate) fn new(follower: Arc<ViewFollower>, selector: Selector, updates_max: usize) -> Self {
        let mut watch = Self {
            follower,
            selector,
            view: None,
            watched: Vec::new(),
            segments: Vec::new(),
            changes: 0,
            turn: 0,
            updates_max,
        };
        watch.follow();
        for watched in &mut watch.watched {
            let count = watched.known.handle.count().unwrap_or(0);
            watched.cursor = count.saturating_sub(1);
        }
        watch
    }

    /// The streams that are followed, sorted by name and labels.
    pub fn streams(&self) -> impl ExactSizeIterator<Item = &Arc<Descriptor>> {
        self.watched.iter().map(|w| &w.known.descriptor)
    }

    /// A counter that grows whenever [`Watch::streams`] changes, and with it the meaning of
    /// indices.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Waits for new samples, at most `timeout`; `None` if there were none. Ordered by stream, the
    /// oldest sample first within each.
    pub fn next(&mut self, timeout: Duration) -> Option<Vec<Update>> {
        let mut left = timeout;
        loop {
            // Before the look, so that what is written after it ends the sleep at once.
            let mut ticks = SegmentTicks::of(&self.segments);
            if self.follow() {
                ticks = SegmentTicks::of(&self.segments);
                self.follow();
            }
            let updates = self.collect();
            if !updates.is_empty() {
                return Some(updates);
            }
            if left.is_zero() {
                return None;
            }
            left = left.saturating_sub(ticks.wait(left.min(SLEEP_MAX)));
        }
    }

    /// Takes over the streams as they are now; those that are still the same keep their place.
    /// Whether there was anything to take over.
    fn follow(&mut self) -> bool {
        let view = self.follower.view();
        if self
            .view
            .as_ref()
            .is_some_and(|held| Arc::ptr_eq(held, &view))
        {
            return false;
        }
        let places: HashMap<*const ViewStream, (u64, u64)> = self
            .watched
            .iter()
            .map(|w| (Arc::as_ptr(&w.known), (w.cursor, w.lost)))
            .collect();
        let watched: Vec<Watched> = view
            .matching(&self.selector)
            .map(|known| {
                let place = places.get(&Arc::as_ptr(known)).copied();
                let (cursor, lost) = place.unwrap_or_default();
                Watched {
                    known: Arc::clone(known),
                    cursor,
                    lost,
                }
            })
            .collect();
        let same = watched.len() == self.watched.len()
            && watched
                .iter()
                .zip(&self.watched)
                .all(|(a, b)| Arc::ptr_eq(&a.known, &b.known));
        if !same {
            self.turn = 0;
            self.changes += 1;
        }
        self.segments = view
            .segments()
            .iter()
            .filter(|s| watched.iter().any(|w| Arc::ptr_eq(&w.known.segment, s)))
            .cloned()
            .collect();
        if self.segments.is_empty() {
            self.segments.push(Arc::clone(view.segment()));
        }
        self.watched = watched;
        self.view = Some(view);
        true
    }

    /// Goes over what there is of each stream now, a stream at a time: its newest sample, or the
    /// whole ring. What is written later is left to [`Self::next`].
    pub(crate) fn take_first(&mut self, is_whole_ring: bool, mut take: impl FnMut(Update)) {
        let now_ns = self.follower.now_ns();
        let mut samples = Vec::new();
        for (index, watched) in self.watched.iter_mut().enumerate() {
            if is_whole_ring {
                watched.cursor = 0;
            }
            watched.look(index, now_ns, &mut samples, &mut take);
            // What a ring has lost before was never asked for.
            watched.lost = 0;
        }
    }

    fn collect(&mut self) -> Vec<Update> {
        let mut updates = Vec::new();
        let mut samples = Vec::new();
        let now_ns = self.follower.now_ns();
        let streams = self.watched.len();
        for step in 0..streams {
            let index = (self.turn + step) % streams;
            if updates.len() >= self.updates_max {
                self.turn = index;
                break;
            }
            let watched = &mut self.watched[index];
            watched.look(index, now_ns, &mut samples, &mut |update| {
                updates.push(update);
            });
        }
        updates
    }
}

impl Watched {
    /// Takes the samples since the last look; `samples` is scratch memory.
    fn look(
        &mut self,
        index: usize,
        now_ns: i64,
        samples: &mut Vec<Sample>,
        take: &mut impl FnMut(Update),
    ) {
        let Self {
            known,
            cursor,
            lost,
        } = self;
        let from = known.handle.cursor_from(*cursor);
        // `None`: the stream has ended, and the next `follow` drops it.
        let Some(scan) = known.handle.scan(from, samples) else {
            return;
        };
        *cursor = scan.cursor;
        *lost = lost.saturating_add(scan.lost);
        let stale = !samples.is_empty() && !known.is_alive(now_ns);
        for sample in samples.drain(..) {
            take(Update {
                index,
                descriptor: Arc::clone(&known.descriptor),
                series: known.series(),
                node: Arc::clone(&known.node),
                sample,
                lost: std::mem::take(lost),
                stale,
            });
        }
    }
}

//! Being told of every new sample of a set of streams that may change.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use barograph_model::{Descriptor, Sample, Selector};
use barograph_stream::{SegmentReader, Ticks};

use crate::Observer;
use crate::view::{Known, View};

/// One answer stops growing beyond so many updates (by at most one ring); the rest comes with the
/// next.
pub const UPDATES_MAX: usize = 16_384;

/// Longest sleep without a look for a new agent (a killed one wakes nobody) and for streams in segments
/// of which none is watched yet.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// One new sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// Whose: the stream's place in [`Watch::streams`].
    pub index: usize,
    /// Whose.
    pub descriptor: Arc<Descriptor>,
    /// What is new.
    pub sample: Sample,
    /// Samples of this stream before this one that the ring no longer held.
    pub lost: u64,
}

/// Follows the streams that match a selector: begins with the newest sample of each, then gives
/// every sample once. Streams that come later are given from their first sample.
pub struct Watch {
    observer: Observer,
    selector: Selector,
    view: Option<Arc<View>>,
    watched: Vec<Watched>,
    /// Those of what is watched; never none.
    segments: Vec<Arc<SegmentReader>>,
    changes: u64,
    /// Where the next answer begins, so that a full one starves nobody.
    turn: usize,
}

struct Watched {
    known: Arc<Known>,
    cursor: u64,
}

impl Watch {
    pub(crate) fn new(observer: Observer, selector: Selector) -> Self {
        let mut watch = Self {
            observer,
            selector,
            view: None,
            watched: Vec::new(),
            segments: Vec::new(),
            changes: 0,
            turn: 0,
        };
        watch.follow();
        for watched in &mut watch.watched {
            let count = watched.known.handle.count().unwrap_or(0);
            watched.cursor = count.saturating_sub(1);
        }
        watch
    }

    /// The streams that are followed, by name and labels.
    pub fn streams(&self) -> impl ExactSizeIterator<Item = &Arc<Descriptor>> {
        self.watched.iter().map(|w| &w.known.descriptor)
    }

    /// Grows whenever [`Watch::streams`] becomes another list (and indices another meaning).
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Waits for new samples, at most `timeout`; `None` when there were none. Stream after stream,
    /// oldest first within each.
    pub fn next(&mut self, timeout: Duration) -> Option<Vec<Update>> {
        let mut left = timeout;
        loop {
            // Before the look, so that what is written after it ends the sleep at once.
            let mut ticks = Ticks::of(&self.segments);
            if self.follow() {
                ticks = Ticks::of(&self.segments);
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

    /// Takes over the streams as they are now; those that are still the same keep their place. Whether
    /// there was anything to take over.
    fn follow(&mut self) -> bool {
        let view = self.observer.view();
        if self
            .view
            .as_ref()
            .is_some_and(|held| Arc::ptr_eq(held, &view))
        {
            return false;
        }
        let cursors: HashMap<*const Known, u64> = self
            .watched
            .iter()
            .map(|w| (Arc::as_ptr(&w.known), w.cursor))
            .collect();
        let watched: Vec<Watched> = view
            .matching(&self.selector)
            .map(|known| {
                let cursor = cursors.get(&Arc::as_ptr(known)).copied().unwrap_or(0);
                Watched {
                    known: Arc::clone(known),
                    cursor,
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

    fn collect(&mut self) -> Vec<Update> {
        let mut updates = Vec::new();
        let mut samples = Vec::new();
        let streams = self.watched.len();
        for step in 0..streams {
            let index = (self.turn + step) % streams;
            if updates.len() >= UPDATES_MAX {
                self.turn = index;
                break;
            }
            let Watched { known, cursor } = &mut self.watched[index];
            // `None`: the stream has ended, and the next `follow` drops it.
            let Some(scan) = known.handle.scan(*cursor, &mut samples) else {
                continue;
            };
            *cursor = scan.cursor;
            let mut lost = scan.lost;
            for sample in samples.drain(..) {
                let descriptor = Arc::clone(&known.descriptor);
                updates.push(Update {
                    index,
                    descriptor,
                    sample,
                    lost,
                });
                lost = 0;
            }
        }
        updates
    }
}

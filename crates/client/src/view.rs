//! One segment as it stood at one version of its directory: the streams, their handles, and what
//! matches a selector. Immutable, so that any thread can go on with the one it holds; the
//! [`Observer`](crate::Observer) replaces it when the directory or the segment does.

use std::collections::HashMap;
use std::sync::Arc;

use barograph_model::{Descriptor, NS_PER_S, Selector, SeriesId};
use barograph_stream::{Entry, Latest, SegmentReader, SegmentState, StreamReader};

use crate::{LatestValue, StreamInfo};

/// An agent whose heartbeat is older than this is held to be dead.
pub const HEARTBEAT_AGE_NS_MAX: i64 = 3 * NS_PER_S;
/// A value whose resource was not looked at for so many of its intervals is stale…
pub const STALE_INTERVALS: i64 = 3;
/// …but none is before it has this age: a busy machine may be late.
pub const STALE_AGE_NS_MIN: i64 = NS_PER_S;

/// A stream of a view.
#[derive(Debug)]
pub(crate) struct Known {
    pub segment: Arc<SegmentReader>,
    pub descriptor: Arc<Descriptor>,
    pub handle: StreamReader,
    entry: Entry,
}

impl Known {
    pub fn series(&self) -> SeriesId {
        self.entry.series
    }

    pub fn interval_ns(&self) -> i64 {
        self.segment.interval_ns(&self.entry)
    }

    /// The newest sample and how old it is, with the number of samples so far; `None` when the
    /// stream has ended.
    pub fn latest(&self, now_ns: i64, alive: bool) -> Option<(LatestValue, u64)> {
        let (sample, looked_ns, count) = match self.handle.latest() {
            Latest::Sample {
                sample,
                looked_ns,
                count,
            } => (Some(sample), looked_ns, count),
            Latest::Empty => (None, 0, 0),
            Latest::Gone => return None,
        };
        let interval_ns = self.interval_ns();
        let age_ns = if sample.is_some() {
            now_ns.saturating_sub(looked_ns).max(0)
        } else {
            0
        };
        let overdue = interval_ns > 0
            && age_ns
                > interval_ns
                    .saturating_mul(STALE_INTERVALS)
                    .max(STALE_AGE_NS_MIN);
        let value = LatestValue {
            descriptor: Arc::clone(&self.descriptor),
            sample,
            age_ns,
            looked_ns,
            interval_ns,
            stale: !alive || overdue,
        };
        Some((value, count))
    }

    /// What the stream is and how far it has come; `None` when it has ended.
    pub fn info(&self) -> Option<StreamInfo> {
        Some(StreamInfo {
            descriptor: Arc::clone(&self.descriptor),
            series: self.entry.series,
            depth: self.entry.depth,
            samples: self.handle.count()?,
            interval_ns: self.interval_ns(),
            created_ns: self.entry.created_ns,
            looked_ns: self.handle.looked_ns(),
        })
    }
}

/// Whether an agent still writes this segment.
pub(crate) fn alive(segment: &SegmentReader, now_ns: i64) -> bool {
    segment.state() == SegmentState::Live
        && now_ns.saturating_sub(segment.heartbeat_ns()) <= HEARTBEAT_AGE_NS_MAX
}

/// The streams of a segment at one version of its directory.
#[derive(Debug)]
pub(crate) struct View {
    pub segment: Arc<SegmentReader>,
    /// Sorted by name, then labels.
    pub streams: Vec<Arc<Known>>,
    /// How many views its observer had before.
    pub serial: u64,
    version: u64,
}

impl View {
    /// Reads the directory. Streams of the same segment that `before` knew already are taken over
    /// as they are, so that the identity of the [`Known`] tells whether a stream is still the same
    /// one.
    pub fn read(segment: Arc<SegmentReader>, before: Option<&Self>) -> Self {
        let directory = segment.directory();
        let mut known: HashMap<(usize, u16), &Arc<Known>> = before
            .filter(|b| Arc::ptr_eq(&b.segment, &segment))
            .into_iter()
            .flat_map(|b| {
                b.streams
                    .iter()
                    .map(|k| ((k.entry.slot, k.entry.generation), k))
            })
            .collect();
        let make = |entry: Entry| {
            Arc::new(Known {
                descriptor: Arc::new(entry.descriptor.clone()),
                handle: segment.stream(&entry),
                segment: Arc::clone(&segment),
                entry,
            })
        };
        let mut streams: Vec<Arc<Known>> = directory
            .entries
            .into_iter()
            .map(
                |entry| match known.remove(&(entry.slot, entry.generation)) {
                    // A generation comes round after 65,535 others: the identity must agree as well.
                    Some(same) if same.entry.series == entry.series => Arc::clone(same),
                    _ => make(entry),
                },
            )
            .collect();
        streams.sort_by(|a, b| {
            let (a, b) = (&a.descriptor, &b.descriptor);
            a.name.cmp(&b.name).then_with(|| a.labels.cmp(&b.labels))
        });
        let serial = before.map_or(0, |b| b.serial + 1);
        Self {
            version: directory.version,
            serial,
            streams,
            segment,
        }
    }

    /// Whether streams have come or gone since.
    pub fn outdated(&self) -> bool {
        self.segment.directory_version() != self.version
    }

    /// The streams that a selector means; one that names its stream is found without a walk.
    pub fn matching<'a>(&'a self, selector: &'a Selector) -> impl Iterator<Item = &'a Arc<Known>> {
        let of_name = if selector.name.is_literal() {
            let name = selector.name.as_str();
            let from = self
                .streams
                .partition_point(|k| k.descriptor.name.as_str() < name);
            let rest = &self.streams[from..];
            &rest[..rest.partition_point(|k| k.descriptor.name.as_str() == name)]
        } else {
            &self.streams[..]
        };
        of_name
            .iter()
            .filter(|k| selector.matches(k.descriptor.name.as_str(), &k.descriptor.labels))
    }

    /// The stream of this identity.
    pub fn find(&self, series: SeriesId) -> Option<&Arc<Known>> {
        self.streams.iter().find(|k| k.series() == series)
    }
}

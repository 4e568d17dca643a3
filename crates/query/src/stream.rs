//! A stream of a table: its descriptor, its reader, and the known order of the time stamps in its
//! ring.
//!
//! The clock may be set back, so a ring is not sorted by time as such. But once the order of all
//! its samples was checked, only newer samples must be checked, and newest-first then costs the
//! same at every depth.

use std::sync::{Arc, Mutex, PoisonError};

use barograph_model::{Columns, Descriptor, NS_PER_S, Sample, SeriesId};
use barograph_stream::{
    DirectoryEntry, FollowedStream, LatestSample, PartId, SegmentReader, StreamReader,
};

use crate::cell::SeriesCells;

/// Longest time by which an older sample may be later than a ring's oldest one: as much as a clock
/// is usually set back. A larger step, made by hand, is noticed only while the ring or the
/// archive's last time shows it.
pub(crate) const SET_BACK_NS_MAX: i64 = 60 * NS_PER_S;

/// A stream of a segment, with its reader.
pub(crate) struct SnapshotStream {
    pub(crate) entry: DirectoryEntry,
    pub(crate) node: Arc<str>,
    /// Whether another node owns it.
    pub(crate) is_mirrored: bool,
    pub(crate) table: String,
    /// The descriptor, shared with values that outlive the stream.
    pub(crate) descriptor: Arc<Descriptor>,
    /// Identity of the series on its node, for row ids.
    pub(crate) identity: u64,
    reader: StreamReader,
    order: Mutex<Order>,
}

/// The samples whose order is known.
struct Order {
    checked: u64,
    last_ts: i64,
    /// From this sample to `checked` no time stamp is smaller than the one before it.
    sorted_since: u64,
}

impl Order {
    fn advance(&mut self, number: u64, ts: i64) {
        if number != self.checked + 1 || ts < self.last_ts {
            self.sorted_since = number;
        }
        self.checked = number;
        self.last_ts = ts;
    }
}

/// The newest sample of a stream.
pub(crate) struct Head {
    pub(crate) sample: Sample,
    /// Its number in the stream, from 1.
    pub(crate) number: u64,
    /// Whether the ring up to here is sorted by time, so that this sample is also the latest in
    /// time.
    pub(crate) sorted: bool,
}

impl FollowedStream for SnapshotStream {
    fn of(part: &PartId, segment: &Arc<SegmentReader>, entry: DirectoryEntry) -> Self {
        let reader = segment.stream(&entry);
        let stream = Self::new(reader, entry, Arc::clone(&part.node), &part.scope);
        Self {
            is_mirrored: part.is_mirror,
            ..stream
        }
    }

    fn entry(&self) -> &DirectoryEntry {
        &self.entry
    }
}

impl SnapshotStream {
    pub(crate) fn new(
        reader: StreamReader,
        entry: DirectoryEntry,
        node: Arc<str>,
        scope: &str,
    ) -> Self {
        let order = Mutex::new(Order {
            checked: 0,
            last_ts: i64::MIN,
            sorted_since: 1,
        });
        let table = entry.descriptor.name.table();
        Self {
            descriptor: Arc::new(entry.descriptor.clone()),
            identity: identity(scope, &node, &entry.series),
            entry,
            node,
            is_mirrored: false,
            table,
            reader,
            order,
        }
    }

    /// The key by which streams are sorted: name and labels.
    pub(crate) fn sort_key(&self) -> (&barograph_model::Name, &barograph_model::Labels) {
        (&self.entry.descriptor.name, &self.entry.descriptor.labels)
    }

    pub(crate) fn name(&self) -> &str {
        self.entry.descriptor.name.as_str()
    }

    pub(crate) fn unit(&self) -> &str {
        self.entry.descriptor.unit.as_str()
    }

    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        self.entry.descriptor.labels.get(name)
    }

    pub(crate) fn labels_json(&self) -> String {
        labels_json(&self.entry.descriptor)
    }

    /// The cells that all of its rows share.
    pub(crate) fn cells(&self) -> SeriesCells {
        SeriesCells::new(self.name(), self.labels_json(), &self.node)
    }

    /// The stream's life: the time of its registration, ns since the epoch.
    pub(crate) fn life(&self) -> i64 {
        self.entry.created_ns
    }

    /// The samples of the ring after number `after`, and the number of the newest; `None` if the
    /// stream is empty or has ended.
    pub(crate) fn tail(&self, after: u64, scratch: &mut Vec<Sample>) -> Option<(Columns, u64)> {
        scratch.clear();
        let mut columns = Columns::new(self.entry.descriptor.value_type);
        let scan = self.reader.scan(after, scratch)?;
        let mut newest = scan.cursor;
        let first = scan.cursor + 1 - scratch.len() as u64;
        for (number, sample) in (first..).zip(scratch.drain(..)) {
            columns.push(number, &sample);
        }
        if columns.is_empty() {
            // There is nothing new, or the writer has lapped the copy: the newest sample is there
            // all the same.
            let (sample, number) = self.latest()?;
            newest = number;
            if number > after {
                columns.push(number, &sample);
            }
        }
        Some((columns, newest))
    }

    pub(crate) fn latest(&self) -> Option<(Sample, u64)> {
        match self.reader.latest() {
            LatestSample::Sample { sample, count, .. } => Some((sample, count)),
            LatestSample::Empty | LatestSample::Gone => None,
        }
    }

    /// Time of the last look at the resource, ns since the epoch.
    pub(crate) fn looked_ns(&self, newest_ts: i64) -> i64 {
        self.reader.looked_ns().max(newest_ts)
    }

    /// The number of samples so far, and of those that the ring holds.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let count = self.reader.count().unwrap_or(0);
        (count, count.min(self.reader.depth()))
    }

    /// The newest sample, with the known order of those before it.
    pub(crate) fn head(&self) -> Option<Head> {
        let (mut sample, mut number) = self.latest()?;
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        if number == order.checked + 1 {
            order.advance(number, sample.ts);
        } else if number > order.checked {
            let mut news = Vec::new();
            let scan = self.reader.scan(order.checked, &mut news)?;
            let first = scan.cursor + 1 - news.len() as u64;
            for (number, sample) in (first..).zip(&news) {
                order.advance(number, sample.ts);
            }
            if let Some(newest) = news.pop() {
                (sample, number) = (newest, scan.cursor);
            }
        }
        // The oldest sample that a scan can return: one cell of a full ring is always the writer's.
        let oldest = (number + 2).saturating_sub(self.reader.depth()).max(1);
        let sorted = order.checked == number && order.sorted_since <= oldest;
        Some(Head {
            sample,
            number,
            sorted,
        })
    }

    /// Passes every sample that the ring holds to `take`, oldest first, with its number. At least
    /// the newest is passed unless the stream is empty or has ended, however fast its writer is.
    pub(crate) fn samples(&self, scratch: &mut Vec<Sample>, mut take: impl FnMut(u64, Sample)) {
        scratch.clear();
        let Some(scan) = self.reader.scan(0, scratch) else {
            return;
        };
        if scratch.is_empty() {
            if let Some((sample, number)) = self.latest() {
                take(number, sample);
            }
            return;
        }
        let first = scan.cursor + 1 - scratch.len() as u64;
        for (number, sample) in (first..).zip(scratch.drain(..)) {
            take(number, sample);
        }
    }
}

/// The labels as a JSON object.
pub(crate) fn labels_json(descriptor: &Descriptor) -> String {
    let pairs = descriptor.labels.iter();
    serde_json::Value::Object(pairs.map(|(n, v)| (n.into(), v.into())).collect()).to_string()
}

/// A number for a series on a node, the same in every scan and process, but different in each
/// scope.
pub(crate) fn identity(scope: &str, node: &str, series: &SeriesId) -> u64 {
    let first = series.0.first_chunk().expect("an id has 16 bytes");
    // FNV-1a: names are short, and the id is a good hash already.
    let scope = (!scope.is_empty()).then(|| std::iter::once(0).chain(scope.bytes()));
    let bytes = node.bytes().chain(scope.into_iter().flatten());
    bytes.fold(u64::from_le_bytes(*first), |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The row id of a sample: the same wherever the sample is found, since SQLite uses it to know
/// which rows of an OR it has returned.
pub(crate) fn row_id(identity: u64, life: i64, number: u64) -> i64 {
    mix(mix(identity ^ life as u64) ^ number) as i64
}

/// A bijection that spreads every bit (the finalizer of SplitMix64).
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(all(test, feature = "bundled"))]
mod tests {
    use super::*;
    use barograph_model::{Descriptor, Name, Unit, ValueType};
    use barograph_stream::{Segment, SegmentConfig};

    #[test]
    fn the_order_of_a_ring_is_known_when_it_is_full_and_when_the_clock_was_set_back() {
        const DEPTH: u32 = 8;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("segment");
        let mut segment = Segment::create(&path, SegmentConfig::new("n"), 0).unwrap();
        let descriptor = Descriptor::gauge(
            Name::new("a.count").unwrap(),
            ValueType::Int,
            Unit::new("count").unwrap(),
        );
        let mut writer = segment.register(&descriptor, Some(DEPTH), 0).unwrap();
        let reader = segment.reader().unwrap();
        let entry = reader.directory().entries.remove(0);
        let stream = SnapshotStream::new(reader.stream(&entry), entry, "n".into(), "");
        assert!(stream.head().is_none());

        let mut append = |ts: i64| writer.append(&Sample::measured(ts, ts)).unwrap();
        // The first check is of a ring that is full and has wrapped, the second finds no change.
        (1..=50).for_each(&mut append);
        for _ in 0..2 {
            let head = stream.head().unwrap();
            assert_eq!((head.sample.ts, head.number, head.sorted), (50, 50, true));
        }
        // Then one more sample, several more, and more than the ring holds.
        append(51);
        assert!(stream.head().unwrap().sorted);
        (52..=55).for_each(&mut append);
        assert!(stream.head().unwrap().sorted);
        (56..=99).for_each(&mut append);
        assert!(stream.head().unwrap().sorted);
        // The clock is set back: the ring is unsorted as long as a scan can return the sample
        // before the step. A scan of a full ring returns one sample less than its depth.
        append(10);
        for ts in 11..10 + i64::from(DEPTH) - 2 {
            assert!(!stream.head().unwrap().sorted, "{ts}");
            append(ts);
        }
        assert!(!stream.head().unwrap().sorted);
        append(40);
        assert!(stream.head().unwrap().sorted);
    }
}

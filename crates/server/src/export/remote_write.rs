//! Prometheus remote write 1.0: every numeric sample since the last request, from the rings.
//!
//! The module stands alone because it keeps a cursor in every ring. A receiver refuses a whole
//! request for one sample that is out of order, so the order is kept here: times of a series only
//! grow, and each label set is sent from one stream only.
//! <https://prometheus.io/docs/specs/prw/remote_write_spec/>

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use barograph_model::{Quality, Sample};
use barograph_stream::StreamReader;
use prost::Message as _;

use crate::export::receiver::ExportSelection;
use crate::export::sender::ExportProtocol;
use crate::export::status::ExportCounters;
use crate::export::{BATCH_BYTES_MAX, BATCH_SAMPLES_MAX, Batch};
use crate::prometheus::names::{ExposedName, exposed};
use crate::view::{ServedStream, ServedView, StreamId};
use barograph_bridge::messages::{PromLabel, PromSample, TimeSeries, WriteRequest};

/// The path, headers and retries of remote write 1.0.
pub(super) const PROTOCOL: ExportProtocol = ExportProtocol {
    path: "/api/v1/write",
    headers: &[
        ("content-type", "application/x-protobuf"),
        ("content-encoding", "snappy"),
        ("x-prometheus-remote-write-version", "0.1.0"),
    ],
    passes: |status| status.is_server_error() || status.as_u16() == 429,
};

/// Bytes of one sample and the message around it, at most.
const SAMPLE_BYTES: usize = 24;
/// Most ended series whose stale marker is still to be sent.
const ENDED_MAX: usize = 10_000;
/// The stale marker that ends a series: a NaN of these bits.
const STALE: u64 = 0x7ff0_0000_0000_0002;
/// The bits of all other NaNs.
const NAN: u64 = 0x7ff8_0000_0000_0001;
/// A time before all others.
const NEVER_MS: i64 = i64::MIN;

/// The maker of requests from new samples.
#[derive(Debug)]
pub(super) struct RemoteWrite {
    selection: ExportSelection,
    counters: Arc<ExportCounters>,
    view: Option<Arc<ServedView>>,
    series: Vec<Series>,
    /// The stream at which the next request begins, so that no stream waits for ever behind a busy
    /// one.
    turn: usize,
    ended: VecDeque<(Vec<PromLabel>, i64)>,
    scratch: Vec<Sample>,
}

/// One stream and its cursor.
#[derive(Debug)]
struct Series {
    id: StreamId,
    exposed: ExposedName,
    labels: Vec<PromLabel>,
    labels_bytes: usize,
    handle: StreamReader,
    /// Number of the last sample that was taken.
    cursor: u64,
    /// Number of the newest sample at the last look.
    seen: u64,
    /// Time of the last sample taken, in ms.
    last_ms: i64,
}

impl RemoteWrite {
    pub(super) fn new(selection: ExportSelection, counters: Arc<ExportCounters>) -> Self {
        Self {
            selection,
            counters,
            view: None,
            series: Vec::new(),
            turn: 0,
            ended: VecDeque::new(),
            scratch: Vec::new(),
        }
    }

    /// Takes over a new view; returns whether some ring holds so many new samples that they should
    /// not wait.
    pub(super) fn look(&mut self, view: &Arc<ServedView>) -> bool {
        if self.view.as_ref().is_none_or(|old| !Arc::ptr_eq(old, view)) {
            self.follow(view);
            self.view = Some(Arc::clone(view));
        }
        let mut is_urgent = false;
        for series in &mut self.series {
            // If a stream has ended, `seen` may be less than the cursor.
            series.seen = series.handle.count().unwrap_or(series.seen);
            is_urgent |= series.seen.saturating_sub(series.cursor) >= series.handle.depth() / 2;
        }
        is_urgent
    }

    /// The next request, if there are new samples.
    pub(super) fn next(&mut self, now_ns: i64) -> Option<Batch> {
        let mut request = WriteRequest::default();
        let mut room = Room::default();
        while let Some((labels, last_ms)) = self.ended.pop_front() {
            let timestamp = millis(now_ns).max(last_ms.saturating_add(1));
            let value = f64::from_bits(STALE);
            room.take(bytes_of(&labels));
            room.take(SAMPLE_BYTES);
            request.timeseries.push(TimeSeries {
                labels,
                samples: vec![PromSample { value, timestamp }],
            });
            if room.is_full() {
                break;
            }
        }
        let count = self.series.len();
        for _ in 0..count {
            if room.is_full() {
                break;
            }
            let series = &mut self.series[self.turn % count];
            let (samples, lost, is_done) = series.take(&mut self.scratch, &mut room, now_ns);
            self.counters.lost(lost);
            if !samples.is_empty() {
                let labels = series.labels.clone();
                request.timeseries.push(TimeSeries { labels, samples });
            }
            if is_done {
                self.turn = (self.turn + 1) % count;
            }
        }
        if request.timeseries.is_empty() {
            return None;
        }
        Some(batch_of(&request))
    }

    /// Takes over the streams of a new directory. Samples of ended streams that were not taken are
    /// lost.
    fn follow(&mut self, view: &Arc<ServedView>) {
        let mut before: HashMap<StreamId, Series> =
            self.series.drain(..).map(|s| (s.id, s)).collect();
        let node = view.segment().node();
        let mut taken = HashSet::new();
        for at in self.selection.of(view) {
            let stream = &view.streams[at];
            if !stream.entry.descriptor.value_type.is_number() {
                continue;
            }
            let series = before
                .remove(&stream.id())
                .unwrap_or_else(|| Series::new(stream, &node));
            // Of two streams with the same labels only the first is sent, as in the exposition.
            if taken.insert(series.labels.clone()) {
                self.series.push(series);
            }
        }
        let mut ended: HashMap<Vec<PromLabel>, i64> = HashMap::new();
        #[expect(
            clippy::iter_over_hash_type,
            reason = "if there are too many that have ended, any are forgotten"
        )]
        for (_, series) in before {
            self.counters
                .lost(series.seen.saturating_sub(series.cursor));
            if series.last_ms != NEVER_MS {
                ended.insert(series.labels, series.last_ms);
            }
        }
        for series in &mut self.series {
            // The series came back: it goes on, and its times still only grow.
            if let Some(last_ms) = ended.remove(&series.labels) {
                series.last_ms = series.last_ms.max(last_ms);
            }
        }
        self.ended.retain(|(labels, _)| !taken.contains(labels));
        self.ended.extend(ended);
        self.ended.truncate(ENDED_MAX);
        self.turn = 0;
    }
}

impl Series {
    fn new(stream: &ServedStream, node: &str) -> Self {
        let exposed = exposed(node, &stream.entry.descriptor);
        let labels = labels_of(&exposed);
        Self {
            id: stream.id(),
            exposed,
            labels_bytes: bytes_of(&labels),
            labels,
            handle: stream.handle.clone(),
            cursor: 0,
            seen: 0,
            last_ms: NEVER_MS,
        }
    }

    /// The samples since the cursor as far as there is room, the number of lost ones, and whether
    /// all were taken.
    fn take(
        &mut self,
        scratch: &mut Vec<Sample>,
        room: &mut Room,
        now_ns: i64,
    ) -> (Vec<PromSample>, u64, bool) {
        if self.handle.count().is_none_or(|count| count <= self.cursor) {
            return (Vec::new(), 0, true);
        }
        scratch.clear();
        let Some(scan) = self.handle.scan(self.cursor, scratch) else {
            return (Vec::new(), 0, true);
        };
        if self.last_ms > millis(now_ns) {
            // The clock was set back: times that were sent before no longer bound the order.
            self.last_ms = NEVER_MS;
        }
        let mut lost = scan.lost;
        let mut samples = Vec::new();
        self.cursor = scan.cursor - scratch.len() as u64;
        room.take(self.labels_bytes);
        for sample in scratch.iter() {
            if room.is_full() {
                return (samples, lost, false);
            }
            self.cursor += 1;
            let timestamp = millis(sample.ts);
            let Some(value) = sample.value.as_f64() else {
                continue;
            };
            if timestamp <= self.last_ms {
                // The mark of a last look may have the time of the sample before it.
                lost += u64::from(sample.quality != Quality::Ended);
                continue;
            }
            self.last_ms = timestamp;
            let value = match self.exposed.scaled(value) {
                value if value.is_nan() => f64::from_bits(NAN),
                value => value,
            };
            room.take(SAMPLE_BYTES);
            room.samples += 1;
            samples.push(PromSample { value, timestamp });
        }
        (samples, lost, true)
    }
}

/// The two halves of a request, by series or, with one series, by samples; `None` for a single
/// sample. It is needed because a receiver refuses a whole request for one sample that is too old
/// for it.
pub(super) fn split(batch: &Batch) -> Option<[Batch; 2]> {
    let body = snap::raw::Decoder::new().decompress_vec(&batch.body).ok()?;
    let mut first = WriteRequest::decode(&*body).ok()?;
    let second = match &mut first.timeseries[..] {
        [] => return None,
        [only] => {
            let half = only.samples.len() / 2;
            if half == 0 {
                return None;
            }
            vec![TimeSeries {
                labels: only.labels.clone(),
                samples: only.samples.split_off(half),
            }]
        }
        more => {
            let half = more.len() / 2;
            first.timeseries.split_off(half)
        }
    };
    let second = WriteRequest { timeseries: second };
    Some([first, second].map(|request| Batch {
        may_be_there: batch.may_be_there,
        ..batch_of(&request)
    }))
}

/// Encodes a request. A stale marker does not count as a sample.
fn batch_of(request: &WriteRequest) -> Batch {
    let all = request.timeseries.iter().flat_map(|series| &series.samples);
    let samples = all.filter(|sample| sample.value.to_bits() != STALE).count();
    let body = snap::raw::Encoder::new()
        .compress_vec(&request.encode_to_vec())
        .expect("a request is far smaller than snappy's 4 GiB");
    Batch {
        body,
        samples: samples as u64,
        may_be_there: false,
    }
}

/// The amount that a request already holds.
#[derive(Debug, Default)]
struct Room {
    samples: usize,
    bytes: usize,
}

impl Room {
    fn take(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    fn is_full(&self) -> bool {
        // One more series with the longest labels still fits.
        self.samples >= BATCH_SAMPLES_MAX || self.bytes >= BATCH_BYTES_MAX - 4096
    }
}

/// Name and labels as in the exposition: sorted, none empty.
fn labels_of(exposed: &ExposedName) -> Vec<PromLabel> {
    let name = std::iter::once(("__name__", exposed.name.as_str()));
    let mut labels: Vec<PromLabel> = name
        .chain(exposed.pairs())
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| PromLabel {
            name: name.into(),
            value: value.into(),
        })
        .collect();
    labels.sort();
    labels
}

fn bytes_of(labels: &[PromLabel]) -> usize {
    let each = |label: &PromLabel| label.name.len() + label.value.len() + 10;
    labels.iter().map(each).sum::<usize>() + 10
}

fn millis(ns: i64) -> i64 {
    ns.div_euclid(1_000_000)
}

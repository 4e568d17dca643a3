//! The batch: entries that the sampler handed over and the writer has not written yet.
//!
//! Samples wait in the form in which they will be written, which is half the size of the entries
//! and holds no pointers: two of these buffers are swapped for ever and nothing is freed.

use std::collections::HashMap;
use std::sync::Arc;

use barograph_model::{Sample, SeriesId, VALUE_BYTES_MAX, Value};
use barograph_stream::Incarnation;

use super::format::{RECORD_BYTES, SampleRecord, TextPlace, cut};
use super::marks::RingMark;
use crate::{ArchiveLosses, DeclaredStream};

/// Buffers smaller than this are never made smaller.
const IDLE_BYTES: usize = 64 << 10;

/// A stream that is archived.
#[derive(Debug)]
pub(crate) struct BatchStream {
    pub declared: DeclaredStream,
    pub id: SeriesId,
}

/// The ring from which a record came.
#[derive(Clone, Copy, Debug)]
struct Origin {
    /// Index of the record in the batch.
    record: u32,
    /// Index of the ring in the batch.
    ring: u32,
    /// Position up to which the ring was read with this record.
    position: u64,
}

const ORIGIN_BYTES: usize = size_of::<Origin>();

/// Entries in the order in which they came. Streams are named by handles; a handle means the same
/// stream for as long as any entry of it waits.
#[derive(Debug, Default)]
pub(crate) struct JournalBatch {
    pub records: Vec<SampleRecord>,
    texts: Vec<u8>,
    /// The origins of records that were read from a ring, in their order.
    origins: Vec<Origin>,
    /// Rings by index, and indexes by ring.
    rings: Vec<(Incarnation, u32)>,
    places: HashMap<(Incarnation, u32), u32>,
    /// Streams that are registered; written before the records.
    pub declares: Vec<(u32, Arc<BatchStream>)>,
    /// Streams that have ended; applied after the records.
    pub retires: Vec<u32>,
    /// Processes whose files are gone; applied after the records.
    pub forgets: Vec<Incarnation>,
    /// Losses since the previous batch.
    pub losses: ArchiveLosses,
    /// Whether a durable sample is in the batch.
    pub durable: bool,
    /// The journal's position after the last entry.
    pub end: u64,
    /// Number of records that are written; it moves back if a sync fails.
    pub written: usize,
    /// Whether the losses are written.
    pub losses_written: bool,
}

impl JournalBatch {
    /// Whether there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
            && self.declares.is_empty()
            && self.retires.is_empty()
            && self.forgets.is_empty()
            && self.losses.is_none()
    }

    /// Returns the bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        let origins = self.origins.len() * ORIGIN_BYTES;
        self.records.len() * RECORD_BYTES + self.texts.len() + origins
    }

    /// Returns the bytes that a sample will take, with or without a mark.
    pub(crate) fn cost(sample: &Sample, from: Option<RingMark>) -> usize {
        let origin = from.map_or(0, |_| ORIGIN_BYTES);
        origin + RECORD_BYTES + sample.value.bytes().min(VALUE_BYTES_MAX)
    }

    /// Adds a sample. A text that is too long for any stream is cut; other values are never that
    /// long.
    pub(crate) fn push(&mut self, stream: u32, number: u64, sample: &Sample) {
        let bits = match &sample.value {
            Value::Int(v) => *v as u64,
            Value::Float(v) => v.to_bits(),
            Value::Bool(v) => u64::from(*v),
            long => {
                let at = self.texts.len();
                match long {
                    Value::Text(v) => self
                        .texts
                        .extend_from_slice(cut(v, VALUE_BYTES_MAX).as_bytes()),
                    Value::Json(v) => self.texts.extend_from_slice(v.as_bytes()),
                    Value::Bytes(v) => self.texts.extend_from_slice(v),
                    Value::Floats(v) => self.texts.extend(v.iter().flat_map(|v| v.to_le_bytes())),
                    Value::Int(_) | Value::Float(_) | Value::Bool(_) => {}
                }
                let length = (self.texts.len() - at) as u32;
                let at = at as u32;
                TextPlace { at, length }.bits()
            }
        };
        self.records.push(SampleRecord {
            error: sample.error,
            ts: sample.ts,
            bits,
            ..SampleRecord::new(stream, number, sample.quality)
        });
    }

    /// Sets how far a ring was read with the sample that was added last.
    pub(crate) fn mark(&mut self, from: RingMark) {
        let ring = (from.incarnation, from.ring);
        // Records come in runs of one ring.
        let last = self.origins.last().map(|origin| origin.ring);
        let place = match last.filter(|place| self.rings[*place as usize] == ring) {
            Some(place) => place,
            None => *self.places.entry(ring).or_insert_with(|| {
                self.rings.push(ring);
                (self.rings.len() - 1) as u32
            }),
        };
        self.origins.push(Origin {
            record: self.records.len().saturating_sub(1) as u32,
            ring: place,
            position: from.position,
        });
    }

    /// Removes the records that were read from a ring and for whose marks `is_had` is true.
    pub(crate) fn drop_records(&mut self, is_had: impl Fn(&RingMark) -> bool) {
        let rings = &self.rings;
        let mark = |origin: &Origin| {
            let (incarnation, ring) = rings[origin.ring as usize];
            let position = origin.position;
            RingMark {
                incarnation,
                ring,
                position,
            }
        };
        let mut gone = self.origins.iter().filter(|origin| is_had(&mark(origin)));
        let mut next = gone.next().map(|origin| origin.record);
        // The new index of each record that stays.
        let mut places = Vec::with_capacity(self.records.len());
        let mut kept = 0_u32;
        for record in 0..self.records.len() as u32 {
            let stays = next != Some(record);
            if !stays {
                next = gone.next().map(|origin| origin.record);
            }
            places.push(stays.then_some(kept));
            kept += u32::from(stays);
        }
        let mut at = places.iter();
        self.records
            .retain(|_| at.next().is_some_and(Option::is_some));
        self.origins.retain_mut(|origin| {
            let place = places[origin.record as usize];
            origin.record = place.unwrap_or_default();
            place.is_some()
        });
    }

    /// Writes into `marks` how far each ring was read with the records from `from` to `to`: one
    /// mark for a ring, so not more than there are records.
    pub(crate) fn marks(&self, from: usize, to: usize, marks: &mut Vec<RingMark>) {
        let before = |at| self.origins.partition_point(|o| (o.record as usize) < at);
        let origins = &self.origins[before(from)..before(to)];
        marks.clear();
        let mut last: Vec<(u32, u64)> = Vec::new();
        for run in origins.chunk_by(|a, b| a.ring == b.ring) {
            let newest = run.iter().map(|origin| origin.position).max();
            last.push((run[0].ring, newest.unwrap_or(0)));
        }
        last.sort_unstable();
        for of_ring in last.chunk_by(|a, b| a.0 == b.0) {
            let (place, position) = of_ring[of_ring.len() - 1];
            let (incarnation, ring) = self.rings[place as usize];
            marks.push(RingMark {
                incarnation,
                ring,
                position,
            });
        }
    }

    /// Returns the bytes of a record that is not a number.
    pub(crate) fn text(&self, record: &SampleRecord) -> &[u8] {
        TextPlace::from_bits(record.bits)
            .of(&self.texts)
            .expect("the text was put there with the record")
    }

    /// Empties the batch. Buffers that are much too large shrink step by step.
    pub(crate) fn clear(&mut self) {
        let records = self.records.len();
        let texts = self.texts.len();
        self.records.clear();
        self.texts.clear();
        if self.records.capacity() > (4 * records).max(IDLE_BYTES / RECORD_BYTES) {
            self.records.shrink_to(self.records.capacity() / 2);
        }
        if self.texts.capacity() > (4 * texts).max(IDLE_BYTES) {
            self.texts.shrink_to(self.texts.capacity() / 2);
        }
        let origins = self.origins.len();
        self.origins.clear();
        if self.origins.capacity() > (4 * origins).max(IDLE_BYTES / ORIGIN_BYTES) {
            self.origins.shrink_to(self.origins.capacity() / 2);
        }
        self.rings = Vec::new();
        self.places = HashMap::new();
        self.forgets = Vec::new();
        self.declares = Vec::new();
        self.retires = Vec::new();
        self.losses = ArchiveLosses::default();
        self.durable = false;
        self.written = 0;
        self.losses_written = false;
    }
}

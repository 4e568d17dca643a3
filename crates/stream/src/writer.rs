//! The writer of one stream: it appends changes to the stream's line and ring.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use barograph_model::{Sample, SeriesId, Value, ValueType, text_start};

use crate::StreamError;
use crate::entry::ValueSlots;
use crate::layout::{CELL_BYTES, LINE_BYTES, WAKE_BITS};
use crate::line::{self, CELL_WORDS, LOOKED, NUMBER_MAX, RawCell};
use crate::map::FileMap;
use crate::slots::{RingShape, SlotGrant};

/// The right to append to one stream. Not `Clone`: a stream has one writer.
#[derive(Debug)]
pub struct StreamWriter {
    map: Arc<FileMap>,
    value_type: ValueType,
    slots: ValueSlots,
    series: SeriesId,
    grant: SlotGrant,
    shape: RingShape,
    line_at: usize,
    ring_at: usize,
    text_at: usize,
    /// Number of the newest sample; before the first one, the number before it.
    count: u64,
    /// Number of the first sample.
    first: u64,
    ring_index: usize,
    newest: RawCell,
    /// The newest value of a stream whose values are not numbers.
    newest_value: Option<Value>,
}

impl StreamWriter {
    #[expect(
        clippy::too_many_arguments,
        reason = "one caller, which has just computed them all"
    )]
    pub(crate) fn new(
        map: Arc<FileMap>,
        (value_type, slots): (ValueType, ValueSlots),
        series: SeriesId,
        grant: SlotGrant,
        shape: RingShape,
        line_at: usize,
        ring_at: usize,
        text_at: usize,
    ) -> Self {
        Self {
            map,
            value_type,
            slots,
            series,
            grant,
            shape,
            line_at,
            ring_at,
            text_at,
            count: 0,
            first: 1,
            ring_index: 0,
            newest: [0; CELL_WORDS],
            newest_value: None,
        }
    }

    /// Records a look at the resource; appends the sample if its value, quality or error differs
    /// from the newest one. Returns whether it was appended.
    pub fn look(&mut self, sample: &Sample) -> Result<bool, StreamError> {
        let cell = self.encode(sample)?;
        let same_value = self.slots == ValueSlots::None
            || self
                .newest_value
                .as_ref()
                .is_some_and(|newest| is_same(newest, &sample.value));
        let changed = self.is_empty() || cell[1..] != self.newest[1..] || !same_value;
        if changed {
            self.publish(cell, &sample.value);
        }
        self.set_looked(sample.ts);
        Ok(changed)
    }

    /// Records that the newest sample held until at least `looked_ns`; nothing is appended.
    pub fn confirm(&mut self, looked_ns: i64) {
        if !self.is_empty() {
            self.set_looked(looked_ns);
        }
    }

    /// Appends a sample, whether or not it differs from the newest one.
    pub fn append(&mut self, sample: &Sample) -> Result<(), StreamError> {
        let cell = self.encode(sample)?;
        self.publish(cell, &sample.value);
        self.set_looked(sample.ts);
        Ok(())
    }

    /// Appends a float without building a [`Sample`]: for callers to whom nanoseconds matter.
    #[inline]
    pub fn append_f64(&mut self, ts: i64, value: f64) -> Result<(), StreamError> {
        if self.value_type != ValueType::Float {
            return Err(StreamError::Type {
                declared: self.value_type.as_str(),
                found: "float64",
            });
        }
        self.publish_cell([ts as u64, value.to_bits(), 0]);
        self.set_looked(ts);
        Ok(())
    }

    /// The bit of this stream in the mask of [`crate::Segment::wake`].
    pub fn wake_bit(&self) -> u32 {
        1 << (self.grant.slot as usize % WAKE_BITS)
    }

    /// Samples that the ring holds.
    pub fn depth(&self) -> u32 {
        self.shape.depth
    }

    /// The longest text, JSON, bytes or array that the stream takes, in bytes; 0 if its values are
    /// numbers. A longer text is cut at a character boundary; any other longer value is refused.
    pub fn value_bytes_max(&self) -> usize {
        self.slots.value_bytes_max() as usize
    }

    /// Number of the newest sample, which is the number of samples appended so far unless the
    /// stream began at a later one ([`Segment::begin_at`](crate::Segment::begin_at)).
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether nothing was appended yet.
    pub fn is_empty(&self) -> bool {
        self.count < self.first
    }

    /// Gives the first sample this number. The segment has published it.
    pub(crate) fn begin_at(&mut self, first: u64) {
        debug_assert!(self.is_empty(), "numbers of samples do not change");
        self.first = first;
        self.count = first - 1;
        self.ring_index = (self.count % u64::from(self.shape.depth)) as usize;
    }

    fn encode(&self, sample: &Sample) -> Result<RawCell, StreamError> {
        let found = sample.value.value_type();
        if found != self.value_type {
            return Err(StreamError::Type {
                declared: self.value_type.as_str(),
                found: found.as_str(),
            });
        }
        let bytes_max = self.value_bytes_max();
        let (bits, text_bytes) = match (&sample.value, self.slots) {
            (Value::Int(v), _) => (*v as u64, 0),
            (Value::Float(v), _) => (v.to_bits(), 0),
            (Value::Bool(v), _) => (u64::from(*v), 0),
            (Value::Text(v), ValueSlots::Short) => (0, text_start(v, bytes_max).len() as u64),
            (Value::Text(v), _) => (text_start(v, bytes_max).len() as u64, 0),
            (value, _) if value.bytes() > bytes_max => {
                return Err(StreamError::TooLong {
                    declared: self.value_type.as_str(),
                    bytes: value.bytes(),
                    bytes_max,
                });
            }
            (value, _) => (value.bytes() as u64, 0),
        };
        let meta = u64::from(sample.error.to_bits())
            | (u64::from(sample.quality as u8) << 32)
            | (text_bytes << 40);
        Ok([sample.ts as u64, bits, meta])
    }

    fn publish(&mut self, cell: RawCell, value: &Value) {
        if self.count == NUMBER_MAX {
            return; // As in `publish_cell`.
        }
        if self.slots != ValueSlots::None {
            let slot_at = self.text_at + self.ring_index * self.slots.slot_bytes() as usize;
            // As in `line::append`: readers that see this value also see that the sequence has
            // moved on.
            std::sync::atomic::fence(Ordering::Release);
            match value {
                Value::Text(v) => {
                    let text = text_start(v, self.value_bytes_max());
                    self.map.copy_in(slot_at, text.as_bytes());
                }
                Value::Json(v) => self.map.copy_in(slot_at, v.as_bytes()),
                Value::Bytes(v) => self.map.copy_in(slot_at, v),
                Value::Floats(v) => self.map.words_in(slot_at, v.iter().map(|v| v.to_bits())),
                Value::Int(_) | Value::Float(_) | Value::Bool(_) => {}
            }
            self.newest_value = Some(value.clone());
        }
        self.publish_cell(cell);
    }

    #[inline(always)]
    fn publish_cell(&mut self, cell: RawCell) {
        // 2^48 samples in one generation are nine years at a million per second; after them the
        // stream stops rather than overflow into its generation.
        if self.count == NUMBER_MAX {
            return;
        }
        let line = self
            .map
            .words(self.line_at, LINE_BYTES / 8)
            .expect("granted by the segment");
        let ring = self
            .map
            .words(self.ring_at + self.ring_index * CELL_BYTES, CELL_WORDS)
            .expect("granted by the segment");
        line::append(line, ring, self.grant.generation, self.count, cell);
        self.newest = cell;
        self.count += 1;
        self.ring_index += 1;
        if self.ring_index == self.shape.depth as usize {
            self.ring_index = 0;
        }
    }

    /// The last look at the resource, ns since the epoch; 0 before the first.
    pub fn looked_ns(&self) -> i64 {
        let word = self
            .map
            .words(self.line_at + 8 * LOOKED, 1)
            .expect("granted by the segment");
        word[0].load(Ordering::Relaxed) as i64
    }

    #[inline(always)]
    fn set_looked(&self, ts: i64) {
        let word = self
            .map
            .words(self.line_at + 8 * LOOKED, 1)
            .expect("granted by the segment");
        word[0].store(ts as u64, Ordering::Release);
    }

    /// Whether this stream was registered in the segment of `map`.
    pub(crate) fn is_of(&self, map: &Arc<FileMap>) -> bool {
        Arc::ptr_eq(&self.map, map)
    }

    pub(crate) fn slot(&self) -> u32 {
        self.grant.slot
    }

    pub(crate) fn grant(&self) -> SlotGrant {
        self.grant
    }

    pub(crate) fn shape(&self) -> RingShape {
        self.shape
    }

    pub(crate) fn line_at(&self) -> usize {
        self.line_at
    }

    pub(crate) fn series(&self) -> SeriesId {
        self.series
    }
}

/// Whether two values are the same to the bit: a NaN equals itself.
fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Floats(a), Value::Floats(b)) => {
            let bits = |v: &f64| v.to_bits();
            a.iter().map(bits).eq(b.iter().map(bits))
        }
        _ => a == b,
    }
}

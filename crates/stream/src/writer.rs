//! One stream's writer: change-only append into its line and ring.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use barograph_model::{Sample, SeriesId, TEXT_BYTES_MAX, Value, ValueType};

use crate::StreamError;
use crate::layout::{CELL_BYTES, LINE_BYTES, TEXT_SLOT_BYTES, WAKE_BITS};
use crate::line::{self, CELL_WORDS, COUNT_MAX, LOOKED, RawCell};
use crate::map::Map;
use crate::slots::{Grant, RingShape};

/// The right to append to one stream. Not `Clone`: a stream has one writer.
#[derive(Debug)]
pub struct StreamWriter {
    map: Arc<Map>,
    value_type: ValueType,
    series: SeriesId,
    grant: Grant,
    shape: RingShape,
    line_at: usize,
    ring_at: usize,
    text_at: usize,
    count: u64,
    ring_index: usize,
    newest: RawCell,
    newest_text: Option<Arc<str>>,
}

impl StreamWriter {
    #[expect(
        clippy::too_many_arguments,
        reason = "one caller, which has just computed them all"
    )]
    pub(crate) fn new(
        map: Arc<Map>,
        value_type: ValueType,
        series: SeriesId,
        grant: Grant,
        shape: RingShape,
        line_at: usize,
        ring_at: usize,
        text_at: usize,
    ) -> Self {
        Self {
            map,
            value_type,
            series,
            grant,
            shape,
            line_at,
            ring_at,
            text_at,
            count: 0,
            ring_index: 0,
            newest: [0; CELL_WORDS],
            newest_text: None,
        }
    }

    /// Records a look at the resource; appends the sample when its value, quality or error differs
    /// from the newest. Returns whether it was appended.
    pub fn look(&mut self, sample: &Sample) -> Result<bool, StreamError> {
        let cell = self.encode(sample)?;
        let same_text = match &sample.value {
            Value::Text(text) => self.newest_text.as_ref() == Some(text),
            _ => true,
        };
        let changed = self.count == 0 || cell[1..] != self.newest[1..] || !same_text;
        if changed {
            self.publish(cell, &sample.value);
        }
        self.set_looked(sample.ts);
        Ok(changed)
    }

    /// Records that the newest sample held until `looked_ns` at least; nothing is appended.
    pub fn confirm(&mut self, looked_ns: i64) {
        if self.count > 0 {
            self.set_looked(looked_ns);
        }
    }

    /// Appends a sample whether or not it differs.
    pub fn append(&mut self, sample: &Sample) -> Result<(), StreamError> {
        let cell = self.encode(sample)?;
        self.publish(cell, &sample.value);
        self.set_looked(sample.ts);
        Ok(())
    }

    /// Appends a float without building a [`Sample`]: the path for those who count nanoseconds.
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

    /// Samples appended so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    fn encode(&self, sample: &Sample) -> Result<RawCell, StreamError> {
        let found = sample.value.value_type();
        if found != self.value_type {
            return Err(StreamError::Type {
                declared: self.value_type.as_str(),
                found: found.as_str(),
            });
        }
        let (bits, text_bytes) = match &sample.value {
            Value::Int(v) => (*v as u64, 0),
            Value::Float(v) => (v.to_bits(), 0),
            Value::Bool(v) => (u64::from(*v), 0),
            Value::Text(v) => (0, cut(v, TEXT_BYTES_MAX).len() as u64),
        };
        let meta = u64::from(sample.error.to_bits())
            | (u64::from(sample.quality as u8) << 32)
            | (text_bytes << 40);
        Ok([sample.ts as u64, bits, meta])
    }

    fn publish(&mut self, cell: RawCell, value: &Value) {
        if self.count == COUNT_MAX {
            return; // As in `publish_cell`.
        }
        if let Value::Text(text) = value {
            let slot_at = self.text_at + self.ring_index * TEXT_SLOT_BYTES;
            // As in `line::append`: readers that see this text also see that the sequence moved on.
            std::sync::atomic::fence(Ordering::Release);
            self.map
                .copy_in(slot_at, cut(text, TEXT_BYTES_MAX).as_bytes());
            self.newest_text = Some(Arc::clone(text));
        }
        self.publish_cell(cell);
    }

    #[inline(always)]
    fn publish_cell(&mut self, cell: RawCell) {
        // 2^48 samples in one generation are nine years at a million a second; beyond them the
        // stream stands still rather than lie about its generation.
        if self.count == COUNT_MAX {
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

    #[inline(always)]
    fn set_looked(&self, ts: i64) {
        let word = self
            .map
            .words(self.line_at + 8 * LOOKED, 1)
            .expect("granted by the segment");
        word[0].store(ts as u64, Ordering::Release);
    }

    /// Whether this stream was registered in the segment that `map` is.
    pub(crate) fn is_of(&self, map: &Arc<Map>) -> bool {
        Arc::ptr_eq(&self.map, map)
    }

    pub(crate) fn slot(&self) -> u32 {
        self.grant.slot
    }

    pub(crate) fn grant(&self) -> Grant {
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

/// The longest start of `text` of at most `bytes_max` bytes and whole characters.
pub(crate) fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

//! What the sampler handed over and the writer has not written yet.
//!
//! Samples wait in the form in which they will be written, which is half the size of what was
//! submitted and holds no pointers: two of these buffers are swapped for ever and nothing is freed.

use std::sync::Arc;

use barograph_model::{Sample, SeriesId, VALUE_BYTES_MAX, Value};

use super::format::{RECORD_BYTES, Record, Text, cut};
use crate::{Declared, Losses};

/// Buffers of less than this are never made smaller.
const IDLE_BYTES: usize = 64 << 10;

/// A stream that is archived.
#[derive(Debug)]
pub(crate) struct Stream {
    pub declared: Declared,
    pub id: SeriesId,
}

/// Entries in the order in which they came. Streams are named by handles, each of which is one
/// stream for as long as anything of it waits.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub records: Vec<Record>,
    texts: Vec<u8>,
    /// Streams that begin; before the records.
    pub declares: Vec<(u32, Arc<Stream>)>,
    /// Streams that have ended; after the records.
    pub retires: Vec<u32>,
    /// What was lost meanwhile.
    pub losses: Losses,
    /// Whether a durable sample is among them.
    pub durable: bool,
    /// The journal's position after the last of them.
    pub end: u64,
    /// How many records are written; moves back when a sync fails.
    pub written: usize,
    /// Whether the losses are.
    pub losses_written: bool,
}

impl Batch {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
            && self.declares.is_empty()
            && self.retires.is_empty()
            && self.losses.is_none()
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.records.len() * RECORD_BYTES + self.texts.len()
    }

    /// Bytes that a sample will take.
    pub fn cost(sample: &Sample) -> usize {
        RECORD_BYTES + sample.value.bytes().min(VALUE_BYTES_MAX)
    }

    /// Adds a sample. A text that is too long for any stream is cut; other values are not that long.
    pub fn push(&mut self, stream: u32, number: u64, sample: &Sample) {
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
                Text { at, length }.bits()
            }
        };
        self.records.push(Record {
            error: sample.error,
            ts: sample.ts,
            bits,
            ..Record::new(stream, number, sample.quality)
        });
    }

    /// The bytes that a record of no number means.
    pub fn text(&self, record: &Record) -> &[u8] {
        Text::from_bits(record.bits)
            .of(&self.texts)
            .expect("the text was put there with the record")
    }

    /// Empties it. Buffers that were much too large become smaller, step by step.
    pub fn clear(&mut self) {
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
        self.declares = Vec::new();
        self.retires = Vec::new();
        self.losses = Losses::default();
        self.durable = false;
        self.written = 0;
        self.losses_written = false;
    }
}

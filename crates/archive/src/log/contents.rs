//! The contents of a segment, taken in frame by frame.
//!
//! A frame counts as a whole or not at all: a frame that breaks the format changes nothing, and is
//! the end of the segment.

use std::sync::Arc;

use barograph_model::{Descriptor, SeriesId, Span, VALUE_BYTES_MAX, ValueType};

use super::format::{
    FrameHeader, HEADER_BYTES, NO_SPAN, SampleRecord, SamplesPayload, StreamDeclaration, TextPlace,
    kind, only_marks, union,
};
use crate::ArchiveLosses;

/// Size in bytes of a block of frames, approximately: frames are skipped, and read again, by
/// blocks.
pub(crate) const BLOCK_BYTES: u64 = 128 << 10;

/// One series of one life in a log segment.
#[derive(Clone, Debug)]
pub struct LogSeries {
    /// Identity of the series.
    pub id: SeriesId,
    /// Descriptor of the stream.
    pub descriptor: Arc<Descriptor>,
    /// Time of the stream's registration, in ns since the epoch.
    pub life: i64,
    /// Number of samples that its ring holds.
    pub depth: u32,
    /// Number of its last sample that was archived before this segment; 0 if there is none.
    pub before: u64,
    /// Number of its last sample in this segment or before it.
    pub archived: u64,
    /// Number of its samples in this segment.
    pub rows: u64,
    /// Bytes of their texts, JSON, bytes and arrays.
    pub bytes: u64,
    /// Times of its samples here; `from > to` if there are none.
    pub span: Span,
}

/// The contents of a segment up to the last good frame.
#[derive(Clone, Debug)]
pub(crate) struct LogContents {
    /// Offset at which the last good frame ends.
    pub end: u64,
    /// Whether that frame marks the end of the segment.
    pub closed: bool,
    pub series: Vec<LogSeries>,
    pub blocks: Vec<Block>,
    pub rows: u64,
    pub span: Span,
    pub losses: ArchiveLosses,
    /// Whether any frame has marks; they are read only on request.
    pub has_marks: bool,
    /// Numbers to restore if a frame proves bad half way.
    undo: Vec<(u32, u64)>,
}

/// Some consecutive frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub at: u64,
    pub bytes: u64,
    /// Times of the samples in the block.
    pub span: Span,
}

impl LogContents {
    /// Returns the contents of a segment that has only its header.
    pub(super) fn new() -> Self {
        Self {
            end: HEADER_BYTES as u64,
            closed: false,
            series: Vec::new(),
            blocks: Vec::new(),
            rows: 0,
            span: NO_SPAN,
            losses: ArchiveLosses::default(),
            has_marks: false,
            undo: Vec::new(),
        }
    }

    /// Takes in the frame at offset `at`, which has `bytes` bytes in all.
    pub(super) fn add(
        &mut self,
        at: u64,
        frame: FrameHeader,
        payload: &[u8],
        bytes: usize,
    ) -> Result<(), &'static str> {
        self.take(frame, payload)?;
        self.index(at, bytes as u64, frame);
        self.end = at + bytes as u64;
        Ok(())
    }

    fn take(&mut self, frame: FrameHeader, payload: &[u8]) -> Result<(), &'static str> {
        if self.closed {
            return Err("there are frames behind the last one");
        }
        match frame.kind {
            kind::DECLARE => self.take_declarations(frame, payload),
            kind::SAMPLES => self.take_samples(frame, payload),
            kind::LOSSES => {
                self.losses.add(&ArchiveLosses::parse(payload));
                Ok(())
            }
            kind::MARKS => {
                let marks = only_marks(frame, payload);
                let marks = marks.ok_or("a frame has not the marks that it says")?;
                self.has_marks |= !marks.is_empty();
                Ok(())
            }
            kind::END => {
                self.closed = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn take_declarations(
        &mut self,
        frame: FrameHeader,
        payload: &[u8],
    ) -> Result<(), &'static str> {
        let known = self.series.len();
        let mut left = payload;
        for _ in 0..frame.count {
            let parsed = StreamDeclaration::parse(left);
            let right = |d: &StreamDeclaration| d.index as usize == self.series.len();
            let Some((new, rest)) = parsed.filter(|(new, _)| right(new)) else {
                self.series.truncate(known);
                return Err("a declaration does not keep to the format");
            };
            self.series.push(LogSeries {
                id: new.id,
                descriptor: new.descriptor,
                life: new.life,
                depth: new.depth,
                before: new.before,
                archived: new.before,
                rows: 0,
                bytes: 0,
                span: NO_SPAN,
            });
            left = rest;
        }
        Ok(())
    }

    /// Checks all samples of a frame, then counts them: a frame counts as a whole or not at all.
    fn take_samples(&mut self, frame: FrameHeader, payload: &[u8]) -> Result<(), &'static str> {
        let SamplesPayload {
            records,
            texts,
            marks,
        } = SamplesPayload::of(frame, payload).ok_or("a frame has not the samples that it says")?;
        self.undo.clear();
        for bytes in records {
            let record = SampleRecord::read(bytes);
            let number = record.number();
            let series = self.series.get_mut(record.stream as usize);
            let right = series.filter(|series| {
                number > series.archived
                    && frame.span.holds(record.ts)
                    && keeps_to(&record, series.descriptor.value_type, texts)
            });
            let Some(series) = right else {
                for &(stream, number) in self.undo.iter().rev() {
                    self.series[stream as usize].archived = number;
                }
                return Err("a sample does not keep to the format");
            };
            self.undo.push((record.stream, series.archived));
            series.archived = number;
        }
        for bytes in records {
            let record = SampleRecord::read(bytes);
            let series = &mut self.series[record.stream as usize];
            series.rows += 1;
            if !series.descriptor.value_type.is_number() {
                series.bytes += u64::from(TextPlace::from_bits(record.bits).length);
            }
            series.span.from = series.span.from.min(record.ts);
            series.span.to = series.span.to.max(record.ts);
        }
        self.has_marks |= !marks.is_empty();
        self.rows += u64::from(frame.count);
        if frame.count > 0 {
            self.span = union(self.span, frame.span);
        }
        Ok(())
    }

    fn index(&mut self, at: u64, bytes: u64, frame: FrameHeader) {
        if frame.kind != kind::SAMPLES || frame.count == 0 {
            return;
        }
        let last = self.blocks.last_mut();
        match last.filter(|block| at + bytes - block.at <= BLOCK_BYTES) {
            Some(block) => {
                block.bytes = at + bytes - block.at;
                block.span = union(block.span, frame.span);
            }
            None => self.blocks.push(Block {
                at,
                bytes,
                span: frame.span,
            }),
        }
    }
}

/// Whether a record is a sample of this type.
#[inline]
fn keeps_to(record: &SampleRecord, value_type: ValueType, texts: &[u8]) -> bool {
    let value = match value_type {
        ValueType::Int | ValueType::Float => true,
        ValueType::Bool => record.bits <= 1,
        long => {
            let bytes = TextPlace::from_bits(record.bits).of(texts);
            bytes.is_some_and(|bytes| {
                let right = match long {
                    ValueType::Text | ValueType::Json => std::str::from_utf8(bytes).is_ok(),
                    ValueType::Floats => bytes.len().is_multiple_of(8),
                    _ => true,
                };
                bytes.len() <= VALUE_BYTES_MAX && right
            })
        }
    };
    value && record.quality().is_some()
}

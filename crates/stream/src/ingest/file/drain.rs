//! Taking records out of rings: copy, check, pass on, count.

use super::super::layout::{
    self, BLOB_BYTES_MAX, PIECE_BYTES, RECORD_BYTES, SERIES_MAX, head, kind, ring_bytes, rings_at,
};
use super::{Header, IngestFile, Ring, Scratch, head_at, with_scratch};
use crate::StreamError;

/// Most records in one read: 192 KiB.
const BATCH_RECORDS: u64 = 1 << 13;
/// Records of the longest value.
const LONGEST_RECORDS: u64 = 1 + (BLOB_BYTES_MAX / PIECE_BYTES) as u64;

const _: () = assert!(BATCH_RECORDS > LONGEST_RECORDS, "a value fits into a batch");

/// One value or frame, as a foreign process wrote it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IngestRecord<'a> {
    /// The ring it came from.
    pub ring: u32,
    /// Position of the record after this one in that ring: the reader continues there after it has
    /// taken this one in.
    pub next: u64,
    /// Index of the value; index of the publication for a frame; status for the answer to a call.
    pub series: u32,
    /// Time of the record, in the unit of the file's time source.
    pub time: u64,
    /// Content of the record.
    pub payload: RecordPayload<'a>,
}

/// The content of a record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RecordPayload<'a> {
    /// A 64-bit signed integer.
    Int(i64),
    /// A 64-bit IEEE 754 number, any bit pattern.
    Float(f64),
    /// True or false.
    Bool(bool),
    /// A text, which should be UTF-8 but has not been checked.
    Text(&'a [u8]),
    /// Bytes.
    Bytes(&'a [u8]),
    /// A text, which should be JSON but has not been checked.
    Json(&'a [u8]),
    /// Little-endian f64s; a length that is not a multiple of 8 is the writer's fault.
    Floats(&'a [u8]),
    /// The end of a frame, with its number.
    Frame(u64),
    /// The answer to a call.
    Ack {
        /// Id of the call.
        id: u64,
        /// Status, numbered as in [`crate::calls::AckStatus`] but not checked.
        status: u32,
    },
    /// Number of records that were overwritten before they could be read, counted as in
    /// [`DrainResult::missed`]; only from [`IngestFile::drain_all`], like the next variant.
    Missed(u64),
    /// A record that is not valid.
    Damaged,
}

/// The result of a drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainResult {
    /// Number of records passed on: values and frames.
    pub records: u64,
    /// Number of records that were overwritten before they could be read. A value of eight bytes
    /// and a frame take one record, so of these it is the exact number lost; a long value takes one
    /// more for every 16 bytes, so with such values it is more than the number of values lost, and
    /// never less.
    pub missed: u64,
    /// Number of records that are not valid: of unknown kind, or with pieces that do not fit.
    pub damaged: u64,
    /// Number of records passed over, whatever their content: the bound of a drain counts these.
    pub passed: u64,
    /// Whether there are more records now.
    pub has_more: bool,
}

/// The positions of the copied part of a ring.
#[derive(Clone, Copy)]
struct Batch {
    from: u64,
    end: u64,
    /// Values that begin at or after this position are left for another drain.
    until: u64,
}

/// A record that stands for missing or damaged ones.
fn gap(ring: usize, next: u64, payload: RecordPayload<'_>) -> IngestRecord<'_> {
    IngestRecord {
        ring: ring as u32,
        next,
        series: 0,
        time: 0,
        payload,
    }
}

impl IngestFile {
    /// Like [`Self::drain_all`], but passes on valid records only.
    pub fn drain(
        &mut self,
        records_max: u64,
        each: &mut dyn FnMut(IngestRecord<'_>),
    ) -> Result<DrainResult, StreamError> {
        self.drain_all(records_max, &mut |record| match record.payload {
            RecordPayload::Missed(_) | RecordPayload::Damaged => {}
            _ => each(record),
        })
    }

    /// Passes on the committed records, at most about `records_max` of them (a long value counts as
    /// many as it takes in the ring): each ring in order, the rings in turns. Missed and damaged
    /// records are passed on at their place.
    pub fn drain_all(
        &mut self,
        records_max: u64,
        each: &mut dyn FnMut(IngestRecord<'_>),
    ) -> Result<DrainResult, StreamError> {
        with_scratch(|scratch| self.drain_by(scratch, records_max, each))
    }

    fn drain_by(
        &mut self,
        scratch: &mut Scratch,
        records_max: u64,
        each: &mut dyn FnMut(IngestRecord<'_>),
    ) -> Result<DrainResult, StreamError> {
        let mut drained = DrainResult::default();
        let (mut left, mut idle) = (records_max, 0);
        while left > 0 && idle < self.rings.len() {
            let at = self.turn % self.rings.len();
            let taken = self.drain_batch(scratch, at, left, each, &mut drained)?;
            self.turn = at + 1;
            left = left.saturating_sub(taken);
            drained.passed += taken;
            idle = if taken == 0 { idle + 1 } else { 0 };
        }
        drained.has_more = !self.is_drained();
        Ok(drained)
    }

    /// Takes one batch of a ring, or `records_max` of it; returns how many records were passed
    /// over.
    fn drain_batch(
        &mut self,
        scratch: &mut Scratch,
        at: usize,
        records_max: u64,
        each: &mut dyn FnMut(IngestRecord<'_>),
        drained: &mut DrainResult,
    ) -> Result<u64, StreamError> {
        let Ring {
            position,
            committed,
            ..
        } = self.rings[at];
        if position >= committed {
            return Ok(0);
        }
        let from = position.max(committed.saturating_sub(self.ring_records));
        let wanted = records_max.clamp(LONGEST_RECORDS, BATCH_RECORDS);
        let count = (committed - from).min(wanted);
        self.copy_records(&mut scratch.batch, at, from, count)?;
        // Read after the copy: the position up to which the writer may have been writing meanwhile.
        let reserved = self.read_word(head_at(at) + head::RESERVED)?;
        if committed > reserved {
            // Not all processors guarantee that a copied word is not made of two halves, so it is
            // read again. A writer with the same value twice is believed.
            let again = self.read_word(head_at(at) + head::COMMITTED)?;
            if again < committed {
                self.rings[at].committed = again.max(position);
                return Ok(0);
            }
        }
        let whole_from = reserved.saturating_sub(self.ring_records).max(from);
        let batch = Batch {
            from,
            end: from + count,
            until: from.saturating_add(records_max),
        };
        let first = whole_from.min(batch.end);
        drained.missed = drained.missed.saturating_add(first - position);
        if first > position {
            self.rings[at].is_in_gap = true;
            each(gap(at, first, RecordPayload::Missed(first - position)));
        }
        let next = self.hand_on(scratch, at, first, batch, each, drained)?;
        self.rings[at].position = next;
        Ok(next - from)
    }

    /// Passes on the copied records from `first` on; returns the position of the first one that was
    /// left.
    fn hand_on(
        &mut self,
        Scratch {
            batch: copied,
            blob,
            ..
        }: &mut Scratch,
        ring: usize,
        first: u64,
        batch: Batch,
        each: &mut dyn FnMut(IngestRecord<'_>),
        drained: &mut DrainResult,
    ) -> Result<u64, StreamError> {
        let Batch { from, end, until } = batch;
        let mut position = first;
        let mut is_checked = false;
        while position < end && (position < until || position == from) {
            let [what, time, payload] = record(copied, position - from);
            let (kind, series) = ((what >> 24) as u8, what as u32 & SERIES_MAX);
            if what >> 32 != position & 0xffff_ffff {
                // As in `drain_batch`, checked before the record counts as damaged.
                if !is_checked {
                    is_checked = true;
                    let committed = self.read_word(head_at(ring) + head::COMMITTED)?;
                    if committed <= position {
                        self.rings[ring].committed = position;
                        return Ok(position);
                    }
                }
                drained.damaged += 1;
                position += 1;
                each(gap(ring, position, RecordPayload::Damaged));
                continue;
            }
            if kind == kind::PIECE && self.rings[ring].is_in_gap {
                drained.missed = drained.missed.saturating_add(1);
                position += 1;
                each(gap(ring, position, RecordPayload::Missed(1)));
                continue;
            }
            self.rings[ring].is_in_gap = false;
            let (pieces, length) = match long_pieces(kind, payload) {
                Some(pieces) => (pieces, payload as usize),
                None => (0, 0),
            };
            if pieces >= end - position {
                // Its pieces come with the next batch, unless this one has all committed records.
                if position > from {
                    return Ok(position);
                }
                drained.damaged += 1;
                each(gap(ring, end, RecordPayload::Damaged));
                return Ok(end);
            }
            let is_whole = gather(copied, position, from, length, blob);
            match payload_of(kind, series, payload, blob) {
                Some(payload) if is_whole => {
                    drained.records += 1;
                    each(IngestRecord {
                        ring: ring as u32,
                        next: position + 1 + pieces,
                        series,
                        time,
                        payload,
                    });
                }
                _ => {
                    drained.damaged += 1;
                    each(gap(ring, position + 1 + pieces, RecordPayload::Damaged));
                }
            }
            position += 1 + pieces;
        }
        Ok(position)
    }

    /// Copies records, which may wrap around the end of the ring.
    fn copy_records(
        &self,
        batch: &mut Vec<u8>,
        ring: usize,
        from: u64,
        count: u64,
    ) -> Result<(), StreamError> {
        batch.resize(count as usize * RECORD_BYTES, 0);
        let ring_at = rings_at(self.rings_max) + ring * ring_bytes(self.ring_records);
        let first = (from & (self.ring_records - 1)) as usize;
        let straight = (self.ring_records as usize - first).min(count as usize) * RECORD_BYTES;
        let (before, after) = batch.split_at_mut(straight);
        self.read(before, ring_at + first * RECORD_BYTES)?;
        self.read(after, ring_at)
    }
}

fn record(batch: &[u8], index: u64) -> [u64; 3] {
    let header = Header(batch);
    let at = index as usize * RECORD_BYTES;
    [header.word(at), header.word(at + 8), header.word(at + 16)]
}

/// The content of a record; `None` if it is not valid. `bytes` are those of a long value.
fn payload_of(kind: u8, series: u32, payload: u64, bytes: &[u8]) -> Option<RecordPayload<'_>> {
    let is_too_long = payload > BLOB_BYTES_MAX as u64;
    Some(match kind {
        kind::INT => RecordPayload::Int(payload as i64),
        kind::FLOAT => RecordPayload::Float(f64::from_bits(payload)),
        kind::BOOL => RecordPayload::Bool(payload != 0),
        kind::FRAME => RecordPayload::Frame(payload),
        kind::ACK => RecordPayload::Ack {
            id: payload,
            status: series,
        },
        _ if is_too_long => return None,
        kind::TEXT => RecordPayload::Text(bytes),
        kind::BYTES => RecordPayload::Bytes(bytes),
        kind::JSON => RecordPayload::Json(bytes),
        kind::FLOATS => RecordPayload::Floats(bytes),
        _ => return None,
    })
}

/// Number of pieces of a long value; `None` for another kind, or if it is too long.
fn long_pieces(kind: u8, bytes: u64) -> Option<u64> {
    let is_long = matches!(kind, kind::TEXT | kind::BYTES | kind::JSON | kind::FLOATS);
    let fits = bytes <= BLOB_BYTES_MAX as u64;
    (is_long && fits).then(|| bytes.div_ceil(PIECE_BYTES as u64))
}

/// Assembles a long value; returns false if a piece is not valid.
fn gather(batch: &[u8], position: u64, from: u64, bytes: usize, blob: &mut Vec<u8>) -> bool {
    blob.clear();
    for number in 0..bytes.div_ceil(PIECE_BYTES) as u64 {
        let at = position + 1 + number;
        let [what, first, second] = record(batch, at - from);
        let expect = (at & 0xffff_ffff) << 32 | layout::what(kind::PIECE, number as u32);
        if what != expect {
            return false;
        }
        blob.extend(first.to_le_bytes());
        blob.extend(second.to_le_bytes());
    }
    blob.truncate(bytes);
    true
}

//! Taking records out of rings: copy, check, hand on, count.

use super::super::layout::{
    self, BLOB_BYTES_MAX, PIECE_BYTES, RECORD_BYTES, SERIES_MAX, head, kind, ring_bytes, rings_at,
};
use super::{Header, IngestFile, Ring, Scratch, head_at, with_scratch};
use crate::StreamError;

/// Records that one read takes at most: 192 KiB.
const BATCH_RECORDS: u64 = 1 << 13;
/// Records of the longest value.
const LONGEST_RECORDS: u64 = 1 + (BLOB_BYTES_MAX / PIECE_BYTES) as u64;

const _: () = assert!(BATCH_RECORDS > LONGEST_RECORDS, "a value fits into a batch");

/// One value or frame as a stranger wrote it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record<'a> {
    /// Which ring it came from.
    pub ring: u32,
    /// Where the one after it begins in that ring: who has taken in this one goes on there.
    pub next: u64,
    /// The index of the value; of the publication for a frame; the status for the answer to a call.
    pub series: u32,
    /// As the file's time source counts.
    pub time: u64,
    /// What was put.
    pub payload: Payload<'a>,
}

/// What was put.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Payload<'a> {
    /// An integer.
    Int(i64),
    /// A float, any bit pattern.
    Float(f64),
    /// True or false.
    Bool(bool),
    /// Should be UTF-8; nobody has checked.
    Text(&'a [u8]),
    /// Bytes.
    Bytes(&'a [u8]),
    /// Should be JSON; nobody has checked.
    Json(&'a [u8]),
    /// Little-endian f64s; a length that is no multiple of 8 is the writer's fault.
    Floats(&'a [u8]),
    /// The end of a frame, with its number.
    Frame(u64),
    /// The answer to a call.
    Ack {
        /// The call's.
        id: u64,
        /// As [`crate::calls::AckStatus`] numbers them; nobody has checked.
        status: u32,
    },
    /// Places that were written over before they could be read, as [`Drained::missed`] counts them; of
    /// [`IngestFile::drain_all`] alone, as the next.
    Missed(u64),
    /// A record that makes no sense.
    Damaged,
}

/// What came of a look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Records handed on: values and frames.
    pub records: u64,
    /// Places in a ring that were written over before they could be read. A value of eight bytes and a
    /// frame have one, so of these it is the exact number of those lost; a long value has one more for
    /// every 16 bytes of it, so where there are such it is more than the values lost, and never less.
    pub missed: u64,
    /// Records that make no sense: of unknown kind, or with pieces that do not fit.
    pub damaged: u64,
    /// Records gone through, whatever they are: by these a look is bounded.
    pub passed: u64,
    /// There is more now.
    pub has_more: bool,
}

/// What was copied of a ring: positions.
#[derive(Clone, Copy)]
struct Batch {
    from: u64,
    end: u64,
    /// Values that begin here or later are for another time.
    until: u64,
}

/// What stands for records that are not there.
fn gap(ring: usize, next: u64, payload: Payload<'_>) -> Record<'_> {
    Record {
        ring: ring as u32,
        next,
        series: 0,
        time: 0,
        payload,
    }
}

impl IngestFile {
    /// As [`Self::drain_all`], of records that are whole.
    pub fn drain(
        &mut self,
        records_max: u64,
        each: &mut dyn FnMut(Record<'_>),
    ) -> Result<Drained, StreamError> {
        self.drain_all(records_max, &mut |record| match record.payload {
            Payload::Missed(_) | Payload::Damaged => {}
            _ => each(record),
        })
    }

    /// Hands on what is committed, at most about `records_max` records (a long value counts as what it
    /// takes in the ring): of each ring in order, the rings in turns. What was missed or is damaged is handed on
    /// at its place.
    pub fn drain_all(
        &mut self,
        records_max: u64,
        each: &mut dyn FnMut(Record<'_>),
    ) -> Result<Drained, StreamError> {
        with_scratch(|scratch| self.drain_by(scratch, records_max, each))
    }

    fn drain_by(
        &mut self,
        scratch: &mut Scratch,
        records_max: u64,
        each: &mut dyn FnMut(Record<'_>),
    ) -> Result<Drained, StreamError> {
        let mut drained = Drained::default();
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

    /// A batch of a ring, or `records_max` of it: how many records were gone through.
    fn drain_batch(
        &mut self,
        scratch: &mut Scratch,
        at: usize,
        records_max: u64,
        each: &mut dyn FnMut(Record<'_>),
        drained: &mut Drained,
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
        // After the copy: up to where the writer may have been writing meanwhile.
        let reserved = self.read_word(head_at(at) + head::RESERVED)?;
        if committed > reserved {
            // Not all processors promise that a copied word is not halves of two: ask again. A writer
            // that says so twice is taken at its word.
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
            each(gap(at, first, Payload::Missed(first - position)));
        }
        let next = self.hand_on(scratch, at, first, batch, each, drained)?;
        self.rings[at].position = next;
        Ok(next - from)
    }

    /// Hands on the copied records from `first` on; gives the position of the first that was not.
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
        each: &mut dyn FnMut(Record<'_>),
        drained: &mut Drained,
    ) -> Result<u64, StreamError> {
        let Batch { from, end, until } = batch;
        let mut position = first;
        let mut is_checked = false;
        while position < end && (position < until || position == from) {
            let [what, time, payload] = record(copied, position - from);
            let (kind, series) = ((what >> 24) as u8, what as u32 & SERIES_MAX);
            if what >> 32 != position & 0xffff_ffff {
                // As in `drain_batch`, before this is called damage.
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
                each(gap(ring, position, Payload::Damaged));
                continue;
            }
            if kind == kind::PIECE && self.rings[ring].is_in_gap {
                drained.missed = drained.missed.saturating_add(1);
                position += 1;
                each(gap(ring, position, Payload::Missed(1)));
                continue;
            }
            self.rings[ring].is_in_gap = false;
            let (pieces, length) = match long_pieces(kind, payload) {
                Some(pieces) => (pieces, payload as usize),
                None => (0, 0),
            };
            if pieces >= end - position {
                // Its pieces come with the next batch, unless this one has all that is committed.
                if position > from {
                    return Ok(position);
                }
                drained.damaged += 1;
                each(gap(ring, end, Payload::Damaged));
                return Ok(end);
            }
            let is_whole = gather(copied, position, from, length, blob);
            match payload_of(kind, series, payload, blob) {
                Some(payload) if is_whole => {
                    drained.records += 1;
                    each(Record {
                        ring: ring as u32,
                        next: position + 1 + pieces,
                        series,
                        time,
                        payload,
                    });
                }
                _ => {
                    drained.damaged += 1;
                    each(gap(ring, position + 1 + pieces, Payload::Damaged));
                }
            }
            position += 1 + pieces;
        }
        Ok(position)
    }

    /// Copies records, which may go round the end of the ring.
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

/// What was put; `None` for what makes no sense. The bytes are those of a long value.
fn payload_of(kind: u8, series: u32, payload: u64, bytes: &[u8]) -> Option<Payload<'_>> {
    let is_too_long = payload > BLOB_BYTES_MAX as u64;
    Some(match kind {
        kind::INT => Payload::Int(payload as i64),
        kind::FLOAT => Payload::Float(f64::from_bits(payload)),
        kind::BOOL => Payload::Bool(payload != 0),
        kind::FRAME => Payload::Frame(payload),
        kind::ACK => Payload::Ack {
            id: payload,
            status: series,
        },
        _ if is_too_long => return None,
        kind::TEXT => Payload::Text(bytes),
        kind::BYTES => Payload::Bytes(bytes),
        kind::JSON => Payload::Json(bytes),
        kind::FLOATS => Payload::Floats(bytes),
        _ => return None,
    })
}

/// How many pieces a long value has; `None` for what is none, or too long.
fn long_pieces(kind: u8, bytes: u64) -> Option<u64> {
    let is_long = matches!(kind, kind::TEXT | kind::BYTES | kind::JSON | kind::FLOATS);
    let fits = bytes <= BLOB_BYTES_MAX as u64;
    (is_long && fits).then(|| bytes.div_ceil(PIECE_BYTES as u64))
}

/// Puts a long value together; false when a piece is not what it should be.
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

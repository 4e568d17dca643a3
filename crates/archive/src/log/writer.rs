//! The writer of log segments: it writes batches, and never leaves a sample in two segments.
//!
//! If a write fails, the file is cut back to the last whole frame and the rest of the batch is
//! written there later. If that cut fails, or a sync, the segment is given up: after a failed sync
//! nobody knows what of the file is on disk, and a second sync that succeeds proves nothing. The
//! segment is cut back to where the batch began, and only when that has succeeded is the whole
//! batch written again, to a new segment. So a sample is in one segment at most, and what was
//! acknowledged lies before the cut.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use barograph_model::{Clock, Span};

use super::batch::{BatchStream, JournalBatch};
use super::format::{
    FRAME_RECORDS_MAX, FrameHeader, LogHeader, NO_SPAN, RECORD_BYTES, SAMPLES_BYTES_MAX,
    SampleRecord, StreamDeclaration, TextPlace, kind, union,
};
use super::marks::{RingMark, RingMarks};
use super::newest::NewestSegment;
use super::written::WrittenSegment;
use crate::storage::OutFile;
use crate::{ArchiveError, ArchiveLayout, FileAccess, Storage};

/// Number of streams registered in a segment at which it is closed, whatever its size: every reader
/// has all of them in memory.
const BEGUN_MAX: u32 = 64 << 10;
/// Approximate size of a frame of declarations, in bytes.
const DECLARATIONS_BYTES: usize = 64 << 10;
/// Capacity above which the encoding buffer is freed after a frame.
const ENCODED_BYTES: usize = 256 << 10;

/// The writer's segments, and the state of its streams.
pub(crate) struct LogWriter {
    storage: Arc<dyn Storage>,
    clock: Arc<dyn Clock>,
    layout: ArchiveLayout,
    node: String,
    /// Sequence of the next segment.
    next: u64,
    open: Option<Open>,
    /// A cut that must be made before anything else is written.
    cut: Option<Cut>,
    /// Streams by handle.
    streams: Vec<Option<Known>>,
    /// The marks of rings, as they are in the log.
    marks: RingMarks,
    /// The marks of the frame that is being written.
    frame_marks: Vec<RingMark>,
    /// Segments that are written and not sealed, oldest first.
    kept: VecDeque<WrittenSegment>,
    /// The content of the record of the newest segment; `None` if it is not known.
    recorded: Option<NewestSegment>,
    encoded: Vec<u8>,
    /// Number of the batch, so that each stream's undo belongs to one batch.
    batch: u64,
}

/// A stream that is written.
struct Known {
    stream: Arc<BatchStream>,
    /// Number of its last sample in the log.
    archived: u64,
    /// The batch that last changed `archived`, and the value before.
    moved: (u64, u64),
    /// The stream's index in the open segment.
    index: Option<u32>,
}

/// The segment that is being written.
struct Open {
    file: Box<dyn OutFile>,
    path: PathBuf,
    kept: WrittenSegment,
    /// Bytes of the header and of the first declarations.
    head_bytes: u64,
    declared: u32,
    /// Number of streams that existed when the segment was begun.
    living: u32,
    /// Time at which the file was begun, by the monotonic clock: setting the clock does not change
    /// its age.
    opened_ns: i64,
    /// The segment's state before the present batch.
    before: WrittenSegment,
    /// Whether the content of the file is unknown, in memory or on disk: then it must be given up.
    broken: bool,
}

struct Cut {
    path: PathBuf,
    /// The segment's state before the batch that failed; `None` if it had only a head: then the
    /// file is deleted.
    kept: Option<WrittenSegment>,
}

impl LogWriter {
    /// Returns a writer whose first segment will be `next`; `kept` are the segments that wait for
    /// the sealer, and `marks` their marks.
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        clock: Arc<dyn Clock>,
        layout: ArchiveLayout,
        node: String,
        next: u64,
        kept: VecDeque<WrittenSegment>,
        marks: RingMarks,
    ) -> Self {
        Self {
            storage,
            clock,
            layout,
            node,
            next,
            open: None,
            cut: None,
            streams: Vec::new(),
            marks,
            frame_marks: Vec::new(),
            kept,
            recorded: None,
            encoded: Vec::new(),
            batch: 1,
        }
    }

    /// Writes the rest of the batch, and syncs it if it has durable samples. After a failure, call
    /// it again with the same batch.
    pub(crate) fn commit(&mut self, batch: &mut JournalBatch) -> Result<(), ArchiveError> {
        let committed = self.try_commit(batch);
        if committed.is_err() && self.open.as_ref().is_some_and(|open| open.broken) {
            self.give_up(batch);
        }
        committed
    }

    fn try_commit(&mut self, batch: &mut JournalBatch) -> Result<(), ArchiveError> {
        self.learn(batch);
        self.cut_off()?;
        // Streams that come and go need no segment: the next one declares those that exist then.
        if self.open.is_none() && (!batch.records.is_empty() || !batch.losses.is_none()) {
            self.begin_segment()?;
        }
        if self.open.is_some() {
            self.write_batch(batch)?;
        }
        if batch.durable {
            self.sync()?;
        }
        for &handle in &batch.retires {
            self.streams[handle as usize] = None;
        }
        for incarnation in &batch.forgets {
            self.marks.forget(*incarnation);
        }
        self.batch += 1;
        if let Some(open) = &mut self.open {
            open.before = open.kept;
        }
        Ok(())
    }

    /// Whether the open segment is so large or so old that it should be sealed.
    pub(crate) fn is_due(&self, bytes_max: u64, ns_max: i64) -> bool {
        self.open.as_ref().is_some_and(|open| {
            let age_ns = self.clock.monotonic_ns().saturating_sub(open.opened_ns);
            let is_full = open.kept.bytes >= bytes_max || open.declared - open.living >= BEGUN_MAX;
            open.kept.rows > 0 && (is_full || age_ns >= ns_max)
        })
    }

    /// Closes the open segment, between two batches. One without samples stays open: there is
    /// nothing to seal.
    pub(crate) fn roll(&mut self) {
        let Some(mut open) = self.open.take_if(|open| open.kept.rows > 0) else {
            return;
        };
        self.encoded.clear();
        let at = FrameHeader::begin(&mut self.encoded);
        self.encoded
            .extend_from_slice(&open.kept.rows.to_le_bytes());
        FrameHeader::bare(kind::END, 0, NO_SPAN).finish(&mut self.encoded, at);
        let ended = match open.file.write_all(&self.encoded) {
            Ok(()) => {
                open.kept.bytes += self.encoded.len() as u64;
                Ok(())
            }
            // Half a frame at the end would look like damage.
            Err(error) => open.file.rewind(open.kept.bytes).and(Err(error)),
        };
        // Durable samples were synced with their batch. If this sync fails, the sealer reads what
        // is there and syncs the files that it makes of it; the next segment states only the length
        // that is known to be on disk.
        let synced = open.file.sync();
        if synced.is_ok() {
            self.record(open.kept);
        } else {
            let sequence = open.kept.sequence;
            let known = self.recorded.filter(|newest| newest.sequence == sequence);
            open.kept.bytes = known.map_or(open.head_bytes, |newest| newest.bytes);
        }
        if let Err(error) = ended.and(synced) {
            tracing::warn!(path = %open.path.display(), %error, "a log segment was not closed in order");
        }
        self.forget_indexes();
        self.kept.push_back(open.kept);
    }

    /// Begins the next segment now if marks must be repeated in it, so that the previous one can be
    /// sealed even if no sample comes.
    pub(crate) fn carry(&mut self) -> Result<(), ArchiveError> {
        if !self.has_only_marks() {
            return Ok(());
        }
        let begun = self.cut_off().and_then(|()| self.begin_segment());
        if begun.is_err() {
            self.give_up(&mut JournalBatch::default());
        }
        begun
    }

    /// Whether the last closed segment is the only one that has the marks.
    fn has_only_marks(&self) -> bool {
        self.open.is_none() && !self.marks.is_empty()
    }

    /// Returns the last segment that is not written any more and whose marks are not needed; 0 if
    /// there is none.
    pub(crate) fn closed(&self) -> u64 {
        let held = usize::from(self.has_only_marks());
        let closed = self.kept.iter().rev().nth(held);
        closed.map_or(0, |kept| kept.sequence)
    }

    /// Returns the segments that are not sealed, with the open one; those up to `sealed` are
    /// sealed.
    pub(crate) fn unsealed(&mut self, sealed: u64) -> impl Iterator<Item = &WrittenSegment> {
        while self
            .kept
            .pop_front_if(|kept| kept.sequence <= sealed)
            .is_some()
        {}
        self.kept
            .iter()
            .chain(self.open.as_ref().map(|open| &open.kept))
    }

    fn learn(&mut self, batch: &JournalBatch) {
        for (handle, stream) in &batch.declares {
            let handle = *handle as usize;
            if handle >= self.streams.len() {
                self.streams.resize_with(handle + 1, || None);
            }
            // At a second attempt the stream is already known.
            self.streams[handle].get_or_insert_with(|| Known {
                stream: Arc::clone(stream),
                archived: 0,
                moved: (0, 0),
                index: None,
            });
        }
    }

    fn cut_off(&mut self) -> Result<(), ArchiveError> {
        let Some(cut) = &self.cut else {
            return Ok(());
        };
        let done = match cut.kept {
            Some(kept) => self.storage.truncate(&cut.path, kept.bytes),
            None => {
                // A segment that the record names must exist, so the record is changed first.
                let newest = self
                    .kept
                    .back()
                    .map_or(NewestSegment::default(), WrittenSegment::newest);
                self.recorded = None;
                newest.write_synced(&self.layout, &*self.storage)?;
                self.recorded = Some(newest);
                self.storage.unlink(&cut.path)
            }
        };
        done.map_err(ArchiveError::io("cut", &cut.path))?;
        self.kept.extend(cut.kept);
        self.cut = None;
        Ok(())
    }

    /// Begins a new segment in which every existing stream is declared.
    fn begin_segment(&mut self) -> Result<(), ArchiveError> {
        let sequence = self.next;
        let path = self.layout.log(sequence);
        let file = self.storage.create(&path, FileAccess::Shared);
        // A name is never tried twice, even if the file could not be created.
        self.next += 1;
        let kept = WrittenSegment {
            sequence,
            bytes: 0,
            rows: 0,
            span: NO_SPAN,
        };
        self.open = Some(Open {
            file: file.map_err(ArchiveError::io("make", &path))?,
            path,
            kept,
            head_bytes: 0,
            declared: 0,
            living: 0,
            opened_ns: self.clock.monotonic_ns(),
            before: kept,
            broken: true,
        });
        self.write_head(sequence)
    }

    fn write_head(&mut self, sequence: u64) -> Result<(), ArchiveError> {
        let header = LogHeader {
            sequence,
            created_ns: self.clock.now_ns(),
            node: self.node.clone(),
            before: self
                .kept
                .back()
                .map_or(NewestSegment::default(), WrittenSegment::newest),
            has_record: true,
        };
        self.encoded.clear();
        self.encoded.extend_from_slice(&header.encode());
        self.write()?;
        let living = (0..self.streams.len() as u32).filter(|&h| self.known(h).is_some());
        let living: Vec<u32> = living.collect();
        self.declare(&living)?;
        self.repeat_marks()?;
        self.sync_file()?;
        let dir = self.layout.log_dir();
        let synced = self.storage.sync_dir(&dir);
        synced.map_err(ArchiveError::io("sync", &dir))?;
        let open = self.open.as_mut().expect("it was begun just now");
        open.head_bytes = open.kept.bytes;
        open.living = open.declared;
        open.before = open.kept;
        open.broken = false;
        let begun = open.kept;
        self.record(begun);
        Ok(())
    }

    /// Writes the marks of earlier segments, which will be deleted one day.
    fn repeat_marks(&mut self) -> Result<(), ArchiveError> {
        let marks: Vec<RingMark> = self.marks.iter().collect();
        for marks in marks.chunks(FRAME_RECORDS_MAX) {
            self.encoded.clear();
            let at = FrameHeader::begin(&mut self.encoded);
            for mark in marks {
                mark.encode(&mut self.encoded);
            }
            FrameHeader::bare(kind::MARKS, marks.len() as u32, NO_SPAN)
                .finish(&mut self.encoded, at);
            self.write()?;
        }
        Ok(())
    }

    fn write_batch(&mut self, batch: &mut JournalBatch) -> Result<(), ArchiveError> {
        let declared = batch.declares.iter().map(|(handle, _)| *handle);
        let is_new = |h: &u32| self.known(*h).is_some_and(|known| known.index.is_none());
        let new: Vec<u32> = declared.filter(is_new).collect();
        self.declare(&new)?;
        while batch.written < batch.records.len() {
            let end = self.frame_end(batch);
            let span = self.encode_samples(batch, end);
            self.write()?;
            for record in &batch.records[batch.written..end] {
                if let Some(Some(known)) = self.streams.get_mut(record.stream as usize) {
                    if known.moved.0 != self.batch {
                        known.moved = (self.batch, known.archived);
                    }
                    known.archived = record.number();
                }
            }
            for mark in self.frame_marks.drain(..) {
                self.marks.take(mark, self.batch);
            }
            let open = self.open.as_mut().expect("it was written to");
            open.kept.rows += (end - batch.written) as u64;
            open.kept.span = union(open.kept.span, span);
            batch.written = end;
        }
        if !batch.losses_written && !batch.losses.is_none() {
            self.encoded.clear();
            let at = FrameHeader::begin(&mut self.encoded);
            batch.losses.encode(&mut self.encoded);
            FrameHeader::bare(kind::LOSSES, 0, NO_SPAN).finish(&mut self.encoded, at);
            self.write()?;
        }
        batch.losses_written = true;
        Ok(())
    }

    /// Returns the end of the frame whose first record is `batch.written`; it has at least one
    /// record.
    fn frame_end(&self, batch: &JournalBatch) -> usize {
        let most = batch.records.len().min(batch.written + FRAME_RECORDS_MAX);
        let mut bytes = 0;
        let fits = |record: &&SampleRecord| {
            let long = self.known(record.stream).filter(|known| known.is_long());
            bytes += RECORD_BYTES + long.map_or(0, |_| batch.text(record).len());
            bytes <= SAMPLES_BYTES_MAX
        };
        let records = &batch.records[batch.written..most];
        batch.written + records.iter().take_while(fits).count().max(1)
    }

    /// Encodes one frame of the records from `batch.written` to `end`, and of the marks of these
    /// records.
    fn encode_samples(&mut self, batch: &JournalBatch, end: usize) -> Span {
        let records = &batch.records[batch.written..end];
        self.encoded.clear();
        let at = FrameHeader::begin(&mut self.encoded);
        let first = self.encoded.len();
        let texts = first + records.len() * RECORD_BYTES;
        self.encoded.resize(texts, 0);
        let mut span = NO_SPAN;
        for (i, record) in records.iter().enumerate() {
            let known = self.streams[record.stream as usize].as_ref();
            let known = known.expect("a stream is known for as long as a sample of it waits");
            let mut record = *record;
            if known.is_long() {
                let text = batch.text(&record);
                record.bits = TextPlace {
                    at: (self.encoded.len() - texts) as u32,
                    length: text.len() as u32,
                }
                .bits();
                self.encoded.extend_from_slice(text);
            }
            record.stream = known.index.expect("its segment declares every stream");
            span = union(
                span,
                Span {
                    from: record.ts,
                    to: record.ts,
                },
            );
            let to = first + i * RECORD_BYTES;
            let to = &mut self.encoded[to..to + RECORD_BYTES];
            record.write(to.try_into().expect("the bytes of a record"));
        }
        batch.marks(batch.written, end, &mut self.frame_marks);
        for mark in &self.frame_marks {
            mark.encode(&mut self.encoded);
        }
        let frame = FrameHeader {
            marks: self.frame_marks.len() as u16,
            ..FrameHeader::bare(kind::SAMPLES, records.len() as u32, span)
        };
        frame.finish(&mut self.encoded, at);
        span
    }

    fn declare(&mut self, handles: &[u32]) -> Result<(), ArchiveError> {
        let mut left = handles;
        while !left.is_empty() {
            let first = self.open.as_ref().map_or(0, |open| open.declared);
            self.encoded.clear();
            let at = FrameHeader::begin(&mut self.encoded);
            let mut count = 0;
            for &handle in left {
                let known = self.known(handle);
                let known = known.expect("only streams that are known are declared");
                let declared = &known.stream.declared;
                let declaration = StreamDeclaration {
                    index: first + count,
                    id: known.stream.id,
                    descriptor: Arc::clone(&declared.descriptor),
                    life: declared.life,
                    depth: declared.depth,
                    before: known.archived,
                };
                declaration.encode(&mut self.encoded);
                count += 1;
                if self.encoded.len() >= DECLARATIONS_BYTES {
                    break;
                }
            }
            FrameHeader::bare(kind::DECLARE, count, NO_SPAN).finish(&mut self.encoded, at);
            self.write()?;
            let (done, rest) = left.split_at(count as usize);
            for (index, &handle) in (first..).zip(done) {
                if let Some(Some(known)) = self.streams.get_mut(handle as usize) {
                    known.index = Some(index);
                }
            }
            if let Some(open) = &mut self.open {
                open.declared = first + count;
            }
            left = rest;
        }
        Ok(())
    }

    fn known(&self, handle: u32) -> Option<&Known> {
        self.streams.get(handle as usize)?.as_ref()
    }

    /// Appends the encoded bytes. After a failure the file is as before, or broken.
    fn write(&mut self) -> Result<(), ArchiveError> {
        let open = self.open.as_mut().expect("a segment is open");
        let written = open.file.write_all(&self.encoded);
        if written.is_ok() {
            open.kept.bytes += self.encoded.len() as u64;
        }
        if self.encoded.capacity() > ENCODED_BYTES {
            self.encoded = Vec::new();
        }
        written.map_err(|source| {
            open.broken |= open.file.rewind(open.kept.bytes).is_err();
            ArchiveError::io("write", &open.path)(source)
        })
    }

    fn sync(&mut self) -> Result<(), ArchiveError> {
        let synced = self.sync_file()?;
        self.record(synced);
        Ok(())
    }

    /// Syncs the open segment; returns what is then on disk.
    fn sync_file(&mut self) -> Result<WrittenSegment, ArchiveError> {
        let open = self.open.as_mut().expect("a segment is open");
        match open.file.sync() {
            Ok(()) => Ok(open.kept),
            Err(source) => {
                open.broken = true;
                Err(ArchiveError::io("sync", &open.path)(source))
            }
        }
    }

    /// Records how much of the newest segment is on disk. If this fails, the recorded length is too
    /// short for a while: the next record corrects it.
    fn record(&mut self, kept: WrittenSegment) {
        let newest = kept.newest();
        if self.recorded == Some(newest) {
            return;
        }
        let written = newest.write(&self.layout, &*self.storage);
        self.recorded = written.is_ok().then_some(newest);
        if let Err(error) = written {
            tracing::debug!("{error}");
        }
    }

    /// Leaves the open segment as it was before the batch, and the batch as if nothing of it had
    /// been written.
    fn give_up(&mut self, batch: &mut JournalBatch) {
        let Some(open) = self.open.take() else {
            return;
        };
        self.cut = Some(Cut {
            kept: (open.before.bytes > open.head_bytes).then_some(open.before),
            path: open.path,
        });
        for known in self.streams.iter_mut().flatten() {
            known.index = None;
            if known.moved.0 == self.batch {
                known.archived = known.moved.1;
            }
        }
        self.marks.undo(self.batch);
        batch.written = 0;
        batch.losses_written = false;
    }

    fn forget_indexes(&mut self) {
        for known in self.streams.iter_mut().flatten() {
            known.index = None;
        }
    }
}

impl Known {
    /// Whether the bytes of its values lie after the records.
    fn is_long(&self) -> bool {
        !self.stream.declared.descriptor.value_type.is_number()
    }
}

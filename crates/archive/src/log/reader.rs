//! The reader of a log segment, for any process.
//!
//! The writer may be appending to the file meanwhile: only whole frames whose checksum holds count,
//! and the first other bytes are the end for now. The contents are kept as an index of blocks of
//! frames, so that a later read skips times that are not wanted.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use barograph_model::{Columns, Span, Values};

use super::contents::{BLOCK_BYTES, LogContents, LogSeries};
use super::format::{
    FrameHeader, HEADER_BYTES, HeaderFault, LogHeader, ParsedFrame, RECORD_BYTES, SampleRecord,
    SamplesPayload, TextPlace, VERSION, kind, only_marks,
};
use super::marks::RingMark;
use super::newest::NewestSegment;
use super::scan;
use crate::{ArchiveError, ArchiveLosses, open};

/// Most samples of one series that are passed on at once.
const CHUNK_SAMPLES_MAX: usize = 64 << 10;
/// Bytes of a text, bytes or an array that weigh as much as a sample; a short text adds no weight.
const LONG_BYTES: usize = 128;
/// Most samples, of all series together, that are held before some are passed on.
const HELD_SAMPLES_MAX: usize = 512 << 10;

/// An open log segment.
#[derive(Debug)]
pub struct LogPart {
    path: PathBuf,
    file: File,
    header: LogHeader,
    contents: LogContents,
}

impl LogPart {
    /// Opens a segment and reads its contents. A file without a whole header is `Corrupt`: it may
    /// just be being created.
    pub fn open(path: &Path) -> Result<Self, ArchiveError> {
        let io = |source| ArchiveError::io("read", path)(source);
        let file = open::regular(path)?;
        let mut bytes = [0; HEADER_BYTES];
        let header = match file.read_exact_at(&mut bytes, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(HeaderFault::Corrupt("its header is not whole"))
            }
            result => result.map(|()| LogHeader::parse(&bytes)).map_err(io)?,
        };
        let header = header.map_err(|fault| match fault {
            HeaderFault::Corrupt(reason) => ArchiveError::Corrupt {
                path: path.to_owned(),
                reason: reason.to_owned(),
                at: 0,
            },
            HeaderFault::Newer(found) => ArchiveError::Newer {
                path: path.to_owned(),
                found,
                known: VERSION,
            },
        })?;
        let mut part = Self {
            path: path.to_owned(),
            file,
            header,
            contents: LogContents::new(),
        };
        part.follow()?;
        Ok(part)
    }

    /// Opens the segment whose sequence is in its name; the copy of another one under that name is
    /// `Corrupt`.
    pub(crate) fn of_sequence(path: &Path, sequence: u64) -> Result<Self, ArchiveError> {
        let part = Self::open(path)?;
        if part.sequence() == sequence {
            return Ok(part);
        }
        let reason = "it is another segment than its name says";
        Err(ArchiveError::corrupt(path, reason, 0))
    }

    /// Returns a copy of the segment as it is known now: later frames are not in it.
    pub fn fork(&self) -> Result<Self, ArchiveError> {
        let file = self.file.try_clone();
        Ok(Self {
            path: self.path.clone(),
            file: file.map_err(ArchiveError::io("open", &self.path))?,
            header: self.header.clone(),
            contents: self.contents.clone(),
        })
    }

    /// Whether [`Self::follow`] may find more frames, or fewer.
    pub fn has_news(&self) -> Result<bool, ArchiveError> {
        let (length, end) = (self.length()?, self.contents.end);
        Ok(length != end && !(self.contents.closed && length > end))
    }

    /// Reads the frames that were written since; returns whether there were any. A segment that has
    /// become shorter (its writer cut what it could not sync) is read anew.
    pub fn follow(&mut self) -> Result<bool, ArchiveError> {
        if !self.has_news()? {
            return Ok(false);
        }
        let (length, before) = (self.length()?, self.contents.end);
        if length < before {
            self.contents = LogContents::new();
        }
        self.scan(length)?;
        Ok(self.contents.end != before)
    }

    /// Reads frames up to `length`, and returns the reason why it stopped.
    fn scan(&mut self, length: u64) -> Result<&'static str, ArchiveError> {
        let contents = &mut self.contents;
        let reached = scan::frames(
            &self.file,
            contents.end,
            length,
            |at, frame, payload, bytes| contents.add(at, frame, payload, bytes),
        );
        reached.map_err(ArchiveError::io("read", &self.path))
    }

    /// Returns the present length of the file in bytes.
    pub(crate) fn length(&self) -> Result<u64, ArchiveError> {
        let metadata = self.file.metadata();
        Ok(metadata
            .map_err(ArchiveError::io("look at", &self.path))?
            .len())
    }

    /// Returns why the bytes after the last good frame are not a frame; `None` if there are none.
    pub fn damage(&mut self) -> Result<Option<&'static str>, ArchiveError> {
        let length = self.length()?;
        if length <= self.contents.end {
            return Ok(None);
        }
        let why = self.scan(length)?;
        Ok(Some(why).filter(|_| self.contents.end < length))
    }

    /// Returns the open file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the name of the node, as its agent uses it.
    pub fn node(&self) -> &str {
        &self.header.node
    }

    /// Returns the previous segment, with the length it had when this one was begun; `None` if it
    /// was sealed by then, or if this segment is of an earlier version.
    pub(crate) fn before(&self) -> Option<NewestSegment> {
        Some(self.header.before).filter(|before| before.sequence > 0)
    }

    /// Whether its writer keeps a record of the newest segment.
    pub(crate) fn has_record(&self) -> bool {
        self.header.has_record
    }

    /// Whether a whole frame begins somewhere after the last good one: then the bytes in between
    /// were damaged, and are not a frame that a writer had begun when it was killed.
    pub(crate) fn goes_on_behind(&self) -> Result<bool, ArchiveError> {
        let length = self.length()?;
        let found = scan::any_frame(&self.file, self.contents.end, length);
        found.map_err(ArchiveError::io("read", &self.path))
    }

    /// Returns its sequence among the segments of its node.
    pub fn sequence(&self) -> u64 {
        self.header.sequence
    }

    /// Returns the time at which it was begun, in ns since the epoch.
    pub fn created_ns(&self) -> i64 {
        self.header.created_ns
    }

    /// Whether it was closed in order.
    pub fn is_closed(&self) -> bool {
        self.contents.closed
    }

    /// Returns every stream that it declares. [`Self::follow`] may add more; indexes do not change.
    pub fn series(&self) -> &[LogSeries] {
        &self.contents.series
    }

    /// Returns the times of its samples; `from > to` if there are none.
    pub fn span(&self) -> Span {
        self.contents.span
    }

    /// Returns the number of its samples.
    pub fn rows(&self) -> u64 {
        self.contents.rows
    }

    /// Returns the number of bytes up to the end of the last good frame.
    pub fn bytes(&self) -> u64 {
        self.contents.end
    }

    /// Returns what was lost while it was written.
    pub fn losses(&self) -> &ArchiveLosses {
        &self.contents.losses
    }

    /// Whether any frame has marks.
    pub(crate) fn has_marks(&self) -> bool {
        self.contents.has_marks
    }

    /// Passes the marks of programs' rings to `each`, in their order. The whole file is read once
    /// more: only a writer that starts needs the marks.
    pub fn marks(&self, each: &mut dyn FnMut(RingMark)) -> Result<(), ArchiveError> {
        let (from, to) = (HEADER_BYTES as u64, self.contents.end);
        let scanned = scan::frames(&self.file, from, to, |_, frame, payload, _| {
            let marks = match frame.kind {
                kind::MARKS => only_marks(frame, payload),
                kind::SAMPLES => SamplesPayload::of(frame, payload).map(|samples| samples.marks),
                _ => None,
            };
            let marks = marks.unwrap_or_default().iter();
            marks.for_each(|bytes| each(RingMark::parse(bytes)));
            Ok(())
        });
        let scanned = scanned.map(|_| ());
        scanned.map_err(ArchiveError::io("read", &self.path))
    }

    /// Passes the samples of the wanted series within the span to `each`: by index into
    /// [`Self::series`], the chunks of a series in the order of its numbers. It needs memory for
    /// some hundred thousand samples.
    pub fn read(
        &self,
        wanted: &dyn Fn(&LogSeries) -> bool,
        span: Span,
        cancel: &AtomicBool,
        each: &mut dyn FnMut(usize, Columns) -> Result<(), ArchiveError>,
    ) -> Result<(), ArchiveError> {
        self.read_from(0, u64::MAX, wanted, span, cancel, each)
            .map(|_| ())
    }

    /// Like [`Self::read`], in steps: starts at block `first` and stops after about `bytes_max`
    /// bytes. Returns the block to continue from, if there is one.
    pub fn read_from(
        &self,
        first: usize,
        bytes_max: u64,
        wanted: &dyn Fn(&LogSeries) -> bool,
        span: Span,
        cancel: &AtomicBool,
        each: &mut dyn FnMut(usize, Columns) -> Result<(), ArchiveError>,
    ) -> Result<Option<usize>, ArchiveError> {
        let met = |series: &LogSeries| series.rows > 0 && series.span.meets(&span);
        let series = self.contents.series.iter();
        let mut held = Held::new(series.map(|series| met(series) && wanted(series)));
        if !held.wanted.contains(&true) {
            return Ok(None);
        }
        let mut left_bytes = bytes_max;
        let mut buffer = Vec::new();
        let blocks = self.contents.blocks.iter().enumerate().skip(first);
        for (at, block) in blocks.filter(|(_, block)| block.span.meets(&span)) {
            if left_bytes == 0 {
                held.finish(each)?;
                return Ok(Some(at));
            }
            left_bytes = left_bytes.saturating_sub(block.bytes);
            if cancel.load(Ordering::Relaxed) {
                return Err(ArchiveError::Cancelled);
            }
            buffer.resize(usize::try_from(block.bytes).unwrap_or(usize::MAX), 0);
            match self.file.read_exact_at(&mut buffer, block.at) {
                // The writer cut what it could not sync: these samples are in another segment now.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
                result => result.map_err(ArchiveError::io("read", &self.path))?,
            }
            let mut left = &buffer[..];
            while !left.is_empty() {
                let ParsedFrame::Whole(frame, payload, bytes) = FrameHeader::parse(left) else {
                    return Err(self.changed(block.at + (buffer.len() - left.len()) as u64));
                };
                if frame.kind == kind::SAMPLES && frame.count > 0 && frame.span.meets(&span) {
                    held.add(&self.contents.series, frame, payload, span);
                }
                left = &left[bytes..];
            }
            held.hand_on(each)?;
        }
        held.finish(each)?;
        Ok(None)
    }

    fn changed(&self, at: u64) -> ArchiveError {
        ArchiveError::Corrupt {
            path: self.path.clone(),
            reason: "a frame that was whole is damaged".to_owned(),
            at,
        }
    }
}

/// Samples that are collected for the reader.
struct Held {
    wanted: Vec<bool>,
    columns: Vec<Option<Columns>>,
    /// Weight of each column: its samples, and the bytes of its long values in units of
    /// `LONG_BYTES`.
    weights: Vec<usize>,
    /// Weight of all columns.
    samples: usize,
    /// Bound of the weight of each column.
    longest: usize,
    /// Initial capacity of a column: its share of the samples that are held.
    each: usize,
}

impl Held {
    fn new(wanted: impl Iterator<Item = bool>) -> Self {
        let wanted: Vec<bool> = wanted.collect();
        let count = wanted.iter().filter(|wanted| **wanted).count();
        Self {
            each: (HELD_SAMPLES_MAX / count.max(1)).min(CHUNK_SAMPLES_MAX),
            columns: wanted.iter().map(|_| None).collect(),
            weights: vec![0; wanted.len()],
            wanted,
            samples: 0,
            longest: 0,
        }
    }

    fn add(&mut self, series: &[LogSeries], frame: FrameHeader, payload: &[u8], span: Span) {
        let Some(SamplesPayload { records, texts, .. }) = SamplesPayload::of(frame, payload) else {
            return;
        };
        for bytes in records {
            let record = SampleRecord::read(bytes);
            let stream = record.stream as usize;
            let wanted = self.wanted.get(stream).is_some_and(|wanted| *wanted);
            if !wanted || !span.holds(record.ts) {
                continue;
            }
            let columns = self.columns[stream]
                .get_or_insert_with(|| with_capacity(&series[stream], self.each));
            if push(columns, &record, texts) {
                let weight = 1 + columns.values.bytes(columns.len() - 1) / LONG_BYTES;
                self.samples += weight;
                self.weights[stream] += weight;
                self.longest = self.longest.max(self.weights[stream]);
            }
        }
    }

    /// Passes on long chunks: those that are as long as they may be, and, if much is held in all,
    /// those that are at least half as long as the mean, which together are half of it or more.
    fn hand_on(
        &mut self,
        each: &mut dyn FnMut(usize, Columns) -> Result<(), ArchiveError>,
    ) -> Result<(), ArchiveError> {
        // A block may add this much before the next check; with long values, a few times as much.
        let slack = BLOCK_BYTES as usize / RECORD_BYTES;
        let long = if self.samples > HELD_SAMPLES_MAX - slack {
            let used = self.columns.iter().flatten().count();
            (self.samples / used.max(1) / 2).max(1)
        } else if self.longest > CHUNK_SAMPLES_MAX - slack {
            CHUNK_SAMPLES_MAX - slack
        } else {
            return Ok(());
        };
        self.longest = 0;
        for (stream, slot) in self.columns.iter_mut().enumerate() {
            let weight = self.weights[stream];
            if weight < long {
                self.longest = self.longest.max(weight);
            } else if let Some(columns) = slot.take() {
                self.samples -= weight;
                self.weights[stream] = 0;
                each(stream, columns)?;
            }
        }
        Ok(())
    }

    fn finish(
        self,
        each: &mut dyn FnMut(usize, Columns) -> Result<(), ArchiveError>,
    ) -> Result<(), ArchiveError> {
        for (stream, columns) in self.columns.into_iter().enumerate() {
            if let Some(columns) = columns {
                each(stream, columns)?;
            }
        }
        Ok(())
    }
}

fn with_capacity(series: &LogSeries, samples_max: usize) -> Columns {
    let samples = usize::try_from(series.rows).map_or(samples_max, |rows| rows.min(samples_max));
    let mut columns = Columns::new(series.descriptor.value_type);
    columns.numbers.reserve_exact(samples);
    columns.ts.reserve_exact(samples);
    columns.quality.reserve_exact(samples);
    columns.error.reserve_exact(samples);
    match &mut columns.values {
        Values::Int(values) => values.reserve_exact(samples),
        Values::Float(values) => values.reserve_exact(samples),
        Values::Bool(values) => values.reserve_exact(samples),
        Values::Text(values) => values.reserve_exact(samples),
        // Their capacity is not reserved, since few fit.
        Values::Bytes(_) | Values::Json(_) | Values::Floats(_) => {}
    }
    columns
}

/// Adds a sample to the column; returns false if it breaks the format.
#[inline]
fn push(columns: &mut Columns, record: &SampleRecord, texts: &[u8]) -> bool {
    let Some(quality) = record.quality() else {
        return false;
    };
    match &mut columns.values {
        Values::Int(values) => values.push(record.bits as i64),
        Values::Float(values) => values.push(f64::from_bits(record.bits)),
        Values::Bool(values) => values.push(record.bits != 0),
        Values::Bytes(values) => {
            let Some(bytes) = TextPlace::from_bits(record.bits).of(texts) else {
                return false;
            };
            values.push(Arc::from(bytes));
        }
        Values::Floats(values) => {
            let Some(bytes) = TextPlace::from_bits(record.bits).of(texts) else {
                return false;
            };
            let floats = bytes.as_chunks().0.iter();
            values.push(floats.map(|float| f64::from_le_bytes(*float)).collect());
        }
        Values::Text(values) | Values::Json(values) => {
            let text = TextPlace::from_bits(record.bits).of(texts);
            let Some(text) = text.and_then(|text| std::str::from_utf8(text).ok()) else {
                return false;
            };
            // Texts mostly repeat: equal ones share their memory.
            let text = match values.last() {
                Some(last) if **last == *text => Arc::clone(last),
                _ => Arc::from(text),
            };
            values.push(text);
        }
    }
    columns.numbers.push(record.number());
    columns.ts.push(record.ts);
    columns.quality.push(quality);
    columns.error.push(record.error);
    true
}

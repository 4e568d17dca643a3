//! A log segment as a reader in any process sees it.
//!
//! The writer may be appending to the file meanwhile: only whole frames whose checksum holds count,
//! and the first that is not one is the end, for now. What was understood is kept as an index of
//! blocks of frames, so that reading again passes over times that are not wanted.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use barograph_model::{Columns, Descriptor, SeriesId, Span, TEXT_BYTES_MAX, ValueType, Values};

use super::format::{
    Declaration, Frame, HEADER_BYTES, Header, HeaderFault, NO_SPAN, Parsed, RECORD_BYTES, Record,
    Text, VERSION, kind, samples, union,
};
use super::scan;
use crate::{ArchiveError, Losses};

/// Frames are skipped, and read again, in blocks of about this size.
const BLOCK_BYTES: u64 = 128 << 10;
/// Most samples of one series that are handed on at once.
const CHUNK_SAMPLES_MAX: usize = 64 << 10;
/// Most samples, of all series together, that are held before some are handed on.
const HELD_SAMPLES_MAX: usize = 512 << 10;

/// One series of one life in a log segment.
#[derive(Clone, Debug)]
pub struct LogSeries {
    /// Its identity.
    pub id: SeriesId,
    /// What it is.
    pub descriptor: Arc<Descriptor>,
    /// When it was registered.
    pub life: i64,
    /// Samples that its ring holds.
    pub depth: u32,
    /// Its last number that was archived before this segment; 0 when there was none.
    pub before: u64,
    /// Its last number in this segment, or before.
    pub archived: u64,
    /// Its samples in this segment.
    pub rows: u64,
    /// Their times; `from > to` when there are none.
    pub span: Span,
}

/// An open log segment.
#[derive(Debug)]
pub struct LogPart {
    path: PathBuf,
    file: File,
    header: Header,
    /// Where the last good frame ends.
    end: u64,
    closed: bool,
    series: Vec<LogSeries>,
    blocks: Vec<Block>,
    rows: u64,
    span: Span,
    losses: Losses,
    /// Numbers to go back to when a frame turns out to be bad half way.
    undo: Vec<(u32, u64)>,
}

/// Some frames that follow each other.
#[derive(Clone, Copy, Debug)]
struct Block {
    at: u64,
    bytes: u64,
    /// Times of their samples.
    span: Span,
}

impl LogPart {
    /// Opens a segment and reads what is in it. A file without a whole header is `Corrupt`: it may be
    /// just being made.
    pub fn open(path: &Path) -> Result<Self, ArchiveError> {
        let io = |source| io_error("read", path, source);
        let file = File::open(path).map_err(io)?;
        let mut bytes = [0; HEADER_BYTES];
        let header = match file.read_exact_at(&mut bytes, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(HeaderFault::Corrupt("its header is not whole"))
            }
            result => result.map(|()| Header::parse(&bytes)).map_err(io)?,
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
            end: HEADER_BYTES as u64,
            closed: false,
            series: Vec::new(),
            blocks: Vec::new(),
            rows: 0,
            span: NO_SPAN,
            losses: Losses::default(),
            undo: Vec::new(),
        };
        part.follow()?;
        Ok(part)
    }

    /// The segment as it is known now: what follows later is not in it.
    pub(crate) fn fork(&self) -> Result<Self, ArchiveError> {
        let file = self.file.try_clone();
        Ok(Self {
            path: self.path.clone(),
            file: file.map_err(|source| io_error("open", &self.path, source))?,
            header: self.header.clone(),
            end: self.end,
            closed: self.closed,
            series: self.series.clone(),
            blocks: self.blocks.clone(),
            rows: self.rows,
            span: self.span,
            losses: self.losses.clone(),
            undo: Vec::new(),
        })
    }

    /// Whether [`Self::follow`] may find more, or less.
    pub(crate) fn has_news(&self) -> Result<bool, ArchiveError> {
        let length = self.length()?;
        Ok(length != self.end && !(self.closed && length > self.end))
    }

    /// Picks up what was written since; whether there was anything. A segment that has become shorter
    /// (its writer cut what it could not sync) is read anew.
    pub fn follow(&mut self) -> Result<bool, ArchiveError> {
        let length = self.length()?;
        if length == self.end || (self.closed && length > self.end) {
            return Ok(false);
        }
        if length < self.end {
            self.forget();
        }
        let before = self.end;
        self.scan(length)?;
        Ok(self.end != before || length < before)
    }

    /// Reads frames up to `length`, and says why it stopped.
    fn scan(&mut self, length: u64) -> Result<&'static str, ArchiveError> {
        let file = self.file.try_clone();
        let io = |source| io_error("read", &self.path, source);
        let file = file.map_err(io)?;
        let from = self.end;
        let reached = scan::frames(&file, from, length, |at, frame, payload, bytes| {
            self.take(frame, payload)?;
            self.index(at, bytes as u64, frame);
            self.end = at + bytes as u64;
            Ok(())
        });
        let reached = reached.map_err(|source| io_error("read", &self.path, source))?;
        Ok(reached.why)
    }

    /// The file's length now.
    pub(crate) fn length(&self) -> Result<u64, ArchiveError> {
        let metadata = self.file.metadata();
        Ok(metadata
            .map_err(|e| io_error("look at", &self.path, e))?
            .len())
    }

    /// Why the bytes behind the end are no frame; `None` when there are none.
    pub fn damage(&mut self) -> Result<Option<&'static str>, ArchiveError> {
        let length = self.length()?;
        if length <= self.end {
            return Ok(None);
        }
        self.scan(length).map(Some)
    }

    fn forget(&mut self) {
        self.end = HEADER_BYTES as u64;
        self.closed = false;
        self.series.clear();
        self.blocks.clear();
        self.rows = 0;
        self.span = NO_SPAN;
        self.losses = Losses::default();
    }

    fn take(&mut self, frame: Frame, payload: &[u8]) -> Result<(), &'static str> {
        if self.closed {
            return Err("there are frames behind the last one");
        }
        match frame.kind {
            kind::DECLARE => self.take_declarations(frame, payload),
            kind::SAMPLES => self.take_samples(frame, payload),
            kind::LOSSES => {
                self.losses.add(&Losses::parse(payload));
                Ok(())
            }
            kind::END => {
                self.closed = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn take_declarations(&mut self, frame: Frame, payload: &[u8]) -> Result<(), &'static str> {
        let known = self.series.len();
        let mut left = payload;
        for _ in 0..frame.count {
            let parsed = Declaration::parse(left);
            let right = |d: &Declaration| d.index as usize == self.series.len();
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
                span: NO_SPAN,
            });
            left = rest;
        }
        Ok(())
    }

    /// Checks all samples of a frame, then counts them: a frame counts as a whole or not at all.
    fn take_samples(&mut self, frame: Frame, payload: &[u8]) -> Result<(), &'static str> {
        let (records, texts) =
            samples(frame.count, payload).ok_or("a frame has not the samples that it says")?;
        self.undo.clear();
        for bytes in records {
            let record = Record::read(bytes);
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
            let record = Record::read(bytes);
            let series = &mut self.series[record.stream as usize];
            series.rows += 1;
            series.span.from = series.span.from.min(record.ts);
            series.span.to = series.span.to.max(record.ts);
        }
        self.rows += u64::from(frame.count);
        if frame.count > 0 {
            self.span = union(self.span, frame.span);
        }
        Ok(())
    }

    fn index(&mut self, at: u64, bytes: u64, frame: Frame) {
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

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The node whose streams these are, as its agent calls it.
    pub fn node(&self) -> &str {
        &self.header.node
    }

    /// Its number among the segments of its node.
    pub fn sequence(&self) -> u64 {
        self.header.sequence
    }

    /// When it was begun.
    pub fn created_ns(&self) -> i64 {
        self.header.created_ns
    }

    /// Whether it was closed in order.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Every stream that it declares. More may come with [`Self::follow`]; indexes stay.
    pub fn series(&self) -> &[LogSeries] {
        &self.series
    }

    /// The times of its samples; `from > to` when there are none.
    pub fn span(&self) -> Span {
        self.span
    }

    /// Samples in it.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes up to the end of the last good frame.
    pub fn bytes(&self) -> u64 {
        self.end
    }

    /// What was lost while it was written.
    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    /// Hands the samples of the wanted series within the span to `each`: by index into
    /// [`Self::series`], the chunks of a series in the order of its numbers. Memory is that of some
    /// hundred thousand samples.
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

    /// The same in steps: from this block on, until about so many bytes are read. The block to go on from, if
    /// there is one.
    pub(crate) fn read_from(
        &self,
        first: usize,
        bytes_max: u64,
        wanted: &dyn Fn(&LogSeries) -> bool,
        span: Span,
        cancel: &AtomicBool,
        each: &mut dyn FnMut(usize, Columns) -> Result<(), ArchiveError>,
    ) -> Result<Option<usize>, ArchiveError> {
        let met = |series: &LogSeries| series.rows > 0 && series.span.meets(&span);
        let mut held = Held::new(
            self.series
                .iter()
                .map(|series| met(series) && wanted(series)),
        );
        if !held.wanted.contains(&true) {
            return Ok(None);
        }
        let mut left_bytes = bytes_max;
        let mut buffer = Vec::new();
        let blocks = self.blocks.iter().enumerate().skip(first);
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
                // The writer has cut what it could not sync: that is in another segment now.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
                result => result.map_err(|source| io_error("read", &self.path, source))?,
            }
            let mut left = &buffer[..];
            while !left.is_empty() {
                let Parsed::Whole(frame, payload, bytes) = Frame::parse(left) else {
                    return Err(self.changed(block.at + (buffer.len() - left.len()) as u64));
                };
                if frame.kind == kind::SAMPLES && frame.count > 0 && frame.span.meets(&span) {
                    held.add(&self.series, frame, payload, span);
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

/// Whether a record is a sample of this type.
#[inline]
fn keeps_to(record: &Record, value_type: ValueType, texts: &[u8]) -> bool {
    let value = match value_type {
        ValueType::Int | ValueType::Float => true,
        ValueType::Bool => record.bits <= 1,
        ValueType::Text => Text::from_bits(record.bits)
            .of(texts)
            .is_some_and(|text| text.len() <= TEXT_BYTES_MAX && std::str::from_utf8(text).is_ok()),
    };
    value && record.quality().is_some()
}

/// Samples on their way to the reader.
struct Held {
    wanted: Vec<bool>,
    columns: Vec<Option<Columns>>,
    samples: usize,
    /// The longest column is not longer than this.
    longest: usize,
}

impl Held {
    fn new(wanted: impl Iterator<Item = bool>) -> Self {
        let wanted: Vec<bool> = wanted.collect();
        Self {
            columns: wanted.iter().map(|_| None).collect(),
            wanted,
            samples: 0,
            longest: 0,
        }
    }

    fn add(&mut self, series: &[LogSeries], frame: Frame, payload: &[u8], span: Span) {
        let Some((records, texts)) = samples(frame.count, payload) else {
            return;
        };
        for bytes in records {
            let record = Record::read(bytes);
            let stream = record.stream as usize;
            let wanted = self.wanted.get(stream).is_some_and(|wanted| *wanted);
            if !wanted || !span.holds(record.ts) {
                continue;
            }
            let columns = self.columns[stream]
                .get_or_insert_with(|| Columns::new(series[stream].descriptor.value_type));
            if push(columns, &record, texts) {
                self.samples += 1;
                self.longest = self.longest.max(columns.ts.len());
            }
        }
    }

    /// Hands on what is long: chunks that are as long as they may be, and, when much is held in all,
    /// those that are at least half as long as the mean, which is half of it or more.
    fn hand_on(
        &mut self,
        each: &mut dyn FnMut(usize, Columns) -> Result<(), ArchiveError>,
    ) -> Result<(), ArchiveError> {
        // A block may add this much before the next look.
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
            let length = slot.as_ref().map_or(0, Columns::len);
            if length < long {
                self.longest = self.longest.max(length);
            } else if let Some(columns) = slot.take() {
                self.samples -= length;
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

/// Adds a sample to the column; false when it does not keep to the format.
#[inline]
fn push(columns: &mut Columns, record: &Record, texts: &[u8]) -> bool {
    let Some(quality) = record.quality() else {
        return false;
    };
    match &mut columns.values {
        Values::Int(values) => values.push(record.bits as i64),
        Values::Float(values) => values.push(f64::from_bits(record.bits)),
        Values::Bool(values) => values.push(record.bits != 0),
        Values::Text(values) => {
            let text = Text::from_bits(record.bits).of(texts);
            let Some(text) = text.and_then(|text| std::str::from_utf8(text).ok()) else {
                return false;
            };
            // Texts are mostly said again and again: they share their memory.
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

fn io_error(what: &'static str, path: &Path, source: io::Error) -> ArchiveError {
    ArchiveError::Io {
        what,
        path: path.to_owned(),
        source,
    }
}

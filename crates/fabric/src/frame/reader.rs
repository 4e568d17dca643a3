//! The reader of frames.

use std::sync::Arc;

use barograph_stream::bytes::ByteReader;
use barograph_stream::{SCOPES_MAX, is_scope};

use super::fault::{FrameFault, malformed};
use super::header::{FrameHeader, FrameKind};
use super::{Announcement, Batch, batch};

/// The kinds of sections that a frame of samples has. Readers skip the others: later writers may
/// add some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum SectionKind {
    Announcements = 1,
    Retirements = 2,
    Batches = 3,
    Complete = 4,
    Intervals = 5,
    Scopes = 6,
}

/// A part of a frame's content, in the order in which it was written.
#[derive(Debug, PartialEq)]
pub enum Section {
    /// A stream and its reference.
    Announced(Announcement),
    /// The reference of a stream that has ended.
    Retired(u32),
    /// The sign that every stream of the time at which the feed began has been announced.
    Complete,
    /// The reference of a stream, and the interval in which it is looked at from now on, in ns.
    Interval(u32, i64),
    /// The names of all scopes of applications that the owner publishes beside its own streams.
    Scopes(Vec<Arc<str>>),
    /// Samples of one stream: they are in the batch that was given to [`FrameReader::next`].
    Batch,
}

/// The content of a frame, read piece by piece. Whoever uses pieces before the end of a frame must
/// be ready for a fault after them.
#[derive(Debug)]
pub struct FrameReader<'a> {
    header: FrameHeader,
    base_ns: i64,
    /// Bytes after the open section.
    rest: ByteReader<'a>,
    kind: u8,
    section: ByteReader<'a>,
}

impl<'a> FrameReader<'a> {
    /// Checks the header and the checksum of a frame of samples.
    pub fn open(frame: &'a [u8]) -> Result<Self, FrameFault> {
        let (header, body) = FrameHeader::read(frame)?;
        if header.kind != FrameKind::Samples {
            let kind = header.kind as u8;
            return Err(FrameFault::Kind { kind });
        }
        let mut rest = ByteReader::new(body);
        let base = rest.take(size_of::<i64>());
        let base = base.and_then(|bytes| bytes.try_into().ok());
        Ok(Self {
            header,
            base_ns: i64::from_le_bytes(base.ok_or_else(|| malformed("time"))?),
            rest,
            kind: 0,
            section: ByteReader::new(&[]),
        })
    }

    /// The header.
    pub fn header(&self) -> &FrameHeader {
        &self.header
    }

    /// Reads the next piece; `None` at the end of the frame. Samples are put into `batch`.
    pub fn next(&mut self, batch: &mut Batch) -> Result<Option<Section>, FrameFault> {
        loop {
            while self.section.is_empty() {
                if self.rest.is_empty() {
                    return Ok(None);
                }
                self.open_section().ok_or_else(|| malformed("sections"))?;
            }
            let section = &mut self.section;
            return Ok(Some(match self.kind {
                k if k == SectionKind::Announcements as u8 => {
                    Section::Announced(Announcement::read(section)?)
                }
                k if k == SectionKind::Retirements as u8 => {
                    let reference = section.u64().and_then(|v| u32::try_from(v).ok());
                    Section::Retired(reference.ok_or_else(|| malformed("retirements"))?)
                }
                k if k == SectionKind::Intervals as u8 => {
                    let reference = section.u64().and_then(|v| u32::try_from(v).ok());
                    let interval = reference.zip(section.i64());
                    let (reference, ns) = interval.ok_or_else(|| malformed("intervals"))?;
                    Section::Interval(reference, ns)
                }
                k if k == SectionKind::Batches as u8 => {
                    batch::read(section, self.base_ns, batch)?;
                    Section::Batch
                }
                k if k == SectionKind::Scopes as u8 => {
                    Section::Scopes(scopes(section).ok_or_else(|| malformed("scopes"))?)
                }
                k if k == SectionKind::Complete as u8 => {
                    self.section = ByteReader::new(&[]);
                    Section::Complete
                }
                _ => {
                    self.section = ByteReader::new(&[]);
                    continue;
                }
            }));
        }
    }

    fn open_section(&mut self) -> Option<()> {
        self.kind = self.rest.u8()?;
        let bytes = self.rest.u32()? as usize;
        self.section = ByteReader::new(self.rest.take(bytes)?);
        Some(())
    }
}

/// Reads the names of scopes.
fn scopes(cut: &mut ByteReader<'_>) -> Option<Vec<Arc<str>>> {
    let count = cut.count(1).filter(|count| *count <= SCOPES_MAX)?;
    let name = |cut: &mut ByteReader<'_>| cut.text().filter(|name| is_scope(name)).map(Arc::from);
    (0..count).map(|_| name(cut)).collect()
}

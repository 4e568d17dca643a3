//! The bytes of a log segment: header, frames, declarations, records.
//!
//! All parsed bytes were written by another process or by a disk that failed: lengths are checked
//! before use, and bytes that break the format are refused, never guessed.

use std::sync::Arc;

use barograph_model::{
    Descriptor, HELP_BYTES_MAX, Kind, Labels, Name, Quality, SeriesId, Span, Unit, ValueType,
};

use super::marks::MARK_BYTES;
use super::newest::NewestSegment;

/// The first bytes of every log segment.
pub(crate) const MAGIC: [u8; 8] = *b"BAROLOG\0";
/// The version that is written, and the newest that is read. Segments of version 1 have texts of at
/// most 126 bytes, and no bytes, JSON or arrays.
pub(crate) const VERSION: u32 = 2;
/// The minor version, whose additions a reader may ignore: 1 has marks, 2 names the previous
/// segment.
const VERSION_MINOR: u32 = 2;
/// First minor version with a record of the newest segment ([`super::newest::NewestSegment`]).
const MINOR_WITH_RECORD: u32 = 2;
/// Size of the file's header in bytes.
pub(crate) const HEADER_BYTES: usize = 128;
/// Size of a frame's header in bytes.
pub(crate) const FRAME_BYTES: usize = 32;
/// Size of one sample in bytes.
pub(crate) const RECORD_BYTES: usize = 32;
/// Most samples, and most marks, of one frame: few enough that a reader can skip finely, many
/// enough that the header costs almost nothing.
pub(crate) const FRAME_RECORDS_MAX: usize = 2_048;
/// Longest payload in bytes: the greatest number of short texts fits, or some of the longest
/// values, and a mark for each of them.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 512 << 10;
/// Most bytes of the samples of a payload: the rest is for marks.
pub(crate) const SAMPLES_BYTES_MAX: usize = PAYLOAD_BYTES_MAX - FRAME_RECORDS_MAX * MARK_BYTES;
/// The highest number of a sample in its life, as in the shared-memory segment.
pub(crate) const NUMBER_MAX: u64 = (1 << 48) - 1;

const BEFORE_AT: usize = 32;
const NODE_AT: usize = 41;
const NODE_BYTES_MAX: usize = 63;
const MINOR_AT: usize = 104;
const BEFORE_BYTES_AT: usize = 112;
const HEADER_CRC_AT: usize = HEADER_BYTES - 4;
const DECLARE_BYTES: usize = 48;
const QUALITY_SHIFT: u32 = 48;

/// The empty span: its union with another span is the other one.
pub(crate) const NO_SPAN: Span = Span {
    from: i64::MAX,
    to: i64::MIN,
};

/// Whether a span holds no instant.
pub(crate) fn is_empty(span: Span) -> bool {
    span.from > span.to
}

/// Returns the smallest span that holds both.
pub(crate) fn union(a: Span, b: Span) -> Span {
    Span {
        from: a.from.min(b.from),
        to: a.to.max(b.to),
    }
}

/// The header of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogHeader {
    pub sequence: u64,
    pub created_ns: i64,
    pub node: String,
    /// The previous segment, if it was not sealed when this one was begun; sequence 0: none, or not
    /// known.
    pub before: NewestSegment,
    /// Whether the writer keeps a record of the newest segment beside it.
    pub has_record: bool,
}

/// The reason why the first bytes of a file are not a header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    /// The file is not a log segment, or is damaged.
    Corrupt(&'static str),
    /// The file is of this later version.
    Newer(u32),
}

impl LogHeader {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&(HEADER_BYTES as u32).to_le_bytes());
        bytes[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.created_ns.to_le_bytes());
        bytes[BEFORE_AT..BEFORE_AT + 8].copy_from_slice(&self.before.sequence.to_le_bytes());
        let node = cut_node(&self.node);
        bytes[NODE_AT - 1] = node.len() as u8;
        bytes[NODE_AT..NODE_AT + node.len()].copy_from_slice(node.as_bytes());
        bytes[MINOR_AT..MINOR_AT + 4].copy_from_slice(&VERSION_MINOR.to_le_bytes());
        let before_bytes = self.before.bytes.to_le_bytes();
        bytes[BEFORE_BYTES_AT..BEFORE_BYTES_AT + 8].copy_from_slice(&before_bytes);
        let crc = crc32fast::hash(&bytes[..HEADER_CRC_AT]);
        bytes[HEADER_CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(super) fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, HeaderFault> {
        if bytes[..8] != MAGIC {
            return Err(HeaderFault::Corrupt("it is not a log segment"));
        }
        // The checksum comes first: it is the same in all versions, so that a damaged version
        // number is not taken for a later version.
        if crc32fast::hash(&bytes[..HEADER_CRC_AT]) != u32_at(bytes, HEADER_CRC_AT) {
            return Err(HeaderFault::Corrupt("its header's checksum does not hold"));
        }
        let version = u32_at(bytes, 8);
        if version > VERSION {
            return Err(HeaderFault::Newer(version));
        }
        let node_bytes = usize::from(bytes[NODE_AT - 1]).min(NODE_BYTES_MAX);
        let node = bytes[NODE_AT..MINOR_AT].get(..node_bytes);
        let node = node.and_then(|node| std::str::from_utf8(node).ok());
        if version == 0 || u32_at(bytes, 12) as usize != HEADER_BYTES {
            return Err(HeaderFault::Corrupt("its header has another length"));
        }
        Ok(Self {
            sequence: u64_at(bytes, 16),
            created_ns: u64_at(bytes, 24) as i64,
            node: node.unwrap_or_default().to_owned(),
            before: NewestSegment {
                sequence: u64_at(bytes, BEFORE_AT),
                bytes: u64_at(bytes, BEFORE_BYTES_AT),
            },
            has_record: u32_at(bytes, MINOR_AT) >= MINOR_WITH_RECORD,
        })
    }
}

/// Kinds of frames. Readers skip kinds that they do not know.
pub(crate) mod kind {
    /// Declarations of streams: index, identity, life, last number so far.
    pub(crate) const DECLARE: u8 = 1;
    /// Samples, their texts, and marks.
    pub(crate) const SAMPLES: u8 = 2;
    /// Losses since the previous frame of this kind.
    pub(crate) const LOSSES: u8 = 3;
    /// The end: the segment was closed in order and nothing follows.
    pub(crate) const END: u8 = 4;
    /// Marks of rings, repeated from earlier segments.
    pub(crate) const MARKS: u8 = 5;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub kind: u8,
    /// Number of marks at the end of a payload of samples.
    pub marks: u16,
    /// Number of samples or declarations; in a frame of marks alone, of marks.
    pub count: u32,
    /// Times of the samples; [`NO_SPAN`] for other kinds.
    pub span: Span,
}

/// The result of parsing the bytes at some offset of a segment.
#[derive(Debug, PartialEq)]
pub(crate) enum ParsedFrame<'a> {
    /// A whole frame whose checksum holds: its header, its payload, its size in bytes.
    Whole(FrameHeader, &'a [u8], usize),
    /// The beginning of a frame of at least this many bytes.
    Short(usize),
    /// The bytes are not a frame, for this reason.
    Bad(&'static str),
}

impl FrameHeader {
    /// The header of a frame without marks.
    pub(super) fn bare(kind: u8, count: u32, span: Span) -> Self {
        Self {
            kind,
            marks: 0,
            count,
            span,
        }
    }

    /// Begins a frame at the end of `out` and returns its offset; append the payload, then call
    /// [`Self::finish`].
    pub(super) fn begin(out: &mut Vec<u8>) -> usize {
        let at = out.len();
        out.resize(at + FRAME_BYTES, 0);
        at
    }

    /// Completes the frame that was begun at `at`.
    pub(super) fn finish(self, out: &mut Vec<u8>, at: usize) {
        let length = out.len() - at - FRAME_BYTES;
        pad(out);
        let header = &mut out[at..at + FRAME_BYTES];
        header[4..8].copy_from_slice(&(length as u32).to_le_bytes());
        header[8] = self.kind;
        header[10..12].copy_from_slice(&self.marks.to_le_bytes());
        header[12..16].copy_from_slice(&self.count.to_le_bytes());
        header[16..24].copy_from_slice(&self.span.from.to_le_bytes());
        header[24..32].copy_from_slice(&self.span.to.to_le_bytes());
        let crc = crc32fast::hash(&out[at + 4..]);
        out[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Parses the frame at the beginning of `bytes`.
    pub(super) fn parse(bytes: &[u8]) -> ParsedFrame<'_> {
        if bytes.len() < FRAME_BYTES {
            return ParsedFrame::Short(FRAME_BYTES);
        }
        let length = u32_at(bytes, 4) as usize;
        if length > PAYLOAD_BYTES_MAX {
            return ParsedFrame::Bad("a frame is longer than frames are");
        }
        let total = FRAME_BYTES + length.next_multiple_of(8);
        let Some(whole) = bytes.get(..total) else {
            return ParsedFrame::Short(total);
        };
        if crc32fast::hash(&whole[4..]) != u32_at(whole, 0) {
            return ParsedFrame::Bad("a frame's checksum does not hold");
        }
        let frame = Self {
            kind: whole[8],
            marks: u16::from_le_bytes([whole[10], whole[11]]),
            count: u32_at(whole, 12),
            span: Span {
                from: u64_at(whole, 16) as i64,
                to: u64_at(whole, 24) as i64,
            },
        };
        ParsedFrame::Whole(frame, &whole[FRAME_BYTES..FRAME_BYTES + length], total)
    }
}

/// One sample. In the file it is these fields in this order, little-endian.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SampleRecord {
    /// The stream: in memory the writer's handle, in a file the index of its declaration.
    pub stream: u32,
    pub error: f32,
    pub ts: i64,
    /// The value: an integer, the bits of a float, 0 or 1, or the place of its bytes (see
    /// [`TextPlace`]).
    pub bits: u64,
    /// Number in the life, and the quality in the bits above it.
    pub meta: u64,
}

impl SampleRecord {
    pub(crate) fn new(stream: u32, number: u64, quality: Quality) -> Self {
        Self {
            stream,
            error: 0.0,
            ts: 0,
            bits: 0,
            meta: number | (quality as u64) << QUALITY_SHIFT,
        }
    }

    pub(crate) fn number(&self) -> u64 {
        self.meta & NUMBER_MAX
    }

    pub(crate) fn quality(&self) -> Option<Quality> {
        u8::try_from(self.meta >> QUALITY_SHIFT)
            .ok()
            .and_then(Quality::from_u8)
    }

    #[inline]
    pub(crate) fn write(&self, to: &mut [u8; RECORD_BYTES]) {
        to[..4].copy_from_slice(&self.stream.to_le_bytes());
        to[4..8].copy_from_slice(&self.error.to_le_bytes());
        to[8..16].copy_from_slice(&self.ts.to_le_bytes());
        to[16..24].copy_from_slice(&self.bits.to_le_bytes());
        to[24..].copy_from_slice(&self.meta.to_le_bytes());
    }

    #[inline]
    pub(crate) fn read(from: &[u8; RECORD_BYTES]) -> Self {
        Self {
            stream: u32_at(from, 0),
            error: f32::from_bits(u32_at(from, 4)),
            ts: u64_at(from, 8) as i64,
            bits: u64_at(from, 16),
            meta: u64_at(from, 24),
        }
    }
}

/// The parts of a frame of samples: records, their texts, and marks.
pub(crate) struct SamplesPayload<'a> {
    pub records: &'a [[u8; RECORD_BYTES]],
    pub texts: &'a [u8],
    pub marks: &'a [[u8; MARK_BYTES]],
}

impl<'a> SamplesPayload<'a> {
    pub(super) fn of(frame: FrameHeader, payload: &'a [u8]) -> Option<Self> {
        let count = usize::try_from(frame.count).ok()?;
        (count <= FRAME_RECORDS_MAX).then_some(())?;
        let (records, rest) = payload.split_at_checked(count * RECORD_BYTES)?;
        let marks_bytes = usize::from(frame.marks) * MARK_BYTES;
        let (texts, marks) = rest.split_at_checked(rest.len().checked_sub(marks_bytes)?)?;
        Some(Self {
            records: records.as_chunks().0,
            texts,
            marks: marks.as_chunks().0,
        })
    }
}

/// Returns the marks of a frame of marks alone.
pub(crate) fn only_marks(frame: FrameHeader, payload: &[u8]) -> Option<&[[u8; MARK_BYTES]]> {
    let count = usize::try_from(frame.count).ok()?;
    (count <= FRAME_RECORDS_MAX).then_some(())?;
    Some(payload.get(..count * MARK_BYTES)?.as_chunks().0)
}

/// The place of a text, JSON, bytes or an array: the offset after the records of its frame, and
/// above it the length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextPlace {
    pub at: u32,
    pub length: u32,
}

impl TextPlace {
    pub(super) fn bits(self) -> u64 {
        u64::from(self.at) | u64::from(self.length) << 32
    }

    pub(super) fn from_bits(bits: u64) -> Self {
        Self {
            at: bits as u32,
            length: (bits >> 32) as u32,
        }
    }

    /// Returns the bytes; `None` if they reach beyond `texts`.
    pub(super) fn of(self, texts: &[u8]) -> Option<&[u8]> {
        texts
            .get(self.at as usize..)?
            .get(..usize::try_from(self.length).ok()?)
    }
}

/// The declaration of a stream in a segment.
#[derive(Clone, Debug)]
pub(crate) struct StreamDeclaration {
    /// The index by which records of this segment name the stream: from 0, in order of declaration.
    pub index: u32,
    pub id: SeriesId,
    pub descriptor: Arc<Descriptor>,
    pub life: i64,
    pub depth: u32,
    /// Number of the last sample of this life that was archived before this segment.
    pub before: u64,
}

impl StreamDeclaration {
    /// Appends the declaration to the payload of a frame.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let of = &self.descriptor;
        let help = cut(&of.help, HELP_BYTES_MAX);
        let labels: usize = of.labels.iter().map(|(n, v)| n.len() + v.len() + 2).sum();
        out.extend_from_slice(&self.index.to_le_bytes());
        out.extend_from_slice(&self.depth.to_le_bytes());
        out.extend_from_slice(&self.id.0);
        out.extend_from_slice(&self.life.to_le_bytes());
        out.extend_from_slice(&self.before.to_le_bytes());
        let lengths = [of.name.as_str().len(), of.unit.as_str().len()].map(|n| n as u8);
        out.extend_from_slice(&[of.value_type as u8, of.kind as u8, lengths[0], lengths[1]]);
        out.extend_from_slice(&(labels as u16).to_le_bytes());
        out.extend_from_slice(&[help.len() as u8, 0]);
        out.extend_from_slice(of.name.as_str().as_bytes());
        out.extend_from_slice(of.unit.as_str().as_bytes());
        for (name, value) in of.labels.iter() {
            out.extend_from_slice(&[name.len() as u8, value.len() as u8]);
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(value.as_bytes());
        }
        out.extend_from_slice(help.as_bytes());
        pad(out);
    }

    /// Parses the declaration at the beginning of `bytes`; returns it and the bytes that follow.
    pub(super) fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (fixed, rest) = bytes.split_at_checked(DECLARE_BYTES)?;
        let mut left = rest;
        let mut text = |length: usize| {
            let (text, rest) = left.split_at_checked(length)?;
            left = rest;
            Some(text)
        };
        let name = std::str::from_utf8(text(usize::from(fixed[42]))?).ok()?;
        let unit = std::str::from_utf8(text(usize::from(fixed[43]))?).ok()?;
        let labels = text(usize::from(u16::from_le_bytes([fixed[44], fixed[45]])))?;
        let help = std::str::from_utf8(text(usize::from(fixed[46]))?).ok()?;
        let padding = (rest.len() - left.len()).next_multiple_of(8) - (rest.len() - left.len());
        let left = left.get(padding..)?;
        let descriptor = Descriptor {
            name: Name::new(name).ok()?,
            labels: parse_labels(labels)?,
            value_type: ValueType::from_u8(fixed[40])?,
            unit: Unit::new(unit).ok()?,
            kind: Kind::from_u8(fixed[41])?,
            help: help.to_owned(),
        };
        let id = SeriesId(fixed[8..24].try_into().ok()?);
        (id == descriptor.series_id()).then_some(())?;
        let declaration = Self {
            index: u32_at(fixed, 0),
            depth: u32_at(fixed, 4),
            id,
            descriptor: Arc::new(descriptor),
            life: u64_at(fixed, 24) as i64,
            before: u64_at(fixed, 32),
        };
        Some((declaration, left))
    }
}

fn parse_labels(mut bytes: &[u8]) -> Option<Labels> {
    let mut pairs = Vec::new();
    while let [name, value, rest @ ..] = bytes {
        let (name, rest) = rest.split_at_checked(usize::from(*name))?;
        let (value, rest) = rest.split_at_checked(usize::from(*value))?;
        pairs.push((
            std::str::from_utf8(name).ok()?,
            std::str::from_utf8(value).ok()?,
        ));
        bytes = rest;
    }
    bytes.is_empty().then_some(())?;
    Labels::new(pairs).ok()
}

fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(8), 0);
}

/// Returns the name of a node as it is cut for headers.
pub(crate) fn cut_node(node: &str) -> &str {
    cut(node, NODE_BYTES_MAX)
}

/// Returns at most `bytes_max` bytes of a text, cut at a character.
pub(crate) fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

#[inline]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

#[inline]
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

//! The agent's side of an ingest file: reading what a stranger writes, without mapping it.
//!
//! Nothing in the file is trusted: sizes are checked against bounds of ours before they are used, records
//! are copied before they are looked at, and what may have been written over during the copy is not used
//! but counted. A file that is cut short gives short reads.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::layout::{
    BLOB_BYTES_MAX, BYTE_ORDER, DECLARATIONS_BYTES, HEAD_BYTES, HEADER_BYTES, INGEST_VERSION_MAJOR,
    MAGIC, PIECE_BYTES, RECORD_BYTES, RING_RECORDS_MAX, RING_RECORDS_MIN, RINGS_MAX, SERIES_MAX,
    file_bytes, head, header, kind, state,
};
use super::producer::start_ticks;
use super::{Declaration, Pair, TimeSource};
use crate::{Incarnation, StreamError};

/// Records that one read takes at most: 384 KiB.
const BATCH_RECORDS: u64 = 1 << 14;

/// One value or frame as a stranger wrote it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record<'a> {
    /// Which ring it came from.
    pub ring: u32,
    /// The index of the value; of the publication for a frame.
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
}

/// What came of a look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Records handed on.
    pub records: u64,
    /// Slots of records that were written over before they could be read: at least as many values.
    pub missed: u64,
    /// Records that make no sense: of unknown kind, or torn.
    pub damaged: u64,
    /// There is more now.
    pub has_more: bool,
}

/// What the agent knows of a ring.
#[derive(Clone, Copy, Debug, Default)]
struct Ring {
    /// Records before this were handed on or given up.
    position: u64,
    /// As last read.
    committed: u64,
    dropped: u64,
    pair: Pair,
}

/// An ingest file that somebody writes.
#[derive(Debug)]
pub struct IngestFile {
    file: File,
    path: PathBuf,
    incarnation: Incarnation,
    owner: (u32, u32),
    pid: u32,
    start_ticks: u64,
    created_ns: i64,
    time_source: TimeSource,
    heads_at: usize,
    declarations_at: usize,
    rings_at: usize,
    rings_max: u32,
    ring_records: u64,
    declared: usize,
    homeless: u64,
    is_closed: bool,
    rings: Vec<Ring>,
    heads: Vec<u8>,
    batch: Vec<u8>,
    blob: Vec<u8>,
}

impl IngestFile {
    /// Opens a file and checks its header. Not through a link, and nothing but a file.
    pub fn open(path: &Path) -> Result<Self, StreamError> {
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(flags.bits() as i32)
            .open(path);
        let io = |what| {
            let path = path.to_owned();
            move |source| StreamError::Io { what, path, source }
        };
        let file = opened.map_err(io("open"))?;
        let metadata = file.metadata().map_err(io("look at"))?;
        let corrupt = |reason: &str| StreamError::Corrupt {
            path: path.to_owned(),
            reason: reason.to_owned(),
        };
        if !metadata.is_file() {
            return Err(corrupt("it is no regular file"));
        }
        let mut bytes = vec![0; HEADER_BYTES];
        file.read_exact_at(&mut bytes, 0).map_err(io("read"))?;
        let head = Header(&bytes);
        if bytes[..8] != MAGIC {
            return Err(corrupt("it does not begin as one"));
        }
        let (major, minor) = head.halves(header::VERSION);
        if major != INGEST_VERSION_MAJOR {
            let path = path.to_owned();
            return Err(StreamError::Version { path, major, minor });
        }
        if head.halves(header::ORDER) != (BYTE_ORDER, HEADER_BYTES as u32) {
            return Err(corrupt("its byte order or header is another"));
        }
        let rings_max = u32::try_from(head.word(header::RINGS_MAX)).unwrap_or(0);
        let ring_records = head.word(header::RING_RECORDS);
        let sizes_ok = (1..=RINGS_MAX).contains(&rings_max)
            && (RING_RECORDS_MIN..=RING_RECORDS_MAX).contains(&ring_records)
            && ring_records.is_power_of_two();
        if !sizes_ok {
            return Err(corrupt("its rings are of an impossible number or size"));
        }
        let bytes_all = file_bytes(rings_max, ring_records) as u64;
        let places = [
            (header::FILE_BYTES, bytes_all),
            (header::HEADS_AT, HEADER_BYTES as u64),
            (
                header::DECLARATIONS_AT,
                super::layout::declarations_at(rings_max) as u64,
            ),
            (header::DECLARATIONS_BYTES, DECLARATIONS_BYTES as u64),
            (header::RINGS_AT, super::layout::rings_at(rings_max) as u64),
        ];
        // The places follow from the numbers: of this version there is one layout.
        if places.iter().any(|&(at, expect)| head.word(at) != expect) {
            return Err(corrupt("its parts are not where they belong"));
        }
        let time_source = TimeSource::from_u64(head.word(header::TIME_SOURCE))
            .ok_or_else(|| corrupt("its clock is none that is known"))?;
        let incarnation = bytes[header::INCARNATION..header::INCARNATION + 16].try_into();
        Ok(Self {
            path: path.to_owned(),
            incarnation: Incarnation(incarnation.expect("sixteen bytes")),
            owner: (metadata.uid(), metadata.gid()),
            pid: u32::try_from(head.word(header::PID)).unwrap_or(0),
            start_ticks: head.word(header::START_TICKS),
            created_ns: head.word(header::CREATED) as i64,
            time_source,
            heads_at: HEADER_BYTES,
            declarations_at: super::layout::declarations_at(rings_max),
            rings_at: super::layout::rings_at(rings_max),
            rings_max,
            ring_records,
            declared: 0,
            homeless: 0,
            is_closed: false,
            rings: Vec::new(),
            heads: Vec::new(),
            batch: Vec::new(),
            blob: Vec::new(),
            file,
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// This life of the process, as it says.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// User and group of the file: the kernel's word.
    pub fn owner(&self) -> (u32, u32) {
        self.owner
    }

    /// The process, as it says.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// When it was made, as it says.
    pub fn created_ns(&self) -> i64 {
        self.created_ns
    }

    /// What the times of its records count.
    pub fn time_source(&self) -> TimeSource {
        self.time_source
    }

    /// Rings that were used, with the clock pair that its writer left last in each.
    pub fn pairs(&self) -> impl ExactSizeIterator<Item = Pair> {
        self.rings.iter().map(|ring| ring.pair)
    }

    /// Values that were given up by the writer: by full rings, and by threads without one.
    pub fn dropped(&self) -> u64 {
        let rings = self.rings.iter().map(|ring| ring.dropped);
        rings.fold(self.homeless, u64::saturating_add)
    }

    /// Up to where each ring was read.
    pub fn positions(&self) -> impl ExactSizeIterator<Item = u64> {
        self.rings.iter().map(|ring| ring.position)
    }

    /// Goes on from a later position: what is before it is known to be safe from another life of the
    /// agent.
    pub fn skip_to(&mut self, ring: u32, position: u64) {
        if let Some(ring) = self.rings.get_mut(ring as usize)
            && (ring.position..=ring.committed).contains(&position)
        {
            ring.position = position;
        }
    }

    /// Whether its writer has said goodbye, as of the last look.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether everything committed was read, as of the last look.
    pub fn is_drained(&self) -> bool {
        self.rings
            .iter()
            .all(|ring| ring.position >= ring.committed)
    }

    /// Whether the process is gone. One that cannot be looked at counts as living.
    pub fn is_orphan(&self) -> bool {
        match start_ticks(&self.pid.to_string()) {
            Some(ticks) => self.start_ticks != 0 && ticks != self.start_ticks,
            None => !Path::new("/proc").join(self.pid.to_string()).exists(),
        }
    }

    /// Reads header and heads anew: what is committed, whether the writer is done. To be called before
    /// [`Self::declarations`] and [`Self::drain`].
    pub fn look(&mut self) -> Result<(), StreamError> {
        let used = self.rings.len();
        self.read_heads(used)?;
        let head = Header(&self.heads);
        let now_used = u32::try_from(head.word(header::RINGS_USED)).unwrap_or(u32::MAX);
        let now_used = now_used.min(self.rings_max) as usize;
        self.is_closed = head.word(header::STATE) == state::CLOSED;
        self.homeless = head.word(header::HOMELESS);
        if now_used > used {
            self.read_heads(now_used)?;
        }
        for ring in used..now_used.max(used) {
            // Where another agent, or nobody, has left it.
            let position = self.ring_word(ring, head::TAIL);
            self.rings.push(Ring {
                position,
                ..Ring::default()
            });
        }
        for at in 0..self.rings.len() {
            let word = |offset| self.ring_word(at, offset);
            let committed = word(head::COMMITTED);
            let dropped = word(head::DROPPED);
            let pair = Pair {
                ticks: word(head::PAIR_TICKS),
                ns: word(head::PAIR_NS) as i64,
                error_ticks: 0,
            };
            let ring = &mut self.rings[at];
            // A commit that goes back is no commit.
            ring.committed = ring.committed.max(committed);
            ring.position = ring.position.min(ring.committed);
            (ring.dropped, ring.pair) = (dropped, pair);
        }
        Ok(())
    }

    /// Hands on the declarations that are new since the last call. Damage ends them for good.
    pub fn declarations(&mut self, each: &mut dyn FnMut(Declaration)) -> Result<(), StreamError> {
        let all = Header(&self.heads).word(header::DECLARED);
        let all = usize::try_from(all).unwrap_or(usize::MAX);
        let all = all.min(DECLARATIONS_BYTES);
        if all <= self.declared {
            return Ok(());
        }
        let mut bytes = vec![0; all - self.declared];
        let at = self.declarations_at + self.declared;
        self.read(&mut bytes, at)?;
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            match Declaration::decode(rest) {
                Ok((declaration, length)) => {
                    declaration.into_iter().for_each(&mut *each);
                    rest = &rest[length..];
                    self.declared += length;
                }
                Err(reason) => {
                    self.declared = DECLARATIONS_BYTES;
                    return Err(self.corrupt(reason));
                }
            }
        }
        Ok(())
    }

    /// Hands on what is committed, at most about `records_max` records, ring after ring in order.
    pub fn drain(
        &mut self,
        records_max: u64,
        each: &mut dyn FnMut(Record<'_>),
    ) -> Result<Drained, StreamError> {
        let mut drained = Drained::default();
        for ring in 0..self.rings.len() {
            self.drain_ring(ring, records_max, each, &mut drained)?;
        }
        Ok(drained)
    }

    fn drain_ring(
        &mut self,
        at: usize,
        records_max: u64,
        each: &mut dyn FnMut(Record<'_>),
        drained: &mut Drained,
    ) -> Result<(), StreamError> {
        loop {
            let Ring {
                position,
                committed,
                ..
            } = self.rings[at];
            if position >= committed {
                return Ok(());
            }
            if drained.records >= records_max {
                drained.has_more = true;
                return Ok(());
            }
            let from = position.max(committed.saturating_sub(self.ring_records));
            let count = (committed - from).min(BATCH_RECORDS);
            self.copy_records(at, from, count)?;
            // After the copy: up to where the writer may have been writing meanwhile.
            let reserved = self.read_word(self.head_at(at) + head::RESERVED)?;
            let whole_from = reserved.saturating_sub(self.ring_records).max(from);
            let first = whole_from.min(from + count);
            drained.missed += first - position;
            let end = from + count;
            let next = self.hand_on(at, from, first, end, each, drained);
            // A long value that this batch cuts is read again with the next, unless it is the only one.
            self.rings[at].position = if next > position { next } else { end };
        }
    }

    /// Hands on the copied records from `first` to `end`; gives the position of the first that was not.
    fn hand_on(
        &mut self,
        ring: usize,
        from: u64,
        first: u64,
        end: u64,
        each: &mut dyn FnMut(Record<'_>),
        drained: &mut Drained,
    ) -> u64 {
        let mut position = first;
        while position < end {
            let [what, time, payload] = record(&self.batch, position - from);
            let (kind, series) = ((what >> 24) as u8, what as u32 & SERIES_MAX);
            if what >> 32 != position & 0xffff_ffff {
                drained.damaged += 1;
                position += 1;
                continue;
            }
            let short = match kind {
                kind::INT => Some(Payload::Int(payload as i64)),
                kind::FLOAT => Some(Payload::Float(f64::from_bits(payload))),
                kind::BOOL => Some(Payload::Bool(payload != 0)),
                kind::FRAME => Some(Payload::Frame(payload)),
                _ => None,
            };
            let mut hand = |payload| {
                let ring = ring as u32;
                each(Record {
                    ring,
                    series,
                    time,
                    payload,
                });
            };
            if let Some(payload) = short {
                hand(payload);
                drained.records += 1;
                position += 1;
                continue;
            }
            let Some(pieces) = long_pieces(kind, payload) else {
                // A piece whose beginning was written over was counted with it.
                drained.damaged += u64::from(kind != kind::PIECE);
                drained.missed += u64::from(kind == kind::PIECE);
                position += 1;
                continue;
            };
            if position + 1 + pieces > end {
                if position > from {
                    return position;
                }
                drained.damaged += 1;
                return end;
            }
            if gather(
                &self.batch,
                position,
                from,
                payload as usize,
                &mut self.blob,
            ) {
                let bytes = &self.blob[..];
                hand(match kind {
                    kind::TEXT => Payload::Text(bytes),
                    kind::JSON => Payload::Json(bytes),
                    kind::FLOATS => Payload::Floats(bytes),
                    _ => Payload::Bytes(bytes),
                });
                drained.records += 1;
            } else {
                drained.damaged += 1;
            }
            position += 1 + pieces;
        }
        end
    }

    /// Copies records, which may go round the end of the ring.
    fn copy_records(&mut self, ring: usize, from: u64, count: u64) -> Result<(), StreamError> {
        let mut batch = std::mem::take(&mut self.batch);
        batch.resize(count as usize * RECORD_BYTES, 0);
        let ring_at = self.rings_at + ring * super::layout::ring_bytes(self.ring_records);
        let first = (from & (self.ring_records - 1)) as usize;
        let straight = (self.ring_records as usize - first).min(count as usize) * RECORD_BYTES;
        let (before, after) = batch.split_at_mut(straight);
        let read = self
            .read(before, ring_at + first * RECORD_BYTES)
            .and_then(|()| self.read(after, ring_at));
        self.batch = batch;
        read
    }

    /// Tells the writer up to where its records are safe.
    pub fn set_tail(&self, ring: u32, position: u64) -> Result<(), StreamError> {
        let at = self.head_at(ring as usize) + head::TAIL;
        self.write_word(at, position)
    }

    /// Tells the writer whether it is to knock at the agent's socket after its next commit. Whoever says
    /// so must look once more afterwards: a commit may have come in between.
    pub fn set_asleep(&self, asleep: bool) -> Result<(), StreamError> {
        self.write_word(header::ASLEEP, asleep.into())
    }

    /// Removes the file.
    pub fn remove(self) -> Result<(), StreamError> {
        fs::remove_file(&self.path).map_err(|e| self.io("remove", e))
    }

    fn read_heads(&mut self, used: usize) -> Result<(), StreamError> {
        let mut heads = std::mem::take(&mut self.heads);
        heads.resize(HEADER_BYTES + used * HEAD_BYTES, 0);
        let read = self.read(&mut heads, 0);
        self.heads = heads;
        read
    }

    fn ring_word(&self, ring: usize, offset: usize) -> u64 {
        Header(&self.heads).word(self.head_at(ring) + offset)
    }

    fn head_at(&self, ring: usize) -> usize {
        self.heads_at + ring * HEAD_BYTES
    }

    fn read_word(&self, at: usize) -> Result<u64, StreamError> {
        let mut bytes = [0; 8];
        self.read(&mut bytes, at)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn read(&self, bytes: &mut [u8], at: usize) -> Result<(), StreamError> {
        let read = self.file.read_exact_at(bytes, at as u64);
        read.map_err(|e| self.io("read", e))
    }

    fn write_word(&self, at: usize, value: u64) -> Result<(), StreamError> {
        let written = self.file.write_all_at(&value.to_le_bytes(), at as u64);
        written.map_err(|e| self.io("write", e))
    }

    fn io(&self, what: &'static str, source: io::Error) -> StreamError {
        let path = self.path.clone();
        StreamError::Io { what, path, source }
    }

    fn corrupt(&self, reason: &str) -> StreamError {
        StreamError::Corrupt {
            path: self.path.clone(),
            reason: reason.to_owned(),
        }
    }
}

/// Bytes of a header or head; what is beyond them is 0.
struct Header<'a>(&'a [u8]);

impl Header<'_> {
    fn word(&self, at: usize) -> u64 {
        let bytes = self.0.get(at..at + 8).and_then(|b| b.try_into().ok());
        u64::from_le_bytes(bytes.unwrap_or_default())
    }

    fn halves(&self, at: usize) -> (u32, u32) {
        let word = self.word(at);
        (word as u32, (word >> 32) as u32)
    }
}

fn record(batch: &[u8], index: u64) -> [u64; 3] {
    let header = Header(batch);
    let at = index as usize * RECORD_BYTES;
    [header.word(at), header.word(at + 8), header.word(at + 16)]
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
        let expect = (at & 0xffff_ffff) << 32 | super::layout::what(kind::PIECE, number as u32);
        if what != expect {
            return false;
        }
        blob.extend(first.to_le_bytes());
        blob.extend(second.to_le_bytes());
    }
    blob.truncate(bytes);
    true
}

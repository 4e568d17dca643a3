//! The agent's side of an ingest file: reading what a foreign process writes, without mapping it.
//!
//! Nothing in the file is trusted: sizes are checked against bounds of ours before they are used,
//! records are copied before they are examined, and records that may have been overwritten during
//! the copy are not used but counted. A file that is cut short gives short reads.
//!
//! The order of the reads is the protocol: each read is complete before the next begins (see
//! [`IngestFile::read`]).

mod cells;
mod drain;
mod life;
mod refusals;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, fence};

use rustix::fs::OFlags;

pub use cells::CellsTold;
pub use drain::{DrainResult, IngestRecord, RecordPayload};

use super::layout::{
    BYTE_ORDER, CELLS_MAX, DECLARATIONS_BYTES, HEAD_BYTES, HEADER_BYTES, INGEST_VERSION_MAJOR,
    MAGIC, RING_RECORDS_MAX, RING_RECORDS_MIN, RINGS_MAX, declarations_at, file_bytes, head,
    header, rings_at, state,
};
use super::{DECLARATION_BYTES_MAX, IngestDeclaration, TimeSource};
use crate::map::FileMap;
use crate::{Incarnation, StreamError};

/// Bytes of the header that are read at each look.
const LOOK_BYTES: usize = 256;
/// Most bytes of declarations in one read.
const DECLARATIONS_READ_BYTES: usize = 4 * DECLARATION_BYTES_MAX;

/// The agent's state of a ring.
#[derive(Clone, Copy, Debug, Default)]
struct Ring {
    /// Records before this position were passed on or given up.
    position: u64,
    /// Position of the last commit, as last read.
    committed: u64,
    dropped: u64,
    /// The tail as it is stored in the file.
    told: u64,
    /// Whether the record before `position` was missed: the next ones may be the rest of a long
    /// value.
    is_in_gap: bool,
}

/// An ingest file of another process, opened by the agent.
#[derive(Debug)]
pub struct IngestFile {
    pub(super) file: File,
    path: PathBuf,
    incarnation: Incarnation,
    owner: (u32, u32),
    pid: u32,
    start_ticks: u64,
    created_ns: i64,
    time_source: TimeSource,
    rings_max: u32,
    ring_records: u64,
    declared: usize,
    homeless: u64,
    is_closed: bool,
    /// Number of cells.
    cells: usize,
    cells_interval_ns: i64,
    rings: Vec<Ring>,
    /// Index of the ring that is read next.
    turn: usize,
    header: [u8; LOOK_BYTES],
    /// Device and inode of the file, whatever its name leads to now.
    place: (u64, u64),
    /// Words of refusals as they are in the file, by offset: only the agent writes them.
    pub(super) told: BTreeMap<usize, u64>,
    /// The header, mapped so that the kernel finds those who sleep on a word of it. Nothing here
    /// looks at it.
    pub(super) sleepers: Option<FileMap>,
}

/// Memory that one look needs: each thread has it once, since a node has thousands of files.
#[derive(Default)]
struct Scratch {
    heads: Vec<u8>,
    batch: Vec<u8>,
    blob: Vec<u8>,
}

thread_local! {
    static SCRATCH: Cell<Scratch> = Cell::default();
}

/// Calls `act` with the scratch memory of this thread. A call from within gets other memory.
fn with_scratch<T>(act: impl FnOnce(&mut Scratch) -> T) -> T {
    let mut scratch = SCRATCH.take();
    let result = act(&mut scratch);
    SCRATCH.set(scratch);
    result
}

impl IngestFile {
    /// The minor version of the format in which the file is written.
    pub fn version_minor(&self) -> u32 {
        Header(&self.header).halves(header::VERSION).1
    }

    /// Opens a file and checks its header. It follows no link and opens only regular files, so that
    /// no foreign name leads elsewhere. If the system refuses ([`StreamError::is_passing`]), it may
    /// be tried again.
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
        if metadata.len() < HEADER_BYTES as u64 {
            return Err(corrupt("it is shorter than its header"));
        }
        let mut bytes = [0; LOOK_BYTES];
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
        let (rings_max, ring_records) = head.check_shape(metadata.len()).map_err(corrupt)?;
        let time_source = TimeSource::from_u64(head.word(header::TIME_SOURCE))
            .ok_or_else(|| corrupt("its clock is none that is known"))?;
        let cells = head.word(header::CELLS);
        if cells > CELLS_MAX {
            return Err(corrupt("it has more cells than there can be"));
        }
        let cells_interval_ns = i64::try_from(head.word(header::CELLS_INTERVAL));
        let incarnation = bytes[header::INCARNATION..header::INCARNATION + 16].try_into();
        Ok(Self {
            path: path.to_owned(),
            incarnation: Incarnation(incarnation.expect("sixteen bytes")),
            owner: (metadata.uid(), metadata.gid()),
            pid: u32::try_from(head.word(header::PID)).unwrap_or(0),
            start_ticks: head.word(header::START_TICKS),
            created_ns: head.word(header::CREATED) as i64,
            time_source,
            rings_max,
            ring_records,
            declared: 0,
            homeless: 0,
            is_closed: false,
            cells: cells as usize,
            cells_interval_ns: cells_interval_ns.unwrap_or(i64::MAX),
            rings: Vec::new(),
            turn: 0,
            header: bytes,
            place: (metadata.dev(), metadata.ino()),
            told: BTreeMap::new(),
            sleepers: None,
            file,
        })
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Identity of this life of the process, as written in the file.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// User and group of the file, from the kernel.
    pub fn owner(&self) -> (u32, u32) {
        self.owner
    }

    /// The number of rings for which the file has room.
    pub(super) fn rings_max(&self) -> u32 {
        self.rings_max
    }

    /// Process id of the writer, as written in the file.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Time at which the writer's process began, in ticks since the machine's start, as written in
    /// the file; 0 if it is not known.
    pub fn start_ticks(&self) -> u64 {
        self.start_ticks
    }

    /// Time of creation, ns since the epoch, as written in the file.
    pub fn created_ns(&self) -> i64 {
        self.created_ns
    }

    /// Unit of the records' times.
    pub fn time_source(&self) -> TimeSource {
        self.time_source
    }

    /// Number of values that the writer dropped: in full rings, and in threads without a ring.
    pub fn dropped(&self) -> u64 {
        let rings = self.rings.iter().map(|ring| ring.dropped);
        rings.fold(self.homeless, u64::saturating_add)
    }

    /// Position up to which each ring was read.
    pub fn positions(&self) -> impl ExactSizeIterator<Item = u64> {
        self.rings.iter().map(|ring| ring.position)
    }

    /// Continues at a later position: records before it are known to be safe from an earlier life
    /// of the agent. Call it after the first [`Self::look`]; a position that is not committed is
    /// ignored.
    pub fn skip_to(&mut self, ring: u32, position: u64) {
        if let Some(ring) = self.rings.get_mut(ring as usize)
            && (ring.position..=ring.committed).contains(&position)
        {
            ring.position = position;
        }
    }

    /// Whether the writer has closed the file, as of the last look.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether all committed records were read, as of the last look.
    pub fn is_drained(&self) -> bool {
        self.rings
            .iter()
            .all(|ring| ring.position >= ring.committed)
    }

    /// Reads the header and the heads anew: the committed positions, and whether the writer has
    /// closed the file. Call it before [`Self::declarations`] and [`Self::drain`].
    pub fn look(&mut self) -> Result<(), StreamError> {
        // A writer that adds rings faster than this is looked at again soon.
        const TRIES: usize = 4;
        with_scratch(|scratch| self.look_by(&mut scratch.heads, TRIES))
    }

    fn look_by(&mut self, heads: &mut Vec<u8>, tries: usize) -> Result<(), StreamError> {
        let (mut used, mut is_closed) = (self.rings.len(), self.is_closed);
        self.is_closed = false;
        for _ in 0..tries {
            // The heads are read first: then the header, read later, has all declarations made
            // before the committed records. But if the header shows that nothing more will be
            // committed, or that there are more rings, the heads are read again.
            heads.resize(used * HEAD_BYTES, 0);
            self.read(heads, HEADER_BYTES)?;
            self.read_header()?;
            let header = Header(&self.header);
            let now_closed = header.word(header::STATE) == state::CLOSED;
            let now_used = self.used_of(header.word(header::RINGS_USED)).max(used);
            if (now_used, now_closed) == (used, is_closed) {
                self.is_closed = is_closed;
                break;
            }
            (used, is_closed) = (now_used, now_closed);
        }
        self.homeless = Header(&self.header).word(header::HOMELESS);
        for (at, head) in heads.chunks_exact(HEAD_BYTES).enumerate() {
            self.take_head(at, head);
        }
        Ok(())
    }

    fn take_head(&mut self, at: usize, head: &[u8]) {
        let word = |offset| Header(head).word(offset);
        if at == self.rings.len() {
            // The position at which another agent left the ring, or its start.
            self.rings.push(Ring {
                position: word(head::TAIL).min(word(head::COMMITTED)),
                told: word(head::TAIL),
                ..Ring::default()
            });
        }
        let ring = &mut self.rings[at];
        // Records that were read stay read, whatever position is committed now.
        ring.committed = word(head::COMMITTED).max(ring.position);
        ring.dropped = word(head::DROPPED);
    }

    fn used_of(&self, word: u64) -> usize {
        u32::try_from(word).unwrap_or(u32::MAX).min(self.rings_max) as usize
    }

    /// Passes on the declarations that are new since the last call. A damaged declaration ends this
    /// for good.
    pub fn declarations(
        &mut self,
        each: &mut dyn FnMut(IngestDeclaration),
    ) -> Result<(), StreamError> {
        while self.some_declarations(usize::MAX, each)? {}
        Ok(())
    }

    /// Like [`Self::declarations`], but passes on at most `count_max`. Returns whether there are
    /// more, without which records cannot be interpreted. The bytes per read are bounded as well.
    pub fn some_declarations(
        &mut self,
        count_max: usize,
        each: &mut dyn FnMut(IngestDeclaration),
    ) -> Result<bool, StreamError> {
        let stated = Header(&self.header).word(header::DECLARED);
        let stated = usize::try_from(stated).unwrap_or(usize::MAX);
        let all = stated.min(DECLARATIONS_BYTES);
        if all <= self.declared {
            return Ok(false);
        }
        let mut bytes = [0; DECLARATIONS_READ_BYTES];
        let length = (all - self.declared).min(bytes.len());
        let at = declarations_at(self.rings_max) + self.declared;
        self.read(&mut bytes[..length], at)?;
        let mut rest = &bytes[..length];
        let is_last = self.declared + length == all;
        for _ in 0..count_max {
            // A declaration that is cut by the end of the read comes with the next read.
            if rest.is_empty() || (!is_last && rest.len() < DECLARATION_BYTES_MAX) {
                break;
            }
            match IngestDeclaration::decode(rest) {
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
        Ok(self.declared < all)
    }

    /// Passes on all declarations once more, as of the last look, so that nobody has to keep them.
    pub fn declarations_again(
        &mut self,
        each: &mut dyn FnMut(IngestDeclaration),
    ) -> Result<(), StreamError> {
        self.declared = 0;
        self.declarations(each)
    }

    /// Stores the position up to which the records of a ring are safe, for the writer, if it has
    /// changed. An unknown ring is ignored.
    pub fn set_tail(&mut self, ring: u32, position: u64) -> Result<(), StreamError> {
        let known = self.rings.get(ring as usize);
        if known.is_none_or(|known| known.told == position) {
            return Ok(());
        }
        self.write_word(head_at(ring as usize) + head::TAIL, position)?;
        self.rings[ring as usize].told = position;
        Ok(())
    }

    /// Sets whether the writer is to send a datagram to the agent's socket after its next commit.
    /// After setting it, the caller must look once more: a commit may have come in between. It must
    /// also look from time to time later: a put has no fence between its commit and its load of
    /// this word, so within some nanoseconds both sides can miss each other; and a process that was
    /// killed sends nothing.
    pub fn set_asleep(&self, asleep: bool) -> Result<(), StreamError> {
        self.write_word(header::ASLEEP, asleep.into())
    }

    fn read_header(&mut self) -> Result<(), StreamError> {
        let mut header = self.header;
        self.read(&mut header, 0)?;
        self.header = header;
        Ok(())
    }

    pub(super) fn read_word(&self, at: usize) -> Result<u64, StreamError> {
        let mut bytes = [0; 8];
        self.read(&mut bytes, at)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Reads bytes, all of them before anything that is read later: the kernel's loads for this
    /// call run on this processor, so the fence orders them like any others.
    pub(super) fn read(&self, bytes: &mut [u8], at: usize) -> Result<(), StreamError> {
        let read = self.file.read_exact_at(bytes, at as u64);
        fence(Ordering::Acquire);
        read.map_err(|e| self.io("read", e))
    }

    pub(super) fn write_word(&self, at: usize, value: u64) -> Result<(), StreamError> {
        let written = self.file.write_all_at(&value.to_le_bytes(), at as u64);
        written.map_err(|e| self.io("write", e))
    }

    pub(super) fn io(&self, what: &'static str, source: io::Error) -> StreamError {
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

fn head_at(ring: usize) -> usize {
    HEADER_BYTES + ring * HEAD_BYTES
}

/// Bytes of a header or head; words beyond them are 0.
struct Header<'a>(&'a [u8]);

impl Header<'_> {
    /// Returns the number of rings and the number of records in each, if a file of this length has
    /// room for them.
    fn check_shape(&self, length: u64) -> Result<(u32, u64), &'static str> {
        if self.halves(header::ORDER) != (BYTE_ORDER, HEADER_BYTES as u32) {
            return Err("its byte order or header is another");
        }
        let rings_max = u32::try_from(self.word(header::RINGS_MAX)).unwrap_or(0);
        let ring_records = self.word(header::RING_RECORDS);
        let is_possible = (1..=RINGS_MAX).contains(&rings_max)
            && (RING_RECORDS_MIN..=RING_RECORDS_MAX).contains(&ring_records)
            && ring_records.is_power_of_two();
        if !is_possible {
            return Err("its rings are of an impossible number or size");
        }
        // The offsets follow from the numbers: this version has only one layout.
        let bytes = file_bytes(rings_max, ring_records) as u64;
        let places = [
            (header::FILE_BYTES, bytes),
            (header::HEADS_AT, HEADER_BYTES as u64),
            (header::DECLARATIONS_AT, declarations_at(rings_max) as u64),
            (header::DECLARATIONS_BYTES, DECLARATIONS_BYTES as u64),
            (header::RINGS_AT, rings_at(rings_max) as u64),
        ];
        if places.iter().any(|&(at, expect)| self.word(at) != expect) {
            return Err("its parts are not where they belong");
        }
        if length < bytes {
            return Err("it is cut short");
        }
        Ok((rings_max, ring_records))
    }

    fn word(&self, at: usize) -> u64 {
        let bytes = self.0.get(at..at + 8).and_then(|b| b.try_into().ok());
        u64::from_le_bytes(bytes.unwrap_or_default())
    }

    fn halves(&self, at: usize) -> (u32, u32) {
        let word = self.word(at);
        (word as u32, (word >> 32) as u32)
    }
}

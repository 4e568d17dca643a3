//! Offsets and limits of an ingest file, as in `docs/reference/ingest-format.md`.

pub(super) use crate::layout::{BYTE_ORDER, POSITION_MAX};

/// The first eight bytes of the file.
pub(super) const MAGIC: [u8; 8] = *b"BAROING\0";
/// Major version of the format: files of another major version are refused.
pub const INGEST_VERSION_MAJOR: u32 = 1;
/// Minor version of the format: it grows with additions that older readers may ignore.
pub const INGEST_VERSION_MINOR: u32 = 4;

pub(super) const HEADER_BYTES: usize = 4_096;
/// Bytes of a ring's head: the producer's words, and from [`head::TAIL`] on the agent's.
pub(super) const HEAD_BYTES: usize = 256;
/// Bytes of a record: sequence, kind and series; time; payload.
pub(super) const RECORD_BYTES: usize = 24;
/// Bytes of a text, byte string or array in each record after the first.
pub(super) const PIECE_BYTES: usize = 16;

/// Fewest threads of one process that can put at the same time, unless configured; the default is
/// twice the number of processors if that is more. Rings that were never used take no memory.
pub const RINGS_DEFAULT_MIN: u32 = 256;
/// Most rings of a file.
pub const RINGS_MAX: u32 = 1_024;
/// Records of a ring that get memory when its first thread comes; later their number doubles.
pub(super) const RING_RECORDS_FIRST: u64 = 1 << 10;
/// Records of a ring by default: 1.5 MiB.
pub const RING_RECORDS_DEFAULT: u64 = 1 << 16;
/// Fewest records of a ring.
pub const RING_RECORDS_MIN: u64 = 1 << 8;
/// Most records of a ring.
pub const RING_RECORDS_MAX: u64 = 1 << 26;
/// Longest text, byte string or array of one value, in bytes.
pub const BLOB_BYTES_MAX: usize = 64 << 10;
/// Bytes of the area for declarations.
pub(super) const DECLARATIONS_BYTES: usize = 1 << 20;
/// Bytes of that area that a program fills with declarations. The rest are the slots of server
/// maps: agents that know none of those find room there that is not used.
pub(super) const DECLARED_BYTES_MAX: usize = DECLARATIONS_BYTES - MAPS_MAX * map_slot::BYTES;
/// A ring's writer reserves this part of the ring at a time (an eighth of the records).
pub(super) const RESERVED_PARTS: u64 = 8;
/// Number of phases of I/O of a process that can wait at the same time.
pub const GRANTS_MAX: u64 = 16;
/// Most uses of server maps of a process: as a member, or as one server.
pub const MAPS_MAX: usize = 8;
/// Servers of a map have numbers below this one.
pub const SERVER_NUMBERS: u32 = 1_024;
/// Offset of the cells: they are in the header, so that a program that writes nothing else needs
/// one page.
pub const CELLS_AT: usize = 512;
/// Most cells of a file.
pub const CELLS_MAX: u64 = 192;
pub(super) const CELL_BYTES: usize = 8;
/// Extension of a file's name; a file that is being created has another one.
pub(super) const EXTENSION: &str = "ingest";
/// First word of the names of applications' streams.
pub const APPLICATIONS_PREFIX: &str = "app";
/// Name of the value that counts the frames of a publication.
pub const FRAME_VALUE: &str = "frame";
/// Name of the streams that count losses of applications, since the scope's archive began.
pub const LOSS_STREAM: &str = "app.process.loss.count";
/// Name of the stream that counts losses of programs in no scope, since the agent began.
pub const LOST_STREAM: &str = "agent.ingest.lost.count";

/// Offsets in the header.
pub(super) mod header {
    pub(crate) const MAGIC: usize = 0;
    /// u32 major version, u32 minor version.
    pub(crate) const VERSION: usize = 8;
    /// u32 byte order mark, u32 bytes of the header.
    pub(crate) const ORDER: usize = 16;
    pub(crate) const FILE_BYTES: usize = 24;
    pub(crate) const INCARNATION: usize = 32;
    pub(crate) const CREATED: usize = 48;
    pub(crate) const PID: usize = 56;
    /// Time when the process began, in clock ticks since boot (`/proc/<pid>/stat`, field 22).
    pub(crate) const START_TICKS: usize = 64;
    pub(crate) const STATE: usize = 72;
    pub(crate) const TIME_SOURCE: usize = 80;
    /// Bytes of declarations that are complete.
    pub(crate) const DECLARED: usize = 88;
    pub(crate) const DECLARATIONS_AT: usize = 96;
    pub(crate) const DECLARATIONS_BYTES: usize = 104;
    pub(crate) const HEADS_AT: usize = 112;
    pub(crate) const RINGS_MAX: usize = 120;
    pub(crate) const RINGS_USED: usize = 128;
    pub(crate) const RINGS_AT: usize = 136;
    pub(crate) const RING_RECORDS: usize = 144;
    pub(crate) const OVERFLOW: usize = 152;
    /// Number of values that were put by threads without a ring.
    pub(crate) const HOMELESS: usize = 160;
    /// Number of declarations that did not fit.
    pub(crate) const UNDECLARED: usize = 168;
    /// Number of cells.
    pub(crate) const CELLS: usize = 176;
    /// Shortest time between two frames of cells, in ns.
    pub(crate) const CELLS_INTERVAL: usize = 184;
    /// The agent's word: 1 while it schedules I/O, 2 while it does not.
    pub(crate) const SCHEDULES: usize = 192;
    /// The agent's word of 32 bits, a futex: it changes with the answers to phases.
    pub(crate) const GRANTS_MOVED: usize = 200;
    /// The agent's words: the answers to phases of I/O.
    pub(crate) const GRANTS: usize = 208;
    /// The agent's word: not 0 while it wants to be woken for new records.
    pub(crate) const ASLEEP: usize = 2_048;
    /// The agent's word: number of frames that it has made of cells. After it, their clocks as of
    /// the last frame.
    pub(crate) const CELL_FRAMES: usize = 2_056;
    pub(crate) const CELL_CLOCK: usize = 2_064;
    /// The agent's word: number of declarations that it refuses now.
    pub(crate) const REFUSED: usize = 2_072;
    /// The agent's words: one bit per value, set while the agent refuses that value; up to the end
    /// of the header.
    pub(crate) const REFUSED_BITS: usize = 2_080;
}

/// Offsets in the slot of a use of a server map.
pub(super) mod map_slot {
    /// Bytes of a slot.
    pub(crate) const BYTES: usize = 512;
    /// 1 more than the number of the publication that names the map; 0 while the slot is not used.
    pub(crate) const PUBLICATION: usize = 0;
    /// Number of operations of a member that have begun and not ended.
    pub(crate) const RUNNING: usize = 8;
    /// Number of operations of a member that wait.
    pub(crate) const WAITING: usize = 16;
    /// The greatest fence with which a server has refused an operation of the member.
    pub(crate) const REFUSED: usize = 24;
    /// Number of operations of a member that have ended and were not refused.
    pub(crate) const ENDED: usize = 32;
    /// Eight words with the requests that run at a server: the epoch, and in the lower 24 bits
    /// their number.
    pub(crate) const EPOCHS: usize = 64;
    /// The servers that a member has declared: 1,024 bits.
    pub(crate) const DECLARED: usize = 128;
    /// The agent's words: state, prepared epoch, epoch in force, fence, 1,024 bits of servers, and
    /// the check of all of these.
    pub(crate) const TOLD: usize = 256;
}

/// The bit map of refused values in the header.
pub(super) mod refused_bits {
    use super::{HEADER_BYTES, header};

    /// Number of values that have a bit.
    pub(crate) const VALUES: u32 = ((HEADER_BYTES - header::REFUSED_BITS) * 8) as u32;

    /// Offset of a value's word in the header, and its bit in the word; `None` beyond the map.
    pub(crate) const fn place(value: u32) -> Option<(usize, u64)> {
        if value >= VALUES {
            return None;
        }
        let at = header::REFUSED_BITS + (value / 64) as usize * 8;
        Some((at, 1 << (value % 64)))
    }
}

const _: () = assert!(header::GRANTS + GRANTS_MAX as usize * 8 <= CELLS_AT);
const _: () = assert!(CELLS_AT + CELLS_MAX as usize * CELL_BYTES <= header::ASLEEP);

/// Values of the header's state.
pub(super) mod state {
    pub(crate) const OPEN: u64 = 1;
    pub(crate) const CLOSED: u64 = 2;
}

/// Offsets in a ring's head.
pub(super) mod head {
    /// Position up to which records are complete.
    pub(crate) const COMMITTED: usize = 0;
    /// Position up to which records may be being written.
    pub(crate) const RESERVED: usize = 8;
    /// 0: never used, 1: in use by a thread, 2: its thread has ended.
    pub(crate) const STATE: usize = 16;
    pub(crate) const THREAD: usize = 24;
    /// Number of values that were dropped because the ring was full.
    pub(crate) const DROPPED: usize = 32;
    /// A pair of clocks: the counter, then ns since the epoch.
    pub(crate) const PAIR_TICKS: usize = 40;
    pub(crate) const PAIR_NS: usize = 48;
    /// Exclusive-or of the two words before: the pair is valid only if this matches.
    pub(crate) const PAIR_CHECK: usize = 56;
    /// The agent's word: all records before this position have been taken.
    pub(crate) const TAIL: usize = 128;
}

/// Values of a ring's state.
pub(super) mod ring_state {
    pub(crate) const IN_USE: u64 = 1;
    pub(crate) const ENDED: u64 = 2;
}

/// Kinds of records.
pub mod kind {
    /// An i64 in the payload.
    pub const INT: u8 = 1;
    /// An f64 in the payload.
    pub const FLOAT: u8 = 2;
    /// A bool, 0 or 1 in the payload.
    pub const BOOL: u8 = 3;
    /// UTF-8 text; its bytes are in the pieces that follow.
    pub const TEXT: u8 = 4;
    /// A commit; the series is the publication, the payload is the number of the frame.
    pub const FRAME: u8 = 5;
    /// Bytes, in pieces.
    pub const BYTES: u8 = 6;
    /// JSON, in pieces.
    pub const JSON: u8 = 7;
    /// Little-endian f64s, in pieces.
    pub const FLOATS: u8 = 8;
    /// The answer to a call; the series is its status ([`crate::calls::AckStatus`]), the payload
    /// the call's id.
    pub const ACK: u8 = 9;
    /// Sixteen bytes of the value whose record came before; the series is the number of the piece.
    pub const PIECE: u8 = 15;
}

/// The first word of a record without its sequence: the kind, and the series or publication.
pub(super) const fn what(kind: u8, series: u32) -> u64 {
    ((kind as u64) << 24) | (series & SERIES_MAX) as u64
}

/// Largest index of a value or publication.
pub(super) const SERIES_MAX: u32 = (1 << 24) - 1;

/// Bytes of a file of this shape.
pub(super) const fn file_bytes(rings: u32, ring_records: u64) -> usize {
    rings_at(rings) + rings as usize * ring_bytes(ring_records)
}

/// Offset of the first ring.
pub(super) const fn rings_at(rings: u32) -> usize {
    (declarations_at(rings) + DECLARATIONS_BYTES).next_multiple_of(HEADER_BYTES)
}

/// Offset of the slots of server maps: the end of the area for declarations.
pub(super) const fn maps_at(rings: u32) -> usize {
    declarations_at(rings) + DECLARED_BYTES_MAX
}

/// Offset of the slot of a use of a server map.
pub(super) const fn map_slot_at(rings: u32, slot: u8) -> usize {
    maps_at(rings) + slot as usize * map_slot::BYTES
}

/// Offset of the declarations. The heads are right after the header, so that one read covers both.
pub(super) const fn declarations_at(rings: u32) -> usize {
    (HEADER_BYTES + rings as usize * HEAD_BYTES).next_multiple_of(HEADER_BYTES)
}

/// Bytes from one ring to the next.
pub(super) const fn ring_bytes(ring_records: u64) -> usize {
    (ring_records as usize * RECORD_BYTES).next_multiple_of(HEADER_BYTES)
}

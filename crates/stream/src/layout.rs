//! Where everything lies in a segment: the numbers of `docs/reference/segment-format.md`.
//!
//! All fields are little-endian; the file is a sequence of 8-byte words, and both sides touch it
//! only by atomic loads and stores of whole words (32-bit for the wake words).

/// First eight bytes of every segment.
pub const MAGIC: u64 = u64::from_le_bytes(*b"BAROSEG\0");
/// Changes when an older reader would misread.
pub const VERSION_MAJOR: u32 = 1;
/// Changes when something is added that an older reader may ignore.
pub const VERSION_MINOR: u32 = 1;
/// Reads back as this number on a machine of the same byte order.
pub const BYTE_ORDER: u32 = 0x0102_0304;

/// Streams that a segment holds unless configured.
pub const STREAMS_DEFAULT: u32 = 8_192;
/// Most streams that a segment can be configured for.
pub const STREAMS_MAX: u32 = 1 << 20;
/// Samples that a ring holds unless configured.
pub const DEPTH_DEFAULT: u32 = 1_024;
/// Most samples that a ring can be configured for.
pub const DEPTH_MAX: u32 = 1 << 20;
/// Most bytes that rings can be configured to take together.
pub const RING_BYTES_MAX: usize = 1 << 40;
/// Longest node name, in bytes.
pub const NODE_BYTES_MAX: usize = 63;
/// Bits of the futex word's wake mask; a stream's is its slot modulo this.
pub const WAKE_BITS: usize = 32;

/// Byte offsets in the header.
pub mod header {
    /// Magic.
    pub const MAGIC: usize = 0;
    /// u32 major, u32 minor.
    pub const VERSION: usize = 8;
    /// u32 byte order mark, u32 header bytes.
    pub const ORDER: usize = 16;
    /// u64 whole file.
    pub const SEGMENT_BYTES: usize = 24;
    /// 16 random bytes.
    pub const INCARNATION: usize = 32;
    /// i64 ns.
    pub const CREATED_NS: usize = 48;
    /// u64.
    pub const PID: usize = 56;
    /// u64: see `state`.
    pub const STATE: usize = 64;
    /// i64 ns: when the agent last said that it lives.
    pub const HEARTBEAT_NS: usize = 72;
    /// u64: grows with every change of the directory.
    pub const DIRECTORY_VERSION: usize = 80;
    /// u64: slots below this may hold streams.
    pub const SLOTS_USED: usize = 88;
    /// u64: registrations refused for lack of room.
    pub const REFUSED: usize = 96;
    /// u32 slots, u32 descriptor bytes.
    pub const SLOTS_MAX: usize = 128;
    /// u64 offset of the descriptors.
    pub const DESCRIPTORS_AT: usize = 136;
    /// u64 offset of the lines.
    pub const LINES_AT: usize = 144;
    /// u64 offset of the rings.
    pub const RINGS_AT: usize = 152;
    /// u32 cell bytes, u32 text slot bytes.
    pub const CELL: usize = 160;
    /// u8 length and up to 63 bytes.
    pub const NODE: usize = 192;
    /// One futex word of 4 bytes; moves whenever a stream that someone may wait for or the
    /// directory has changed.
    pub const TICK: usize = 256;
    /// Whole header.
    pub const BYTES: usize = 4096;
}

/// Values of the header's state.
pub mod state {
    /// An agent writes here (if its heartbeat is young).
    pub const LIVE: u64 = 1;
    /// Nobody will write here again: open the path anew.
    pub const CLOSED: u64 = 2;
}

/// Byte offsets in a descriptor.
pub mod descriptor {
    /// u32 state (0 free, 1 live, 2 gone), u32 generation.
    pub const STATE: usize = 0;
    /// i64 ns between looks, 0 if unknown.
    pub const INTERVAL_NS: usize = 8;
    /// 16 bytes.
    pub const SERIES_ID: usize = 16;
    /// u64 offset of the ring.
    pub const RING_AT: usize = 32;
    /// u64 offset of the text slots, 0 if the stream is not text.
    pub const TEXT_AT: usize = 40;
    /// u32 depth, u8 type, u8 kind, u8 name bytes, u8 unit bytes.
    pub const DEPTH: usize = 48;
    /// u16 labels bytes, u8 labels, u8 help bytes, u32 bytes of a long value's slot.
    pub const LENGTHS: usize = 56;
    /// i64 ns.
    pub const CREATED_NS: usize = 64;
    /// The texts.
    pub const NAME: usize = 96;
    /// Unit.
    pub const UNIT: usize = 216;
    /// Help.
    pub const HELP: usize = 248;
    /// Labels: per label u8 name bytes, u8 value bytes, name, value.
    pub const LABELS: usize = 512;
    /// Live.
    pub const LIVE: u32 = 1;
    /// Gone.
    pub const GONE: u32 = 2;
}

/// Bytes of one descriptor.
pub const DESCRIPTOR_BYTES: usize = 1024;
/// Bytes of one stream's line.
pub const LINE_BYTES: usize = 64;
/// Bytes of one sample in a ring.
pub const CELL_BYTES: usize = 24;
/// Bytes of one text slot.
pub const TEXT_SLOT_BYTES: usize = 128;
/// The type, in a descriptor, of a string whose slots have the size that the descriptor says: readers that know
/// but slots of [`TEXT_SLOT_BYTES`] pass over it, as over any type that they do not know.
pub const LONG_STRING: u8 = 5;
/// Bytes of the slots of a stream of bytes, JSON or arrays that declares no other size.
pub const VALUE_BYTES_DEFAULT: u32 = 4 << 10;
/// Smallest slot of long values, in bytes.
pub const SLOT_BYTES_MIN: u32 = 64;
/// Most bytes of all slots of one stream of long values: what a reader copies at most.
pub const SLOTS_BYTES_MAX: usize = 16 << 20;
/// What a ring of long values takes unless a depth is asked for; but it holds [`LONG_DEPTH_MIN`] samples at least.
pub const LONG_RING_BYTES: usize = 256 << 10;
/// Samples that a ring of long values holds at least, unless a depth is asked for.
pub const LONG_DEPTH_MIN: u32 = 16;

//! The layout of a segment: the offsets and sizes of `docs/reference/segment-format.md`.
//!
//! All fields are little-endian; the file is a sequence of 8-byte words, and both sides access it
//! only by atomic loads and stores of whole words (32-bit for the wake words).

/// First eight bytes of every segment.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"BAROSEG\0");
/// Major version of the format; it changes when an older reader would misread a file.
pub const VERSION_MAJOR: u32 = 1;
/// Minor version of the format; it changes when something is added that an older reader may ignore.
pub const VERSION_MINOR: u32 = 2;
/// Byte order mark: it reads back as this number on a machine of the same byte order.
pub(crate) const BYTE_ORDER: u32 = 0x0102_0304;
/// Largest position of a ring or a call: a larger one cannot come from counting.
pub(crate) const POSITION_MAX: u64 = 1 << 62;

/// Streams that a segment holds, unless configured.
pub const STREAMS_DEFAULT: u32 = 8_192;
/// Most streams that a segment can be configured for.
pub const STREAMS_MAX: u32 = 1 << 20;
/// Samples that a ring holds, unless configured.
pub const DEPTH_DEFAULT: u32 = 1_024;
/// Most samples that a ring can be configured for.
pub const DEPTH_MAX: u32 = 1 << 20;
/// Most bytes that rings can be configured to take together.
pub(crate) const RING_BYTES_MAX: usize = 1 << 40;
/// Longest node name, in bytes.
pub const NODE_BYTES_MAX: usize = 63;
/// Bits of the futex word's wake mask; the bit of a stream is its slot modulo this number.
pub const WAKE_BITS: usize = 32;

/// Byte offsets in the header.
pub(crate) mod header {
    /// u64: [`MAGIC`](super::MAGIC).
    pub(crate) const MAGIC: usize = 0;
    /// u32 major version, u32 minor version.
    pub(crate) const VERSION: usize = 8;
    /// u32 byte order mark, u32 bytes of the header.
    pub(crate) const ORDER: usize = 16;
    /// u64: bytes of the whole file.
    pub(crate) const SEGMENT_BYTES: usize = 24;
    /// 16 random bytes: the writer's incarnation.
    pub(crate) const INCARNATION: usize = 32;
    /// i64: time of creation, ns since the epoch.
    pub(crate) const CREATED_NS: usize = 48;
    /// u64: process id of the writer.
    pub(crate) const PID: usize = 56;
    /// u64: one of the values in `state`.
    pub(crate) const STATE: usize = 64;
    /// i64: time of the agent's last heartbeat, ns since the epoch.
    pub(crate) const HEARTBEAT_NS: usize = 72;
    /// u64: grows with every change of the directory.
    pub(crate) const DIRECTORY_VERSION: usize = 80;
    /// u64: slots below this number may hold streams.
    pub(crate) const SLOTS_USED: usize = 88;
    /// u64: number of registrations that were refused for lack of room.
    pub(crate) const REFUSED: usize = 96;
    /// u32 number of slots, u32 bytes of a descriptor.
    pub(crate) const SLOTS_MAX: usize = 128;
    /// u64: offset of the descriptors.
    pub(crate) const DESCRIPTORS_AT: usize = 136;
    /// u64: offset of the lines.
    pub(crate) const LINES_AT: usize = 144;
    /// u64: offset of the rings.
    pub(crate) const RINGS_AT: usize = 152;
    /// u32 bytes of a cell, u32 bytes of a text slot.
    pub(crate) const CELL: usize = 160;
    /// Name of the node: u8 length and up to 63 bytes.
    pub(crate) const NODE: usize = 192;
    /// A futex word of 4 bytes; it changes whenever the directory or a stream that someone may wait
    /// for has changed.
    pub(crate) const TICK: usize = 256;
    /// Bytes of the whole header.
    pub(crate) const BYTES: usize = 4096;
}

/// Values of the header's state.
pub(crate) mod state {
    /// An agent writes to this segment (if its heartbeat is recent).
    pub(crate) const LIVE: u64 = 1;
    /// Nothing will be written to this segment again: readers open the path anew.
    pub(crate) const CLOSED: u64 = 2;
}

/// Byte offsets in a descriptor.
pub(crate) mod descriptor {
    /// u32 state (0 free, 1 live, 2 gone), u32 generation.
    pub(crate) const STATE: usize = 0;
    /// i64: interval between looks in ns, 0 if unknown.
    pub(crate) const INTERVAL_NS: usize = 8;
    /// 16 bytes: the series id.
    pub(crate) const SERIES_ID: usize = 16;
    /// u64: offset of the ring.
    pub(crate) const RING_AT: usize = 32;
    /// u64: offset of the value slots, 0 if the stream has none.
    pub(crate) const TEXT_AT: usize = 40;
    /// u32 depth, u8 type, u8 kind, u8 name bytes, u8 unit bytes.
    pub(crate) const DEPTH: usize = 48;
    /// u16 bytes of the labels, u8 number of labels, u8 bytes of the help text, u32 bytes of a long
    /// value's slot.
    pub(crate) const LENGTHS: usize = 56;
    /// i64: time of registration, ns since the epoch.
    pub(crate) const CREATED_NS: usize = 64;
    /// u64: number of the first sample; 0 is 1.
    pub(crate) const FIRST: usize = 72;
    /// The name, up to 120 bytes.
    pub(crate) const NAME: usize = 96;
    /// The unit, up to 30 bytes.
    pub(crate) const UNIT: usize = 216;
    /// The help text, up to 222 bytes.
    pub(crate) const HELP: usize = 248;
    /// The labels, up to 510 bytes: per label u8 name bytes, u8 value bytes, name, value.
    pub(crate) const LABELS: usize = 512;
    /// State of a descriptor whose stream is live.
    pub(crate) const LIVE: u32 = 1;
    /// State of a descriptor whose stream has ended.
    pub(crate) const GONE: u32 = 2;
}

/// Bytes of one descriptor.
pub const DESCRIPTOR_BYTES: usize = 1024;
/// Bytes of one stream's line.
pub(crate) const LINE_BYTES: usize = 64;
/// Bytes of one sample in a ring.
pub const CELL_BYTES: usize = 24;
pub(crate) const TEXT_SLOT_BYTES: usize = 128;
/// The type code, in a descriptor, of a string whose slots have the size given in the descriptor.
/// Readers that only know slots of [`TEXT_SLOT_BYTES`] skip it, like any type that they do not
/// know.
pub(crate) const LONG_STRING: u8 = 5;
/// Bytes of a value slot of a stream of bytes, JSON or arrays that declares no other size.
pub const VALUE_BYTES_DEFAULT: u32 = 4 << 10;
/// Smallest slot of long values, in bytes.
pub(crate) const SLOT_BYTES_MIN: u32 = 64;
/// Most bytes of all slots of one stream of long values: the most that a reader copies.
pub const SLOTS_BYTES_MAX: usize = 16 << 20;
/// Bytes of a ring of long values unless a depth is requested; the ring holds at least
/// [`LONG_DEPTH_MIN`] samples all the same.
pub(crate) const LONG_RING_BYTES: usize = 256 << 10;
/// Fewest samples that a ring of long values holds, unless a depth is requested.
pub(crate) const LONG_DEPTH_MIN: u32 = 16;

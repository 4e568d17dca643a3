//! Offsets and limits of a calls file, as in `docs/reference/calls-format.md`.

pub use barograph_model::CALL_PAYLOAD_BYTES_MAX as PAYLOAD_BYTES_MAX;

pub(super) use crate::layout::BYTE_ORDER;

/// The first eight bytes of the file.
pub(super) const MAGIC: [u8; 8] = *b"BAROCAL\0";
/// Major version of the format: files of another major version are refused.
pub const CALLS_VERSION_MAJOR: u32 = 1;
/// Minor version of the format: it grows with additions that older readers may ignore.
pub const CALLS_VERSION_MINOR: u32 = 1;

pub(super) const HEADER_BYTES: usize = 4_096;
/// Calls that a file holds at a time.
pub const SLOTS: u64 = 256;
/// Most slots that a reader accepts.
pub(super) const SLOTS_MAX: u64 = 4_096;
pub(super) const SLOT_BYTES: usize = 4_096;
/// Words of a slot that are in use.
pub(super) const SLOT_WORDS: usize = (slot::AT_FRAME + 8) / 8;

/// Longest name of a call, in bytes.
pub const NAME_BYTES_MAX: usize = 127;
/// Longest encoding of a target's labels, in bytes.
pub const TARGET_BYTES_MAX: usize = 512;

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
    pub(crate) const STATE: usize = 56;
    pub(crate) const SLOTS: usize = 64;
    pub(crate) const SLOT_BYTES: usize = 72;
    /// Position of the first call that this file ever had.
    pub(crate) const FIRST: usize = 80;
    /// Number of calls ever written, which is the position of the next one. Always read and stored
    /// as 64 bits.
    pub(crate) const WRITTEN: usize = 256;
    /// The futex word, since 1.1: the lower 32 bits of [`WRITTEN`], stored after it. Always read
    /// and stored as 32 bits: accesses of two widths to the same bytes have no defined meaning in
    /// the memory models of Rust and C.
    pub(crate) const MOVED: usize = 264;
}

/// Values of the header's state.
pub(super) mod state {
    pub(crate) const LIVE: u64 = 1;
    pub(crate) const CLOSED: u64 = 2;
}

/// Offsets in a slot.
pub(super) mod slot {
    /// Twice the position, plus 1 while the slot is being written, plus 2 when it is complete.
    pub(crate) const SEQUENCE: usize = 0;
    pub(crate) const ID: usize = 8;
    pub(crate) const ISSUED: usize = 16;
    pub(crate) const EXPIRES: usize = 24;
    /// u8 kind, u8 payload type, u16 bytes of the name, of the target's labels, of the payload.
    pub(crate) const LENGTHS: usize = 32;
    pub(crate) const VERSION: usize = 40;
    pub(crate) const TARGET_INCARNATION: usize = 48;
    pub(crate) const NAME: usize = 64;
    pub(crate) const TARGET: usize = 192;
    pub(crate) const PAYLOAD: usize = 704;
    /// Number of the frame at which a knob is set, since 1.1. It lies behind the longest payload.
    pub(crate) const AT_FRAME: usize = 3_776;
}

/// Bytes of a file with this number of slots.
pub(super) const fn file_bytes(slots: u64) -> usize {
    HEADER_BYTES + slots as usize * SLOT_BYTES
}

/// Offset of the slot of a position; `slots` is a power of two.
pub(super) const fn slot_at(position: u64, slots: u64) -> usize {
    HEADER_BYTES + (position & (slots - 1)) as usize * SLOT_BYTES
}

/// Sequence of a slot that is being written.
pub(super) const fn begun(position: u64) -> u64 {
    position.wrapping_mul(2).wrapping_add(1)
}

/// Sequence of a slot that is complete.
pub(super) const fn whole(position: u64) -> u64 {
    position.wrapping_mul(2).wrapping_add(2)
}

const _: () = assert!(slot::PAYLOAD + PAYLOAD_BYTES_MAX == slot::AT_FRAME);
const _: () = assert!(SLOT_WORDS * 8 <= SLOT_BYTES);
const _: () = assert!(
    header::MOVED / 8 != header::WRITTEN / 8,
    "no word has two widths"
);
const _: () = assert!(slot::NAME + NAME_BYTES_MAX < slot::TARGET);
const _: () = assert!(slot::TARGET + TARGET_BYTES_MAX == slot::PAYLOAD);
const _: () = assert!(SLOTS.is_power_of_two() && SLOTS <= SLOTS_MAX);

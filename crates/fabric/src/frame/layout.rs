//! Sizes and version of frames.

/// Version of the format that is written; versions up to it are read.
pub const VERSION: u8 = 1;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 56;
/// Most bytes of a frame, the header included.
pub const FRAME_BYTES_MAX: usize = 1 << 20;

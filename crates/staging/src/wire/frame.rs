//! The head of a frame, and the bounds of the protocol.

use thiserror::Error;

use crate::bytes::BytesFault;

/// The version of the protocol. A server refuses every other.
pub const PROTOCOL: u16 = 2;
/// Bytes of the head of a frame: length and kind.
pub const HEAD_BYTES: usize = 5;
/// Bytes of the longest body of a frame that is not data.
pub const FRAME_BYTES_MAX: usize = 64 << 10;
/// Bytes of the longest data frame.
pub const CHUNK_BYTES_MAX: usize = 1 << 20;
/// Bytes of the largest block that is sent without being asked for.
pub const EAGER_BYTES_MAX: u64 = 1 << 20;

/// The kind of data frames.
pub(crate) const DATA_KIND: u8 = 16;

/// Bytes that are no frame of this protocol.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum WireFault {
    /// The length of a frame is beyond its bound, or 0.
    #[error("a frame of {0} bytes")]
    Length(u32),
    /// A kind that there is not, or not here.
    #[error("a frame of kind {0}")]
    Kind(u8),
    /// The fields of a body are not those of its kind.
    #[error("the body of a frame of kind {0} is malformed")]
    Body(u8),
}

impl WireFault {
    pub(super) fn body(kind: u8) -> impl Fn(BytesFault) -> Self {
        move |_| Self::Body(kind)
    }
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// The kind of the frame.
    pub kind: u8,
    /// Bytes of its body.
    pub bytes: usize,
}

impl FrameHead {
    /// The head of a frame, from its bytes.
    ///
    /// # Errors
    ///
    /// The length is beyond the bound of its kind.
    pub fn decode(head: [u8; HEAD_BYTES]) -> Result<Self, WireFault> {
        let [a, b, c, d, kind] = head;
        let length = u32::from_le_bytes([a, b, c, d]);
        let bytes_max = match kind {
            DATA_KIND => CHUNK_BYTES_MAX,
            _ => FRAME_BYTES_MAX,
        };
        let bytes = length
            .checked_sub(1)
            .and_then(|it| usize::try_from(it).ok());
        match bytes.filter(|bytes| *bytes <= bytes_max) {
            Some(bytes) => Ok(Self { kind, bytes }),
            None => Err(WireFault::Length(length)),
        }
    }

    /// The bytes of the head.
    pub fn encode(self) -> [u8; HEAD_BYTES] {
        let bytes = u32::try_from(self.bytes + 1).expect("bodies are bounded by the protocol");
        let [a, b, c, d] = bytes.to_le_bytes();
        [a, b, c, d, self.kind]
    }

    /// Whether the frame has bytes of a block.
    pub fn is_data(self) -> bool {
        self.kind == DATA_KIND
    }
}

/// A frame: `body` appends the body.
pub(super) fn framed(kind: u8, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut frame = vec![0; HEAD_BYTES];
    body(&mut frame);
    let bytes = frame.len() - HEAD_BYTES;
    frame[..HEAD_BYTES].copy_from_slice(&FrameHead { kind, bytes }.encode());
    frame
}

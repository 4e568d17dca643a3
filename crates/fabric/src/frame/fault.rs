//! The reasons why a frame is refused.

use barograph_model::ModelError;
use thiserror::Error;

use super::layout::{FRAME_BYTES_MAX, VERSION};

/// The reason why a frame is refused. Nothing of a refused frame is used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum FrameFault {
    /// The bytes do not begin as a frame does.
    #[error("these bytes are no frame of barograph")]
    Foreign,
    /// The frame has a later version of the format.
    #[error(
        "the frame has version {version} and this agent reads versions up to {VERSION}: \
         install the newer barograph here"
    )]
    Newer {
        /// Version of the frame.
        version: u8,
    },
    /// The frame has an unknown kind, or one that is not for its receiver.
    #[error("the frame has kind {kind}, which nobody here takes")]
    Kind {
        /// Number of the kind.
        kind: u8,
    },
    /// The frame has more bytes than allowed.
    #[error("the frame has {bytes} bytes, and at most {FRAME_BYTES_MAX} are allowed")]
    Large {
        /// Bytes of the frame.
        bytes: usize,
    },
    /// The bytes of the frame do not match its checksum, or bytes are missing at its end.
    #[error("the frame was damaged on its way: its checksum does not match")]
    Damaged,
    /// A part of the frame breaks a rule of the format.
    #[error("the frame breaks the format in its {part}")]
    Malformed {
        /// Name of the part.
        part: &'static str,
    },
    /// The descriptor of an announced stream breaks a rule of streams.
    #[error("the frame announces a stream that cannot be: {0}")]
    Descriptor(#[from] ModelError),
}

/// Makes the fault of a part that breaks the format.
pub(super) fn malformed(part: &'static str) -> FrameFault {
    FrameFault::Malformed { part }
}

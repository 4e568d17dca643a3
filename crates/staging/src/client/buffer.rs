//! Where the bytes of a block go that is read.

use crate::error::{FaultCode, StagingError};

/// Where the bytes of a block go.
pub(super) enum BlockBuffer<'a> {
    /// Memory that becomes as long as the block.
    Growing(&'a mut Vec<u8>),
    /// Memory of the caller, of which the block takes the beginning.
    Fixed { memory: &'a mut [u8], filled: usize },
}

impl<'a> BlockBuffer<'a> {
    pub(super) fn fixed(memory: &'a mut [u8]) -> Self {
        Self::Fixed { memory, filled: 0 }
    }

    /// Room for so many bytes, which the buffer has from then on.
    pub(super) fn room(&mut self, bytes: u64) -> Result<&mut [u8], StagingError> {
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        match self {
            Self::Growing(vec) if bytes <= crate::BLOCK_BYTES_MAX => {
                vec.resize(length, 0);
                Ok(vec)
            }
            Self::Fixed { memory, filled } if length <= memory.len() => {
                *filled = length;
                Ok(&mut memory[..length])
            }
            Self::Growing(_) | Self::Fixed { .. } => {
                let text = format!("the block has {bytes} bytes, for which there is no room");
                Err(StagingError::numbered(FaultCode::TooLong, bytes, text))
            }
        }
    }

    /// What was read.
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Growing(vec) => vec,
            Self::Fixed { memory, filled } => &memory[..*filled],
        }
    }
}

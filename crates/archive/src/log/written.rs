//! Knowledge that the writer, the recovery and the sealer share of a segment that is not sealed
//! yet.

use barograph_model::Span;

use super::newest::NewestSegment;

/// The size and time span of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WrittenSegment {
    pub sequence: u64,
    pub bytes: u64,
    pub rows: u64,
    pub span: Span,
}

impl WrittenSegment {
    /// Returns the segment for the record and for the header of the next one.
    pub(crate) fn newest(&self) -> NewestSegment {
        NewestSegment {
            sequence: self.sequence,
            bytes: self.bytes,
        }
    }
}

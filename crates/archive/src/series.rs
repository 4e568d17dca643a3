//! A series as the archive knows it.

use std::sync::Arc;

use barograph_model::{Descriptor, SeriesId, Span};

/// Up to where a series is in the archive: of `life` every sample up to `number` that is not lost,
/// and all earlier lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Archived {
    /// When the stream was registered (`Entry::created_ns` of its segment).
    pub life: i64,
    /// The last sample's number within that life, from 1.
    pub number: u64,
}

/// One series.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Where it was measured.
    pub node: Arc<str>,
    /// Its identity.
    pub id: SeriesId,
    /// What it is.
    pub descriptor: Arc<Descriptor>,
    /// The times of what is archived of it, at any tier.
    pub known: Span,
    /// Up to where it is archived; the default when a tier alone has it.
    pub archived: Archived,
}

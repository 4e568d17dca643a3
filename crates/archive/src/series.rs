//! The description of one archived series.

use std::sync::Arc;

use barograph_model::{Descriptor, SeriesId, Span};

/// The last archived sample of a series: every sample of `life` up to `number` that is not lost,
/// and all earlier lives are in the archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ArchivedUpTo {
    /// Time of the stream's registration, in ns since the epoch (`Entry::created_ns` of its
    /// segment).
    pub life: i64,
    /// Number of the last sample in that life, from 1.
    pub number: u64,
}

/// One series of an archive.
#[derive(Clone, Debug, PartialEq)]
pub struct ArchivedSeries {
    /// Name of the node that measured it.
    pub node: Arc<str>,
    /// Identity of the series: the hash of its descriptor.
    pub id: SeriesId,
    /// Descriptor of its stream.
    pub descriptor: Arc<Descriptor>,
    /// Times of all its archived samples and buckets, at any tier.
    pub known: Span,
    /// Its last archived sample; the default if only a tier has the series.
    pub archived: ArchivedUpTo,
}

/// The declaration of a stream, which the journal takes before the stream's samples.
#[derive(Clone, Debug)]
pub struct DeclaredStream {
    /// Descriptor of the stream.
    pub descriptor: Arc<Descriptor>,
    /// Time of its registration in the segment, in ns since the epoch (`created_ns`).
    pub life: i64,
    /// Number of samples that its ring holds: the log must be written before they are overwritten.
    pub depth: u32,
}

//! The hand-over from the sampler to the archive's thread: bounded, and never waited for.

use std::sync::Arc;

use barograph_model::{Descriptor, Sample, StreamKey};

use crate::ArchiveError;

/// One stream, as it is declared to the journal before its samples.
#[derive(Clone, Debug)]
pub struct Declared {
    /// What it is.
    pub descriptor: Arc<Descriptor>,
    /// When it was registered in the segment (`created_ns`).
    pub life: i64,
    /// Samples that its ring holds: the log must follow before they are gone.
    pub depth: u32,
}

/// What happened to a stream, in order.
#[derive(Clone, Debug)]
pub enum Entry {
    /// A stream begins.
    Declare(StreamKey, Declared),
    /// A sample was appended, as the `u64`th of its life.
    Sample(StreamKey, u64, Sample),
    /// A stream has ended; its key may be used for another.
    Retire(StreamKey),
}

/// How far the journal has come: entries accepted since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(pub u64);

/// The sampler's side. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Journal {}

impl Journal {
    /// Takes the entries and leaves the vector empty with its capacity: one short lock, no system
    /// call unless somebody waits. Samples beyond the bound are lost and counted; declarations
    /// and ends never are.
    pub fn submit(&self, _entries: &mut Vec<Entry>) -> Position {
        unimplemented!()
    }

    /// Waits until everything up to `position` that belongs to durable streams is synced (true), or
    /// the timeout has passed or the writer has failed (false).
    pub fn wait_durable(&self, _position: Position, _timeout: std::time::Duration) -> bool {
        unimplemented!()
    }
}

#[expect(dead_code, reason = "the skeleton")]
type Unused = ArchiveError;

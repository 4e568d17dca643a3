//! Interface between a node that keeps the history of other nodes and the part that writes it.
//!
//! The fabric knows no files of history: it hands over what a feed brings, and acknowledges a frame
//! only when everything in it is durable.

use std::fmt::Debug;

use barograph_model::{Sample, StreamKey};

use crate::frame::{Announcement, Position};

/// The durable history of one segment of another node: of its own streams, or of a scope of its
/// applications.
pub trait DurableHistory: Debug + Send {
    /// Last durable sample of each life of a stream, at the time when the history was opened.
    fn positions(&self) -> Vec<Position>;

    /// Begins a stream, or goes on with it if its life is known.
    fn declare(&mut self, key: StreamKey, announcement: &Announcement);

    /// Ends a stream.
    fn retire(&mut self, key: StreamKey);

    /// Appends a sample with its number in the stream's life at its owner.
    fn append(&mut self, key: StreamKey, number: u64, sample: &Sample);

    /// Notes that the newest value held until at least `looked_ns`, ns since the epoch.
    fn confirm(&mut self, key: StreamKey, looked_ns: i64);

    /// Notes that the samples from this number on, up to the next one that is appended, are not to
    /// be had any more.
    fn miss(&mut self, key: StreamKey, first: u64);

    /// Hands over everything since the last call to the writer, without waiting for it. Returns its
    /// place in the order of writing.
    fn submit(&mut self) -> u64;

    /// Does the work that is due in a writer without threads of its own, as in a simulation.
    fn step(&mut self) {}

    /// Whether everything up to this place is durable, or counted as lost in a durable way.
    fn is_durable(&self, place: u64) -> bool;

    /// Does what is due once a second. Returns what is wrong at present, with its remedy.
    fn beat(&mut self) -> Option<String>;
}

/// The durable histories of other nodes.
pub trait DurableHistories: Debug + Send {
    /// Opens the history of a node's own streams, or of a scope of its applications if one is
    /// named. It may take several calls, none of which waits.
    fn open(&mut self, node: &str, scope: &str) -> HistoryOpening;

    /// Gives up the openings of all nodes and scopes but these, which still wait for theirs.
    fn await_only(&mut self, awaited: &dyn Fn(&str, &str) -> bool);
}

/// The progress of opening a history.
#[derive(Debug)]
pub enum HistoryOpening {
    /// This history is not kept.
    NotKept,
    /// The opening goes on: ask again.
    UnderWay,
    /// The history cannot be opened now, for this reason: ask again. Publications of a scope are
    /// mirrored without it meanwhile; a node's own streams wait for it.
    Failed(String),
    /// The history is open.
    Open(Box<dyn DurableHistory>),
}

//! Server maps: a program does operations at servers that come and go, or is one of these servers
//! (docs/design/0012-agreement.md, "Epochs").
//!
//! An operation is counted in this process's file before what the agent tells is looked at, in the
//! same file. So nothing is sent and nobody is asked: the agent finds the count when it has told of
//! a change. Only who ends the last operation while a change is prepared wakes the agent.
//!
//! The rules are those of [`ToldEpochs`], which are checked. Nobody is held up for ever: an
//! operation that waits for longer than it wants to begins in the epoch that is known, and servers
//! refuse it if that is over.

mod cell;
mod follower;
mod member;
mod server;

use std::sync::Arc;
use std::time::Duration;

use barograph_control::ToldEpochs;
use barograph_model::NS_PER_S;
use barograph_stream::ingest::{MapState, MapTold, MapWords, Producer};

pub use barograph_stream::ingest::{SERVER_NUMBERS, ServerSet};
pub use follower::{MapFollower, ToldMap};
pub use member::{MAP_WAIT_DEFAULT, MapOperation, MapStart, RawOperation, ServerMap};
pub use server::{MapFenced, MapRequest, MapServer, RawRequest};

use super::process::Process;
use super::{Publication, thread};
use cell::MapCell;

/// Longest wait for the first word of an agent about a map. Who has none then goes on without.
const TOLD_NS_MAX: i64 = 2 * NS_PER_S;
/// Time between two knocks of who waits.
const RENEW_NS: i64 = NS_PER_S / 2;
/// Pause of who finds a word that is being changed.
const TORN_NS: i64 = 100_000;

/// The use of a map by this process, as a member or as a server: a slot of its file.
#[derive(Clone, Debug)]
struct MapUse {
    publication: Publication,
    /// `None` if nothing is published.
    slot: Option<u8>,
}

/// What is known of a map at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// No agent has said anything yet, and it may still do so.
    NotYet,
    /// Nobody keeps the map, or nobody is there who could say so.
    Nobody,
    /// This is told.
    Told(MapWords),
    /// What is told is being changed.
    Torn,
}

impl MapUse {
    fn generation(&self) -> u32 {
        thread::generation_of(self.publication.to_raw())
    }

    /// The file of this process and the slot in it. A child of a fork gets a file here.
    fn place(&self) -> Option<(Arc<Process>, u8, &'static MapCell)> {
        let slot = self.slot?;
        let process = thread::process_of(self.generation())?;
        Some((process, slot, cell::of(slot)))
    }

    /// The same if it exists.
    fn existing(&self) -> Option<(Arc<Process>, u8, &'static MapCell)> {
        let slot = self.slot?;
        let process = thread::existing_process_of(self.generation())?;
        Some((process, slot, cell::of(slot)))
    }
}

/// Looks at what is told of a slot.
fn known(producer: &Producer, slot: u8, cell: &MapCell) -> Known {
    match producer.map_told(slot) {
        MapTold::Words(words) if words.state == MapState::Told => Known::Told(words),
        MapTold::Words(_) => Known::Nobody,
        MapTold::Torn => Known::Torn,
        MapTold::Nothing if cell.is_alone() => Known::Nobody,
        MapTold::Nothing => Known::NotYet,
    }
}

fn epochs_of(words: &MapWords) -> ToldEpochs {
    ToldEpochs {
        prepare: words.prepare,
        epoch: words.epoch,
        fence: words.fence,
    }
}

/// Sleeps until something is told, or for so long.
fn sleep(producer: &Producer, moved: u32, left_ns: i64) {
    let longest = Duration::from_nanos(left_ns.max(1).unsigned_abs());
    producer.wait_for_answers(moved, longest);
}

/// The mark of a file in the number of an operation: one of another file, as that of the parent of
/// a fork, changes nothing here. It is never 0.
fn mark_of(producer: &Producer) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = producer.incarnation().0;
    u64::from_le_bytes([a, b, c, d, e, f, g, h]) & !OPERATION_MASK | MARK_ONE
}

/// Bits of the number of an operation that are not the mark: the slot, and the word with which a
/// request is counted.
const OPERATION_MASK: u64 = 0xff;
const SLOT_SHIFT: u32 = 3;
const WORD_MASK: u64 = 7;
const MARK_ONE: u64 = 1 << 8;

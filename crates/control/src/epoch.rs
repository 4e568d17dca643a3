//! Epochs: versions of a map of servers on which many processes agree, so that a server can be
//! added or taken out while they do I/O (CLARISSE's slides, "Scale-down protocol").
//!
//! Five roles, each a state machine without I/O: it is given messages, counts and the time, and
//! returns what is to be sent and saved.
//!
//! * The **controller** ([`EpochController`]) changes the map. It prepares the change, waits until
//!   all members have ended their operations of the old epoch, commits, fences the servers, and
//!   then lets the members go on.
//! * A **member** ([`EpochMember`]) does I/O. It suspends operations of the next epoch. If it hears
//!   nothing for a stated time, it goes on in the old epoch, so that no I/O waits for a controller
//!   that was lost before it has committed the change.
//! * A **node controller** ([`EpochNode`]) answers for the members and servers of its node, which
//!   count their operations in memory that it reads: it is one member to the controller.
//! * A **server** ([`EpochServer`]) refuses operations of epochs before its fence, whoever sends
//!   them: so a member that nobody could reach does no harm. The node on which it is, its home, is
//!   in the store before it is told anything. On another node it is told nothing before it is
//!   certain that it has ended at home.
//! * The **store** keeps the controller's [`EpochRecord`]. A controller claims a higher term than
//!   all before, and gets the record in the same step; from then on the store takes records of that
//!   term alone. (Reading first and claiming with the first record would undo what the controller
//!   before wrote in between.) It is the caller's, and the one place where two controllers meet.
//!
//! What holds: once an operation of an epoch was served, no operation of an earlier epoch is served
//! by any server. A change is committed or aborted as a whole, also if its controller dies at any
//! step: the next one reads the record and ends it.

mod controller;
mod dataset;
mod member;
mod node;
mod server;
mod told;

use std::collections::{BTreeMap, BTreeSet};

pub use controller::{ChangeEnd, ChangeRefusal, ControllerOutput, EpochController, EpochTimes};
pub use dataset::DatasetMap;
pub use member::{EpochMember, MemberOutput, OperationStart};
pub use node::{
    EpochNode, EpochOrder, EpochUse, EpochUseId, NodeOutput, NodeServer, NodeTell, NodeWord,
};
pub use server::EpochServer;
pub use told::{EpochStart, ServerAnswer, ToldEpochs};

/// The number of a member or of a server, given by the caller.
pub type ProcessId = u64;

/// The number of a node, given by the caller: the same to all controllers.
pub type NodeId = u64;

/// The servers of an epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerMap {
    /// The number of the epoch. A number that was aborted is not used again.
    pub epoch: u64,
    /// The servers that serve operations of the epoch.
    pub servers: BTreeSet<ProcessId>,
}

/// What a controller keeps in the store, where the next one finds it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct EpochRecord {
    /// The term of the controller that has written it.
    pub term: u64,
    /// The map that holds.
    pub map: ServerMap,
    /// The highest number of an epoch that was begun.
    pub last_epoch: u64,
    /// The change that is under way.
    pub change: Option<EpochChange>,
    /// The node of each server that may be at work, or was and is not known to have ended there.
    pub homes: BTreeMap<ProcessId, NodeId>,
}

/// A change that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EpochChange {
    /// The map that it leads to.
    pub map: ServerMap,
    /// Whether it can no longer be aborted.
    pub is_committed: bool,
}

/// A message of a controller to a member or a server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ControllerMessage {
    /// The term of the sender: who has heard of a higher one does not listen.
    pub term: u64,
    /// What is said.
    pub what: ControllerWord,
}

/// What a controller says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ControllerWord {
    /// To members: suspend operations of this epoch, and end those before it.
    Prepare {
        /// The next epoch.
        epoch: u64,
    },
    /// To members: go on in the old epoch.
    Abort {
        /// The epoch that will not come.
        epoch: u64,
    },
    /// To servers: refuse operations of earlier epochs from now on.
    Fence {
        /// The first epoch that is served.
        epoch: u64,
    },
    /// To members and servers: this map holds.
    Switch {
        /// The map that is used from now on.
        map: ServerMap,
    },
}

/// What a member or a server says to a controller.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProcessWord {
    /// A member: I have suspended operations of this epoch; this was the last one before it.
    Suspended {
        /// The next epoch.
        epoch: u64,
        /// Operations that have not ended.
        running: u64,
    },
    /// A member: all operations before this epoch have ended.
    Drained {
        /// The next epoch.
        epoch: u64,
    },
    /// A server: I refuse operations of epochs before this one.
    Fenced {
        /// The first epoch that it serves.
        epoch: u64,
    },
    /// A member: I use the map of this epoch. It is sent regularly, and tells a controller who
    /// has missed something.
    Uses {
        /// The number of that epoch.
        epoch: u64,
    },
}

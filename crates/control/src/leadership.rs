//! Which of several nodes leads, and the store of what a leader must not forget: the election of
//! global controllers.
//!
//! The nodes that may lead are a fixed list, and each of them keeps a [`LeaderReplica`] on its
//! disk. A node that hears of no leader claims a term that is higher than all it knows. It leads
//! when a majority of replicas has promised that term to it, and it gets their records in the same
//! step; from then on these replicas take records of this leader or of later ones alone. Any two
//! majorities have a replica in common, so there is at most one leader for each term, and it finds
//! every record that an earlier one has saved (Lamport, "Paxos Made Simple", 2001, with one
//! register for each key).
//!
//! A leader whose term is not confirmed by a majority for a while steps down by itself. That is for
//! those who ask a leader without saving anything. Whatever must not be decided twice is saved.

mod election;
mod replica;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use election::{LeaderElection, LeaderTimes, LeadershipState, SaveEnd};
pub use replica::{LeaderReplica, ReplicaAnswer, ReplicaRefusal};

/// Most keys of records.
pub const RECORDS_MAX: usize = 128;
/// Most bytes of a record. All records together fit into one word between nodes, of 1 MiB.
pub const RECORD_BYTES_MAX: usize = 6_144;
/// Most bytes of the key of a record.
pub const RECORD_KEY_BYTES_MAX: usize = 128;
/// Most nodes that may lead.
pub const LEADERS_MAX: usize = 15;

/// A record of a leader, as a replica has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaderRecord {
    /// The term of the leader that has saved it.
    pub term: u64,
    /// Its place among what the leader has saved.
    pub sequence: u64,
    /// What was saved.
    pub text: String,
}

/// A word between nodes that may lead.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "word", rename_all = "snake_case", deny_unknown_fields)]
pub enum LeaderWord {
    /// Of a node that wants to lead.
    Claim {
        /// The term that it claims.
        term: u64,
        /// The nodes that may lead, as it knows them.
        leaders: Vec<String>,
    },
    /// Of a replica: records of earlier leaders are not taken any more.
    Promise {
        /// The term.
        term: u64,
        /// What the replica has.
        records: BTreeMap<String, LeaderRecord>,
    },
    /// Of a leader: keep this.
    Save {
        /// The key of the record.
        key: String,
        /// The record.
        record: LeaderRecord,
    },
    /// Of a replica: it is on disk.
    Saved {
        /// The term of the record.
        term: u64,
        /// Its place.
        sequence: u64,
    },
    /// Of a leader, regularly.
    Leads {
        /// Its term.
        term: u64,
        /// A number that the answer returns.
        beat: u64,
    },
    /// Of a replica: it follows.
    Follows {
        /// The term.
        term: u64,
        /// The number of the word that is answered.
        beat: u64,
    },
    /// Of a replica: it has promised this term to another node, or hears its leader.
    Refused {
        /// The term that was refused.
        term: u64,
        /// The highest term that the replica knows.
        highest: u64,
        /// Whether the two nodes know different lists of nodes that may lead.
        lists_differ: bool,
    },
}

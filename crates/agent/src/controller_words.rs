//! The words between the controllers of nodes, as JSON.

mod maps;

use barograph_control::LeaderWord;
use serde::{Deserialize, Serialize};

pub(crate) use maps::{
    LedMapRow, MAP_NAME_BYTES_MAX, MapChange, MapEnd, MapKey, MapOrder, MapWord, SERVERS_MAX,
    ServerLoad, ServerWord, servers_of, servers_text,
};

/// Most phases, or processes that have ended, in one report.
pub(crate) const REPORT_PARTS_MAX: usize = 256;
/// Most answers in one word.
pub(crate) const ANSWERS_MAX: usize = 1_024;

/// A word.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "of", rename_all = "snake_case")]
pub(crate) enum AgreementWord {
    /// Between nodes that may lead.
    Leader(LeaderWord),
    /// Of a node that looks for the leader.
    Who,
    /// The answer, and that to a report to a node that does not lead.
    LedBy {
        /// The name of the leader, if one is known.
        leader: Option<String>,
        /// Its term.
        term: u64,
    },
    /// Of a node to the leader.
    Report(NodeReport),
    /// Of the leader to a node.
    Orders(NodeOrders),
    /// Of any node to the leader: a map is to be changed.
    Change {
        /// A number of the sender's, which the answer returns.
        id: u64,
        /// The user and the name of the map.
        user: u32,
        name: String,
        change: MapChange,
    },
    /// The answer: the epoch that was begun, or why none was.
    Changed {
        /// The number of the question.
        id: u64,
        outcome: Result<u64, String>,
    },
    /// Of any node to the leader: which maps are there? Of one user, or of all.
    Maps {
        /// A number of the sender's, which the answer returns.
        id: u64,
        user: Option<u32>,
    },
    /// The answer.
    MapsAre {
        /// The number of the question.
        id: u64,
        maps: Vec<LedMapRow>,
    },
}

/// What a node reports to the leader.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeReport {
    /// A number of this life of its agent.
    pub life: u64,
    /// The number of the report; those of earlier ones are less.
    pub sequence: u64,
    /// Whether it is the first one to this leader: nothing that it has heard before counts.
    pub begins: bool,
    /// Phases of I/O on shared volumes that are new or have changed.
    pub phases: Vec<PhaseWord>,
    /// Processes that have ended, as 32 hexadecimal digits.
    pub left: Vec<String>,
    /// Maps of servers that are new or have changed.
    #[serde(default)]
    pub maps: Vec<MapWord>,
}

/// A phase of I/O of a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PhaseWord {
    /// The name of the volume in the configuration.
    pub volume: String,
    /// The process, as 32 hexadecimal digits.
    pub process: String,
    /// Its number of the phase.
    pub phase: u64,
    /// 0: ended, 1: waits, 2: does I/O with a grant, 3: does I/O without one.
    pub stage: u8,
    /// The number of its user, which means the same user on all nodes.
    pub user: u32,
    pub application: String,
    pub job: String,
    /// 1 to 10.
    pub priority: u8,
    /// The bytes that it has declared.
    pub bytes: Option<u64>,
    /// The bytes that it has read and written.
    pub done: u64,
    /// The time after which it is over if nothing is heard of it, in ns; `None` for the leader's.
    #[serde(default)]
    pub lease_ns: Option<i64>,
    /// What stands for the process where it has several numbers. Nothing is sent where it has one,
    /// so that a leader of an earlier version understands the word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// What the leader orders.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeOrders {
    /// The term of the leader.
    pub term: u64,
    /// The newest report of the node that it has heard.
    pub heard: u64,
    /// Answers to phases.
    pub answers: Vec<AnswerWord>,
    /// What is newest of maps.
    #[serde(default)]
    pub maps: Vec<MapOrder>,
}

/// The answer to a phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AnswerWord {
    /// The process, as 32 hexadecimal digits.
    pub process: String,
    pub phase: u64,
    /// 1: it waits, 2: it may do I/O, 3: nobody schedules it.
    pub state: u8,
    /// Its share of the volume, 0 to 1.
    pub share: f64,
}

/// A process as text.
pub(crate) fn process_text(process: u128) -> String {
    format!("{process:032x}")
}

/// The process of a text.
pub(crate) fn process_of(text: &str) -> Option<u128> {
    let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex
        .then(|| u128::from_str_radix(text, 16).ok())
        .flatten()
}

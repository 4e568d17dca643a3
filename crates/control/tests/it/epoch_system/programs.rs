//! Programs of a system with node controllers: members and servers that count in memory, and decide
//! by what they find there. They do what `publish/maps` of the client does.

use std::collections::BTreeMap;

use barograph_control::{
    EpochOrder, EpochStart, EpochUse, EpochUseId, ProcessId, ServerAnswer, ServerMap, ToldEpochs,
};

/// The memory that a program shares with its node.
#[derive(Clone, Debug, Default)]
pub(super) struct Slot {
    /// What the program finds that it was told last.
    pub(super) told: Option<EpochOrder>,
    /// The number of the newest words that this life of its node controller has written.
    pub(super) seen: u64,
}

/// An operation of a member that has not been done.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    /// What it runs with; `None` if it waits.
    pub(super) runs: Option<Running>,
    pub(super) begun_ns: i64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    pub(super) epoch: u64,
    pub(super) server: ProcessId,
    /// Whether it has begun since the patience of its member was over.
    pub(super) is_late: bool,
    /// The time of the newest request.
    pub(super) sent_ns: i64,
}

/// A process that does operations.
pub(super) struct Member {
    pub(super) node: u64,
    pub(super) process: u128,
    pub(super) slot: Slot,
    /// The greatest fence with which a server has refused it.
    refused: u64,
    /// The epoch for which it waits, and since when.
    waits: (u64, i64),
    pub(super) operations: BTreeMap<u64, Operation>,
}

impl Member {
    pub(super) fn new(node: u64, process: u128) -> Self {
        Self {
            node,
            process,
            slot: Slot::default(),
            refused: 0,
            waits: (0, 0),
            operations: BTreeMap::new(),
        }
    }

    /// Whether an operation may begin: in which map, and whether patience is over.
    pub(super) fn start(&mut self, now_ns: i64, patience_ns: i64) -> Option<(ServerMap, bool)> {
        let order = self.slot.told.as_ref()?;
        let epochs = order.epochs();
        if epochs.prepare > epochs.epoch && self.waits.0 != epochs.prepare {
            self.waits = (epochs.prepare, now_ns);
        }
        let has_patience = now_ns - self.waits.1 < patience_ns;
        let is_late = epochs.prepare > epochs.epoch && !has_patience;
        match epochs.start(self.refused, has_patience) {
            EpochStart::Now => Some((order.map.clone(), is_late)),
            EpochStart::Suspended | EpochStart::Behind => None,
        }
    }

    /// Takes in an answer; whether the operation is done.
    pub(super) fn answered(&mut self, operation: u64, answer: ServerAnswer) -> bool {
        let Some(known) = self.operations.get_mut(&operation) else {
            return false;
        };
        let Some(runs) = known.runs else {
            return false;
        };
        match answer {
            ServerAnswer::Served => self.operations.remove(&operation).is_some(),
            // An answer to an earlier attempt.
            ServerAnswer::Fenced { fence } if fence <= runs.epoch => false,
            ServerAnswer::Fenced { fence } => {
                known.runs = None;
                self.refused = self.refused.max(fence);
                false
            }
        }
    }

    pub(super) fn running(&self) -> impl Iterator<Item = &Running> {
        self.operations.values().filter_map(|it| it.runs.as_ref())
    }

    pub(super) fn counts(&self) -> EpochUse {
        EpochUse::Member {
            running: self.running().count() as u64,
            refused: self.refused,
        }
    }
}

/// An operation that a server does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Serving {
    pub(super) epoch: u64,
    pub(super) member: usize,
    pub(super) operation: u64,
    pub(super) until_ns: i64,
}

/// A process that serves operations. It keeps nothing on a disk.
pub(super) struct Server {
    pub(super) node: u64,
    pub(super) number: ProcessId,
    pub(super) process: u128,
    pub(super) slot: Slot,
    /// The greatest fence that it was told; it is not forgotten while the process runs.
    fence: u64,
    pub(super) serving: Vec<Serving>,
    /// The time at which it begins.
    pub(super) begins_ns: i64,
}

impl Server {
    pub(super) fn new(node: u64, number: ProcessId, process: u128, begins_ns: i64) -> Self {
        Self {
            node,
            number,
            begins_ns,
            process,
            slot: Slot::default(),
            fence: 0,
            serving: Vec::new(),
        }
    }

    /// The first epoch that it serves, if it was told one.
    pub(super) fn fence(&mut self) -> Option<u64> {
        let told = self.slot.told.as_ref().map_or(0, |order| order.fence);
        self.fence = self.fence.max(told);
        (self.fence > 0).then_some(self.fence)
    }

    /// Decides about a request of an epoch; `None` before it was told a fence.
    pub(super) fn serve(&mut self, epoch: u64) -> Option<ServerAnswer> {
        let told = ToldEpochs {
            fence: self.fence()?,
            ..ToldEpochs::default()
        };
        Some(told.serve(epoch))
    }

    pub(super) fn counts(&self) -> EpochUse {
        EpochUse::Server {
            number: self.number,
            oldest_epoch: self.serving.iter().map(|it| it.epoch).min(),
        }
    }
}

/// What is left of a process that has ended, until its node sees that: its counts stay as they are.
pub(super) struct Ended {
    pub(super) node: u64,
    pub(super) process: u128,
    pub(super) counts: EpochUse,
    pub(super) seen: u64,
}

/// The use of a process that has one.
pub(super) fn use_of(process: u128) -> EpochUseId {
    EpochUseId { process, slot: 0 }
}

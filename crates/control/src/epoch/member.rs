//! A member: it does operations in the epoch of its map, and suspends those of the next one.

use std::collections::BTreeMap;

use super::{ControllerMessage, ControllerWord, EpochStart, ProcessWord, ServerMap, ToldEpochs};

/// A process that does I/O.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EpochMember {
    term: u64,
    map: ServerMap,
    /// Operations that have begun and not ended, with their epochs.
    running: BTreeMap<u64, u64>,
    suspended: Option<Suspension>,
    /// The highest epoch of which a server has told, when it refused an operation.
    fence: u64,
    patience_ns: i64,
}

/// New operations wait for an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Suspension {
    epoch: u64,
    /// The time at which the member goes on alone.
    until_ns: i64,
    is_drained_told: bool,
}

/// Whether an operation may begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationStart {
    /// In the epoch of this map.
    Now(ServerMap),
    /// It waits for the next epoch; ask again after the next message, or at this time.
    Later {
        /// The time at which the member goes on alone; `None` while servers refuse the epoch
        /// of its map.
        at_ns: Option<i64>,
    },
}

/// What a member does after a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberOutput {
    /// What it says to the controller.
    pub says: Option<ProcessWord>,
    /// Whether operations that wait may begin.
    pub is_open: bool,
}

impl EpochMember {
    /// A member with a map, which goes on alone after so long.
    pub fn new(map: ServerMap, patience_ns: i64) -> Self {
        Self {
            term: 0,
            map,
            running: BTreeMap::new(),
            suspended: None,
            fence: 0,
            patience_ns,
        }
    }

    /// The map in use.
    pub fn map(&self) -> &ServerMap {
        &self.map
    }

    /// The number of operations that have begun and not ended.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Begins an operation, or has it wait.
    pub fn begin(&mut self, operation: u64, now_ns: i64) -> OperationStart {
        self.suspended = self.suspended.filter(|it| it.until_ns > now_ns);
        let until_ns = self.suspended.map(|it| it.until_ns);
        match self.told().start(self.fence, until_ns.is_some()) {
            EpochStart::Now => {
                self.running.insert(operation, self.map.epoch);
                OperationStart::Now(self.map.clone())
            }
            EpochStart::Suspended => OperationStart::Later { at_ns: until_ns },
            // Servers know of a later epoch: the map will come.
            EpochStart::Behind => OperationStart::Later { at_ns: None },
        }
    }

    /// Ends an operation, done or not.
    pub fn end(&mut self, operation: u64) -> MemberOutput {
        self.running.remove(&operation);
        MemberOutput {
            says: self.drained(),
            is_open: false,
        }
    }

    /// Ends an operation that a server has refused: it begins again in a later epoch.
    pub fn refused(&mut self, operation: u64, fence: u64) -> MemberOutput {
        self.fence = self.fence.max(fence);
        let output = self.end(operation);
        // Who is behind asks for the map by saying so.
        let behind = ProcessWord::Uses {
            epoch: self.map.epoch,
        };
        MemberOutput {
            says: output.says.or(Some(behind)),
            ..output
        }
    }

    /// Takes in a message of a controller.
    pub fn hear(&mut self, message: &ControllerMessage, now_ns: i64) -> MemberOutput {
        let nothing = MemberOutput::default();
        if message.term < self.term {
            return nothing;
        }
        self.term = message.term;
        match &message.what {
            ControllerWord::Prepare { epoch } if *epoch > self.map.epoch => {
                let is_known = self.suspended.is_some_and(|it| it.epoch == *epoch);
                if !is_known {
                    self.suspended = Some(Suspension {
                        epoch: *epoch,
                        until_ns: now_ns.saturating_add(self.patience_ns),
                        is_drained_told: false,
                    });
                }
                let running = self.running.len() as u64;
                let says = match running {
                    0 => ProcessWord::Drained { epoch: *epoch },
                    _ => ProcessWord::Suspended {
                        epoch: *epoch,
                        running,
                    },
                };
                MemberOutput {
                    says: Some(says),
                    ..nothing
                }
            }
            ControllerWord::Abort { epoch } => {
                let is_meant = self.suspended.is_some_and(|it| it.epoch == *epoch);
                if is_meant {
                    self.suspended = None;
                }
                MemberOutput {
                    is_open: is_meant,
                    ..nothing
                }
            }
            ControllerWord::Switch { map } if map.epoch > self.map.epoch => {
                self.map = map.clone();
                self.suspended = self.suspended.filter(|it| it.epoch > map.epoch);
                MemberOutput {
                    says: Some(ProcessWord::Uses { epoch: map.epoch }),
                    is_open: self.suspended.is_none(),
                }
            }
            _ => MemberOutput {
                says: Some(ProcessWord::Uses {
                    epoch: self.map.epoch,
                }),
                ..nothing
            },
        }
    }

    /// What a member says regularly.
    pub fn heartbeat(&self) -> ProcessWord {
        ProcessWord::Uses {
            epoch: self.map.epoch,
        }
    }

    /// What it has been told, as far as that decides about operations.
    fn told(&self) -> ToldEpochs {
        ToldEpochs {
            prepare: self.suspended.map_or(0, |it| it.epoch),
            epoch: self.map.epoch,
            fence: 0,
        }
    }

    fn drained(&mut self) -> Option<ProcessWord> {
        let is_drained = self.running.is_empty();
        let suspension = self.suspended.as_mut();
        let suspension = suspension.filter(|it| is_drained && !it.is_drained_told)?;
        suspension.is_drained_told = true;
        Some(ProcessWord::Drained {
            epoch: suspension.epoch,
        })
    }
}

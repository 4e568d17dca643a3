//! A node controller: it answers for the programs of its node that use a map, so that a leader
//! hears one word of a node and not one of each process.
//!
//! Programs do not send it anything. They count their operations in memory, look at what they are
//! told there, and whoever runs this machine reports what it has read of each use of the map. What
//! the machine rests on is the order of a report: `seen` is the number of the newest words that had
//! been written for the use before its counts were read.
//!
//! It decides nothing about the map and keeps nothing: what a leader orders replaces what it
//! ordered before, and one that is lost is replaced by a new one, whose programs are reported anew.

use std::collections::{BTreeMap, BTreeSet};

use super::{ProcessId, ServerMap, ToldEpochs};

/// What a leader orders, for all programs that use a map. It is a level: each order replaces the
/// one before, so any of them may be lost, doubled or late.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct EpochOrder {
    /// The epoch that is being prepared; 0, or not above that of the map, for none.
    pub prepare: u64,
    /// The first epoch that servers serve.
    pub fence: u64,
    /// The map in force.
    pub map: ServerMap,
}

impl EpochOrder {
    /// What programs decide by.
    pub fn epochs(&self) -> ToldEpochs {
        ToldEpochs {
            prepare: self.prepare,
            epoch: self.map.epoch,
            fence: self.fence,
        }
    }
}

/// A use of a map: the process, and the place in which it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EpochUseId {
    /// The process. Two processes that follow each other differ.
    pub process: u128,
    /// The place, as a process may use several maps, and be a member and a server of one.
    pub slot: u8,
}

/// What a process is for a map, as its counts were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EpochUse {
    /// It does operations.
    Member {
        /// Operations that have begun and not ended.
        running: u64,
        /// The greatest fence with which a server has refused one; 0 if none has.
        refused: u64,
    },
    /// It is a server.
    Server {
        /// The number of the server.
        number: ProcessId,
        /// The lowest epoch of an operation that it is serving.
        oldest_epoch: Option<u64>,
    },
}

/// What programs are to be told. It replaces what they were told before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeTell {
    /// A number above those of all that these uses were told before.
    pub number: u64,
    /// What holds.
    pub order: EpochOrder,
    /// The uses that are told.
    pub uses: Vec<EpochUseId>,
}

/// What comes of a report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeOutput {
    /// Whether the use is not as it was reported before, so that the leader may have to know.
    pub has_changed: bool,
    /// What this use is to be told.
    pub tell: Option<NodeTell>,
}

/// What a node says of a map to its leader. It is a level as well.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeWord {
    /// Uses as a member.
    pub members: u64,
    /// Their operations that run.
    pub running: u64,
    /// The epoch in force, as the node was told.
    pub epoch: u64,
    /// The epoch for which all its members suspend operations; 0 for none.
    pub prepared: u64,
    /// Whether no operation of an epoch before that one runs.
    pub is_drained: bool,
    /// The greatest fence with which a server has refused an operation.
    pub refused: u64,
    /// The servers of the node.
    pub servers: Vec<NodeServer>,
    /// Servers whose processes have certainly ended, with these.
    pub gone: Vec<(ProcessId, u128)>,
}

/// A server of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeServer {
    /// The number of the server.
    pub number: ProcessId,
    /// Its process.
    pub process: u128,
    /// It serves nothing of epochs before this one any more; 0 if that is not certain.
    pub fence: u64,
}

/// The controller of a map on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct EpochNode {
    /// The highest term of a leader that was heard: those before it are not listened to.
    term: u64,
    /// What is ordered; `None` before a leader has said anything.
    order: Option<EpochOrder>,
    /// The number of this order, and of the first ones with this prepared epoch and this fence.
    number: u64,
    prepared: u64,
    fenced: u64,
    uses: BTreeMap<EpochUseId, UseState>,
    /// Servers whose process has certainly ended, with its number.
    gone: BTreeMap<ProcessId, u128>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct UseState {
    of: EpochUse,
    /// The newest words that had been written before the counts were read.
    seen: u64,
    /// The newest words that it was to be told.
    told: u64,
    /// Whether the leader knows of this process; only for servers.
    is_known: bool,
}

impl EpochNode {
    /// Takes in what a use is, and the number of the newest words ([`NodeTell::number`]) that had
    /// been written for it before its counts were read; 0 if none of this controller had.
    pub fn report(&mut self, id: EpochUseId, of: EpochUse, seen: u64) -> NodeOutput {
        if self.uses.is_empty() {
            // What was ordered while nobody used the map may be over.
            self.order = None;
        }
        // Words of a controller before this one may have had greater numbers.
        self.number = self.number.max(seen);
        if let EpochUse::Server { number, .. } = of {
            self.gone.remove(&number);
        }
        let known = self.uses.get(&id).copied();
        let state = UseState {
            of,
            seen,
            told: known.map_or(0, |known| known.told),
            is_known: known.is_some_and(|known| known.is_known),
        };
        self.uses.insert(id, state);
        NodeOutput {
            has_changed: known != Some(state),
            tell: self.tell(&[id]),
        }
    }

    /// Takes in that a process has ended, or, if that is not certain, that nothing is known of it
    /// any more. Returns whether it has used the map.
    pub fn leave(&mut self, process: u128, is_certain: bool) -> bool {
        let id = |slot| EpochUseId { process, slot };
        let left = self.uses.extract_if(id(0)..=id(u8::MAX), |_, _| true);
        let left: Vec<UseState> = left.map(|(_, state)| state).collect();
        for number in left.iter().filter_map(UseState::server) {
            // If its next process is there already, the server has not ended.
            let mut others = self.uses.values();
            if is_certain && !others.any(|state| state.server() == Some(number)) {
                self.gone.insert(number, process);
            }
        }
        !left.is_empty()
    }

    /// Takes in what the leader of a term orders, and the newest word of this node that this leader
    /// had heard then, with the servers whose home in the store was this node.
    ///
    /// A server is told a fence when the leader of the newest term knows of its process and has
    /// saved where it is, and what it is told is what the leader ordered then, or later: each
    /// change after that waits for this server, also that of another leader. Otherwise a server
    /// that comes back where the newest was not heard, or elsewhere, could serve what is over.
    pub fn hear(
        &mut self,
        term: u64,
        order: &EpochOrder,
        heard: Option<(&NodeWord, &BTreeSet<ProcessId>)>,
    ) -> Option<NodeTell> {
        if term < self.term {
            return None;
        }
        if term > self.term {
            // This leader knows of no server yet.
            let uses = self.uses.values_mut();
            uses.for_each(|state| state.is_known = false);
        }
        let known = self.order.as_ref().filter(|_| term == self.term);
        let is_late = known
            .is_some_and(|known| order.map.epoch < known.map.epoch || order.fence < known.fence);
        self.term = term;
        if !is_late {
            self.renew(order);
        }
        let (servers, homes) = match heard {
            Some((word, homes)) => (&word.servers[..], homes),
            None => (&[][..], &BTreeSet::new()),
        };
        for server in servers.iter().filter(|it| homes.contains(&it.number)) {
            let of_process = self.uses.iter_mut();
            let mut of_process = of_process.filter(|(id, state)| {
                let is_meant = |number| number == server.number;
                id.process == server.process && state.server().is_some_and(is_meant)
            });
            if let Some((_, state)) = of_process.next() {
                state.is_known = true;
            }
        }
        let uses: Vec<EpochUseId> = self.uses.keys().copied().collect();
        self.tell(&uses)
    }

    /// What the leader is to know.
    pub fn word(&self) -> NodeWord {
        let told = self.told();
        let unfenced = self.unfenced();
        let mut word = NodeWord {
            epoch: told.epoch,
            gone: self.gone.iter().map(|(of, by)| (*of, *by)).collect(),
            ..NodeWord::default()
        };
        let mut is_behind = false;
        for (id, state) in &self.uses {
            match state.of {
                EpochUse::Member { running, refused } => {
                    word.members += 1;
                    word.running = word.running.saturating_add(running);
                    word.refused = word.refused.max(refused);
                    // Its operations may be of the old epoch, though none is counted.
                    is_behind |= state.seen < self.prepared;
                }
                EpochUse::Server { number, .. } => word.servers.push(NodeServer {
                    number,
                    process: id.process,
                    fence: if unfenced.contains(&number) {
                        0
                    } else {
                        told.fence
                    },
                }),
            }
        }
        word.prepared = if is_behind { 0 } else { told.prepare };
        word.is_drained = told.prepare > told.epoch && !is_behind && word.running == 0;
        word
    }

    /// What the leader has ordered last; `None` before it has said anything.
    pub fn order(&self) -> Option<&EpochOrder> {
        self.order.as_ref()
    }

    /// Whether nothing is kept that a leader may have to know: nobody uses the map, and no server
    /// of it has ended here.
    pub fn is_unused(&self) -> bool {
        self.uses.is_empty() && self.gone.is_empty()
    }

    /// Whether some process uses the map.
    pub fn has_uses(&self) -> bool {
        !self.uses.is_empty()
    }

    fn told(&self) -> ToldEpochs {
        let order = self.order.as_ref();
        order.map_or(ToldEpochs::default(), EpochOrder::epochs)
    }

    fn renew(&mut self, order: &EpochOrder) {
        if self.order.as_ref() == Some(order) {
            return;
        }
        self.number += 1;
        let before = self.told();
        if order.prepare != before.prepare {
            self.prepared = self.number;
        }
        if order.fence != before.fence || self.order.is_none() {
            self.fenced = self.number;
        }
        self.order = Some(order.clone());
    }

    /// What is told to those of these uses that were not told it. A server of which the leader does
    /// not know is told nothing.
    fn tell(&mut self, uses: &[EpochUseId]) -> Option<NodeTell> {
        let order = self.order.as_ref()?;
        let number = self.number;
        let mut told = Vec::new();
        for id in uses {
            let state = self.uses.get_mut(id)?;
            let is_awaited = state.server().is_some() && !state.is_known;
            if state.told < number && !is_awaited {
                state.told = number;
                told.push(*id);
            }
        }
        (!told.is_empty()).then(|| NodeTell {
            number,
            order: order.clone(),
            uses: told,
        })
    }

    /// Servers that may serve operations of epochs before the fence that is ordered: of several
    /// processes of a number, one has ended, and nobody has seen yet which.
    fn unfenced(&self) -> BTreeSet<ProcessId> {
        let fence = self.told().fence;
        let uses = self.uses.values();
        // The counts were read after the fence had been written, and none before it runs.
        let unfenced = uses.filter(|state| {
            let is_told = state.is_known && state.seen >= self.fenced;
            !is_told || !state.serves_from(fence)
        });
        unfenced.filter_map(UseState::server).collect()
    }
}

impl UseState {
    /// The number of the server, if it is one.
    fn server(&self) -> Option<ProcessId> {
        match self.of {
            EpochUse::Server { number, .. } => Some(number),
            EpochUse::Member { .. } => None,
        }
    }

    /// Whether nothing that it serves is of an epoch before this one.
    fn serves_from(&self, fence: u64) -> bool {
        match self.of {
            EpochUse::Server { oldest_epoch, .. } => oldest_epoch.is_none_or(|it| it >= fence),
            EpochUse::Member { .. } => true,
        }
    }
}

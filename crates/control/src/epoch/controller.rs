//! The controller: it leads a change of the map from its preparation to its end.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    ControllerMessage, ControllerWord, EpochChange, EpochRecord, ProcessId, ProcessWord, ServerMap,
};

/// How often the map is told again to a member that does not say that it uses it. After that it is
/// told when the member says which one it uses.
const TELLS_MAX: u8 = 4;

/// The times of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EpochTimes {
    /// Longest time in ns in which members end their operations. After it, a member that has said
    /// nothing is left to the fences of the servers, and one that is still at work has the change
    /// aborted. Less than the patience of members.
    pub drain_ns: i64,
    /// Time in ns after which something is said again to those who have not answered.
    pub repeat_ns: i64,
}

/// What a controller does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControllerOutput {
    /// Save the record, if the store has none of a higher term, and tell what came
    /// of it ([`EpochController::saved`]).
    Save(EpochRecord),
    /// Send a message to a member.
    ToMember(ProcessId, ControllerMessage),
    /// Send a message to a server.
    ToServer(ProcessId, ControllerMessage),
    /// A change has ended.
    Ended(ChangeEnd),
}

/// How a change has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeEnd {
    /// This map holds.
    Switched(ServerMap),
    /// The map before it holds.
    Aborted {
        /// The epoch that did not come.
        epoch: u64,
        /// The reason, as a sentence.
        reason: String,
    },
    /// Another controller has taken over, and ends it.
    Deposed,
}

/// Why a change is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeRefusal {
    /// Another one is under way, or the controller is taking over: try again.
    Busy,
    /// The map would have no server.
    NoServers,
    /// These are the servers of the map already.
    Unchanged,
    /// Another controller has taken over.
    Deposed,
}

/// A controller of one term.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EpochController {
    times: EpochTimes,
    record: EpochRecord,
    members: BTreeSet<ProcessId>,
    gone_servers: BTreeSet<ProcessId>,
    stage: Stage,
    /// Members that have not said that they use the map that holds, and how often they are still
    /// told.
    behind: BTreeSet<ProcessId>,
    tells: u8,
    /// The time at which those who have not answered are told again.
    repeat_ns: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Idle,
    /// The record is being saved, after which this is done.
    Saving(AfterSave),
    /// Members end their operations.
    Draining {
        until_ns: i64,
        /// Members that have not drained; true for those that have said that they are at work.
        waiting: BTreeMap<ProcessId, bool>,
    },
    /// Servers move their fences.
    Fencing {
        waiting: BTreeSet<ProcessId>,
    },
    Deposed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum AfterSave {
    /// The change is prepared.
    Prepare,
    /// It is committed: servers are fenced.
    Fence,
    /// It is done: members and servers are told.
    Switch,
    /// It was aborted.
    Abort { epoch: u64, reason: String },
    /// The term is taken, and there is nothing to end.
    Nothing,
}

impl EpochController {
    /// A controller that takes over with the record that the store gave when it took the claim of
    /// this term, and ends what is under way: a change that was committed is completed, and one
    /// that was not is aborted.
    pub fn take_over(
        term: u64,
        record: EpochRecord,
        members: impl IntoIterator<Item = ProcessId>,
        times: EpochTimes,
    ) -> (Self, Vec<ControllerOutput>) {
        let mut record = EpochRecord { term, ..record };
        let after = match &record.change {
            Some(change) if change.is_committed => AfterSave::Fence,
            Some(change) => AfterSave::Abort {
                epoch: change.map.epoch,
                reason: "its controller was lost".to_owned(),
            },
            None => AfterSave::Nothing,
        };
        if matches!(after, AfterSave::Abort { .. }) {
            record.change = None;
        }
        let save = ControllerOutput::Save(record.clone());
        let controller = Self {
            times,
            record,
            members: members.into_iter().collect(),
            gone_servers: BTreeSet::new(),
            stage: Stage::Saving(after),
            behind: BTreeSet::new(),
            tells: 0,
            repeat_ns: 0,
        };
        (controller, vec![save])
    }

    /// The record as it was saved last, or is being saved.
    pub fn record(&self) -> &EpochRecord {
        &self.record
    }

    /// Whether a change can begin.
    pub fn is_idle(&self) -> bool {
        self.stage == Stage::Idle
    }

    /// Whether the store has the record: only what is saved is told.
    pub fn is_saved(&self) -> bool {
        !matches!(self.stage, Stage::Saving(_) | Stage::Deposed)
    }

    /// The time of the next [`Self::tick`]; `None` if there is nothing to wait for.
    pub fn next_ns(&self) -> Option<i64> {
        match &self.stage {
            Stage::Draining { until_ns, .. } => Some((*until_ns).min(self.repeat_ns)),
            Stage::Fencing { .. } => Some(self.repeat_ns),
            Stage::Idle if self.tells > 0 && !self.behind.is_empty() => Some(self.repeat_ns),
            _ => None,
        }
    }

    /// Begins a change to a map of these servers.
    ///
    /// # Errors
    ///
    /// Nothing is done, for the reason given.
    pub fn change(
        &mut self,
        servers: BTreeSet<ProcessId>,
    ) -> Result<Vec<ControllerOutput>, ChangeRefusal> {
        match &self.stage {
            Stage::Deposed => return Err(ChangeRefusal::Deposed),
            Stage::Idle => {}
            _ => return Err(ChangeRefusal::Busy),
        }
        if servers.is_empty() {
            return Err(ChangeRefusal::NoServers);
        }
        if servers == self.record.map.servers {
            return Err(ChangeRefusal::Unchanged);
        }
        let epoch = self.record.last_epoch.max(self.record.map.epoch) + 1;
        self.record.last_epoch = epoch;
        self.gone_servers.retain(|gone| !servers.contains(gone));
        self.record.change = Some(EpochChange {
            map: ServerMap { epoch, servers },
            is_committed: false,
        });
        Ok(self.save(AfterSave::Prepare))
    }

    /// Takes in what came of a save: whether the store has taken the record.
    pub fn saved(&mut self, is_taken: bool, now_ns: i64) -> Vec<ControllerOutput> {
        let Stage::Saving(after) = std::mem::replace(&mut self.stage, Stage::Idle) else {
            return Vec::new();
        };
        if !is_taken {
            self.stage = Stage::Deposed;
            return vec![ControllerOutput::Ended(ChangeEnd::Deposed)];
        }
        match after {
            AfterSave::Nothing => self.tell_map(now_ns),
            AfterSave::Prepare => self.prepare(now_ns),
            AfterSave::Fence => self.fence(now_ns),
            AfterSave::Switch => {
                let ended = ChangeEnd::Switched(self.record.map.clone());
                let mut outputs = self.tell_map(now_ns);
                outputs.push(ControllerOutput::Ended(ended));
                outputs
            }
            AfterSave::Abort { epoch, reason } => {
                let mut outputs = self.to_members(&ControllerWord::Abort { epoch });
                let ended = ChangeEnd::Aborted { epoch, reason };
                outputs.push(ControllerOutput::Ended(ended));
                outputs
            }
        }
    }

    /// Takes in what a member says.
    pub fn hear_member(&mut self, member: ProcessId, word: &ProcessWord) -> Vec<ControllerOutput> {
        let next = self.record.change.as_ref().map(|change| change.map.epoch);
        if let ProcessWord::Uses { epoch } = word {
            let is_new = self.members.insert(member);
            if *epoch >= self.record.map.epoch {
                self.behind.remove(&member);
            }
            if self.is_saved() && *epoch < self.record.map.epoch {
                let map = self.record.map.clone();
                return vec![self.to_member(member, ControllerWord::Switch { map })];
            }
            if let (Stage::Draining { waiting, .. }, Some(epoch), true) =
                (&mut self.stage, next, is_new)
            {
                waiting.insert(member, false);
                return vec![self.to_member(member, ControllerWord::Prepare { epoch })];
            }
            return Vec::new();
        }
        let Stage::Draining { waiting, .. } = &mut self.stage else {
            return Vec::new();
        };
        match word {
            ProcessWord::Suspended { epoch, .. } if Some(*epoch) == next => {
                if let Some(is_at_work) = waiting.get_mut(&member) {
                    *is_at_work = true;
                }
            }
            ProcessWord::Drained { epoch } if Some(*epoch) == next => {
                waiting.remove(&member);
            }
            _ => {}
        }
        self.commit_if_drained()
    }

    /// Takes in what a server says.
    pub fn hear_server(&mut self, server: ProcessId, word: &ProcessWord) -> Vec<ControllerOutput> {
        let next = self.record.change.as_ref().map(|change| change.map.epoch);
        if let (Stage::Fencing { waiting }, ProcessWord::Fenced { epoch }) = (&mut self.stage, word)
            && next.is_some_and(|next| *epoch >= next)
        {
            waiting.remove(&server);
        }
        self.switch_if_fenced()
    }

    /// Takes in that a member is gone for good.
    pub fn member_gone(&mut self, member: ProcessId) -> Vec<ControllerOutput> {
        self.members.remove(&member);
        self.behind.remove(&member);
        if let Stage::Draining { waiting, .. } = &mut self.stage {
            waiting.remove(&member);
        }
        self.commit_if_drained()
    }

    /// Takes in that a server is gone: that it serves nothing any more is certain, since its
    /// process or its node has ended. Silence is not enough. If it comes back, it gets the epoch of
    /// the store's map as its fence before it serves.
    pub fn server_gone(&mut self, server: ProcessId) -> Vec<ControllerOutput> {
        self.gone_servers.insert(server);
        if let Stage::Fencing { waiting } = &mut self.stage {
            waiting.remove(&server);
        }
        self.switch_if_fenced()
    }

    /// Takes in that a server that was gone has come back, as another process. It has no fence yet:
    /// it serves nothing before it was told one, which is not before this.
    pub fn server_back(&mut self, server: ProcessId) -> Vec<ControllerOutput> {
        self.gone_servers.remove(&server);
        let change = self.record.change.as_ref();
        let is_of_change = self.record.map.servers.contains(&server)
            || change.is_some_and(|change| change.map.servers.contains(&server));
        let Stage::Fencing { waiting } = &mut self.stage else {
            return Vec::new();
        };
        if !is_of_change || !waiting.insert(server) {
            return Vec::new();
        }
        let word = change.map(|change| ControllerWord::Fence {
            epoch: change.map.epoch,
        });
        word.map(|word| self.to_server(server, word))
            .into_iter()
            .collect()
    }

    /// Does what is due at a time.
    pub fn tick(&mut self, now_ns: i64) -> Vec<ControllerOutput> {
        if let Stage::Draining { until_ns, waiting } = &mut self.stage
            && now_ns >= *until_ns
        {
            let at_work = waiting.values().filter(|is_at_work| **is_at_work).count();
            if at_work > 0 {
                return self.abort(format!(
                    "{at_work} members are still at work at its deadline"
                ));
            }
            // Who has said nothing is left to the fences.
            waiting.clear();
            return self.commit_if_drained();
        }
        if self.next_ns().is_none_or(|next_ns| now_ns < next_ns) {
            return Vec::new();
        }
        self.repeat_ns = now_ns.saturating_add(self.times.repeat_ns.max(1));
        if self.stage == Stage::Idle {
            self.tells -= 1;
            let map = self.record.map.clone();
            let behind = self.behind.iter();
            let tell = |member: &ProcessId| {
                self.to_member(*member, ControllerWord::Switch { map: map.clone() })
            };
            return behind.map(tell).collect();
        }
        self.ask()
    }

    fn prepare(&mut self, now_ns: i64) -> Vec<ControllerOutput> {
        let waiting = self.members.iter().map(|member| (*member, false)).collect();
        let until_ns = now_ns.saturating_add(self.times.drain_ns);
        self.stage = Stage::Draining { until_ns, waiting };
        self.repeat_ns = now_ns.saturating_add(self.times.repeat_ns.max(1));
        let mut outputs = self.ask();
        outputs.extend(self.commit_if_drained());
        outputs
    }

    fn commit_if_drained(&mut self) -> Vec<ControllerOutput> {
        let is_drained =
            matches!(&self.stage, Stage::Draining { waiting, .. } if waiting.is_empty());
        let Some(change) = self.record.change.as_mut().filter(|_| is_drained) else {
            return Vec::new();
        };
        change.is_committed = true;
        self.save(AfterSave::Fence)
    }

    fn fence(&mut self, now_ns: i64) -> Vec<ControllerOutput> {
        let next = self.record.change.as_ref();
        let next = next
            .map(|change| change.map.servers.clone())
            .unwrap_or_default();
        let all = self.record.map.servers.union(&next).copied();
        let waiting = all.filter(|server| !self.gone_servers.contains(server));
        self.stage = Stage::Fencing {
            waiting: waiting.collect(),
        };
        self.repeat_ns = now_ns.saturating_add(self.times.repeat_ns.max(1));
        let mut outputs = self.ask();
        outputs.extend(self.switch_if_fenced());
        outputs
    }

    fn switch_if_fenced(&mut self) -> Vec<ControllerOutput> {
        let is_fenced = matches!(&self.stage, Stage::Fencing { waiting } if waiting.is_empty());
        let Some(change) = self.record.change.take_if(|_| is_fenced) else {
            return Vec::new();
        };
        self.record.map = change.map;
        self.save(AfterSave::Switch)
    }

    fn abort(&mut self, reason: String) -> Vec<ControllerOutput> {
        let Some(change) = self.record.change.take() else {
            return Vec::new();
        };
        let epoch = change.map.epoch;
        self.save(AfterSave::Abort { epoch, reason })
    }

    fn save(&mut self, after: AfterSave) -> Vec<ControllerOutput> {
        self.stage = Stage::Saving(after);
        vec![ControllerOutput::Save(self.record.clone())]
    }

    /// What those are told who have not answered.
    fn ask(&self) -> Vec<ControllerOutput> {
        let Some(change) = &self.record.change else {
            return Vec::new();
        };
        let epoch = change.map.epoch;
        match &self.stage {
            Stage::Draining { waiting, .. } => {
                let word = ControllerWord::Prepare { epoch };
                let waiting = waiting.keys();
                waiting
                    .map(|member| self.to_member(*member, word.clone()))
                    .collect()
            }
            Stage::Fencing { waiting } => {
                let word = ControllerWord::Fence { epoch };
                let waiting = waiting.iter();
                waiting
                    .map(|server| self.to_server(*server, word.clone()))
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    /// Tells all the map that holds.
    fn tell_map(&mut self, now_ns: i64) -> Vec<ControllerOutput> {
        self.behind.clone_from(&self.members);
        self.tells = TELLS_MAX;
        self.repeat_ns = now_ns.saturating_add(self.times.repeat_ns.max(1));
        let map = self.record.map.clone();
        let word = ControllerWord::Switch { map: map.clone() };
        let mut outputs = self.to_members(&word);
        let servers = map.servers.iter();
        outputs.extend(servers.map(|server| self.to_server(*server, word.clone())));
        outputs
    }

    fn to_members(&self, word: &ControllerWord) -> Vec<ControllerOutput> {
        let members = self.members.iter();
        members
            .map(|member| self.to_member(*member, word.clone()))
            .collect()
    }

    fn to_member(&self, member: ProcessId, what: ControllerWord) -> ControllerOutput {
        let term = self.record.term;
        ControllerOutput::ToMember(member, ControllerMessage { term, what })
    }

    fn to_server(&self, server: ProcessId, what: ControllerWord) -> ControllerOutput {
        let term = self.record.term;
        ControllerOutput::ToServer(server, ControllerMessage { term, what })
    }
}

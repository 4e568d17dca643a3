//! The controller: it leads a change of the map from its preparation to its end.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    ControllerMessage, ControllerWord, EpochChange, EpochRecord, NodeId, ProcessId, ProcessWord,
    ServerMap,
};

/// How often the map is told again to a member that does not say that it uses it. After that it is
/// told when the member says which one it uses.
const TELLS_MAX: u8 = 4;

type Homes = BTreeMap<ProcessId, NodeId>;

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
    stage: Stage,
    /// The homes in the record that the store has not answered yet, and whether the record has
    /// changed since it was sent.
    saving: Option<Homes>,
    is_changed: bool,
    /// The servers of each node whose home it is, and is in the store; and those of them that are
    /// new and were not told what holds.
    held: BTreeMap<NodeId, BTreeSet<ProcessId>>,
    untold: BTreeSet<ProcessId>,
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
        let mut controller = Self {
            times,
            record,
            members: members.into_iter().collect(),
            stage: Stage::Saving(after),
            saving: None,
            is_changed: false,
            held: BTreeMap::new(),
            untold: BTreeSet::new(),
            behind: BTreeSet::new(),
            tells: 0,
            repeat_ns: 0,
        };
        let save = controller.save_record();
        (controller, save)
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
        self.record.change = Some(EpochChange {
            map: ServerMap { epoch, servers },
            is_committed: false,
        });
        Ok(self.save(AfterSave::Prepare))
    }

    /// Takes in what came of a save: whether the store has taken the record.
    pub fn saved(&mut self, is_taken: bool, now_ns: i64) -> Vec<ControllerOutput> {
        let Some(homes) = self.saving.take() else {
            return Vec::new();
        };
        if !is_taken {
            self.stage = Stage::Deposed;
            return vec![ControllerOutput::Ended(ChangeEnd::Deposed)];
        }
        self.hold(&homes);
        if std::mem::take(&mut self.is_changed) {
            return self.save_record();
        }
        let mut outputs = match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Saving(after) => self.go_on(after, now_ns),
            stage => {
                self.stage = stage;
                Vec::new()
            }
        };
        if self.is_saved() {
            let map = &self.record.map;
            let untold = std::mem::take(&mut self.untold).into_iter();
            outputs.extend(untold.map(|server| {
                let map = map.clone();
                self.to_server(server, ControllerWord::Switch { map })
            }));
        }
        outputs
    }

    /// Takes in which homes the store has. One that has changed meanwhile does not count.
    fn hold(&mut self, saved: &Homes) {
        let current = saved
            .iter()
            .filter(|(server, home)| self.record.homes.get(server) == Some(home));
        for (server, home) in current {
            if self.held.entry(*home).or_default().insert(*server) {
                self.untold.insert(*server);
            }
        }
    }

    /// Does what waited for a save.
    fn go_on(&mut self, after: AfterSave, now_ns: i64) -> Vec<ControllerOutput> {
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

    /// Whether a server may be told what holds if it is on this node: it was on no other one, or
    /// has certainly ended there.
    pub fn may_be_on(&self, server: ProcessId, node: NodeId) -> bool {
        let home = self.record.homes.get(&server);
        home.is_none_or(|home| *home == node)
    }

    /// Whether it is certain that no process of a server serves anything.
    pub fn is_gone(&self, server: ProcessId) -> bool {
        !self.record.homes.contains_key(&server)
    }

    /// The servers whose home is this node, and is in the store: these may be told what holds.
    pub fn servers_of(&self, node: NodeId) -> &BTreeSet<ProcessId> {
        static NONE: BTreeSet<ProcessId> = BTreeSet::new();
        self.held.get(&node).unwrap_or(&NONE)
    }

    /// Takes in that a server is gone: that it serves nothing any more is certain, since its
    /// process or its node has ended. Silence is not enough. Who says so is its home, or `None` for
    /// somebody who knows it otherwise; what another node says means nothing.
    pub fn server_gone(&mut self, server: ProcessId, by: Option<NodeId>) -> Vec<ControllerOutput> {
        if !by.is_none_or(|node| self.may_be_on(server, node)) {
            return Vec::new();
        }
        let mut outputs = Vec::new();
        if let Some(home) = self.record.homes.remove(&server) {
            let servers = self.held.get_mut(&home);
            if servers.is_some_and(|it| it.remove(&server) && it.is_empty()) {
                self.held.remove(&home);
            }
            outputs = self.save_record();
        }
        if let Stage::Fencing { waiting } = &mut self.stage {
            waiting.remove(&server);
        }
        outputs.extend(self.switch_if_fenced());
        outputs
    }

    /// Takes in that a server is there, as a process that is new, on a node on which it
    /// [may be](Self::may_be_on). It has no fence yet: it serves nothing before it was told one,
    /// which is not before this.
    pub fn server_there(&mut self, server: ProcessId, node: NodeId) -> Vec<ControllerOutput> {
        if self.stage == Stage::Deposed || !self.may_be_on(server, node) {
            return Vec::new();
        }
        let mut outputs = match self.record.homes.insert(server, node) {
            Some(_) => Vec::new(),
            None => self.save_record(),
        };
        let change = self.record.change.as_ref();
        let is_of_change = self.record.map.servers.contains(&server)
            || change.is_some_and(|change| change.map.servers.contains(&server));
        let epoch = change.map(|change| change.map.epoch);
        if let (Stage::Fencing { waiting }, Some(epoch)) = (&mut self.stage, epoch)
            && is_of_change
            && waiting.insert(server)
        {
            outputs.push(self.to_server(server, ControllerWord::Fence { epoch }));
        }
        outputs
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
        let waiting = all.filter(|server| !self.is_gone(*server));
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
        self.save_record()
    }

    /// Saves the record, or does so once the save before it is answered.
    fn save_record(&mut self) -> Vec<ControllerOutput> {
        if self.saving.is_some() {
            self.is_changed = true;
            return Vec::new();
        }
        self.saving = Some(self.record.homes.clone());
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

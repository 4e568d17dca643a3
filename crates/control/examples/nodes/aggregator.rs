//! An aggregator: it answers for its members, so that a controller hears one word of it and not
//! one of each member. It is of this simulation alone. The node controllers of agents
//! (`EpochNode`) read counts in memory, and have no levels above them.
//!
//! To the controller it is a member, and to its members it says what the controller has said. So
//! aggregators may have aggregators as members: a tree. It decides nothing and holds no record.

use std::collections::{BTreeMap, BTreeSet};

use barograph_control::{ControllerMessage, ControllerWord, ProcessId, ProcessWord, ServerMap};

/// How often the map is told again to a member that does not say that it uses it.
const TELLS_MAX: u8 = 4;

/// The times of an aggregator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AggregatorTimes {
    /// A member that has not answered for so long, in ns, is left to the fences of the servers.
    /// Less than the time in which the controller wants answers.
    pub(crate) silence_ns: i64,
    /// Time in ns after which something is said again to those who have not answered.
    pub(crate) repeat_ns: i64,
}

/// An aggregator of members.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Aggregator {
    term: u64,
    map: ServerMap,
    members: BTreeMap<ProcessId, Drain>,
    /// The epoch that is prepared, and the time from which on silent members are left out.
    prepared: Option<(u64, i64)>,
    /// What was said last of the prepared epoch.
    said: Option<Said>,
    /// Members that have not said that they use the map, and how often they are still told.
    behind: BTreeSet<ProcessId>,
    tells: u8,
    /// The time at which those who have not answered are told again.
    repeat_ns: i64,
    times: AggregatorTimes,
}

/// How far a member is with the operations of the old epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Drain {
    /// It has not answered.
    Silent,
    /// So many have not ended.
    AtWork(u64),
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Said {
    Suspended,
    Drained,
}

/// What an aggregator does after a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AggregatorOutput {
    /// What it says to the controller.
    pub(crate) says: Option<ProcessWord>,
    /// What it says to its members.
    pub(crate) to_members: Vec<(ProcessId, ControllerMessage)>,
}

impl Aggregator {
    /// An aggregator with a map. Members are heard of by what they say.
    pub(crate) fn new(map: ServerMap, times: AggregatorTimes) -> Self {
        Self {
            term: 0,
            map,
            members: BTreeMap::new(),
            prepared: None,
            said: None,
            behind: BTreeSet::new(),
            tells: 0,
            repeat_ns: 0,
            times,
        }
    }

    /// The time of the next [`Self::tick`]; `None` if there is nothing to wait for.
    pub(crate) fn next_ns(&self) -> Option<i64> {
        let until_ns = self
            .prepared
            .filter(|_| self.has_silent())
            .map(|(_, until_ns)| until_ns);
        let repeats = until_ns.is_some() || (self.tells > 0 && !self.behind.is_empty());
        let repeat_ns = repeats.then_some(self.repeat_ns);
        until_ns.into_iter().chain(repeat_ns).min()
    }

    /// Takes in a message of the controller.
    pub(crate) fn hear(&mut self, message: &ControllerMessage, now_ns: i64) -> AggregatorOutput {
        if message.term < self.term {
            return AggregatorOutput::default();
        }
        self.term = message.term;
        match &message.what {
            ControllerWord::Prepare { epoch } if *epoch > self.map.epoch => {
                if self.prepared.is_none_or(|(prepared, _)| prepared != *epoch) {
                    let until_ns = now_ns.saturating_add(self.times.silence_ns);
                    self.prepared = Some((*epoch, until_ns));
                    let drains = self.members.values_mut();
                    drains.for_each(|drain| *drain = Drain::Silent);
                }
                // Who asks again has not heard the answer.
                self.said = None;
                self.repeat_later(now_ns);
                let waiting = self
                    .members
                    .iter()
                    .filter(|(_, drain)| **drain != Drain::Done);
                let to_members = waiting.map(|(member, _)| (*member, message.clone()));
                AggregatorOutput {
                    to_members: to_members.collect(),
                    says: self.progress(),
                }
            }
            ControllerWord::Abort { epoch } => {
                if self
                    .prepared
                    .is_some_and(|(prepared, _)| prepared == *epoch)
                {
                    self.prepared = None;
                }
                AggregatorOutput {
                    to_members: self.to_all(message),
                    says: None,
                }
            }
            ControllerWord::Switch { map } if map.epoch > self.map.epoch => {
                self.map = map.clone();
                self.prepared = self.prepared.filter(|(epoch, _)| *epoch > map.epoch);
                self.behind = self.members.keys().copied().collect();
                self.tells = TELLS_MAX;
                self.repeat_later(now_ns);
                AggregatorOutput {
                    to_members: self.to_all(message),
                    says: Some(self.heartbeat()),
                }
            }
            _ => AggregatorOutput {
                says: Some(self.heartbeat()),
                ..AggregatorOutput::default()
            },
        }
    }

    /// Takes in what a member says.
    pub(crate) fn hear_member(
        &mut self,
        member: ProcessId,
        word: &ProcessWord,
    ) -> AggregatorOutput {
        let prepared = self.prepared.map(|(epoch, _)| epoch);
        let drain = match word {
            ProcessWord::Uses { epoch } => return self.hear_use(member, *epoch),
            ProcessWord::Suspended { epoch, running } if Some(*epoch) == prepared => {
                Drain::AtWork(*running)
            }
            ProcessWord::Drained { epoch } if Some(*epoch) == prepared => Drain::Done,
            _ => return AggregatorOutput::default(),
        };
        let known = self.members.entry(member).or_insert(drain);
        // A word that comes late does not open what was ended.
        if *known != Drain::Done {
            *known = drain;
        }
        AggregatorOutput {
            says: self.progress(),
            ..AggregatorOutput::default()
        }
    }

    /// Does what is due at a time.
    pub(crate) fn tick(&mut self, now_ns: i64) -> AggregatorOutput {
        if self.next_ns().is_none_or(|next_ns| now_ns < next_ns) {
            return AggregatorOutput::default();
        }
        if self
            .prepared
            .is_some_and(|(_, until_ns)| now_ns >= until_ns)
        {
            // Who has said nothing is left to the fences.
            let silent = self
                .members
                .values_mut()
                .filter(|drain| **drain == Drain::Silent);
            silent.for_each(|drain| *drain = Drain::Done);
        }
        let mut output = AggregatorOutput {
            says: self.progress(),
            to_members: Vec::new(),
        };
        if now_ns < self.repeat_ns {
            return output;
        }
        self.repeat_later(now_ns);
        let term = self.term;
        if let Some((epoch, _)) = self.prepared.filter(|_| self.has_silent()) {
            let what = ControllerWord::Prepare { epoch };
            let silent = self
                .members
                .iter()
                .filter(|(_, drain)| **drain == Drain::Silent);
            let message = ControllerMessage { term, what };
            output
                .to_members
                .extend(silent.map(|(member, _)| (*member, message.clone())));
        }
        if self.tells > 0 {
            self.tells -= 1;
            let map = self.map.clone();
            let what = ControllerWord::Switch { map };
            let message = ControllerMessage { term, what };
            let behind = self.behind.iter();
            output
                .to_members
                .extend(behind.map(|member| (*member, message.clone())));
        }
        output
    }

    /// What an aggregator says regularly.
    pub(crate) fn heartbeat(&self) -> ProcessWord {
        ProcessWord::Uses {
            epoch: self.map.epoch,
        }
    }

    fn hear_use(&mut self, member: ProcessId, epoch: u64) -> AggregatorOutput {
        if epoch >= self.map.epoch {
            self.behind.remove(&member);
        }
        let is_new = !self.members.contains_key(&member);
        self.members.entry(member).or_insert(Drain::Silent);
        let what = match self.prepared {
            _ if epoch < self.map.epoch => ControllerWord::Switch {
                map: self.map.clone(),
            },
            Some((epoch, _)) if is_new => {
                // What was said does not hold for it.
                self.said = None;
                ControllerWord::Prepare { epoch }
            }
            _ => return AggregatorOutput::default(),
        };
        let term = self.term;
        AggregatorOutput {
            to_members: vec![(member, ControllerMessage { term, what })],
            says: None,
        }
    }

    /// What is to be said of the prepared epoch, if it is something else than before.
    fn progress(&mut self) -> Option<ProcessWord> {
        let (epoch, _) = self.prepared?;
        let (mut running, mut is_silent) = (0_u64, false);
        let mut is_at_work = false;
        for drain in self.members.values() {
            match drain {
                Drain::AtWork(operations) => {
                    is_at_work = true;
                    running = running.saturating_add(*operations);
                }
                Drain::Silent => is_silent = true,
                Drain::Done => {}
            }
        }
        let (said, word) = match () {
            () if is_at_work => (Said::Suspended, ProcessWord::Suspended { epoch, running }),
            () if is_silent => return None,
            () => (Said::Drained, ProcessWord::Drained { epoch }),
        };
        (self.said.replace(said) != Some(said)).then_some(word)
    }

    /// Whether somebody has not answered who is waited for.
    fn has_silent(&self) -> bool {
        let is_open = self.said != Some(Said::Drained);
        is_open && self.members.values().any(|drain| *drain == Drain::Silent)
    }

    fn repeat_later(&mut self, now_ns: i64) {
        self.repeat_ns = now_ns.saturating_add(self.times.repeat_ns.max(1));
    }

    fn to_all(&self, message: &ControllerMessage) -> Vec<(ProcessId, ControllerMessage)> {
        let members = self.members.keys();
        members.map(|member| (*member, message.clone())).collect()
    }
}

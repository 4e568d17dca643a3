//! The election: a node that may lead, as it claims terms, leads, saves records and steps down.

use std::collections::{BTreeMap, BTreeSet};

use super::{LeaderRecord, LeaderWord};

/// The times of an election, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaderTimes {
    /// Time without a sign of a leader after which the first node of the list claims a term; each
    /// node after it waits as much longer. A leader that no majority has confirmed for so long
    /// steps down.
    pub silence_ns: i64,
    /// Time after which something is said again to those who have not answered.
    pub repeat_ns: i64,
}

impl Default for LeaderTimes {
    fn default() -> Self {
        Self {
            silence_ns: 1_500_000_000,
            repeat_ns: 300_000_000,
        }
    }
}

/// What a node knows of the leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeadershipState {
    /// Nobody is known to lead.
    Unknown,
    /// Another node leads.
    Led {
        /// Its name.
        leader: String,
        /// Its term.
        term: u64,
    },
    /// This node leads.
    Leads {
        /// Its term.
        term: u64,
    },
}

/// What came of a save.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaveEnd {
    /// The number that [`LeaderElection::save`] returned.
    pub sequence: u64,
    /// Whether a majority of replicas has it.
    pub is_saved: bool,
}

/// A node that may lead.
#[derive(Clone, Debug)]
pub struct LeaderElection {
    own: String,
    leaders: Vec<String>,
    times: LeaderTimes,
    stage: Stage,
    /// The highest term that it knows.
    highest: u64,
    /// The last time at which a leader was heard, or a term was claimed, by this node's clock.
    heard_ns: i64,
    repeat_ns: i64,
    outputs: Vec<(String, LeaderWord)>,
    ends: Vec<SaveEnd>,
    /// The records with which it has begun to lead, until they are taken.
    records: Option<BTreeMap<String, String>>,
    /// Nodes that know another list of nodes that may lead.
    differing: BTreeSet<String>,
}

#[derive(Clone, Debug)]
enum Stage {
    Follows {
        leader: Option<(String, u64)>,
    },
    Claims {
        term: u64,
        promises: BTreeMap<String, BTreeMap<String, LeaderRecord>>,
    },
    Leads(Lead),
}

#[derive(Clone, Debug)]
struct Lead {
    term: u64,
    sequence: u64,
    saves: BTreeMap<u64, Save>,
    beat: u64,
    /// The times of the newest beats, of which the answers may come.
    beats: BTreeMap<u64, (i64, BTreeSet<String>)>,
    /// The time at which the newest beat was sent that a majority has answered.
    confirmed_ns: i64,
}

#[derive(Clone, Debug)]
struct Save {
    key: String,
    record: LeaderRecord,
    saved: BTreeSet<String>,
}

/// Most beats whose answers are waited for.
const BEATS_MAX: usize = 16;

impl LeaderElection {
    /// A node of this name that may lead, among these nodes in the order in which they should.
    /// `highest` is the term that its own replica knows: it claims later ones alone, so no two
    /// lives of a node lead in the same term.
    pub fn new(
        own: &str,
        leaders: &[String],
        (times, highest): (LeaderTimes, u64),
        now_ns: i64,
    ) -> Self {
        Self {
            own: own.to_owned(),
            leaders: leaders.to_vec(),
            times,
            stage: Stage::Follows { leader: None },
            highest,
            heard_ns: now_ns,
            repeat_ns: now_ns,
            outputs: Vec::new(),
            ends: Vec::new(),
            records: None,
            differing: BTreeSet::new(),
        }
    }

    /// The nodes that may lead, in their order.
    pub fn leaders(&self) -> &[String] {
        &self.leaders
    }

    /// What is known of the leader.
    pub fn state(&self) -> LeadershipState {
        match &self.stage {
            Stage::Leads(lead) => LeadershipState::Leads { term: lead.term },
            Stage::Follows {
                leader: Some((leader, term)),
            } => LeadershipState::Led {
                leader: leader.clone(),
                term: *term,
            },
            _ => LeadershipState::Unknown,
        }
    }

    /// Nodes that know another list of nodes that may lead, and with which none can be elected.
    pub fn differing(&self) -> &BTreeSet<String> {
        &self.differing
    }

    /// The words to be sent since the last call, with the nodes to which they go. Those to this
    /// node go to its own replica.
    pub fn take_outputs(&mut self) -> Vec<(String, LeaderWord)> {
        std::mem::take(&mut self.outputs)
    }

    /// What came of saves since the last call.
    pub fn take_ends(&mut self) -> Vec<SaveEnd> {
        std::mem::take(&mut self.ends)
    }

    /// The records of the leaders before, once after this node has begun to lead.
    pub fn take_records(&mut self) -> Option<BTreeMap<String, String>> {
        self.records.take()
    }

    /// Saves a record; returns its number, or `None` if this node does not lead. What came of it is
    /// told by [`Self::take_ends`].
    pub fn save(&mut self, key: &str, text: String) -> Option<u64> {
        let Stage::Leads(lead) = &mut self.stage else {
            return None;
        };
        lead.sequence += 1;
        let record = LeaderRecord {
            term: lead.term,
            sequence: lead.sequence,
            text,
        };
        let word = LeaderWord::Save {
            key: key.to_owned(),
            record: record.clone(),
        };
        let save = Save {
            key: key.to_owned(),
            record,
            saved: BTreeSet::new(),
        };
        lead.saves.insert(lead.sequence, save);
        let to = self.leaders.iter();
        self.outputs
            .extend(to.map(|node| (node.clone(), word.clone())));
        Some(lead.sequence)
    }

    /// Takes in a word of a node that may lead.
    pub fn hear(&mut self, from: &str, word: &LeaderWord, now_ns: i64) {
        if !self.leaders.iter().any(|node| node == from) {
            return;
        }
        match word {
            LeaderWord::Leads { term, .. } if from != self.own => {
                self.highest = self.highest.max(*term);
                self.hear_leader(from, *term, now_ns);
            }
            LeaderWord::Claim { term, .. } => self.highest = self.highest.max(*term),
            LeaderWord::Promise { term, records } => {
                self.hear_promise(from, *term, records, now_ns);
            }
            LeaderWord::Saved { term, sequence } => self.hear_saved(from, *term, *sequence),
            LeaderWord::Follows { term, beat } => self.hear_follower(from, *term, *beat),
            LeaderWord::Refused {
                term,
                highest,
                lists_differ,
            } => self.hear_refusal(from, (*term, *highest, *lists_differ), now_ns),
            LeaderWord::Save { .. } | LeaderWord::Leads { .. } => {}
        }
    }

    /// Does what is due; returns the time of the next call.
    pub fn step(&mut self, now_ns: i64) -> i64 {
        if let Stage::Leads(lead) = &self.stage
            && now_ns.saturating_sub(lead.confirmed_ns) >= self.times.silence_ns
        {
            self.step_down(None, now_ns);
        }
        if !matches!(self.stage, Stage::Leads(_)) && now_ns >= self.claim_ns() {
            self.claim(now_ns);
        } else if now_ns >= self.repeat_ns {
            self.repeat(now_ns);
        }
        match &self.stage {
            Stage::Follows { .. } => self.claim_ns(),
            Stage::Claims { .. } => self.claim_ns().min(self.repeat_ns),
            Stage::Leads(lead) => {
                let over_ns = lead.confirmed_ns.saturating_add(self.times.silence_ns);
                over_ns.min(self.repeat_ns)
            }
        }
    }

    fn majority(&self) -> usize {
        self.leaders.len() / 2 + 1
    }

    /// The time at which this node claims a term: the later, the later it is in the list.
    fn claim_ns(&self) -> i64 {
        let place = self.leaders.iter().position(|node| *node == self.own);
        let turns = place.map_or(i64::MAX, |place| place as i64 + 1);
        let wait_ns = self.times.silence_ns.saturating_mul(turns);
        self.heard_ns.saturating_add(wait_ns)
    }

    fn claim(&mut self, now_ns: i64) {
        self.highest += 1;
        self.heard_ns = now_ns;
        self.stage = Stage::Claims {
            term: self.highest,
            promises: BTreeMap::new(),
        };
        self.repeat(now_ns);
    }

    /// Says again what was not answered.
    fn repeat(&mut self, now_ns: i64) {
        self.repeat_ns = now_ns.saturating_add(self.times.repeat_ns.max(1));
        match &mut self.stage {
            Stage::Follows { .. } => self.repeat_ns = i64::MAX,
            Stage::Claims { term, promises } => {
                let word = LeaderWord::Claim {
                    term: *term,
                    leaders: self.leaders.clone(),
                };
                // Its own replica promises first, and keeps that. So a later life of this node
                // knows every term that others may have promised to it.
                let is_kept = promises.contains_key(&self.own);
                let silent = self.leaders.iter();
                let silent = silent.filter(|node| {
                    !promises.contains_key(*node) && (is_kept || **node == self.own)
                });
                self.outputs
                    .extend(silent.map(|node| (node.clone(), word.clone())));
            }
            Stage::Leads(lead) => {
                lead.beat += 1;
                let (term, beat) = (lead.term, lead.beat);
                lead.beats.insert(beat, (now_ns, BTreeSet::new()));
                while lead.beats.len() > BEATS_MAX {
                    lead.beats.pop_first();
                }
                for node in &self.leaders {
                    let beat = LeaderWord::Leads { term, beat };
                    self.outputs.push((node.clone(), beat));
                    let unsaved = lead.saves.values();
                    for save in unsaved.filter(|save| !save.saved.contains(node)) {
                        let word = LeaderWord::Save {
                            key: save.key.clone(),
                            record: save.record.clone(),
                        };
                        self.outputs.push((node.clone(), word));
                    }
                }
            }
        }
    }

    fn hear_leader(&mut self, from: &str, term: u64, now_ns: i64) {
        let known = match &self.stage {
            Stage::Follows { leader } => leader.as_ref().map_or(0, |(_, term)| *term),
            Stage::Claims { term, .. } => *term,
            Stage::Leads(lead) => lead.term,
        };
        if term < known {
            return;
        }
        if matches!(&self.stage, Stage::Leads(_)) {
            self.step_down(Some((from.to_owned(), term)), now_ns);
        }
        self.stage = Stage::Follows {
            leader: Some((from.to_owned(), term)),
        };
        self.heard_ns = now_ns;
    }

    fn hear_promise(
        &mut self,
        from: &str,
        promised: u64,
        records: &BTreeMap<String, LeaderRecord>,
        now_ns: i64,
    ) {
        let majority = self.majority();
        let Stage::Claims { term, promises } = &mut self.stage else {
            return;
        };
        if promised != *term {
            return;
        }
        self.differing.remove(from);
        promises.insert(from.to_owned(), records.clone());
        if promises.len() < majority {
            if from == self.own {
                self.repeat(now_ns);
            }
            return;
        }
        let mut newest: BTreeMap<String, LeaderRecord> = BTreeMap::new();
        for (key, record) in promises.values().flatten() {
            let place = (record.term, record.sequence);
            let known = newest.get(key);
            if known.is_none_or(|known| (known.term, known.sequence) < place) {
                newest.insert(key.clone(), record.clone());
            }
        }
        let texts = newest.into_iter().map(|(key, record)| (key, record.text));
        self.records = Some(texts.collect());
        self.stage = Stage::Leads(Lead {
            term: promised,
            sequence: 0,
            saves: BTreeMap::new(),
            beat: 0,
            beats: BTreeMap::new(),
            confirmed_ns: now_ns,
        });
        self.repeat(now_ns);
    }

    fn hear_saved(&mut self, from: &str, term: u64, sequence: u64) {
        let majority = self.majority();
        let Stage::Leads(lead) = &mut self.stage else {
            return;
        };
        let Some(save) = lead.saves.get_mut(&sequence).filter(|_| term == lead.term) else {
            return;
        };
        save.saved.insert(from.to_owned());
        if save.saved.len() >= majority {
            lead.saves.remove(&sequence);
            self.ends.push(SaveEnd {
                sequence,
                is_saved: true,
            });
        }
    }

    fn hear_follower(&mut self, from: &str, term: u64, beat: u64) {
        let majority = self.majority();
        let Stage::Leads(lead) = &mut self.stage else {
            return;
        };
        let Some((sent_ns, heard)) = lead.beats.get_mut(&beat).filter(|_| term == lead.term) else {
            return;
        };
        heard.insert(from.to_owned());
        if heard.len() >= majority {
            lead.confirmed_ns = lead.confirmed_ns.max(*sent_ns);
            lead.beats = lead.beats.split_off(&(beat + 1));
        }
    }

    fn hear_refusal(&mut self, from: &str, refusal: (u64, u64, bool), now_ns: i64) {
        let (term, highest, lists_differ) = refusal;
        self.highest = self.highest.max(highest);
        if lists_differ {
            self.differing.insert(from.to_owned());
            return;
        }
        self.differing.remove(from);
        match &self.stage {
            Stage::Leads(lead) if lead.term == term && highest > term => {
                self.step_down(None, now_ns);
            }
            // A later claim, after the time of this node, is higher.
            Stage::Claims { term: claimed, .. } if *claimed == term => {
                self.stage = Stage::Follows { leader: None };
            }
            _ => {}
        }
    }

    /// Leads no more. What was not saved counts as not saved: a later leader may find it or not.
    fn step_down(&mut self, leader: Option<(String, u64)>, now_ns: i64) {
        let stage = std::mem::replace(&mut self.stage, Stage::Follows { leader });
        if let Stage::Leads(lead) = stage {
            self.ends
                .extend(lead.saves.into_keys().map(|sequence| SaveEnd {
                    sequence,
                    is_saved: false,
                }));
        }
        self.records = None;
        self.heard_ns = now_ns;
    }
}

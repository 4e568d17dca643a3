//! A replica of the store: what a node that may lead keeps on its disk.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    LEADERS_MAX, LeaderRecord, LeaderWord, RECORD_BYTES_MAX, RECORD_KEY_BYTES_MAX, RECORDS_MAX,
};

/// Time in ns for which a replica that has heard of its leader promises nothing to others: a node
/// that alone does not hear a leader does not take its place. It is less than the silence after
/// which terms are claimed.
const LEADER_HEARD_NS: i64 = 1_000_000_000;

/// A replica. It is on disk before an answer that [`LeaderReplica::hear`] asks to be kept is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaderReplica {
    /// The highest term that was promised, or taken from a leader.
    term: u64,
    /// The node to which it was promised.
    promised_to: String,
    records: BTreeMap<String, LeaderRecord>,
    /// The time at which the leader was heard last, on the caller's clock. It is of this life.
    #[serde(skip)]
    heard_ns: Option<i64>,
}

/// Why a replica that was read cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaRefusal {
    /// It has more records than a replica may have, or larger ones.
    TooLarge,
}

/// The answer of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaAnswer {
    /// What is sent to the node that was heard.
    pub word: LeaderWord,
    /// Whether the replica has changed: it is written to disk before the answer is sent.
    pub must_keep: bool,
}

impl LeaderReplica {
    /// Checks a replica that was read.
    ///
    /// # Errors
    ///
    /// It is none that this program has written.
    pub fn check(&self) -> Result<(), ReplicaRefusal> {
        let is_fit = |(key, record): (&String, &LeaderRecord)| {
            key.len() <= RECORD_KEY_BYTES_MAX && record.text.len() <= RECORD_BYTES_MAX
        };
        match self.records.len() <= RECORDS_MAX && self.records.iter().all(is_fit) {
            true => Ok(()),
            false => Err(ReplicaRefusal::TooLarge),
        }
    }

    /// The highest term that it knows.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// The records.
    pub fn records(&self) -> &BTreeMap<String, LeaderRecord> {
        &self.records
    }

    /// Takes in a word of a node that may lead; `leaders` is the list of them here. `None` if the
    /// word is none for a replica, or is not answered.
    pub fn hear(
        &mut self,
        from: &str,
        word: &LeaderWord,
        leaders: &[String],
        now_ns: i64,
    ) -> Option<ReplicaAnswer> {
        match word {
            LeaderWord::Claim {
                term,
                leaders: theirs,
            } => Some(self.claim(from, (*term, theirs), leaders, now_ns)),
            LeaderWord::Save { key, record } => self.save(from, key, record, now_ns),
            LeaderWord::Leads { term, beat } => Some(self.follow(from, (*term, *beat), now_ns)),
            _ => None,
        }
    }

    fn claim(
        &mut self,
        from: &str,
        (term, theirs): (u64, &[String]),
        leaders: &[String],
        now_ns: i64,
    ) -> ReplicaAnswer {
        let lists_differ = theirs.len() > LEADERS_MAX || theirs != leaders;
        let is_led = self.is_led(now_ns) && from != self.promised_to;
        // Promising twice to the same node is the same promise: its first answer was lost.
        let is_again = term == self.term && from == self.promised_to;
        if lists_differ || is_led || (term <= self.term && !is_again) {
            return self.refused(term, lists_differ);
        }
        let must_keep = !is_again;
        (self.term, self.heard_ns) = (term, None);
        from.clone_into(&mut self.promised_to);
        ReplicaAnswer {
            word: LeaderWord::Promise {
                term,
                records: self.records.clone(),
            },
            must_keep,
        }
    }

    fn save(
        &mut self,
        from: &str,
        key: &str,
        record: &LeaderRecord,
        now_ns: i64,
    ) -> Option<ReplicaAnswer> {
        let is_fit = key.len() <= RECORD_KEY_BYTES_MAX && record.text.len() <= RECORD_BYTES_MAX;
        let known = self.records.get(key);
        if !is_fit || (known.is_none() && self.records.len() >= RECORDS_MAX) {
            return None;
        }
        if !self.is_of_leader(from, record.term) {
            return Some(self.refused(record.term, false));
        }
        let place = (record.term, record.sequence);
        // A save that comes twice, or after a later one of the same leader, is on disk already.
        let is_new = known.is_none_or(|known| (known.term, known.sequence) < place);
        let has_changed = self.take_term(from, record.term, now_ns);
        if is_new {
            self.records.insert(key.to_owned(), record.clone());
        }
        Some(ReplicaAnswer {
            word: LeaderWord::Saved {
                term: record.term,
                sequence: record.sequence,
            },
            must_keep: is_new || has_changed,
        })
    }

    fn follow(&mut self, from: &str, (term, beat): (u64, u64), now_ns: i64) -> ReplicaAnswer {
        if !self.is_of_leader(from, term) {
            return self.refused(term, false);
        }
        let must_keep = self.take_term(from, term, now_ns);
        ReplicaAnswer {
            word: LeaderWord::Follows { term, beat },
            must_keep,
        }
    }

    /// Whether a term may be that of the leader of whom this replica knows, or of a later one.
    fn is_of_leader(&self, from: &str, term: u64) -> bool {
        term > self.term || (term == self.term && from == self.promised_to)
    }

    /// Takes over the term of a leader that a majority of others has elected.
    fn take_term(&mut self, from: &str, term: u64, now_ns: i64) -> bool {
        self.heard_ns = Some(now_ns);
        let has_changed = term > self.term;
        if has_changed {
            self.term = term;
            from.clone_into(&mut self.promised_to);
        }
        has_changed
    }

    fn is_led(&self, now_ns: i64) -> bool {
        self.heard_ns
            .is_some_and(|heard_ns| now_ns.saturating_sub(heard_ns) < LEADER_HEARD_NS)
    }

    fn refused(&self, term: u64, lists_differ: bool) -> ReplicaAnswer {
        ReplicaAnswer {
            word: LeaderWord::Refused {
                term,
                highest: self.term,
                lists_differ,
            },
            must_keep: false,
        }
    }
}

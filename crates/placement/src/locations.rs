//! Where data is: keys, and the replicas that nodes hold of them. Schedulers and middleware ask for
//! many keys at once, and watch what changes.
//!
//! Each change has a number. A watcher that knows all up to `n` asks what has changed since `n`,
//! and gets each key once, as it is now. What was forgotten to stay within the bounds is counted,
//! and a watcher whose number is older than what is known is told to read everything anew.
//! Replicas are stamped with the epoch of the map of servers by which they were written, and what a
//! server of an older epoch says is refused.

mod cost;
mod replica;

pub use cost::{LinkCost, READ_COSTS_MAX, ReadCosts, TierCost};
pub use replica::Replica;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::target::TargetTier;

/// Most keys of a table; beyond it the one that has not changed for longest is forgotten.
pub const LOCATION_KEYS_MAX: usize = 1 << 20;
/// Most bytes of a key.
pub const LOCATION_KEY_BYTES_MAX: usize = 4_096;
/// Most replicas of a key.
pub const LOCATION_REPLICAS_MAX: usize = 16;

/// A replica as a reader sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LocatedReplica {
    /// The replica.
    pub replica: Replica,
    /// Whether its version is the newest that is known.
    pub is_newest: bool,
    /// Seconds since it was told.
    pub age_s: f64,
    /// Expected seconds to read it whole from the reader's node; `None` if too little is known.
    pub read_s: Option<f64>,
}

/// What is known of a key.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyLocation {
    /// Its replicas: the newest version first, of these the one that is read soonest.
    pub replicas: Vec<LocatedReplica>,
    /// The number of the last change of the key; 0 if the key is unknown.
    pub change: u64,
}

/// The answer to a question for many keys.
#[derive(Clone, Debug, PartialEq)]
pub struct LocateAnswer {
    /// The epoch of the map of servers.
    pub epoch: u64,
    /// The number of the last change of the table.
    pub change: u64,
    /// The keys, in the order of the question.
    pub keys: Vec<KeyLocation>,
}

/// What a table made of a word of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocationPut {
    /// It was taken in, as the change of this number.
    Taken(u64),
    /// It is known already.
    Known,
    /// The server has the map of an older epoch: it has to read the new one first.
    OldEpoch,
    /// The key is too long, or has too many replicas.
    NoRoom,
}

/// What has changed since a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocationChanges {
    /// These keys, each with the number of its last change, in their order.
    Since {
        /// Keys with numbers; a key that has no replica any more was removed.
        keys: Vec<(u64, Arc<[u8]>)>,
        /// The number to ask with next time: that of the last key, or of the table at the end.
        next: u64,
        /// Whether there are more.
        is_more: bool,
    },
    /// Changes of that time were forgotten: read everything anew.
    TooOld {
        /// The least number with which one may ask.
        since_min: u64,
    },
}

#[derive(Clone, Debug)]
struct LocationEntry {
    replicas: Vec<(Replica, i64)>,
    change: u64,
}

/// The table of locations.
#[derive(Clone, Debug)]
pub struct Locations {
    keys_max: usize,
    epoch: u64,
    change: u64,
    keys: BTreeMap<Arc<[u8]>, LocationEntry>,
    /// Each key by the number of its last change, also those that have no replica any more.
    changes: BTreeMap<u64, Arc<[u8]>>,
    /// Changes up to this number are not all known.
    forgotten_to: u64,
    forgotten: u64,
}

impl Locations {
    /// An empty table of at most so many keys, and of [`LOCATION_KEYS_MAX`] in any case.
    pub fn new(keys_max: usize) -> Self {
        Self {
            keys_max: keys_max.clamp(1, LOCATION_KEYS_MAX),
            epoch: 0,
            change: 0,
            keys: BTreeMap::new(),
            changes: BTreeMap::new(),
            forgotten_to: 0,
            forgotten: 0,
        }
    }

    /// The epoch of the map of servers.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The number of the last change.
    pub fn change(&self) -> u64 {
        self.change
    }

    /// How many keys were forgotten, since there were too many.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Goes on to an epoch; older ones are ignored.
    pub fn begin_epoch(&mut self, epoch: u64) {
        self.epoch = self.epoch.max(epoch);
    }

    /// Takes in that a node holds a replica. It takes the place of the one on the same node and
    /// tier. An epoch that is newer than the table's begins.
    pub fn put(&mut self, key: &[u8], replica: Replica, now_ns: i64) -> LocationPut {
        if replica.epoch < self.epoch {
            return LocationPut::OldEpoch;
        }
        if key.len() > LOCATION_KEY_BYTES_MAX {
            return LocationPut::NoRoom;
        }
        let is_same = |it: &Replica| (it.node, it.tier) == (replica.node, replica.tier);
        let mut replicas = match self.keys.get(key) {
            Some(entry) => entry.replicas.clone(),
            None => Vec::new(),
        };
        match replicas.iter().position(|(it, _)| is_same(it)) {
            Some(index) if replicas[index].0 == replica => return LocationPut::Known,
            Some(index) => replicas[index] = (replica, now_ns),
            None if replicas.len() == LOCATION_REPLICAS_MAX => return LocationPut::NoRoom,
            None => replicas.push((replica, now_ns)),
        }
        self.begin_epoch(replica.epoch);
        LocationPut::Taken(self.set(key, replicas))
    }

    /// Takes in that a node does not hold a replica any more; `None` if that is known.
    pub fn remove(&mut self, key: &[u8], node: u64, tier: TargetTier) -> Option<u64> {
        let mut replicas = self.keys.get(key)?.replicas.clone();
        let before = replicas.len();
        replicas.retain(|(it, _)| (it.node, it.tier) != (node, tier));
        (replicas.len() < before).then(|| self.set(key, replicas))
    }

    /// Takes in that a node is gone with all that it held; the number of keys that it held.
    pub fn remove_node(&mut self, node: u64) -> usize {
        let held = self.keys.iter().filter(|(_, entry)| {
            let mut replicas = entry.replicas.iter();
            replicas.any(|(it, _)| it.node == node)
        });
        let held: Vec<Arc<[u8]>> = held.map(|(key, _)| key.clone()).collect();
        for key in &held {
            let entry = self.keys.get(key).map(|entry| entry.replicas.clone());
            let mut replicas = entry.unwrap_or_default();
            replicas.retain(|(it, _)| it.node != node);
            self.set(key, replicas);
        }
        held.len()
    }

    /// Where many keys are, as seen from a reader's node. A key that is unknown has no replica.
    pub fn locate(
        &self,
        keys: &[&[u8]],
        reader: u64,
        costs: &ReadCosts,
        now_ns: i64,
    ) -> LocateAnswer {
        let rows = keys.iter().map(|key| match self.keys.get(*key) {
            Some(entry) => located(entry, reader, costs, now_ns),
            None => KeyLocation {
                replicas: Vec::new(),
                change: 0,
            },
        });
        LocateAnswer {
            epoch: self.epoch,
            change: self.change,
            keys: rows.collect(),
        }
    }

    /// The keys that have changed since a number, at most so many, each once.
    pub fn changed_since(&self, since: u64, keys_max: usize) -> LocationChanges {
        if since < self.forgotten_to {
            return LocationChanges::TooOld {
                since_min: self.forgotten_to,
            };
        }
        // A number that is not given yet is of a table that was here before this one.
        if since > self.change {
            return LocationChanges::TooOld {
                since_min: self.change,
            };
        }
        let mut changes = self.changes.range(since + 1..);
        let taken = changes.by_ref().take(keys_max.max(1));
        let keys: Vec<_> = taken.map(|(number, key)| (*number, key.clone())).collect();
        let is_more = changes.next().is_some();
        let next = match (is_more, keys.last()) {
            (true, Some((number, _))) => *number,
            _ => self.change,
        };
        LocationChanges::Since {
            keys,
            next,
            is_more,
        }
    }

    /// Sets the replicas of a key, as the next change.
    fn set(&mut self, key: &[u8], replicas: Vec<(Replica, i64)>) -> u64 {
        self.change += 1;
        let change = self.change;
        let (key, last) = match self.keys.remove_entry(key) {
            Some((key, entry)) => (key, Some(entry.change)),
            None => (Arc::from(key), None),
        };
        if let Some(last) = last {
            self.changes.remove(&last);
        }
        self.changes.insert(change, key.clone());
        if !replicas.is_empty() {
            self.keys.insert(key, LocationEntry { replicas, change });
        }
        // Removed keys stay among the changes, until they are the oldest of too many.
        while self.changes.len() > self.keys_max {
            self.forget_oldest();
        }
        change
    }

    fn forget_oldest(&mut self) {
        let Some((number, key)) = self.changes.pop_first() else {
            return;
        };
        self.forgotten_to = number;
        let is_last = |entry: &LocationEntry| entry.change == number;
        if self.keys.get(&key).is_some_and(is_last) {
            self.keys.remove(&key);
            self.forgotten += 1;
        }
    }
}

fn located(entry: &LocationEntry, reader: u64, costs: &ReadCosts, now_ns: i64) -> KeyLocation {
    let newest = entry.replicas.iter().map(|(it, _)| it.version).max();
    let rows = entry
        .replicas
        .iter()
        .map(|(replica, told_ns)| LocatedReplica {
            replica: *replica,
            is_newest: Some(replica.version) == newest,
            age_s: now_ns.saturating_sub(*told_ns).max(0) as f64 / 1e9,
            read_s: costs.read_s(reader, replica),
        });
    let mut replicas: Vec<LocatedReplica> = rows.collect();
    replicas.sort_by(|a, b| {
        let cost = |it: &LocatedReplica| it.read_s.unwrap_or(f64::INFINITY);
        let newer = b.replica.version.cmp(&a.replica.version);
        newer.then(cost(a).total_cmp(&cost(b)))
    });
    KeyLocation {
        replicas,
        change: entry.change,
    }
}

#[cfg(test)]
mod tests;

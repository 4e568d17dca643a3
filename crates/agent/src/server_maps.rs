//! Server maps on this node: the desk at which programs report how they use them, and what is
//! relayed of that to the leader, whose words go to the programs (docs/design/0012-agreement.md).
//!
//! The desk never waits. A node is one member of a map, whatever number of its processes are; it
//! says that it has drained when none of them runs an operation of an epoch before.

mod document;
mod map_control;
mod relay;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use barograph_intake::{
    IntakeBell, MapDesk, MapOutcome, MapReport, MapRole, MapSample, PhaseProcess,
};
use barograph_stream::Incarnation;
use barograph_stream::ingest::{MapState, MapWords, ServerSet};

use crate::controller_words::{
    MAP_NAME_BYTES_MAX, MapKey, MapWord, ServerWord, process_text, servers_text,
};
pub(crate) use document::MapDocuments;
pub(crate) use map_control::{AskedOfMaps, MAP_CONTROLLER, MapControl, ToldMaps};
pub(crate) use relay::MapBatch;

/// Most maps of which a node keeps anything, and of one user.
const MAPS_MAX: usize = 256;
const MAPS_OF_USER_MAX: usize = 32;
/// Most samples of servers that wait to be relayed; those beyond are left out.
const SAMPLES_MAX: usize = 1_024;

/// A use of a map: the process, and its slot.
type UseId = (u128, u8);

/// What a process is for a map, as of its newest report.
#[derive(Clone, Copy, Debug, PartialEq)]
enum MapUse {
    Member {
        running: u64,
        refused: u64,
        declared: ServerSet,
    },
    Server {
        number: u32,
        oldest_epoch: Option<u64>,
        /// Whether the leader knows of this process: only then it is told a fence.
        is_known: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Used {
    of: MapUse,
    /// The newest words that had been written before it was read.
    seen: u64,
    /// The newest words that it was told.
    told: u64,
    /// Operations that it has ended so far.
    ended: u64,
}

/// A map as this node knows it.
#[derive(Debug, Default)]
struct NodeMap {
    /// What the leader says; `None` before it has said anything.
    words: Option<MapWords>,
    /// The number of these words, and of the first ones with this prepared epoch and this fence.
    number: u64,
    prepared: u64,
    fenced: u64,
    uses: BTreeMap<UseId, Used>,
    /// Servers whose process has certainly ended, with its number.
    gone: BTreeMap<u32, u128>,
    samples: Vec<(u32, MapSample)>,
    /// Operations of members that have ended since this agent knows of the map.
    operations: u64,
    /// The monotonic time at which the leader was told of them last.
    counted_ns: i64,
    application: String,
    /// What the leader has acknowledged.
    heard: Option<MapWord>,
}

#[derive(Debug, Default)]
struct Maps {
    maps: BTreeMap<MapKey, NodeMap>,
    outcomes: Vec<MapOutcome>,
    /// Uses that are told that nobody keeps their map, since there are too many.
    refused: u64,
}

/// The server maps of a node.
pub(crate) struct ServerMaps {
    maps: Mutex<Maps>,
    control: Arc<MapControl>,
    waker: OnceLock<Box<dyn Fn() + Send + Sync>>,
    bell: OnceLock<IntakeBell>,
}

impl ServerMaps {
    /// No maps yet. What the leader decides about them is told to this controller.
    pub(crate) fn new(control: Arc<MapControl>) -> Arc<Self> {
        Arc::new(Self {
            maps: Mutex::default(),
            control,
            waker: OnceLock::new(),
            bell: OnceLock::new(),
        })
    }

    /// The controller of maps.
    pub(crate) fn control(&self) -> &Arc<MapControl> {
        &self.control
    }

    /// Has this called whenever there is something to relay, and the intake woken by this bell
    /// when there is something to be told.
    pub(crate) fn wake_by(
        &self,
        waker: impl Fn() + Send + Sync + 'static,
        bell: Option<IntakeBell>,
    ) {
        let _ = self.waker.set(Box::new(waker));
        if let Some(bell) = bell {
            let _ = self.bell.set(bell);
        }
    }

    fn maps(&self) -> MutexGuard<'_, Maps> {
        // A panic under the lock leaves maps that are valid.
        self.maps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker();
        }
    }

    /// Uses that were told that nobody keeps their map, since there were too many.
    pub(crate) fn refused(&self) -> u64 {
        self.maps().refused
    }

    /// Whether some program uses a map.
    pub(crate) fn are_used(&self) -> bool {
        !self.maps().maps.is_empty()
    }
}

impl MapDesk for ServerMaps {
    fn uses_maps(&self) -> bool {
        true
    }

    fn report(&self, process: &PhaseProcess, reports: &[MapReport]) {
        let mut maps = self.maps();
        let mut has_changed = false;
        for report in reports {
            has_changed |= maps.report(process, report);
        }
        drop(maps);
        if has_changed {
            self.control.appear();
            self.wake();
        }
    }

    fn leave(&self, incarnation: Incarnation, is_certain: bool) {
        let process = u128::from_le_bytes(incarnation.0);
        let has_changed = self.maps().leave(process, is_certain);
        if has_changed {
            self.wake();
        }
    }

    fn step(&self) -> Option<i64> {
        None
    }

    fn take_outcomes(&self) -> Vec<MapOutcome> {
        std::mem::take(&mut self.maps().outcomes)
    }
}

impl Maps {
    /// Takes in a report; returns whether the leader may have to know.
    fn report(&mut self, process: &PhaseProcess, report: &MapReport) -> bool {
        let key = (process.uid, report.map.clone());
        let id = (u128::from_le_bytes(process.incarnation.0), report.slot);
        if !self.maps.contains_key(&key) {
            self.make_room(process.uid);
            let of_user = self.maps.keys().filter(|(user, _)| *user == process.uid);
            let is_long = report.map.len() > MAP_NAME_BYTES_MAX;
            if is_long || self.maps.len() >= MAPS_MAX || of_user.count() >= MAPS_OF_USER_MAX {
                self.refused += 1;
                self.outcomes.push(MapOutcome {
                    incarnation: process.incarnation,
                    slot: report.slot,
                    number: report.seen + 1,
                    words: MapWords::OFF,
                });
                return false;
            }
        }
        let map = self.maps.entry(key).or_default();
        // Words of an earlier life of the agent may have had greater numbers.
        map.number = map.number.max(report.seen);
        if map.application.is_empty() {
            map.application.clone_from(&process.application);
        }
        let known = map.uses.get(&id).copied();
        let of = match &report.role {
            MapRole::Member {
                running,
                refused,
                declared,
                ..
            } => MapUse::Member {
                running: *running,
                refused: *refused,
                declared: *declared,
            },
            MapRole::Server {
                number,
                oldest_epoch,
                samples,
                ..
            } => {
                let room = SAMPLES_MAX.saturating_sub(map.samples.len());
                let samples = samples.iter().take(room);
                map.samples.extend(samples.map(|sample| (*number, *sample)));
                map.gone.remove(number);
                let is_known = known
                    .is_some_and(|known| matches!(known.of, MapUse::Server { is_known: true, .. }));
                MapUse::Server {
                    number: *number,
                    oldest_epoch: *oldest_epoch,
                    is_known,
                }
            }
        };
        let ended = match &report.role {
            MapRole::Member { ended, .. } => *ended,
            MapRole::Server { .. } => 0,
        };
        let used = Used {
            of,
            seen: report.seen,
            told: known.map_or(0, |known| known.told),
            ended,
        };
        // Of a process that is new here it is not known when its operations were.
        let before = known.map_or(ended, |known| known.ended);
        map.operations += ended.saturating_sub(before);
        map.uses.insert(id, used);
        map.tell(id, &mut self.outcomes);
        let is_same = known.is_some_and(|known| Used { ended, ..known } == used);
        !is_same || !map.samples.is_empty()
    }

    /// Forgets maps that no process here uses, if there is no room for another one of a user. What
    /// is forgotten is which of their servers have ended.
    fn make_room(&mut self, user: u32) {
        let of_user = self.maps.keys().filter(|(of, _)| *of == user).count();
        let (is_full, user_is_full) = (self.maps.len() >= MAPS_MAX, of_user >= MAPS_OF_USER_MAX);
        if is_full || user_is_full {
            self.maps
                .retain(|(of, _), map| !map.uses.is_empty() || !(is_full || *of == user));
        }
    }

    /// Takes in that a process has ended, or that nothing is known of it any more.
    fn leave(&mut self, process: u128, is_certain: bool) -> bool {
        let mut has_changed = false;
        for map in self.maps.values_mut() {
            let of_process = map.uses.range((process, 0)..=(process, u8::MAX));
            let of_process: Vec<(UseId, MapUse)> =
                of_process.map(|(id, used)| (*id, used.of)).collect();
            for (id, of) in of_process {
                map.uses.remove(&id);
                has_changed = true;
                if let (MapUse::Server { number, .. }, true) = (of, is_certain) {
                    map.gone.insert(number, process);
                }
            }
        }
        has_changed
    }
}

impl NodeMap {
    /// Tells a use the newest words, if there are any that it was not told. A server is told a
    /// fence when the leader knows of it: from then on no change is made without it.
    fn tell(&mut self, id: UseId, outcomes: &mut Vec<MapOutcome>) {
        let (Some(words), Some(used)) = (self.words, self.uses.get_mut(&id)) else {
            return;
        };
        let is_awaited = matches!(
            used.of,
            MapUse::Server {
                is_known: false,
                ..
            }
        );
        if is_awaited || used.told >= self.number {
            return;
        }
        used.told = self.number;
        outcomes.push(MapOutcome {
            incarnation: Incarnation(id.0.to_le_bytes()),
            slot: id.1,
            number: self.number,
            words,
        });
    }

    fn tell_all(&mut self, outcomes: &mut Vec<MapOutcome>) {
        let ids: Vec<UseId> = self.uses.keys().copied().collect();
        for id in ids {
            self.tell(id, outcomes);
        }
    }

    /// Takes in what the leader says; returns whether that is new.
    fn order(&mut self, words: MapWords) -> bool {
        if self.words == Some(words) {
            return false;
        }
        self.number += 1;
        let before = self.words.unwrap_or(MapWords::OFF);
        if words.prepare != before.prepare {
            self.prepared = self.number;
        }
        if words.fence != before.fence || self.words.is_none() {
            self.fenced = self.number;
        }
        self.words = Some(words);
        true
    }

    /// What the leader is to know.
    fn word(&self, key: &MapKey) -> MapWord {
        let (mut members, mut running_sum, mut behind, mut most_refused) = (0, 0, false, 0);
        let mut all_declared = ServerSet::EMPTY;
        let mut servers = Vec::new();
        let words = self.words.unwrap_or(MapWords::OFF);
        for (id, used) in &self.uses {
            match used.of {
                MapUse::Member {
                    running,
                    refused,
                    declared,
                    ..
                } => {
                    members += 1;
                    running_sum += running;
                    behind |= used.seen < self.prepared;
                    most_refused = most_refused.max(refused);
                    declared.iter().for_each(|server| {
                        all_declared.insert(server);
                    });
                }
                MapUse::Server {
                    number,
                    oldest_epoch,
                    is_known,
                } => {
                    // The counts were read after the fence had been written, and none before it
                    // runs.
                    let is_fenced = is_known
                        && used.seen >= self.fenced
                        && self.words.is_some()
                        && oldest_epoch.is_none_or(|oldest| oldest >= words.fence);
                    servers.push(ServerWord {
                        number,
                        process: process_text(id.0),
                        fence: if is_fenced { words.fence } else { 0 },
                    });
                }
            }
        }
        let is_drained = words.prepare > words.epoch && !behind && running_sum == 0;
        let gone = self.gone.iter();
        MapWord {
            user: key.0,
            name: key.1.clone(),
            application: self.application.clone(),
            members,
            running: running_sum,
            epoch: words.epoch,
            prepared: if behind { 0 } else { words.prepare },
            is_drained,
            refused: most_refused,
            declared: servers_text(&all_declared),
            operations: self.operations,
            servers,
            gone: gone
                .map(|(number, process)| (*number, process_text(*process)))
                .collect(),
            samples: Vec::new(),
        }
    }
}

/// The words of a map that is kept.
pub(crate) fn told_words(prepare: u64, epoch: u64, fence: u64, servers: ServerSet) -> MapWords {
    MapWords {
        state: MapState::Told,
        prepare,
        epoch,
        fence,
        servers,
    }
}

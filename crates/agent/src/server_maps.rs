//! Server maps on this node: the desk at which programs report how they use them, and what is
//! relayed of that to the leader, whose words go to the programs (docs/design/0012-agreement.md).
//!
//! The desk never waits. A node is one member of a map, whatever number of its processes are. When
//! it has drained, and which servers may be told a fence, is decided by [`EpochNode`], which is
//! checked in `crates/control`; here are the words of programs and leaders, and bounds.

mod document;
mod map_control;
mod relay;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use barograph_control::{EpochNode, EpochUse, EpochUseId, NodeTell, NodeWord, ProcessId};
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
const MAPS_MAX: usize = 128;
const MAPS_OF_USER_MAX: usize = 32;
/// Most samples of servers that wait to be relayed; those beyond are left out.
const SAMPLES_MAX: usize = 1_024;

/// A map as this node knows it.
#[derive(Debug, Default)]
struct NodeMap {
    node: EpochNode,
    /// The servers that the programs of members have declared.
    declared: BTreeMap<EpochUseId, ServerSet>,
    samples: Vec<(u32, MapSample)>,
    /// Operations that each member has ended, and all since this agent knows of the map.
    ended: BTreeMap<EpochUseId, u64>,
    operations: u64,
    /// The monotonic time at which the leader was told of them last.
    counted_ns: i64,
    application: String,
    /// What the leader has acknowledged.
    heard: Option<MapWord>,
    /// The same, as the controller of this node has said it, with the term of the leader and the
    /// number of the report.
    said: Option<(u64, u64, NodeWord)>,
}

#[derive(Debug, Default)]
struct Maps {
    maps: BTreeMap<MapKey, NodeMap>,
    outcomes: Vec<MapOutcome>,
    /// The map of which the leader was told again last, though it has heard it.
    repeated: MapKey,
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
        let id = EpochUseId {
            process: u128::from_le_bytes(process.incarnation.0),
            slot: report.slot,
        };
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
        if map.application.is_empty() {
            map.application.clone_from(&process.application);
        }
        let mut has_changed = false;
        let of = match &report.role {
            MapRole::Member {
                running,
                refused,
                ended,
                declared,
                ..
            } => {
                // Of a process that is new here it is not known when its operations were.
                let before = map.ended.insert(id, *ended).unwrap_or(*ended);
                map.operations += ended.saturating_sub(before);
                has_changed |= map.declared.insert(id, *declared) != Some(*declared);
                EpochUse::Member {
                    running: *running,
                    refused: *refused,
                }
            }
            MapRole::Server {
                number,
                oldest_epoch,
                samples,
                ..
            } => {
                let room = SAMPLES_MAX.saturating_sub(map.samples.len());
                let samples = samples.iter().take(room);
                map.samples.extend(samples.map(|sample| (*number, *sample)));
                EpochUse::Server {
                    number: ProcessId::from(*number),
                    oldest_epoch: *oldest_epoch,
                }
            }
        };
        let output = map.node.report(id, of, report.seen);
        has_changed |= output.has_changed || !map.samples.is_empty();
        self.tell(output.tell);
        has_changed
    }

    /// Has programs told what is newest.
    fn tell(&mut self, tell: Option<NodeTell>) {
        let Some(NodeTell {
            number,
            order,
            uses,
        }) = tell
        else {
            return;
        };
        let servers = order.map.servers.iter();
        let servers = servers.filter_map(|it| u32::try_from(*it).ok());
        let words = MapWords {
            state: MapState::Told,
            prepare: order.prepare,
            epoch: order.map.epoch,
            fence: order.fence,
            servers: servers.collect(),
        };
        self.outcomes.extend(uses.iter().map(|id| MapOutcome {
            incarnation: Incarnation(id.process.to_le_bytes()),
            slot: id.slot,
            number,
            words,
        }));
    }

    /// Forgets maps that no process here uses, if there is no room for another one of a user. What
    /// is forgotten is which of their servers have ended.
    fn make_room(&mut self, user: u32) {
        let of_user = self.maps.keys().filter(|(of, _)| *of == user).count();
        let (is_full, user_is_full) = (self.maps.len() >= MAPS_MAX, of_user >= MAPS_OF_USER_MAX);
        if is_full || user_is_full {
            self.maps
                .retain(|(of, _), map| map.node.has_uses() || !(is_full || *of == user));
        }
    }

    /// Takes in that a process has ended, or that nothing is known of it any more.
    fn leave(&mut self, process: u128, is_certain: bool) -> bool {
        let mut has_changed = false;
        for map in self.maps.values_mut() {
            has_changed |= map.node.leave(process, is_certain);
            map.declared.retain(|id, _| id.process != process);
            map.ended.retain(|id, _| id.process != process);
        }
        has_changed
    }
}

impl NodeMap {
    /// What the leader is to know.
    fn word(&self, key: &MapKey) -> (MapWord, NodeWord) {
        let said = self.node.word();
        let declared = self.declared.values().flat_map(ServerSet::iter).collect();
        let number = |it: ProcessId| u32::try_from(it).unwrap_or(u32::MAX);
        let servers = said.servers.iter().map(|server| ServerWord {
            number: number(server.number),
            process: process_text(server.process),
            fence: server.fence,
        });
        let gone = said.gone.iter();
        let word = MapWord {
            user: key.0,
            name: key.1.clone(),
            application: self.application.clone(),
            members: said.members,
            running: said.running,
            epoch: said.epoch,
            prepared: said.prepared,
            is_drained: said.is_drained,
            refused: said.refused,
            declared: servers_text(&declared),
            operations: self.operations,
            servers: servers.collect(),
            gone: gone
                .map(|(of, process)| (number(*of), process_text(*process)))
                .collect(),
            samples: Vec::new(),
        };
        (word, said)
    }
}

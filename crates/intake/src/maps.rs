//! Server maps: how programs use them, and the desk that tells programs what is newest of each
//! (docs/design/0012-agreement.md, "Epochs").
//!
//! A program declares that it uses a map by a publication, and counts its operations in a slot of
//! its file. Here these slots are read and handed to the desk of the agent, and what the desk tells
//! is written into them. Requests that servers have measured come as frames.
//!
//! # What a report is worth
//!
//! A program counts an operation before it looks at what it is told; here, what is told is written
//! before the counts are read. So from a report with `seen >= n` the desk knows: every operation
//! that is not counted in it begins by the words with the number `n`, or later ones. With words
//! that prepare an epoch and a count of 0, no operation of an earlier epoch runs, nor will one
//! begin, except those of a program whose patience is over; these are counted again, and servers
//! refuse them by their fences.

use std::collections::BTreeMap;

use barograph_model::Value;
use barograph_stream::Incarnation;
use barograph_stream::ingest::{
    MAP_LABEL, MAP_PUBLICATION, MapUse, MapWords, SERVER_LABEL, SERVER_LOAD, SERVER_NUMBERS,
    SERVER_PUBLICATION, SERVER_REQUESTS, SERVER_SERVICE, ServerSet,
};

use crate::PhaseProcess;

/// Most samples of a process that one look hands on; those of further requests are left out. Its
/// streams have them.
pub(crate) const SAMPLES_MAX: usize = 64;

/// What a process is for a map, as of one look.
#[derive(Clone, Debug, PartialEq)]
pub struct MapReport {
    /// The place in the file of the process to which the map's words are written. It stays the same
    /// as long as the process lives.
    pub slot: u8,
    /// The name of the map. Those of two users are two maps.
    pub map: String,
    /// What the process is for it.
    pub role: MapRole,
    /// The number of the newest words ([`MapOutcome::number`]) that had been written for this
    /// slot before the counts were read; 0 if this agent has written none.
    pub seen: u64,
    /// What the file says that the process was told last; by an agent before this one if `seen` is
    /// 0. The process could have written it itself.
    pub told: Option<MapWords>,
}

/// What a process is for a map.
#[derive(Clone, Debug, PartialEq)]
pub enum MapRole {
    /// It does operations at the servers.
    Member {
        /// Operations that have begun and not ended.
        running: u64,
        /// Operations that wait to begin.
        waiting: u64,
        /// The greatest fence with which a server has refused it; 0 if none has. A map in force of
        /// an earlier epoch is not the newest.
        refused: u64,
        /// Operations that have ended and were not refused, since the program began.
        ended: u64,
        /// The servers that its program has declared: the first map, if there is none yet.
        declared: ServerSet,
    },
    /// It is a server.
    Server {
        /// Its number, below 1,024.
        number: u32,
        /// Requests that have begun and not ended.
        running: u64,
        /// The lowest epoch of one of these; lower than it is if there are many epochs at a time.
        oldest_epoch: Option<u64>,
        /// Requests that were measured since the last report.
        samples: Vec<MapSample>,
    },
}

/// A request that a server has served.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MapSample {
    /// Its bytes, times one more than the requests that were before it.
    pub load: u64,
    /// Seconds from the request to the answer.
    pub service_s: f64,
    /// Requests that the server has served so far, this one among them; 0 if it does not say.
    pub requests: u64,
}

/// What a process is told of a map.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MapOutcome {
    /// The process.
    pub incarnation: Incarnation,
    /// The slot, as reported.
    pub slot: u8,
    /// A number of the desk's, above 0 and above those of earlier words for the same slot.
    pub number: u64,
    /// What is newest of the map. It replaces what was told before.
    pub words: MapWords,
}

/// The desk at which uses of maps are reported, and which tells what is newest of each. It never
/// waits. What comes to it from other threads is written after [`IntakeBell::ring`].
///
/// [`IntakeBell::ring`]: crate::IntakeBell::ring
pub trait MapDesk: Send + Sync {
    /// Whether maps are kept at all. Programs that use one are told at once if not.
    fn uses_maps(&self) -> bool;

    /// Takes in reports of a process, one for each of its slots whose counts have changed, whose
    /// words were written, or of which nothing was said for a second. So it is also the sign that
    /// the process lives.
    fn report(&self, process: &PhaseProcess, reports: &[MapReport]);

    /// Takes in that a process uses no map any more. If that is certain, the kernel says that it
    /// has ended, so none of its operations or requests runs; otherwise it has closed its file, or
    /// its file is damaged, and nothing is known of it.
    fn leave(&self, incarnation: Incarnation, is_certain: bool);

    /// Does what is due; returns the time of the next step on the monotonic clock.
    fn step(&self) -> Option<i64>;

    /// What is to be told since the last call; of several words for a slot the last one counts.
    fn take_outcomes(&self) -> Vec<MapOutcome>;
}

/// How the declarations of a publication name a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedMap {
    pub name: String,
    /// The number of the server; `None` for a member.
    pub server: Option<u32>,
}

/// The map of a publication with these labels, if it is one of members or servers.
pub(crate) fn map_of(publication: &str, labels: &[(String, String)]) -> Option<NamedMap> {
    let label = |wanted: &str| {
        let label = labels.iter().find(|(name, _)| name == wanted);
        label.map(|(_, text)| text.clone())
    };
    let name = label(MAP_LABEL)?;
    match publication {
        MAP_PUBLICATION => Some(NamedMap { name, server: None }),
        SERVER_PUBLICATION => {
            let number: u32 = label(SERVER_LABEL)?.parse().ok()?;
            let server = (number < SERVER_NUMBERS).then_some(number);
            server.map(|_| NamedMap { name, server })
        }
        _ => None,
    }
}

/// What a process has said of the requests that it has served, as it is taken in.
#[derive(Default)]
pub(crate) struct MapNews {
    /// By ring: the values of a frame are those of its thread.
    said: BTreeMap<u32, SaidSample>,
    /// By publication.
    samples: BTreeMap<usize, Vec<MapSample>>,
    count: usize,
    slots: BTreeMap<u8, SlotNews>,
    /// Whether the desk knows of the process.
    is_known: bool,
    /// Whether it was told that it has ended: nothing is reported of it any more.
    has_left: bool,
}

#[derive(Clone, Copy, Debug)]
struct SaidSample {
    publication: usize,
    load: Option<u64>,
    service_s: Option<f64>,
    requests: u64,
}

/// What was reported of a slot, and told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SlotNews {
    /// The use that was reported last.
    pub reported: Option<MapUse>,
    /// The number of the words that were written last.
    pub seen: u64,
    /// Monotonic time at which it is reported in any case.
    pub due_ns: i64,
    /// The operations that were reported as ended, and the monotonic time at which others are.
    pub ended: u64,
    pub count_due_ns: i64,
}

impl MapNews {
    /// Takes in a value of a publication of a server.
    pub(crate) fn value(&mut self, ring: u32, publication: usize, name: &str, value: &Value) {
        let fresh = SaidSample {
            publication,
            load: None,
            service_s: None,
            requests: 0,
        };
        let said = self.said.entry(ring).or_insert(fresh);
        if said.publication != publication {
            *said = fresh;
        }
        match (name, value) {
            (SERVER_LOAD, Value::Int(load)) => said.load = u64::try_from(*load).ok(),
            (SERVER_SERVICE, Value::Float(service_s)) => said.service_s = Some(*service_s),
            (SERVER_REQUESTS, Value::Int(served)) => {
                said.requests = u64::try_from(*served).unwrap_or_default();
            }
            _ => {}
        }
    }

    /// Takes in the end of a frame.
    pub(crate) fn frame(&mut self, ring: u32, publication: usize) {
        let Some(said) = self.said.remove(&ring) else {
            return;
        };
        let sane = |service_s: &f64| service_s.is_finite() && *service_s >= 0.0;
        let (Some(load), Some(service_s)) = (said.load, said.service_s.filter(sane)) else {
            return;
        };
        if said.publication == publication && self.count < SAMPLES_MAX {
            self.count += 1;
            let samples = self.samples.entry(publication).or_default();
            samples.push(MapSample {
                load,
                service_s,
                requests: said.requests,
            });
        }
    }

    /// The samples of a publication since the last call.
    pub(crate) fn take_samples(&mut self, publication: usize) -> Vec<MapSample> {
        let samples = self.samples.remove(&publication).unwrap_or_default();
        self.count -= samples.len();
        samples
    }

    pub(crate) fn has_samples(&self, publication: usize) -> bool {
        self.samples.contains_key(&publication)
    }

    pub(crate) fn slot(&mut self, slot: u8) -> &mut SlotNews {
        self.slots.entry(slot).or_default()
    }

    /// Notes that the desk knows of the process.
    pub(crate) fn set_known(&mut self) {
        self.is_known = true;
    }

    /// Whether the desk knows of the process; asked once, at its end.
    pub(crate) fn take_known(&mut self) -> bool {
        self.has_left = true;
        std::mem::take(&mut self.is_known)
    }

    pub(crate) fn has_left(&self) -> bool {
        self.has_left
    }

    pub(crate) fn is_known(&self) -> bool {
        self.is_known
    }
}

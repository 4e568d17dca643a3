//! The controller of server maps, for those who look at it and switch it: what the leader decides
//! about the servers of maps, and what people ask of that.
//!
//! The thread of the agreement decides, and requests of people come from other threads. Both meet
//! here, under a lock that nobody holds for long.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use barograph_control::Decision;
use barograph_model::{Clock, RequestSender};

use crate::control_events::ControlEvents;
use crate::controller_words::LedMapRow;
use crate::decisions::{
    ConfiguredMode, Controller, ControllerLevel, ControllerMode, ControllerSwitches, DecisionBook,
    DecisionTally, HoldOff, KeptDecision,
};

/// Its name in the list of controllers.
pub(crate) const MAP_CONTROLLER: &str = "server-maps";

/// The controller of server maps of an agent. It decides while its node leads.
pub(crate) struct MapControl {
    /// Whether slow servers are taken out (`control.scale_down`).
    is_configured: bool,
    switches: Arc<ControllerSwitches>,
    events: Arc<ControlEvents>,
    clock: Arc<dyn Clock>,
    state: Mutex<MapControlState>,
    /// Wakes whoever publishes the maps, and whether that looks at them by itself.
    watcher: OnceLock<Box<dyn Fn() + Send + Sync>>,
    is_watched: AtomicBool,
}

#[derive(Default)]
struct MapControlState {
    book: DecisionBook,
    told: ToldMaps,
    asked: AskedOfMaps,
}

/// What the thread of the agreement tells of its maps.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ToldMaps {
    /// Whether this node leads; what follows is empty otherwise.
    pub leads: bool,
    pub maps: Vec<LedMapRow>,
    /// The users of maps, each with a sentence about what is done there.
    pub sentences: Vec<(u32, String)>,
    pub held_off: Vec<HoldOff>,
    /// The decisions that can be taken back.
    pub in_effect: BTreeSet<u64>,
}

/// What people ask of it.
#[derive(Debug, Default)]
pub(crate) struct AskedOfMaps {
    /// Decisions to be taken back, and why.
    pub reverts: Vec<(u64, String)>,
    /// Why all servers that were taken out are wanted back.
    pub takes_back: Option<String>,
    /// Whether nothing is held off any more.
    pub resumes: bool,
}

impl MapControl {
    /// The controller of an agent, whether slow servers are taken out or not.
    pub(crate) fn new(
        is_configured: bool,
        switches: &Arc<ControllerSwitches>,
        events: &Arc<ControlEvents>,
        clock: &Arc<dyn Clock>,
    ) -> Arc<Self> {
        Arc::new(Self {
            is_configured,
            switches: Arc::clone(switches),
            events: Arc::clone(events),
            clock: Arc::clone(clock),
            state: Mutex::default(),
            watcher: OnceLock::new(),
            is_watched: AtomicBool::new(false),
        })
    }

    /// Has this called when there are maps, and nobody looks at them.
    pub(crate) fn watch_by(&self, watcher: impl Fn() + Send + Sync + 'static) {
        let _ = self.watcher.set(Box::new(watcher));
    }

    /// Says whether somebody looks at the maps from now on, until this says otherwise.
    pub(crate) fn set_watched(&self, is_watched: bool) {
        self.is_watched.store(is_watched, Ordering::SeqCst);
    }

    /// There are maps.
    pub(crate) fn appear(&self) {
        let watcher = self.watcher.get();
        if let Some(watcher) = watcher.filter(|_| !self.is_watched.swap(true, Ordering::SeqCst)) {
            watcher();
        }
    }

    fn state(&self) -> MutexGuard<'_, MapControlState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is done with slow servers at present; `None` for nothing.
    pub(crate) fn mode(&self) -> Option<ControllerMode> {
        let mode = self.switches.mode(MAP_CONTROLLER).mode;
        (self.is_configured && mode != ControllerMode::Paused).then_some(mode)
    }

    /// A decision of now, about so many servers that a map would have.
    pub(crate) fn decision(&self, subject: &str, servers: usize, why: &str) -> Decision {
        let (id, now_ns) = (self.switches.next_id(), self.clock.now_ns());
        Decision::new(id, now_ns, MAP_CONTROLLER, subject, servers as f64).because(why)
    }

    /// A monotonic time as one since the epoch.
    pub(crate) fn wall_ns_of(&self, monotonic_ns: i64) -> i64 {
        let ahead_ns = self
            .clock
            .now_ns()
            .saturating_sub(self.clock.monotonic_ns());
        monotonic_ns.saturating_add(ahead_ns)
    }

    pub(crate) fn keep(&self, kept: KeptDecision) {
        self.state().book.keep(kept);
    }

    /// Has a decision changed that was kept, at a time since the epoch.
    pub(crate) fn amend(&self, id: u64, by: impl FnOnce(&mut Decision, i64)) {
        let now_ns = self.clock.now_ns();
        if let Some(decision) = self.state().book.get_mut(id) {
            by(decision, now_ns);
        }
    }

    /// Publishes an event. Everybody reads it, so it names no map.
    pub(crate) fn publish(&self, kind: &str, value: f64, confidence: f64) {
        self.events
            .publish(kind, MAP_CONTROLLER, Some(value), confidence, &[]);
    }

    /// What people have asked since the last call.
    pub(crate) fn take_asked(&self) -> AskedOfMaps {
        std::mem::take(&mut self.state().asked)
    }

    /// Takes in what is known of the maps.
    pub(crate) fn tell(&self, told: ToldMaps) {
        let has_maps = !told.maps.is_empty();
        self.state().told = told;
        if has_maps {
            self.appear();
        }
    }

    /// Whether this node leads and keeps a map.
    pub(crate) fn has_maps(&self) -> bool {
        !self.state().told.maps.is_empty()
    }

    /// Whether this node leads, and the maps that it keeps then.
    pub(crate) fn maps(&self) -> (bool, Vec<LedMapRow>) {
        let state = self.state();
        (state.told.leads, state.told.maps.clone())
    }

    /// Looks at its decisions, or takes those that have changed.
    pub(crate) fn with_book<T>(&self, of: impl FnOnce(&mut DecisionBook) -> T) -> T {
        of(&mut self.state().book)
    }

    /// Asks for a decision to be taken back.
    ///
    /// # Errors
    ///
    /// It is not in effect, or not here.
    pub(crate) fn revert(&self, id: u64, why: &str) -> Result<(), String> {
        let mut state = self.state();
        if !state.told.in_effect.contains(&id) {
            return Err("the server that it took out is not out by it any more".into());
        }
        let asked = &mut state.asked.reverts;
        if !asked.iter().any(|(of, _)| *of == id) {
            asked.push((id, why.to_owned()));
        }
        Ok(())
    }
}

impl Controller for Arc<MapControl> {
    fn name(&self) -> String {
        MAP_CONTROLLER.into()
    }

    fn level(&self) -> ControllerLevel {
        ControllerLevel::Global
    }

    fn about(&self) -> String {
        "which servers are in maps: slow ones are taken out, and tried again".into()
    }

    fn configured(&self) -> ConfiguredMode {
        match self.is_configured {
            true => ConfiguredMode::Live,
            false => ConfiguredMode::Off,
        }
    }

    fn held_off(&self) -> Vec<HoldOff> {
        self.state().told.held_off.clone()
    }

    fn end_hold_off(&self) -> bool {
        let mut state = self.state();
        state.asked.resumes = true;
        // A pause before this node led has nothing to take back any more.
        state.asked.takes_back = None;
        !std::mem::take(&mut state.told.held_off).is_empty()
    }

    fn tally(&self) -> DecisionTally {
        self.state().book.tally(MAP_CONTROLLER)
    }

    fn explain(&self, asker: &RequestSender) -> Vec<String> {
        let mut told = Vec::new();
        if !self.is_configured {
            told.push(
                "slow servers are told of, and stay in their maps: control.scale_down is off"
                    .into(),
            );
        }
        let state = self.state();
        if !state.told.leads {
            told.push(
                "another node leads, or none: `baro cluster status` names it, and decisions are there"
                    .into(),
            );
            return told;
        }
        let of_asker = state.told.sentences.iter();
        let of_asker = of_asker.filter(|(user, _)| asker.may_control || asker.uid == Some(*user));
        let before = told.len();
        told.extend(of_asker.map(|(_, sentence)| sentence.clone()));
        if told.len() == before {
            told.push("this user's programs use no map of servers".into());
        }
        told
    }

    fn paused(&self, why: &str) {
        self.state().asked.takes_back = Some(why.to_owned());
    }
}

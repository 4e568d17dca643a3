//! Controllers: readers of arrays ask how much they should read and report what they got
//! (docs/design/0011-control.md). The policies are those of `barograph-control`; this is where they
//! meet users, devices, the forecast of bandwidth and control groups.
//!
//! Middleware asks where it should put blocks (`placing`). Each user has policies and measurements
//! of its own (`readers`). Weights have a lock of their
//! own, since they wait for a disk (`weights`). The thread looks at leases while there are any, and
//! writes the documents; another one hands decisions over to the archive (`archive`). All
//! controllers of the agent, those of volumes too, are listed, explained and switched here
//! (`roster`, `verbs`).

mod archive;
mod config;
mod device;
mod placing;
mod plan;
mod process;
mod readers;
mod request;
mod roster;
#[cfg(test)]
mod switch_tests;
#[cfg(test)]
mod tests;
mod verbs;
mod weighing;
mod weights;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use barograph_client::Observer;
use barograph_intake::{EventDoor, PhaseDesk as _};
use barograph_model::{
    Clock, ControlFault, ControlFaultKind, ControllerVerb, NS_PER_S, RequestSender,
};
use barograph_recorder::publish;
use barograph_stream::{
    CONTROLLERS_DOCUMENT, ControllersRow, DECISIONS_DOCUMENT, DecisionsRow, IO_PHASES_DOCUMENT,
    IoPhasesRow, RunDir, user_name,
};
use serde_json::{Value as Json, json};
use tracing::warn;

use crate::AgentError;
use crate::decisions::{DecisionBook, KeptDecision, SwitchedMode};
use crate::io_schedules::{self, IoSchedules};
use crate::reader_documents::ReaderDocuments;
use crate::server_maps::{MapDocuments, ServerMaps};
use archive::{ArchiveCounts, DecisionArchive};
pub use config::{ControlConfig, ControlModeConfig, ThresholdsConfig, WeightRights};
use device::KernelTrees;
use placing::Placements;
use readers::Readers;
pub use weights::WEIGHTS_DIR;
use weights::{EndedWeight, Weights};

/// Time between two looks at the leases: a process that was killed has its weight so much longer.
const LOOK_NS: i64 = NS_PER_S;
/// Shortest time between two writes of the document.
const DOCUMENT_NS: i64 = NS_PER_S;
/// Most plans that one answer lists, and how many it lists if the asker does not say.
const LISTED_MAX: usize = 200;
const LISTED_DEFAULT: usize = 50;
/// The controllers of readers.
const AUGMENTATION: &str = "augmentation";
const WEIGHT: &str = "weight";
/// Most phases of I/O that one answer lists.
const PHASES_MAX: usize = 1_000;

/// The controllers of a node.
pub(crate) struct Controllers {
    shared: Arc<ControlShared>,
    wake: Mutex<Option<SyncSender<()>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The thread that hands decisions over, and what ends it.
    archive: Mutex<Option<(SyncSender<()>, JoinHandle<()>)>>,
}

/// The parts that requests and the thread share.
struct ControlShared {
    config: ControlConfig,
    trees: KernelTrees,
    run_dir: RunDir,
    clock: Arc<dyn Clock>,
    /// The user of this process.
    uid: u32,
    readers: Mutex<Readers>,
    weights: Mutex<Weights>,
    /// The reader of the forecast of bandwidth, once there is a segment.
    observer: Mutex<Option<Observer>>,
    /// The schedulers of volumes, whose phases are published here.
    schedules: Arc<IoSchedules>,
    /// The maps of servers, whose controller is listed here.
    maps: Arc<ServerMaps>,
    /// Where blocks of users were told to go.
    placements: Mutex<Placements>,
    /// What people have changed, and what controllers have held off.
    changes: Mutex<DecisionBook>,
    archive: ArchiveCounts,
}

/// The times of the next work of the thread, on the monotonic clock.
#[derive(Default)]
struct ControlSteps {
    look_ns: i64,
    document_ns: i64,
    /// The number of changes that the document has; `None` before it is written first.
    told: Option<u64>,
    published: ReaderDocuments<DecisionsRow>,
    phases_told: Option<u64>,
    phases: ReaderDocuments<IoPhasesRow>,
    maps: MapDocuments,
    /// The document of controllers, as it was written last.
    controllers: Option<Vec<ControllersRow>>,
}

impl Controllers {
    /// Opens the journal of weights, restores what a killed agent has left, and starts the thread.
    /// `places` are the root of sysfs and the state directory; decisions are archived through the
    /// door, without one not at all.
    pub(crate) fn start(
        config: &ControlConfig,
        places: (&Path, &Path),
        run_dir: &RunDir,
        clock: &Arc<dyn Clock>,
        (schedules, maps): (Arc<IoSchedules>, Arc<ServerMaps>),
        door: Option<Arc<EventDoor>>,
    ) -> Result<Arc<Self>, AgentError> {
        let shared = ControlShared::new(config, places, run_dir, clock, (schedules, maps));
        let shared = Arc::new(shared);
        shared.schedules.switches().reserve();
        let archive = door.map(|door| DecisionArchive::new(door, shared.uid));
        let archive = archive.map(|archive| {
            let (stop, stopped) = sync_channel(1);
            let of_thread = Arc::clone(&shared);
            let thread = std::thread::Builder::new()
                .name("baro-decisions".into())
                .spawn(move || archive::run(&of_thread, archive, &stopped));
            thread.map(|thread| (stop, thread))
        });
        let archive = archive.transpose().map_err(AgentError::Thread)?;
        if archive.is_none() {
            let why = "applications are off, and decisions are kept with their values";
            shared.archive.set_trouble(why.into());
        }
        let (wake, woken) = sync_channel(1);
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("baro-control".into())
            .spawn(move || run(&of_thread, &woken))
            .map_err(AgentError::Thread)?;
        let control = Arc::clone(shared.maps.control());
        let controllers = Arc::new(Self {
            shared,
            wake: Mutex::new(Some(wake)),
            thread: Mutex::new(Some(thread)),
            archive: Mutex::new(archive),
        });
        let to_wake = Arc::downgrade(&controllers);
        control.watch_by(move || {
            if let Some(controllers) = to_wake.upgrade() {
                controllers.wake();
            }
        });
        Ok(controllers)
    }

    /// Plans a read.
    pub(crate) fn plan(&self, body: &Json, asker: &RequestSender) -> Result<Json, ControlFault> {
        let answer = self.shared.plan(body, asker);
        self.wake();
        answer
    }

    /// Advises where blocks go.
    pub(crate) fn advise(&self, body: &Json, asker: &RequestSender) -> Result<Json, ControlFault> {
        let answer = self.shared.advise(body, asker);
        self.wake();
        answer
    }

    /// Takes in what came of a plan, or of an advice.
    pub(crate) fn report(&self, body: &Json, asker: &RequestSender) -> Result<Json, ControlFault> {
        let answer = self.shared.report(body, asker);
        self.wake();
        answer
    }

    /// The newest decisions that the asker may see.
    pub(crate) fn decisions(
        &self,
        body: &Json,
        asker: &RequestSender,
    ) -> Result<Json, ControlFault> {
        self.shared.decisions(body, asker)
    }

    /// Lists or explains controllers and decisions, or changes what they do.
    pub(crate) fn controllers(
        &self,
        verb: ControllerVerb,
        body: &Json,
        asker: &RequestSender,
    ) -> Result<Json, ControlFault> {
        let answer = self.shared.verb(verb, body, asker);
        self.wake();
        answer
    }

    /// The phases of I/O that the asker may see: those that are not over, then the newest others.
    pub(crate) fn phases(&self, body: &Json, asker: &RequestSender) -> Json {
        let limit = body["limit"].as_u64().map_or(LISTED_DEFAULT, |limit| {
            usize::try_from(limit).unwrap_or(PHASES_MAX).min(PHASES_MAX)
        });
        let of = (!asker.may_control).then_some(asker.uid);
        let schedules = &self.shared.schedules;
        json!({
            "volumes": schedules.volumes(),
            "phases": io_schedules::rows_of(schedules, of, limit),
        })
    }

    fn wake(&self) {
        let wake = self.wake.lock().unwrap_or_else(PoisonError::into_inner);
        // A full channel means that the thread is about to look anyway.
        if let Some(wake) = &*wake {
            let _ = wake.try_send(());
        }
    }

    /// Ends all leases, which restores the weights, and the thread.
    pub(crate) fn stop(&self) {
        let ended = self.shared.weights().close();
        self.shared.mark(ended);
        drop(
            self.wake
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        let thread = self.thread.lock();
        let thread = thread.unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            warn!("the thread of controllers had panicked");
        }
        let archive = self.archive.lock();
        let archive = archive.unwrap_or_else(PoisonError::into_inner).take();
        if let Some((stop, thread)) = archive {
            drop(stop);
            if thread.join().is_err() {
                warn!("the thread of archived decisions had panicked");
            }
        }
        self.shared.schedules.switches().close();
    }
}

impl ControlShared {
    fn new(
        config: &ControlConfig,
        (sys_root, state_dir): (&Path, &Path),
        run_dir: &RunDir,
        clock: &Arc<dyn Clock>,
        (schedules, maps): (Arc<IoSchedules>, Arc<ServerMaps>),
    ) -> Self {
        let trees = KernelTrees::new(sys_root);
        let weights = Weights::open(&trees, state_dir);
        Self {
            config: config.clone(),
            trees,
            run_dir: run_dir.clone(),
            clock: Arc::clone(clock),
            uid: rustix::process::geteuid().as_raw(),
            readers: Mutex::default(),
            weights: Mutex::new(weights),
            observer: Mutex::default(),
            schedules,
            maps,
            placements: Mutex::default(),
            changes: Mutex::default(),
            archive: ArchiveCounts::default(),
        }
    }

    fn readers(&self) -> MutexGuard<'_, Readers> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn weights(&self) -> MutexGuard<'_, Weights> {
        self.weights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn placements(&self) -> MutexGuard<'_, Placements> {
        self.placements
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the streams of the node; `None` while there is no segment.
    fn with_observer<T>(&self, look: impl FnOnce(&Observer) -> T) -> Option<T> {
        let mut observer = self.observer.lock().unwrap_or_else(PoisonError::into_inner);
        if observer.is_none() {
            let opened = Observer::open_public(self.run_dir.clone(), Arc::clone(&self.clock));
            *observer = opened.ok();
        }
        observer.as_ref().map(look)
    }

    fn changes(&self) -> MutexGuard<'_, DecisionBook> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The mode of a controller at present.
    fn mode(&self, controller: &str) -> SwitchedMode {
        self.schedules.switches().mode(controller)
    }

    /// Keeps a change of a controller.
    fn keep_change(&self, change: KeptDecision) {
        self.changes().keep(change);
    }

    /// Looks at the books of all controllers but those of readers, one after the other.
    fn for_each_book(&self, mut of: impl FnMut(&mut DecisionBook)) {
        of(&mut self.changes());
        of(&mut self.placements().book);
        self.schedules.with_book(&mut of);
        self.maps.control().with_book(&mut of);
    }

    /// The number of changes of decisions so far.
    fn change_count(&self) -> u64 {
        let mut changes = self.readers().changes;
        self.for_each_book(|book| changes += book.changes);
        changes
    }

    /// The decisions of a user, or of all: one list over all controllers.
    fn kept(&self, of: Option<Option<u32>>) -> Vec<KeptDecision> {
        let readers = self.readers();
        let plans = readers.plans(of).flat_map(|(uid, plan)| plan.kept(uid));
        let mut all: Vec<KeptDecision> = plans.collect();
        drop(readers);
        self.for_each_book(|book| all.extend(book.of(of).cloned()));
        all
    }

    /// Takes the decisions that have changed since the last call.
    fn take_changed(&self) -> Vec<KeptDecision> {
        let mut all = self.readers().take_changed();
        self.for_each_book(|book| all.extend(book.take_changed()));
        all.sort_by_key(|kept| kept.decision.id);
        all
    }

    /// How the archive of decisions is: what did not come there, and why.
    fn archive_state(&self) -> Json {
        let lost = self.archive.lost.load(std::sync::atomic::Ordering::Relaxed);
        let mut forgotten = self.readers().unarchived;
        self.for_each_book(|book| forgotten += book.unarchived);
        json!({ "lost": lost + forgotten, "trouble": self.archive.trouble() })
    }

    /// Notes in their decisions that weights have ended.
    fn mark(&self, ended: Vec<EndedWeight>) {
        let mut readers = self.readers();
        for EndedWeight { plan, reason } in ended {
            let plan = readers.plan_of_all(plan);
            if let Some(weight) = plan.and_then(|plan| plan.weight.as_mut()) {
                weight.revert(&reason);
            }
        }
    }

    /// Notes in their decisions that weights are set which were put off.
    fn resume(&self, plans: &[u64]) {
        for plan in plans {
            let mut readers = self.readers();
            let plan = readers.plan_of_all(*plan);
            if let Some(weight) = plan.and_then(|plan| plan.weight.as_mut()) {
                weight.resume();
            }
        }
    }

    /// Does what is due. Returns the time of the next work, on the monotonic clock; `None` if there
    /// is none until somebody asks.
    fn step(&self, steps: &mut ControlSteps) -> Option<i64> {
        let now_ns = self.clock.monotonic_ns();
        if now_ns >= steps.look_ns && self.weights().is_held() {
            steps.look_ns = now_ns.saturating_add(LOOK_NS);
            let found = self.weights().step(now_ns);
            self.resume(&found.resumed);
            if !found.ended.is_empty() {
                self.mark(found.ended);
            }
        }
        for ended in self.schedules.switches().end_pauses() {
            let mode = ("live", "the time of its pause is over");
            self.tell_mode(&ended, mode, None);
        }
        let changes = self.change_count();
        let phases = self.schedules.changes();
        let has_changed = steps.told != Some(changes) || steps.phases_told != Some(phases);
        if now_ns >= steps.document_ns && has_changed {
            steps.document_ns = now_ns.saturating_add(DOCUMENT_NS);
            self.schedules.switches().reserve();
            self.tell(steps);
            self.tell_phases(steps);
        }
        let has_maps = steps.maps.step(&self.maps, &self.run_dir, self.uid, now_ns);
        let is_passing = self.tell_controllers(steps);
        let look = self.weights().is_held().then_some(steps.look_ns);
        let is_told = steps.told == Some(self.change_count());
        let document = (!is_told).then_some(steps.document_ns);
        // Nobody wakes this thread for a phase of I/O, nor when the time of a mode is over.
        let by_itself = self.schedules.schedules() || is_passing || has_maps;
        let by_itself =
            by_itself.then(|| steps.document_ns.max(now_ns.saturating_add(DOCUMENT_NS)));
        look.into_iter().chain(document).chain(by_itself).min()
    }

    /// Writes the document of controllers if it has changed; returns whether something in it has an
    /// end.
    fn tell_controllers(&self, steps: &mut ControlSteps) -> bool {
        let rows = self.controller_rows();
        let has_end = |row: &ControllersRow| row.until_ts.is_some() || !row.held_off.is_empty();
        let is_passing = rows.iter().any(has_end);
        if steps.controllers.as_ref() != Some(&rows) {
            publish(&self.run_dir, CONTROLLERS_DOCUMENT, &rows);
            steps.controllers = Some(rows);
        }
        is_passing
    }

    /// Writes the documents of phases of I/O.
    fn tell_phases(&self, steps: &mut ControlSteps) {
        steps.phases_told = Some(self.schedules.changes());
        let rows = io_schedules::rows_of_users(&self.schedules);
        let document = (&self.run_dir, IO_PHASES_DOCUMENT);
        let rows_max = io_schedules::ROWS_MAX;
        steps.phases.publish(document, self.uid, rows, rows_max);
    }

    /// Writes the documents of decisions.
    fn tell(&self, steps: &mut ControlSteps) {
        steps.told = Some(self.change_count());
        let kept = self.kept(None);
        let users: Vec<Option<u32>> = kept.iter().map(|it| it.uid).collect();
        let rows = users.into_iter().zip(rows_of(&kept)).collect();
        let document = (&self.run_dir, DECISIONS_DOCUMENT);
        steps
            .published
            .publish(document, self.uid, rows, usize::MAX);
    }

    /// The newest plans first, each with its rows.
    fn decisions(&self, body: &Json, asker: &RequestSender) -> Result<Json, ControlFault> {
        let id = body["id"].as_u64();
        let limit = body["limit"].as_u64().map_or(LISTED_DEFAULT, |limit| {
            usize::try_from(limit).unwrap_or(LISTED_MAX)
        });
        let of = (!asker.may_control).then_some(asker.uid);
        let mut kept = self.kept(of);
        if let Some(controller) = body["controller"].as_str() {
            kept.retain(|it| it.decision.controller == controller);
        }
        if let Some(id) = id {
            let plan = kept.iter().find(|it| it.decision.id == id);
            let plan = plan.ok_or_else(|| unknown(id))?.plan;
            kept.retain(|it| it.plan == plan);
        }
        kept.sort_by_key(|it| (std::cmp::Reverse(it.plan), it.decision.id));
        let mut plans = 0;
        let mut last = None;
        let limit = limit.min(LISTED_MAX);
        kept.retain(|it| {
            plans += usize::from(last.replace(it.plan) != Some(it.plan));
            plans <= limit
        });
        let counts = self.readers().counts;
        let mut of_books = 0;
        self.for_each_book(|book| of_books += book.forgotten_count);
        Ok(json!({
            "decisions": rows_of(&kept),
            "mode": self.config.mode,
            "weights": self.config.weights,
            "refused": counts.refused,
            "forgotten": {
                "users": counts.forgotten_users,
                "devices": counts.forgotten_devices,
                "decisions": counts.forgotten_decisions + of_books,
            },
        }))
    }
}

/// The rows of decisions. Names of users are read from a file: once each, and under no lock.
fn rows_of(kept: &[KeptDecision]) -> Vec<DecisionsRow> {
    let mut names: BTreeMap<u32, String> = BTreeMap::new();
    let rows = kept.iter().map(|kept| {
        let user = kept
            .uid
            .map(|uid| names.entry(uid).or_insert_with(|| user_name(uid)).clone());
        kept.row(&user.unwrap_or_default())
    });
    rows.collect()
}

/// The refusal of a number that is not that of a decision of the asker.
fn unknown(id: u64) -> ControlFault {
    ControlFault {
        kind: ControlFaultKind::Unknown,
        message: format!(
            "this user has no decision {id} in this life of the agent, or not any more: SQL has those that were archived (the table decisions)"
        ),
    }
}

/// The shell of the thread, which waits. It ends when the sender is gone.
#[expect(
    clippy::disallowed_methods,
    reason = "the thread of controllers waits for the next work"
)]
fn run(shared: &ControlShared, woken: &Receiver<()>) {
    let mut steps = ControlSteps::default();
    loop {
        let is_over = match shared.step(&mut steps) {
            None => woken.recv().is_err(),
            Some(at_ns) => {
                let wait_ns = at_ns.saturating_sub(shared.clock.monotonic_ns());
                let wait = Duration::from_nanos(u64::try_from(wait_ns).unwrap_or(0));
                woken.recv_timeout(wait) == Err(RecvTimeoutError::Disconnected)
            }
        };
        if is_over {
            break;
        }
    }
    shared.tell(&mut steps);
}

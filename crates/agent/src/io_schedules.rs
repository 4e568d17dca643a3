//! I/O scheduling on this node: the desk at which programs report their phases of I/O, with a
//! scheduler for each configured volume (docs/design/0012-agreement.md).
//!
//! The intake calls it in its own thread, so nothing here waits. What is told of it, a document and
//! streams, is read by others under the same lock, for the time of a copy.

mod config;
mod document;
mod hosts;
mod relay;
mod turns;
mod view;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use barograph_control::{
    MemberAnswer, MemberId, MemberReport, MemberStage, SchedulerCounts, VolumeScheduler,
};
use barograph_intake::{PhaseDesk, PhaseOutcome, PhaseProcess, PhaseReport};
use barograph_model::Clock;
use barograph_stream::Incarnation;
use barograph_stream::ingest::{GrantState, PhaseStage};

use crate::control_events::ControlEvents;
use crate::decisions::{ControllerSwitches, DecisionBook};

pub use config::{PolicyName, ScheduleConfig, VolumeConfig};
pub(crate) use document::{ROWS_MAX, rows_of, rows_of_users};
use hosts::Hosts;
use relay::Relay;
pub(crate) use relay::{RelayBatch, answer_word};
use turns::{TurnContext, VolumeTurns};
pub(crate) use view::volume_controllers;

/// Most applications whose names are kept; the names of others are not told.
const NAMES_MAX: usize = 8_192;

/// How the names of controllers of volumes begin.
pub(crate) const CONTROLLER_PREFIX: &str = "io-schedule/";

/// An application of a user.
type ApplicationKey = (u32, u64);

/// The names of an application, for those who look at its phases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ApplicationNames {
    application: String,
    job: String,
}

/// A volume that is configured.
struct Volume {
    name: String,
    path: PathBuf,
    scheduler: VolumeScheduler,
    config: VolumeConfig,
    /// Whether its phases are relayed to the leader of the cluster. Then the scheduler is used
    /// where that is this node.
    is_shared: bool,
    told: VolumeTold,
    /// The name of its controller.
    controller: String,
    /// Bytes/s when one application alone uses it, and the time of a lease.
    bandwidth: f64,
    lease_ns: i64,
    turns: VolumeTurns,
    /// Whether all do I/O at once, whatever is planned.
    lets_all: bool,
}

/// What control events have told of a volume.
struct VolumeTold {
    counts: SchedulerCounts,
    /// The policy that made the plan.
    by: &'static str,
}

impl VolumeTold {
    fn of(scheduler: &VolumeScheduler) -> Self {
        Self {
            counts: scheduler.counts(),
            by: scheduler.scheduler().current().by,
        }
    }
}

#[derive(Default)]
struct Desk {
    volumes: Vec<Volume>,
    relay: Relay,
    hosts: Hosts,
    names: BTreeMap<ApplicationKey, ApplicationNames>,
    /// Answers to phases on volumes that are not configured.
    unscheduled: Vec<PhaseOutcome>,
    /// The number of changes, by which the document is kept current.
    changes: u64,
    /// The newest decisions about phases.
    book: DecisionBook,
}

/// What is told of a volume in streams.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct VolumeState {
    /// Phases of applications that wait.
    pub waiting: usize,
    /// Phases of applications that may do I/O.
    pub granted: usize,
    /// The share of the time of the volume that applications need; `None` if it is not known.
    pub load: Option<f64>,
    /// What has happened.
    pub counts: SchedulerCounts,
}

/// The schedulers of a node.
pub(crate) struct IoSchedules {
    desk: Mutex<Desk>,
    clock: Arc<dyn Clock>,
    events: Arc<ControlEvents>,
    switches: Arc<ControllerSwitches>,
    config: ScheduleConfig,
    uid: u32,
    /// Wakes the thread that relays phases of shared volumes.
    relay_waker: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl IoSchedules {
    /// Makes the schedulers of the configured volumes, which tell `events` what goes wrong.
    pub(crate) fn new(
        config: &ScheduleConfig,
        clock: &Arc<dyn Clock>,
        (events, switches): (Arc<ControlEvents>, Arc<ControllerSwitches>),
    ) -> Arc<Self> {
        let volumes = config.volumes.iter().map(|(name, volume)| {
            let scheduler = config.scheduler(volume);
            Volume {
                name: name.clone(),
                path: volume.path.clone(),
                told: VolumeTold::of(&scheduler),
                scheduler,
                config: volume.clone(),
                is_shared: volume.shared,
                controller: controller_of(name),
                bandwidth: volume.bandwidth,
                lease_ns: config.lease_ns().unwrap_or(i64::MAX),
                turns: VolumeTurns::default(),
                lets_all: false,
            }
        });
        Arc::new(Self {
            desk: Mutex::new(Desk {
                volumes: volumes.collect(),
                ..Desk::default()
            }),
            clock: Arc::clone(clock),
            events,
            switches,
            config: config.clone(),
            uid: rustix::process::geteuid().as_raw(),
            relay_waker: OnceLock::new(),
        })
    }

    /// Has this called whenever there is something to relay.
    pub(crate) fn wake_relay_by(&self, waker: impl Fn() + Send + Sync + 'static) {
        let _ = self.relay_waker.set(Box::new(waker));
    }

    fn wake_relay(&self) {
        if let Some(waker) = self.relay_waker.get() {
            waker();
        }
    }

    /// The greatest priority that a user may have.
    fn priority_max(&self, uid: u32) -> u8 {
        match uid == 0 || uid == self.uid {
            true => u8::MAX,
            false => self.config.priority_max,
        }
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        // A panic under the lock leaves a scheduler that is valid.
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The names of the volumes.
    pub(crate) fn volumes(&self) -> Vec<String> {
        let desk = self.desk();
        desk.volumes
            .iter()
            .map(|volume| volume.name.clone())
            .collect()
    }

    /// The state of each volume, in the order of [`Self::volumes`].
    pub(crate) fn states(&self) -> Vec<VolumeState> {
        let now_ns = self.clock.monotonic_ns();
        let desk = self.desk();
        let state = |(at, volume): (usize, &Volume)| {
            if volume.is_shared && !desk.relay.leads {
                return desk.relay.state(at);
            }
            let scheduler = volume.scheduler.scheduler();
            let granted = scheduler.current().grants.len();
            VolumeState {
                waiting: volume.scheduler.phases().count().saturating_sub(granted),
                granted,
                load: scheduler.load(now_ns),
                counts: volume.scheduler.counts(),
            }
        };
        desk.volumes.iter().enumerate().map(state).collect()
    }

    /// Number of changes so far.
    pub(crate) fn changes(&self) -> u64 {
        self.desk().changes
    }

    /// What people have set for controllers.
    pub(crate) fn switches(&self) -> &Arc<ControllerSwitches> {
        &self.switches
    }

    /// Does something with the newest decisions about phases.
    pub(crate) fn with_book<T>(&self, of: impl FnOnce(&mut DecisionBook) -> T) -> T {
        of(&mut self.desk().book)
    }
}

impl IoSchedules {
    /// Steps the schedulers of volumes that are shared, or of those that are not; returns the time
    /// of the next step.
    fn attend(&self, desk: &mut Desk, now: (i64, i64), shared: bool) -> Option<i64> {
        let Desk {
            volumes,
            names,
            book,
            ..
        } = desk;
        let mut context = TurnContext {
            names,
            book,
            switches: &self.switches,
            now_ns: now.0,
            wall_ns: now.1,
        };
        let steps = volumes.iter_mut().filter(|it| it.is_shared == shared);
        let due = steps.filter_map(|volume| {
            let due_ns = volume.attend(&mut context);
            volume.tell(&self.events, now.0);
            due_ns
        });
        due.min()
    }
}

impl PhaseDesk for IoSchedules {
    fn schedules(&self) -> bool {
        !self.desk().volumes.is_empty()
    }

    fn report(&self, process: &PhaseProcess, reports: &[PhaseReport]) {
        let now_ns = self.clock.monotonic_ns();
        let mut desk = self.desk();
        let names = ApplicationNames {
            application: process.application.clone(),
            job: process.job.clone(),
        };
        let key = (process.uid, application_of(&names));
        let host = desk.hosts.of(process);
        let mut is_relayed = false;
        for report in reports {
            let Some(volume) = desk.volume_of(&report.volume) else {
                let outcome = PhaseOutcome {
                    incarnation: process.incarnation,
                    phase: report.phase,
                    state: GrantState::Unscheduled,
                    share: 0.0,
                };
                if report.stage == PhaseStage::Waiting {
                    desk.unscheduled.push(outcome);
                }
                continue;
            };
            let member = MemberId {
                process: u128::from_le_bytes(process.incarnation.0),
                phase: report.phase,
            };
            let said = MemberReport {
                stage: match report.stage {
                    PhaseStage::Waiting => MemberStage::Waiting,
                    PhaseStage::Granted => MemberStage::Granted,
                    PhaseStage::Alone => MemberStage::Alone,
                    PhaseStage::Ended => MemberStage::Ended,
                },
                application: key.1,
                user: process.uid,
                priority: report.priority.min(self.priority_max(process.uid)),
                bytes: report.bytes,
                bytes_done: report.bytes_done,
                lease_ns: report.lease_ns,
                host,
            };
            desk.changes += 1;
            if desk.volumes[volume].is_shared {
                let within = (now_ns, self.config.bounds());
                desk.relay.report((volume, member), &names, said, within);
                is_relayed = true;
                continue;
            }
            desk.volumes[volume].scheduler.report(member, &said, now_ns);
            desk.name(key, names.clone());
        }
        drop(desk);
        if is_relayed {
            self.wake_relay();
        }
    }

    fn leave(&self, incarnation: Incarnation) {
        let now_ns = self.clock.monotonic_ns();
        let process = u128::from_le_bytes(incarnation.0);
        let mut desk = self.desk();
        desk.hosts.leave(process);
        for volume in desk.volumes.iter_mut().filter(|it| !it.is_shared) {
            volume.scheduler.leave(process, now_ns);
        }
        desk.changes += 1;
        let is_relayed = desk.relay.leave(process);
        drop(desk);
        if is_relayed {
            self.wake_relay();
        }
    }

    fn step(&self) -> Option<i64> {
        let (now_ns, wall_ns) = (self.clock.monotonic_ns(), self.clock.now_ns());
        let mut desk = self.desk();
        self.attend(&mut desk, (now_ns, wall_ns), false)
    }

    fn take_outcomes(&self) -> Vec<PhaseOutcome> {
        let mut desk = self.desk();
        let mut outcomes = std::mem::take(&mut desk.unscheduled);
        outcomes.extend(desk.relay.take_outcomes());
        for volume in desk.volumes.iter_mut().filter(|it| !it.is_shared) {
            let answers = volume.scheduler.take_answers();
            outcomes.extend(
                answers
                    .into_iter()
                    .map(|(member, answer)| outcome(member, answer)),
            );
        }
        desk.changes += u64::from(!outcomes.is_empty());
        outcomes
    }
}

impl Volume {
    /// Forgets all phases.
    fn begin_anew(&mut self, config: &ScheduleConfig) {
        self.scheduler = config.scheduler(&self.config);
        self.told = VolumeTold::of(&self.scheduler);
    }

    /// Tells what has happened since the last time. Everyone on the node may read it, so it names
    /// the volume, and no application or user.
    fn tell(&mut self, events: &ControlEvents, now_ns: i64) {
        let scheduler = self.scheduler.scheduler();
        let (counts, by) = (self.scheduler.counts(), scheduler.current().by);
        let before = std::mem::replace(&mut self.told, VolumeTold { counts, by });
        for (kind, now, then) in [
            ("io.starved", counts.starved, before.counts.starved),
            ("io.refused", counts.refused, before.counts.refused),
            ("io.expired", counts.expired, before.counts.expired),
            ("io.alone", counts.went_alone, before.counts.went_alone),
        ] {
            if now > then {
                let phases = Some((now - then) as f64);
                events.publish(kind, &self.name, phases, 1.0, &[("policy", by)]);
            }
        }
        if by != before.by {
            let load = scheduler.load(now_ns);
            let properties = [("policy", by), ("before", before.by)];
            events.publish("io.policy", &self.name, load, 1.0, &properties);
        }
    }
}

impl Desk {
    /// The volume that a program means: by its name, or by a path of it. Of several paths, the
    /// longest counts, as for mounts. Paths are compared as they are written: none is opened.
    fn volume_of(&self, said: &str) -> Option<usize> {
        let mut volumes = self.volumes.iter();
        if let Some(named) = volumes.position(|volume| volume.name == said) {
            return Some(named);
        }
        let said = Path::new(said);
        let within = self.volumes.iter().enumerate();
        let within = within.filter(|(_, volume)| said.starts_with(&volume.path));
        let longest = within.max_by_key(|(_, volume)| volume.path.components().count());
        longest.map(|(at, _)| at)
    }

    /// Keeps the names of an application.
    fn name(&mut self, key: ApplicationKey, names: ApplicationNames) {
        if self.names.contains_key(&key) {
            return;
        }
        if self.names.len() >= NAMES_MAX {
            let volumes = &self.volumes;
            let is_used = |key: &ApplicationKey| {
                volumes.iter().any(|volume| {
                    let scheduler = &volume.scheduler;
                    let mut phases = scheduler.phases();
                    let mut ended = scheduler.ended();
                    phases.any(|it| (it.user, it.phase.application) == *key)
                        || ended.any(|it| (it.user, it.application) == *key)
                })
            };
            self.names.retain(|key, _| is_used(key));
        }
        self.names.insert(key, names);
    }
}

/// The name of the controller of a volume.
fn controller_of(volume: &str) -> String {
    format!("{CONTROLLER_PREFIX}{volume}")
}

/// The number of an application: processes of one job and application are one.
fn application_of(names: &ApplicationNames) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&names.application, &names.job).hash(&mut hasher);
    hasher.finish()
}

fn outcome(member: MemberId, answer: MemberAnswer) -> PhaseOutcome {
    let (state, share) = match answer {
        MemberAnswer::Wait => (GrantState::Waiting, 0.0),
        MemberAnswer::Go { share } => (GrantState::Granted, share),
        MemberAnswer::Unscheduled => (GrantState::Unscheduled, 0.0),
    };
    PhaseOutcome {
        incarnation: Incarnation(member.process.to_le_bytes()),
        phase: member.phase,
        state,
        share,
    }
}

#[cfg(test)]
mod tests;

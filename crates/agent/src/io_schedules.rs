//! I/O scheduling on this node: the desk at which programs report their phases of I/O, with a
//! scheduler for each configured volume (docs/design/0012-agreement.md).
//!
//! The intake calls it in its own thread, so nothing here waits. What is told of it, a document and
//! streams, is read by others under the same lock, for the time of a copy.

mod config;
mod document;
mod turns;
mod view;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use barograph_control::{
    MemberAnswer, MemberId, MemberReport, MemberStage, SchedulerCounts, VolumeScheduler,
};
use barograph_intake::{PhaseDesk, PhaseOutcome, PhaseProcess, PhaseReport};
use barograph_model::Clock;
use barograph_stream::Incarnation;
use barograph_stream::ingest::{GrantState, PhaseStage};

use crate::decisions::{ControllerSwitches, DecisionBook};
pub use config::{PolicyName, ScheduleConfig, VolumeConfig};
pub(crate) use document::{ROWS_MAX, rows_of, rows_of_users};
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
    /// The name of its controller.
    controller: String,
    /// Bytes/s when one application alone uses it, and the time of a lease.
    bandwidth: f64,
    lease_ns: i64,
    turns: VolumeTurns,
    /// Whether all do I/O at once, whatever is planned.
    lets_all: bool,
}

#[derive(Default)]
struct Desk {
    volumes: Vec<Volume>,
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
    switches: Arc<ControllerSwitches>,
    /// Greatest priority of users other than root and this one.
    priority_max: u8,
    uid: u32,
}

impl IoSchedules {
    /// Makes the schedulers of the configured volumes.
    pub(crate) fn new(
        config: &ScheduleConfig,
        clock: &Arc<dyn Clock>,
        switches: Arc<ControllerSwitches>,
    ) -> Arc<Self> {
        let volumes = config.volumes.iter().map(|(name, volume)| Volume {
            name: name.clone(),
            path: volume.path.clone(),
            scheduler: config.scheduler(volume),
            controller: controller_of(name),
            bandwidth: volume.bandwidth,
            lease_ns: config.lease_ns().unwrap_or(i64::MAX),
            turns: VolumeTurns::default(),
            lets_all: false,
        });
        Arc::new(Self {
            desk: Mutex::new(Desk {
                volumes: volumes.collect(),
                ..Desk::default()
            }),
            clock: Arc::clone(clock),
            switches,
            priority_max: config.priority_max,
            uid: rustix::process::geteuid().as_raw(),
        })
    }

    /// The greatest priority that a user may have.
    fn priority_max(&self, uid: u32) -> u8 {
        match uid == 0 || uid == self.uid {
            true => u8::MAX,
            false => self.priority_max,
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
        let state = |volume: &Volume| {
            let scheduler = volume.scheduler.scheduler();
            let granted = scheduler.current().grants.len();
            VolumeState {
                waiting: volume.scheduler.phases().count().saturating_sub(granted),
                granted,
                load: scheduler.load(now_ns),
                counts: volume.scheduler.counts(),
            }
        };
        desk.volumes.iter().map(state).collect()
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

impl PhaseDesk for IoSchedules {
    fn schedules(&self) -> bool {
        !self.desk().volumes.is_empty()
    }

    fn report(&self, process: &PhaseProcess, reports: &[PhaseReport]) {
        let now_ns = self.clock.monotonic_ns();
        let mut desk = self.desk();
        let key = (process.uid, application(process));
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
            };
            desk.volumes[volume].scheduler.report(member, &said, now_ns);
            desk.name(key, process);
            desk.changes += 1;
        }
    }

    fn leave(&self, incarnation: Incarnation) {
        let now_ns = self.clock.monotonic_ns();
        let process = u128::from_le_bytes(incarnation.0);
        let mut desk = self.desk();
        for volume in &mut desk.volumes {
            volume.scheduler.leave(process, now_ns);
        }
        desk.changes += 1;
    }

    fn step(&self) -> Option<i64> {
        let (now_ns, wall_ns) = (self.clock.monotonic_ns(), self.clock.now_ns());
        let mut desk = self.desk();
        let Desk {
            volumes,
            names,
            book,
            ..
        } = &mut *desk;
        let mut context = TurnContext {
            names,
            book,
            switches: &self.switches,
            now_ns,
            wall_ns,
        };
        let steps = volumes.iter_mut();
        steps.filter_map(|volume| volume.attend(&mut context)).min()
    }

    fn take_outcomes(&self) -> Vec<PhaseOutcome> {
        let mut desk = self.desk();
        let mut outcomes = std::mem::take(&mut desk.unscheduled);
        for volume in &mut desk.volumes {
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
    fn name(&mut self, key: ApplicationKey, process: &PhaseProcess) {
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
        let names = ApplicationNames {
            application: process.application.clone(),
            job: process.job.clone(),
        };
        self.names.insert(key, names);
    }
}

/// The name of the controller of a volume.
fn controller_of(volume: &str) -> String {
    format!("{CONTROLLER_PREFIX}{volume}")
}

/// The number of a process's application: processes of one job and application are one.
fn application(process: &PhaseProcess) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&process.application, &process.job).hash(&mut hasher);
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

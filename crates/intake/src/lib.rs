//! Applications: a thread of its own takes in what running programs publish and records it in one
//! scope per set of readers (docs/design/0004-applications.md).
//!
//! It is separate from the loop that samples, since applications may be many, fast and ill-behaved,
//! and the sampler waits for none of them.

mod age;
mod answers;
mod bridge;
mod call_streams;
mod closer;
mod config;
mod counts;
mod directory;
mod door;
mod error;
mod event_door;
mod identity;
mod intake;
mod ledger;
mod leftovers;
mod maps;
mod newest;
mod offers;
mod phases;
mod process;
mod rates;
mod roster;
mod rows;
mod scope;
mod shares;
mod shell;
mod taken;
mod timing;
mod value;
mod who;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use barograph_bridge::Ingest;
use barograph_call::Board;
use barograph_model::Clock;
use barograph_stream::RunDir;
use tracing::warn;

pub use barograph_bridge::IngestFault;
pub use config::{ApplicationsConfig, IntakeConfig};
pub use counts::IngestCounts;
pub use door::IntakeBell;
use door::KnockSocket;
pub use error::IntakeError;
pub use event_door::{BatchLost, EventDoor, EventSource, EventsRecorded};
use intake::{Intake, IntakeEvent, IntakeParts, NextStep};
pub use maps::{MapDesk, MapOutcome, MapReport, MapRole, MapSample};
pub use phases::{PhaseDesk, PhaseOutcome, PhaseProcess, PhaseReport};
use scope::ScopeSettings;

use barograph_recorder::{ForecastRoom, ScopeHistories, World};

/// The parts of the agent that scopes share with it.
#[derive(Clone)]
pub struct ScopeShared {
    /// The forecast slots of the agent.
    pub forecasts: Arc<ForecastRoom>,
    /// The archives of the open scopes.
    pub histories: ScopeHistories,
    /// The outside of the agent.
    pub world: World,
    /// The desk for phases of I/O; without one they are recorded and not scheduled.
    pub phases: Option<Arc<dyn PhaseDesk>>,
    /// The desk for server maps; without one, programs are told that nobody keeps them.
    pub maps: Option<Arc<dyn MapDesk>>,
}

/// The thread that takes in what applications publish. Dropping it stops the thread after it has
/// taken in everything that is committed by then.
pub struct Applications {
    stop: Arc<AtomicBool>,
    knock: std::path::PathBuf,
    phases: std::path::PathBuf,
    bell: std::os::unix::net::UnixDatagram,
    board: Arc<Board>,
    bridge: Arc<dyn Ingest>,
    events: Arc<EventDoor>,
    thread: Option<JoinHandle<()>>,
}

impl Applications {
    /// Opens the ingest directory and starts the thread. `None` if applications are off, or if this
    /// fails: that is logged and does not keep the agent from observing. The thread counts in
    /// `counts` what becomes of ingest files.
    pub fn start(
        config: &IntakeConfig,
        run_dir: &RunDir,
        clock: &Arc<dyn Clock>,
        counts: Arc<IngestCounts>,
        shared: ScopeShared,
    ) -> Option<Self> {
        if !config.applications.enabled {
            return None;
        }
        let started = Assembly::new(config, run_dir, clock, counts, shared);
        match started.and_then(Assembly::start) {
            Ok(started) => Some(started),
            Err(error) => {
                warn!(%error, "what applications publish is not taken in");
                None
            }
        }
    }

    /// The receiver of values that come by other protocols.
    pub fn bridge(&self) -> &Arc<dyn Ingest> {
        &self.bridge
    }

    /// The door for collectors of file events.
    pub fn events(&self) -> &Arc<EventDoor> {
        &self.events
    }

    /// The board on which any thread makes calls into programs.
    pub fn board(&self) -> &Arc<Board> {
        &self.board
    }
}

/// The intake without a thread: its caller steps it.
pub struct SteppedApplications<'c> {
    intake: Intake<'c>,
    door: KnockSocket,
    clock: &'c dyn Clock,
    next: NextStep,
}

impl<'c> SteppedApplications<'c> {
    /// Opens the ingest directory, as [`Applications::start`] does.
    pub fn new(
        config: &IntakeConfig,
        run_dir: &RunDir,
        clock: &'c Arc<dyn Clock>,
        counts: Arc<IngestCounts>,
        shared: ScopeShared,
    ) -> Result<Self, IntakeError> {
        let assembly = Assembly::new(config, run_dir, clock, counts, shared)?;
        Ok(Self {
            intake: Intake::new(clock, assembly.parts),
            door: assembly.door,
            clock: &**clock,
            next: NextStep::At(i64::MIN),
        })
    }

    /// Does what is due, and returns the time of the next step; a knock waits until then.
    pub fn step(&mut self) -> i64 {
        if self.clock.monotonic_ns() >= self.next_ns() {
            self.intake
                .apply(IntakeEvent::Phases(self.door.hear_phases()));
            self.intake.apply(IntakeEvent::Knocks(self.door.hear()));
            self.next = self.intake.step();
        }
        self.next_ns()
    }

    fn next_ns(&self) -> i64 {
        match self.next {
            NextStep::At(at_ns) | NextStep::AtOrKnock(at_ns) => at_ns,
            NextStep::Never => i64::MAX,
        }
    }

    /// Whether everything is taken in after [`Self::stop`].
    pub fn has_ended(&self) -> bool {
        self.next == NextStep::Never
    }

    /// Has the next steps take in everything that is committed.
    pub fn stop(&mut self) {
        self.intake.apply(IntakeEvent::Stop);
        self.next = NextStep::At(i64::MIN);
    }
}

/// All parts of the intake, before its thread is started.
struct Assembly {
    parts: IntakeParts,
    door: KnockSocket,
    knock: std::path::PathBuf,
    phases: std::path::PathBuf,
    bridge: Arc<dyn Ingest>,
    events: Arc<EventDoor>,
    clock: Arc<dyn Clock>,
}

impl Assembly {
    /// Opens the ingest directory and makes the parts.
    fn new(
        config: &IntakeConfig,
        run_dir: &RunDir,
        clock: &Arc<dyn Clock>,
        counts: Arc<IngestCounts>,
        shared: ScopeShared,
    ) -> Result<Self, IntakeError> {
        let limits = config.applications.clone();
        let settings = ScopeSettings::new(config, run_dir.clone(), shared);
        let door = KnockSocket::open(run_dir, limits.is_open_to_all())?;
        let state_dir = settings.state_dir().to_owned();
        let board = match settings.shared.world.work.is_stepped() {
            true => Board::without_thread,
            false => Board::new,
        };
        let knock = run_dir.ingest_socket();
        let (to_bridge, bridge) =
            bridge::bridge(&knock, limits.is_open_to_all(), limits.bridged_max)
                .map_err(IntakeError::Thread)?;
        let (to_events, events) = event_door::event_door(&knock).map_err(IntakeError::Thread)?;
        Ok(Self {
            parts: IntakeParts {
                settings,
                limits,
                counts,
                board: Arc::new(board(run_dir.clone(), state_dir, Arc::clone(clock))),
                bridge,
                events,
            },
            door,
            knock,
            phases: run_dir.phases_socket(),
            bridge: Arc::new(to_bridge),
            events: Arc::new(to_events),
            clock: Arc::clone(clock),
        })
    }

    /// Starts the thread.
    fn start(self) -> Result<Applications, IntakeError> {
        let Self {
            parts,
            door,
            knock,
            phases,
            bridge,
            events,
            clock,
        } = self;
        let bell = crate::door::bell(&knock).map_err(IntakeError::Thread)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (board, ours) = (Arc::clone(&parts.board), Arc::clone(&stop));
        let intake = move || shell::run(Intake::new(&clock, parts), &door, &*clock, &ours);
        let thread = std::thread::Builder::new()
            .name("baro-intake".into())
            .spawn(intake)
            .map_err(IntakeError::Thread)?;
        Ok(Applications {
            stop,
            phases,
            knock,
            bell,
            board,
            bridge,
            events,
            thread: Some(thread),
        })
    }
}

impl Drop for Applications {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Knocks as an application would, so that the thread wakes before its sleep ends.
        let _ = self.bell.send(&[]);
        if let Some(thread) = self.thread.take() {
            // A panic of that thread was already reported.
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.knock);
        let _ = std::fs::remove_file(&self.phases);
    }
}

//! Applications: what running programs publish, taken in by a thread of its own and kept per scope of
//! readers (docs/design/0004-applications.md).
//!
//! It stands apart from the loop that samples: applications may be many, fast and ill-behaved, and the
//! sampler waits for none of them.

mod answers;
mod bridge;
mod call_streams;
mod closer;
mod config;
mod counts;
mod directory;
mod door;
mod error;
mod identity;
mod intake;
mod ledger;
mod leftovers;
mod newest;
mod offers;
mod process;
mod rates;
mod roster;
mod rows;
mod scope;
mod shares;
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

pub use config::{ApplicationsConfig, IntakeConfig, SCOPES_DIR};
pub use counts::IngestCounts;
use door::Door;
pub use error::IntakeError;
use intake::Intake;
use scope::Places;

use barograph_recorder::{Room, ScopeHistories};

/// What scopes share with the rest of the agent.
#[derive(Clone, Debug)]
pub struct Shared {
    /// Places for streams that are forecast.
    pub forecasts: Arc<Room>,
    /// Where the archives of scopes are found.
    pub histories: ScopeHistories,
}

/// The thread that takes in what applications publish. Dropping it stops it: what is committed by then
/// is taken in.
pub struct Applications {
    stop: Arc<AtomicBool>,
    knock: std::path::PathBuf,
    board: Arc<Board>,
    bridge: Arc<dyn Ingest>,
    thread: Option<JoinHandle<()>>,
}

impl Applications {
    /// Opens the ingest directory and starts the thread; `None` when it is off, or cannot be: that is no
    /// reason not to observe. What becomes of files of programs is told in `counts`.
    pub fn start(
        config: &IntakeConfig,
        run_dir: &RunDir,
        clock: &Arc<dyn Clock>,
        counts: Arc<IngestCounts>,
        shared: Shared,
    ) -> Option<Self> {
        if !config.applications.enabled {
            return None;
        }
        match Self::try_start(config, run_dir, clock, counts, shared) {
            Ok(started) => Some(started),
            Err(error) => {
                warn!(%error, "what applications publish is not taken in");
                None
            }
        }
    }

    /// The receiver of what other protocols write.
    pub fn bridge(&self) -> &Arc<dyn Ingest> {
        &self.bridge
    }

    fn try_start(
        config: &IntakeConfig,
        run_dir: &RunDir,
        clock: &Arc<dyn Clock>,
        counts: Arc<IngestCounts>,
        shared: Shared,
    ) -> Result<Self, IntakeError> {
        let places = Places::new(config, run_dir.clone(), shared);
        let stop = Arc::new(AtomicBool::new(false));
        let door = Door::open(run_dir, config.applications.is_open_to_all())?;
        let state_dir = places.state_dir().to_owned();
        let board = Arc::new(Board::new(run_dir.clone(), state_dir, Arc::clone(clock)));
        let (bridge_door, bridge) = bridge::bridge(
            run_dir.ingest_socket(),
            config.applications.is_open_to_all(),
            config.applications.bridged_max,
        )
        .map_err(IntakeError::Thread)?;
        let (ours, clock, to_board) = (Arc::clone(&stop), Arc::clone(clock), Arc::clone(&board));
        let limits = config.applications.clone();
        let intake = move || {
            Intake::new(&clock, places, limits, door, counts, to_board, bridge).run(&ours);
        };
        let thread = std::thread::Builder::new()
            .name("baro-intake".into())
            .spawn(intake)
            .map_err(IntakeError::Thread)?;
        Ok(Self {
            stop,
            knock: run_dir.ingest_socket(),
            board,
            bridge: Arc::new(bridge_door),
            thread: Some(thread),
        })
    }

    /// Where calls into programs are made, by any thread.
    pub fn board(&self) -> &Arc<Board> {
        &self.board
    }
}

impl Drop for Applications {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // As an application would: so that it does not sleep to the end of its time.
        if let Ok(socket) = std::os::unix::net::UnixDatagram::unbound() {
            let _ = socket.send_to(&[], &self.knock);
        }
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported where it happened.
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.knock);
    }
}

//! Applications: what running programs publish, taken in by a thread of its own and kept per scope of
//! readers (docs/design/0004-applications.md).
//!
//! It stands apart from the loop that samples: applications may be many, fast and ill-behaved, and the
//! sampler waits for none of them.

mod access;
mod config;
mod counts;
mod identity;
mod intake;
mod process;
mod scope;
mod timing;
mod value;
mod who;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use barograph_model::Clock;
use barograph_stream::RunDir;
use tracing::warn;

pub use config::ApplicationsConfig;
use intake::Intake;
use scope::Places;

use crate::{AgentError, Config};

/// The thread that takes in what applications publish. Dropping it stops it: what is committed by then
/// is taken in.
pub struct Applications {
    stop: Arc<AtomicBool>,
    knock: std::path::PathBuf,
    thread: Option<JoinHandle<()>>,
}

impl Applications {
    /// Opens the ingest directory and starts the thread; `None` when it is off, or cannot be: that is no
    /// reason not to observe.
    pub fn start(config: &Config, run_dir: &RunDir, clock: &Arc<dyn Clock>) -> Option<Self> {
        if !config.applications.enabled {
            return None;
        }
        match Self::try_start(config, run_dir, clock) {
            Ok(started) => Some(started),
            Err(error) => {
                warn!(%error, "what applications publish is not taken in");
                None
            }
        }
    }

    fn try_start(
        config: &Config,
        run_dir: &RunDir,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, AgentError> {
        let places = Places::new(config, run_dir.clone());
        let stop = Arc::new(AtomicBool::new(false));
        let door = intake::open_door(run_dir, config.applications.is_open_to_all())?;
        let (ours, clock) = (Arc::clone(&stop), Arc::clone(clock));
        let limits = config.applications.clone();
        let thread = std::thread::Builder::new()
            .name("baro-intake".into())
            .spawn(move || Intake::new(&clock, places, limits, door).run(&ours))
            .map_err(AgentError::Thread)?;
        Ok(Self {
            stop,
            knock: run_dir.ingest_socket(),
            thread: Some(thread),
        })
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

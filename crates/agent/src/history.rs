//! The archive as the agent holds it: started before the streams, closed after them, and never a
//! reason not to observe.
//!
//! It stands between the writer of the archive, which knows only files, and the loop, the documents
//! and the control side, which must go on when there is no writer.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use barograph_archive::{ArchiveError, Disk, Journal, Keeper, Mark, Status};
use barograph_model::Clock;
use barograph_server::{ArchiveVerb, ControlFault, ControlFaultKind};
use serde_json::{Value as Json, json};
use tracing::{info, warn};

use crate::ArchiveConfig;

/// The writer of this agent's archive, or why there is none.
pub struct History {
    /// Where it is; `None` when history is off.
    dir: Option<PathBuf>,
    /// Whether readers of this agent find their past there.
    readable: bool,
    /// `None` when there is no writer, and after [`Self::close`].
    keeper: Mutex<Option<Arc<Keeper>>>,
    /// Why there is no writer though one was wanted.
    trouble: String,
    /// Held while a control verb works: one at a time.
    working: Mutex<()>,
}

impl History {
    /// Starts the writer. An archive that cannot be written is no reason not to observe: the agent
    /// goes on without, and says so until it ends.
    pub fn start(config: &ArchiveConfig, node: &str, clock: &Arc<dyn Clock>) -> Self {
        if !config.enabled {
            return Self::new(None, None, String::new());
        }
        let dir = Some(config.dir.clone());
        let told = config
            .writer(node)
            .and_then(|writer| Ok((writer, config.target()?)));
        let started = told.map_err(|e| (e.to_string(), false));
        let started = started.and_then(|(writer, target)| {
            let (storage, clock) = (Arc::new(Disk), Arc::clone(clock));
            Keeper::start_with_target(writer, storage, clock, target).map_err(|e| {
                // What another agent writes is another agent's past: it would hide the present. So would what
                // anybody else may have written.
                let foreign = matches!(
                    e,
                    ArchiveError::Occupied { .. } | ArchiveError::Foreign { .. }
                );
                (remedied(&e), !foreign && config.dir.is_dir())
            })
        });
        match started {
            Ok(keeper) => {
                info!(dir = %config.dir.display(), "history is written");
                Self::new(dir, Some(keeper), String::new())
            }
            Err((trouble, readable)) => {
                warn!("history is not written: {trouble}");
                Self {
                    readable,
                    ..Self::new(dir, None, trouble)
                }
            }
        }
    }

    fn new(dir: Option<PathBuf>, keeper: Option<Keeper>, trouble: String) -> Self {
        Self {
            readable: dir.is_some(),
            dir,
            keeper: Mutex::new(keeper.map(Arc::new)),
            trouble,
            working: Mutex::new(()),
        }
    }

    /// Where readers find the past of this agent.
    pub fn readable_dir(&self) -> Option<&Path> {
        self.dir.as_deref().filter(|_| self.readable)
    }

    /// Where streams hand over what they append.
    pub fn journal(&self) -> Option<Journal> {
        self.keeper().map(|keeper| keeper.journal())
    }

    /// How far programs' rings had been read when the writer started.
    pub fn marks(&self) -> Vec<Mark> {
        let keeper = self.keeper();
        keeper.map_or_else(Vec::new, |keeper| keeper.marks().to_vec())
    }

    /// How the writer is doing; `None` when history is off.
    pub fn status(&self) -> Option<Status> {
        self.dir.as_ref()?;
        Some(match self.keeper() {
            Some(keeper) => keeper.status(),
            None => Status {
                trouble: self.trouble.clone(),
                ..Status::default()
            },
        })
    }

    /// The whole of `archive.json`; null when history is off.
    pub fn document(&self, status: Option<&Status>) -> Json {
        let (Some(dir), Some(status)) = (&self.dir, status) else {
            return Json::Null;
        };
        json!({
            "dir": dir.display().to_string(),
            "bytes": status.bytes,
            "log_bytes": status.log_bytes,
            "files": status.files,
            "samples": status.samples,
            "oldest_ts": Some(status.oldest_ts).filter(|ts| *ts != 0),
            "waiting_bytes": status.waiting_bytes,
            "waiting_copies": status.waiting_copies,
            "stale_copies": status.stale_copies,
            "losses": status.losses,
            "trouble": status.trouble,
        })
    }

    /// Carries out a control verb and waits for it: minutes, when there is much.
    pub fn command(&self, verb: ArchiveVerb) -> Result<Json, ControlFault> {
        let fault = |kind, message: String| ControlFault { kind, message };
        let Some(keeper) = self.keeper() else {
            let why = match (&self.dir, self.trouble.as_str()) {
                (None, _) => "history is off (archive.enabled = false or --no-archive)",
                (_, "") => "the agent is stopping",
                (_, trouble) => trouble,
            };
            let message = format!("there is no archive to work on: {why}");
            return Err(fault(ControlFaultKind::Statement, message));
        };
        let Ok(_working) = self.working.try_lock() else {
            let message = "the archive is being worked on: wait for it, then try again";
            return Err(fault(ControlFaultKind::Busy, message.into()));
        };
        let done = match verb {
            ArchiveVerb::Seal => keeper.seal().map(|()| json!({ "sealed": true })),
            ArchiveVerb::Compact => keeper.compact().map(|n| json!({ "replaced_files": n })),
        };
        done.map_err(|error| fault(ControlFaultKind::Internal, error.to_string()))
    }

    /// Writes and syncs what was handed over, and lets go of the archive.
    pub fn close(&self) {
        let keeper = self.lock().take();
        drop(keeper);
    }

    fn keeper(&self) -> Option<Arc<Keeper>> {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Arc<Keeper>>> {
        // Nothing that holds it can leave half a value behind.
        self.keeper.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What went wrong, and what to do about it where the error does not say.
fn remedied(error: &ArchiveError) -> String {
    match error {
        ArchiveError::Io { .. } => {
            format!("{error} (choose an --archive-dir that this user may write, or --no-archive)")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use barograph_stream::SystemClock;

    use super::*;

    #[test]
    fn what_others_may_have_written_is_not_this_agents_past() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let dir = tempfile::tempdir().unwrap();
        let config = ArchiveConfig {
            dir: dir.path().to_owned(),
            free_bytes_min: 0,
            ..ArchiveConfig::default()
        };
        let check = |readable: bool, trouble: &str| {
            let history = History::start(&config, "n1", &clock);
            let is = history.readable_dir().map(Path::to_owned);
            assert_eq!(is, readable.then(|| config.dir.clone()), "{trouble}");
            let status = history.status().unwrap();
            assert!(status.trouble.contains(trouble), "{}", status.trouble);
            assert_eq!(status.trouble.is_empty(), trouble.is_empty());
            history
        };
        let writer = check(true, "");
        check(false, "held by another agent");
        drop(writer);
        let node = dir.path().join("nodes/n1");
        fs::set_permissions(&node, Permissions::from_mode(0o777)).unwrap();
        check(false, "everybody may write there");
        fs::set_permissions(&node, Permissions::from_mode(0o755)).unwrap();
        // It is ours, only that it cannot be written.
        fs::rename(node.join("lock"), node.join("lock.old")).unwrap();
        fs::create_dir(node.join("lock")).unwrap();
        check(true, "cannot open");
    }
}

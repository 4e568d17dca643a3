//! The measurements of `baro probe`. A thread reads their file, since a file system that hangs must
//! not keep the disks from being read.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::MissingPart;
use crate::probe::{self, ProbeRecords};

/// Time between two checks of the file.
const LOOK_EVERY: Duration = Duration::from_secs(10);

#[derive(Default)]
struct State {
    records: ProbeRecords,
    fault: Option<String>,
    stop: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    /// Grows with each change of the records.
    changes: AtomicU64,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The newest measurements.
pub(super) struct Probed {
    path: PathBuf,
    shared: Arc<Shared>,
    seen: u64,
    records: ProbeRecords,
    thread_fault: Option<String>,
}

impl Probed {
    /// Starts the thread that reads this file; none if the path is empty.
    pub(super) fn new(path: &Path) -> Self {
        let shared = Arc::new(Shared::default());
        let mut thread_fault = None;
        if !path.as_os_str().is_empty() {
            let (path, shared) = (path.to_owned(), Arc::clone(&shared));
            let thread = std::thread::Builder::new().name("baro-probes".into());
            let started = thread.spawn(move || look(&path, &shared));
            thread_fault = started.err().map(|e| e.to_string());
        }
        Self {
            path: path.to_owned(),
            shared,
            seen: 0,
            records: ProbeRecords::new(),
            thread_fault,
        }
    }

    /// Whether the records have changed since the last call.
    pub(super) fn changed(&mut self) -> bool {
        let changes = self.shared.changes.load(Ordering::Acquire);
        if changes == self.seen {
            return false;
        }
        self.seen = changes;
        self.records.clone_from(&self.shared.lock().records);
        true
    }

    pub(super) fn records(&self) -> &ProbeRecords {
        &self.records
    }

    pub(super) fn missing(&self) -> Option<MissingPart> {
        let fault = self.thread_fault.clone();
        let why = fault.or_else(|| self.shared.lock().fault.clone())?;
        let what = format!("measurements in {}", self.path.display());
        let remedy = "remove the file and run baro probe again";
        Some(MissingPart::new(what, why, remedy))
    }
}

impl Drop for Probed {
    /// The thread ends by itself later: it may hang in a read.
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.wake.notify_all();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a thread of its own looks for results of probes"
)]
fn look(path: &Path, shared: &Shared) {
    let mut known = None;
    loop {
        // A file that did not change is not parsed again.
        let stamp = fs::metadata(path).and_then(|m| m.modified()).ok();
        let fresh = (known != Some(stamp)).then(|| probe::read(path));
        known = Some(stamp);
        let mut state = shared.lock();
        if let Some(read) = fresh {
            let (records, fault) = match read {
                Ok(records) => (records, None),
                Err(fault) => (ProbeRecords::new(), Some(fault.to_string())),
            };
            state.fault = fault;
            if state.records != records {
                state.records = records;
                shared.changes.fetch_add(1, Ordering::Release);
            }
        }
        if state.stop {
            return;
        }
        let waited = shared.wake.wait_timeout(state, LOOK_EVERY);
        if waited.unwrap_or_else(PoisonError::into_inner).0.stop {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_file_there_is_nothing_and_no_fault() {
        let dir = tempfile::tempdir().unwrap();
        for path in [PathBuf::new(), dir.path().join("probes.toml")] {
            let mut probed = Probed::new(&path);
            std::thread::sleep(Duration::from_millis(20));
            assert!(!probed.changed() && probed.records().is_empty());
            assert_eq!(probed.missing(), None);
        }
    }
}

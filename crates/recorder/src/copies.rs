//! Copies of the sealed files of scopes' archives, at the node's target below
//! `applications/<scope>`.
//!
//! It is a module of its own because all scopes share one connection to the target: one client, and
//! one copy under way at a time. So copies take the same memory and as many connections with one
//! scope as with 64, and scopes take turns.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use barograph_archive::{CopyTarget, ObjectTarget, scope_path};
use barograph_model::ConfigError;
use barograph_stream::{ScopeReader, make_public_dir, make_scope_dir};

use crate::range::refused;

/// The time between two checks for a stop, in a scope that waits for its turn.
const STOP_LOOK: Duration = Duration::from_millis(100);

/// The connection that all scopes share for copies to the node's target.
#[derive(Clone, Debug)]
pub struct ScopeCopies(Arc<Way>);

struct Way {
    /// The node's target.
    url: String,
    options: BTreeMap<String, String>,
    /// `None` until the first copy.
    target: Turns<Option<Box<dyn CopyTarget>>>,
}

impl std::fmt::Debug for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Prints no fields: the target may hold secrets.
        f.debug_struct("Way").finish_non_exhaustive()
    }
}

impl ScopeCopies {
    /// Makes the shared connection for a target, which is opened by the first copy.
    pub(crate) fn new(url: &str, options: &BTreeMap<String, String>) -> Self {
        Self(Arc::new(Way {
            url: url.to_owned(),
            options: options.clone(),
            target: Turns::new(None),
        }))
    }

    /// Returns the target for the files of one scope.
    pub fn of(&self, reader: ScopeReader) -> ScopeTarget {
        ScopeTarget {
            way: Arc::clone(&self.0),
            reader,
        }
    }
}

/// The target for the files of one scope.
#[derive(Clone, Debug)]
pub struct ScopeTarget {
    way: Arc<Way>,
    reader: ScopeReader,
}

impl ScopeTarget {
    /// Waits until it is this scope's turn, then calls `act` with the target and the path below the
    /// scope's prefix.
    fn at_target(
        &self,
        relative: &Path,
        stop: &AtomicBool,
        act: impl FnOnce(&mut dyn CopyTarget, &Path) -> Result<(), String>,
    ) -> Result<(), String> {
        let below = scope_path(&self.reader.scope());
        let in_turn = self.way.target.take(stop, |target| {
            self.make_place(&below)?;
            if target.is_none() {
                *target =
                    open_target(&self.way.url, &self.way.options).map_err(|e| e.to_string())?;
            }
            let target = target.as_deref_mut();
            act(
                target.ok_or("archive.target is empty")?,
                &below.join(relative),
            )
        });
        in_turn.unwrap_or_else(|| Err("it was given up, since the agent stops".into()))
    }

    /// Makes the scope's directory at a `file://` target, with the scope's readers. This happens
    /// before each copy: if the directory was removed meanwhile, the copy would make it anew with
    /// the rights of the umask.
    fn make_place(&self, below: &Path) -> Result<(), String> {
        let Some(root) = self.way.url.strip_prefix("file://") else {
            return Ok(());
        };
        let place = Path::new(root).join(below);
        let parent: PathBuf = place.parent().unwrap_or(Path::new(root)).into();
        let made = make_public_dir(&parent)
            .and_then(|()| make_scope_dir(&place, self.reader))
            .map(drop);
        made.map_err(|e| format!("cannot make {}: {e}", place.display()))
    }
}

impl CopyTarget for ScopeTarget {
    fn copy(&mut self, local: &Path, relative: &Path, stop: &AtomicBool) -> Result<(), String> {
        self.at_target(relative, stop, |target, relative| {
            target.copy(local, relative, stop)
        })
    }

    fn remove(&mut self, relative: &Path, stop: &AtomicBool) -> Result<(), String> {
        self.at_target(relative, stop, |target, relative| {
            target.remove(relative, stop)
        })
    }
}

/// Opens a target, if one is named; no connection is made yet. Fails if the target or its options
/// are invalid.
pub(crate) fn open_target(
    url: &str,
    options: &BTreeMap<String, String>,
) -> Result<Option<Box<dyn CopyTarget>>, ConfigError> {
    if url.is_empty() {
        return Ok(None);
    }
    let opened = ObjectTarget::open(url, options);
    let opened = opened.map_err(|e| {
        // The target is named in the error without the part before `@`, which may contain a secret.
        let shown = url.rsplit('@').next().unwrap_or_default();
        refused("archive.target", &shown, &e.to_string())
    })?;
    Ok(Some(Box::new(opened)))
}

/// A value that threads use one after the other, in the order in which they asked. A mutex does not
/// promise this order: a scope with many files could take it again and again.
struct Turns<T> {
    /// The next ticket, and the tickets of the waiting threads, oldest first; at most one per
    /// scope.
    line: Mutex<(u64, VecDeque<u64>)>,
    moved: Condvar,
    value: Mutex<T>,
}

impl<T> Turns<T> {
    fn new(value: T) -> Self {
        Self {
            line: Mutex::default(),
            moved: Condvar::new(),
            value: Mutex::new(value),
        }
    }

    /// Waits for its turn and calls `act`; returns `None` if `stop` is set before.
    #[expect(
        clippy::disallowed_methods,
        reason = "a copy waits for its turn on the connection"
    )]
    fn take<R>(&self, stop: &AtomicBool, act: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut line = locked(&self.line);
        let ours = line.0;
        line.0 += 1;
        line.1.push_back(ours);
        // Leaves the queue however this function ends.
        let _place = LinePlace { turns: self, ours };
        while line.1.front() != Some(&ours) {
            if stop.load(Ordering::Relaxed) {
                drop(line);
                return None;
            }
            let waited = self.moved.wait_timeout(line, STOP_LOOK);
            line = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(line);
        Some(act(&mut *locked(&self.value)))
    }
}

/// One thread's place in the queue of [`Turns`]; dropping it leaves the queue.
struct LinePlace<'a, T> {
    turns: &'a Turns<T>,
    ours: u64,
}

impl<T> Drop for LinePlace<'_, T> {
    fn drop(&mut self) {
        locked(&self.turns.line)
            .1
            .retain(|place| *place != self.ours);
        self.turns.moved.notify_all();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Ignoring poison is sound: no holder of a lock can leave a half-written value behind.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::ArchiveConfig;

    #[test]
    fn scopes_have_places_of_their_own_with_their_readers() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "rows").unwrap();
        let there = dir.path().join("copies");
        let config = ArchiveConfig {
            target: format!("file://{}", there.display()),
            ..ArchiveConfig::default()
        };
        let copies = config.scope_copies().unwrap();
        let stop = AtomicBool::new(false);
        let us = rustix::process::getuid().as_raw();
        let place = Path::new("raw/node=n1/1.parquet");
        let mut node = config.target().unwrap().unwrap();
        node.copy(&file, place, &stop).unwrap();
        for (reader, mode) in [(ScopeReader::User(us), 0o700), (ScopeReader::All, 0o755)] {
            let mut target = copies.of(reader);
            target.copy(&file, place, &stop).unwrap();
            let dir = there.join("applications").join(reader.scope());
            assert_eq!(fs::read(dir.join(place)).unwrap(), b"rows");
            let is = fs::metadata(&dir).unwrap().permissions().mode() & 0o777;
            assert_eq!(is, mode);
            target.remove(place, &stop).unwrap();
            assert!(!dir.join(place).exists());
        }
        assert!(there.join(place).exists(), "the node's is not touched");
        let without = ArchiveConfig {
            target_applications: false,
            ..config
        };
        assert!(without.scope_copies().is_none());
        assert!(ArchiveConfig::default().scope_copies().is_none());
    }

    #[test]
    fn turns_come_in_the_order_of_asking_and_who_stops_leaves_the_line() {
        let turns = Turns::new(Vec::new());
        let (go_on, stop) = (AtomicBool::new(false), AtomicBool::new(true));
        let waiting = |count: usize| {
            while locked(&turns.line).1.len() < count {
                std::thread::yield_now();
            }
        };
        std::thread::scope(|threads| {
            turns.take(&go_on, |_| {
                threads.spawn(|| turns.take(&go_on, |seen| seen.push(1)));
                waiting(2);
                threads.spawn(|| turns.take(&go_on, |seen| seen.push(2)));
                waiting(3);
                assert!(turns.take(&stop, |seen| seen.push(3)).is_none());
            });
        });
        assert_eq!(turns.take(&go_on, |seen| seen.clone()), Some(vec![1, 2]));
    }
}

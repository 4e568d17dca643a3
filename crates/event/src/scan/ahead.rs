//! Looking ahead of a walk: threads that read directories which the walk comes to next, and look at
//! the names in them, so that the operating system knows the answers when the walk asks.
//!
//! They give nothing to the walk and tell nothing, so a walk finds the same with them and without.
//! They pay where each answer of a file system takes long, as those of network file systems do.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::CString;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::fs::{CWD, Dir, Mode, OFlags};

use super::place::look;
use crate::event::ObjectId;

/// Most threads of one walk.
pub const SCAN_THREADS_MAX: usize = 64;
/// Directories for each thread that a walk names in advance.
const DIRECTORIES_OF_THREAD: usize = 4;
/// Most pieces of work that wait. The oldest is given up for a new one.
const WAITING_MAX: usize = 4_096;
/// Names of a directory that are looked at by one thread.
const NAMES_AT_ONCE: usize = 64;
/// Most directories that are remembered as named. Then all are forgotten.
const NAMED_MAX: usize = 4_096;

/// A piece of work.
enum Ahead {
    /// Read the directory of this path, and look at the names in it.
    Directory(Vec<u8>),
    /// Look at these names of a directory.
    Names(Arc<OwnedFd>, Vec<CString>),
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The newest is done first: it is what the walk comes to first.
    waiting: VecDeque<Ahead>,
    is_over: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that holds this lock can leave half a change behind.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, work: Ahead) {
        let mut state = self.lock();
        if state.waiting.len() >= WAITING_MAX {
            state.waiting.pop_front();
        }
        state.waiting.push_back(work);
        drop(state);
        self.changed.notify_one();
    }

    /// The next piece of work; `None` at the end.
    fn next(&self) -> Option<Ahead> {
        let mut state = self.lock();
        loop {
            if state.is_over {
                return None;
            }
            if let Some(work) = state.waiting.pop_back() {
                return Some(work);
            }
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The threads that look ahead of a walk. Dropping it ends them.
pub(crate) struct LookAhead {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    named: BTreeSet<ObjectId>,
}

impl LookAhead {
    /// Starts so many threads. Fewer are started if the system has no more.
    pub(crate) fn start(threads: usize) -> Self {
        let shared = Arc::new(Shared::default());
        let start = |_| {
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name("baro-ahead".into());
            thread.spawn(move || work(&shared)).ok()
        };
        Self {
            threads: (0..threads.min(SCAN_THREADS_MAX))
                .map_while(start)
                .collect(),
            shared,
            named: BTreeSet::new(),
        }
    }

    /// The number of directories that a walk should name in advance.
    pub(crate) fn wanted(&self) -> usize {
        self.threads.len() * DIRECTORIES_OF_THREAD
    }

    /// Takes in that a walk comes to a directory soon; `path` gives its path.
    pub(crate) fn name(&mut self, dir: ObjectId, path: impl FnOnce() -> Option<Vec<u8>>) {
        if self.named.len() >= NAMED_MAX {
            self.named.clear();
        }
        if self.named.insert(dir)
            && let Some(path) = path()
        {
            self.shared.put(Ahead::Directory(path));
        }
    }

    /// Forgets what was named: a new walk begins.
    pub(crate) fn begin(&mut self) {
        self.named.clear();
    }
}

impl Drop for LookAhead {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.is_over = true;
        state.waiting.clear();
        drop(state);
        self.shared.changed.notify_all();
        // One that hangs in a file system would hold up whoever stops the walk.
        self.threads.clear();
    }
}

/// The thread of a pool: what fails is left to the walk, which sees the same.
fn work(shared: &Shared) {
    while let Some(work) = shared.next() {
        match work {
            Ahead::Directory(path) => read(shared, &path),
            Ahead::Names(dir, names) => {
                for name in names {
                    let _ = look(dir.as_fd(), name.as_bytes());
                }
            }
        }
    }
}

/// Reads a directory, and hands its names on in pieces.
fn read(shared: &Shared, path: &[u8]) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(fd) = rustix::fs::openat(CWD, path, flags, Mode::empty()) else {
        return;
    };
    let Ok(stream) = Dir::read_from(&fd) else {
        return;
    };
    let dir = Arc::new(fd);
    let mut names = Vec::new();
    for entry in stream.map_while(Result::ok) {
        let name = entry.file_name();
        if name.to_bytes() == b"." || name.to_bytes() == b".." {
            continue;
        }
        names.push(name.to_owned());
        if names.len() >= NAMES_AT_ONCE {
            shared.put(Ahead::Names(Arc::clone(&dir), std::mem::take(&mut names)));
        }
    }
    for name in names {
        let _ = look(dir.as_fd(), name.as_bytes());
    }
}

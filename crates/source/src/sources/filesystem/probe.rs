//! Asking every mount for its space at once, on threads that may hang.
//!
//! `statvfs` of a dead network file system does not return, and nothing can interrupt it. So each
//! call is made by one of a few threads; one that hangs is left alone with its mount, and another
//! takes its place. The mounts that answer are not kept waiting by those that do not.

use std::ffi::CStr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;

/// Most threads, and so most mounts that may hang before others go without an answer.
pub(super) const THREADS_MAX: usize = 64;
/// A thread here calls one function.
const STACK_BYTES: usize = 64 << 10;
/// A round's time is cut into this many waits; after each, threads are added for the mounts that
/// still wait for one.
const WAITS: u32 = 8;
/// Threads that stay for the next round.
const IDLE_MAX: usize = 2;

/// What a file system says of its space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes not used.
    pub free_bytes: u64,
    /// Bytes that an ordinary user may still use.
    pub available_bytes: u64,
    /// Inodes in all.
    pub files_total: u64,
    /// Inodes not used.
    pub files_free: u64,
    /// Bytes in the smallest piece of space that it gives to a file; 0 if it does not say.
    pub block_bytes: u64,
    /// Whether it is mounted read-only.
    pub readonly: bool,
}

/// Asks the file system at a path; may hang.
pub type StatFn = dyn Fn(&CStr) -> Result<Space, Errno> + Send + Sync;

/// `statvfs` of the path.
pub(super) fn statvfs(path: &CStr) -> Result<Space, Errno> {
    let stat = rustix::fs::statvfs(path)?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    Ok(Space {
        total_bytes: bytes(stat.f_blocks),
        free_bytes: bytes(stat.f_bfree),
        available_bytes: bytes(stat.f_bavail),
        files_total: stat.f_files,
        files_free: stat.f_ffree,
        block_bytes: stat.f_frsize,
        readonly: stat.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY),
    })
}

/// What came of asking one mount in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Space(Space),
    Refused(Errno),
    /// Asked, and silent until the end of the round.
    Silent,
    /// Not asked: all threads hang.
    NotAsked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Not in use.
    Free,
    Resting,
    Waiting,
    Asking,
    /// No longer wanted, but a thread hangs in it.
    Abandoned,
    Answered(Result<Space, Errno>),
}

struct Slot {
    path: Arc<CStr>,
    phase: Phase,
}

#[derive(Default)]
struct Board {
    slots: Vec<Slot>,
    threads: usize,
    idle: usize,
    stop: bool,
}

struct Shared {
    board: Mutex<Board>,
    /// There is something to ask, or the end.
    work: Condvar,
    /// Something was answered.
    answered: Condvar,
    stat: Arc<StatFn>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The mounts to ask, each in a slot.
pub(super) struct Probes {
    shared: Arc<Shared>,
    /// Why no thread could be started, if so.
    pub(super) thread_fault: Option<String>,
}

impl Probes {
    pub(super) fn new(stat: Arc<StatFn>) -> Self {
        let shared = Shared {
            board: Mutex::default(),
            work: Condvar::new(),
            answered: Condvar::new(),
            stat,
        };
        Self {
            shared: Arc::new(shared),
            thread_fault: None,
        }
    }

    /// A slot for this path.
    pub(super) fn add(&self, path: Arc<CStr>) -> usize {
        let mut board = self.shared.lock();
        let slot = Slot {
            path,
            phase: Phase::Resting,
        };
        match board.slots.iter().position(|s| s.phase == Phase::Free) {
            Some(free) => {
                board.slots[free] = slot;
                free
            }
            None => {
                board.slots.push(slot);
                board.slots.len() - 1
            }
        }
    }

    /// Gives a slot back; if a thread hangs in it, once that returns.
    pub(super) fn remove(&self, slot: usize) {
        let slot = &mut self.shared.lock().slots[slot];
        slot.phase = if slot.phase == Phase::Asking {
            Phase::Abandoned
        } else {
            Phase::Free
        };
    }

    /// Asks all mounts, except those that still owe an answer, and waits until all have answered,
    /// at most `timeout`.
    pub(super) fn round(&mut self, timeout: Duration) {
        let mut board = self.shared.lock();
        for slot in &mut board.slots {
            if matches!(slot.phase, Phase::Resting | Phase::Answered(_)) {
                slot.phase = Phase::Waiting;
            }
        }
        self.shared.work.notify_all();
        let open = |board: &Board| {
            let is_open = |s: &&Slot| matches!(s.phase, Phase::Waiting | Phase::Asking);
            board.slots.iter().filter(is_open).count()
        };
        self.thread_fault = None;
        for wait in 0..WAITS {
            if open(&board) == 0 {
                break;
            }
            // What still waits for a thread after the first wait would wait behind a slow mount.
            if wait > 0 || board.threads == 0 {
                self.thread_fault = self.add_threads(&mut board).err().map(|e| e.to_string());
            }
            let until = |board: &mut Board| open(board) > 0;
            let waited = self
                .shared
                .answered
                .wait_timeout_while(board, timeout / WAITS, until);
            board = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// What came of the last round.
    pub(super) fn answer(&self, slot: usize) -> Answer {
        match self.shared.lock().slots[slot].phase {
            Phase::Answered(Ok(space)) => Answer::Space(space),
            Phase::Answered(Err(errno)) => Answer::Refused(errno),
            Phase::Asking => Answer::Silent,
            Phase::Waiting | Phase::Resting | Phase::Free | Phase::Abandoned => Answer::NotAsked,
        }
    }

    /// One thread to begin with; later, since those that are there are held up, one for each mount.
    fn add_threads(&self, board: &mut Board) -> std::io::Result<()> {
        let waiting = board
            .slots
            .iter()
            .filter(|s| s.phase == Phase::Waiting)
            .count();
        let wanted = if board.threads == 0 { 1 } else { waiting };
        for _ in 0..wanted.min(THREADS_MAX.saturating_sub(board.threads)) {
            let shared = self.shared.clone();
            std::thread::Builder::new()
                .name("baro-statvfs".to_owned())
                .stack_size(STACK_BYTES)
                .spawn(move || run(&shared))?;
            board.threads += 1;
        }
        Ok(())
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.work.notify_all();
    }
}

fn run(shared: &Shared) {
    let mut board = shared.lock();
    loop {
        let next = board.slots.iter().position(|s| s.phase == Phase::Waiting);
        if board.stop || (next.is_none() && board.idle >= IDLE_MAX) {
            board.threads -= 1;
            return;
        }
        let Some(index) = next else {
            board.idle += 1;
            board = shared
                .work
                .wait(board)
                .unwrap_or_else(PoisonError::into_inner);
            board.idle -= 1;
            continue;
        };
        board.slots[index].phase = Phase::Asking;
        let path = board.slots[index].path.clone();
        drop(board);
        let answer = (shared.stat)(&path);
        board = shared.lock();
        let slot = &mut board.slots[index];
        slot.phase = match slot.phase {
            Phase::Abandoned => Phase::Free,
            _ => Phase::Answered(answer),
        };
        shared.answered.notify_all();
    }
}

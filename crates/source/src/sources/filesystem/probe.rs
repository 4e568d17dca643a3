//! Queries the space of all mounts at once, on threads that may hang.
//!
//! `statvfs` of a dead network file system does not return, and cannot be interrupted. So each call
//! is made by one of a few threads; a thread that hangs is left alone with its mount, and another
//! takes its place. A mount that does not answer does not delay the others.

use std::ffi::CStr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;

/// Most threads, and so most mounts that may hang before others get no answer.
pub(super) const THREADS_MAX: usize = 64;
/// Stack of a thread, which only calls one function.
const STACK_BYTES: usize = 64 << 10;
/// Number of waits into which the time of a round is divided; after each, threads are added for the
/// mounts that still wait for one.
const WAITS: u32 = 8;
/// Number of threads that stay for the next round.
const IDLE_MAX: usize = 2;

/// The space of a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Total size, in bytes.
    pub total_bytes: u64,
    /// Unused bytes.
    pub free_bytes: u64,
    /// Bytes that an ordinary user may still use.
    pub available_bytes: u64,
    /// Total number of inodes.
    pub files_total: u64,
    /// Number of unused inodes.
    pub files_free: u64,
    /// Smallest unit of space that a file gets, in bytes; 0 if unknown.
    pub block_bytes: u64,
    /// Whether it is mounted read-only.
    pub readonly: bool,
}

/// A function that queries the file system at a path; it may hang.
pub type StatFn = dyn Fn(&CStr) -> Result<Space, Errno> + Send + Sync;

/// Calls `statvfs` on the path.
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

/// The result for one mount in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MountAnswer {
    Space(Space),
    Refused(Errno),
    /// The mount was asked, and did not answer until the end of the round.
    Silent,
    /// The mount was not asked: all threads hang.
    NotAsked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The slot is not in use.
    Free,
    Resting,
    Waiting,
    Asking,
    /// The slot is no longer wanted, but a thread hangs in it.
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
    /// Notified when there is a mount to ask, and at the end.
    work: Condvar,
    /// Notified when a mount has answered.
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
    /// The reason why no thread could be started, if so.
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

    /// Allocates a slot for this path.
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

    /// Frees a slot; if a thread hangs in it, once the thread returns.
    pub(super) fn remove(&self, slot: usize) {
        let slot = &mut self.shared.lock().slots[slot];
        slot.phase = if slot.phase == Phase::Asking {
            Phase::Abandoned
        } else {
            Phase::Free
        };
    }

    /// Asks all mounts, except those that have not answered an earlier question, and waits until
    /// all have answered, at most `timeout`.
    #[expect(
        clippy::disallowed_methods,
        reason = "the thread of a slow source waits for mounts that may hang"
    )]
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
            // A mount without a thread after the first wait would have to wait behind a slow mount.
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

    /// The result of the last round for a slot.
    pub(super) fn answer(&self, slot: usize) -> MountAnswer {
        match self.shared.lock().slots[slot].phase {
            Phase::Answered(Ok(space)) => MountAnswer::Space(space),
            Phase::Answered(Err(errno)) => MountAnswer::Refused(errno),
            Phase::Asking => MountAnswer::Silent,
            Phase::Waiting | Phase::Resting | Phase::Free | Phase::Abandoned => {
                MountAnswer::NotAsked
            }
        }
    }

    /// Starts one thread at first; later, since the existing threads are blocked, one for each
    /// waiting mount.
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

//! The agent as a publisher needs it: a way to wake it, and a check whether it lives.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use barograph_model::Clock;
use barograph_stream::{RunDir, SegmentReader};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sendto, socket_with,
};

/// Shortest time between two checks of a full ring whether the agent lives, in ns.
const LOOK_INTERVAL_NS_MIN: i64 = 50_000_000;

/// Outcome of a knock, the message that wakes the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Knock {
    /// The agent will receive it.
    Heard,
    /// The knock was not delivered: try again.
    Unheard,
    /// There is no agent. An agent that starts later looks at all files.
    Nobody,
}

/// The agent of a run directory.
#[derive(Debug)]
pub(super) struct Agent {
    run_dir: RunDir,
    door: PathBuf,
    phases_door: PathBuf,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    segment: Option<SegmentReader>,
    /// Time of the last check, on the monotonic clock.
    looked_ns: Option<i64>,
    is_alive: bool,
}

impl Agent {
    pub(super) fn of(run_dir: &RunDir) -> Self {
        Self {
            run_dir: run_dir.clone(),
            door: run_dir.ingest_socket(),
            phases_door: run_dir.phases_socket(),
            seen: Mutex::default(),
        }
    }

    /// Tells the agent that there is news.
    pub(super) fn knock(&self, incarnation: &[u8; 16]) -> Knock {
        knock_at(&self.door, incarnation)
    }

    /// Tells the agent that a phase of I/O waits for it.
    pub(super) fn knock_for_phase(&self, incarnation: &[u8; 16]) -> Knock {
        knock_at(&self.phases_door, incarnation)
    }

    /// Whether the agent lives, as of the last check.
    pub(super) fn is_alive(&self, clock: &dyn Clock) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let now_ns = clock.monotonic_ns();
        let is_due = |looked| now_ns - looked >= LOOK_INTERVAL_NS_MIN;
        if seen.looked_ns.is_none_or(is_due) {
            seen.looked_ns = Some(now_ns);
            let wall_ns = clock.now_ns();
            let lives = |segment: &SegmentReader| segment.is_alive(wall_ns);
            if !seen.segment.as_ref().is_some_and(lives) {
                // Another agent may have started since.
                seen.segment = SegmentReader::of(&self.run_dir).ok();
            }
            seen.is_alive = seen.segment.as_ref().is_some_and(lives);
        }
        seen.is_alive
    }
}

/// Knocks through a socket that is opened for this purpose: a socket that is kept open could
/// have become the program's own descriptor meanwhile.
fn knock_at(door: &Path, incarnation: &[u8; 16]) -> Knock {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let send = || {
        let door = SocketAddrUnix::new(door)?;
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        sendto(&socket, incarnation, SendFlags::NOSIGNAL, &door)
    };
    match send() {
        Ok(_) => Knock::Heard,
        // Its queue is full, or this process has no descriptor to spare.
        Err(
            Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::NOMEM | Errno::MFILE | Errno::NFILE,
        ) => Knock::Unheard,
        Err(_) => Knock::Nobody,
    }
}
